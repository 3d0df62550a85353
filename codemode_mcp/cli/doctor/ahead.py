"""The work of `codemode-mcp setup`: esbuild, `Intl`, the compiled engine, tool lists of servers, vectors."""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from codemode_mcp.app.app import open_app
from codemode_mcp.cli.doctor.check import Check, elapsed_ms
from codemode_mcp.cli.doctor.engine import compiled_file
from codemode_mcp.cli.doctor.servers import connect, is_stored
from codemode_mcp.control.display import counted
from codemode_mcp.errors import CodeModeError
from codemode_mcp.paths import cache_dir, listings_dir, vectors_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from codemode_mcp.config import Config
    from upstream_clients.pool import UpstreamPool
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import UpstreamView

    Report = Callable[[Check], None]

_OFFLINE = "connect to the network and run codemode-mcp setup again; JavaScript programs work without esbuild"


async def make_ahead(config: Config, report: Report, *, servers: bool, check: bool) -> None:
    """Do all steps of the setup. Existing files are kept.

    Args:
        report: called with the result of each step when the step has ended.
        servers: True to start the servers for their tool lists.
        check: True to fetch the compiler for type checks, which is fetched in any case if programs are checked.
    """
    report(await anyio.to_thread.run_sync(_esbuild, config, abandon_on_cancel=True))
    report(await anyio.to_thread.run_sync(_intl, abandon_on_cancel=True))
    if check or config.tools.code_mode.check != "off":
        report(await anyio.to_thread.run_sync(_compiler, abandon_on_cancel=True))
    report(await anyio.to_thread.run_sync(_engine))
    if servers and (views := await _servers(config, report)):
        await _vectors(config, views, report)


def _esbuild(config: Config) -> Check:
    from codemode_mcp.program.esbuild import fetch_esbuild, find_esbuild, version_of

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
        advice = _OFFLINE if configured is None else 'correct "tools.esbuild", or remove it to have esbuild fetched'
        return Check("esbuild", "fail", error.message, advice)
    return Check("esbuild", "ok", f"{how}, version {version_of(path) or 'unknown'}, {path}")


def _intl() -> Check:
    from codemode_mcp.program.esbuild import fetch_esbuild, find_esbuild
    from codemode_mcp.program.intl import fetch_intl, find_intl

    try:
        try:
            path, how = find_intl(cache_dir()), "there already"
        except CodeModeError:
            try:
                esbuild = find_esbuild(None, environ=os.environ, cache_dir=cache_dir())
            except CodeModeError:
                esbuild = fetch_esbuild(cache_dir(), registry=None)
            path, how = fetch_intl(cache_dir(), esbuild, registry=None), "built of packages of npm"
    except CodeModeError as error:
        advice = "connect to the network and run codemode-mcp setup again; programs without Intl work"
        return Check("intl", "fail", error.message, advice)
    return Check("intl", "ok", f"{how}, {path}")


def _compiler() -> Check:
    from codemode_mcp.type_check.compiler import fetch_compiler, find_compiler
    from codemode_mcp.type_check.typescript_pin import VERSION

    try:
        try:
            compiler, how = find_compiler(cache_dir()), "there already"
        except CodeModeError:
            compiler, how = fetch_compiler(cache_dir()), "fetched with npm"
    except CodeModeError as error:
        return Check("type check", "fail", error.message, "connect to the network and run codemode-mcp setup --check")
    return Check("type check", "ok", f"{how}, TypeScript {VERSION}, {compiler.executable}")


def _engine() -> Check:
    from codemode_mcp.sandbox.engine import open_engine

    before = compiled_file()
    began = time.monotonic()
    try:
        with open_engine(cache_dir(), max_threads=1):
            took = elapsed_ms(began)
    except CodeModeError as error:
        return Check("engine", "fail", error.message, "reinstall codemode-mcp with its dependencies")
    after = compiled_file()
    if after.path is None or after.changed_at is None:
        detail = f"compiled in {took:,} ms, but it cannot be stored in {cache_dir()}"
        return Check("engine", "warn", detail, "run codemode-mcp doctor and see its line on the cache folder")
    if before.changed_at == after.changed_at:
        return Check("engine", "ok", f"compiled already, ready in {took:,} ms, {after.path}")
    return Check("engine", "ok", f"compiled in {took:,} ms, stored in {after.path}")


async def _servers(config: Config, report: Report) -> Sequence[UpstreamView]:
    """Store the tool list of every server. Each server is reported as soon as its list is stored or has failed."""
    config = replace(config, audit=replace(config.audit, trajectory=None), plugins=())
    if not config.upstreams:
        report(Check("servers", "info", "no server is configured", "see codemode-mcp import and add"))
        return ()
    async with open_app(config) as app:
        pool = await app.pool()
        async with anyio.create_task_group() as group:
            for spec in config.upstreams:
                group.start_soon(_server, pool, spec, report)
        views = [view for view in pool.views() if view.tools]
    report(Check("listings", "ok", f"stored in {listings_dir()}; servers are asked again after a day"))
    return views


async def _server(pool: UpstreamPool, spec: UpstreamSpec, report: Report) -> None:
    began = time.monotonic()
    view, problem = await connect(pool, spec)
    title, tools = f"server {spec.name}", counted(len(view.tools), "tool")
    if problem is not None:
        report(problem)
    if problem is not None and problem.status == "fail":
        return
    if await anyio.to_thread.run_sync(is_stored, pool, view):
        report(Check(title, "ok", f"{tools} listed in {elapsed_ms(began):,} ms and stored"))
    else:
        detail = f"{tools} listed, but the list cannot be stored, so every process starts the server"
        report(Check(title, "warn", detail, f"run codemode-mcp doctor {shlex.quote(spec.name)} for the reason"))


async def _vectors(config: Config, views: Sequence[UpstreamView], report: Report) -> None:
    from codemode_mcp.search.semantic import available

    if not available():
        return
    began = time.monotonic()
    try:
        folder = await anyio.to_thread.run_sync(_fill, config, views, abandon_on_cancel=True)
    except Exception as error:
        detail = f"vectors cannot be made ({type(error).__name__}); search goes by words"
        report(Check("search", "warn", detail, "run codemode-mcp doctor and see its line on search"))
        return
    report(
        Check("search", "ok", f"by meaning too: all tools were read in {elapsed_ms(began):,} ms, stored in {folder}")
    )


def _fill(config: Config, views: Sequence[UpstreamView]) -> Path:
    from codemode_mcp.catalog.build import build
    from codemode_mcp.catalog.overrides import Overrides
    from codemode_mcp.policy.policy import Policy
    from codemode_mcp.search.semantic import Meaning

    meaning = Meaning(vectors_dir())
    overrides = Overrides(config.tools.overrides)
    build(views, Policy(config.tools.policy), meaning, overrides=overrides).prepare_search()
    meaning.fill(lambda: False)
    return vectors_dir()
