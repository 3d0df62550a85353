"""Text of programs and servers on a terminal: nothing in it moves the cursor, hides, or looks like ours. Pure."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from codemode_mcp.policy.approval import UNSEEN, is_right_to_left

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARKS = 2
"""Marks on one character that are shown; more of them would reach into other lines."""


def plain(text: str, *, right_to_left: bool = False) -> str:
    """Return `text` on one line, with everything that does not print as itself escaped as JavaScript does.

    Args:
        right_to_left: show letters of Hebrew, Arabic and their like as they are. Text around them is displayed in
            another order, so this is for text that no decision rests on.
    """
    if text.isascii() and text.isprintable():
        return text
    shown: list[str] = []
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        misleads = UNSEEN.match(char) is not None or (not right_to_left and is_right_to_left(char))
        if char.isprintable() and not misleads and marks <= _MARKS and not (marks and not shown):
            shown.append(char)
        elif ord(char) < 0x100:
            shown.append(f"\\x{ord(char):02x}")
        elif ord(char) < 0x10000:
            shown.append(f"\\u{ord(char):04x}")
        else:
            shown.append(f"\\u{{{ord(char):x}}}")
    return "".join(shown)


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
