"""The streams of the SDK's transports as a `dispatcher.Transport`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter
from pydantic import ValidationError

from upstream_clients.jsonrpc import form_of
from upstream_clients.line_messages import error_for_invalid_answer, read_message

if TYPE_CHECKING:
    import contextvars
    from collections.abc import Mapping

    from upstream_clients.jsonrpc import Message
    from upstream_clients.line_messages import Incoming


SdkItem = SessionMessage | Exception
"""An item of a read stream of the SDK."""


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
        return from_sdk(await self._read.receive())

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


def from_sdk(item: SdkItem) -> Incoming:
    """Return a message as a dict. If the SDK's parser has refused the message, `read_message` reads it again."""
    if isinstance(item, SessionMessage):
        message = item.message
        if isinstance(message, JSONRPCResponse):
            return {"jsonrpc": "2.0", "id": message.id, "result": message.result}
        dumped: Message = message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        return dumped
    if isinstance(item, ValidationError):
        for problem in item.errors(include_url=False, include_context=False):
            match problem["input"]:
                # Where a field is missing, pydantic reports the complete message.
                case dict() as value if (failure := error_for_invalid_answer(value)) is not None:
                    return failure
                case str() | bytes() as line:
                    again = read_message(line.encode("utf-8", "replace") if isinstance(line, str) else line)
                    return item if isinstance(again, Exception) else again
    return item


def to_sdk(item: Incoming) -> SdkItem:
    """Return a message as an item of the SDK's streams."""
    return item if isinstance(item, Exception) else SessionMessage(_model_of(item))
