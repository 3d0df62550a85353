"""The concurrent run of all checks, and the work of `codemode-mcp setup`."""

from __future__ import annotations

import logging
import os
import shlex
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from msgspec import structs

from codemode_mcp.base.display import counted
from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.base.paths import cache_dir, listings_dir
from codemode_mcp.cli.check import Check, elapsed_ms
from codemode_mcp.config import Config
from codemode_mcp.extension_points import extensions
from codemode_mcp.extensions.setup.doctor import configuration, engine, machine, servers
from codemode_mcp.extensions.setup.doctor.engine import compiled_file
from codemode_mcp.extensions.setup.doctor.servers import connect, is_stored
from codemode_mcp.process.app.app import open_app

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from codemode_mcp.extensions.setup.mcp_clients.own_entries import OwnEntry
    from upstream_clients.pool import UpstreamPool
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import UpstreamView

    Part = Callable[[], Awaitable[Iterable[Check]]]

    Others = Callable[[Config], Iterable[str]]

    Report = Callable[[Check], None]


log = logging.getLogger("codemode_mcp.doctor")


class Checkup:
    """A run of the checks of an installation, with the results so far.

    Args:
        on_progress: called when checks begin, and when each check ends.

    Attributes:
        waiting: names of the checks that have not ended.
        done: number of checks that have ended.
    """

    def __init__(self, on_progress: Callable[[Checkup], None] = lambda _: None) -> None:
        self._on_progress = on_progress
        self._found: dict[str, list[Check]] = {}
        self._redact: Callable[[str], str] = str
        self.waiting: dict[str, None] = {}
        self.done = 0

    @property
    def checks(self) -> list[Check]:
        """Return the results so far, in the order of the report."""
        return [check for found in self._found.values() for check in found]

    async def run(
        self,
        config: Config | None,
        only: Collection[str] = (),
        others: Others | None = None,
        own_code_mode: Callable[[], Iterable[str]] | None = None,
        own_entries: Callable[[], Sequence[OwnEntry]] | None = None,
    ) -> None:
        """Run the checks.

        Args:
            config: None for an invalid configuration. Only the checks that need no configuration are run then.
            only: names of servers. If there are any, only these servers are checked.
            others: returns sentences about clients that start the same servers themselves.
            own_code_mode: returns titles of clients that start this server and have a code mode of their own.
            own_entries: returns the entries of this server in the files of clients.
        """
        wanted = config or Config()
        # The programs that checks run must not appear among the user's programs.
        wanted = replace(wanted, audit=replace(wanted.audit, trajectory=None, recordings=None), store=None)
        if only:
            wanted = replace(wanted, upstreams=tuple(spec for spec in wanted.upstreams if spec.name in only))
        before = await anyio.to_thread.run_sync(engine.compiled_file)
        async with open_app(wanted) as app:
            self._redact = app.redact.own
            app.redact.know([] if config is None else config.secretive)
            of_servers: dict[str, Part] = {
                f"server {spec.name}": partial(servers.check_server, app, wanted, spec) for spec in wanted.upstreams
            }
            of_servers |= {
                f"server {name}": partial(servers.check_disabled, name)
                for name in wanted.disabled
                if not only or name in only
            }
            if only:
                await self._run_all(of_servers)
                return
            general: dict[str, Part] = {
                "version": _in_thread(machine.version),
                "python": _in_thread(machine.python),
                "nesting": _in_thread(machine.nesting),
                "folders": _in_thread(machine.check_folders),
                "engine": partial(engine.check_engine, app, before),
                "esbuild": partial(engine.esbuild, app, wanted),
                "intl": _in_thread(engine.intl),
                **{name: partial(part, app, wanted) for each in extensions() for name, part in each.checks.items()},
            }
            if config is None:
                await self._run_all(general)
                return
            general |= {
                "instance": partial(machine.check_instance, config),
                "store": partial(engine.check_configured_store, config),
                "trajectory": _in_thread(machine.trajectory, config),
                "http": _in_thread(machine.http, config),
                "notify": _in_thread(machine.notify, config),
                **of_servers,
            }
            if others is not None:
                general["other clients"] = _in_thread(machine.other_clients, config, others)
            if own_entries is not None:
                general["client entries"] = partial(machine.check_entries, own_entries)
            if own_code_mode is not None:
                general["client code mode"] = _in_thread(machine.own_code_mode, own_code_mode)
            general["clients"] = partial(machine.check_clients, config)
            await self._run_all(general)
            # These checks need the tools of all servers.
            known = await configuration.known_tools(app, wanted)
            await self._run_all(
                {
                    "names": partial(servers.check_names, app),
                    "plugins": partial(configuration.check_plugins, app, wanted, known),
                    "saved programs": partial(configuration.check_saved_programs, app, wanted),
                    "policy": partial(configuration.check_policy, app, wanted, known),
                    "byte budget": partial(servers.check_budget, app, wanted),
                }
            )

    async def _run_all(self, parts: Mapping[str, Part]) -> None:
        self._found |= {name: [] for name in parts}
        self.waiting |= dict.fromkeys(parts)
        self._on_progress(self)
        async with anyio.create_task_group() as group:
            for name, part in parts.items():
                group.start_soon(self._run, name, part)

    async def _run(self, name: str, part: Part) -> None:
        began = time.monotonic()
        try:
            found = list(await part())
        except Exception as error:
            # The message of an unexpected exception may contain secrets, so it is not shown.
            log.debug("check %s failed", name, exc_info=True)
            detail = f"this check itself has failed: {type(error).__name__}"
            found = [Check(name, "fail", detail, "this is a fault of codemode-mcp; please report it with its name")]
        if found and found[0].ms is None:
            found[0] = structs.replace(found[0], ms=elapsed_ms(began))
        # Each check leaves secrets out. This redaction is a second guard.
        redact = self._redact
        self._found[name] = [
            structs.replace(each, detail=redact(each.detail), advice=redact(each.advice)) for each in found
        ]
        del self.waiting[name]
        self.done += 1
        self._on_progress(self)


def _in_thread(check: Callable[..., Iterable[Check]], *args: object) -> Part:
    async def part() -> Iterable[Check]:
        return await anyio.to_thread.run_sync(lambda: list(check(*args)), abandon_on_cancel=True)

    return part


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
    for each in extensions():
        if each.prepare is not None:
            await each.prepare(config, report, check)
    report(await anyio.to_thread.run_sync(_engine))
    if servers and (views := await _servers(config, report)):
        for each in extensions():
            if each.prepare_tools is not None:
                await each.prepare_tools(config, report, views)


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
