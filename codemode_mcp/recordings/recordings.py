"""The recordings of a process: in memory, in the folder of `serve --record`, or in the file of `run --record`."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from codemode_mcp.recordings.format import FORMAT, Opening, TakenOver
from codemode_mcp.recordings.masking import Mask
from codemode_mcp.recordings.recorder import Recorder, snapshot_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from codemode_mcp.recordings.folder import RecordingFolder
    from codemode_mcp.recordings.format import CatalogText
    from codemode_mcp.recordings.kept import KeptRecordings
    from codemode_mcp.recordings.writer import RecordingFile


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
