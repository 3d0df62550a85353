"""Texts and JSON values cut to a number of bytes, for the limits of answers. JSON escapes are counted. Pure."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from codemode_mcp.json_text import compact_json

if TYPE_CHECKING:
    from collections.abc import Sequence

_MIN_NOTE = 60
"""Minimum bytes of a note. With less room, a note would say nothing."""

_MIN_MEMBER = 128
"""Minimum bytes of a member of an array or object that is cut. With less room, members are left out."""

_MAX_CUTS = 32
"""Maximum number of members of one array or object that are cut. Of more long members, the middle ones are left out."""

_MAX_DEPTH = 12
"""Levels of nesting in which members are cut."""


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


def shorten_value(value: Any, limit: int, end: int = 4, depth: int = _MAX_DEPTH) -> Any:
    """Cut the longest texts, arrays and objects of a JSON value so that its JSON has at most `limit` bytes.

    A text is cut by `shorten`. An array or object keeps its first and last members, and a mark is between them. Short
    members stay as they are, and the long ones share the room.
    """
    if isinstance(value, str):
        return shorten(value, limit - 2, end)
    if not isinstance(value, list | dict) or depth == 0:
        text = compact_json(value)
        return value if size(text) <= limit else shorten(text, limit - 2, end)
    keys = list(value) if isinstance(value, dict) else range(len(value))
    least = max(min(_MIN_MEMBER, limit // 2), limit // _MAX_CUTS)
    sizes: dict[Any, int] = {}

    def count_fitting(room: int, step: int = 1) -> int:
        for number, key in enumerate(keys[::step]):
            if key not in sizes:
                sizes[key] = _bounded_size(value[key], least)
            room -= min(sizes[key], least) + _key_size(key)
            if room < 0:
                return number
        return len(keys)

    room, mark = limit - 2, ""
    head, tail = count_fitting(room), 0
    if head < len(keys):
        mark = "... [{} of {} {} left out] ..."
        room -= len(mark) + 2 * len(str(len(keys))) + 10
        tail = count_fitting(room // end, -1)
        head = min(count_fitting(room - room // end), len(keys) - tail)
        mark = mark.format(len(keys) - head - tail, len(keys), "items" if isinstance(value, list) else "members")
    shown = [*keys[:head], *keys[len(keys) - tail :]]
    room -= sum(map(_key_size, shown))
    long = [key for key in shown if sizes[key] > least]
    for key in long:
        sizes[key] = _bounded_size(value[key], room // len(long))
        if sizes[key] > room // len(long):
            sizes[key] = limit  # or more
    share, left = room, len(shown)
    for each in sorted(sizes[key] for key in shown):
        share = room // left
        if each > share:
            break
        room, left = room - each, left - 1
    cut = [
        (key, value[key] if sizes[key] <= share else shorten_value(value[key], share, end, depth - 1)) for key in shown
    ]
    if mark:
        cut.insert(head, ("...", mark))
    return dict(cut) if isinstance(value, dict) else [each for _, each in cut]


def _bounded_size(value: Any, limit: int) -> int:
    """Return the size in bytes of a value as JSON, or any number above `limit` if it is larger."""
    if isinstance(value, str) and len(value) > limit:
        return len(value)
    if not isinstance(value, list | dict):
        return size(compact_json(value))
    count = 2
    for key, member in value.items() if isinstance(value, dict) else enumerate(value):
        if count > limit:
            break
        count += _key_size(key) + _bounded_size(member, limit - count)
    return count


def _key_size(key: str | int) -> int:
    """Return the size in bytes of a key of an object, or of the comma after an element of an array."""
    return 1 if isinstance(key, int) else size(compact_json(key)) + 2


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
