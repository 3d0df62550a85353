"""The life of one upstream: one task opens it, agrees on a protocol, lists its tools, serves, and opens it again.

Why one task: transports and sessions hold cancel scopes, which only the task that entered them may leave. One cancel
scope lies round each whole connection; it has a deadline while connecting and while closing, and none in between. The
state that others need is put into `Upstream`, which callers see.

Layers below, from top to bottom: `live_connection` sends raw requests and stamps them as the protocol era wants;
`dispatcher` sends them over any transport and takes answers, questions and notifications, all as dicts; `direct` and
`streamable` send common calls past the dispatcher and read their answers from bytes. No result is modelled: a model
would refuse a sloppy server, and cost each result twice. Over stdio the MCP SDK is not imported.

Invariants:

- A call that may have reached a lost server is not repeated here. It fails with what is known, and its caller decides.
- The server's token goes to that server alone (`http`). No secret reaches a message, a log or a program.
- A list kept from an earlier time serves look-ups only. A call is judged by the tool as its server lists it right
  before the call is sent.
- A server is hung only when it does not answer a probe either (`liveness`). Silence alone says little: many servers do
  one thing at a time.
- A question of a server belongs to a call in flight, or is refused (`questions`). A person is never asked on behalf of
  another user.

Attempts: `backoff` has the delays. The first loss of a connection is tried again immediately, since most servers that
die in mid-call come back; a server that keeps dying waits like one that fails. A missing command counts as several
failures. A server without a login waits for one, from any process.

Tried and dropped: the SDK's client session, which models every result; the SDK's transport for stdio, which leaves
children of a server behind and reads lines without a limit; the SDK's `OAuthClientProvider`, which holds a lock while a
request is answered, starts a login without a person at a browser, and lets two processes burn each other's tokens.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from upstream_clients import error_mapping
from upstream_clients.backoff import Backoff
from upstream_clients.dispatcher import Dispatcher, Subscription
from upstream_clients.errors import UpstreamCallError
from upstream_clients.http_failures import HttpWatch
from upstream_clients.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, JsonRpcError
from upstream_clients.listing import Listing
from upstream_clients.live_connection import Link
from upstream_clients.liveness import LivenessMonitor
from upstream_clients.negotiate import negotiate
from upstream_clients.question_routing import ConnectionQuestions
from upstream_clients.stderr import StderrTail
from upstream_clients.token_store import LoginStore
from upstream_clients.transports import Kind, open_transport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from upstream_clients.listing_cache import ListingCache
    from upstream_clients.negotiate import Agreement
    from upstream_clients.process import StartedProcess
    from upstream_clients.token_store import Stamp
    from upstream_clients.tools import RootsFn
    from upstream_clients.upstream import Upstream

logger = logging.getLogger(__name__)

CLOSE_GRACE = 1.0
"""Seconds that an orderly goodbye (ending an HTTP session) may take. Ending a process has bounds of its own."""

LAST_ANSWERS = 0.5
"""Seconds for the answers to open requests, once the server does not know the session any more."""

RELIST_INTERVAL = 1.0
"""Least seconds between two listings. They double while a server announces changes without end."""

RELIST_LONGEST = 30.0
"""Longest pause in seconds. After so long without a change, the next one is followed immediately again."""

NUDGE_INTERVAL = 1.0
"""Least seconds between a failed attempt and the next one when callers ask for it."""

LOGIN_POLL = 1.0
"""Seconds between two checks for a new login, of one file each."""

LOGIN_PATIENCE = 900.0
"""Seconds after which a server that wants a login is asked once more without one."""

LISTEN_WAIT = 2.0
"""Seconds that the first listing waits for a modern server to acknowledge the stream of changes."""

WARNINGS = 10
"""Reasons of one outage that are warned of. A reason may quote a server, which may say something else every time."""

HOPELESS = 4
"""Failures that a missing command counts as."""

_SSE_FALLBACK = (400, 404, 405)
"""Answers to a first POST by which the specification recognises a server of the older HTTP+SSE transport."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """The end of one connection; `lived` is its time of service in seconds, `None` when it never was ready.

    `logged_out`: another login than `login` is needed before there is any use in another attempt. `needs_hand`: another
    attempt succeeds only after a person has changed something.
    """

    reason: str
    lived: float | None = None
    try_sse: bool = False
    logged_out: bool = False
    login: Stamp = None
    needs_hand: bool = False


class Connection:
    """Runs one `Upstream`. `run` is its one task; `stop` ends that from another task."""

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
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`started` is the server's process, for the first connection; `run` ends it. `sleep` waits between attempts
        and `clock` measures how long a connection lived; both in seconds."""
        self._upstream = upstream
        self._roots = roots
        self._spec = upstream.spec
        self._client_info = {"name": client_name, "version": client_version}
        self._backoff = backoff or Backoff()
        self._cache = cache
        self._remembering = anyio.Lock()
        self._sleep = sleep
        self._clock = clock
        # The mutable state.
        self._started = started
        self._stopping = anyio.Event()
        self._scope = anyio.CancelScope()
        """Round the present connection, or the pause between two."""
        self._ready_at: float | None = None
        """Time at which the present connection became ready."""
        self._over = anyio.Event()
        """The present connection has no future."""
        self._stale = anyio.Event()
        """The tools are to be listed again."""
        self._lost = False
        """Its transport has said so."""
        self._warned: set[str] = set()
        """Reasons for failed starts since it was ready last."""

    async def run(self) -> None:
        """Connect and stay connected until `stop`."""
        try:
            while not self._stopping.is_set():
                ended = await self._live()
                if self._stopping.is_set():
                    break
                if self._upstream.view().state == "idle":
                    await self._until_wanted()
                    continue
                if ended.logged_out:
                    self._tell(ended.reason, ended.reason)
                    self._upstream.down(ended.reason, login_required=True)
                    await self._until_login(ended.login)
                    continue
                if ended.lived is None:
                    delay = self._backoff.after_failure(HOPELESS if ended.needs_hand else 1)
                    self._tell(ended.reason, f"{ended.reason}; next attempt in {delay:.1f} s")
                else:
                    delay = self._backoff.after_loss(ended.lived)
                    logger.info("%s; next attempt in %.1f s", ended.reason, delay)
                if delay > 0:
                    self._upstream.down(ended.reason)
                    await self._pause(delay)
                else:
                    self._upstream.connecting()
        finally:
            self._upstream.stopped()
            if self._started is not None:
                await self._started.close()

    def _tell(self, reason: str, line: str) -> None:
        """Log a failed start; what was told before, in a lower voice."""
        told = reason in self._warned or len(self._warned) >= WARNINGS
        logger.log(logging.INFO if told else logging.WARNING, "%s", line)
        if not told:
            self._warned.add(reason)

    def stop(self) -> None:
        """End `run` soon: with an orderly goodbye when connected, immediately when not."""
        self._stopping.set()
        if self._ready_at is None:
            self._scope.cancel()
        else:
            self._over.set()
            self._scope.deadline = anyio.current_time() + CLOSE_GRACE

    async def _until_wanted(self) -> None:
        with anyio.CancelScope() as self._scope:
            await self._upstream.wanted.wait()
            self._upstream.connecting()

    async def _until_login(self, known: Stamp) -> None:
        """Wait until there is a login, perhaps from another process, or the server may have changed."""
        store = LoginStore(self._spec)
        waited = 0.0
        with anyio.CancelScope() as self._scope:
            while waited < LOGIN_PATIENCE:
                if store.stamp() != known:
                    self._upstream.connecting()
                    return
                await self._sleep(LOGIN_POLL)
                waited += LOGIN_POLL

    async def _pause(self, delay: float) -> None:
        """Wait `delay` seconds, or less when the server is called meanwhile."""

        async def until_wanted() -> None:
            await self._sleep(NUDGE_INTERVAL)
            await self._upstream.wanted.wait()
            pausing.cancel_scope.cancel()

        async with anyio.create_task_group() as pausing:
            self._scope = pausing.cancel_scope
            pausing.start_soon(until_wanted)
            await self._sleep(delay)
            pausing.cancel_scope.cancel()

    async def _live(self) -> _Ended:
        """Return one connection, by the first transport that the server accepts."""
        deadline = anyio.current_time() + self._spec.connect_timeout
        kind: Kind = "http" if self._spec.transport == "auto" else self._spec.transport
        ended = await self._live_over(kind, deadline)
        if ended.try_sse and not self._stopping.is_set():
            older = await self._live_over("sse", deadline)
            return ended if older.lived is None else older
        return ended

    async def _live_over(self, kind: Kind, deadline: float) -> _Ended:
        self._over, self._stale, self._lost = anyio.Event(), anyio.Event(), False
        watch = HttpWatch(on_lost=self._lose)
        started, self._started = self._started, None
        stderr = StderrTail(self._spec.name, self._spec.redact) if started is None else started.stderr
        process = None if started is None else started.process
        failure: Exception | None = None
        with anyio.CancelScope(deadline=deadline) as self._scope:
            try:
                async with open_transport(kind, self._spec, watch, stderr, process) as opened:
                    dispatcher = Dispatcher(
                        opened.transport,
                        over=self._over,
                        questions=ConnectionQuestions(roots=self._roots),
                        on_list_changed=self._list_again,
                        direct=opened.direct,
                    )
                    opened.bind(dispatcher.tell_cancelled)
                    try:
                        async with dispatcher.running():
                            agreement = await negotiate(dispatcher, self._client_info)
                            link = Link(
                                self._spec,
                                dispatcher,
                                agreement,
                                self._client_info,
                                over=self._over,
                                on_stale=self._list_again,
                            )
                            await self._serve(dispatcher, agreement, link)
                    finally:
                        # Whatever ended it, closing takes a bounded time.
                        self._scope.deadline = min(self._scope.deadline, anyio.current_time() + CLOSE_GRACE)
            except Exception as error:
                logger.debug("connection to %s ended", self._spec.name, exc_info=True)
                failure = error
        ready_at, self._ready_at = self._ready_at, None
        if ready_at is not None:
            return _Ended(error_mapping.lost(self._spec, stderr.telling_line), lived=self._clock() - ready_at)
        if watch.logged_out:
            return _Ended(error_mapping.login_needed(self._spec), logged_out=True, login=watch.login)
        if failure is None and self._over.is_set() and watch.failure is not None:
            return _Ended(error_mapping.not_started(self._spec, watch.failure))
        if failure is None:
            return _Ended(error_mapping.connect_timeout(self._spec, stderr.telling_line, stderr.stray_line))
        return _Ended(
            error_mapping.start_failure(self._spec, failure, stderr.telling_line, stderr.exit_code, stderr.stray_line),
            try_sse=kind == "http" and watch.refused_status in _SSE_FALLBACK,
            needs_hand=error_mapping.is_not_there(self._spec, failure),
        )

    def _list_again(self) -> None:
        self._upstream.list_changes += 1
        self._stale.set()

    def _lose(self) -> None:
        """The transport says that the connection has no future."""
        self._lost = True
        self._over.set()
        if self._ready_at is None:
            self._scope.cancel()

    async def _serve(self, dispatcher: Dispatcher, agreement: Agreement, link: Link) -> None:
        """List the tools, then be there until the connection has no future."""
        async with anyio.create_task_group() as serving:
            if link.modern and (agreement.capabilities.get("tools") or {}).get("listChanged"):
                # Before the first listing, so that no change falls between the two; but a server that does not
                # answer to it is no reason to wait.
                opened = anyio.Event()
                serving.start_soon(self._listen, dispatcher, link, opened)
                with anyio.move_on_after(LISTEN_WAIT):
                    await opened.wait()
            listing = await _first_listing(link, agreement)
            self._scope.deadline = math.inf
            self._ready_at = self._clock()
            self._warned.clear()
            self._upstream.calls.note_connection()
            self._upstream.ready(
                link,
                era="modern" if link.modern else "legacy",
                protocol_version=link.protocol_version,
                server_version=agreement.server_version,
                instructions=agreement.instructions,
                resources=agreement.has("resources"),
                prompts=agreement.has("prompts"),
                completions=agreement.has("completions"),
                tools=listing.tools,
                problems=listing.problems,
            )
            serving.start_soon(self._relist, link)
            serving.start_soon(self._remember)
            serving.start_soon(self._close_when_idle)
            serving.start_soon(self._close_when_hung, link)
            await self._over.wait()
            if self._lost:
                # Requests that are being refused hear why; the others are given up below.
                with anyio.move_on_after(LAST_ANSWERS):
                    await dispatcher.settled()
            serving.cancel_scope.cancel()

    async def _remember(self) -> None:
        """Keep what is known for the next process."""
        if self._cache is not None:
            # Also when the connection ends just now: it takes milliseconds, and spares the next process the server.
            with anyio.CancelScope(shield=True):
                async with self._remembering:  # or an older list that takes longer would be the one that stays
                    await anyio.to_thread.run_sync(self._cache.save, self._spec, self._upstream.view())

    async def _close_when_hung(self, link: Link) -> None:
        silent = await LivenessMonitor(self._upstream.calls, link).until_hung()
        why = (
            f"server {self._spec.name!r} has not said anything for {silent:.0f} s, not even to a ping; "
            "it is being connected again"
        )
        logger.warning("%s", why)
        self._upstream.calls.reject(why)
        self._over.set()

    async def _close_when_idle(self) -> None:
        """End the connection after a long time without calls. A stream of changes is no call."""
        limit = self._spec.idle_after
        if limit == math.inf:
            return
        while True:
            calls = self._upstream.calls
            left = calls.last_used + limit - calls.clock()
            if calls:
                left = limit
            elif left <= 0:
                # No call can come between this check and the change of state.
                self._upstream.idle()
                self._over.set()
                return
            await anyio.sleep(left)

    async def _relist(self, link: Link) -> None:
        """Follow the server's announcements. A listing that fails leaves the tools as they were."""
        interval = RELIST_INTERVAL
        while True:
            with anyio.move_on_after(RELIST_LONGEST) as calm:
                await self._stale.wait()
            if calm.cancelled_caught:
                interval = RELIST_INTERVAL
                await self._stale.wait()
            self._stale, self._upstream.relist_wanted = anyio.Event(), anyio.Event()
            announced = self._upstream.list_changes
            try:
                with anyio.fail_after(self._spec.connect_timeout):
                    listing = await link.list_tools()
            except (UpstreamCallError, TimeoutError) as error:
                logger.warning("server %r: tools could not be listed again: %s", self._spec.name, error)
                self._upstream.relisted(announced)
            else:
                self._upstream.listed(listing.tools, listing.problems)
                self._upstream.relisted(announced)
                await self._remember()
            with anyio.move_on_after(interval):
                await self._upstream.relist_wanted.wait()
            interval = min(2 * interval, RELIST_LONGEST)

    async def _listen(self, dispatcher: Dispatcher, link: Link, opened: anyio.Event) -> None:
        """Keep a modern server's stream of changes open.

        Its events reach the dispatcher like a legacy server's notifications do. What is done here is to open the
        stream again, and to list again for what was missed meanwhile.
        """
        retry = Backoff(base=1.0)
        try:
            while True:
                delay = await self._listen_once(dispatcher, link, opened, retry)
                if delay is None:
                    return
                await self._sleep(delay)
                self._list_again()
        finally:
            opened.set()

    async def _listen_once(
        self, dispatcher: Dispatcher, link: Link, opened: anyio.Event, retry: Backoff
    ) -> float | None:
        """Open one stream and wait for its end.

        Returns:
            The seconds to wait before the next; None when there is no use in one.
        """
        request_id, subscription = f"listen-{next(_LISTENS)}", Subscription()
        refusal: JsonRpcError | None = None

        async def drive() -> None:
            nonlocal refusal
            try:
                await link.listen(request_id)
                subscription.end(lost=False)
            except JsonRpcError as error:
                refusal = error
                subscription.end(lost=True)

        dispatcher.subscriptions[request_id] = subscription
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(drive)
                await subscription.acknowledged.wait()
                since = self._clock()
                if subscription.honored is not None:
                    opened.set()
                    if subscription.honored.get("toolsListChanged") is not True:
                        tasks.cancel_scope.cancel()
                        return None
                    await subscription.over.wait()
                tasks.cancel_scope.cancel()
        finally:
            del dispatcher.subscriptions[request_id]
        if subscription.honored is None and refusal is not None:
            if error_mapping.is_transport_failure(refusal):
                self._over.set()
                return None
            return None if refusal.code in (METHOD_NOT_FOUND, INVALID_PARAMS) else retry.after_failure()
        if subscription.honored is None and not subscription.lost:
            return None  # ended before it had begun: this server has nothing to tell
        return retry.after_failure() if subscription.lost else retry.after_loss(self._clock() - since)


_LISTENS = count()


async def _first_listing(link: Link, agreement: Agreement) -> Listing:
    """Return the tools at the start; none of a server that neither claims nor answers to have any."""
    try:
        return await link.list_tools()
    except UpstreamCallError as error:
        if not agreement.has("tools") and error.code is not None:
            return Listing((), ())
        raise
