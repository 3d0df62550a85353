"""The state of one upstream, as the owner of its connection reports it, and functions that wait for a state.

The owner (`connection.Connection`) reports through the methods `report_...`. All other tasks only look and wait.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import anyio

from upstream_clients.errors import UpstreamCallError, UpstreamUnavailable
from upstream_clients.list_repair import ITEM_KINDS, read_items
from upstream_clients.list_state import ITEM_LISTS, ItemListName, ListName, ListState
from upstream_clients.schemas import compile_check
from upstream_clients.server_log import ServerLog
from upstream_clients.tools import NO_HINT, CacheHint, JsonObject, Tool, UpstreamView

if TYPE_CHECKING:
    from collections.abc import Callable

    from upstream_clients.live_connection import LiveConnection
    from upstream_clients.results import OutputCheck
    from upstream_clients.spec import DocumentVersion, UpstreamSpec

logger = logging.getLogger("upstream_clients.upstream")


class ReportedState:
    """A view, the connection and the tools of one upstream.

    Attributes:
        settled: set once there are tools to show, or the first attempt has failed.
        wanted: set by a call to a server that is idle or down. The owner then connects soon.
        urgent: set by a call that waits for the server to start.
        begun: set once an attempt to connect has begun, so that its timeout runs.
        lists: the ages of the server's lists.
        document_version: the latest known version of the document, if it is a file.
        looked_at: monotonic seconds of the latest request for the server's tools by a program or client.
        roots_asked: set once the server has asked for roots.
        pid: the process of a stdio server while it is connected; else None.
        log: the latest lines of the server.
        ready_at: monotonic seconds of the beginning of the current connection; None without one.
    """

    def __init__(
        self,
        spec: UpstreamSpec,
        on_change: Callable[[], None] | None = None,
        log: ServerLog | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spec = spec
        self.clock = clock
        self.log = log or ServerLog(spec.redact)
        self.ready_at: float | None = None
        self.settled = anyio.Event()
        self.wanted = anyio.Event()
        self.urgent = anyio.Event()
        self.begun = anyio.Event()
        self.roots_asked = anyio.Event()
        self.lists: dict[ListName, ListState] = {"tools": ListState(supported=True)}
        self.lists |= {name: ListState(supported=False, is_used=name != "resources") for name in ITEM_LISTS}
        self.looked_at = -math.inf
        self.document_version = spec.document_version
        self.pid: int | None = None
        self._on_change = on_change
        # The mutable state. Changed by the owner task only.
        self._view = UpstreamView(spec.name, "connecting", description=spec.description)
        self._link: LiveConnection | None = None
        self._changed = anyio.Event()
        self._tools: dict[str, Tool] = {}
        self._problems: dict[ListName, tuple[str, ...]] = {}
        """The problems of each list that was requested in this connection."""
        self._output_checks: dict[str, OutputCheck | None] = {}

    @property
    def name(self) -> str:
        return self.spec.name

    def view(self) -> UpstreamView:
        return self._view

    def __repr__(self) -> str:
        return f"<Upstream {self.name!r}: {self._view.state}, {len(self._view.tools)} tools>"

    def report_saved_listing(self, view: UpstreamView) -> None:
        """Show a listing of an earlier process, before the first attempt. The state does not change."""
        self._set_tools(view.tools)
        self._show(replace(view, name=self.name, state=self._view.state, description=self.spec.description))
        self.settled.set()

    def report_idle(self) -> None:
        """Note that there is no connection, and that none is made until the next call."""
        self._link = None
        self.wanted, self.urgent, self.begun = anyio.Event(), anyio.Event(), anyio.Event()
        self._show(replace(self._view, state="idle", error=None))

    def report_begun(self) -> None:
        """Note that an attempt begins now."""
        self.begun.set()
        self._wake()

    def report_connecting(self) -> None:
        """Note the beginning of an attempt for which calls should wait."""
        self._link = None
        self._show(replace(self._view, state="connecting", error=None, login_required=False))

    def report_ready(self, link: LiveConnection, view: UpstreamView, hint: CacheHint = NO_HINT) -> None:
        """Note a connection that serves calls from now on, after the first listing of tools.

        `hint`: the caching hint of the tools.
        """
        self._link = link
        self._problems = {"tools": view.problems}
        self.lists["tools"].end(self.clock(), hint)
        self.lists["prompts"].connected(supported=view.prompts)
        self.lists["templates"].connected(supported=view.resources)
        self.lists["resources"].connected(supported=view.resources)
        self._set_tools(view.tools)
        self._show(view)

    def report_tools(
        self, tools: tuple[Tool, ...], problems: tuple[str, ...], hint: CacheHint = NO_HINT, *, logged_in: bool = False
    ) -> None:
        """Note a new listing of tools."""
        before = self._view.tools
        if len(tools) == len(before) and all(map(_is_same, tools, before)):
            tools = before  # nothing compares or declares thousands of operations again
        else:
            self._set_tools(tools)
        view = replace(self._view, tools=tools, logged_in=logged_in)
        if logged_in != self._view.logged_in:
            # The other lists are those of another user of the server.
            view = replace(
                view,
                prompt_list=None if view.prompts else view.prompt_list,
                template_list=None if view.resources else view.template_list,
                resource_list=None if view.resources else view.resource_list,
            )
            for each in ITEM_LISTS:
                self.lists[each].announce()
        self._show_listing("tools", problems, view, hint)

    def report_items(
        self, name: ItemListName, items: tuple[JsonObject, ...], problems: tuple[str, ...], hint: CacheHint = NO_HINT
    ) -> None:
        """Note a new listing of prompts, resource templates or resources."""
        view = self._view
        match name:
            case "prompts":
                view = replace(view, prompt_list=items)
            case "templates":
                view = replace(view, template_list=items)
            case "resources":
                view = replace(view, resource_list=items)
        self._show_listing(name, problems, replace(view, refused_lists=view.refused_lists - {name}), hint)

    def report_listing_failed(self, name: ListName, problem: str | None = None, *, is_refused: bool = False) -> None:
        """Note that a list could not be requested. The last known list does not change.

        Args:
            problem: a sentence that replaces the problems of the last known list.
            is_refused: True if the server has answered, but with no list, or not in time.
        """
        problems = self._problems.get(name, ()) if problem is None else (problem,)
        # Tools are requested again only after the time of the hint. The other lists are requested when they are used.
        hint = self.lists[name].hint if name == "tools" else NO_HINT
        view = self._view
        if is_refused:
            view = replace(view, refused_lists=view.refused_lists | {name})
        self._show_listing(name, problems, view, hint)

    def _show_listing(
        self, name: ListName, problems: tuple[str, ...], view: UpstreamView, hint: CacheHint = NO_HINT
    ) -> None:
        self._problems[name] = problems
        self.lists[name].end(self.clock(), hint)
        self._show(replace(view, problems=tuple(chain.from_iterable(self._problems.values()))))

    def report_asks_for_roots(self) -> None:
        """Note that the server has asked for the roots of a client."""
        self.roots_asked.set()
        if not self._view.asks_for_roots:
            self._show(replace(self._view, asks_for_roots=True))

    def report_down(self, error: str, *, login_required: bool = False) -> None:
        """Note that there is no connection, since the last attempt failed."""
        self._link = None
        self.wanted, self.urgent = anyio.Event(), anyio.Event()
        self._show(replace(self._view, state="down", error=error, login_required=login_required))

    def report_stopped(self, why: str | None = None) -> None:
        """Note that there is no connection, and that none will be made. Only the first reason counts."""
        self._link = None
        if self._view.state != "stopped":
            self._show(replace(self._view, state="stopped", error=why or f"server {self.name!r} is closed"))

    def _items(self, name: ListName) -> tuple[Any, ...] | None:
        """Return the last known items of a list; None if it is not listed yet."""
        view = self._view
        lists = {"tools": view.tools, "prompts": view.prompt_list, "templates": view.template_list}
        return lists.get(name, view.resource_list)

    def _compare_list(self, method: str, result: JsonObject) -> None:
        """Have a list requested again if a result has other items of it: not all servers announce changes."""
        for name, kind in ITEM_KINDS.items():
            if kind.method == method:
                known = self._items(name)
                listed = result.get(kind.key)
                if known is None or not isinstance(listed, list):
                    return
                by_identifier = {item[kind.identifier]: item for item in known}
                items, _ = read_items(kind, listed)
                if any(by_identifier.get(item[kind.identifier]) != item for item in items):
                    self.lists[name].announce()

    def note_look(self) -> None:
        """Note that the tools of the server were requested, perhaps without a call.

        The request counts as use, so that expired lists are requested again. Otherwise, a list whose tools are all
        held would never change, because none of them can be called.
        """
        self.looked_at = self.clock()
        for state in self.lists.values():
            if not state.is_current:
                state.wanted.set()  # the listing does not wait for the end of a pause

    def note_document(self, version: DocumentVersion | None) -> None:
        """Note the version of the document of an API that is a file. A changed one is read soon, also if it is idle."""
        if version != self.document_version:
            self.document_version = version
            self.lists["tools"].announce()
            self.wanted.set()

    async def wait_begun(self) -> None:
        """Have an idle server connected. Return when the attempt begins, or if none is made."""
        while self._view.state in ("idle", "connecting") and not self.begun.is_set():
            self.wanted.set()
            await self._changed.wait()

    async def wait_attempted(self) -> None:
        """Have an idle server connected. Return when it is connected, or when the attempt has failed."""
        while self._view.state in ("idle", "connecting"):
            self.wanted.set()
            await self._changed.wait()

    async def wait_listed(self) -> None:
        """Have an idle server connected. Return when each of its lists was requested, or when there is no connection.

        A list that could not be requested counts, too.
        """
        await self.wait_attempted()
        while self._view.state == "ready" and not all(state.is_current for state in self.lists.values()):
            await self._changed.wait()

    async def connected(self) -> LiveConnection:
        """Wait for a connection. Raises `UpstreamUnavailable` if no attempt is in progress."""
        while True:
            link = self._link
            if link is not None and link.alive:
                return link
            # After a link has died, the state is `ready` until the owner has noticed. Then this loop waits.
            if self._view.state in ("down", "stopped"):
                self.wanted.set()
                raise UpstreamUnavailable(self.name, self._view.error or f"server {self.name!r} is closed")
            if self._view.state == "idle":
                self.wanted.set()
            self.urgent.set()
            await self._changed.wait()

    async def _wait_listed(self, name: ListName, link: LiveConnection, *, is_required: bool) -> None:
        """Wait for the end of a listing that began after the latest announcement, even if it failed.

        A listing from before an announcement says nothing about a tool now.

        Args:
            is_required: True if nothing can be admitted without the list. If all listings have failed so far, there is
                another one.

        Raises:
            UpstreamCallError: the connection has ended.
        """
        state = self.lists[name]
        if is_required and state.is_current and self._items(name) is None:
            state.announce()
        latest = state.changes
        while state.listed < latest:
            if not link.alive:
                why = f"server {self.name!r} closed the connection before the call; nothing was sent, repeat the call"
                raise UpstreamCallError(self.name, why, dispatched=False)
            state.wanted.set()
            await self._changed.wait()

    def _output_check(self, tool: str) -> OutputCheck | None:
        if tool not in self._output_checks:
            known = self._tools.get(tool)
            schema = None if known is None else known.output_schema
            self._output_checks[tool] = None if schema is None else compile_check(schema)
        return self._output_checks[tool]

    def _set_tools(self, tools: tuple[Tool, ...]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._output_checks.clear()

    def _show(self, view: UpstreamView) -> None:
        changed = view != self._view
        self._view = view
        if view.state != "connecting":
            self.settled.set()
        # Also for an equal view: a waiter may have found a dead link, and this one may be new.
        self._wake()
        if changed and self._on_change is not None:
            try:
                self._on_change()
            except Exception:
                logger.exception("the observer of server %r failed", self.name)

    def _wake(self) -> None:
        # A new event for later waiters. Each waiter checks the state again after it wakes.
        self._changed.set()
        self._changed = anyio.Event()


def _is_same(one: Tool, other: Tool) -> bool:
    """Return True if two tools surely have the same definition: an API lists an unchanged operation with equal objects.

    Equality of schemas would not be enough, since 1 equals `true` in Python.
    """
    one, other = one.as_sent, other.as_sent
    return (
        one.input_schema is other.input_schema
        and one.output_schema is other.output_schema
        and one.meta is other.meta
        and one.icons is other.icons
        and replace(one, input_schema={}, output_schema=None) == replace(other, input_schema={}, output_schema=None)
    )
