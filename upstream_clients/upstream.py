"""One upstream as its callers see it: a view, and calls that wait for, or fail without, a connection.

Knows no transport and no MCP SDK. The task that owns the connection (`connection.Connection`) reports through
`connecting`, `ready`, `listed`, `down` and `stopped`; every other task only looks and calls.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import anyio

from upstream_clients.errors import UpstreamCallError, UpstreamUnavailable
from upstream_clients.results import OutputCheck, needs_input, read_outcome, without_plumbing
from upstream_clients.schemas import compile_check
from upstream_clients.tools import Asking, JsonObject, ProgressFn, Tool, ToolOutcome, UpstreamView

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from upstream_clients.spec import UpstreamSpec

logger = logging.getLogger(__name__)

REQUESTS = frozenset(("resources/list", "resources/read", "resources/templates/list", "prompts/list", "prompts/get"))
"""What `request` may send besides tool calls."""


class Link(Protocol):
    """One live connection."""

    @property
    def alive(self) -> bool:
        """Whether a request sent now can reach the server."""
        ...

    async def send(self, method: str, params: Mapping[str, Any], on_progress: ProgressFn | None = None) -> JsonObject:
        """The raw result. Raises `UpstreamCallError`; cancelling it cancels the request upstream."""
        ...


class Upstream:
    """Satisfies `tools.ToolSource`."""

    def __init__(self, spec: UpstreamSpec, on_change: Callable[[], None] | None = None) -> None:
        self.spec = spec
        self.settled = anyio.Event()
        """Set once the first attempt has ended, well or not."""
        self.wanted = anyio.Event()
        """Set when somebody calls a server that is down; the owner takes it as a reason to try at once."""
        self._on_change = on_change
        # The mutable state. Changed by the owner task only.
        self._view = UpstreamView(spec.name, "connecting", description=spec.description)
        self._link: Link | None = None
        self._changed = anyio.Event()
        self._tools: dict[str, Tool] = {}
        self._output_checks: dict[str, OutputCheck | None] = {}

    @property
    def name(self) -> str:
        return self.spec.name

    def view(self) -> UpstreamView:
        return self._view

    def __repr__(self) -> str:
        return f"<Upstream {self.name!r}: {self._view.state}, {len(self._view.tools)} tools>"

    # What callers do.

    async def call_tool(
        self,
        tool: str,
        arguments: JsonObject,
        *,
        on_progress: ProgressFn | None = None,
        timeout: float | None = None,
        asking: Asking | None = None,
    ) -> ToolOutcome:
        """Call one tool; waits for a connection that is being made, within the same `timeout` (seconds).

        Raises:
            UpstreamUnavailable: the server is down or did not come up in time; nothing was sent.
            UpstreamCallError: the tool did not answer.
        """
        params = {"name": tool, "arguments": dict(arguments)}
        raw = await self._send("tools/call", params, on_progress, timeout)
        if needs_input(raw):
            raise UpstreamCallError(
                self.name,
                f"server {self.name!r}: tool {tool!r} asks for further input from the user, which cannot be given "
                "here yet; call it with all that it needs, or use another tool",
                dispatched=True,
            )
        return read_outcome(raw, self._output_check(tool))

    async def request(self, method: str, params: JsonObject, *, asking: Asking | None = None) -> JsonObject:
        """One of `REQUESTS`, within the default timeout. Raises as `call_tool`, and `ValueError` for other methods."""
        if method not in REQUESTS:
            raise ValueError(f"{method!r} is none of {', '.join(sorted(REQUESTS))}")
        raw = await self._send(method, params, None, None)
        if needs_input(raw):
            raise UpstreamCallError(
                self.name,
                f"server {self.name!r} asks for further input to answer {method}, which cannot be given here yet",
                dispatched=True,
            )
        return without_plumbing(raw)

    async def _send(
        self, method: str, params: Mapping[str, Any], on_progress: ProgressFn | None, timeout: float | None
    ) -> JsonObject:
        limit = self.spec.timeout if timeout is None else timeout
        sending = False
        # One scope for waiting and calling. When it ends a request, the dispatcher tells the server.
        with anyio.move_on_after(limit):
            link = await self._connected()
            sending = True
            return await link.send(method, params, on_progress)
        if sending:
            raise UpstreamCallError(
                self.name,
                f"server {self.name!r}: {_subject(method, params)} timed out after {limit:g} s",
                dispatched=True,
            )
        raise UpstreamUnavailable(
            self.name, f"server {self.name!r} was still connecting after {limit:g} s; nothing was sent"
        )

    async def _connected(self) -> Link:
        while True:
            link = self._link
            if link is not None and link.alive:
                return link
            # A link that has just died leaves the state at `ready` until the owner has noticed; wait for that.
            if self._view.state in ("down", "stopped"):
                self.wanted.set()
                raise UpstreamUnavailable(self.name, self._view.error or f"server {self.name!r} is closed")
            await self._changed.wait()

    def _output_check(self, tool: str) -> OutputCheck | None:
        if tool not in self._output_checks:
            known = self._tools.get(tool)
            schema = None if known is None else known.output_schema
            self._output_checks[tool] = None if schema is None else compile_check(schema)
        return self._output_checks[tool]

    # What the owner task reports.

    def connecting(self) -> None:
        """An attempt that is worth waiting for has begun."""
        self._link = None
        self._show(replace(self._view, state="connecting", error=None))

    def ready(
        self,
        link: Link,
        *,
        era: Literal["modern", "legacy"],
        protocol_version: str,
        server_version: str | None,
        instructions: str | None,
        resources: bool,
        prompts: bool,
        tools: tuple[Tool, ...],
        problems: tuple[str, ...],
    ) -> None:
        """The connection serves calls from now on."""
        self._link = link
        self._adopt(tools)
        self._show(
            replace(
                self._view,
                state="ready",
                error=None,
                era=era,
                protocol_version=protocol_version,
                server_version=server_version,
                instructions=instructions,
                resources=resources,
                prompts=prompts,
                tools=tools,
                problems=problems,
            )
        )

    def listed(self, tools: tuple[Tool, ...], problems: tuple[str, ...]) -> None:
        """The server's tools have changed."""
        self._adopt(tools)
        self._show(replace(self._view, tools=tools, problems=problems))

    def down(self, error: str) -> None:
        """No connection, and the last attempt to make one failed."""
        self._link = None
        self.wanted = anyio.Event()
        self._show(replace(self._view, state="down", error=error))

    def stopped(self) -> None:
        """No connection, and none will be made."""
        self._link = None
        self._show(replace(self._view, state="stopped", error=f"server {self.name!r} is closed"))

    def _adopt(self, tools: tuple[Tool, ...]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._output_checks.clear()

    def _show(self, view: UpstreamView) -> None:
        changed = view != self._view
        self._view = view
        if view.state != "connecting":
            self.settled.set()
        # Woken even when the view is the same: a waiter may have seen a dead link under it.
        self._changed.set()
        self._changed = anyio.Event()
        if changed and self._on_change is not None:
            try:
                self._on_change()
            except Exception:
                logger.exception("the observer of server %r failed", self.name)


def _subject(method: str, params: Mapping[str, Any]) -> str:
    """What was asked for, in words: `tool 'create_issue'`."""
    name = params.get("name") or params.get("uri")
    what = {"tools/call": "tool", "prompts/get": "prompt", "resources/read": "resource"}.get(method, method)
    return f"{what} {name!r}" if isinstance(name, str) else what
