"""Texts that fit into a number of bytes, as answers have limits. Texts are counted with their JSON escapes. Pure."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from codemode_mcp.json_text import compact_json

if TYPE_CHECKING:
    from collections.abc import Sequence

_MIN_NOTE = 60
"""Bytes of a note that are worth showing."""


def size(text: str) -> int:
    """Return the bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def escaped_size(text: str) -> int:
    """Return the bytes of a text inside JSON, where a control character takes six and a quotation mark two."""
    return size(compact_json(text)) - 2


def shorten(text: str, limit: int, end: int = 4) -> str:
    """Cut out the middle of a text that is longer than `limit` bytes, and mark how much is left out.

    The end is kept, because an error has its stack frames there.

    Args:
        end: one part in `end` of the shown text is its end.
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


def fit_sentences(texts: Sequence[str], room: int) -> list[str]:
    """Fit texts into `room` bytes together. Half of a shortened text is its end, which says what to do."""
    fitted: list[str] = []
    for number, text in enumerate(texts):
        fitted.append(shorten(text, room // (len(texts) - number), end=2))
        room -= escaped_size(fitted[-1])
    return fitted


def fit_notes(notes: Sequence[str], room: int) -> list[str]:
    """Fit notes into `room` bytes together. Each gets an equal share of the room that those before it have left."""
    fitted: list[str] = []
    for number, note in enumerate(notes):
        share = room // (len(notes) - number)
        if share < _MIN_NOTE:
            fitted.append(f"{len(notes) - number} more notes were left out.")
            break
        fitted.append(shorten(note, share))
        room -= escaped_size(fitted[-1])
    return fitted
