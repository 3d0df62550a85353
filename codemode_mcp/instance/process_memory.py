"""The memory of processes, as the system reports it. The functions block.

Linux reports the proportional share of each process (PSS): memory that several processes share is divided among them.
`ps` reports the resident size (RSS) on other systems. Windows has no `ps`, so sizes are unknown there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

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
    """Yield the size of each process that is found in /proc."""
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
    """Yield the size of each process that `ps` lists."""
    try:
        result = subprocess.run(["ps", "-axo", "pid=,pgid=,rss="], capture_output=True, timeout=PS_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return
    for line in result.stdout.splitlines():
        with suppress(ValueError):
            pid, group, size = map(int, line.split())
            if (group if groups else pid) in pids:
                yield size * 1024
