"""Direct requests, past the dispatcher and its streams: bytes are written, and a callback takes the answer.

A request through the dispatcher is awaited in a task, and its answer passes several streams. A direct request needs
neither, and its answer is parsed once. The dispatcher uses the same connection for everything else.

`read_answer` reads the two common forms of an answer: `jsonrpc` and `id` before `result`, or after it. Any other answer
goes to the dispatcher, which also reads sloppy ones. So a mistake here must never accept a line that the dispatcher
would understand differently; if in doubt, `read_answer` returns None.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING, Any, NamedTuple

from upstream_clients.results import LargeResult

if TYPE_CHECKING:
    from upstream_clients.tools import ProgressFn

_FIRST_ID = 1 << 40
"""First id of direct requests. No other request has so high an id, so the id shows who waits for an answer."""

THREAD_BYTES = 256 * 1024
"""Size in bytes from which a message is read in a thread, by `line_messages.read_line`."""


class Answer(NamedTuple):
    """A result as the server has sent it.

    Attributes:
        text: `result` as JSON text; None if the server's own text cannot be used unchanged.
    """

    result: dict[str, Any]
    text: str | None


class Refusal(NamedTuple):
    """A JSON-RPC error as the server has sent it."""

    code: int
    message: str
    data: Any


OnAnswer = Callable[[Answer | Refusal | None], None]
"""A function that takes the answer to a request, or None if the connection ended without one."""


class Pending(NamedTuple):
    """A request that has no answer yet."""

    body: bytes
    on_answer: OnAnswer
    on_progress: ProgressFn | None


class RequestsInFlight(ABC):
    """The direct requests in flight on one connection, over any transport."""

    def __init__(self) -> None:
        self.count = 0
        """Number of answers read here so far."""
        self.has_notified = False
        """True if the server got a notification after its latest answer."""
        self._ids = count(_FIRST_ID)
        self._pending: dict[int, Pending] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[int]:
        return iter(self._pending)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._pending

    @abstractmethod
    def send(
        self,
        method: str,
        params: Mapping[str, Any],
        on_answer: OnAnswer,
        on_progress: ProgressFn | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> int | None:
        """Send a request, now or in the next round of the event loop.

        Args:
            on_answer: called once: with the answer, or with None if the connection ended without one.
            headers: headers of the HTTP request.

        Returns:
            The id of the request; None if it cannot be sent directly, or the connection has ended.
        """

    def cancel(self, request_id: int) -> None:
        """Give a request up, and tell the server if it was sent. `on_answer` is not called after this."""
        pending = self._pending.pop(request_id, None)
        if pending is not None and not self._closed:
            self._give_up(request_id, pending.body)

    @abstractmethod
    def _give_up(self, request_id: int, body: bytes) -> None:
        """Remove a request that is not sent yet, or tell the server to cancel it."""

    def resolve(self, request_id: int, answer: Answer | Refusal) -> None:
        self._pending.pop(request_id).on_answer(answer)

    def progress_of(self, token: object) -> ProgressFn | None:
        pending = self._pending.get(token) if isinstance(token, int) else None
        return None if pending is None else pending.on_progress

    def close(self) -> None:
        self._closed = True
        # Replaced first, since a callback may give up other requests while this loop runs.
        pending, self._pending = self._pending, {}
        for each in pending.values():
            each.on_answer(None)


class EncodedRequests(RequestsInFlight):
    """Direct requests that are sent as the bytes of JSON-RPC messages."""

    def send(
        self,
        method: str,
        params: Mapping[str, Any],
        on_answer: OnAnswer,
        on_progress: ProgressFn | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> int | None:
        if self._closed:
            return None
        request_id = next(self._ids)
        meta = params.get("_meta")
        if on_progress is not None:
            params = {**params, "_meta": {**(meta or {}), "progressToken": request_id}}
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        try:
            body = _encoded(message)
        except (TypeError, ValueError, RecursionError):
            return None  # e.g. half of a surrogate pair; `Dispatcher.request` gets repaired parameters
        self._pending[request_id] = Pending(body, on_answer, on_progress)
        self._begin(request_id, body, headers or {})
        return request_id

    @abstractmethod
    def _begin(self, request_id: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a request in the next round of the event loop."""


class DirectRequests(EncodedRequests):
    """The requests in flight to a stdio server."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        """`write` puts bytes on the server's standard input; it neither waits nor raises."""
        super().__init__()
        self._write = write
        self._lines: list[bytes] = []
        self._flushes = False

    def _begin(self, request_id: int, body: bytes, headers: Mapping[str, str]) -> None:
        self._put(body)

    def _give_up(self, request_id: int, body: bytes) -> None:
        unwritten = [line for line in self._lines if line is not body]
        if len(unwritten) < len(self._lines):
            self._lines = unwritten
        else:
            params = {"requestId": request_id, "reason": "caller cancelled"}
            self.has_notified = True
            self._put(_encoded({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))

    def _put(self, line: bytes) -> None:
        """Queue a line. All lines of one round of the event loop are written together, with one system call."""
        if not self._flushes:
            self._flushes = True
            asyncio.get_running_loop().call_soon(self._flush)
        self._lines.append(line)

    def _flush(self) -> None:
        self._flushes = False
        lines, self._lines = self._lines, []
        if lines and not self._closed:
            self._write(b"\n".join([*lines, b""]))

    def take(self, line: bytes) -> bool:
        """Take a line that is an answer in a common form. Return False for any other line."""
        # A large line would block the event loop here. The dispatcher has it read in a thread.
        if not self._pending or len(line) >= THREAD_BYTES:
            return False
        read = read_answer(line)
        pending = None if read is None else self._pending.pop(read[0], None)
        if read is None or pending is None:
            return False
        self.count += 1
        self.has_notified = False
        pending.on_answer(read[1])
        return True


def _encoded(message: Mapping[str, Any]) -> bytes:
    # Imported at the first request: it takes 12 ms, which would delay the list of tools at the start.
    from pydantic_core import to_json

    return to_json(message)


def read_answer(message: bytes | memoryview) -> tuple[int, Answer] | None:
    """Return the request id and the result of an answer in a common form; None for any other message.

    A large message is read in steps of a few milliseconds, between which other threads run.
    """
    try:
        text = str(message, "utf-8")
    except UnicodeDecodeError:
        return None
    match = _BEGIN.match(text)
    # An escape of a surrogate may be half of a pair, which has to be repaired: `line_messages` does that.
    if match is None or has_surrogates(text):
        return None
    start = match.end()
    try:
        if len(message) < THREAD_BYTES:
            result, end = _DECODER.raw_decode(text, start)
        else:
            result, end = _read_large(text, start)
    except (ValueError, RecursionError):
        return None
    if type(result) is not dict:
        return None
    # Nothing but the expected end may follow. A further member, such as a second `id`, could change the meaning.
    request_id = match[1]
    if request_id is None:
        last = _END.fullmatch(text, end)
        if last is None:
            return None
        request_id = last[1]
    elif text[end:].strip(_SPACES) != "}":
        return None
    result_text = text[start:end]
    if len(message) >= THREAD_BYTES:
        result = LargeResult(result, result_text)
    return int(request_id), Answer(result, result_text)


def has_surrogates(text: str) -> bool:
    """Return True if a JSON text may have an escape of half of a surrogate pair."""
    # The search for one character comes first, since it is many times faster than the search for a pattern.
    return text.find("\\") >= 0 and _MAYBE_HALF.search(text) is not None


def read_large_json(text: str) -> Any:
    """Read a JSON text in steps, between which other threads run. Raises `ValueError` or `RecursionError`."""
    return _YIELDING_DECODER.decode(text)


def _read_large(text: str, start: int) -> tuple[Any, int]:
    """Read the JSON value at a position. Return it and its end. Raises `ValueError`."""
    first = _FIRST_TEXT.match(text, start)
    found = None if first is None else _read_string(text, first.end())
    if first is not None and found is not None:
        # The decoder would read the long string in one step, in which no other thread can run. So the string is read in
        # pieces, and the decoder gets a short mark in its place. The mark is random: no server can put it elsewhere.
        value, end = found
        mark = token_hex(16)
        head = f'{text[start : first.end()]}"{mark}"'
        result, short_end = _YIELDING_DECODER.raw_decode(head + text[end:])
        match result:
            case {"content": [{"text": str() as member} as block, *_]} if member == mark:
                block["text"] = value
                return result, end + short_end - len(head)
    return _YIELDING_DECODER.raw_decode(text, start)


def _read_string(text: str, start: int) -> tuple[str, int] | None:
    """Read the JSON string at a position in pieces. Return it and its end; None if it has too many escapes to be cut.

    Raises:
        ValueError: there is no JSON string.
    """
    pieces = []
    begin = start + 1
    while True:
        # A cut within an escape sequence would change the string, so it is made behind the last one.
        cut = begin + _PIECE
        while cut < len(text) and "\\" in text[cut - _LONGEST_ESCAPE : cut]:
            cut += 1
            if cut > begin + 2 * _PIECE:
                return None
        piece = text[begin:cut]
        value, end = _DECODER.raw_decode(f'"{piece}"')
        pieces.append(value)
        if end < len(piece) + 2:  # the string ended before the added quotation mark
            return "".join(pieces), begin + end - 1
        if cut >= len(text):
            raise ValueError(start)
        begin = cut


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(digits)
    return number


def _no_number(name: str) -> float:
    raise ValueError(name)


def _unchanged(value: dict[str, Any]) -> dict[str, Any]:
    return value


# The spaces and digits of JSON. `\s` and `\d` would also match those of other scripts.
_SPACES = " \t\n\r"
_S = f"[{_SPACES}]*"
_ID = "(0|[1-9][0-9]{0,14})"
_VERSION = f'"jsonrpc"{_S}:{_S}"2\\.0"{_S},{_S}"id"{_S}:{_S}{_ID}{_S}'
_BEGIN = re.compile(f'{_S}{{{_S}(?:{_VERSION},{_S})?"result"{_S}:{_S}(?={{)')
"""The beginning of an answer up to its result."""
_END = re.compile(f"{_S},{_S}{_VERSION}}}{_S}")
"""The end of an answer that begins with its result."""
_MAYBE_HALF = re.compile(r"\\u[dD]")
"""The beginning of an escaped surrogate, and of some other characters."""
_FIRST_TEXT = re.compile(
    f'{{{_S}"content"{_S}:{_S}\\[{_S}{{{_S}(?:"type"{_S}:{_S}"text"{_S},{_S})?"text"{_S}:{_S}(?=")'
)
"""The beginning of a result up to the text of its first block: the commonest of all large values."""
_PIECE = 1024 * 1024
_LONGEST_ESCAPE = 6
_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number)
_YIELDING_DECODER = json.JSONDecoder(
    object_hook=_unchanged, parse_int=lambda digits: int(digits), parse_float=_finite, parse_constant=_no_number
)
"""A decoder with the same results, which calls Python at every object and number. Other threads can run then."""
