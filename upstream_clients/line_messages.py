"""Messages of a server, as bytes and as dicts.

A server may answer with what is no valid JSON-RPC, such as `{"id": 7, "result": null}`. Such a line fails its request,
which would wait for ever otherwise. One that is only unusual, because it holds half of a surrogate pair as an escape or
is nested deeply, is read all the same.

Large answers are read in a way that lets other threads run meanwhile.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from upstream_clients.direct import THREAD_BYTES, read_answer
from upstream_clients.jsonrpc import INTERNAL_ERROR, JsonRpcError, Message, form_of, is_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from upstream_clients.jsonrpc import RequestId

Incoming = Message | Exception
"""A message, or why there is none."""

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""One message of a server; a larger answer costs its request, not the process."""

MESSAGES_PER_SECOND = 1000.0
"""Messages that answer nothing which one server may make us read in a second, in the long run."""

MESSAGES_BURST = 2000.0
"""Such messages that it may send without a pause."""

MESSAGE_BYTES = 4096
"""Bytes of such a message that count as one more message."""

_KEPT = 1024
"""Bytes at both ends of a line that is too long, where the id of its request is looked for."""


class ReadingAllowance:
    """A token bucket for what a server may make us read without having been asked for it.

    Reading takes time on the event loop, which all servers and all clients share. A server beyond its allowance is not
    read for a while. It is held up by its own full pipe or socket then, and nothing is lost.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left = MESSAGES_BURST
        self._counted_at = clock()

    def spend(self, item: Incoming) -> float:
        """Count one message; the seconds for which nothing more may be read, at most about one."""
        now = self._clock()
        self._left = min(MESSAGES_BURST, self._left + (now - self._counted_at) * MESSAGES_PER_SECOND)
        self._counted_at = now
        self._left -= min(1 + _size(item) / MESSAGE_BYTES, MESSAGES_PER_SECOND)
        return max(0.0, -self._left / MESSAGES_PER_SECOND)


def _size(item: Incoming) -> int:
    """Return about how many characters a message has, without recursion."""
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


@dataclass(frozen=True, slots=True)
class TooLong:
    """The ends of a line of more than `MAX_MESSAGE_BYTES`."""

    head: bytes
    tail: bytes


@dataclass(slots=True)
class LineBuffer:
    """Bytes to lines, in bounded memory and in time linear in the bytes."""

    limit: int = field(default_factory=lambda: MAX_MESSAGE_BYTES)
    # The mutable state.
    _parts: list[bytes] = field(default_factory=list)
    _size: int = 0
    _head: bytes | None = None
    """Head of the present line, once it is too long; then `_parts` has only its last bytes."""

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
            whole = b"".join(self._parts)
            if self._head is None:
                self._head = whole[:_KEPT]
            self._parts, self._size = [whole[-_KEPT:]], self.limit

    def _take(self) -> bytes | TooLong:
        line, head = b"".join(self._parts), self._head
        self._parts, self._size, self._head = [], 0, None
        return line if head is None else TooLong(head, line)


async def read_line(line: bytes | memoryview) -> Incoming:
    """`read_message`, in a thread if it takes long. Await one before the next, so that messages keep their order."""
    if len(line) < THREAD_BYTES:
        return read_message(line)
    return await anyio.to_thread.run_sync(_read_large, line)


def _read_large(line: bytes | memoryview) -> Incoming:
    read = read_answer(line)
    if read is None:
        return read_message(line)
    request_id, answer = read
    return {"jsonrpc": "2.0", "id": request_id, "result": answer.result}


def read_message(line: bytes | memoryview) -> Incoming:
    """Return one line of a server."""
    text = str(line, "utf-8", "replace")
    try:
        value = _load(text)
    except (ValueError, RecursionError) as error:
        return _unreadable(text) or ValueError(f"no JSON: {type(error).__name__}")
    return value if form_of(value) is not None else failed_by(value) or ValueError("no JSON-RPC")


def failed_by(value: Any) -> Message | None:
    """Return the failure of the request that an invalid answer belongs to; None if it answers none."""
    match value:
        case {"jsonrpc": _, "id": request_id, **rest} if "method" not in rest and is_id(request_id):
            return failed(request_id, "the answer is not valid JSON-RPC")
    return None


def too_long(line: TooLong) -> Incoming:
    """Return the error of the request that such a line answers, if it can be seen."""
    head, tail = line.head.decode("utf-8", "replace"), line.tail.decode("utf-8", "replace")
    found = _ID.search(head[:200]) or _ID.search(tail[-200:])
    why = f"the answer is larger than {MAX_MESSAGE_BYTES} bytes; ask for less at a time"
    if found is None or '"method"' in head[:200]:
        return ValueError("a message that is too large")
    return failed(json.loads(found[1]), why)


_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_MAX_DIGITS = 4000
"""Python refuses to convert longer ones (4,300 by default)."""


def _load(text: str) -> Any:
    """`json.loads`, which takes numbers of any size, and in a thread lets others run at every object and integer."""
    value = json.loads(text, object_hook=_same, parse_int=_integer, parse_constant=_no_number)
    return whole(value) if _ESCAPED_HALF.search(text) else value


def _same(value: dict[str, Any]) -> dict[str, Any]:
    return value


def _integer(digits: str) -> int | float:
    """Return one that no program can calculate with is the infinity that it would be in JavaScript."""
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


def _no_number(name: str) -> None:
    """`NaN` and `Infinity` are no JSON; `JSON.stringify` writes null for them."""


_ID = re.compile(r'"id"[ \t]*:[ \t]*((?:0|[1-9][0-9]{0,14})(?![0-9])|"[^"\\\x00-\x1f]{1,100}")')
_HALF = re.compile("[\ud800-\udfff]")


def _unreadable(text: str) -> Message | None:
    # Near its ends an answer names its request; in between anything may look like it.
    found = _ID.search(text[:200]) or _ID.search(text[-200:])
    if found is None or '"method"' in text[:200]:
        return None
    return failed(json.loads(found[1]), "the answer cannot be read: it is nested too deeply or is no JSON")


def whole(value: Any) -> Any:
    """Return a value with U+FFFD for halves of surrogate pairs."""
    match value:
        case str():
            return _HALF.sub("\ufffd", value)
        case dict():
            return {whole(key): whole(item) for key, item in value.items()}
        case list():
            return [whole(item) for item in value]
    return value


def failed(request_id: RequestId, why: str) -> Message:
    """Return an error in the place of an answer that cannot be used."""
    return {"jsonrpc": "2.0", "id": request_id, "error": JsonRpcError(INTERNAL_ERROR, why).as_json()}
