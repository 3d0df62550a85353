"""The applications of the instance: one for each configuration that its clients resolve.

Clients with the same configuration file share one application, unless variables of their environments give the file
another meaning, such as another token. Applications share the JavaScript engine and the processes of equal servers.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from codemode_mcp import __version__
from codemode_mcp.audit.client_logs import ClientLogs, for_no_client
from codemode_mcp.base.errors import ConfigError
from codemode_mcp.base.paths import listings_dir, state_dir
from codemode_mcp.base.settings import LogSettings
from codemode_mcp.config import Config, Reading, load_config
from codemode_mcp.config.confirmation import Gate, NotConfirmedError, is_confirmed
from codemode_mcp.process.app.app import EngineLoader, open_app
from codemode_mcp.process.instance.hello import Hello, Refusal
from upstream_clients.listing import ListingCache
from upstream_clients.pool import SharedServers, definition_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from anyio.abc import TaskGroup

    from codemode_mcp.process.app.app import Listen, PageAddress
    from codemode_mcp.server.services import App


log = logging.getLogger("codemode_mcp.process.instance")

IDLE_POLL_SECONDS = 5.0
"""Maximum seconds between two looks whether an application without clients can be closed."""


class NotOpened(Exception):
    """Error for an application that was not opened. The log has the reason, unless the applications are closing."""


class Apps:
    """The open applications.

    Args:
        listen: answers terminals for one application.
        on_closed: called after an application is closed.
        leave: ends the instance, for a reason.
        page: the page of the instance.
    """

    def __init__(
        self, listen: Listen, on_closed: Callable[[], None], leave: Callable[[str], None], page: PageAddress
    ) -> None:
        self._listen = listen
        self._page = page
        self._leave = leave
        self._on_closed = on_closed
        self._entries: list[_Entry] = []
        self._engine: EngineLoader | None = None
        self._servers = SharedServers(client_version=__version__, cache=ListingCache(listings_dir()))
        self._group: TaskGroup | None = None
        self._closing = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open applications for clients for the duration of the context. Leaving closes all of them."""
        async with self._servers:
            try:
                async with anyio.create_task_group() as self._group:
                    try:
                        yield
                    finally:
                        self.close()
            finally:
                if self._engine is not None:
                    self._engine.__exit__()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def open(self) -> list[App]:
        return [entry.app for entry in self._entries if entry.app is not None]

    def close(self) -> None:
        """Close all applications soon. Their runs are suspended."""
        self._closing = True
        for entry in self._entries:
            entry.over.set()

    @asynccontextmanager
    async def app_for(
        self, config: Config, environ: Mapping[str, str], load: Callable[[Reading], Config]
    ) -> AsyncIterator[tuple[App, ClientLogs]]:
        """Use the application of a client's configuration for the duration of the context.

        Args:
            environ: the environment variables of the client.
            load: reads the configuration again; see `open_app`.

        Raises:
            NotOpened
        """
        if self._closing:
            raise NotOpened
        entry = next((each for each in self._entries if each.serves(config, environ)), None)
        if entry is None:
            entry = _Entry(config, environ, load)
            self._entries.append(entry)
            assert self._group is not None
            for_no_client(self._group.start_soon, self._run, entry)
        entry.users += 1
        try:
            await entry.opened.wait()
            if entry.app is None:
                raise NotOpened
            yield entry.app, entry.logs
        finally:
            entry.users -= 1
            entry.left_at = anyio.current_time()

    async def _run(self, entry: _Entry) -> None:
        try:
            with entry.logs.of_all():
                await self._keep_open(entry)
        except Exception:
            log.exception("an application has ended in an unexpected way")
            if entry.app is not None:
                # Its clients would get no more answers. Their relays bring them to the next instance.
                self._leave("an application has ended in an unexpected way")
        finally:
            self._entries.remove(entry)
            entry.app = None
            entry.opened.set()
            self._on_closed()

    async def _keep_open(self, entry: _Entry) -> None:
        if self._engine is None:
            self._engine = EngineLoader(entry.config.tools.code_mode.max_running_runs)
        async with (
            open_app(
                entry.config,
                entry.load,
                "stdio",
                engine=self._engine,
                listen=self._listen,
                environ=entry.environ,
                servers=self._servers,
                page=self._page,
            ) as entry.app,
            anyio.create_task_group() as group,
        ):
            entry.opened.set()
            group.start_soon(self._close_idle, entry)
            await entry.over.wait()
            group.cancel_scope.cancel()

    async def _close_idle(self, entry: _Entry) -> None:
        """Close an application after the idle time without clients and without calls in flight."""
        while True:
            assert entry.app is not None
            idle_seconds = entry.app.config.instance.idle_seconds
            if not idle_seconds or entry.users or entry.app.has_calls_in_flight():
                await anyio.sleep(IDLE_POLL_SECONDS)
                continue
            rest = entry.left_at + idle_seconds - anyio.current_time()
            if rest <= 0:
                entry.over.set()
                return
            await anyio.sleep(min(rest, IDLE_POLL_SECONDS))


class _Entry:
    """One application.

    Attributes:
        app: None while it is not open.
        opened: set when `app` is open, and when it could not be opened.
        over: set to close it.
        users: number of its clients.
        left_at: time at which the latest client left.
    """

    def __init__(self, config: Config, environ: Mapping[str, str], load: Callable[[Reading], Config]) -> None:
        self.config = config
        self.environ = environ
        self.load = load
        self.app: App | None = None
        self.opened = anyio.Event()
        self.over = anyio.Event()
        self.logs = ClientLogs()
        self.users = 0
        self.left_at = anyio.current_time()

    def serves(self, config: Config, environ: Mapping[str, str]) -> bool:
        current = self.config if self.app is None else self.app.config
        return not self.over.is_set() and _shared_part(current, self.environ) == _shared_part(config, environ)


def _shared_part(config: Config, environ: Mapping[str, str]) -> Config:
    """Return the parts of a configuration that clients of one application have in common, with resolved servers."""
    upstreams = tuple(definition_of(replace(spec, environ=environ)) for spec in config.upstreams)
    return replace(config, upstreams=upstreams, log=LogSettings(), notes=(), files=(), file_state=None)


class ClientConfig:
    """The source of the configuration of one client.

    Args:
        path: the configuration file; None for the defaults.
        environ: the variables of the client.
    """

    def __init__(self, path: Path | None, hello: Hello, environ: Mapping[str, str]) -> None:
        self._path = path
        self._hello = hello
        self.environ = environ

    def load(self, reading: Reading | None = None) -> Config:
        """Return the configuration.

        Raises:
            ConfigError: the file is not valid, and `reading` is given.
            Refusal: the same, for the first reading.
        """
        gate = Gate(_refuse_unknown)
        if self._hello.found and self._path is not None:
            gate.remember(self._path)
        try:
            config = load_config(
                self._path,
                environ=self.environ,
                reading=reading,
                admit=gate.admit,
                locked=self._hello.options.locked,
            )
            return self._with_folders(config)
        except NotConfirmedError as error:
            if reading is not None:
                raise
            raise Refusal("not_confirmed", *error.problems) from None
        except ConfigError as error:
            if reading is not None:
                raise
            raise Refusal("invalid_config", *error.problems) from None

    def _with_folders(self, config: Config) -> Config:
        """Return the configuration with a working directory for each server that has none.

        A private server starts such servers in the folder of its client. Servers of several clients start in the folder
        of the configuration file, so that clients in different folders can share them.
        """
        common = Path.home() if config.path is None else config.path.parent
        folders = {"user": str(common), "client": self._hello.folder}
        upstreams = tuple(
            replace(spec, cwd=folders[spec.share]) if spec.cwd is None and spec.is_process else spec
            for spec in config.upstreams
        )
        return replace(config, upstreams=upstreams)


def _refuse_unknown(path: Path, value: object) -> None:
    if not is_confirmed(path, value, state_dir() / "confirmed"):
        raise NotConfirmedError(
            f"{path} was found in the working directory, and you have not confirmed its current content",
            "read it, then name it with --config, or give the command at a terminal, which asks you once",
        )
