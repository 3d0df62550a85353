"""The processes of one server, and the clients that each of them serves.

Usually one process serves all clients. Two kinds of servers need several:

- A server with `share: "client"` has state that belongs to one client, such as a browser. Each client has a process.
- A server that asks for roots works on the folders of a client. Clients with the same set of roots have one process.

The rules:

- The main process exists from the beginning, and its listing is the one that is shown. It is unbound at first. It is
  bound to the first client that needs a process of its own kind; other clients get further processes.
- As long as a server never asks for roots, its main process serves all clients. The first question binds the process
  that asks: during a call to the client of the call, otherwise to the client whose call waits for the process, or to
  the first connected client that can be asked. Until that client has answered, the process is claimed for it, and takes
  no calls of others. The question is remembered with the listing of the server.
- A client of 2026-07-28 can be asked only during its calls. If the server has asked before, it is told in the next call
  that the roots have changed, unless other clients need the process.
- A call is checked again right before it is sent, since its process may have been bound to another client meanwhile.
- A process that no connected client needs any longer ends when its last call has ended. If it is the main process, an
  idle one replaces it, which starts at the next call.
- An idle process is bound to the next client that needs one.
- Calls without a known client are made by the main process. With `share: "client"`, they have a process of their own.

A "process" is a connection if the server is remote.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import copy_context
from itertools import count
from typing import TYPE_CHECKING, Final

import anyio
from msgspec.structs import replace

from upstream_clients.fair_limiter import FairLimiter
from upstream_clients.server_log import LogListeners, ServerLog
from upstream_clients.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from upstream_clients.connection import Connection
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import JsonObject, RootsFn, UpstreamView


logger = logging.getLogger(__name__)

Key = str | frozenset[str]
"""The clients of a process: one client, or all clients with these roots."""

STOP_DELAY = 0.1
"""Seconds from the last call of a process that is no longer needed to its end."""

_NUMBERS: Final = count(1)

_UNKNOWN_CLIENTS: Final = ""
"""Key for calls without a known client, with `share: "client"`."""


class RunningServer:
    """One process of a server, with its task. Implements `upstream.Clients`.

    Attributes:
        key: the clients that this process serves; None while it serves all.
        claimed: the client that is being asked for its roots, before they become the key.
    """

    def __init__(self, server: SharedServer, on_change: Callable[[], None] | None, key: Key | None = None) -> None:
        self.upstream = Upstream(
            server.spec,
            on_change,
            limiter=server.limiter,
            clients=self,
            log=server.log,
            log_listeners=server.log_listeners,
        )
        self.upstream.document_version = server.document_version
        self.key = key
        self.claimed: str | None = None
        self.scope = anyio.CancelScope()
        """Encloses everything before the connection."""
        self.connection: Connection | None = None
        self.begun = anyio.Event()
        """Set once `importing` need not wait for this server: its process has started, or starts later."""
        self.ended = anyio.Event()
        self._server = server

    @property
    def is_main(self) -> bool:
        """True for the process whose listing is shown."""
        return self._server.main is self

    def stop(self, why: str | None = None) -> None:
        """End its task soon. With a reason, end its calls immediately."""
        if why is not None:
            self.upstream.calls.reject(why)
            self.upstream.report_stopped(why)
        if self.connection is None:
            self.upstream.report_stopped()
            self.scope.cancel()
        else:
            self.connection.stop()

    def restart(self, why: str) -> None:
        """End its calls with a reason, and connect it again. A process that is idle starts."""
        self.upstream.calls.reject(why)
        if self.connection is None:
            self.upstream.wanted.set()
        else:
            self.connection.restart()

    def stop_when_unused(self) -> None:
        if self.upstream.calls:
            self.upstream.calls.on_empty = self._stop_soon
        else:
            self.stop()

    def _stop_soon(self) -> None:
        # A call with several requests leaves `calls` for a moment, between its first answer and the next request.
        asyncio.get_running_loop().call_later(STOP_DELAY, self.stop_when_unused)

    def leave(self) -> None:
        """Note that its task has ended."""
        self._server.running.remove(self)

    def serves(self, client: str | None) -> bool:
        return self._server.serves(self, client)

    def note_roots(self, client: str, answer: JsonObject | None) -> None:
        self._server.note_roots(self, client, answer)

    def names_roots(self, client: str | None) -> bool:
        return self._server.names_roots(self, client)

    def hears(self, client: str | None) -> bool:
        return self._server.hears(self, client)

    async def list_roots(self) -> JsonObject:
        """Answer the server when it asks for roots outside any call."""
        return await self._server.list_roots(self)


class SharedServer:
    """One server that runs, for all pools that have its definition.

    Attributes:
        spec: the definition of the first pool.
        uses: the uses by pools; the server ends with the last one.
        running: the processes that have not ended, including those that serve no further calls.
        limiter: the limit of calls in flight at all processes together.
        document_version: the latest known version of the document, if it is a file.
        number: identifies the server among all servers of this process.
        log: the latest lines of all processes.
        log_listeners: the listeners to the log messages of all processes.
    """

    def __init__(self, spec: UpstreamSpec, clients: ClientRoots, start: Callable[[RunningServer], None]) -> None:
        """`start` starts the task of a process. It is called for all processes but the first main process."""
        self.spec = spec
        self.document_version = spec.document_version
        self.number = next(_NUMBERS)
        self.log = ServerLog(spec.redact)
        self.log_listeners = LogListeners(spec.redact)
        self.uses: list[ServerUse] = []
        self.limiter = FairLimiter(spec.max_concurrent_calls)
        self._clients = clients
        self._start = start
        self._context = copy_context()
        """The context of the first pool. A process for several clients does not belong to the one that needs it now."""
        self._others: list[RunningServer] = []
        self.main = RunningServer(self, self._report_change)
        self.running = [self.main]

    # The process of a client.

    def process_of(self, client: str | None, *, creates: bool = True) -> RunningServer | None:
        """Return the process for calls of a client; None while it depends on roots that are not known.

        Args:
            creates: False to return None if no process is bound to the client yet.
        """
        main = self.main
        per_client = self.spec.share == "client"
        if not per_client and not main.upstream.view().asks_for_roots:
            return main
        known = client is not None and client in self._clients
        key: Key | None
        if per_client:
            key = client if known and client is not None else _UNKNOWN_CLIENTS
        elif not known:
            return main
        else:
            key = self._clients.uris(client)
            if key is None:
                return None
        for each in (main, *self._others):
            if each.key == key:
                return each
        if not creates:
            return None
        if (main.key is None and main.claimed in (None, client)) or (
            main.upstream.view().state == "idle" and not main.upstream.calls
        ):
            main.key, main.claimed = key, None
            return main
        other = RunningServer(self, None, key)
        self._others.append(other)
        self.running.append(other)
        if per_client:
            self._start(other)
        else:
            self._context.run(self._start, other)
        return other

    async def learn_roots_of(self, client: str | None) -> None:
        """Ask a client for its roots, so that its process can be found."""
        await self._clients.learn(client)

    def serves(self, process: RunningServer, client: str | None) -> bool:
        """Return True if a process is the right one for a call of a client, which is sent now."""
        if self.spec.share == "client" or client is None or client not in self._clients:
            return True
        if process.key is None:
            return process.claimed in (None, client)
        return self._clients.uris(client) == process.key

    def names_roots(self, process: RunningServer, client: str | None) -> bool:
        if client not in self._clients or self._clients.can_list(client):
            return False
        key = process.key
        return key is None or not any(self._needs(each, key) for each in self._clients if each != client)

    def hears(self, process: RunningServer, client: str | None) -> bool:
        """Return True if a client gets the log messages of a process."""
        if client is None or process.key is None:
            return True
        if isinstance(process.key, str):
            return process.key == client
        return client in self._clients and self._clients.last_uris(client) == process.key

    def restart(self, why: str) -> None:
        """End all processes with their calls, and start them again."""
        self.log.add("connection", why)
        for process in (self.main, *self._others):
            process.restart(why)

    # Questions for roots.

    def note_roots(self, process: RunningServer, client: str, answer: JsonObject | None) -> None:
        """Note that a process asks for the roots of a client during a call, or has got them."""
        self.main.upstream.report_asks_for_roots()
        if client not in self._clients:
            return
        if answer is None:
            self._claim(process, client)
        else:
            self._clients.note(client, answer)
            self._bind(process, client)

    async def list_roots(self, process: RunningServer) -> JsonObject:
        """Answer a process that asks for roots outside any call."""
        self.main.upstream.report_asks_for_roots()
        while (client := self._first_client(process)) in self._clients:
            if client is None:
                return await self._clients.ask(client)
            self._claim(process, client)
            answer = await self._clients.ask(client)
            if client in self._clients:
                self._bind(process, client)
                if process.key in (client, self._clients.uris(client)):
                    return answer
            # The client has left, or has other roots than before, and other clients need the process.
        return {"roots": []}

    def _first_client(self, process: RunningServer) -> str | None:
        """Return the client whose roots a process gets outside any call; None for the only client, or for no client."""
        clients = self._clients
        if isinstance(process.key, str):
            return process.key
        if process.key is not None:
            return next((each for each in clients if self._needs(each, process.key)), None)
        calls = sorted(process.upstream.calls, key=lambda call: call.since)
        waiting = (call.user.client for call in calls if call.user is not None and call.user.client in clients)
        return next(waiting, None) or next(filter(clients.can_list, clients), None)

    def _claim(self, process: RunningServer, client: str) -> None:
        if process.key is None and process.claimed is None:
            process.claimed = client

    def _bind(self, process: RunningServer, client: str) -> None:
        """Bind a process to a client, or to its known roots, unless other clients need the process."""
        key = process.key
        if self.spec.share == "client":
            process.key = key or client
        elif key is None or not any(self._needs(each, key) for each in self._clients if each != client):
            process.key = self._clients.uris(client)
        if process.key is not None:
            process.claimed = None
        self.end_unneeded()

    # The ends of processes.

    def end_unneeded(self) -> None:
        """End the processes that no connected client needs, as soon as they have no calls."""
        served: set[Key] = set()
        for process in (self.main, *self._others):
            key = process.key
            if process.claimed not in self._clients:
                process.claimed = None
            if key is None:
                continue
            if key not in served and (key == _UNKNOWN_CLIENTS or any(self._needs(each, key) for each in self._clients)):
                served.add(key)
            elif process is not self.main:
                self._others.remove(process)
                process.stop_when_unused()
            elif process.upstream.view().state in ("ready", "connecting"):
                self._replace_main()
            else:
                process.key = None

    def _needs(self, client: str | None, key: Key) -> bool:
        if self.spec.share == "client":
            return client == key
        return client is not None and self._clients.last_uris(client) == key

    def _replace_main(self) -> None:
        """Put an idle process in the place of the main one, which ends as soon as it has no calls."""
        old, self.main = self.main, RunningServer(self, self._report_change)
        self.running.append(self.main)
        view = old.upstream.view()
        if view.era is not None:  # its tools are known
            self.main.upstream.report_saved_listing(view)
        if view.state == "ready":
            self.main.upstream.report_idle()
        if view.asks_for_roots:
            self.main.upstream.report_asks_for_roots()
        self._context.run(self._start, self.main)
        old.stop_when_unused()

    def _report_change(self) -> None:
        for use in tuple(self.uses):
            use.report_change()


class ServerUse:
    """The use of a server by one pool.

    Attributes:
        spec: the pool's own definition. It is equal to the definition of the server.
        over: the reason why the use has ended; None before that.
        observations: the subscriptions and listeners of the pool, in the order in which they began.
    """

    def __init__(self, server: SharedServer, spec: UpstreamSpec, on_change: Callable[[], None] | None) -> None:
        self.server = server
        self.spec = spec
        self.over: str | None = None
        self._on_change = on_change
        self.observations: dict[Observation, None] = {}
        server.uses.append(self)
        if spec is not server.spec:
            server.spec.followers.append(spec)

    def view(self) -> UpstreamView:
        """Return the view of the server, or a view of a stopped server after the end of the use."""
        view = self.server.main.upstream.view()
        return view if self.over is None else replace(view, state="stopped", error=self.over)

    def report_change(self) -> None:
        if self._on_change is not None:
            try:
                self._on_change()
            except Exception:
                logger.exception("the observer of server %r failed", self.spec.name)

    def end(self, why: str | None) -> None:
        """End this use, and its calls if the server has other uses."""
        self.over = why or f"server {self.spec.name!r} is closed"
        for observation in tuple(self.observations):
            observation.end()
        server = self.server
        server.uses.remove(self)
        server.spec.followers[:] = [spec for spec in server.spec.followers if spec is not self.spec]
        if server.uses:
            for process in tuple(server.running):
                process.upstream.calls.reject(self.over, self)


ROOTS_SECONDS: Final = 5.0
"""Timeout for a client to name its roots. Without an answer, it has none."""

_NONE: Final[frozenset[str]] = frozenset()


class _Client:
    """One connected client.

    Attributes:
        list_roots: asks the client; None if it cannot be asked outside its requests.
        uris: the URIs of its roots, as far as they are known.
        is_current: False if the client has other roots, which are not known yet.
        answer: its last answer to `roots/list`.
    """

    def __init__(self) -> None:
        self.list_roots: RootsFn | None = None
        self.uris: frozenset[str] | None = None
        self.is_current = True
        self.answer: JsonObject = {"roots": []}
        self.asking = anyio.Lock()


class ClientRoots:
    """The connected clients by their keys, in the order in which they came.

    The key None is for the only client of a process.
    """

    def __init__(self) -> None:
        self._clients: dict[str | None, _Client] = {}

    def __contains__(self, client: str | None) -> bool:
        return client in self._clients

    def __iter__(self) -> Iterator[str | None]:
        return iter(self._clients)

    def offer(self, client: str | None, list_roots: RootsFn | None) -> None:
        """Note a connected client; see `_Client.list_roots`."""
        self._clients.setdefault(client, _Client()).list_roots = list_roots

    def forget(self, client: str | None) -> None:
        self._clients.pop(client, None)

    def can_list(self, client: str | None) -> bool:
        """Return True if a client is connected, and can be asked for its roots outside its requests."""
        known = self._clients.get(client)
        return known is not None and known.list_roots is not None

    def uris(self, client: str | None) -> frozenset[str] | None:
        """Return the roots of a connected client; None while they are not known. Raises `KeyError`."""
        known = self._clients[client]
        if known.list_roots is None:
            return known.uris or _NONE
        return known.uris if known.is_current else None

    def last_uris(self, client: str | None) -> frozenset[str] | None:
        """Return the last known roots of a connected client, which it may still have. Raises `KeyError`."""
        known = self._clients[client]
        return known.uris or _NONE if known.list_roots is None else known.uris

    def changed(self, client: str | None) -> bool:
        """Note that a client has reported other roots. Return True if its earlier roots were known."""
        known = self._clients.get(client)
        if known is None or known.uris is None:
            return False
        known.is_current = False
        return True

    def note(self, client: str | None, answer: JsonObject) -> None:
        if (known := self._clients.get(client)) is not None:
            known.uris, known.is_current, known.answer = _uris(answer), True, answer

    async def learn(self, client: str | None) -> None:
        """Ask a client for its roots if they are not known, within `ROOTS_SECONDS`."""
        if (known := self._clients.get(client)) is not None:
            async with known.asking:  # several calls may wait for one answer
                if client in self._clients and self.uris(client) is None:
                    await self._ask(client, known)

    async def ask(self, client: str | None) -> JsonObject:
        """Ask a client for its roots, within `ROOTS_SECONDS`. Return the result of `roots/list`.

        A client that cannot be asked now has the roots that it has named during its calls.
        """
        known = self._clients.get(client)
        if known is None:
            return {"roots": []}
        async with known.asking:
            return await self._ask(client, known)

    async def _ask(self, client: str | None, known: _Client) -> JsonObject:
        if known.list_roots is None:
            return known.answer
        answer: JsonObject = {"roots": []}
        with anyio.move_on_after(ROOTS_SECONDS):
            answer = await known.list_roots()
        self.note(client, answer)
        return answer


def _uris(answer: JsonObject) -> frozenset[str]:
    roots = answer.get("roots")
    named = [root.get("uri") for root in roots if isinstance(root, dict)] if isinstance(roots, list) else []
    return frozenset(uri for uri in named if isinstance(uri, str))


class Observation:
    """A subscription or a listener of a pool.

    Args:
        remove: ends it at its present server.
        again: begins it at another definition of the server, and returns a function that ends it there.
    """

    def __init__(self, remove: Callable[[], None], again: Callable[[ServerUse], Callable[[], None]]) -> None:
        self._remove = remove
        self._again = again
        self._use: ServerUse | None = None

    def begin(self, use: ServerUse) -> None:
        self._use = use
        if use.over is None:
            use.observations[self] = None
        else:
            self._remove()

    def continue_with(self, use: ServerUse) -> None:
        """Begin at another definition of the server."""
        self._remove = self._again(use)
        self.begin(use)

    def end(self) -> None:
        """End it. Further calls do nothing."""
        use, self._use = self._use, None
        if use is not None and self in use.observations:
            del use.observations[self]
            self._remove()
