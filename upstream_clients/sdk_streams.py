"""The streams of the SDK's transports as a `dispatcher.Transport`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

from upstream_clients.jsonrpc import form_of
from upstream_clients.line_messages import Incoming

if TYPE_CHECKING:
    import contextvars
    from collections.abc import Mapping

    from upstream_clients.jsonrpc import Message


SdkItem = SessionMessage | Incoming
"""An item of a read stream: what the SDK has made itself, or what we have read from the bytes of the server."""


class ReadStream(Protocol):
    """The read half of an SDK transport, as far as it is used here."""

    async def receive(self) -> SdkItem: ...


class WriteStream(Protocol):
    """The write half of an SDK transport."""

    async def send(self, item: SessionMessage, /) -> None: ...


class SdkTransport:
    """A `dispatcher.Transport` over the two streams of a transport of the SDK."""

    def __init__(self, read: ReadStream, write: WriteStream) -> None:
        self._read = read
        self._write = write

    @property
    def last_context(self) -> contextvars.Context | None:
        """The context of the POST whose response had the last message."""
        return getattr(self._read, "last_context", None)

    async def receive(self) -> Incoming:
        item = await self._read.receive()
        if isinstance(item, SessionMessage):
            return item.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        return item

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        metadata = ClientMessageMetadata(headers=dict(headers)) if headers else None
        await self._write.send(SessionMessage(_model_of(message), metadata))


def _model_of(message: Message) -> Any:
    match form_of(message):
        case "result":
            # Not validated, since validation would copy the result.
            return JSONRPCResponse.model_construct(jsonrpc="2.0", id=message["id"], result=message["result"])
        case "request":
            return JSONRPCRequest(**message)
        case "notification":
            return JSONRPCNotification(**message)
        case _:
            return jsonrpc_message_adapter.validate_python(message, by_name=False)
