"""The entries of this server in the files of clients: whether what they name is there and starts."""

from __future__ import annotations

import os
import shlex
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from codemode_mcp.cli.doctor.check import Check
from codemode_mcp.control.display import cut
from upstream_clients.handshake import shake_hands
from upstream_clients.spec import UpstreamSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

NAME: Final = "client entry"

START_SECONDS: Final = 15.0
"""Time that an entry has to answer `initialize`."""

REACH_SECONDS: Final = 3.0
"""Time that an address has to accept a connection."""

MAX_ENTRIES: Final = 30


class Entry(Protocol):
    """One entry; see `clients.own_entries`."""

    @property
    def client(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def path(self) -> Path: ...
    @property
    def name(self) -> str: ...
    @property
    def command(self) -> str | None: ...
    @property
    def args(self) -> tuple[str, ...]: ...
    @property
    def env(self) -> Mapping[str, str]: ...
    @property
    def url(self) -> str | None: ...
    @property
    def folder(self) -> Path | None: ...
    @property
    def disabled(self) -> bool: ...
    @property
    def comes_with_folder(self) -> bool: ...
    @property
    def desktop(self) -> bool: ...


async def check(find: Callable[[], Sequence[Entry]]) -> Iterable[Check]:
    """Look at every entry at the same time. What an entry starts is ended again; it starts no upstream server."""
    entries = list(await anyio.to_thread.run_sync(find))[:MAX_ENTRIES]
    if not entries:
        return [Check(NAME, "info", "no client has an entry for this server", "codemode-mcp install --client NAME")]
    found: dict[int, Check] = {}

    async def one(number: int, entry: Entry) -> None:
        found[number] = await _check(entry)

    async with anyio.create_task_group() as group:
        for number, entry in enumerate(entries):
            group.start_soon(one, number, entry)
    return [found[number] for number in range(len(entries))]


async def _check(entry: Entry) -> Check:
    about = f"{entry.title}, {cut(entry.name, 60)!r} in {entry.path}"
    made = partial(_found, about)
    scope = " --scope project" if entry.comes_with_folder else ""
    again = f"codemode-mcp install --client {entry.client}{scope} writes the entry again"
    if entry.disabled:
        return made("info", "it is switched off there")
    if entry.url is not None:
        return await _reached(entry.url, made)
    command = entry.command or ""
    path = entry.env.get("PATH") or os.environ.get("PATH", "")
    # A path with a separator counts from the folder that the client is in, which is not known here.
    program = shutil.which(command, path=path)
    if program is None:
        return made("fail", f"the command {cut(command, 200)!r} is not there", again)
    if entry.comes_with_folder:
        # The author of the folder decides what it starts.
        return made("ok", f"{cut(program, 200)} is there; it is not started, since the file is part of the folder")
    if entry.folder is None and os.path.dirname(command) and not os.path.isabs(command):
        # The folder that doctor runs in may be by others, and can have a program of this name.
        return made(
            "info", f"the command {cut(command, 200)!r} counts from the folder of the client; it is not started"
        )
    spec = UpstreamSpec(
        name=entry.name,
        command=program,
        args=entry.args,
        env={**_of_user(), **entry.env},
        # Not in the folder that doctor runs in: Python, npx and uvx read what lies in theirs.
        cwd=str(Path.home() if entry.folder is None else entry.folder),
        secrets=tuple(value for value in entry.env.values() if len(value) >= 8),
    )
    shaken = await shake_hands(spec, START_SECONDS)
    if shaken.problem:
        by_hand = cut(spec.redact(shlex.join([program, *entry.args])), 300)
        return made("fail", cut(shaken.problem, 500), f"{again}; to see more, run it by hand: {by_hand}")
    if entry.desktop and not Path(command).is_absolute() and "PATH" not in entry.env:
        why = (
            f"it starts here, as {cut(program, 200)}; an app that is not started from a shell may not find {command!r}"
        )
        return made("warn", why, f"{again}, with the whole path")
    return made("ok", f"it starts: {cut(shaken.server, 100)}")


def _of_user() -> dict[str, str]:
    """Return where this user keeps folders: an entry finds the same ones from a client of the same session."""
    return {name: value for name, value in os.environ.items() if name.startswith("XDG_")}


async def _reached(url: str, made: Callable[..., Check]) -> Check:
    shown = cut(url.split("?")[0], 200)
    start = "start codemode-mcp serve --transport http, or correct the address"
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = parts.hostname
    except ValueError:
        host = None
    if host is None or parts.username is not None:
        return made("fail", "its address is none that could be called", start)
    try:
        with anyio.fail_after(REACH_SECONDS):
            stream = await anyio.connect_tcp(host, port)
            await stream.aclose()
    except (OSError, TimeoutError):
        return made("fail", f"{shown} cannot be reached", start)
    return made("ok", f"{shown} can be reached")


def _found(about: str, status: str, detail: str, advice: str = "") -> Check:
    return Check(NAME, status, f"{about}: {detail}", advice)  # type: ignore[arg-type]
