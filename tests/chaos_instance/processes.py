"""The processes of a campaign, found by a variable in their environment. Reads `/proc`."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

VARIABLE: Final = "CODEMODE_CHAOS"


def processes_of(mark: str) -> dict[int, str]:
    """Return the command of each running process whose environment has the mark."""
    found = {}
    wanted = f"{VARIABLE}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
                if command:  # a process that has ended and was not waited for has none
                    found[int(entry.name)] = command
    return found


def send_signal(pid: int, number: int) -> bool:
    """Send a signal to a process. Return False if it has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def kill_all(mark: str) -> None:
    """Kill the processes of a campaign, after it has failed."""
    for pid in processes_of(mark):
        send_signal(pid, signal.SIGKILL)
