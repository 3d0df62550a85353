"""Texts cut to a number of bytes, for the limits of answers. The bytes of JSON escapes are counted. Pure."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from codemode_mcp.json_text import compact_json

if TYPE_CHECKING:
    from collections.abc import Sequence

_MIN_NOTE = 60
"""Minimum bytes of a note. With less room, a note would say nothing."""


def size(text: str) -> int:
    """Return the size of a text in bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def escaped_size(text: str) -> int:
    """Return the size in bytes of a text inside JSON. A control character takes six, and a quotation mark two."""
    return size(compact_json(text)) - 2


def shorten(text: str, limit: int, end: int = 4) -> str:
    """Cut out the middle of a text that is longer than `limit` bytes, and mark how much is left out.

    The end is kept, because an error has its stack frames there.

    Args:
        end: the fraction of the shown text that is its end: 4 for a quarter.
    """
    whole = escaped_size(text)
    if whole <= limit:
        return text
    mark = f" ... [{whole - limit} of {whole} bytes left out] ... "
    room = max(0, limit - len(mark) - len(str(whole)))
    tail = room // end
    return _prefix(text, room - tail) + mark + _prefix(text[: -tail - 1 : -1], tail)[::-1]


def _prefix(text: str, room: int) -> str:
    """Return the longest prefix of a text that fits into `room` bytes."""
    text = text[:room]  # a character takes at least one byte
    fitting = bisect_right(range(len(text) + 1), room, key=lambda length: escaped_size(text[:length])) - 1
    return text[:fitting]


def fit_texts(texts: Sequence[str], room: int, *, end: int = 4, min_bytes: int = 0) -> list[str]:
    """Fit texts into `room` bytes together. Each gets an equal share of the room that the texts before it have left.

    Args:
        end: see `shorten`.
        min_bytes: minimum bytes of a text. With less room, the remaining texts are only counted.
    """
    fitted: list[str] = []
    for number, text in enumerate(texts):
        share = room // (len(texts) - number)
        if share < min_bytes:
            return [*fitted, f"{len(texts) - number} more notes were left out."]
        fitted.append(shorten(text, share, end))
        room -= escaped_size(fitted[-1])
    return fitted


def fit_notes(notes: Sequence[str], room: int) -> list[str]:
    """Fit notes into `room` bytes together. Notes that would be too short are only counted."""
    return fit_texts(notes, room, min_bytes=_MIN_NOTE)
