"""The lines of a recording, and the rules for them. Pure.

A recording is a text file in UTF-8 with one JSON object in each line (JSON Lines). Each object has a member `kind`. The
order of the lines is the order of the events, and lines are only appended. So the file of a process that was killed is
a valid recording up to its last whole line.

The first lines are `recording`, `catalog` and `start`. If the engine refuses the first text of a program, a second
`start` follows: it has the text that was run. After a `start` or `turn`, the guest computes. It may read the clock
(`clock`), and it may ask for something (`requests`). Both lines come after the computation, in this order, and only if
there is something to write. Then the next `turn` delivers the ends of requests. The last line is `end`.

A run that was suspended has the line `suspended`, and `resumed` when it is restored. If a process dies, another process
continues the run from an earlier state and appends to the same file. Its first line is `taken_over`, with the digest of
the snapshot from which it continues. Everything between the `suspended` or `checkpoint` with this digest and
`taken_over` never happened, as far as the program is concerned. `read_recording` leaves these lines out.

Masking: a recording contains the texts as they were, except for the secret values of the configuration and of logins.
Each secret is replaced by a text such as `__SECRET_github_GITHUB_TOKEN__`, which is the same in every file. See
`masking`. For a text that was changed in this way, the line has a digest of the original text. The key of the digests
is random and is not stored. So digests show that two texts of one process were equal, but a secret cannot be guessed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.strict_json import Integer, Number, ascii_json, parse_json
from codemode_mcp.sandbox.messages import RequestMessage

FORMAT: Final = 1
"""The version of the format. A reader refuses any other version."""

Digest = Annotated[str, Meta(max_length=64, pattern="^[0-9a-f]*$")]
"""A digest in hexadecimal digits."""

Nanoseconds = Annotated[int, Meta(ge=0, le=2**63 - 1)]

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Record(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The base class of the objects in a recording. A JSON object has no other than the declared members."""


class Opening(Record, frozen=True, tag_field="kind", tag="recording"):
    """The first line of a file.

    Attributes:
        format: `FORMAT`.
        version: the version of codemode-mcp that has written the file.
        run: the id of the run.
        started: the time at which the run began, RFC 3339 in UTC.
        language: the language of the program as the client gave it.
        source: the program as the client sent it.
        args: the global `args` of the program.
    """

    format: Integer
    version: str
    run: str
    started: str
    language: Literal["javascript", "typescript"]
    source: str
    args: tuple[str, ...] = ()


class CatalogText(Record, frozen=True, tag_field="kind", tag="catalog"):
    """The tools that the program sees.

    Attributes:
        digest: the SHA-256 of the text; see `catalog.serialize.catalog_hash`. If secrets were masked in the text, it is
            a digest as of other masked texts.
        text: the text of `catalog.serialize.catalog_text`.
    """

    digest: Digest
    text: str


class Start(Record, frozen=True, tag_field="kind", tag="start"):
    """The start of the guest. The attributes are the arguments of `sandbox.messages.start_message`.

    Attributes:
        seed: the seed of the random numbers, in hexadecimal digits.
        memory_limit: bytes that the program may use.
        elapsed: milliseconds since the beginning of the run.
        lines, namespaces: JSON text.
        saving: the language and the text of a program that may propose to save itself.
        positions: JSON text of `program.positions`, without the program.
    """

    code: str
    fallback: str | None
    seed: Digest
    output_limit: Integer
    call_limit: Integer
    memory_limit: Integer
    elapsed: Number
    file: str | None = None
    lines: str = "null"
    label: str | None = None
    zones: dict[str, tuple[Integer, ...]] = {}
    args: tuple[str, ...] = ()
    namespaces: str = "[]"
    saving: tuple[str, str] | None = None
    positions: str = ""


class Clock(Record, frozen=True, tag_field="kind", tag="clock"):
    """The clock readings of the guest since the previous `start` or `turn`; see `sandbox.clock.Readings`.

    Attributes:
        wall: nanoseconds since 1970, each with the number of times that they were read one after another.
        monotonic: the same of the monotonic clock. If it was read only at the beginning of the turn, it is empty.
        lost: the number of readings that are not in the line.
    """

    wall: tuple[tuple[Nanoseconds, Count], ...] = ()
    monotonic: tuple[tuple[Nanoseconds, Count], ...] = ()
    lost: Count = 0


class Requests(Record, frozen=True, tag_field="kind", tag="requests"):
    """The requests of one turn of the guest, in order: calls, look-ups, stored values, timers.

    Attributes:
        requests: the messages of the guest; see `sandbox.messages`. `input` and `options` of a call are JSON text.
        digests: the digests of the original requests that were masked, by their ids.
    """

    requests: tuple[RequestMessage, ...]
    digests: tuple[tuple[Integer, Digest], ...] = ()


class RecordedError(Record, frozen=True, array_like=True):
    """An error that a program got for a request.

    Attributes:
        data: JSON text.
    """

    name: str
    message: str
    code: str
    data: str = "null"


class Completed(Record, frozen=True, array_like=True):
    """The end of one request.

    Attributes:
        id: the id of the request.
        value: the result as JSON text; null if there is an error.
        digest: the digest of the original value or error if it was masked.
    """

    id: Integer
    value: str | None
    error: RecordedError | None = None
    digest: Digest | None = None


class Turn(Record, frozen=True, tag_field="kind", tag="turn"):
    """The delivery of ends of requests to the guest.

    Attributes:
        elapsed: milliseconds since the beginning of the run.
        completions: the ends, in the order of their delivery. Timers and `yield_control()` have the value `null`.
    """

    elapsed: Number
    completions: tuple[Completed, ...]


class Question(Record, frozen=True, tag_field="kind", tag="question"):
    """A question of a server or of the policy, for the reader. A replay does not need it.

    Attributes:
        call: the id of the call.
        tool: the id of the tool.
        about: `approval`, or the method of the server's request.
        params: JSON text.
    """

    call: Integer
    tool: str
    about: str
    params: str = "null"


class Answer(Record, frozen=True, tag_field="kind", tag="answer"):
    """The answer to a question, for the reader.

    Attributes:
        by: the one who has answered: `client`, `terminal`, `page`, `policy`, ...; empty if it is not known, or if there
            is no answer.
        result: JSON text.
    """

    call: Integer
    by: str = ""
    result: str = "null"


class Suspended(Record, frozen=True, tag_field="kind", tag="suspended"):
    """The suspension of the run.

    Attributes:
        reason: `yield` or `pending_tools`.
        snapshot: the digest of the snapshot if a durable store has it.
    """

    reason: str
    snapshot: Digest = ""


class Checkpoint(Record, frozen=True, tag_field="kind", tag="checkpoint"):
    """A stored state of a run that continues. `snapshot`: the digest of its snapshot."""

    snapshot: Digest


class Resumed(Record, frozen=True, tag_field="kind", tag="resumed"):
    """The restoring of a suspended guest. `elapsed`: milliseconds since the beginning of the run."""

    elapsed: Number


class TakenOver(Record, frozen=True, tag_field="kind", tag="taken_over"):
    """The first line of another process that continues the run.

    Attributes:
        snapshot: the digest of the snapshot from which the process continues.
        version: the version of codemode-mcp of the process.
    """

    snapshot: Digest
    version: str


class Incomplete(Record, frozen=True, tag_field="kind", tag="incomplete"):
    """A notice that lines are missing from here on. `why`: a sentence for the user."""

    why: str


class End(Record, frozen=True, tag_field="kind", tag="end"):
    """The end of the run.

    Attributes:
        status: `completed` or `failed`.
        value: the return value as JSON data; null if there is none.
        outputs: all outputs, as `TurnReport.outputs`.
        dropped: characters of output that the guest has discarded.
        error: the message of a failed run; otherwise empty.
        code: the error code of a failed run.
        notes: the notes of all answers.
        elapsed: milliseconds since the beginning of the run.
    """

    status: Literal["completed", "failed"]
    value: Any = None
    outputs: tuple[dict[str, Any], ...] = ()
    dropped: Integer = 0
    error: str = ""
    code: str | None = None
    notes: tuple[str, ...] = ()
    elapsed: Number = 0


Line = (
    Opening
    | CatalogText
    | Start
    | Clock
    | Requests
    | Turn
    | Question
    | Answer
    | Suspended
    | Checkpoint
    | Resumed
    | TakenOver
    | Incomplete
    | End
)


# The reading of recordings.
#
# A recording may come from another machine, so nothing in it is trusted: every line is decoded by its declared form,
# and sizes are limited.


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


class Recording(Struct, frozen=True):
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
