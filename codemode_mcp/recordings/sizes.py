"""The approximate size of lines in memory. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.recordings.format import CatalogText, Clock, End, Opening, Requests, Start, Turn
from codemode_mcp.sandbox.messages import Thrown

if TYPE_CHECKING:
    from codemode_mcp.recordings.format import Line
    from codemode_mcp.sandbox.messages import RequestMessage

_EACH: Final = 200
"""Approximate characters that one line, request or completion takes besides its texts."""

_READING: Final = 30
"""Approximate characters of one reading of the clock."""

_MEMBERS: Final = 20_000


def size_of(line: Line) -> int:
    """Return the approximate size of a line in characters."""
    size = _EACH
    match line:
        case Turn():
            for end in line.completions:
                size += _EACH + len(end.value or "")
                if end.error is not None:
                    size += len(end.error.message) + len(end.error.data)
        case Requests():
            for request in line.requests:
                size += _EACH + _request_size(request)
        case Clock():
            size += _READING * (len(line.wall) + len(line.monotonic))
        case Start():
            size += len(line.code) + len(line.fallback or "") + len(line.namespaces) + len(line.positions)
            size += sum(map(len, line.saving or ()))
        case Opening():
            size += len(line.source) + sum(map(len, line.args))
        case CatalogText():
            size += len(line.text)
        case End():
            size += len(line.error) + _data_size([line.value, *line.outputs])
    return size


def _request_size(request: RequestMessage) -> int:
    """Return the characters of all texts of a request."""
    size = 0
    for name in request.__struct_fields__:
        value = getattr(request, name)
        if isinstance(value, Thrown):
            value = (value.name, value.message, value.stack)
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, tuple):
            size += sum(len(each) for each in value if isinstance(each, str))
    return size


def _data_size(value: Any) -> int:
    """Return the approximate size of JSON data. Of data with very many members, only the first are counted."""
    size = 0
    pending = [value]
    for _ in range(_MEMBERS):
        if not pending:
            break
        each = pending.pop()
        size += 16
        if isinstance(each, str):
            size += len(each)
        elif isinstance(each, dict):
            size += sum(map(len, each))
            pending.extend(each.values())
        elif isinstance(each, list | tuple):
            pending.extend(each)
    return size + 16 * len(pending)
