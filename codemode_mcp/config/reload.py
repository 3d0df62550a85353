"""The watcher of the configuration file and of the files that it refers to. A changed configuration is applied.

The files are polled every second. This works on every file system, through symbolic links, and with editors that
replace the file. An invalid configuration is reported and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio
import anyio.from_thread
import anyio.lowlevel

from codemode_mcp.base.errors import ConfigError
from codemode_mcp.config.expand import Reading
from codemode_mcp.config.source import file_states

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from codemode_mcp.config.load import Config

log = logging.getLogger("codemode_mcp.reload")

POLL_SECONDS: Final = 1.0
"""Seconds between two polls of the files."""

QUIET_SECONDS: Final = 0.2
"""Seconds without a change before changed files are read. An editor may write a file in several steps."""

MAX_QUIET_POLLS: Final = 25
"""Maximum number of polls for a time without a change. Then the files are read although they still change."""


class Reloader:
    """The watcher of the files of a configuration.

    Args:
        config: the configuration in use. It has a file.
        load: called in a thread to load the file again; raises `ConfigError`.
        apply: called with a new, valid configuration.
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
        self._states = (config.file_state, *file_states(config.files))
        self._requested = anyio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        with _calling_at_hangup(lambda: self._requested.set()):
            while True:
                with anyio.move_on_after(POLL_SECONDS):
                    await self._requested.wait()
                requested, self._requested = self._requested.is_set(), anyio.Event()
                if requested or file_states(self._watched) != self._states:
                    await self._reload()

    async def _reload(self) -> None:
        await self._wait_until_quiet()
        states = file_states(self._watched)
        if states[0] is None:
            self._states = states
            log.warning("%s was removed; the configuration in use stays", self._path)
            return
        reading = Reading()
        try:
            config = await self._read(reading)
        except ConfigError as error:
            for problem in error.problems:
                log.error("the changed configuration is invalid, so the previous one stays in use: %s", problem)
        else:
            self._apply(config)
        # The states were taken before the files were read, so that a change during the reading is noticed.
        known = dict(zip(self._watched, states, strict=True))
        self._watched = (self._path, *dict.fromkeys(reading.files))
        self._states = tuple(known[path] if path in known else file_states([path])[0] for path in self._watched)

    async def _wait_until_quiet(self) -> None:
        states = file_states(self._watched)
        for _ in range(MAX_QUIET_POLLS):
            await anyio.sleep(QUIET_SECONDS)
            now = file_states(self._watched)
            if now == states:
                return
            states = now

    async def _read(self, reading: Reading) -> Config:
        # The thread is a daemon: the file may name slow programs, and a shutdown must not wait for them.
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
                outcome.append(ConfigError(("the configuration could not be read; see the log",)))
            try:
                anyio.from_thread.run_sync(done.set, token=token)
            except RuntimeError:  # the event loop has ended
                log.debug("a configuration was read after the end of the server")

        threading.Thread(target=read, name="configuration", daemon=True).start()
        try:
            await done.wait()
        finally:
            reading.stop()  # on cancellation, the thread may be waiting for a program
        if isinstance(outcome[0], ConfigError):
            raise outcome[0]
        return outcome[0]


_at_hangup: list[Callable[[], None]] = []


@contextmanager
def _calling_at_hangup(function: Callable[[], None]) -> Iterator[None]:
    """Call a function at each SIGHUP, for the duration of the context.

    A process may have several applications. A signal has one handler, so all of them share it.
    """
    if sys.platform == "win32" or _has_terminal():
        yield
        return
    loop = asyncio.get_running_loop()
    if not _at_hangup:
        loop.add_signal_handler(signal.SIGHUP, lambda: [each() for each in _at_hangup])
    _at_hangup.append(function)
    try:
        yield
    finally:
        _at_hangup.remove(function)
        if not _at_hangup:
            loop.remove_signal_handler(signal.SIGHUP)


def _has_terminal() -> bool:
    """Return True if this process was started from a terminal. Its SIGHUP means that the terminal was closed."""
    try:
        return os.isatty(0)
    except OSError:
        return False


def with_known_values(before: Config, after: Config) -> Config:
    """Return the changed configuration, with the definitions of servers that lack a value only now.

    A keyring may be locked for a while, or a file be missing. The values that a running server has stay in use, unless
    its entry names another server.
    """
    known = {spec.name: spec for spec in before.upstreams if spec.unusable is None}
    kept = {}
    for spec in after.upstreams:
        is_same = before.written.get(spec.name) == after.written.get(spec.name)
        if spec.unusable is not None and spec.name in known and is_same:
            log.warning("%s; until a restart, it is used with the values that it has", spec.unusable)
            kept[spec.name] = known[spec.name]
    if not kept:
        return after
    overrides = {
        tool_id: override
        for config, is_kept in ((after, False), (before, True))
        for tool_id, override in config.tools.overrides.items()
        if (tool_id.split(":")[1] in kept) == is_kept
    }
    upstreams = tuple(kept.get(spec.name, spec) for spec in after.upstreams)
    return replace(after, upstreams=upstreams, tools=replace(after.tools, overrides=overrides))


def differences(before: Config, after: Config) -> list[str]:
    """Return descriptions of the changes. They quote no values."""
    servers, new_servers = ({spec.name: spec for spec in config.upstreams} for config in (before, after))
    lines = [f"{verb} {', '.join(map(repr, names))}" for verb, names in _changes(servers, new_servers, "restarted")]
    documents = [
        name
        for name, spec in new_servers.items()
        if servers.get(name) == spec and servers[name].document_version != spec.document_version
    ]
    if documents:
        lines.append(f"another document of {', '.join(map(repr, documents))}")
    plugins, new_plugins = map(_comparable_plugins, (before, after))
    for verb, names in _changes(plugins, new_plugins, "new settings of"):
        lines.append(f"{verb} plugin{'' if len(names) == 1 else 's'} {', '.join(map(repr, names))}")
    if (before.tools.policy, before.tools.contexts) != (after.tools.policy, after.tools.contexts):
        lines.append("new rules for calls")
    if before.trust != after.trust:
        lines.append("another trust in servers")
    if any(
        getattr(before.tools, name) != getattr(after.tools, name)
        for name in ("code_mode", "result_format", "duplicates", "budgets", "clients", "approval", "overrides")
    ):
        lines.append("new settings of tools")
    if before.lock != after.lock:
        lines.append("a new lock file")
    return lines or ["servers, plugins, rules and settings of tools stay the same"]


def _changes(
    before: Mapping[str, object], after: Mapping[str, object], changed: str
) -> Iterator[tuple[str, list[str]]]:
    """Yield the names of added, removed and changed entries, each list with a verb. Empty lists are left out."""
    for verb, names in (
        ("added", [name for name in after if name not in before]),
        ("removed", [name for name in before if name not in after]),
        (changed, [name for name in after if name in before and after[name] != before[name]]),
    ):
        if names:
            yield verb, names


def _comparable_plugins(config: Config) -> dict[str, object]:
    return {
        each.name: (each.module, each.config, each.hooks, each.middleware) for each in config.plugins if each.enabled
    }


def needs_restart(before: Config, after: Config) -> list[str]:
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
