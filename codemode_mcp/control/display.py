"""Text of programs and servers on a terminal: nothing in it moves the cursor, hides, or looks like ours. Pure."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from declarations.untrusted_text import escape_misleading

if TYPE_CHECKING:
    from collections.abc import Iterator


def plain(text: str, *, right_to_left: bool = False) -> str:
    """Return `text` on one line, with everything that does not print as itself escaped as JavaScript does.

    Args:
        right_to_left: show letters of Hebrew, Arabic and their like as they are. Text around them is displayed in
            another order, so this is for text that no decision rests on.
    """
    return escape_misleading(text, _javascript_escape, right_to_left=right_to_left)


def _javascript_escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\u{{{code:x}}}"


def cut(text: str, characters: int) -> str:
    """`text` on one line, at most so long and with a mark where it was longer."""
    shown = plain(text[: characters + 1])
    return shown if len(shown) <= characters else shown[: characters - 1] + "…"


def counted(count: int, what: str) -> str:
    """`1 tool`, `2 tools`, `1,000 tools`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def wrapped(text: str, width: int, margin: str) -> Iterator[str]:
    """`text` in lines that fit a terminal, so that none is broken where the margin would not show.

    Args:
        width: columns.
        margin: what each of the lines begins with.
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
    """Return the columns that a text takes at most; terminals disagree on some characters."""
    return len(text) if text.isascii() else sum(1 + (unicodedata.east_asian_width(char) in "WFA") for char in text)
