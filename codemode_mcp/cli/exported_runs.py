"""The recording of a run, from the files of `serve --record` or from the process that has it in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemode_mcp.cli import recording_files
from codemode_mcp.cli.messages import stop_line
from codemode_mcp.cli.run_lookup import find_run, recording_folder

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class ExportedRun:
    """The recording of a run.

    Attributes:
        run_id: the whole id of the run.
        path: its file; None if it was in the memory of a process.
    """

    run_id: str
    data: bytes
    path: Path | None


def exported_run(run: str, config: str | None, folder: Path | None = None) -> ExportedRun:
    """Return the recording of a run. End the command if there is none.

    Args:
        run: the id of a run, or its unique beginning.
        config: only processes that serve this configuration; None for all.
        folder: the folder of `serve --record`; None for the configured one.
    """
    folder = recording_folder(config) if folder is None else folder
    path = None if folder is None else recording_files.find_in_folder(folder, run)
    if path is not None:
        return ExportedRun(path.stem, path.read_bytes(), path)
    endpoint, answer = find_run(run, config)
    run_id = answer["run"]["id"]
    if endpoint is None:
        stop_line(
            1,
            f"run {run_id} is in a store, and no running process has its recording; to record programs in files, "
            "set audit.recordings, or start the server with serve --record DIR",
        )
    return ExportedRun(run_id, recording_files.fetch(endpoint, run_id), None)
