"""The recordings of runs, as the configuration and the options of commands want them."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from codemode_mcp import __version__
from codemode_mcp.audit.recordings.recordings import KeptRecordings, MaskSource, RecordingFolder, Recordings, use_folder
from codemode_mcp.audit.recordings.writer import RecordingFile, RecordingWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from codemode_mcp.audit.redaction import Redactor
    from codemode_mcp.base.settings import AuditSettings

log = logging.getLogger("codemode_mcp.audit.recordings")


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
