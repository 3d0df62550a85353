"""What comes from a server before the SDK's dispatcher sees it.

The SDK hands a line that is no valid JSON-RPC on as an exception which belongs to no request, so that a server which
answers `{"id": 7, "result": null}` would leave request 7 waiting for ever. Here such a line fails its request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError
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
                error = ErrorData(code=INTERNAL_ERROR, message="the answer is not valid JSON-RPC")
                return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))
    return item
