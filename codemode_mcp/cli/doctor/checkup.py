"""The concurrent run of all checks. A slow check delays only its own line."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from codemode_mcp.app.app import open_app
from codemode_mcp.cli.doctor import (
    budget,
    connected_clients,
    engine,
    entries,
    folders,
    instance,
    machine,
    plugins,
    policy,
    saved_programs,
    search,
    servers,
    store,
    type_check,
)
from codemode_mcp.cli.doctor.check import Check, elapsed_ms
from codemode_mcp.config import Config

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from codemode_mcp.cli.mcp_clients.own_entries import OwnEntry

    Part = Callable[[], Awaitable[Iterable[Check]]]
    Others = Callable[[Config], Iterable[str]]

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
                f"server {spec.name}": partial(servers.check, app, wanted, spec) for spec in wanted.upstreams
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
                "folders": _in_thread(folders.check),
                "engine": partial(engine.check, app, before),
                "esbuild": partial(engine.esbuild, app, wanted),
                "intl": _in_thread(engine.intl),
                "type check": partial(type_check.check, app, wanted),
                "search": _in_thread(search.check),
            }
            if config is None:
                await self._run_all(general)
                return
            general |= {
                "instance": partial(instance.check, config),
                "store": partial(store.check, config),
                "trajectory": _in_thread(machine.trajectory, config),
                "http": _in_thread(machine.http, config),
                "notify": _in_thread(machine.notify, config),
                **of_servers,
            }
            if others is not None:
                general["other clients"] = _in_thread(machine.other_clients, config, others)
            if own_entries is not None:
                general["client entries"] = partial(entries.check, own_entries)
            if own_code_mode is not None:
                general["client code mode"] = _in_thread(machine.own_code_mode, own_code_mode)
            general["clients"] = partial(connected_clients.check, config)
            await self._run_all(general)
            # These checks need the tools of all servers.
            known = await policy.known_tools(app, wanted)
            await self._run_all(
                {
                    "names": partial(servers.check_names, app),
                    "plugins": partial(plugins.check, app, wanted, known),
                    "saved programs": partial(saved_programs.check, app, wanted),
                    "policy": partial(policy.check, app, wanted, known),
                    "byte budget": partial(budget.check, app, wanted),
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
            found[0] = replace(found[0], ms=elapsed_ms(began))
        # Each check leaves secrets out. This redaction is a second guard.
        redact = self._redact
        self._found[name] = [replace(each, detail=redact(each.detail), advice=redact(each.advice)) for each in found]
        del self.waiting[name]
        self.done += 1
        self._on_progress(self)


def _in_thread(check: Callable[..., Iterable[Check]], *args: object) -> Part:
    async def part() -> Iterable[Check]:
        return await anyio.to_thread.run_sync(lambda: list(check(*args)), abandon_on_cancel=True)

    return part
