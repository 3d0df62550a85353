"""Look at everything at the same time: what is slow delays nothing but its own line."""

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
    connected,
    engine,
    entries,
    folders,
    machine,
    plugins,
    policy,
    search,
    servers,
    store,
)
from codemode_mcp.cli.doctor.check import Check
from codemode_mcp.config import Config

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from codemode_mcp.audit import Redactor

    Part = Callable[[], Awaitable[Iterable[Check]]]
    Others = Callable[[Config], Iterable[str]]

log = logging.getLogger("codemode_mcp.doctor")


class Checkup:
    """One look at an installation.

    Args:
        tell: called whenever a part has ended, and when new ones have begun.

    Attributes:
        waiting: what is still being looked at.
        done: how many parts have ended.
    """

    def __init__(self, tell: Callable[[Checkup], None] = lambda _: None) -> None:
        self._tell = tell
        self._found: dict[str, list[Check]] = {}
        self._redact: Redactor | None = None
        self.waiting: dict[str, None] = {}
        self.done = 0

    @property
    def checks(self) -> list[Check]:
        """Return the results so far, in the order of the report, whatever ended first."""
        return [check for found in self._found.values() for check in found]

    async def run(
        self,
        config: Config | None,
        only: Collection[str] = (),
        others: Others | None = None,
        own_code_mode: Callable[[], Iterable[str]] | None = None,
        own_entries: Callable[[], Sequence[entries.Entry]] | None = None,
    ) -> None:
        """Look at an installation.

        Args:
            config: None where it is invalid: then at what does not depend on it.
            only: names of servers; then at nothing but these.
            others: sentences about clients that start the same servers themselves.
            own_code_mode: titles of clients that start this server and have a code mode of their own.
            own_entries: the entries of this server in the files of clients.
        """
        wanted = config or Config()
        # A check is nothing that programs did.
        wanted = replace(wanted, audit=replace(wanted.audit, trajectory=None), store=None)
        if only:
            wanted = replace(wanted, upstreams=tuple(spec for spec in wanted.upstreams if spec.name in only))
        before = await anyio.to_thread.run_sync(engine.look_at_cache)
        async with open_app(wanted) as app:
            self._redact = app.redact
            app.redact.know([] if config is None else config.secretive)
            each = {
                f"server {spec.name}": partial(servers.check, app, wanted, spec.name, spec.connect_timeout)
                for spec in wanted.upstreams
            }
            off = {
                f"server {name}": partial(_said, Check(f"server {name}", "info", "disabled in the configuration"))
                for name in wanted.disabled
                if not only or name in only
            }
            if only:
                await self._look({**each, **off})
                return
            general: dict[str, Part] = {
                "version": _in_thread(machine.version),
                "python": _in_thread(machine.python),
                "nesting": _in_thread(machine.nesting),
                "folders": _in_thread(folders.check),
                "engine": partial(engine.check, app, before),
                "esbuild": partial(engine.esbuild, app, wanted),
                "search": _in_thread(search.check),
            }
            if config is None:
                await self._look(general)
                return
            general["store"] = partial(store.check, config)
            general["trajectory"] = _in_thread(machine.trajectory, config)
            general["http"] = _in_thread(machine.http, config)
            general["notify"] = _in_thread(machine.notify, config)
            general |= {**each, **off}
            if others is not None:
                general["other clients"] = _in_thread(machine.other_clients, config, others)
            if own_entries is not None:
                general["client entries"] = partial(entries.check, own_entries)
            if own_code_mode is not None:
                general["client code mode"] = _in_thread(machine.own_code_mode, own_code_mode)
            general["clients"] = partial(connected.check, config)
            await self._look(general)
            # These are about all tools, so that the servers have to be known.
            there = await policy.there(app, wanted)
            await self._look(
                {
                    "plugins": partial(plugins.check, app, wanted, there),
                    "policy": partial(policy.check, app, wanted, there),
                    "byte budget": partial(budget.check, app, wanted),
                }
            )

    async def _look(self, parts: Mapping[str, Part]) -> None:
        """Run all parts concurrently."""
        self._found |= {name: [] for name in parts}
        self.waiting |= dict.fromkeys(parts)
        self._tell(self)
        async with anyio.create_task_group() as group:
            for name, part in parts.items():
                group.start_soon(self._one, name, part)

    async def _one(self, name: str, part: Part) -> None:
        began = time.monotonic()
        try:
            found = list(await part())
        except Exception as error:
            # Its text may quote anything.
            log.debug("check %s failed", name, exc_info=True)
            detail = f"this check itself has failed: {type(error).__name__}"
            found = [Check(name, "fail", detail, "this is a fault of ours; please report it with its name")]
        if found and found[0].ms is None:
            found[0] = replace(found[0], ms=round((time.monotonic() - began) * 1000))
        self._found[name] = [self._redacted(check) for check in found]
        del self.waiting[name]
        self.done += 1
        self._tell(self)

    def _redacted(self, check: Check) -> Check:
        # What the checks say holds no secret; this is the second lock.
        redact = self._redact
        return check if redact is None else replace(check, detail=redact(check.detail), advice=redact(check.advice))


async def check_everything(
    config: Config | None, only: Collection[str] = (), others: Others | None = None
) -> list[Check]:
    """Return all checks but those of the configuration file itself; see `Checkup.run`."""
    checkup = Checkup()
    await checkup.run(config, only, others)
    return checkup.checks


def _in_thread(look: Callable[..., Iterable[Check]], *args: object) -> Part:
    async def part() -> Iterable[Check]:
        return await anyio.to_thread.run_sync(lambda: list(look(*args)), abandon_on_cancel=True)

    return part


async def _said(check: Check) -> Iterable[Check]:
    return [check]
