"""The composition root: `open_app`."""

from __future__ import annotations

import getpass
import os
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Literal

import anyio

from codemode_mcp.audit.recording import recording
from codemode_mcp.config import Config, Reading, reload
from codemode_mcp.process.app.lifecycle import EngineLoader, Opening
from codemode_mcp.process.app.terminal_access import listen
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.server.services import App

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from codemode_mcp.process.app.lifecycle import Listen, PageAddress
    from upstream_clients.pool import SharedServers

SUSPEND_SECONDS = 3.0
"""Seconds to suspend programs at the end of the process, if a durable store keeps them."""


@asynccontextmanager
async def open_app(
    config: Config,
    load: Callable[[Reading], Config] | None = None,
    transport: Literal["stdio", "http"] | None = None,
    *,
    engine: EngineLoader | None = None,
    listen: Listen = listen,
    environ: Mapping[str, str] | None = None,
    servers: SharedServers | None = None,
    page: PageAddress | None = None,
    record_file: Path | None = None,
) -> AsyncIterator[App]:
    """Open the application for the duration of the context. Leaving aborts what runs and closes all connections.

    Args:
        load: reads the configuration file again, as `reload.Reloader` calls it; None to ignore changes of the file.
        transport: the transport of the clients of a process that serves, which `codemode-mcp runs` can reach then;
            None for a command.
        engine: the engine of several applications, which their owner closes; None for an own one.
        listen: answers the requests of terminals.
        environ: the environment from which servers and other programs inherit; None for that of this process.
        servers, page, record_file: see `Opening`.
    """
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    operator = Caller(f"stdio:{user}:{config.path or 'defaults'}", "stdio", _login_name())
    owned = EngineLoader(config.tools.code_mode.max_running_runs) if engine is None else nullcontext(engine)
    with owned as loader:
        app = App(config, operator, loader.get, transport, environ)
        opening = Opening(app, loader, listen, servers=servers, page=page, record_file=record_file)
        with recording(config.audit, app.auditor, app.redact):
            async with anyio.create_task_group() as group:
                group.start_soon(opening.run)
                if load is not None and config.path is not None:
                    group.start_soon(reload.Reloader(config, load, app.apply).run)
                try:
                    yield app
                finally:
                    with anyio.move_on_after(SUSPEND_SECONDS, shield=True):
                        await app.retire()
                    if app.parts is not None:
                        app.parts.manager.give_up_calls()
                    group.cancel_scope.cancel()


def _login_name() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None  # in a container, the user may have no name
