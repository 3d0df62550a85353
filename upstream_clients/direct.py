"""Requests to a stdio server without a task, a stream or a model for each: bytes out, and a callback with the answer.

The SDK's dispatcher reads and writes the same pipes for everything else. An answer in one of the two usual forms is
read here, once. Any other comes by way of the dispatcher, which knows what to do with sloppy ones.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from upstream_clients.tools import ProgressFn

_FIRST_ID = 1 << 40
"""Ids that neither the SDK nor `link.Link` gives to other requests."""


THREAD_BYTES = 256 * 1024
"""Lines from this size on are read in a thread, by `wire.read_line`."""


class Answer(NamedTuple):
    """A result as the server has sent it.

    Attributes:
        text: `result` as JSON text; None where the server's own text cannot be used as it is.
    """

    result: dict[str, Any]
    text: str | None


class Refusal(NamedTuple):
    """A JSON-RPC error as the server has sent it."""

    code: int
    message: str
    data: Any


class _Pending(NamedTuple):
    line: bytes
    on_answer: Callable[[Answer | Refusal | None], None]
    on_progress: ProgressFn | None


class DirectRequests:
    """The requests in flight on one connection."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        """`write` puts bytes on the server's standard input; it neither waits nor raises."""
        self.count = 0
        """How many answers have been read here."""
        self._write = write
        self._ids = count(_FIRST_ID)
        self._pending: dict[int, _Pending] = {}
        self._lines: list[bytes] = []
        self._flushes = False
        self._closed = False

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._pending

    def send(
        self,
        method: str,
        params: Mapping[str, Any],
        on_answer: Callable[[Answer | Refusal | None], None],
        on_progress: ProgressFn | None = None,
    ) -> int | None:
        """Send a request; all of one round of the event loop leave together.

        Args:
            on_answer: takes the answer, once; None where the connection ended without.

        Returns:
            The id of the request; None where the parameters are no JSON, or the connection has ended.
        """
        if self._closed:
            return None
        request_id = next(self._ids)
        meta = params.get("_meta")
        if on_progress is not None:
            params = {**params, "_meta": {**(meta or {}), "progressToken": request_id}}
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        try:
            line = to_json(message) + b"\n"
        except (TypeError, ValueError, RecursionError):
            return None  # halves of surrogate pairs have to be mended first
        self._pending[request_id] = _Pending(line, on_answer, on_progress)
        self._put(line)
        return request_id

    def cancel(self, request_id: int) -> None:
        """Give a request up and tell the server if it was written. Its `on_answer` is not called any more."""
        pending = self._pending.pop(request_id, None)
        if pending is None or self._closed:
            return
        unwritten = [line for line in self._lines if line is not pending.line]
        if len(unwritten) < len(self._lines):
            self._lines = unwritten
        else:
            params = {"requestId": request_id, "reason": "caller cancelled"}
            message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
            self._put(to_json(message) + b"\n")

    def _put(self, line: bytes) -> None:
        if not self._flushes:
            self._flushes = True
            asyncio.get_running_loop().call_soon(self._flush)
        self._lines.append(line)

    def _flush(self) -> None:
        self._flushes = False
        lines, self._lines = self._lines, []
        if lines and not self._closed:
            self._write(b"".join(lines))

    def take(self, line: bytes) -> bool:
        """Take a line that is an answer in one of the usual forms; False for any other line."""
        if not self._pending or len(line) >= THREAD_BYTES:
            return False
        try:
            text = line.decode()
        except UnicodeDecodeError:
            return False
        match = _BEGIN.match(text)
        if match is None or "\\ud" in text or "\\uD" in text:
            return False
        try:
            result, end = _DECODER.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            return False
        if type(result) is not dict:
            return False
        known = match[1]
        if known is None:
            last = _END.fullmatch(text, end)
            if last is None:
                return False
            known = last[1]
        elif text[end:].strip() != "}":
            return False
        pending = self._pending.pop(int(known), None)
        if pending is None:
            return False
        self.count += 1
        pending.on_answer(Answer(result, text[match.end() : end]))
        return True

    def resolve(self, request_id: int, answer: Answer | Refusal) -> None:
        """Take an answer that was read elsewhere. The id must be one of these requests."""
        self._pending.pop(request_id).on_answer(answer)

    def progress_of(self, token: object) -> ProgressFn | None:
        """Return what takes the progress of a request, by its token."""
        pending = self._pending.get(token) if isinstance(token, int) else None
        return None if pending is None else pending.on_progress

    def close(self) -> None:
        """End all requests in flight: the connection has ended."""
        self._closed = True
        pending, self._pending = self._pending, {}
        for each in pending.values():
            each.on_answer(None)


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(digits)
    return number


def _no_number(name: str) -> float:
    raise ValueError(name)


_BEGIN = re.compile(
    r'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*,\s*"result"\s*:\s*|"result"\s*:\s*)(?=\{)'
)
_END = re.compile(r'\s*,\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d{1,15})\s*\}\s*')
_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number)
