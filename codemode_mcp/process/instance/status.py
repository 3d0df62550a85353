"""The report on the instance for terminals, and the memory of its processes."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from codemode_mcp.server.services import App


def servers_of(apps: Sequence[App]) -> list[dict[str, Any]]:
    """Return the servers of applications, as JSON. A server that several applications share is listed once."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for app in apps:
        for view in app.server_views():
            number = None if app.control is None else app.control.number_of(view.name)
            pids = app.server_pids(view.name)
            key = (view.name, -id(app) if number is None else number)
            found[key] = {"name": view.name, "state": view.state, "error": view.error, "pids": list(pids)}
    return list(found.values())


def pids_of(app: App) -> frozenset[int]:
    return frozenset(pid for view in app.server_views() for pid in app.server_pids(view.name))


def with_usage(
    facts: Mapping[str, Any], clients: Sequence[tuple[int, frozenset[int]]], early_size: int | None
) -> dict[str, Any]:
    """Return facts about the instance with the memory of its processes, and what it saves. Blocks.

    Args:
        clients: for each client, the process of its relay, and the processes of the servers that it uses.
        early_size: bytes of memory of the instance soon after its first client came, if they are known.
    """
    own = usage_of([os.getpid()]).size
    servers = [{**server, "memoryBytes": _size(server["pids"])} for server in facts["servers"]]
    saved = _saved(clients, own if early_size is None else early_size, own)
    return {**facts, "memoryBytes": own, "servers": servers, "saved": saved}


def _size(leaders: Sequence[int]) -> int | None:
    return usage_of(leaders, groups=True).size if leaders else None


def _saved(
    clients: Sequence[tuple[int, frozenset[int]]], private: int | None, own: int | None
) -> dict[str, Any] | None:
    """Return an estimate of what private servers, each with its own upstream servers, would use more than is used now.

    None for one client, which saves nothing. A private server is assumed to need `private` bytes: the memory that the
    instance had soon after its first client came.
    """
    if len(clients) < 2:
        return None
    relays = {relay for relay, _ in clients}
    servers = {pids: usage_of(pids, groups=True) for pids in {pids for _, pids in clients}}
    now = [usage_of({pid for pids in servers for pid in pids}, groups=True), usage_of(relays)]
    apart = [servers[pids] for _, pids in clients]
    processes = sum(1 + each.processes for each in apart) - 1 - sum(each.processes for each in now)
    sizes_now, sizes_apart = [own, *(each.size for each in now)], [private, *(each.size for each in apart)]
    size = None
    if None not in (*sizes_now, *sizes_apart):
        size = max(
            0,
            sum(each or 0 for each in sizes_apart)
            + (len(clients) - 1) * (private or 0)
            - sum(each or 0 for each in sizes_now),
        )
    return {"processes": max(0, processes), "bytes": size}


# The memory of processes, as the system reports it. The functions block.
#
# Linux reports the proportional share of each process (PSS): memory that several processes share is divided among them.
# `ps` reports the resident size (RSS) on other systems. Windows has no `ps`, so sizes are unknown there.


PS_SECONDS: Final = 2.0
"""Timeout of `ps`."""


class Usage(NamedTuple):
    """The number of processes that were found, and their memory.

    Attributes:
        size: bytes; None if the system does not report them.
    """

    processes: int
    size: int | None


def usage_of(pids: Collection[int], *, groups: bool = False) -> Usage:
    """Return the usage of processes. Those that have ended do not count.

    Args:
        groups: count all members of the process groups with these leaders, such as the children of a server.
    """
    if not pids:
        return Usage(0, 0)
    found = list(_in_proc(pids, groups) if sys.platform == "linux" else _by_ps(pids, groups))
    sizes = [size for size in found if size is not None]
    is_known = len(sizes) == len(found) and sys.platform != "win32"
    return Usage(len(found), sum(sizes) if is_known else None)


def _in_proc(pids: Collection[int], groups: bool) -> Iterator[int | None]:
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        with suppress(OSError, ValueError, IndexError):  # the process has ended
            with open(f"/proc/{name}/stat", "rb") as file:
                # The name of the program is in parentheses, and may contain blanks.
                state, _, group = file.read().rpartition(b")")[2].split()[:3]
            if (int(group) if groups else int(name)) in pids and state != b"Z":
                yield _proc_size(name)


def _proc_size(name: str) -> int | None:
    for path, label in ((f"/proc/{name}/smaps_rollup", b"Pss:"), (f"/proc/{name}/status", b"VmRSS:")):
        with suppress(OSError, ValueError, IndexError), open(path, "rb") as file:
            line = next((each for each in file if each.startswith(label)), b"")
            return int(line.split()[1]) * 1024
    return None


def _by_ps(pids: Collection[int], groups: bool) -> Iterator[int | None]:
    try:
        result = subprocess.run(["ps", "-axo", "pid=,pgid=,rss="], capture_output=True, timeout=PS_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return
    for line in result.stdout.splitlines():
        with suppress(ValueError):
            pid, group, size = map(int, line.split())
            if (group if groups else pid) in pids:
                yield size * 1024
