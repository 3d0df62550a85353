"""The shared instance: it serves the relays of all clients of a user and a configuration file, until none is left.

The process holds the lock of its key for its whole life, so each key has at most one instance. It ends when its last
application is closed, at SIGTERM and SIGINT, when a terminal stops it, when a relay of a newer version comes, and when
its record or its socket is removed. In each case, it suspends the runs, answers the open requests, and closes the
connections. Each relay then finds or starts another instance. After a kill -9, the relays do the same.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from codemode_mcp import __version__
from codemode_mcp.audit.client_logs import logging_to_rotating_file
from codemode_mcp.audit.redaction import without_tokens
from codemode_mcp.extension_points import first
from codemode_mcp.process.app.heap import collect_seldom_soon, use_one_arena
from codemode_mcp.process.instance import registry, wire
from codemode_mcp.process.instance.hello import Hello, HttpOptions, Refusal, is_newer, read_environment
from codemode_mcp.process.instance.status import usage_of
from codemode_mcp.server.control import protocol
from codemode_mcp.server.control.answers import Control, holders
from codemode_mcp.server.control.protocol import BadMessage, merged_servers
from codemode_mcp.server.control.server import Accepted, listening

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from anyio.abc import TaskGroup, TaskStatus

    from codemode_mcp.base.settings import UiSettings
    from codemode_mcp.config import Config
    from codemode_mcp.extension_points import BrowserPage
    from codemode_mcp.process.instance.apps import Apps, ClientConfig
    from codemode_mcp.process.instance.clients import Client, RunCommand
    from codemode_mcp.server.services import App


log = logging.getLogger("codemode_mcp.process.instance")

HANDSHAKE_SECONDS: Final = 30.0
"""Timeout for a relay to attach. A configuration may run programs that print values."""

MAX_ENVIRONMENT: Final = 16 * 1024 * 1024
"""Maximum bytes of the line with the environment variables of a relay."""

MAX_CLIENTS: Final = 256
"""Maximum number of attached relays."""

FIRST_CLIENT_SECONDS: Final = 60.0
"""Seconds after which an instance ends that no relay has ever attached to."""

WATCH_SECONDS: Final = 2.0
"""Seconds between two looks at the record and the socket."""

EARLY_SECONDS: Final = 10.0
"""Seconds after the first client at which the memory of this process is taken to be that of a private server."""

COMMAND_SECONDS: Final = 1.0
"""Seconds for the programs of commands to be cancelled, before the other runs are suspended."""

RETIRE_SECONDS: Final = 5.0
"""Seconds for the runs to be suspended, after the instance has begun to leave."""

CLOSE_SECONDS: Final = 15.0
"""Seconds for everything to close, after the instance has begun to leave. The process ends after that in any case."""


class Host:
    """The instance of one key.

    Args:
        config_path: the configuration file of all its clients; None for the defaults.
        run_command: runs the commands of terminals.
    """

    def __init__(self, key: str, config_path: Path | None, run_command: RunCommand) -> None:
        self._key = key
        self._run_command = run_command
        self._config_path = config_path
        self._began = time.monotonic()
        self._clients: dict[int, Client] = {}
        self._last_client = 0
        self._leaving: str | None = None
        self._over = anyio.Event()
        self._reports = Reports(self._facts, self.leave)
        self._apps: Apps | None = None
        self._group: TaskGroup | None = None
        self._page = InstancePage(lambda: [] if self._apps is None else self._apps.open, self._client_facts)
        self._http: str | None = None
        """The URL of the HTTP server, if there is one."""
        self._page_users = 0
        """Number of configurations that are kept open for the page."""
        self._first_client_at: float | None = None
        self._early_size: int | None = None
        """Bytes of memory of this process `EARLY_SECONDS` after its first client came."""

    async def run(self, ready: Callable[[], None]) -> None:
        """Serve until the instance ends.

        Args:
            ready: called when relays can connect.
        """
        from codemode_mcp.process.instance.apps import Apps

        async with anyio.create_task_group() as group:
            self._group = group
            if sys.platform != "win32":
                group.start_soon(self._leave_on_signal)
            async with listening(self._reports, attach=self._attach) as endpoint:
                if endpoint is None:
                    group.cancel_scope.cancel()
                    return  # logged
                registry.remove_remains(self._key)
                registry.write_record(self._key, registry.Record(os.getpid(), __version__, str(endpoint.path)))
                try:
                    ready()
                    log.info("the shared instance serves at %s", endpoint.path)
                    group.start_soon(self._watch, endpoint.path)
                    self._apps = Apps(self._reports.listen, self._on_app_closed, self.leave, self._page)
                    async with self._apps.running():
                        await self._over.wait()
                        await self._close()
                finally:
                    registry.remove_record(self._key, os.getpid())
            group.cancel_scope.cancel()

    def redact(self, text: str) -> str:
        """Replace the secrets of all applications in a text of the log. May be called in any thread."""
        for app in [] if self._apps is None else self._apps.open:
            text = app.redact.own(text)
        return without_tokens(text)

    def leave(self, reason: str) -> None:
        """End the instance soon. Only the first reason counts."""
        if self._leaving is None:
            self._leaving = reason
            log.info("the shared instance ends: %s", reason)
            self._over.set()

    async def _close(self) -> None:
        # A server or a thread that does not end must not keep the process: no other instance starts meanwhile.
        backstop = threading.Timer(CLOSE_SECONDS, os._exit, (1,))
        backstop.daemon = True
        backstop.start()
        assert self._apps is not None
        for client in [*self._clients.values()]:
            client.prepare_end(self._leaving or "")
        with anyio.move_on_after(COMMAND_SECONDS):
            for client in [*self._clients.values()]:
                if client.is_command and client.app is not None:
                    await client.over.wait()
        with anyio.move_on_after(RETIRE_SECONDS):
            async with anyio.create_task_group() as group:
                for app in self._apps.open:
                    group.start_soon(app.retire)
        for client in [*self._clients.values()]:
            client.end()
        self._apps.close()

    async def _leave_on_signal(self) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                self.leave(f"signal {signal.Signals(number).name}")

    async def _watch(self, endpoint: Path) -> None:
        """Leave when no relay can find this instance any more, or none has ever come."""
        while True:
            await anyio.sleep(WATCH_SECONDS)
            if not await anyio.to_thread.run_sync(self._can_be_found, endpoint):
                self.leave("its record or its socket was removed")
            is_used = self._last_client or self._http is not None or self._page_users
            if not is_used and time.monotonic() - self._began > FIRST_CLIENT_SECONDS:
                self.leave("no client has come")
            first = self._first_client_at
            if self._early_size is None and first is not None and time.monotonic() - first > EARLY_SECONDS:
                with suppress(OSError):  # there are no free file descriptors
                    self._early_size = (await anyio.to_thread.run_sync(usage_of, [os.getpid()])).size

    def _can_be_found(self, endpoint: Path) -> bool:
        """Return True if relays can find this instance, as far as is known. Blocks for disk operations."""
        try:
            record = registry.read_record(self._key)
        except registry.Unusable:
            return False
        except OSError:
            return True  # for example, there are no free file descriptors
        return record is not None and record.pid == os.getpid() and os.path.lexists(endpoint)

    def _on_app_closed(self) -> None:
        assert self._apps is not None
        if not len(self._apps) and not self._clients:
            self.leave("no client is left")

    # clients

    async def _attach(self, connection: Accepted, request: dict[str, Any]) -> None:
        from codemode_mcp.process.instance.apps import ClientConfig, NotOpened
        from codemode_mcp.process.instance.clients import Client, logging_for

        client: Client | None = None
        try:
            with anyio.move_on_after(HANDSHAKE_SECONDS):
                hello = Hello.of(request)
                self._admit(hello)
                await _answer(connection, {"product": __version__, "pid": os.getpid()})
                connection.limit = MAX_ENVIRONMENT
                environ = read_environment(await connection.receive())
                source = ClientConfig(self._config_path, hello, environ)
                config = await anyio.to_thread.run_sync(source.load)
                if not config.instance.shared:
                    raise Refusal("private", "the configuration has instance.shared: false")
                context, known = hello.options.context, [each.name for each in config.tools.contexts]
                if context is not None and context not in known:
                    there = f"there are {', '.join(map(repr, known))}" if known else "the configuration has none"
                    raise Refusal("failed", f"--context {context}: there is no such context in tools.contexts; {there}")
                if hello.options.http is not None:
                    await self._start_http(connection, config, source, hello.options.http)
                    return
                if hello.options.ui:
                    await self._open_page(connection, config, source)
                    return
                connection.limit = wire.MAX_LINE
                self._last_client += 1
                client = Client(self._last_client, connection, hello, time.monotonic(), self._run_command)
            if client is None:
                return
            if self._leaving is not None:  # since this client was admitted
                raise Refusal("leaving", self._leaving)
            assert self._apps is not None
            self._first_client_at = self._first_client_at or time.monotonic()
            self._clients[client.number] = client
            try:
                async with self._apps.app_for(config, source.environ, source.load) as (app, logs):
                    with logging_for(client, app, logs):
                        await _answer(connection, {"key": self._key})
                        await client.serve(app)
            finally:
                del self._clients[client.number]
        except Refusal as refusal:
            await _refuse(connection, refusal)
        except NotOpened:
            if self._leaving is not None:  # since this client was admitted
                await _refuse(connection, Refusal("leaving", self._leaving))
            else:
                await _refuse(connection, Refusal("failed", "it could not start; see codemode-mcp instance logs"))
        except (anyio.BrokenResourceError, OSError):
            log.debug("a relay has gone while it attached")
        except Exception:
            log.exception("a client could not be served")

    async def _start_http(
        self, connection: Accepted, config: Config, source: ClientConfig, options: HttpOptions
    ) -> None:
        """Serve over HTTP until the instance ends, and tell a relay the URL. Raise `Refusal` if this is impossible."""
        if self._http is not None:
            raise Refusal("failed", f"the shared instance serves over HTTP already, at {self._http}")
        assert self._group is not None
        started: Exception | str | None = await self._group.start(self._serve_http, config, source, options)
        if isinstance(started, Exception):
            raise started
        from codemode_mcp.server.http.listener import notes_for

        notes = notes_for(config.http, options.host)
        await _answer(connection, {"key": self._key, "url": started, "notes": notes})

    async def _serve_http(
        self,
        config: Config,
        source: ClientConfig,
        options: HttpOptions,
        *,
        task_status: TaskStatus[Exception | str],
    ) -> None:
        assert self._apps is not None
        try:
            async with (
                self._apps.app_for(config, source.environ, source.load) as (app, _),
                _serving_http(app, options) as self._http,
            ):
                task_status.started(self._http)
                log.info("the shared instance serves MCP at %s", self._http)
                await self._over.wait()
        except Refusal as refusal:
            task_status.started(refusal)
        finally:
            self._http = None

    async def _open_page(self, connection: Accepted, config: Config, source: ClientConfig) -> None:
        assert self._group is not None
        admitted = await self._page.admit(config.ui, self._group)
        opened: Exception | None = await self._group.start(self._keep_for_page, config, source)
        if opened is not None:
            raise opened
        await _answer(connection, {"key": self._key, **admitted})

    async def _keep_for_page(
        self, config: Config, source: ClientConfig, *, task_status: TaskStatus[Exception | None]
    ) -> None:
        """Keep the application of a configuration open while a browser shows the page, also without clients."""
        from codemode_mcp.process.instance.apps import NotOpened

        assert self._apps is not None
        try:
            async with self._apps.app_for(config, source.environ, source.load) as (app, _):
                await app.manager()
                task_status.started(None)
                self._page_users += 1
                try:
                    async with anyio.create_task_group() as group:
                        group.start_soon(self._cancel_when_over, group.cancel_scope)
                        await self._page.unused()
                        group.cancel_scope.cancel()
                finally:
                    self._page_users -= 1
        except NotOpened as error:
            task_status.started(error)

    async def _cancel_when_over(self, scope: anyio.CancelScope) -> None:
        await self._over.wait()
        scope.cancel()

    def _admit(self, hello: Hello) -> None:
        if is_newer(hello.product, __version__):
            self.leave(f"version {hello.product} is installed now")
        if self._leaving is not None:
            raise Refusal("leaving", self._leaving)
        if wire.minor_version(hello.product) != wire.minor_version(__version__):
            raise Refusal(
                "version", f"the shared instance has version {__version__}, and this client has {hello.product}"
            )
        if len(self._clients) >= MAX_CLIENTS:
            raise Refusal("failed", f"the shared instance has {MAX_CLIENTS} clients, and takes no more")
        mine = None if self._config_path is None else os.path.abspath(self._config_path)
        theirs = None if hello.config is None else os.path.abspath(hello.config)
        if mine != theirs:
            raise Refusal("failed", f"the shared instance serves {mine}, and this client asks for {theirs}")

    # for terminals and the page

    def _client_facts(self) -> list[dict[str, Any]]:
        now = time.monotonic()
        return [client.facts(now) for client in self._clients.values()]

    async def _facts(self) -> dict[str, Any]:
        from codemode_mcp.process.instance.status import pids_of, servers_of, with_usage

        now = time.monotonic()
        apps = [] if self._apps is None else self._apps.open
        facts = {
            "pid": os.getpid(),
            "version": __version__,
            "key": self._key,
            "config": None if self._config_path is None else str(self._config_path),
            "uptimeSeconds": round(now - self._began),
            "leaving": self._leaving,
            "http": self._http,
            "clients": self._client_facts(),
            "servers": servers_of(apps),
        }
        clients = [(each.pid, pids_of(each.app)) for each in self._clients.values() if each.app is not None]
        return await anyio.to_thread.run_sync(with_usage, facts, clients, self._early_size)


async def _answer(connection: Accepted, facts: dict[str, Any]) -> None:
    await connection.send(protocol.encode({"ok": True, **facts}))


async def _refuse(connection: Accepted, refusal: Refusal) -> None:
    with suppress(anyio.BrokenResourceError):
        await connection.send(protocol.encode({"ok": False, "code": refusal.code, "lines": refusal.lines}))


UNUSED_SECONDS: Final = 600.0
"""Seconds without a browser after which the page no longer keeps its application open."""

POLL_SECONDS: Final = 5.0
"""Interval of looks whether a browser shows the page."""


class InstancePage:
    """The page, which is imported and opened when a person asks for it.

    Args:
        applications: returns the open applications.
        connected: returns the connected clients, as JSON.
    """

    def __init__(
        self, applications: Callable[[], Sequence[App]], connected: Callable[[], list[dict[str, Any]]]
    ) -> None:
        self._connected = connected
        self._applications = applications
        self._page: BrowserPage | None = None

    def address_of(self, run_id: str) -> str | None:
        """Return the address of the page about the approvals of a run; None if the page is not open."""
        return None if self._page is None else self._page.address_of(run_id)

    async def admit(self, settings: UiSettings, group: TaskGroup) -> dict[str, Any]:
        """Return the address of the page and a token for one browser, as JSON. Raise `Refusal`."""
        if self._page is None:
            open_page = first(lambda each: each.open_page)
            if open_page is None:
                raise Refusal("failed", "this installation has no page")
            self._page = open_page(self._applications, self._connected)
        try:
            return await self._page.admit(settings, group)
        except BadMessage as error:
            raise Refusal("failed", str(error)) from None

    async def unused(self) -> None:
        """Wait until no browser has shown the page for `UNUSED_SECONDS`."""
        left = UNUSED_SECONDS
        while left > 0:
            await anyio.sleep(POLL_SECONDS)
            left = UNUSED_SECONDS if self._page is not None and self._page.is_watched else left - POLL_SECONDS


class Reports:
    """The answers to requests on the control socket, as `server.control.server.Answering`.

    Args:
        facts: returns facts about the instance, as JSON.
        leave: ends the instance, for a reason.
    """

    def __init__(self, facts: Callable[[], Awaitable[dict[str, Any]]], leave: Callable[[str], None]) -> None:
        self._facts = facts
        self._leave = leave
        self._controls: list[Control] = []

    @asynccontextmanager
    async def listen(self, control: Control) -> AsyncIterator[None]:
        self._controls.append(control)
        try:
            yield
        finally:
            self._controls.remove(control)

    async def answer(self, line: bytes) -> dict[str, Any]:
        """Return the answer to a request. Raise nothing."""
        try:
            request = protocol.decode_request(line)
        except protocol.BadMessage as error:
            return {"ok": False, "error": str(error)}
        match request.operation:
            case "instance":
                return {"ok": True, "instance": await self._facts()}
            case "stop":
                self._leave("a terminal has stopped it")
                return {"ok": True}
            case "ui":
                return {"ok": False, "error": "the shared instance opens its page for codemode-mcp ui, which attaches"}
            case "list":
                return await self._merged(line, "runs")
            case "clients":
                return await self._merged(line, "clients")
            case "servers":
                return await self._merged_servers(line)
            case "logs" | "restart":
                return await self._of_server(line, request.server)
        # The application that has the run is asked first. Any of them can answer for runs in the store.
        for control in sorted(self._controls, key=lambda each: not each.has(request.run)):
            return await control.answer(line)
        return _NO_APPS

    async def _merged_servers(self, line: bytes) -> dict[str, Any]:
        answers = [await control.answer(line) for control in [*self._controls]]
        for answer in answers:
            if not answer.get("ok"):
                return answer
        servers = merged_servers(answer["servers"] for answer in answers)
        return {"ok": True, "server": answers[0]["server"] if answers else None, "servers": servers}

    async def _of_server(self, line: bytes, server: str) -> dict[str, Any]:
        """Have a request about one server answered by every application that has a server of this name.

        There are several only if they define it differently. The answer about the first one is returned.
        """
        answers = [await control.answer(line) for control in holders(self._controls, server)]
        if not answers and self._controls:
            return await self._controls[0].answer(line)  # the reason
        return answers[0] if answers else _NO_APPS

    async def _merged(self, line: bytes, key: str) -> dict[str, Any]:
        answers = [await control.answer(line) for control in [*self._controls]]
        merged: dict[str, Any] | None = None
        for answer in answers:
            if not answer.get("ok"):
                return answer
            if merged is None:
                merged = answer
                continue
            # A run of the store is reported by every application; the one that has it comes first.
            known = {each.get("id"): each for each in merged[key] if "id" in each}
            for each in answer[key]:
                other = known.get(each.get("id"))
                if other is None:
                    merged[key].append(each)
                elif each.get("where") == "here":
                    merged[key][merged[key].index(other)] = each
        return {"ok": True, "server": None, key: []} if merged is None else merged


_NO_APPS = {"ok": False, "error": "the shared instance has no clients yet"}


LOCK_SECONDS: Final = 0.2
"""Timeout for the lock of the instance. Commands that look whether an instance runs hold it for a moment."""


def run(key: str, config: str | None, run_command: RunCommand, *, detach: bool = False) -> int:
    """Serve the relays of one key until the instance ends. Return the exit code.

    Standard output gets one line when relays can connect. Standard error becomes the log of the instance.

    Args:
        config: the configuration file; None for the defaults.
        run_command: runs the commands of terminals.
        detach: serve in a child of this process, which ends.
    """
    if detach and sys.platform != "win32" and os.fork():  # before other threads start
        # The instance is no child of the relay that has started it. Some clients end all descendants of a server.
        os._exit(0)
    use_one_arena()
    try:
        with registry.life_lock(key, LOCK_SECONDS):
            anyio.run(_serve, key, None if config is None else Path(config), run_command)
    except registry.Busy:
        _print_ready()  # another process has become the instance
        return 0
    sys.stderr.flush()
    # A thread may still load a sentence model, or wait for a program that prints a value. Nothing can interrupt it.
    os._exit(0)


async def _serve(key: str, config: Path | None, run_command: RunCommand) -> None:
    collect_seldom_soon(asyncio.get_running_loop())
    host = Host(key, config, run_command)
    # Standard error goes to the file, too: a crash of the interpreter is reported there.
    with logging_to_rotating_file(registry.log_path(key), "info", host.redact, stderr=True):
        await host.run(_print_ready)


def _print_ready() -> None:
    """Tell the relay that has started this process that relays can connect, and write nothing more to it."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.close(null)


@asynccontextmanager
async def _serving_http(app: App, options: HttpOptions) -> AsyncIterator[str]:
    """Serve an application over HTTP for the duration of the context. Yield the URL.

    Raises:
        Refusal: the address cannot be used, or must not be used without authentication.
    """
    from codemode_mcp.server.http.listener import become_ready, begin_serving, refusal_to_listen
    from codemode_mcp.server.http.listener import listening as listening_to_http
    from codemode_mcp.server.http.sockets import CannotListen

    settings = app.config.http
    refusal = refusal_to_listen(settings, options.host, allowed=options.allow_unauthenticated)
    if refusal is not None:
        raise Refusal("failed", refusal)
    try:
        async with (
            listening_to_http(settings, options.host, options.port, options.path) as listener,
            anyio.create_task_group() as group,
        ):
            await begin_serving(listener, app, app.operator)
            group.start_soon(become_ready, listener, app)
            try:
                yield listener.url
            finally:
                with anyio.CancelScope(shield=True):
                    await listener.drain()
                group.cancel_scope.cancel()
    except CannotListen as error:
        raise Refusal("failed", str(error)) from None
