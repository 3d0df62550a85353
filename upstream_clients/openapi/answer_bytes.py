"""HTTP/1.1 answers, read from bytes without I/O.

The common answer is read directly: HTTP/1.1, a plain head, and a body of a stated length. `h11` reads every other one,
from its first byte. If in doubt, `read_head` returns None, so that it never reads an answer differently than `h11`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import h11
import httpx2

from upstream_clients.openapi.response_body import too_large

MAX_HEAD_BYTES: Final = 128 * 1024
"""Size of the head of an answer."""

MAX_FIELDS: Final = 1000
"""Lines of the head of an answer."""

MAX_PIECES: Final = 200_000
"""Chunks of an answer."""

PIECES_PER_STEP: Final = 200
"""Chunks that are read in one step, which takes a few milliseconds."""


class RawAnswer(NamedTuple):
    """An answer as it came. Names of headers are in lower case; values of one name are joined by commas."""

    status: int
    reason: str
    headers: dict[str, str]
    body: bytes


class Head(NamedTuple):
    """The head of an answer in the common form.

    Attributes:
        length: bytes of the body.
        keeps_connection: True if the connection can be used for another request, after the answer.
    """

    status: int
    reason: str
    headers: dict[str, str]
    length: int
    keeps_connection: bool


def read_head(head: bytes | bytearray, method: str) -> Head | None:
    """Return the head of an answer in the common form; None for any other. `head` ends with its blank line.

    Raises:
        httpx2.RemoteProtocolError: it has too many lines.
    """
    if method == "HEAD" or not head.endswith(b"\r\n\r\n"):
        return None
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    status = _STATUS_LINE.fullmatch(first)
    if status is None:
        return None
    _check_fields(len(lines))
    headers: dict[str, str] = {}
    for line in lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            return None
        name, value = found[1].lower(), found[2].rstrip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    length = headers.get("content-length", "")
    if not _LENGTH.fullmatch(length) or "transfer-encoding" in headers or status[1] in ("204", "304"):
        return None
    connection = headers.get("connection", "keep-alive").lower()
    return Head(int(status[1]), status[2] or "", headers, int(length), connection == "keep-alive")


class AnswerParser:
    """The reader of one answer that is not in the common form."""

    def __init__(self, method: str, max_body_bytes: int) -> None:
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._h11.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        self._h11.send(h11.EndOfMessage())
        self._max_body_bytes = max_body_bytes
        self._head: h11.Response | None = None
        self._body = bytearray()
        self._pieces = 0
        self.has_more = False

    @property
    def keeps_connection(self) -> bool:
        """True if the connection can be used for another request, after the answer."""
        return self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE and not self._h11.trailing_data[0]

    def receive(self, data: bytes) -> None:
        """Take bytes of the answer, or its end (`b""`). `advance` reads them."""
        self._h11.receive_data(data)

    def advance(self) -> RawAnswer | None:
        """Read what was received. Return the answer once it is complete.

        Without an answer, `has_more` is True if another step has to follow.

        Raises:
            httpx2.RemoteProtocolError: the bytes are not a valid answer.
            UnreadableBody: the body is too large.
        """
        self.has_more = False
        try:
            for _ in range(PIECES_PER_STEP):
                match self._h11.next_event():
                    case h11.NEED_DATA | h11.PAUSED:
                        return None
                    case h11.InformationalResponse(status_code=101):
                        raise httpx2.RemoteProtocolError("the server switched to another protocol")
                    case h11.Response() as head:
                        self._head = head
                    case h11.Data(data=piece):
                        self._body += piece
                        if len(self._body) > self._max_body_bytes:
                            raise too_large(self._max_body_bytes)
                    case h11.EndOfMessage():
                        return self._answer()
                    case h11.ConnectionClosed():
                        raise httpx2.RemoteProtocolError("the server disconnected without sending a response")
        except h11.RemoteProtocolError as error:
            raise httpx2.RemoteProtocolError(str(error)) from None
        self._pieces += PIECES_PER_STEP
        if self._pieces > MAX_PIECES:
            raise httpx2.RemoteProtocolError(f"the answer came in more than {MAX_PIECES} chunks")
        self.has_more = True
        return None

    def _answer(self) -> RawAnswer:
        assert self._head is not None
        _check_fields(len(self._head.headers))
        headers: dict[str, str] = {}
        for name, value in self._head.headers:
            key, text = name.decode("latin-1"), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        reason = bytes(self._head.reason).decode("latin-1")
        return RawAnswer(self._head.status_code, reason, headers, bytes(self._body))


def _check_fields(count: int) -> None:
    if count > MAX_FIELDS:
        raise httpx2.RemoteProtocolError(f"the head of the answer has more than {MAX_FIELDS} lines")


BLANK_LINE: Final = re.compile(rb"\n\r?\n")
"""The end of a head, also of one without carriage returns."""

_STATUS_LINE: Final = re.compile(r"HTTP/1\.1 ([2-5][0-9][0-9])(?: ([\t\x20-\x7e\x80-\xff]*))?")
_FIELD: Final = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_LENGTH: Final = re.compile(r"[0-9]{1,15}")
