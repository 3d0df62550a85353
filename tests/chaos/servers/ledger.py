"""The ledger of the servers of these tests: a file with one line for each thing that they did.

`pid N` and `act ID`, `cancelled ID`, `refused STATUS`. A line is written before its answer, in one write, so that
a process which is killed at any time has either done a thing and said so, or not done it.
"""

from __future__ import annotations

import os


class Ledger:
    """A file that any number of processes append to."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.note(f"pid {os.getpid()}")

    def note(self, line: str) -> None:
        os.write(self._file, line.encode() + b"\n")


SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "how": {"type": "string"}},
    "required": ["id"],
}
