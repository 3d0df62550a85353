"""The trajectory: a file with one line of JSON for each event.

Events wait in a bounded queue for a thread that redacts and writes them, so that the event loop does neither. If events
are lost, because the queue is full or the file cannot be written, the file says how many.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec

from codemode_mcp.audit.events import ITEM_EVENTS, MAX_NAME, Event
from codemode_mcp.audit.redaction import Inputs
from codemode_mcp.base.strict_json import compact_json
from upstream_clients.private_files import NO_LINK, make_private

log = logging.getLogger("codemode_mcp.audit")

MAX_EVENTS: Final = 10_000
"""Maximum number of events that wait to be written."""

MAX_WAITING: Final = 64 * 1024 * 1024
"""Maximum characters of the inputs of these events."""

LINGER_SECONDS: Final = 0.05
"""Interval at which events are written together."""

CLOSE_SECONDS: Final = 5.0
"""Seconds at the end to write the events that still wait."""

_BATCH: Final = 64
_WRITE: Final = 256 * 1024
"""Maximum bytes of one write, except for a longer line."""
_CONSTANT_FIELDS: Final = frozenset({"status", "code", "transport", "language", "reason", "by", "remember"})
"""Fields whose texts are constants of this product, and need no redaction."""

_NAMES: Final = frozenset({"tool", "request", "run", "principal", "uri"})
"""Fields that are cut to `MAX_NAME` after the redaction."""


class Trajectory:
    """A writer of events to a file. A context manager: leaving it writes the waiting events.

    Args:
        path: an absolute path. Neither the file nor its folder need exist.
        redact: replaces every known secret. It is called in the thread.
        include_inputs: True to write arguments and sources, instead of only their shape and digest.
        max_bytes: the size at which the file is renamed to `<path>.1`, and so on.
        files: the number of renamed files. The oldest is deleted.
    """

    def __init__(
        self,
        path: Path,
        redact: Callable[[str], str],
        *,
        include_inputs: bool = False,
        max_bytes: int = 64 * 1024 * 1024,
        files: int = 4,
    ) -> None:
        self._file = AppendedFile(path, max_bytes, files)
        self._path = path
        self._redact = redact
        self._inputs = Inputs(include=include_inputs)
        self._queue: deque[Event] = deque()
        self._thread = WriterThread("trajectory", self._write_all, LINGER_SECONDS)
        self._entered = self._left = 0
        """Characters of inputs that were queued, and that were written. Only `record` changes the first, and only the
        thread changes the second, so that neither needs a lock."""
        self._lost = self._unwritten = self._reported = 0
        """Numbers of events: not queued, not written, and reported as lost. As above, each has one writer."""
        self._failing = False

    def __repr__(self) -> str:
        return f"<Trajectory {self._path}: {len(self._queue)} events to be written>"

    def __enter__(self) -> Trajectory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._thread.close(CLOSE_SECONDS):
            self._file.close()
        else:
            log.error("the trajectory %s could not be written to its end: the disk does not answer", self._path)

    def record(self, event: Event) -> None:
        """Queue an event to be written soon. It never waits. Only one thread may call it."""
        if self._thread.is_closed:
            return
        size = 0 if event.inputs is None else len(event.inputs)
        if len(self._queue) >= MAX_EVENTS or self._entered - self._left + size > MAX_WAITING:
            self._lost += 1
            return
        self._entered += size
        self._queue.append(event)
        self._thread.wake()

    # in the thread

    def _write_all(self) -> None:
        while self._queue:
            self._write_batch()
        self._report_lost()

    def _write_batch(self) -> None:
        events = [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
        lines: list[bytes] = []
        # Cached for one batch only, because another secret may become known at any time.
        seen: dict[str, str] = {}

        def redact(text: str) -> str:
            found = seen.get(text)
            if found is None:
                found = seen[text] = self._redact(text)
            return found

        for event in events:
            try:
                lines.append(_line(document_of(event, self._inputs, redact)))
            except Exception:
                log.exception("an event of kind %s could not be written", event.kind)
        self._report_lost()
        self._unwritten += len(events) - self._append(lines)
        self._left += sum(len(event.inputs) for event in events if event.inputs is not None)

    def _report_lost(self) -> None:
        lost = self._lost + self._unwritten
        if lost != self._reported:
            document = {
                "time": round(time.time(), 6),
                "kind": "lost",
                "events": lost - self._reported,
                "pid": os.getpid(),
            }
            if self._append([_line(document)]):
                self._reported = lost

    def _append(self, lines: Sequence[bytes]) -> int:
        """Write lines in order, and return how many were written before an error."""
        done = 0
        try:
            while done < len(lines):
                # A write of many lines takes hardly longer than a write of one line.
                size, end = len(lines[done]), done + 1
                while end < len(lines) and size + len(lines[end]) <= _WRITE:
                    size, end = size + len(lines[end]), end + 1
                done += self._file.append(lines[done:end])
        except OSError as error:
            if not self._failing:
                self._failing = True
                log.error("the trajectory %s: %s; events are lost until that changes", self._path, _why(error))
            return done
        if self._failing:
            self._failing = False
            log.warning("the trajectory %s is written again; it says how many events were lost", self._path)
        return done


def document_of(event: Event, inputs: Inputs, redact: Callable[[str], str]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "time": round(event.time, 6),
        "kind": event.kind,
        "id": redact(event.id)[:MAX_NAME] if event.kind in ITEM_EVENTS else event.id,
        **({} if event.parent is None else {"parent": event.parent}),
        "pid": os.getpid(),
    }
    for key, value in event.fields.items():
        if isinstance(value, str) and key not in _CONSTANT_FIELDS:
            value = redact(value)[:MAX_NAME] if key in _NAMES else redact(value)
        document[key] = value
    if event.inputs is not None:
        of = inputs.of_program if event.kind == "exec" else inputs.of_arguments
        document["input"] = of(event.inputs, redact)
    return document


def problem_with(path: Path) -> str | None:
    """Return why a trajectory cannot be written to a path; None if it can. The file is created."""
    try:
        os.close(_open(path))
    except OSError as error:
        return f"{path}: {_why(error)}"
    return None


class AppendedFile:
    """A file to which several processes append whole lines, and which is renamed when it gets too large.

    Lines are appended in one write, which the system does not mix with the writes of other processes. On Windows it may
    mix them, and a file that another process has open cannot be renamed.
    """

    def __init__(self, path: Path, max_bytes: int, files: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._files = files
        self._descriptor: int | None = None
        self._torn = False

    def append(self, lines: Sequence[bytes]) -> int:
        """Append as many lines as fit, and return their number, at least 1. A line that was cut does not count.

        Raises:
            OSError: no line was written.
        """
        descriptor, size = self._current()
        room = self._max_bytes - size
        if size and len(lines[0]) > room:
            with suppress(OSError):  # a file that is too large is better than a lost line
                self._rename(descriptor)
            descriptor, size = self._current()
            room = self._max_bytes - size
        count = 1
        room -= len(lines[0])
        while count < len(lines) and len(lines[count]) <= room:
            room -= len(lines[count])
            count += 1
        # If the last write was cut within a line, a line break ends that line, so that only that one is lost.
        data = (b"\n" if self._torn else b"") + b"".join(lines[:count])
        written = os.write(descriptor, data)
        if written == len(data):
            self._torn = False
            return count
        whole = data[:written].count(b"\n") - self._torn
        self._torn = not data[:written].endswith(b"\n") if written else self._torn
        if whole < 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return whole

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _current(self) -> tuple[int, int]:
        if self._descriptor is not None:
            here = os.fstat(self._descriptor)
            if self._is_at_path(here):
                return self._descriptor, here.st_size
            self.close()
        self._descriptor = _open(self._path)
        self._torn = False
        return self._descriptor, os.fstat(self._descriptor).st_size

    def _is_at_path(self, here: os.stat_result) -> bool:
        try:
            return os.path.samestat(os.lstat(self._path), here)
        except FileNotFoundError:
            return False

    def _rename(self, descriptor: int) -> None:
        with _locked(descriptor):
            if not self._is_at_path(os.fstat(descriptor)):
                return  # another process was first
            if sys.platform == "win32":
                self.close()  # an open file cannot be renamed on Windows
            for number in range(self._files - 1, 0, -1):
                with suppress(FileNotFoundError):
                    os.replace(aside(self._path, number), aside(self._path, number + 1))
            os.replace(self._path, aside(self._path, 1))


def aside(path: Path, number: int) -> Path:
    """Return the path of a renamed file; 1 is the latest one."""
    return path.with_name(f"{path.name}.{number}")


def _open(path: Path) -> int:
    # Without O_NONBLOCK, a pipe without a reader would block.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | NO_LINK | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        make_private(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    if sys.platform == "win32":
        yield
        return
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _why(error: OSError) -> str:
    return f"it cannot be written: {error.strerror or error}"


def _line(document: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(document) + b"\n"
    except ValueError:
        # Half of a surrogate pair becomes the escape that JSON has for it.
        return compact_json(document).encode("utf-8", "backslashreplace") + b"\n"


class WriterThread:
    """The thread of a queue. It starts with the first item.

    Args:
        write: writes all items of the queue. It is called in the thread, and must not raise.
        linger: seconds for which more items are awaited before they are written together. A thread that wakes up often
            slows the event loop down.
    """

    def __init__(self, name: str, write: Callable[[], None], linger: float) -> None:
        self._name = name
        self._write = write
        self._linger = linger
        self._awake, self._hurry = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<WriterThread {self._name}>"

    @property
    def is_started(self) -> bool:
        return self._thread is not None

    @property
    def is_closed(self) -> bool:
        return self._closed

    def wake(self) -> None:
        """Have the queue written soon. It never waits. Until the thread has started, only one thread may call it."""
        if not self._awake.is_set():
            self._awake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def hurry(self) -> None:
        """Have the queue written immediately. May be called in any thread, after the first item."""
        self._awake.set()
        self._hurry.set()

    def close(self, seconds: float) -> bool:
        """Write the items that wait. Return False if that takes longer than some seconds."""
        self._closed = True
        self._hurry.set()
        self._awake.set()
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        over = False
        while not over:
            self._awake.wait()
            self._hurry.wait(self._linger)
            # All three before the queue is emptied: an item that comes later sets the events again. `close` sets
            # `_closed` first, so that no request to hurry is lost here.
            self._awake.clear()
            self._hurry.clear()
            over = self._closed
            self._write()
