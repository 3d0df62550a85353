"""Watches the configuration file and what it refers to, and says when there is a new, valid configuration.

The files are checked every second: that holds for every file system, through symbolic links, and for editors that
write a new file in the place of the old one. A broken configuration is reported and changes nothing.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final

import anyio
import anyio.from_thread
import anyio.lowlevel

from codemode_mcp.config.expand import Reading
from codemode_mcp.config.source import look
from codemode_mcp.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.config.load import Config
    from codemode_mcp.settings import PluginSettings

log = logging.getLogger("codemode_mcp.reload")

LOOK_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 0.2
"""Files that were changed are read when they have been as they are for so long: an editor may write in pieces."""
MAX_QUIET_LOOKS: Final = 25


class Reloader:
    """Watches the files of a configuration.

    Args:
        config: the one in use, which has a file.
        load: reads it, in a thread; raises `ConfigError`.
        apply: takes the new configuration.
    """

    def __init__(
        self,
        config: Config,
        load: Callable[[Reading], Config],
        apply: Callable[[Config], None],
    ) -> None:
        assert config.path is not None
        self._path = config.path
        self._load = load
        self._apply = apply
        self._watched = (config.path, *config.files)
        self._seen = (config.seen, *look(config.files))
        self._asked = anyio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        async with anyio.create_task_group() as group:
            if sys.platform != "win32" and not _has_terminal():
                group.start_soon(self._on_hangup)
            while True:
                with anyio.move_on_after(LOOK_SECONDS):
                    await self._asked.wait()
                asked, self._asked = self._asked.is_set(), anyio.Event()
                if asked or look(self._watched) != self._seen:
                    await self._reload()

    async def _on_hangup(self) -> None:
        with anyio.open_signal_receiver(signal.SIGHUP) as signals:
            async for _ in signals:
                self._asked.set()

    async def _reload(self) -> None:
        await self._quiet()
        seen = look(self._watched)
        if seen[0] is None:
            self._seen = seen
            log.warning("%s is not there any more; the configuration in use stays", self._path)
            return
        reading = Reading()
        try:
            config = await self._read(reading)
        except ConfigError as error:
            for problem in error.problems:
                log.error("the changed configuration is not used, the one before stays: %s", problem)
        else:
            self._apply(config)
        # What was looked at before it was read: a change during the reading is a change.
        known = dict(zip(self._watched, seen, strict=True))
        self._watched = (self._path, *dict.fromkeys(reading.files))
        self._seen = tuple(known[path] if path in known else look([path])[0] for path in self._watched)

    async def _quiet(self) -> None:
        seen = look(self._watched)
        for _ in range(MAX_QUIET_LOOKS):
            await anyio.sleep(QUIET_SECONDS)
            now = look(self._watched)
            if now == seen:
                return
            seen = now

    async def _read(self, reading: Reading) -> Config:
        # A daemon thread: the file may name programs that take their time, and nothing may wait for these in the end.
        done = anyio.Event()
        outcome: list[Config | ConfigError] = []
        token = anyio.lowlevel.current_token()

        def read() -> None:
            try:
                outcome.append(self._load(reading))
            except ConfigError as error:
                outcome.append(error)
            except Exception:
                log.exception("the configuration could not be read")
                outcome.append(ConfigError(("it could not be read; see the log",)))
            try:
                anyio.from_thread.run_sync(done.set, token=token)
            except RuntimeError:  # everything has ended meanwhile
                log.debug("a configuration was read too late")

        threading.Thread(target=read, name="configuration", daemon=True).start()
        try:
            await done.wait()
        finally:
            reading.stop()
        if isinstance(outcome[0], ConfigError):
            raise outcome[0]
        return outcome[0]


def _has_terminal() -> bool:
    """Return True if this process was started at a terminal, with which it has to end."""
    try:
        return os.isatty(0)
    except OSError:
        return False


# what a new configuration means


def differences(before: Config, after: Config) -> list[str]:
    """Return what has changed, in words that hold no value."""
    old = {spec.name: spec for spec in before.upstreams}
    new = {spec.name: spec for spec in after.upstreams}
    lines = []
    for verb, names in (
        ("added", [name for name in new if name not in old]),
        ("removed", [name for name in old if name not in new]),
        ("restarted", [name for name in new if name in old and new[name] != old[name]]),
    ):
        if names:
            lines.append(f"{verb} {', '.join(map(repr, names))}")
    plugins_before = {each.name: each for each in before.plugins if each.enabled}
    plugins_after = {each.name: each for each in after.plugins if each.enabled}
    for verb, names in (
        ("added", [name for name in plugins_after if name not in plugins_before]),
        ("removed", [name for name in plugins_before if name not in plugins_after]),
        ("other settings of", [name for name, each in plugins_after.items() if _other(plugins_before.get(name), each)]),
    ):
        if names:
            lines.append(f"{verb} plugin{'' if len(names) == 1 else 's'} {', '.join(map(repr, names))}")
    if (before.tools.policy, before.tools.contexts) != (after.tools.policy, after.tools.contexts):
        lines.append("other rules for calls")
    if any(
        getattr(before.tools, name) != getattr(after.tools, name)
        for name in ("code_mode", "result_format", "duplicates", "clients", "approval")
    ):
        lines.append("other settings of tools")
    return lines or ["nothing that matters"]


def _other(before: PluginSettings | None, after: PluginSettings) -> bool:
    return before is not None and (before.module, before.config, before.hooks, before.middleware) != (
        after.module,
        after.config,
        after.hooks,
        after.middleware,
    )


def needs_restart(before: Config, after: Config) -> list[str]:
    """Return what has changed and cannot be taken while we run, by its key."""
    old, new = before.tools.code_mode, after.tools.code_mode
    changed = {
        "tools.codeMode.enabled": old.enabled != new.enabled,
        "tools.codeMode.maxRunningRuns": old.max_running_runs != new.max_running_runs,
        "tools.codeMode.storeMaxBytes": old.store_max_bytes != new.store_max_bytes,
        "store": before.store != after.store,
        "http": before.http != after.http,
        "log.file": before.log.file != after.log.file,
        "audit": before.audit != after.audit,
    }
    return [key for key, has_changed in changed.items() if has_changed]
