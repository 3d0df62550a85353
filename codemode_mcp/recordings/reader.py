"""The reading of recordings. Pure, apart from `read_recording`.

A recording may come from another machine, so nothing in it is trusted: every line is decoded by its declared form, and
sizes are limited.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from codemode_mcp.errors import ProgramError
from codemode_mcp.recordings.format import (
    FORMAT,
    CatalogText,
    Checkpoint,
    Clock,
    End,
    Incomplete,
    Line,
    Opening,
    Requests,
    Start,
    Suspended,
    TakenOver,
    Turn,
)
from codemode_mcp.strict_json import ascii_json, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

MAX_BYTES: Final = 1024 * 1024 * 1024
"""Maximum bytes of a file that is read."""

MAX_LINE: Final = 128 * 1024 * 1024
"""Maximum bytes of one line."""

MAX_LINES: Final = 5_000_000

NO_END: Final = "the recording ends before its program does: the process was killed, or the program was still running"
NO_REST: Final = "the last line of the recording is not complete and was left out"


class NotReadable(Exception):
    """An error for a file that is no recording, or that is damaged. The message is for the user."""


class OtherFormat(NotReadable):
    """An error for a recording in the format of another version."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording that was read.

    Attributes:
        start: the text that was run.
        steps: what happened after `start`, in order, without the lines that another process has undone.
        end: None if the program did not end.
        notes: sentences about lines that are missing.
    """

    opening: Opening
    catalog: CatalogText
    start: Start
    steps: tuple[Line, ...]
    end: End | None = None
    notes: tuple[str, ...] = ()


def encode(line: Line) -> bytes:
    """Return a line of the file, with its line end.

    Raises:
        ProgramError: `snapshot_limit_exceeded`, the line is nested too deep.
    """
    try:
        return msgspec.json.encode(line) + b"\n"
    except (UnicodeEncodeError, OverflowError):
        # Programs and errors may have lone surrogates, which UTF-8 cannot encode. Values may have long integers.
        return ascii_json(msgspec.to_builtins(line)).encode() + b"\n"


def decode(line: bytes) -> Line:
    """Return the line of a text.

    Raises:
        NotReadable: the text does not have the form of a line.
    """
    try:
        # Not by `msgspec.json`, which refuses lone surrogates.
        raw = parse_json(line.decode())
        if isinstance(raw, dict) and raw.get("kind") == "recording" and raw.get("format") != FORMAT:
            raise OtherFormat(
                f"it was written in format {str(raw.get('format'))[:20]}, and this version of codemode-mcp reads "
                f"format {FORMAT}; use the version that has written it"
            )
        found: Line = msgspec.convert(raw, Line)
    except (msgspec.MsgspecError, ValueError, RecursionError, TypeError, ProgramError) as error:
        raise NotReadable(f"a line is damaged ({type(error).__name__})") from None
    return found


def read_recording(path: Path) -> Recording:
    """Return the recording in a file.

    Raises:
        NotReadable: the file is no recording, is damaged or too large.
        OSError: the file cannot be read.
    """
    # Opening a pipe would wait for a writer.
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise NotReadable("it is not a regular file")
        if about.st_size > MAX_BYTES:
            raise NotReadable(f"it has {about.st_size} bytes, more than {MAX_BYTES}")
        return recording_of(iter(partial(file.readline, MAX_LINE + 1), b""))


def recording_of(texts: Iterable[bytes]) -> Recording:
    """Return the recording of lines, each with its line end. A last line without a line end is left out.

    Raises:
        NotReadable: the lines are no recording, or are damaged.
    """
    notes: list[str] = []
    lines = list(_lines(texts, notes))
    if not lines:
        raise NotReadable("it has no whole line")
    opening = lines[0]
    if not isinstance(opening, Opening):
        raise NotReadable("its first line does not describe a recording")
    catalog: CatalogText | None = None
    start: Start | None = None
    end: End | None = None
    steps: list[Line] = []
    for line in lines[1:]:
        match line:
            case Opening():
                raise NotReadable("it has two recordings; a file has one run")
            case CatalogText():
                catalog = catalog or line
            case Start():
                if any(isinstance(each, Turn) for each in steps):
                    raise NotReadable("its program starts a second time")
                start, steps = line, []
            case TakenOver():
                steps = [*_kept(steps, line), line]
                end = None
            case Incomplete():
                notes.append(line.why)
            case End():
                end = line
            case _:
                steps.append(line)
    if catalog is None or start is None:
        raise NotReadable("it ends before its program starts")
    if end is None:
        notes.append(NO_END)
    return Recording(opening, catalog, start, tuple(steps), end, tuple(dict.fromkeys(notes)))


def _lines(texts: Iterable[bytes], notes: list[str]) -> Iterator[Line]:
    for number, text in enumerate(texts, 1):
        if not text.endswith(b"\n"):
            if len(text) > MAX_LINE:
                raise NotReadable(f"line {number}: it has more than {MAX_LINE} bytes")
            notes.append(NO_REST)
            return
        if number > MAX_LINES:
            raise NotReadable(f"it has more than {MAX_LINES} lines")
        try:
            yield decode(text)
        except NotReadable as error:
            if number == 1 and not isinstance(error, OtherFormat):
                raise NotReadable("it is no recording: its first line does not describe one") from None
            raise NotReadable(f"line {number}: {error}") from None


def _kept(steps: list[Line], taken: TakenOver) -> list[Line]:
    """Return the steps up to the state from which another process has continued the run."""
    for index in range(len(steps) - 1, -1, -1):
        step = steps[index]
        if isinstance(step, Suspended | Checkpoint) and step.snapshot == taken.snapshot:
            return steps[: index + 1]
    raise NotReadable("another process has continued the run from a state that is not in the recording")


def requested(recording: Recording) -> int:
    """Return the number of nested calls in a recording."""
    asked = (each for step in recording.steps if isinstance(step, Requests) for each in step.requests)
    return sum(each.__struct_config__.tag in _CALLS for each in asked)


_CALLS: Final = frozenset({"call", "call_by_id", "namespace"})

__all__ = [
    "MAX_BYTES",
    "MAX_LINE",
    "Clock",
    "NotReadable",
    "Recording",
    "decode",
    "encode",
    "read_recording",
    "recording_of",
    "requested",
]
