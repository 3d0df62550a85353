"""Parts that `codemode-mcp setup` makes ahead of time: esbuild, the compiled engine, listings of servers, vectors."""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from codemode_mcp.app.app import open_app
from codemode_mcp.cli.doctor.check import Check
from codemode_mcp.cli.doctor.engine import look_at_cache
from codemode_mcp.cli.doctor.servers import GRACE_SECONDS, advice_for, is_kept
from codemode_mcp.control.display import counted
from codemode_mcp.errors import CodeModeError
from codemode_mcp.paths import cache_dir, listings_dir, vectors_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from codemode_mcp.config import Config
    from upstream_clients.pool import UpstreamPool
    from upstream_clients.tools import UpstreamView

    Tell = Callable[[Check], None]

OFFLINE = "connect to the network and run codemode-mcp setup again; JavaScript programs work without esbuild"


async def make_ahead(config: Config, tell: Tell, *, servers: bool) -> None:
    """Do all of it, telling each step when it has ended. What is there already is left as it is."""
    tell(await anyio.to_thread.run_sync(_esbuild, config, abandon_on_cancel=True))
    tell(await anyio.to_thread.run_sync(_engine))
    if not servers:
        return
    views = await _servers(config, tell)
    if views:
        await _vectors(config, views, tell)


def _esbuild(config: Config) -> Check:
    from codemode_mcp.program.typescript import fetch_esbuild, find_esbuild, version_of

    configured = config.tools.esbuild
    if "typescript" not in config.tools.code_mode.languages:
        return Check("esbuild", "info", "not needed: TypeScript is not enabled")
    try:
        try:
            path, how = find_esbuild(configured, environ=os.environ, cache_dir=cache_dir()), "there already"
        except CodeModeError:
            if configured is not None:
                raise
            path, how = fetch_esbuild(cache_dir(), registry=None), "fetched with npm"
    except CodeModeError as error:
        advice = OFFLINE if configured is None else 'correct "tools.esbuild", or leave it out to have one fetched'
        return Check("esbuild", "fail", error.message, advice)
    return Check("esbuild", "ok", f"{how}, version {version_of(path) or 'unknown'}, {path}")


def _engine() -> Check:
    from codemode_mcp.sandbox.engine import open_engine

    before = look_at_cache()
    began = time.monotonic()
    try:
        with open_engine(cache_dir(), max_threads=1):
            took = round((time.monotonic() - began) * 1000)
    except CodeModeError as error:
        return Check("engine", "fail", error.message, "reinstall codemode-mcp with its dependencies")
    after = look_at_cache()
    if after.path is None or after.changed_at is None:
        detail = f"compiled in {took:,} ms, but it cannot be kept in {cache_dir()}"
        return Check("engine", "warn", detail, "see what codemode-mcp doctor says of the cache folder")
    if before.changed_at == after.changed_at:
        return Check("engine", "ok", f"compiled already, ready in {took:,} ms, {after.path}")
    return Check("engine", "ok", f"compiled in {took:,} ms, kept in {after.path}")


async def _servers(config: Config, tell: Tell) -> Sequence[UpstreamView]:
    """Have every server list its tools, and that kept; each is told as soon as it is there."""
    config = replace(config, audit=replace(config.audit, trajectory=None), plugins=())
    if not config.upstreams:
        tell(Check("servers", "info", "none is configured", "see codemode-mcp import"))
        return ()
    async with open_app(config) as app:
        pool = await app.pool()
        async with anyio.create_task_group() as group:
            for spec in config.upstreams:
                group.start_soon(partial(_server, config, pool, spec.name, tell))
        views = [view for view in pool.views() if view.tools]
    tell(Check("listings", "ok", f"kept in {listings_dir()}, for a day without a look at the server"))
    return views


async def _server(config: Config, pool: UpstreamPool, name: str, tell: Tell) -> None:
    spec = next(spec for spec in config.upstreams if spec.name == name)
    began = time.monotonic()
    await pool.connect([name], spec.connect_timeout + GRACE_SECONDS)
    took = round((time.monotonic() - began) * 1000)
    view = next(view for view in pool.views() if view.name == name)
    title = f"server {name}"
    if view.login_required:
        tell(Check(title, "fail", "needs a login", f"run codemode-mcp login {shlex.quote(name)}"))
    elif view.state != "ready":
        why = (view.error or f"still {view.state} after {took:,} ms").removeprefix(f"server {name!r} ")
        tell(Check(title, "fail", why, advice_for(spec, why, os.environ)))
    elif await anyio.to_thread.run_sync(is_kept, pool, view):
        tell(Check(title, "ok", f"{counted(len(view.tools), 'tool')} listed in {took:,} ms and kept"))
    else:
        detail = f"{counted(len(view.tools), 'tool')} listed; that cannot be kept, so it is started with every process"
        tell(Check(title, "warn", detail, "see what codemode-mcp doctor says of it"))


async def _vectors(config: Config, views: Sequence[UpstreamView], tell: Tell) -> None:
    from codemode_mcp.search.semantic import available

    if not available():
        return
    began = time.monotonic()
    try:
        folder = await anyio.to_thread.run_sync(_fill, config, views, abandon_on_cancel=True)
    except Exception as error:
        detail = f"vectors cannot be made ({type(error).__name__}); search goes by words"
        tell(Check("search", "warn", detail, "see what codemode-mcp doctor says of search"))
        return
    took = round((time.monotonic() - began) * 1000)
    tell(Check("search", "ok", f"by meaning too: all tools are read ({took:,} ms), kept in {folder}"))


def _fill(config: Config, views: Sequence[UpstreamView]) -> Path:
    from codemode_mcp.catalog.build import build
    from codemode_mcp.policy.policy import Policy
    from codemode_mcp.search.semantic import Meaning

    meaning = Meaning(vectors_dir())
    build(views, Policy(config.tools.policy), meaning).prepare_search()
    meaning.fill(lambda: False)
    return vectors_dir()
