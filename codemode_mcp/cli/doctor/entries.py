"""Checks of this server's entries in the files of clients.

The command of an entry must exist and start, or its address must accept connections.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from codemode_mcp.cli.doctor.check import CORRECT, Check
from codemode_mcp.control.display import cut
from codemode_mcp.nesting import DEPTH_VARIABLE
from upstream_clients.executables import find_executable
from upstream_clients.handshake import shake_hands
from upstream_clients.spec import UpstreamSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from codemode_mcp.cli.doctor.check import Status
    from codemode_mcp.cli.mcp_clients.own_entries import OwnEntry

NAME: Final = "client entry"

START_SECONDS: Final = 60.0
"""Time limit in seconds for an entry's server to answer `initialize`."""

SLOW_SECONDS: Final = 15.0
"""Seconds after which an answer is slow. Some clients do not wait longer."""

_MAX_STARTING: Final = 2
"""Maximum number of entries whose servers are started at the same time."""

_PRIVATE: Final = {DEPTH_VARIABLE: "1"}
"""The variable with which `serve` shares no instance, so that no instance is left behind."""

REACH_SECONDS: Final = 3.0
"""Time limit in seconds for an address to accept a connection."""

_INVALID: Final = re.compile(r"invalid_config: .* - ")
"""The beginning of the mistakes in the configuration file of an entry."""

MAX_ENTRIES: Final = 30
"""Maximum number of entries that are checked."""


async def check(find: Callable[[], Sequence[OwnEntry]]) -> Iterable[Check]:
    """Check the entries, up to `MAX_ENTRIES`.

    A server that is started from an entry is stopped again. Such a server starts no upstream servers.

    Args:
        find: returns the entries. It may block.
    """
    entries = list(await anyio.to_thread.run_sync(find))[:MAX_ENTRIES]
    if not entries:
        return [Check(NAME, "info", "no client has an entry for this server", "codemode-mcp install --client NAME")]
    checks: dict[int, Check] = {}
    places = anyio.CapacityLimiter(_MAX_STARTING)

    async def check_one(number: int, entry: OwnEntry) -> None:
        async with places:
            checks[number] = await _check(entry)

    async with anyio.create_task_group() as group:
        for number, entry in enumerate(entries):
            group.start_soon(check_one, number, entry)
    return [checks[number] for number in range(len(entries))]


async def _check(entry: OwnEntry) -> Check:
    result = partial(_result, f"{entry.title}, {cut(entry.name, 60)!r} in {entry.path}")
    scope = " --scope project" if entry.comes_with_folder else ""
    again = f"codemode-mcp install --client {entry.client}{scope} writes the entry again"
    if entry.disabled:
        return result("info", "the entry is disabled there")
    if entry.url is not None:
        return await _check_url(entry.url, result)
    command = entry.command or ""
    path = entry.env.get("PATH") or os.environ.get("PATH", "")
    # A relative path starts in the folder of the client, which is not known here.
    program = find_executable(command, path)
    if program is None:
        return result("fail", f"the command {cut(command, 200)!r} was not found", again)
    if entry.comes_with_folder:
        # The author of the folder decides what this entry starts.
        return result("ok", f"{cut(program, 200)} exists; it is not started, because the file is part of the folder")
    if entry.folder is None and os.path.dirname(command) and not os.path.isabs(command):
        # The working directory may belong to other users, and may have a program with this name.
        return result(
            "info", f"the command {cut(command, 200)!r} is relative to the folder of the client; it is not started"
        )
    spec = UpstreamSpec(
        name=entry.name,
        command=program,
        args=entry.args,
        # A client of the same session passes the XDG variables on, so the server uses the user's folders.
        env={**{name: value for name, value in os.environ.items() if name.startswith("XDG_")}, **entry.env, **_PRIVATE},
        # Python, npx and uvx read files in the working directory, and ours may not be trusted.
        cwd=str(Path.home() if entry.folder is None else entry.folder),
    )
    began = time.monotonic()
    shaken = await shake_hands(spec, START_SECONDS)
    took = time.monotonic() - began
    if shaken.problem:
        if _INVALID.search(shaken.problem):
            return result("fail", cut(shaken.problem, 500), CORRECT)
        by_hand = cut(spec.redact(shlex.join([program, *entry.args])), 300)
        return result("fail", cut(shaken.problem, 500), f"{again}; to see more, run it by hand: {by_hand}")
    if entry.desktop and not Path(command).is_absolute() and "PATH" not in entry.env:
        why = f"it starts here as {cut(program, 200)}, but an app that was not started from a shell may not find it"
        return result("warn", why, f"{again}, with the full path")
    if took > SLOW_SECONDS:
        slow = (
            f"slow to start: {cut(shaken.server, 100)} answered after {took:.0f} s, which some clients do not wait for"
        )
        return result(
            "warn", slow, "if the machine was not busy, run codemode-mcp setup, which prepares the first start"
        )
    return result("ok", f"it starts: {cut(shaken.server, 100)}")


async def _check_url(url: str, result: Callable[..., Check]) -> Check:
    shown = cut(url.split("?")[0], 200)
    start = "start codemode-mcp serve --transport http, or correct the address"
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = parts.hostname
    except ValueError:
        host = None
    if host is None or parts.username is not None:
        return result("fail", "its address is not valid", start)
    try:
        with anyio.fail_after(REACH_SECONDS):
            stream = await anyio.connect_tcp(host, port)
            await stream.aclose()
    except (OSError, TimeoutError):
        return result("fail", f"{shown} cannot be reached", start)
    return result("ok", f"{shown} can be reached")


def _result(entry: str, status: Status, detail: str, advice: str = "") -> Check:
    return Check(NAME, status, f"{entry}: {detail}", advice)
