"""The recordings of a process: their recorders, and where they are kept, in memory or in a folder."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
from collections import OrderedDict
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import anyio.to_thread
from msgspec.structs import replace

from codemode_mcp import __version__
from codemode_mcp.audit.recordings import format as recorded
from codemode_mcp.audit.recordings.format import FORMAT, CatalogText, Line, Opening, TakenOver, encode
from codemode_mcp.audit.recordings.masking import Mask
from codemode_mcp.audit.recordings.writer import RecordingFile, RecordingWriter, size_of
from upstream_clients.private_files import make_private_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from codemode_mcp.audit.redaction import Redactor
    from codemode_mcp.base.settings import AuditSettings
    from codemode_mcp.sandbox.clock import Readings
    from codemode_mcp.sandbox.messages import Completion, RequestMessage

    LazyLine = Callable[[], Line]
    """A function that makes a line when it is needed."""


log = logging.getLogger("codemode_mcp.audit.recordings")


class Recordings:
    """The recordings of a process.

    Args:
        version: the version of codemode-mcp.
        mask: the source of the current mask.
        folder: the folder for the files of all runs, if there is one.
        file: returns the file for the next run, if there is one. It is used for one run only.
    """

    def __init__(
        self,
        version: str,
        kept: KeptRecordings,
        mask: MaskSource,
        folder: RecordingFolder | None = None,
        file: RecordingFile | None = None,
    ) -> None:
        self._kept = kept
        self._mask = mask
        self._version = version
        self._folder = folder
        self._file = file

    def begin(
        self,
        run_id: str,
        *,
        source: str,
        language: Literal["javascript", "typescript"],
        args: tuple[str, ...],
        began: float,
        catalog: object,
        tools: int,
        catalog_text: Callable[[], CatalogText],
    ) -> Recorder | None:
        """Return the recorder of a new run; None if it is not recorded.

        Args:
            began: the time of the beginning, in seconds since the epoch.
            catalog: the catalog of the run. Runs with the same catalog share it.
            tools: the number of tools in the catalog.
            catalog_text: makes the line about the catalog. It may be called in another thread.
        """
        kept = self._kept.begin(run_id, catalog, tools)
        file = self._file
        self._file = None
        if file is None and self._folder is not None:
            file = self._folder.begin(run_id)
        if kept is None and file is None:
            return None
        recorder = Recorder(file, kept)
        started = datetime.fromtimestamp(began, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        recorder.add(Opening(FORMAT, self._version, run_id, started, language, source, args))
        recorder.add(catalog_text)
        return recorder

    def take_over(self, run_id: str, snapshot: bytes) -> Recorder | None:
        """Return the recorder of a run that another process has begun; None if it is not recorded in a file."""
        file = None if self._folder is None else self._folder.reopen(run_id)
        if file is None:
            return None
        return Recorder(file, None, taken_over=TakenOver(snapshot_digest(snapshot), self._version))

    def export(self, run_id: str) -> bytes:
        """Return the recording of a run, masked. It is made, or read from the folder, in the calling thread.

        Raises:
            NotKept: there is no recording.
        """
        lines = self._kept.lines(run_id, self._mask())
        if lines is not None:
            return b"".join(lines)
        with suppress(OSError):
            found = None if self._folder is None else self._folder.read(run_id)
            if found is not None:
                return found
        raise NotKept(self._kept.why_not(run_id))


class NotKept(Exception):
    """Error for a run without a recording. Its text is the reason, if it is known."""


class MaskSource:
    """The source of the current mask. It makes a new one when a secret becomes known.

    Args:
        named_secrets: returns the secret values with their names; see `Redactor.named_secrets`.
    """

    def __init__(self, named_secrets: Callable[[], Mapping[str, str]]) -> None:
        self._named_secrets = named_secrets
        self._known: Mapping[str, str] = {}
        self._mask = Mask({})
        self._key = self._mask.key

    def __call__(self) -> Mask:
        """Return the current mask. May be called in any thread."""
        named = self._named_secrets()
        if named != self._known:
            self._mask, self._known = Mask(named, self._key), named
        return self._mask


# The recordings of the latest runs, in memory within a limit. They are masked when they are exported.
#
# A run is recorded as long as its lines fit. The oldest recording is dropped first. If a run alone is too large, it is
# no longer recorded.


MAX_CATALOGS: Final = 8
"""Maximum number of different catalogs of the runs. Catalogs are large, and are not counted otherwise."""

MAX_TOOLS: Final = 20_000
"""Maximum number of tools in these catalogs together, except for the latest one."""

MAX_REASONS: Final = 1000
"""Maximum number of runs of which it is known why they are not kept."""


class KeptRecordings:
    """The latest recordings.

    Args:
        max_bytes: approximate limit of all recordings. 0: none are kept.

    Attributes:
        max_bytes: as above.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._runs: OrderedDict[str, KeptRecording] = OrderedDict()
        self._catalogs: dict[int, list[KeptRecording]] = {}
        """The runs of each catalog, by its identity."""
        self._size = 0
        self._reasons: OrderedDict[str, str] = OrderedDict()

    def __repr__(self) -> str:
        return f"<KeptRecordings: {len(self._runs)} runs, about {self._size} characters>"

    def begin(self, run_id: str, catalog: object, tools: int) -> KeptRecording | None:
        """Return the place for the lines of a run; None if no recordings are kept.

        Args:
            catalog: a value that runs with the same catalog share.
            tools: the number of tools in the catalog.
        """
        if not self.max_bytes:
            return None
        if id(catalog) not in self._catalogs:
            self._make_room(tools)
        found = self._runs[run_id] = KeptRecording(self, run_id, catalog, tools)
        self._catalogs.setdefault(id(catalog), []).append(found)
        return found

    def _make_room(self, tools: int) -> None:
        while self._catalogs:
            known = sum(runs[0].tools for runs in self._catalogs.values())
            if len(self._catalogs) < MAX_CATALOGS and known + tools <= MAX_TOOLS:
                return
            for kept in list(next(iter(self._catalogs.values()))):
                self._drop(kept.run_id, "later programs had other tools, and few lists of tools are kept")

    def lines(self, run_id: str, mask: Mask) -> Iterator[bytes] | None:
        """Return the encoded lines of a run, masked; None if it is not kept. See `why_not`."""
        kept = self._runs.get(run_id)
        return None if kept is None else kept.encoded(mask)

    def why_not(self, run_id: str) -> str:
        """Return the reason why a run is not kept, as a part of a sentence; empty if it is not known."""
        return self._reasons.get(run_id, "" if self.max_bytes else "audit.keepRecordingBytes is 0")

    def add(self, kept: KeptRecording, size: int) -> None:
        """Count the size of a new line."""
        self._size += size
        kept.size += size
        if kept.size > self.max_bytes:
            self._drop(kept.run_id, f"it took more than audit.keepRecordingBytes ({self.max_bytes})")
        elif self._size > self.max_bytes:
            self._fit()

    def _fit(self) -> None:
        while self._size > self.max_bytes and self._runs:
            self._drop(next(iter(self._runs)), "later runs took the room; see audit.keepRecordingBytes")

    def _drop(self, run_id: str, why: str) -> None:
        kept = self._runs.pop(run_id)
        self._size -= kept.size
        others = self._catalogs[id(kept.catalog)]
        others.remove(kept)
        if not others:
            del self._catalogs[id(kept.catalog)]
        kept.drop()
        self._reasons[run_id] = why
        while len(self._reasons) > MAX_REASONS:
            self._reasons.popitem(last=False)


class KeptRecording:
    """The lines of one run, not masked."""

    def __init__(self, owner: KeptRecordings, run_id: str, catalog: object, tools: int) -> None:
        self.run_id = run_id
        self.catalog: object = catalog
        self.tools = tools
        self.size = 0
        self._owner = owner
        self._lines: list[Line | LazyLine] = []
        self._dropped = False

    def __repr__(self) -> str:
        return f"<KeptRecording of {self.run_id[:12]}: {len(self._lines)} lines>"

    def append(self, line: Line | LazyLine) -> None:
        if not self._dropped:
            self._lines.append(line)
            self._owner.add(self, 0 if callable(line) else size_of(line))

    def drop(self) -> None:
        self._dropped = True
        self._lines.clear()
        self.catalog = None

    def encoded(self, mask: Mask) -> Iterator[bytes]:
        for line in list(self._lines):
            yield encode(mask.line(line() if callable(line) else line))


# The folder of `serve --record`: a file for each run, bounded by number and by bytes. The oldest files are removed.


SUFFIX: Final = ".jsonl"

_LOOK: Final = 20
"""Number of new files after which the folder is looked at, to remove the oldest ones."""

_RUN: Final = re.compile(r"run_[A-Za-z0-9_-]{8,100}")


class RecordingFolder:
    """The files of runs in one folder.

    Args:
        max_files, max_bytes: limits of all files. The folder is looked at when some new files were created, or many
            bytes were written, so it may have a few more. One file has at most a quarter of the bytes.
    """

    def __init__(self, writer: RecordingWriter, folder: Path, *, max_files: int, max_bytes: int) -> None:
        self._writer = writer
        self._folder = folder
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._has_looked = False
        self._new_files = self._new_bytes = 0
        """Files and bytes since the folder was looked at. Only the thread of the writer uses them."""

    def __repr__(self) -> str:
        return f"<RecordingFolder {self._folder}>"

    def begin(self, run_id: str) -> RecordingFile | None:
        """Return the file of a new run; None if its id cannot be the name of a file."""
        path = path_of(self._folder, run_id)
        if path is None:
            return None
        return RecordingFile(
            self._writer, path, on_open=self._created, on_write=self._written, max_bytes=self._max_bytes // 4
        )

    def reopen(self, run_id: str) -> RecordingFile | None:
        path = path_of(self._folder, run_id)
        if path is None or not path.is_file():
            return None
        return RecordingFile(self._writer, path, reopen=True, on_write=self._written, max_bytes=self._max_bytes // 4)

    def read(self, run_id: str) -> bytes | None:
        """Return the recording of a run; None if there is none. Raises `OSError`."""
        path = path_of(self._folder, run_id)
        return None if path is None or not path.is_file() else path.read_bytes()

    def _created(self) -> None:
        # Looking at a thousand files takes milliseconds.
        self._new_files += 1
        if not self._has_looked or self._new_files >= min(_LOOK, self._max_files // 10):
            self._remove_oldest()

    def _written(self, size: int) -> None:
        self._new_bytes += size
        if self._new_bytes > self._max_bytes // 8:
            self._remove_oldest()

    def _remove_oldest(self) -> None:
        self._has_looked = True
        self._new_files = self._new_bytes = 0
        found = []
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                if _is_recording(entry.name) and entry.is_file(follow_symlinks=False):
                    about = entry.stat(follow_symlinks=False)
                    found.append((about.st_mtime_ns, about.st_size, entry.path))
        found.sort(reverse=True)
        size = 0
        for count, (_, each, path) in enumerate(found):
            size += each
            if count and (count >= self._max_files or size > self._max_bytes):
                with suppress(OSError):
                    os.unlink(path)


def use_folder(folder: Path) -> None:
    """Create a folder for recordings, with mode 0700, if it is not there. Raises `OSError` if it cannot be used."""
    make_private_folder(folder)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "it is not a folder", str(folder))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "this user cannot write in it", str(folder))


def path_of(folder: Path, run_id: str) -> Path | None:
    """Return the path of the recording of a run; None if the id cannot be the name of a file."""
    return folder / f"{run_id}{SUFFIX}" if _RUN.fullmatch(run_id) else None


def _is_recording(name: str) -> bool:
    return name.endswith(SUFFIX) and _RUN.fullmatch(name.removesuffix(SUFFIX)) is not None


# The recorder of one run: its methods are called by the driver, and write lines.
#
# A run is recorded in memory, in a file, or both. No method waits, except for `suspended` and `checkpoint` with a file:
# another process may continue the run immediately afterwards, and appends to the same file.


class Recorder:
    """The recorder of a run.

    Args:
        file: the file of the run, if there is one.
        kept: the place in memory, if there is one.
        taken_over: the first line of a process that continues the run. It is written with the first other line.
    """

    def __init__(
        self, file: RecordingFile | None, kept: KeptRecording | None, *, taken_over: recorded.TakenOver | None = None
    ) -> None:
        self._file = file
        self._places = [each for each in (kept, file) if each is not None]
        self._taken_over = taken_over
        self._ended = False
        self._notes: list[str] = []

    def __repr__(self) -> str:
        return f"<Recorder: {self._places}>"

    def add(self, line: Line | LazyLine) -> None:
        if self._ended:
            return
        if self._taken_over is not None:
            first, self._taken_over = self._taken_over, None
            self.add(first)
        for place in self._places:
            place.append(line)

    def clock(self, readings: Readings) -> None:
        self.add(recorded.Clock(readings.wall, readings.monotonic, readings.lost))

    def requests(self, requests: Sequence[RequestMessage]) -> None:
        if requests:
            self.add(recorded.Requests(tuple(requests)))

    def turn(self, batch: Sequence[Completion], elapsed_ms: float) -> None:
        """Record a batch before it is delivered."""
        self.add(recorded.Turn(elapsed_ms, tuple(map(_completed, batch))))

    async def suspended(self, reason: str, snapshot: bytes, *, durable: bool) -> None:
        """Record a suspension, before it is stored.

        Args:
            durable: True if another process may continue the run.
        """
        self.add(recorded.Suspended(reason, await self._digest(snapshot, durable=durable)))
        if self._file is not None:
            self._file.close()
            if durable:
                await anyio.to_thread.run_sync(self._file.flush)

    async def checkpoint(self, snapshot: bytes) -> None:
        """Record a checkpoint, before it is stored."""
        if self._file is not None:
            self.add(recorded.Checkpoint(await self._digest(snapshot, durable=True)))
            await anyio.to_thread.run_sync(self._file.flush)

    async def _digest(self, snapshot: bytes, *, durable: bool) -> str:
        if self._file is None or not durable:
            return ""
        return await anyio.to_thread.run_sync(snapshot_digest, snapshot)

    def resumed(self, elapsed_ms: float) -> None:
        self.add(recorded.Resumed(elapsed_ms))

    def noted(self, notes: Sequence[str]) -> None:
        """Remember the notes of an answer for the end."""
        self._notes.extend(notes)

    def end(self, end: recorded.End) -> None:
        """Record the end of the run, with the notes of all answers. Only the first end counts."""
        if not self._ended:
            self.add(replace(end, notes=(*self._notes, *end.notes)))
            self.leave()

    def leave(self) -> None:
        """Record nothing more: the run has ended, or another process has it."""
        self._ended = True
        if self._file is not None:
            self._file.close()


def snapshot_digest(snapshot: bytes) -> str:
    return hashlib.sha256(snapshot).hexdigest()


def _completed(end: Completion) -> recorded.Completed:
    error = end.error
    if error is None:
        return recorded.Completed(end.id, end.value)
    return recorded.Completed(end.id, None, recorded.RecordedError(error.name, error.message, error.code, error.data))


@contextmanager
def open_recordings(
    settings: AuditSettings, redactor: Redactor, *, keeps: bool, file: Path | None
) -> Iterator[Recordings | None]:
    """Record runs for the duration of the context. Leaving writes what still has to be written.

    Args:
        keeps: True to keep recordings in memory, for a process that terminals can ask.
        file: the file for the first run.

    Returns:
        None if no runs are recorded.
    """
    kept = KeptRecordings(settings.keep_recording_bytes if keeps else 0)
    mask = MaskSource(lambda: redactor.named_secrets)
    if file is None and settings.recordings is None:
        yield None if not kept.max_bytes else Recordings(__version__, kept, mask)
        return
    with RecordingWriter(mask) as writer:
        folder = None
        if settings.recordings is not None:
            folder = RecordingFolder(
                writer,
                Path(settings.recordings),
                max_files=settings.recording_files,
                max_bytes=settings.recording_bytes,
            )
            try:
                use_folder(Path(settings.recordings))
            except OSError as error:
                log.error("audit.recordings: the folder %s cannot be used: %s", settings.recordings, error.strerror)
                folder = None
        yield Recordings(__version__, kept, mask, folder, None if file is None else RecordingFile(writer, file))
