"""Files with recordings, for `run --record` and `runs export`: finding, writing and describing them."""

from __future__ import annotations

import base64
import json
import os
import zlib
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from codemode_mcp.audit.recordings import format as recorded
from codemode_mcp.audit.recordings.masking import masked_names
from codemode_mcp.audit.recordings.recordings import SUFFIX
from codemode_mcp.cli.messages import say, say_line, stop, stop_line
from codemode_mcp.cli.serving_processes import find_run, recording_folder

if TYPE_CHECKING:
    from pathlib import Path

    from codemode_mcp.server.control.endpoints import Endpoint


_MIN_PREFIX: Final = 12
_MAX_MASKED: Final = 20


def make_way(path: Path) -> None:
    """Remove an earlier recording at a path. End the command if something else is there."""
    if path.is_dir():
        stop(2, f"{path} is a folder; name a file for the recording")
    if not path.parent.is_dir():
        stop(2, f"there is no folder {path.parent}; create it, or name another file for the recording")
    try:
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            first = file.readline(recorded.MAX_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        stop(1, f"cannot replace {path}: {error.strerror or error}; name another file for the recording")
    try:
        is_recording = isinstance(recorded.decode(first), recorded.Opening)
    except recorded.NotReadable:
        is_recording = False
    if not is_recording:
        stop(2, f"{path} exists and is not a recording, so it is not replaced; name another file")
    path.unlink()


def say_written(path: Path, *, quiet: bool) -> None:
    """Say what is in a recording that was written. Say so, too, if there is none."""
    if not path.exists():
        say("the program did not start, so there is no recording of it")
    elif not quiet:
        say(f"the recording is in {path}; only secrets of the configuration and of logins are masked in it")


def find_in_folder(folder: Path, run: str) -> Path | None:
    """Return the recording of a run in a folder; None if there is none. End the command if there are several.

    Args:
        run: the id of a run, or its beginning.
    """
    try:
        names = [each.name for each in os.scandir(folder)]
    except OSError:
        return None
    matches = [name for name in names if name == f"{run}{SUFFIX}"]
    if not matches and len(run) >= _MIN_PREFIX:
        matches = [name for name in names if name.startswith(run) and name.endswith(SUFFIX)]
    if len(matches) > 1:
        stop_line(1, f"several recordings in {folder} begin with {run!r}; give more of the id")
    return folder / matches[0] if matches else None


def fetch(endpoint: Endpoint, run_id: str) -> bytes:
    """Return the recording of a run from the process that has it. End the command if it has none."""
    from codemode_mcp.cli.serving_processes import ask_process
    from codemode_mcp.server.control.protocol import Request

    packed = bytearray()
    while True:
        answer = ask_process(endpoint, Request("export", run_id, after=len(packed)))
        packed += base64.b64decode(answer["piece"])
        if answer["last"]:
            return zlib.decompress(packed)


def write_private(path: Path, data: bytes) -> None:
    """Write a new file with mode 0600. End the command if that is not possible."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
    except OSError as error:
        stop_line(1, f"cannot write {path}: {error.strerror or error}; name another file with --output")


def describe(path: Path) -> None:
    try:
        found = recorded.read_recording(path)
        masked = masked_names(path.read_text("utf-8", "surrogatepass"))
    except (recorded.NotReadable, OSError) as error:
        stop_line(1, f"{path} cannot be read again: {error}")
    for line in described(found, masked):
        say_line(line)


def described(recording: recorded.Recording, masked: list[str]) -> list[str]:
    """Return sentences about what is in a recording. `masked`: the names of the secrets that were masked."""
    calls = recorded.requested(recording)
    answers = sum(isinstance(step, recorded.Answer) for step in recording.steps)
    looked = sum(len(step.requests) for step in recording.steps if isinstance(step, recorded.Requests)) - calls
    parts = [
        f"the program ({recording.opening.language}, {len(recording.opening.source)} characters)",
        f"the definitions of {_tools(recording)} tools",
        f"{calls} call{'s' * (calls != 1)} with arguments and results",
    ]
    if looked:
        parts.append(f"{looked} other requests, such as look-ups, stored values and timers")
    if answers:
        parts.append(f"{answers} answer{'s' * (answers != 1)} of people or clients")
    if recording.end is not None:
        parts.append("its output and its " + ("result" if recording.end.status == "completed" else "error"))
    if masked:
        shown = ", ".join(masked[:_MAX_MASKED]) + (", ..." if len(masked) > _MAX_MASKED else "")
        secrets = f"masked: {shown}"
    else:
        secrets = "masked: nothing, since no secret of the configuration is in it"
    return [
        f"it has: {'; '.join(parts)}",
        secrets,
        "not masked: all other data, also personal data in results; read the file before you give it away",
        *recording.notes,
    ]


def _tools(recording: recorded.Recording) -> int:
    try:
        servers = json.loads(recording.catalog.text)["servers"]
        return sum(len(each["tools"]) for each in servers)
    except (ValueError, LookupError, TypeError):
        return 0


class ExportedRun(Struct, frozen=True):
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
    path = None if folder is None else find_in_folder(folder, run)
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
    return ExportedRun(run_id, fetch(endpoint, run_id), None)
