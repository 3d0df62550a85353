"""What an upstream offers and what a call to it brings back. Pure: no I/O, no MCP SDK."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

JsonObject = Mapping[str, Any]

ProgressFn = Callable[[float, float | None, str | None], Awaitable[None]]
"""`(progress, total, message)`, as in MCP's progress notification."""

Operation = Literal["tool", "resource", "prompt"]


@dataclass(frozen=True, slots=True)
class Annotations:
    """MCP tool annotations as declared; `None` where the server said nothing."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of one upstream, as listed (after repair of what was sloppy)."""

    name: str
    description: str = ""
    title: str | None = None
    input_schema: JsonObject = field(default_factory=lambda: {"type": "object"})
    output_schema: JsonObject | None = None
    annotations: Annotations = Annotations()


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The end of a call that the tool itself answered.

    Attributes:
        result: the MCP result object as JSON (`content`, `structuredContent`, `isError`, ...).
        notes: what was odd about it, e.g. that it does not match the tool's own output schema.
    """

    result: JsonObject
    notes: tuple[str, ...] = ()


UpstreamState = Literal["connecting", "ready", "down", "stopped"]


@dataclass(frozen=True, slots=True)
class UpstreamView:
    """What is known of one upstream at one moment.

    Attributes:
        name: the server's name in the configuration.
        state: `connecting` while an attempt worth waiting for is made (the first one, and the one right after a
            connection was lost); `down` carries an `error`, and attempts go on in the background.
        error: why it is down, for a person; no secrets, no traceback.
        tools: last known tools, also while it is down.
        resources, prompts: whether the server has them.
        era: `"modern"` or `"legacy"` protocol once connected.
        problems: what was repaired or dropped from its listing.
    """

    name: str
    state: UpstreamState
    error: str | None = None
    description: str | None = None
    instructions: str | None = None
    server_version: str | None = None
    era: Literal["modern", "legacy"] | None = None
    protocol_version: str | None = None
    tools: tuple[Tool, ...] = ()
    resources: bool = False
    prompts: bool = False
    problems: tuple[str, ...] = ()


class ToolSource(Protocol):
    """Anything that offers tools under one name: an MCP connection, a plugin, a fake.

    Calls raise `UpstreamCallError` of `upstream_clients.errors` when the tool did not answer.
    """

    @property
    def name(self) -> str: ...

    def view(self) -> UpstreamView: ...

    async def call_tool(
        self, tool: str, arguments: JsonObject, *, on_progress: ProgressFn | None = None, timeout: float | None = None
    ) -> ToolOutcome:
        """Call one tool; `timeout` in seconds. Cancelling the caller cancels the call upstream."""
        ...

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        """One of `resources/list`, `resources/read`, `resources/templates/list`, `prompts/list`, `prompts/get`."""
        ...
