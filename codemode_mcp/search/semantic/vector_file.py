"""Vectors on disk by the hash of their text, in one file for all processes of a user.

The file has `MAGIC`, the SHA-256 of the rest, and records of a key and a vector, the least recently used first. It is
always replaced as a whole. If two processes write at the same time, the later one wins, and the other's vectors are
made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from typing import TYPE_CHECKING, Final

from upstream_clients.private_files import exposure, make_private_folder, open_private

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

MAGIC: Final = b"codemode-mcp vectors 1\n"
KEY: Final = 32
"""Length of a key, a SHA-256, in bytes."""
LIMIT: Final = 50_000
"""Maximum number of vectors in the file."""
_HEAD: Final = len(MAGIC) + 32
_LEFT_OVER_SECONDS: Final = 3_600
"""Age after which an incomplete file is removed."""


class VectorFile:
    """A file of vectors. Errors of the disk are ignored, because vectors can be made again.

    Args:
        folder: the folder of the file, made with mode 0700 on the first write.
        width: bytes of a vector.
        limit: maximum number of vectors in the file.
    """

    def __init__(self, folder: Path, width: int, limit: int = LIMIT) -> None:
        self._folder = folder
        self._path = folder / "vectors.bin"
        self._width = width
        self._limit = limit

    def read(self, wanted: Collection[bytes]) -> dict[bytes, bytes]:
        """Return the vectors of the wanted keys that are in the file."""
        return {key: bytes(vector) for key, vector in self._records() if key in wanted}

    def store(self, used: Mapping[bytes, bytes]) -> None:
        """Store vectors as the most recently used ones. Write only if one of them is missing or in the older half."""
        records = dict(self._records())
        recent = set(list(records)[-(self._limit // 2) :])
        if used.keys() <= recent:
            return
        for key, vector in used.items():
            records.pop(key, None)
            records[key] = memoryview(vector)
        self._write(list(records.items())[-self._limit :])

    def _records(self) -> Iterator[tuple[bytes, memoryview]]:
        body = memoryview(self._body())
        for start in range(0, len(body), KEY + self._width):
            record = body[start : start + KEY + self._width]
            yield bytes(record[:KEY]), record[KEY:]

    def _body(self) -> bytes:
        """Return the records; empty if the file is missing, damaged, of another user or of another form."""
        size = KEY + self._width
        try:
            with open_private(self._path) as file:
                if os.fstat(file.fileno()).st_size > _HEAD + self._limit * size:
                    return b""
                content = file.read()
        except OSError:
            return b""
        head, body = content[:_HEAD], content[_HEAD:]
        if len(body) % size or head != MAGIC + hashlib.sha256(body).digest():
            return b""
        return body

    def _write(self, records: Collection[tuple[bytes, memoryview]]) -> None:
        body = b"".join(part for record in records for part in record)
        scratch = None
        try:
            make_private_folder(self._folder)
            if exposure(self._folder) is not None:
                return
            self._sweep()
            descriptor, scratch = tempfile.mkstemp(".tmp", "vectors-", self._folder)  # with mode 0600
            with open(descriptor, "wb") as file:
                file.write(MAGIC + hashlib.sha256(body).digest())
                file.write(body)
            os.replace(scratch, self._path)
        except OSError:
            if scratch is not None:
                with contextlib.suppress(OSError):
                    os.unlink(scratch)

    def _sweep(self) -> None:
        for path in self._folder.glob("vectors-*.tmp"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < time.time() - _LEFT_OVER_SECONDS:
                    path.unlink()
