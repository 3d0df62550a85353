"""The life of one upstream: one task opens it, agrees on a protocol, lists its tools, serves, and opens it again.

Why one task: transports and sessions hold cancel scopes, which only the task that entered them may leave. One cancel
scope encloses each connection. It has a deadline while connecting and while closing, and none in between. The state
that others need is reported to `Upstream`, which callers see.

Layers below, from top to bottom: `live_connection` sends raw requests in the form of the protocol era; `list_changed`
lists the tools again when they change; `dispatcher` sends messages over any transport and takes answers, questions and
notifications, all as dicts; `direct` and `streamable` send common calls past the dispatcher and read their answers from
bytes. Results are not modelled: a model would refuse a sloppy server, and read each result twice. Over stdio the MCP
SDK is not imported.

Invariants:

- A call that may have reached a lost server is not repeated here. It fails with a message that says so, and its caller
  decides. A call that a server has refused because it has lost the session is repeated once (`upstream`).
- A refusal of something optional, such as the stream of the server's own messages, is no loss. Only the answer to a
  request shows that a session is lost (`error_mapping`).
- The server's token is sent to that server only (`http`). No secret reaches a message, a log or a program.
- The tool list of an earlier process is used for look-ups only. A call is admitted by the tool as the server lists it
  right before the call is sent.
- A server counts as hung only if it also leaves a probe unanswered (`liveness`). Silence alone proves little: many
  servers do one thing at a time.
- A question of a server belongs to a call in flight, or is refused (`question_routing`). A person is never asked on
  behalf of another user.

Attempts: `backoff` has the delays. After the first loss of a connection, the next attempt is made immediately, since
most servers that die during a call can be started again. The delays of a server that keeps dying grow like those of a
server that does not start. A missing command counts as several failures. If a server needs a login, the next attempt
waits until any process has stored a new one.

Tried and dropped: the SDK's client session, which models every result; the SDK's transport for stdio, which leaves
children of a server behind and reads lines without a limit; the SDK's `OAuthClientProvider`, which holds a lock while a
request is answered, starts a login without a person at a browser, and lets two processes invalidate each other's
tokens.

The module is long because almost a quarter of it is text that gives reasons.
"""

from __future__ import annotations

import logging
import math
import time
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import anyio
import anyio.to_thread
from msgspec import Struct, structs

from upstream_clients import error_mapping
from upstream_clients.backoff import Backoff
from upstream_clients.dispatcher import Dispatcher, Transport
from upstream_clients.errors import UpstreamCallError, UpstreamUnavailable
from upstream_clients.line_messages import MAX_QUOTED
from upstream_clients.list_changed import ListChanges, keep_subscribed
from upstream_clients.list_state import ITEM_LISTS
from upstream_clients.listing import Listing, ListingCache
from upstream_clients.live_connection import LiveConnection, LivenessMonitor
from upstream_clients.negotiate import Agreement, negotiate
from upstream_clients.question_routing import ConnectionQuestions
from upstream_clients.redaction import redacted_start
from upstream_clients.server_log import StderrTail, keep_log_level
from upstream_clients.stdio import open_process
from upstream_clients.token_store import LoginStore, Stamp
from upstream_clients.tools import RootsFn, UpstreamView

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from upstream_clients.direct import RequestsInFlight
    from upstream_clients.error_mapping import HttpWatch
    from upstream_clients.jsonrpc import RequestId
    from upstream_clients.process import StartedProcess
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.start_places import StartPlace, StartPlaces
    from upstream_clients.upstream import Upstream


logger = logging.getLogger(__name__)

CLOSE_GRACE = 1.0
"""Seconds to end an HTTP session. Ending a process has limits of its own (`process`)."""

LAST_ANSWERS_TIMEOUT = 0.5
"""Seconds for the answers to open requests, after the server has lost the session."""

NUDGE_INTERVAL = 1.0
"""Seconds after a failed attempt before a call can start the next one."""

LOGIN_POLL_INTERVAL = 1.0
"""Seconds between two checks for a new login. A check looks at one file."""

LOGIN_PATIENCE = 900.0
"""Seconds after which a server that requires a login is connected once more without a new one."""

MAX_WARNINGS = 10
"""Reasons of one outage that are logged as warnings. A reason may quote the server, whose words may vary."""

MAX_STRAYS = 10
"""Texts of one connection that are no messages, and are logged."""

MISSING_COMMAND_FAILURES = 4
"""Failures that a missing command counts as, since a person has to change something first."""

_SSE_FALLBACK = (400, 404, 405)
"""HTTP statuses of the first POST that point to the older HTTP+SSE transport (MCP 2025-11-25, Transports)."""


class _End(Struct, frozen=True):
    """The end of one connection.

    Attributes:
        lived: seconds for which the connection was ready; None if it never was.
        try_sse: True if an attempt over the older HTTP+SSE transport may succeed.
        logged_out: True if the next attempt needs a login other than `login`.
        needs_person: True if no attempt can succeed until a person has changed something.
    """

    reason: str
    lived: float | None = None
    try_sse: bool = False
    logged_out: bool = False
    login: Stamp = None
    needs_person: bool = False


class Connection:
    """The connections of one `Upstream`, one after the other. `run` is its one task; another task calls `stop`."""

    def __init__(
        self,
        upstream: Upstream,
        *,
        client_name: str,
        client_version: str,
        backoff: Backoff | None = None,
        cache: ListingCache | None = None,
        roots: RootsFn | None = None,
        started: StartedProcess | None = None,
        places: StartPlaces | None = None,
        place: StartPlace | None = None,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to connect.

        Args:
            started: the server's process for the first connection; `run` ends it.
            places: the places of servers that start; None for no limit.
            place: the place for the first connection.
            sleep, clock: in seconds; `sleep` makes the pauses between attempts, `clock` measures the lifetimes of
                connections.
        """
        self._upstream = upstream
        self._roots = roots
        self._spec = upstream.spec
        self._client_info = {"name": client_name, "version": client_version}
        self._backoff = backoff or Backoff()
        self._cache = cache
        self._saving = anyio.Lock()
        self._sleep = sleep
        self._clock = clock
        # The mutable state.
        self._started = started
        self._places = places
        self._place = place
        self._stopping = anyio.Event()
        self._scope = anyio.CancelScope()
        """Encloses the current connection, or the pause between two."""
        self._ready_at: float | None = None
        """Time at which the current connection became ready."""
        self._over = anyio.Event()
        """Set when the current connection can no longer be used."""
        self._lost_session = ""
        """The reason for the end of the current connection, if the server has lost its session; else empty."""
        self._strays = 0
        """Number of texts of the current connection that are no messages."""
        self._restarting = False
        """True from `restart` until the next connection begins."""
        self._warned: set[str] = set()
        """Reasons for failed starts since the last ready connection."""

    async def run(self) -> None:
        """Connect and stay connected until `stop`."""
        try:
            while not self._stopping.is_set():
                self._restarting = False
                end = await self._run_connection()
                if self._stopping.is_set():
                    break
                if self._restarting:
                    continue
                if self._upstream.view().state == "idle":  # `_close_when_idle` has ended the connection
                    await self._until_wanted()
                    continue
                self._upstream.log.add_error(end.reason)
                if end.logged_out:
                    self._log_failed_start(end.reason, end.reason)
                    self._upstream.report_down(end.reason, login_required=True)
                    await self._until_login(end.login)
                    continue
                if end.lived is None:
                    delay = self._backoff.after_failure(MISSING_COMMAND_FAILURES if end.needs_person else 1)
                    self._log_failed_start(end.reason, f"{end.reason}; next attempt in {delay:.1f} s")
                else:
                    delay = self._backoff.after_loss(end.lived)
                    logger.info("%s; next attempt in %.1f s", end.reason, delay)
                if delay > 0:
                    self._upstream.report_down(end.reason)
                    await self._pause(delay)
                else:
                    # Calls wait for this attempt. While the state is `down`, they fail immediately.
                    self._upstream.report_connecting()
        finally:
            self._upstream.report_stopped()
            self._end_place()
            if self._started is not None:  # no connection has used the process
                await self._started.close()

    def _log_failed_start(self, reason: str, line: str) -> None:
        known = reason in self._warned or len(self._warned) >= MAX_WARNINGS
        logger.log(logging.INFO if known else logging.WARNING, "%s", line)
        if not known:
            self._warned.add(reason)

    def stop(self) -> None:
        """End `run`: immediately without a connection, else after `CLOSE_GRACE` seconds at most."""
        self._stopping.set()
        self._end_connection()

    def restart(self) -> None:
        """End the current connection, attempt or pause, and connect again. Calls wait for the new connection."""
        self._restarting = True
        self._backoff.reset()
        self._warned.clear()
        self._upstream.report_connecting()
        self._end_connection()

    def _end_connection(self) -> None:
        if self._ready_at is None:
            self._scope.cancel()
        else:
            self._over.set()
            self._scope.deadline = anyio.current_time() + CLOSE_GRACE

    async def _until_wanted(self) -> None:
        with anyio.CancelScope() as self._scope:
            await self._upstream.wanted.wait()
            self._upstream.report_connecting()

    async def _until_login(self, known: Stamp) -> None:
        """Wait for a new login, from any process.

        After `LOGIN_PATIENCE`, return without one: the server may have changed, and no longer require it.
        """
        store = LoginStore(self._spec)
        waited = 0.0
        with anyio.CancelScope() as self._scope:
            while waited < LOGIN_PATIENCE:
                if store.stamp() != known:
                    self._upstream.report_connecting()
                    return
                await self._sleep(LOGIN_POLL_INTERVAL)
                waited += LOGIN_POLL_INTERVAL

    async def _pause(self, delay: float) -> None:
        """Wait `delay` seconds. A call to the server ends the wait early, after `NUDGE_INTERVAL` at least."""

        async def until_wanted() -> None:
            await self._sleep(NUDGE_INTERVAL)
            await self._upstream.wanted.wait()
            pausing.cancel_scope.cancel()

        async with anyio.create_task_group() as pausing:
            self._scope = pausing.cancel_scope
            pausing.start_soon(until_wanted)
            await self._sleep(delay)
            pausing.cancel_scope.cancel()

    async def _run_connection(self) -> _End:
        if self._place is None and self._places is not None and self._spec.is_process:
            with anyio.CancelScope() as self._scope:
                self._place = await self._places.take(self._upstream.urgent)
            if self._place is None:  # `stop` or `restart` has ended the wait
                return _End(f"server {self._spec.name!r} was not started")
        self._upstream.report_begun()
        try:
            return await self._run_connection_now()
        finally:
            self._end_place()

    def _end_place(self) -> None:
        if self._place is not None:
            self._place.end()
            self._place = None

    async def _run_connection_now(self) -> _End:
        deadline = anyio.current_time() + self._spec.connect_timeout
        kind: Kind = "http" if self._spec.transport == "auto" else self._spec.transport
        end = await self._run_connection_over(kind, deadline)
        if end.try_sse and not self._stopping.is_set() and not self._restarting:
            older = await self._run_connection_over("sse", deadline)
            # If both fail, the first reason is reported, which is about the current transport.
            return end if older.lived is None else older
        return end

    async def _run_connection_over(self, kind: Kind, deadline: float) -> _End:
        self._over, self._strays, self._lost_session = anyio.Event(), 0, ""
        self._upstream.answers.clear()
        changes = ListChanges(self._upstream, on_listed=self._save_listing, sleep=self._sleep, clock=self._clock)
        watch = error_mapping.HttpWatch()
        started, self._started = self._started, None
        on_line = partial(self._upstream.log.add, "stderr")
        stderr = StderrTail(self._spec.name, self._spec.redact, on_line) if started is None else started.stderr
        process = None if started is None else started.process
        failure: Exception | None = None
        with anyio.CancelScope(deadline=deadline) as self._scope:
            try:
                async with open_transport(kind, self._spec, watch, stderr, process) as opened:
                    dispatcher = Dispatcher(
                        opened.transport,
                        over=self._over,
                        questions=ConnectionQuestions(roots=self._roots),
                        on_list_changed=changes.schedule_relist,
                        on_log_message=self._upstream.report_log_message,
                        on_updated=self._upstream.report_update,
                        on_stray=self._log_stray,
                        direct=opened.direct,
                    )
                    opened.set_cancel_sender(dispatcher.tell_cancelled)
                    self._upstream.pid = opened.pid
                    try:
                        async with dispatcher.running():
                            agreement = await negotiate(dispatcher, self._client_info)
                            link = LiveConnection(
                                self._spec,
                                dispatcher,
                                agreement,
                                self._client_info,
                                watch=watch,
                                over=self._over,
                                on_stale=changes.schedule_relist,
                                use_list=opened.use_list,
                                log_level=self._upstream.log_level,
                            )
                            await self._serve(dispatcher, agreement, link, changes, watch)
                    finally:
                        self._upstream.pid = self._upstream.ready_at = None
                        # Closing takes a bounded time, whatever ended the connection.
                        self._scope.deadline = min(self._scope.deadline, anyio.current_time() + CLOSE_GRACE)
            except Exception as error:
                logger.debug("connection to %s ended", self._spec.name, exc_info=True)
                failure = error
        # From the most specific reason to the least.
        ready_at, self._ready_at = self._ready_at, None
        if ready_at is not None:
            reason = self._lost_session or error_mapping.lost(self._spec, stderr.telling_line)
            return _End(reason, lived=self._clock() - ready_at)
        if watch.logged_out:
            return _End(error_mapping.login_needed(self._spec), logged_out=True, login=watch.login)
        if failure is None:
            return _End(error_mapping.connect_timeout(self._spec, stderr.telling_line, stderr.stray_line))
        return _End(
            error_mapping.start_failure(self._spec, failure, stderr.telling_line, stderr.exit_code, stderr.stray_line),
            try_sse=kind == "http" and watch.refused_status in _SSE_FALLBACK,
            needs_person=error_mapping.is_command_missing(self._spec, failure),
        )

    def _log_stray(self, text: str) -> None:
        self._strays += 1
        if self._strays <= MAX_STRAYS:
            shown = redacted_start(" ".join(text.split()), MAX_QUOTED, self._spec.redact)
            self._upstream.log.add("connection", f"passed over, because it is not an MCP message: {shown}")

    async def _serve(
        self,
        dispatcher: Dispatcher,
        agreement: Agreement,
        link: LiveConnection,
        changes: ListChanges,
        watch: error_mapping.HttpWatch,
    ) -> None:
        async with anyio.create_task_group() as serving:
            announced = agreement.announced_lists if link.modern else ()
            serving.start_soon(changes.listen, link, announced)
            if "tools" in announced:
                # Before the first listing, so that no change is missed between the two.
                await changes.wait_listening()
            if not link.modern:
                for name, state in self._upstream.lists.items():
                    state.is_announced = name in agreement.announced_lists
            self._upstream.lists["tools"].begin()
            had_login = self._upstream.login_stamp() is not None
            listing = await _first_listing(link, agreement)
            self._scope.deadline = math.inf
            self._ready_at = self._clock()
            self._end_place()
            self._warned.clear()
            self._upstream.calls.note_connection()
            before, capabilities = self._upstream.view(), agreement.capabilities
            # Some pages of the list may be from before the login.
            logged_in = had_login and link.logged_in
            # Of another user of the server, nothing is kept.
            resources = before.resource_list if before.logged_in == logged_in else None
            view = UpstreamView(
                self._spec.name,
                "ready",
                description=self._spec.description,
                instructions=agreement.instructions,
                server_name=agreement.server_name,
                logged_in=logged_in,
                server_version=agreement.server_version,
                era="modern" if link.modern else "legacy",
                protocol_version=link.protocol_version,
                tools=listing.tools,
                resources=capabilities.resources is not None,
                prompts=capabilities.prompts is not None,
                completions=capabilities.completions is not None,
                problems=(*listing.problems, *link.use_list()),
                asks_for_roots=before.asks_for_roots,
                prompt_list=() if capabilities.prompts is None else None,
                template_list=() if capabilities.resources is None else None,
                resource_list=() if capabilities.resources is None else resources,
                server_info=agreement.server_info,
                logging=capabilities.logging is not None,
                resource_subscriptions=(capabilities.resources or {}).get("subscribe") is True,
            )
            self._upstream.ready_at = time.monotonic()
            self._upstream.log.add("connection", _connected(self._spec, link, listing))
            self._upstream.report_ready(link, view, listing.hint)
            serving.start_soon(changes.relist, link)
            serving.start_soon(changes.relist_stale, link)
            serving.start_soon(changes.relist_after_login)
            if capabilities.logging is not None:
                serving.start_soon(keep_log_level, self._upstream.log_listeners, link, self._upstream.hears)
            serving.start_soon(
                partial(keep_subscribed, self._upstream.subscriptions, link, sleep=self._sleep, clock=self._clock)
            )
            serving.start_soon(self._save_listing)
            for name in ITEM_LISTS:
                if self._upstream.lists[name].supported:
                    serving.start_soon(changes.list_items, name, link)
            serving.start_soon(self._save_first_question, view)
            serving.start_soon(self._close_when_idle)
            serving.start_soon(LivenessMonitor(self._upstream.calls, link).until_hung, self._end_hung)
            watch.on_doubt = lambda: serving.start_soon(_probe, link)
            await self._over.wait()
            watch.on_doubt = lambda: None
            self._lost_session = link.lost_session
            if link.lost_session:
                if link.has_answered:
                    self._backoff.reset()  # the server works, so a call that it has refused is repeated without delay
                # The server refuses other open requests for the same reason. The rest is given up below.
                with anyio.move_on_after(LAST_ANSWERS_TIMEOUT):
                    await dispatcher.settled()
            serving.cancel_scope.cancel()

    async def _save_listing(self) -> None:
        if self._cache is not None:
            # Shielded: saving takes milliseconds, and saves the next process from starting the server.
            with anyio.CancelScope(shield=True):
                async with self._saving:  # otherwise an older list could overwrite a newer one
                    view = self._upstream.view()
                    if view.logged_in and view.resources and self._upstream.lists["resources"].hint.is_private:
                        view = structs.replace(view, resource_list=None)  # the next process may have another login
                    # The file with the document of an API may have changed since the connection began.
                    spec = replace(self._spec, document_version=self._upstream.document_version)
                    await anyio.to_thread.run_sync(self._cache.save, spec, view)

    async def _save_first_question(self, view: UpstreamView) -> None:
        """Save the listing again once the server asks for roots, which the next process has to know."""
        if not view.asks_for_roots:
            await self._upstream.roots_asked.wait()
            await self._save_listing()

    def _end_hung(self, silent: float) -> None:
        why = (
            f"server {self._spec.name!r} has sent nothing for {silent:.0f} s, not even an answer to a ping; "
            "it is being connected again"
        )
        logger.warning("%s", why)
        self._upstream.calls.reject(why)
        self._over.set()

    async def _close_when_idle(self) -> None:
        """End the connection after `spec.idle_after` seconds without calls and subscriptions.

        An open stream of changes of lists is not a call.
        """
        limit = self._spec.idle_after
        if limit == math.inf:
            return
        while True:
            calls = self._upstream.calls
            left = calls.last_used + limit - calls.clock()
            if calls or self._upstream.subscriptions:
                left = limit
            elif left <= 0:
                # Nothing is awaited between the check and the change of state, so no call can come in between.
                self._upstream.log.add("connection", "the connection is closed, because it was not used")
                self._upstream.report_idle()
                self._over.set()
                return
            await anyio.sleep(left)


async def _probe(link: LiveConnection) -> None:
    """Send a request whose error ends the connection if the session is lost."""
    with suppress(UpstreamCallError):
        await link.probe()


def _connected(spec: UpstreamSpec, link: LiveConnection, listing: Listing) -> str:
    if spec.is_api:
        return f"the OpenAPI document was read: {len(listing.tools)} operations"
    return f"connected with MCP {link.protocol_version}"


async def _first_listing(link: LiveConnection, agreement: Agreement) -> Listing:
    """Return the first listing. It is empty if the server declares no tools and answers `tools/list` with an error."""
    try:
        return await link.list_tools()
    except UpstreamCallError as error:
        if agreement.capabilities.tools is None and error.code is not None:
            return Listing((), ())
        raise


Kind = Literal["stdio", "http", "sse", "openapi"]


class OpenTransport(NamedTuple):
    """An open connection that is not read yet.

    Attributes:
        direct: requests that are sent past the transport; None if the transport has none.
        set_cancel_sender: sets the function that tells the server that a direct request was given up.
        pid: the process of a stdio server; None for other servers.
        use_list: called in the step of the event loop in which the tools of the latest `tools/list` come into use.
            Returns problems of this list that its answer does not have.
    """

    transport: Transport
    direct: RequestsInFlight | None = None
    set_cancel_sender: Callable[[Callable[[RequestId], None]], None] = lambda _: None
    pid: int | None = None
    use_list: Callable[[], tuple[str, ...]] = tuple


def _opener(kind: Kind, server: str) -> Callable[[UpstreamSpec, HttpWatch], AbstractAsyncContextManager[OpenTransport]]:
    """Return the function that opens a transport of a kind that has a folder of its own, with a module `transport`."""
    try:
        opener: Callable[[UpstreamSpec, HttpWatch], AbstractAsyncContextManager[OpenTransport]]
        opener = import_module(f"upstream_clients.{kind}.transport").open_transport
    except ModuleNotFoundError as error:
        if error.name is None or not f"upstream_clients.{kind}.transport".startswith(error.name):
            raise
        raise UpstreamUnavailable(server, f"this installation has no servers of the kind {kind!r}") from None
    return opener


@asynccontextmanager
async def open_transport(
    kind: Kind, spec: UpstreamSpec, watch: HttpWatch, stderr: StderrTail, process: Any = None
) -> AsyncIterator[OpenTransport]:
    """Connect to a server for the duration of the context.

    Args:
        process: the process of a stdio server that was started before; `stderr` is open then.

    Raises:
        Exception: any exception of the transport, alone or in a group; `error_mapping.start_failure` reads it.
    """
    if kind == "stdio":
        with stderr:
            async with open_process(spec, stderr, process) as (transport, direct):
                yield OpenTransport(transport, direct, pid=transport.pid)
        return
    if kind not in ("http", "sse"):
        async with _opener(kind, spec.name)(spec, watch) as opened:
            yield opened
        return
    from upstream_clients.http import Bearer, McpHttpClient

    assert spec.url is not None
    bearer = Bearer(spec) if spec.may_log_in else None
    async with McpHttpClient(spec, watch, bearer, is_session=kind == "sse") as client:
        if kind == "sse":
            from upstream_clients.sse import open_events

            async with open_events(spec.url, client) as events:
                yield OpenTransport(events)
            return
        from upstream_clients.line_messages import MAX_MESSAGE_BYTES
        from upstream_clients.streamable import open_streamable

        async with open_streamable(spec.url, client, MAX_MESSAGE_BYTES) as (link, posts):

            def set_cancel_sender(tell_cancelled: Callable[[RequestId], None]) -> None:
                posts.tell_cancelled = tell_cancelled

            yield OpenTransport(link, posts, set_cancel_sender)
