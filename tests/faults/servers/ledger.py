"""The ledger of real acts: lines of JSON that all processes under test append to one file, in the order of the acts.

A line is written before its answer, in one write. A process that is killed has written a line or has not; a lost
machine is not what this is about. The servers import this file as a script beside them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMA = {
    "type": "object",
    "properties": {
        "key": {"type": "string"},
        "how": {"type": "string"},
        "ms": {"type": "integer"},
        "size": {"type": "integer"},
    },
    "required": ["key"],
}
"""Arguments of every tool of the servers."""


class Ledger:
    """A ledger file, to append to and to read from the last position."""

    def __init__(self, path: Path | str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._read = 0

    def write(self, **line: Any) -> None:
        os.write(self._file, json.dumps({**line, "pid": os.getpid()}).encode() + b"\n")

    def new(self) -> Iterator[dict[str, Any]]:
        """Return the lines since the last time."""
        while True:
            data = os.pread(self._file, 1 << 20, self._read)
            end = data.rfind(b"\n") + 1
            if not end:
                return
            self._read += end
            for line in data[:end].splitlines():
                yield json.loads(line)

    def close(self) -> None:
        os.close(self._file)
