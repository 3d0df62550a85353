"""The interface of hooks, which run before a call, and of middleware, which runs after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from codemode_mcp.plugins.api import ToolCallEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.calls.context import CallContext
    from codemode_mcp.catalog.entries import Entry
    from upstream_clients.tools import JsonObject


class Interception(Protocol):
    """The hooks and the middleware of plugins.

    Attributes:
        is_ready: whether all plugins are loaded.
    """

    is_ready: bool

    async def ready(self) -> None:
        """Return when all plugins are loaded."""
        ...

    def hooks(self, tool_id: str) -> bool:
        """Return True if a hook applies to this tool."""
        ...

    async def before(
        self,
        event: ToolCallEvent,
        called: str,
        note: Callable[[str], None],
        accept: Callable[[str], JsonObject],
    ) -> JsonObject:
        """Run the hooks, and return the input of the call.

        Args:
            called: the program's expression for the tool, for messages.
            note: takes a note for the reader of the run's result.
            accept: returns the input for the JSON text that a hook returns instead. It raises `ProgramError` if the
                input is invalid.

        Raises:
            PolicyDenied: a hook denies the call.
            PluginError: a hook failed.
        """
        ...

    def before_now(
        self,
        event: ToolCallEvent,
        called: str,
        note: Callable[[str], None],
        accept: Callable[[str], JsonObject],
    ) -> JsonObject:
        """Return what `before` returns, for a tool for which `waits` is False."""
        ...

    def waits(self, tool_id: str) -> bool:
        """Return True if a hook or middleware of this tool has to be awaited."""
        ...

    def middleware(self, tool_id: str) -> bool:
        """Return True if middleware applies to this tool."""
        ...

    async def after(self, event: ToolCallEvent, called: str, result: Any, limit: int) -> str:
        """Run the middleware, and return the result as JSON. A replaced result has at most `limit` bytes.

        Raises:
            PluginError: a middleware failed.
        """
        ...


def event_of(entry: Entry, number: int, arguments: JsonObject, context: CallContext) -> ToolCallEvent:
    """Return the event of a call for hooks and middleware."""
    effects = entry.effects
    return ToolCallEvent(
        tool_id=entry.id,
        tool_kind=entry.source,
        tool_input_kind="json",
        input=arguments,
        run_id=context.run_id,
        owner=context.owner,
        principal=context.caller.principal,
        read_only=effects.read_only,
        destructive=effects.destructive,
        idempotent=effects.idempotent,
        open_world=effects.open_world,
        call=number,
    )
