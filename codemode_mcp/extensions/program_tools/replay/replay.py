"""The replay of a recording: of the recorded program, or of another one with the recorded answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import msgspec
from msgspec import Struct, field
from msgspec.structs import replace as with_fields

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.settings import GIB, MIB, CodeModeSettings, Language
from codemode_mcp.catalog.serialize import read_catalog
from codemode_mcp.extensions.program_tools.replay import ending
from codemode_mcp.extensions.program_tools.replay.player import TURN_SECONDS, Matching, Part, Restores, play
from codemode_mcp.extensions.program_tools.replay.script import script_of
from codemode_mcp.program.positions import Positions
from codemode_mcp.program.preflight import uses_intl
from codemode_mcp.program.prepare import Cell, Preparer, Transform
from codemode_mcp.program.time_zones import named_zones
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.runs.calls.host_calls import answer
from codemode_mcp.runs.calls.outcome import CallContext
from codemode_mcp.runs.run_recording import RecentResults
from codemode_mcp.sandbox.messages import Completion, Lookup, check_output, start_message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from codemode_mcp.audit.recordings.format import Recording
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.saved_programs.compiling import CompiledProgram
    from codemode_mcp.catalog.toolset import ProgramSet
    from codemode_mcp.sandbox.engine import Engine

SEED_BYTES = 32

MIN_MEMORY, MAX_MEMORY = MIB, GIB
"""Limits of the memory of a program, whatever a recording says. They are those of `memoryLimitBytes`."""

STOPPED_SECONDS = 1.0
"""Maximum seconds of a turn in the replay of a program that was stopped while it computed."""


class OtherProgram(Struct, frozen=True):
    """A program that gets the answers of a recording of another one.

    Attributes:
        args: the value of `args` in the program; None for those of the recorded run.
    """

    source: str
    language: Language | None = None
    args: tuple[str, ...] | None = None


class Options(Struct, frozen=True):
    """Options of a replay.

    Attributes:
        loose: match calls by their tool alone, whatever their arguments are.
        restores: see `player.Restores`.
        programs: texts of saved programs to use instead of the recorded ones, by their ids. A recording has the texts
            that its run has used.
        shown: the saved programs that the program sees; None for those of the recorded catalog.
        turn_seconds: maximum seconds of one turn.
        same_times: give another program the recorded times from its beginning. It is a version of the recorded one.
    """

    loose: bool = False
    restores: Restores = "never"
    programs: Mapping[str, CompiledProgram] = field(default_factory=dict)
    shown: ProgramSet | None = None
    turn_seconds: float = TURN_SECONDS
    same_times: bool = False


_DEFAULT = Options()


async def replay(
    engine: Engine,
    recording: Recording,
    transform: Transform,
    other: OtherProgram | None = None,
    options: Options = _DEFAULT,
) -> ending.Replayed:
    """Run the program of a recording again, with the recorded answers, times and random numbers.

    Args:
        transform: compiles TypeScript, where that is needed.
        other: the program to run instead.

    Raises:
        ProgramError: the recording is damaged, or the other program cannot run.
    """
    start, end = recording.start, recording.end
    try:
        script = script_of(recording)
        catalog = await anyio.to_thread.run_sync(read_catalog, recording.catalog.text)
        if options.shown is not None:
            catalog = catalog.with_tools(catalog.toolset.with_programs(options.shown))
        namespaces = ending.namespaces_of(start.namespaces, catalog)
        began = _nanoseconds(recording.opening.started)
        seed = bytes.fromhex(start.seed)
        if len(seed) != SEED_BYTES:
            raise ValueError("its seed has another length")
        for output in () if end is None else end.outputs:
            check_output(output)
    except (ValueError, TypeError, LookupError, RecursionError, ProgramError) as error:
        raise ProgramError("invalid_input", f"the recording is damaged: {error}") from None
    exact = other is None and not options.loose and not options.programs
    memory_limit = min(max(start.memory_limit, MIN_MEMORY), MAX_MEMORY)
    settings = CodeModeSettings(memory_limit_bytes=memory_limit)
    form = await _form(recording, catalog, transform, other, settings)
    message = start_message(
        code=form.code,
        fallback=form.fallback,
        seed=seed,
        output_limit=start.output_limit,
        call_limit=start.call_limit,
        elapsed_ms=start.elapsed,
        file=form.file,
        lines=form.lines,
        label=form.label,
        zones=form.zones,
        args=form.args,
        namespaces=start.namespaces,
        saving=start.saving if other is None else None,
    )
    text = recording.opening.source if other is None else other.source
    needs_intl = uses_intl(text) or catalog.toolset.programs.use_intl(text)
    part = Part(
        engine.with_intl(catalog.manifest) if needs_intl else catalog.manifest,
        message,
        memory_limit,
        script.readings if other is None or options.same_times else None,
        began,
        start.elapsed,
    )
    context = CallContext("replay", ending.OWNER, Caller(ending.OWNER), catalog)
    results = RecentResults()
    look_up: Callable[[Lookup], Completion] = lambda lookup: answer(lookup, context, settings)  # noqa: E731
    matching = Matching(
        script, look_up, exact=exact, loose=options.loose, programs=options.programs, elapsed=start.elapsed
    )
    was_stopped = (exact or options.same_times) and end is not None and end.code in ending.STOPPED
    seconds = STOPPED_SECONDS if was_stopped else options.turn_seconds
    work = partial(play, engine, part, matching, results, restores=options.restores, seconds=seconds)
    played = await _on_guest_thread(engine, work)
    about = ending.About(text, form.positions, catalog, namespaces, settings, exact)
    done = ending.replayed(played, matching, results, about, end)
    masked = None if done.divergence is None else ending.masked_note(recording)
    return done if masked is None else with_fields(done, notes=(*done.notes, masked))


class _Form(Struct, frozen=True):
    """The form of the program in the start message."""

    code: str
    fallback: str | None
    positions: Positions
    file: str | None
    lines: str
    label: str | None
    zones: Mapping[str, Any]
    args: tuple[str, ...]


async def _form(
    recording: Recording,
    catalog: Catalog,
    transform: Transform,
    other: OtherProgram | None,
    settings: CodeModeSettings,
) -> _Form:
    start = recording.start
    if other is None:
        return _Form(
            start.code,
            start.fallback,
            _positions(recording),
            start.file,
            start.lines,
            start.label,
            start.zones,
            start.args,
        )

    async def members(_: object) -> Catalog:
        return catalog

    cell = Cell(other.source, other.language, Caller(ending.OWNER), args=())
    preparer = Preparer(transform, settings, anyio.current_time)
    prepared = await preparer.prepare(
        cell, hook=None, members=members, note=lambda _: None, deadline=anyio.current_time() + TURN_SECONDS
    )
    program = prepared.program
    args = start.args if other.args is None else other.args
    zones = await anyio.to_thread.run_sync(named_zones, program.code) if "timeZone" in program.code else {}
    positions = program.positions
    return _Form(program.code, program.fallback, positions, positions.file, positions.guest_lines, None, zones, args)


def _positions(recording: Recording) -> Positions:
    start = recording.start
    if not start.positions:
        return Positions(recording.opening.language, len(start.code.splitlines()), start.code, None, None)
    try:
        found = msgspec.json.decode(start.positions, type=Positions)
        return msgspec.structs.replace(found, code=start.code)
    except (ValueError, msgspec.MsgspecError):
        raise ProgramError("invalid_input", "the recording is damaged: the positions of its program") from None


async def _on_guest_thread(engine: Engine, work: Callable[[], Any]) -> Any:
    """Return the result of work on a thread of the engine, whose stack is large enough for guests."""
    future = engine.threads.submit(work)
    return await anyio.to_thread.run_sync(future.result)


def _nanoseconds(moment: str) -> int:
    since = datetime.fromisoformat(moment) - datetime(1970, 1, 1, tzinfo=UTC)
    return max(0, since // timedelta(milliseconds=1)) * 1_000_000
