"""What comes from a server before the SDK's dispatcher sees it.

The SDK hands a line that is no valid JSON-RPC on as an exception which belongs to no request, so that a server which
answers `{"id": 7, "result": null}` would leave request 7 waiting for ever. Here such a line fails its request. One that
is only unusual, because it holds half of a surrogate pair as an escape or is nested deeply, is read all the same.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Protocol, Self

from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCResponse
from pydantic import ValidationError

if TYPE_CHECKING:
    import contextvars
    from types import TracebackType

Incoming = SessionMessage | Exception


class ReadStream(Protocol):
    """The read half of an SDK transport, as far as it is used here."""

    async def receive(self) -> Incoming: ...
    async def aclose(self) -> None: ...
    async def __anext__(self) -> Incoming: ...


class MendedStream:
    """A read stream in which invalid answers have become errors of their requests."""

    def __init__(self, inner: ReadStream) -> None:
        self._inner = inner

    @property
    def last_context(self) -> contextvars.Context | None:
        """The sender's context, which HTTP transports keep per message; the dispatcher looks for it by this name."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> Incoming:
        return mend(await self._inner.receive())

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Incoming:
        return mend(await self._inner.__anext__())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


def mend(item: Incoming) -> Incoming:
    """The item itself, or the error of the request that an unreadable answer belongs to."""
    if not isinstance(item, ValidationError):
        return item
    for problem in item.errors(include_url=False, include_context=False):
        match problem["input"]:
            # The whole message, as pydantic shows it where a field is missing.
            case {"jsonrpc": _, "id": int() | str() as request_id, **rest} if "method" not in rest:
                return _failed(request_id, "the answer is not valid JSON-RPC")
            case str() | bytes() as line:
                return _read_again(line) or item
    return item


_ID = re.compile(r'"id"\s*:\s*(\d{1,15}|"[^"\\]{1,100}")')
_HALF = re.compile("[\ud800-\udfff]")


def _read_again(line: str | bytes) -> SessionMessage | None:
    """An answer that the SDK's parser does not take, by a more patient one."""
    text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
    try:
        message = _whole(json.loads(text))
    except (ValueError, RecursionError):
        # Near its ends an answer names its request; in between anything may look like it.
        found = _ID.search(text[:200]) or _ID.search(text[-200:])
        if found is None or '"method"' in text[:200]:
            return None
        return _failed(json.loads(found[1]), "the answer cannot be read: it is nested too deeply or is no JSON")
    match message:
        case {"jsonrpc": "2.0", "id": int() | str() as request_id, "result": dict() as result}:
            return SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=request_id, result=result))
    return None


def _whole(value: Any) -> Any:
    """With U+FFFD for halves of surrogate pairs."""
    match value:
        case str():
            return _HALF.sub("\ufffd", value)
        case dict():
            return {_whole(key): _whole(item) for key, item in value.items()}
        case list():
            return [_whole(item) for item in value]
    return value


def _failed(request_id: int | str, why: str) -> SessionMessage:
    error = ErrorData(code=INTERNAL_ERROR, message=why)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))
