"""Answers of a server that are used again, and subscriptions to updates of its resources."""

from __future__ import annotations

import json
import logging
import math
import time
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
from msgspec.structs import replace

from upstream_clients.errors import UpstreamCallError, UpstreamUnavailable
from upstream_clients.list_repair import ITEM_KINDS, read_items
from upstream_clients.list_state import ITEM_LISTS, ItemListName, ListName, ListState
from upstream_clients.schemas import compile_check
from upstream_clients.server_log import ServerLog
from upstream_clients.tools import NO_HINT, CacheHint, JsonObject, Tool, UpdateFn, UpstreamView, read_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

    from upstream_clients.live_connection import LiveConnection
    from upstream_clients.results import OutputCheck
    from upstream_clients.spec import DocumentVersion, UpstreamSpec


# The subscriptions to updates of resources at one process of a server. They outlive its connections.
#
# Any task adds and removes listeners. The task that owns the connection (`list_changed`) subscribes at the server,
# and reports what the server answers. This module sends nothing.


logger = logging.getLogger(__name__)

MAX_SUBSCRIPTIONS: Final = 1_000
"""Number of resources of one process with listeners."""


class SubscribedResource:
    """One resource with listeners.

    Attributes:
        answered: True once the server has accepted or refused the subscription in the current connection.
        refusal: the reason why the server does not report updates; None if it does, or has not answered yet.
        was_active: True if the server has reported updates before, so that a gap is reported.
        listeners: the functions to call, by the number of their subscription.
    """

    def __init__(self) -> None:
        self.answered = False
        self.refusal: str | None = None
        self.was_active = False
        self.listeners: dict[int, UpdateFn] = {}


class ResourceSubscriptions:
    """The resources with listeners, by URI.

    Args:
        on_answer: called when the server has answered.
    """

    def __init__(self, server: str, on_answer: Callable[[], None]) -> None:
        self._server = server
        self._on_answer = on_answer
        self._resources: dict[str, SubscribedResource] = {}
        self._changed = anyio.Event()
        self._count = 0

    def __len__(self) -> int:
        return len(self._resources)

    def add(self, uri: str, on_update: UpdateFn) -> tuple[SubscribedResource, Callable[[], None]]:
        """Add a listener. Return its resource, and a function that removes the listener.

        Raises:
            UpstreamCallError: there are too many resources with listeners.
        """
        resource = self._resources.get(uri)
        if resource is None:
            if len(self._resources) >= MAX_SUBSCRIPTIONS:
                why = f"server {self._server!r} has {MAX_SUBSCRIPTIONS} subscribed resources already; end some of them"
                raise UpstreamCallError(self._server, why, dispatched=False)
            resource = self._resources[uri] = SubscribedResource()
            self._change()
        self._count += 1
        number = self._count
        resource.listeners[number] = on_update

        def remove() -> None:
            if resource.listeners.pop(number, None) is not None and not resource.listeners:
                if self._resources.get(uri) is resource:
                    del self._resources[uri]
                self._change()

        return resource, remove

    def _change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    # For the owner of the connection.

    def uris(self) -> frozenset[str]:
        return frozenset(self._resources)

    def unanswered(self) -> list[str]:
        return [uri for uri, resource in self._resources.items() if not resource.answered]

    def change(self) -> anyio.Event:
        return self._changed

    def report_gap(self) -> None:
        """Note that the server has forgotten all subscriptions."""
        for resource in self._resources.values():
            resource.answered = False

    def report_accepted(self, uris: Collection[str]) -> None:
        """Note that the server reports updates of these resources from now on. Report an update after a gap."""
        for uri in uris:
            resource = self._resources.get(uri)
            if resource is None or (resource.answered and resource.refusal is None):
                continue
            missed = resource.was_active
            resource.answered, resource.refusal, resource.was_active = True, None, True
            if missed:
                self._report(resource, uri)
        self._on_answer()

    def report_refused(self, uris: Collection[str], why: str) -> None:
        for uri in uris:
            resource = self._resources.get(uri)
            if resource is not None:
                resource.answered, resource.refusal = True, why
        self._on_answer()

    def report_update(self, uri: str) -> None:
        """Call the listeners of a resource, and of those that it is a part of."""
        for subscribed, resource in tuple(self._resources.items()):
            if uri == subscribed or uri.startswith(subscribed if subscribed.endswith("/") else f"{subscribed}/"):
                self._report(resource, uri)

    def _report(self, resource: SubscribedResource, uri: str) -> None:
        for listener in tuple(resource.listeners.values()):
            try:
                listener(uri)
            except Exception:
                logger.exception("an update of a resource of server %r could not be reported", self._server)


# Answers to reads and lists that a server allows to be used again for some time (`cache_hints`).
#
# A cache belongs to one process of a server, so clients with processes of their own share nothing. An answer is used
# for the login with which it was requested. It is dropped when its time is over, when the server reports an update of
# the resource or a change of the list, and when the connection ends. Answers that depend on what a person has answered
# are not stored (MCP 2026-07-28, Caching).


MAX_CACHE_BYTES = 8 * 1024 * 1024
"""Bytes of all answers, as JSON. The answers that were used longest ago are dropped first."""


class StoredAnswer(NamedTuple):
    """An answer.

    Attributes:
        text: the answer as JSON, so that no user of it can change that of another.
        until: monotonic seconds.
    """

    text: bytes
    until: float
    login: Hashable


Key = tuple[str, str]
"""The method, and the URI or the cursor of a request."""

_READ: Final = "resources/read"

_PARAMS: Final = {
    _READ: "uri",
    "resources/list": "cursor",
    "resources/templates/list": "cursor",
    "prompts/list": "cursor",
}
"""The methods whose answers are stored, and the only member that their params may have."""

_METHODS: Final[Mapping[ListName, Sequence[str]]] = {
    "tools": (),
    "prompts": ("prompts/list",),
    "templates": ("resources/templates/list",),
    "resources": ("resources/list", _READ),
}
"""The methods whose answers are no longer valid after a change of a list."""


class PendingAnswer(NamedTuple):
    """A request in flight, whose answer may be stored.

    Attributes:
        key: None if the answer is not stored.
        number: counts what has become invalid. If it has changed meanwhile, the answer is not stored.
    """

    key: Key | None
    number: int
    login: Hashable


class AnswerCache:
    """The stored answers of one connection."""

    def __init__(self) -> None:
        self._stored: dict[Key, StoredAnswer] = {}
        self._size = 0
        self._number = 0

    def __bool__(self) -> bool:
        return bool(self._stored)

    def find(self, method: str, params: Mapping[str, Any], now: float, login: Hashable) -> StoredAnswer | None:
        """Return the stored answer to a request; None without one.

        Args:
            params: the params without what every request has.
            login: identifies the present login.
        """
        key = _key_of(method, params)
        stored = None if key is None else self._stored.pop(key, None)
        if key is None or stored is None:
            return None
        if stored.until <= now or stored.login != login:
            self._size -= len(stored.text)
            return None
        self._stored[key] = stored  # at the end: the latest in use
        return stored

    def begin(self, method: str, params: Mapping[str, Any], login: Hashable) -> PendingAnswer:
        """Note a request before it is sent."""
        return PendingAnswer(_key_of(method, params), self._number, login)

    def end(self, pending: PendingAnswer, result: JsonObject, now: float, login: Hashable) -> None:
        """Store the answer to a request, if its server allows that. `login`: identifies the present login."""
        key, ttl = pending.key, read_hint(result).ttl_ms / 1000
        if not ttl or key is None or pending.number != self._number or pending.login != login:
            return
        try:
            text = json.dumps(result).encode()
        except (ValueError, RecursionError):
            return
        if len(text) > MAX_CACHE_BYTES:
            return
        self._drop([key])
        self._stored[key] = StoredAnswer(text, now + ttl, login)
        self._size += len(text)
        while self._size > MAX_CACHE_BYTES:
            self._drop([next(iter(self._stored))])

    def drop_resource(self, uri: str) -> None:
        """Drop the answers for a resource that has been updated, and for those below or above it."""
        self._number += 1
        self._drop(
            [key for key in self._stored if key[0] == _READ and (key[1].startswith(uri) or uri.startswith(key[1]))]
        )

    def drop_list(self, name: ListName) -> None:
        self._number += 1
        self._drop([key for key in self._stored if key[0] in _METHODS[name]])

    def clear(self) -> None:
        """Drop all answers, and those of requests in flight."""
        self._number += 1
        self._drop([*self._stored])

    def _drop(self, keys: list[Key]) -> None:
        for key in keys:
            if (stored := self._stored.pop(key, None)) is not None:
                self._size -= len(stored.text)


def _key_of(method: str, params: Mapping[str, Any]) -> Key | None:
    name = _PARAMS.get(method)
    if name is None or any(key != name for key in params):
        return None
    value = params.get(name, "")
    return (method, value) if isinstance(value, str) else None


# The state of one upstream, as the owner of its connection reports it, and functions that wait for a state.
#
# The owner (`connection.Connection`) reports through the methods `report_...`. All other tasks only look and wait.


observer_log = logging.getLogger("upstream_clients.upstream")


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
        self.roots_asked.set()
        if not self._view.asks_for_roots:
            self._show(replace(self._view, asks_for_roots=True))

    def report_down(self, error: str, *, login_required: bool = False) -> None:
        self._link = None
        self.wanted, self.urgent = anyio.Event(), anyio.Event()
        self._show(replace(self._view, state="down", error=error, login_required=login_required))

    def report_stopped(self, why: str | None = None) -> None:
        """Note that there is no connection, and that none will be made. Only the first reason counts."""
        self._link = None
        if self._view.state != "stopped":
            self._show(replace(self._view, state="stopped", error=why or f"server {self.name!r} is closed"))

    def _items(self, name: ListName) -> tuple[Any, ...] | None:
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
        if is_required and self._items(name) is None and state.is_current:
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
                observer_log.exception("the observer of server %r failed", self.name)

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
