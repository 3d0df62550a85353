"""Messages of a server, from bytes to lines to dicts.

An answer that is not valid JSON-RPC, such as `{"id": 7, "result": null}`, fails its request. Otherwise the request
would wait forever. An answer that is only unusual is read: with half of a surrogate pair, with deep nesting, behind a
byte order mark, in a list of its own, with an error in another form (`jsonrpc.readable_error`).

Large answers are read in a thread, and in a way that lets other threads run.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import anyio.to_thread
from msgspec import Struct, field

from upstream_clients import jsonrpc
from upstream_clients.direct import THREAD_BYTES, read_answer
from upstream_clients.redaction import MAX_SECRET

Incoming = jsonrpc.Message | Exception
"""A message, or the reason why it cannot be read."""


class NotAMessage(ValueError):
    """A text that is no message. The argument is its beginning, which may have secrets."""

    def __init__(self, text: str) -> None:
        super().__init__(text[: MAX_QUOTED + MAX_SECRET].strip())


MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Size of one message of a server. A larger answer fails only its request."""

MESSAGES_PER_SECOND = 4000.0
"""Unsolicited messages of one server that are read in a second, in the long run. One takes about 50 microseconds."""

MESSAGES_BURST = 30_000.0
"""Unsolicited messages that are read without a pause, after a quiet time. Some servers log thousands before an answer.
Between two messages, the event loop does the work of others."""

MESSAGE_BYTES = 4096
"""Size in bytes for which an unsolicited message counts as one more message."""

MAX_QUOTED = 200
"""Characters of a text that is no message which are shown."""

_END_BYTES = 1024
"""Bytes that are kept at either end of a line that is too long, to find the id of its request."""


class ReadingAllowance:
    """A token bucket for unsolicited messages of a server.

    Reading takes time on the event loop, which all servers and all clients share. After its allowance, a server is not
    read for a while. Its own pipe or socket fills up then, and nothing is lost.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left = MESSAGES_BURST
        self._counted_at = clock()

    def spend(self, item: Incoming) -> float:
        """Count one message. Return the seconds for which nothing more may be read, at most about one."""
        now = self._clock()
        self._left = min(MESSAGES_BURST, self._left + (now - self._counted_at) * MESSAGES_PER_SECOND)
        self._counted_at = now
        self._left -= min(1 + _size(item) / MESSAGE_BYTES, MESSAGES_PER_SECOND)
        return max(0.0, -self._left / MESSAGES_PER_SECOND)


def _size(item: Incoming) -> int:
    if isinstance(item, Exception):
        return 0
    size, left = 0, [item.get("params"), item.get("result"), item.get("error")]
    while left:
        match left.pop():
            case str() as text:
                size += len(text)
            case dict() as members:
                size += sum(map(len, members))
                left.extend(members.values())
            case list() as items:
                size += len(items)
                left.extend(items)
    return size


class TooLong(Struct, frozen=True):
    """The ends of a line of more than `MAX_MESSAGE_BYTES`."""

    head: bytes
    tail: bytes


class LineBuffer(Struct):
    """The lines of a stream of bytes, in bounded memory and linear time."""

    limit: int = field(default_factory=lambda: MAX_MESSAGE_BYTES)
    # The mutable state.
    _parts: list[bytes] = field(default_factory=list)
    _size: int = 0
    _head: bytes | None = None
    """The first bytes of the current line, once the line is too long. `_parts` then has only its last bytes."""

    def feed(self, chunk: bytes) -> list[bytes | TooLong]:
        """Return the lines that end in `chunk`, without their ends."""
        *ends, rest = chunk.split(b"\n")
        lines = []
        for end in ends:
            self._add(end)
            lines.append(self._take())
        self._add(rest)
        return lines

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size > self.limit:
            line = b"".join(self._parts)
            if self._head is None:
                self._head = line[:_END_BYTES]
            self._parts, self._size = [line[-_END_BYTES:]], self.limit

    def _take(self) -> bytes | TooLong:
        line, head = b"".join(self._parts), self._head
        self._parts, self._size, self._head = [], 0, None
        return line if head is None else TooLong(head, line)


async def read_line(line: bytes | memoryview, request_id: jsonrpc.RequestId | None = None) -> Incoming:
    """Read one line of a server, in a thread if it is large. Await this before the next line, to keep their order.

    Args:
        request_id: the request in whose response the line came (HTTP). An answer in it belongs to this request.
    """
    if len(line) < THREAD_BYTES:
        return read_message(line, request_id)
    return await anyio.to_thread.run_sync(_read_large, line, request_id)


def _read_large(line: bytes | memoryview, request_id: jsonrpc.RequestId | None) -> Incoming:
    read = read_answer(line)
    if read is None:
        return read_message(line, request_id)
    return {"jsonrpc": "2.0", "id": read[0] if request_id is None else request_id, "result": read[1].result}


def read_message(line: bytes | memoryview, request_id: jsonrpc.RequestId | None = None) -> Incoming:
    """Read one line of a server. See `read_line` for the argument."""
    text = str(line, "utf-8", "replace").lstrip("\ufeff")
    try:
        value = _load(text)
    except (ValueError, RecursionError) as error:
        why = "the answer cannot be read: it is nested too deeply or is not JSON"
        if type(error) is ValueError:  # of `int`; that of `json` is another type
            why = f"the answer cannot be read: it has an integer of more than {sys.get_int_max_str_digits():,} digits"
        failed = _failed_answer(text, text, why)
    else:
        value = jsonrpc.with_whole_id(_without_list(value))
        if isinstance(value, dict) and "method" not in value:
            value = _usual_answer(value, request_id)
        if jsonrpc.form_of(value) is not None:
            message: jsonrpc.Message = value
            return message
        failed = _invalid_answer(value)
    if failed is not None and request_id is not None and jsonrpc.key_of(failed["id"]) != jsonrpc.key_of(request_id):
        failed = None
    return failed or NotAMessage(text)


def _without_list(value: Any) -> Any:
    """Return the only message in a list, or its only answer, since some servers answer in a list."""
    if isinstance(value, list):
        found = [each for each in value if isinstance(each, dict) and (len(value) == 1 or "method" not in each)]
        return found[0] if len(found) == 1 else value
    return value


def _usual_answer(value: jsonrpc.Message, request_id: jsonrpc.RequestId | None) -> jsonrpc.Message:
    if not isinstance(value.get("result"), dict):
        if value.get("error") is None:
            return value
        value = {**value, "error": jsonrpc.readable_error(value["error"])}
    return value if request_id is None else {**value, "jsonrpc": "2.0", "id": request_id}


def _invalid_answer(value: Any) -> jsonrpc.Message | None:
    match value:
        case {"jsonrpc": _, "id": request_id, **rest} if "method" not in rest and jsonrpc.is_id(request_id):
            return _error(request_id, "the answer is not valid JSON-RPC")
    return None


def error_for_long_line(line: TooLong) -> Incoming:
    """Return an error for the request that a line answers, if its id is found near one end."""
    head, tail = line.head.decode("utf-8", "replace"), line.tail.decode("utf-8", "replace")
    why = f"the answer is larger than {MAX_MESSAGE_BYTES} bytes; ask for less at a time"
    return _failed_answer(head, tail, why) or NotAMessage(f"a message of more than {MAX_MESSAGE_BYTES} bytes")


_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def _load(text: str) -> Any:
    """Load JSON.

    The hooks are Python functions, so that other threads can run at every object and integer.
    """
    value = json.loads(text, object_hook=_unchanged, parse_int=lambda digits: int(digits), parse_constant=_no_number)
    return jsonrpc.without_surrogates(value) if _ESCAPED_HALF.search(text) else value


def _unchanged(value: dict[str, Any]) -> dict[str, Any]:
    return value


def _no_number(name: str) -> None:
    """Read `NaN` and `Infinity`, which are not JSON, as null: `JSON.stringify` writes that for them."""


_ID = re.compile(r'"id"[ \t]*:[ \t]*((?:0|[1-9][0-9]{0,14})(?![0-9])|"[^"\\\x00-\x1f]{1,100}")')


def _failed_answer(head: str, tail: str, why: str) -> jsonrpc.Message | None:
    # Servers put the id near one end of an answer. In between, any text may look like an id.
    found = _ID.search(head[:200]) or _ID.search(tail[-200:])
    if found is None or '"method"' in head[:200]:
        return None
    return _error(json.loads(found[1]), why)


def _error(request_id: jsonrpc.RequestId, why: str) -> jsonrpc.Message:
    return {"jsonrpc": "2.0", "id": request_id, "error": jsonrpc.JsonRpcError(jsonrpc.INTERNAL_ERROR, why).as_json()}
