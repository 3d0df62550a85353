"""The writer of recordings: a thread that masks lines and appends them to files.

The event loop only queues lines. The thread masks the secrets, encodes the lines and writes them, in order for each
file. Files have mode 0600. Nothing is synchronised with the disk (no `fsync`): what was written survives the end of the
process, also by `kill -9`, but not a power failure.

If a line cannot be written, or if too many lines wait, the recording of that run ends with a line `incomplete`. The
program is never affected.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
from collections import OrderedDict, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from codemode_mcp.audit.recordings import format as recorded
from codemode_mcp.audit.trajectory import WriterThread
from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.sandbox.messages import RequestMessage, Thrown
from upstream_clients.private_files import NO_LINK, make_private, try_lock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from codemode_mcp.audit.recordings.masking import Mask


log = logging.getLogger("codemode_mcp.audit.recordings")

MAX_WAITING: Final = 128 * 1024 * 1024
"""Maximum approximate characters of lines that wait to be written."""

LINGER_SECONDS: Final = 0.02
"""Interval at which lines are written together."""

FLUSH_SECONDS: Final = 2.0
"""Maximum seconds that a suspension waits for the lines of its run."""

CLOSE_SECONDS: Final = 10.0
"""Seconds at the end to write the lines that still wait."""

_CATALOGS: Final = 4
"""Maximum number of encoded catalogs that are kept for further runs."""

_WRITE: Final = 1024 * 1024
"""Bytes of lines after which they are written."""

_BLOCK: Final = 64 * 1024

_TOO_MANY: Final = "the recording is not complete: the lines could not be written as fast as the program made them"

LazyLine: TypeAlias = "Callable[[], recorded.Line]"
"""A function that makes a line in the thread of the writer."""


class RecordingWriter:
    """The thread that writes all recordings of a process. A context manager: leaving it writes the waiting lines.

    Args:
        mask: returns the current mask. It is called in the thread, once for several lines.
    """

    def __init__(self, mask: Callable[[], Mask]) -> None:
        self._mask = mask
        self._queue: deque[tuple[RecordingFile, recorded.Line | LazyLine | threading.Event | None, int]] = deque()
        self._thread = WriterThread("recordings", self._write_all, LINGER_SECONDS)
        self._entered = self._left = 0
        """Characters that were queued, and that were written. Only the event loop changes the first, and only the
        thread changes the second, so that neither needs a lock."""
        self._catalogs: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._thread.close(CLOSE_SECONDS):
            log.error("recordings could not be written to their ends: the disk does not answer")

    def __repr__(self) -> str:
        return f"<RecordingWriter: {len(self._queue)} lines to be written>"

    @property
    def is_behind(self) -> bool:
        return self._entered - self._left > MAX_WAITING

    def put(self, file: RecordingFile, line: recorded.Line | LazyLine | None) -> None:
        """Queue a line to be written soon, or None to close the file. It never waits. Only one thread may call it."""
        if self._thread.is_closed:
            return
        size = 1000 if line is None or callable(line) else size_of(line)
        self._entered += size
        self._queue.append((file, line, size))
        self._thread.wake()

    def flush(self, file: RecordingFile) -> None:
        """Wait until the lines of a file were written, for a limited time. May be called in any thread."""
        written = threading.Event()
        if self._thread.is_closed or not self._thread.is_started:
            return
        self._queue.append((file, written, 0))
        self._thread.hurry()
        written.wait(FLUSH_SECONDS)

    # in the thread

    def _write_all(self) -> None:
        if self._queue:
            self._write_queue(self._mask())

    def _write_queue(self, mask: Mask) -> None:
        # Lines of a file are written together. Each write is a change of threads, which costs more than a line.
        files: dict[RecordingFile, None] = {}
        while self._queue:
            file, line, size = self._queue.popleft()
            if isinstance(line, threading.Event):
                file.write_lines()
                line.set()
            elif line is None:
                file.release()
            else:
                files[file] = None
                self._add(file, line, mask)
            self._left += size
        for file in files:
            file.write_lines()

    def _add(self, file: RecordingFile, line: recorded.Line | LazyLine, mask: Mask) -> None:
        try:
            file.add(self._encoded(line() if callable(line) else line, mask))
        except Exception as error:  # no program may fail because of its recording
            file.fail(mask.text(error.message if isinstance(error, CodeModeError) else str(error)))

    def _encoded(self, line: recorded.Line, mask: Mask) -> bytes:
        if not isinstance(line, recorded.CatalogText):
            return recorded.encode(mask.line(line))
        # Most runs of a process have the same catalog, which may be large.
        key = line.digest, id(mask)
        if key not in self._catalogs:
            self._catalogs[key] = recorded.encode(mask.line(line))
            while len(self._catalogs) > _CATALOGS:
                self._catalogs.popitem(last=False)
        return self._catalogs[key]


class RecordingFile:
    """The file of one run. It is open, and locked, from the first line to `close`, and again from the next line.

    Args:
        reopen: True to append to an existing file.
        on_open: called in the thread of the writer, after a new file was created.
        on_write: called in the thread of the writer with the number of bytes that were written.
        max_bytes: maximum bytes that are written to the file.
    """

    def __init__(
        self,
        writer: RecordingWriter,
        path: Path,
        *,
        reopen: bool = False,
        on_open: Callable[[], None] | None = None,
        on_write: Callable[[int], None] | None = None,
        max_bytes: int = recorded.MAX_BYTES,
    ) -> None:
        self.path = path
        self._writer = writer
        self._exists = reopen
        self._on_open = on_open
        self._on_write = on_write
        self._max_bytes = max_bytes
        self._lines: list[bytes] = []
        self._waiting = self._size = 0
        """Bytes of these lines, and of all lines."""
        self._descriptor: int | None = None
        self._failed = self._full = False

    def __repr__(self) -> str:
        return f"<RecordingFile {self.path.name}>"

    def append(self, line: recorded.Line | LazyLine) -> None:
        """Queue a line. It never waits, and never fails."""
        if self._full:
            return
        if self._writer.is_behind:
            self._full = True
            line = recorded.Incomplete(_TOO_MANY)
        self._writer.put(self, line)

    def close(self) -> None:
        """Close the file after its last line. It does not wait."""
        self._writer.put(self, None)

    def flush(self) -> None:
        """Wait until all lines were written. May be called in any thread."""
        self._writer.flush(self)

    # in the thread of the writer

    def add(self, line: bytes) -> None:
        if self._failed:
            return
        self._lines.append(line)
        self._waiting += len(line)
        self._size += len(line)
        if self._size > self._max_bytes:
            self.fail(f"it is larger than {self._max_bytes} bytes")
        elif self._waiting > _WRITE:
            self.write_lines()

    def write_lines(self) -> None:
        if self._failed or not self._lines:
            return
        data = memoryview(b"".join(self._lines))
        self._lines.clear()
        self._waiting = 0
        try:
            if self._descriptor is None:
                self._descriptor = self._open()
            while data:
                written = os.write(self._descriptor, data)
                data = data[written:]
                if self._on_write is not None:
                    self._on_write(written)
        except OSError as error:
            self.fail(error.strerror or str(error))

    def fail(self, why: str) -> None:
        """Write no more lines, except for a reason why lines are missing, if possible."""
        if self._failed:
            return
        self.write_lines()
        log.error("the recording %s is not complete: %s", self.path, why)
        if self._descriptor is not None:
            with suppress(OSError):
                os.write(
                    self._descriptor, recorded.encode(recorded.Incomplete(f"the recording is not complete: {why}"))
                )
        self._failed = True
        self.release()

    def release(self) -> None:
        self.write_lines()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_APPEND | NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(self.path, flags | (0 if self._exists else os.O_CREAT | os.O_EXCL), 0o600)
        try:
            make_private(descriptor, self.path)
            # On Windows, no process could read a file with a lock.
            if sys.platform != "win32" and not try_lock(descriptor):
                raise OSError(errno.EAGAIN, "another process still writes it", str(self.path))
            if self._exists:
                _end_at_line(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        if not self._exists:
            self._exists = True
            if self._on_open is not None:
                self._on_open()
        return descriptor


def _end_at_line(descriptor: int) -> None:
    """Remove the part of a line at the end of a file, which a process that was killed has left."""
    size = os.fstat(descriptor).st_size
    end = size
    while end:
        start = max(0, end - _BLOCK)
        os.lseek(descriptor, start, os.SEEK_SET)
        found = os.read(descriptor, end - start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    if end < size:
        os.ftruncate(descriptor, end)


_EACH: Final = 200
"""Approximate characters that one line, request or completion takes besides its texts."""

_READING: Final = 30
"""Approximate characters of one reading of the clock."""

_MEMBERS: Final = 20_000


def size_of(line: recorded.Line) -> int:
    """Return the approximate size of a line in characters."""
    size = _EACH
    match line:
        case recorded.Turn():
            for end in line.completions:
                size += _EACH + len(end.value or "")
                if end.error is not None:
                    size += len(end.error.message) + len(end.error.data)
        case recorded.Requests():
            for request in line.requests:
                size += _EACH + _request_size(request)
        case recorded.Clock():
            size += _READING * (len(line.wall) + len(line.monotonic))
        case recorded.Start():
            size += len(line.code) + len(line.fallback or "") + len(line.namespaces) + len(line.positions)
            size += sum(map(len, line.saving or ()))
        case recorded.Opening():
            size += len(line.source) + sum(map(len, line.args))
        case recorded.CatalogText():
            size += len(line.text)
        case recorded.End():
            size += len(line.error) + _data_size([line.value, *line.outputs])
    return size


def _request_size(request: RequestMessage) -> int:
    size = 0
    for name in request.__struct_fields__:
        value = getattr(request, name)
        if isinstance(value, Thrown):
            value = (value.name, value.message, value.stack)
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, tuple):
            size += sum(len(each) for each in value if isinstance(each, str))
    return size


def _data_size(value: Any) -> int:
    """Return the approximate size of JSON data. Of data with very many members, only the first are counted."""
    size = 0
    pending = [value]
    for _ in range(_MEMBERS):
        if not pending:
            break
        each = pending.pop()
        size += 16
        if isinstance(each, str):
            size += len(each)
        elif isinstance(each, dict):
            size += sum(map(len, each))
            pending.extend(each.values())
        elif isinstance(each, list | tuple):
            pending.extend(each)
    return size + 16 * len(pending)
