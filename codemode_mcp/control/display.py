"""Text of programs and servers for a terminal. It cannot move the cursor, hide, or look like text of ours. Pure."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from declarations.untrusted_text import escape_misleading

if TYPE_CHECKING:
    from collections.abc import Iterator


def plain(text: str, *, right_to_left: bool = False) -> str:
    """Return `text` on one line. Characters that do not print as themselves become JavaScript escapes.

    Args:
        right_to_left: keep the letters of right-to-left scripts. They change the order in which the text around them is
            displayed, so they must not be kept in a text on which a person decides.
    """
    return escape_misleading(text, _javascript_escape, right_to_left=right_to_left)


def _javascript_escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\u{{{code:x}}}"


def cut(text: str, characters: int) -> str:
    """Return `text` on one line as `plain` does, with at most `characters` characters. A cut text ends with `…`."""
    shown = plain(text[: characters + 1])
    return shown if len(shown) <= characters else shown[: characters - 1] + "…"


def padded(text: str, width: int) -> str:
    """Return a text that is escaped, and shortened or padded to exactly `width` columns."""
    shown = cut(text, width)
    while columns(shown) > width:
        shown = shown[:-2] + "…"
    return shown + " " * (width - columns(shown))


def counted(count: int, noun: str) -> str:
    """Return a number with a noun: `1 tool`, `2 tools`, `1,000 tools`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


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
