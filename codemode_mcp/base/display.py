"""Text of programs and servers for a terminal. It cannot move the cursor, hide, or look like text of ours. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

from codemode_mcp.base.text import clip
from declarations.untrusted_text import AUTHORITY, count_blanks, escape_misleading, is_look_alike


def plain(text: str, *, right_to_left: bool = False) -> str:
    """Return `text` on one line. Characters that do not print as themselves become JavaScript escapes.

    Args:
        right_to_left: keep the letters of right-to-left scripts. They change the order in which the text around them is
            displayed, so they must not be kept in a text on which a person decides.
    """
    return escape_misleading(text, _javascript_escape, right_to_left=right_to_left)


_LABEL: Final = re.compile(r"[\w-]+")
_MAX_LABEL: Final = 63
_TWINS: Final = re.compile(
    "(?:[\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0455\u0456\u0458\u04bb\u04cf\u0501\u051b\u051d\u0410\u0412\u0415\u0405\u0406"
    "\u0408\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u0391\u0392\u0395-\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4"
    "\u03a5\u03a7\u03bd\u03bf\u03c1]|[-_.])+"
)
"""Words of Cyrillic or Greek letters that are drawn like those of ASCII."""

_SEGMENT: Final = re.compile(r"""[^\s/=:,@"']+""")


def exact(text: str) -> str:
    r"""Return a command line, an address or a value on one line, as programs read it and not as it looks.

    Hosts of URLs are shown as they are looked up (`xn--80ak6aa92e.com`). Words of ASCII have no other letters or signs:
    these are escaped (`a\u0441me`). A long run of blanks is shown as its length.
    """
    if not text.isascii():
        text = _SEGMENT.sub(_ascii_segment, AUTHORITY.sub(_looked_up, text))
    return plain(count_blanks(text))


def _looked_up(authority: re.Match[str]) -> str:
    return _LABEL.sub(_ascii_label, authority[0])


def _ascii_label(label: re.Match[str]) -> str:
    if label[0].isascii() or len(label[0]) > _MAX_LABEL:
        return label[0]
    return f"xn--{label[0].lower().encode('punycode').decode()}"


def _ascii_segment(segment: re.Match[str]) -> str:
    """Return a part of a word, with the characters escaped that a reader could take for ASCII.

    They are beside ASCII, or all letters of the part look like ASCII.
    """
    if not any(each.isascii() and each.isalnum() for each in segment[0]) and not _TWINS.fullmatch(segment[0]):
        return segment[0]
    return "".join(each if each.isascii() or _is_distinct(each) else _javascript_escape(each) for each in segment[0])


def _is_distinct(character: str) -> bool:
    """Return True for letters of Latin with marks, and for those of scripts that do not look like Latin."""
    return character.isalpha() and not is_look_alike(character)


def _javascript_escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\u{{{code:x}}}"


MAX_CELL: Final = 100
"""Characters of a cell of a table."""


def cut(text: str, characters: int) -> str:
    """Return `text` on one line as `plain` does, with at most `characters` characters. A cut text ends with `…`."""
    return clip(plain(text[: characters + 1]), characters)


def padded(text: str, width: int) -> str:
    """Return a text that is escaped, and shortened or padded to exactly `width` columns."""
    shown = cut(text, width)
    while columns(shown) > width:
        shown = shown[:-2] + "…"
    return shown + " " * (width - columns(shown))


def rough(seconds: float) -> str:
    """Return a number of seconds in words: `90 s`, `5 min`, `3 h`, `4 d`."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"


def counted(count: int, noun: str) -> str:
    """Return a number with a noun: `1 tool`, `2 tools`, `1,000 tools`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield the lines of a table, each cut to the width: a longer one would wrap, and could pass for a line of ours."""
    shown = [head, *([cut(cell, MAX_CELL) for cell in row] for row in rows)]
    widths = [max(map(columns, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        cells = [cell + " " * (room - columns(cell)) for cell, room in zip(row, widths, strict=True)]
        yield cut("  ".join(cells).rstrip(), width)


def wrapped(text: str, width: int, margin: str) -> Iterator[str]:
    """Yield `text` in lines that fit a terminal. A terminal wraps longer lines itself, without the margin.

    Args:
        width: columns of the terminal.
        margin: the beginning of each line.
    """
    room = max(8, width - columns(margin) - 1)
    for line in text.split("\n"):
        rest = plain(line)
        while True:
            end, used = 0, 0
            while end < len(rest) and used + columns(rest[end]) <= room:
                used += columns(rest[end])
                end += 1
            yield margin + rest[:end]
            rest = rest[end:]
            if not rest:
                break


def columns(text: str) -> int:
    """Return the maximum number of columns that a text may take. Terminals disagree on the width of some characters."""
    return len(text) if text.isascii() else sum(1 + (unicodedata.east_asian_width(char) in "WFA") for char in text)
