"""Replays of recordings that are written by hand: answers, their order, and the first difference in words."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from msgspec.json import encode

from codemode_mcp.audit.recordings import format as lines
from codemode_mcp.audit.recordings.format import Recording
from codemode_mcp.base.errors import ProgramError
from codemode_mcp.extensions.program_tools.replay import player
from codemode_mcp.extensions.program_tools.replay.ending import Replayed
from codemode_mcp.extensions.program_tools.replay.replay import Options, OtherProgram, replay
from codemode_mcp.program.inspection import SourceMap
from codemode_mcp.program.positions import Positions
from codemode_mcp.program.typescript import Transformed
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.messages import Load, Timer
from tests.extensions.program_tools.replay.written import asked, completed, delivered, said, written
from tests.values import replace

pytestmark = pytest.mark.anyio

SAY = "const say = async (text) => unwrap(await MCP.echo.say({ text }));"
BOTH = f"{SAY} return await Promise.all([say('a'), say('b')])"


def two_calls() -> Recording:
    """Calls whose ends come in the other order."""
    return written(
        BOTH,
        asked(said(1, "a"), said(2, "b")),
        delivered(10, (2, "B")),
        delivered(20, (1, "A")),
        end=completed(["A", "B"]),
    )


async def no_typescript(source: str) -> Transformed:
    raise AssertionError(source)


async def run(engine: Engine, recording: Recording, code: str | None = None, **options: Any) -> Replayed:
    other = None if code is None else OtherProgram(code, "javascript")
    return await replay(engine, recording, no_typescript, other, Options(**options))


async def test_the_recorded_program_gets_the_recorded_ends_in_their_order(engine: Engine) -> None:
    order = "const got = []; const ask = async (t) => { got.push(unwrap(await MCP.echo.say({ text: t }))) };"
    recording = written(
        f"{order} await Promise.all([ask('a'), ask('b')]); return got",
        *two_calls().steps,
        end=completed(["B", "A"]),
    )
    done = await run(engine, recording)
    assert (done.divergence, done.outcome.value) == (None, ["B", "A"])


async def test_a_call_with_other_arguments_is_named_with_the_difference(engine: Engine) -> None:
    recording = written(
        f"{SAY} return [await say('a'), await say('c')]",
        asked(said(1, "a")),
        delivered(10, (1, "A")),
        asked(said(2, "b")),
        delivered(20, (2, "B")),
        end=completed(["A", "B"]),
    )
    done = await run(engine, recording)
    assert str(done.divergence) == (
        "call 2 of the program, mcp:echo:say, has other arguments than in the recording\n"
        '  text: recorded "b", now "c"\n'
        "  at cell.js:1:42"
    )
    assert done.outcome.status == "failed"


async def test_an_end_that_differs_from_the_recorded_one_is_named(engine: Engine) -> None:
    recording = written("return { items: [1, 2], name: 'x' }", end=completed({"items": [1, 3], "name": "x"}))
    done = await run(engine, recording)
    assert str(done.divergence) == (
        "the program ends with another value than in the recording\n  items[1]: recorded 3, now 2"
    )


async def test_a_program_that_leaves_out_a_recorded_call_differs(engine: Engine) -> None:
    recording = written("return 1", asked(said(1, "a")), delivered(5, (1, "A")), end=completed(1))
    done = await run(engine, recording)
    assert str(done.divergence) == (
        'the program has ended without a call of the recorded run\n  mcp:echo:say with {"text":"a"}'
    )


async def test_another_program_gets_the_recorded_answers_whenever_it_asks(engine: Engine) -> None:
    code = f"{SAY} const a = await say('a'); const b = await say('b'); return {{ a, b }}"
    done = await run(engine, two_calls(), code)
    assert (done.divergence, done.outcome.value, done.unused) == (None, {"a": "A", "b": "B"}, ())


async def test_another_program_may_not_call_what_is_not_recorded(engine: Engine) -> None:
    done = await run(engine, two_calls(), "return [await MCP.echo.say({ text: 'a' }), await MCP.echo.shout({})]")
    assert str(done.divergence) == (
        "call 2 of the program, mcp:echo:shout, is not in the recording; the next call there is mcp:echo:say\n"
        "  at cell.js:1:50"
    )
    assert [each.identity.given for each in done.unused] == ['{"text":"b"}']
    again = await run(engine, two_calls(), f"{SAY} await say('a'); return await say('a')")
    assert again.divergence is not None
    assert again.divergence.differences == ('text: recorded "b", now "a"',)


async def test_a_loose_replay_answers_by_the_tool_alone(engine: Engine) -> None:
    code = f"""
    {SAY}
    const found = [await say("x"), await say("y")];
    const third = await say("z").catch((error) => error.message);
    return [...found, third];
    """
    done = await run(engine, two_calls(), code, loose=True)
    third = "mcp:echo:say: the recording has no further answer of this tool"
    assert (done.divergence, done.outcome.value) == (None, ["A", "B", third])


async def test_another_program_has_its_own_timers_values_and_look_ups(engine: Engine) -> None:
    recording = written(
        "return await load('kept')",
        asked(Load(1, "kept"), Timer(2, 1)),
        lines.Turn(3, (lines.Completed(1, '["old"]'),)),
        lines.Turn(4, (lines.Completed(2, "null"),)),
        end=completed("old"),
    )
    code = """
    const began = performance.now();
    const late = new Promise((resolve) => setTimeout(() => resolve("late"), 3600_000));
    const first = await Promise.race([late, new Promise((resolve) => setTimeout(() => resolve("early"), 20))]);
    const before = await load("kept");
    await store("kept", "new");
    const found = await API.list("mcp/");
    const cleared = setTimeout(() => text("never"), 1);
    clearTimeout(cleared);
    const last = await late;
    return [first, before, await load("kept"), found.files.length, last, performance.now() - began >= 3600_000];
    """
    done = await run(engine, recording, code)
    assert (done.outcome.value, done.outcome.outputs) == (["early", "old", "new", 2, "late", True], ())


async def test_times_and_random_numbers_are_the_recorded_ones(engine: Engine) -> None:
    code = "const now = Date.now(); return [now, Math.random(), performance.now()]"
    clock = lines.Clock(wall=((1_700_000_000_123_000_000, 1),), monotonic=((5_000_000, 1), (7_500_000, 1)))
    first = await run(engine, written(code, clock))
    assert first.outcome.value[0] == 1_700_000_000_123
    assert first.outcome.value[2] == 1.5 + 2.5
    assert first.outcome.value == (await run(engine, written(code, clock))).outcome.value


async def test_an_error_names_the_line_of_the_author_without_a_compiler(engine: Engine) -> None:
    recording = written("throw new Error('typed')")
    source = Positions("typescript", 3, "", SourceMap("AAEA", 3, 0, ()), None)
    start = structs.replace(recording.start, positions=encode(source).decode())
    done = await run(engine, replace(recording, start=start))
    assert done.outcome.error == "Error: typed\n    at cell.ts:3:1"


async def test_a_recording_that_was_cut_ends_where_it_ends(engine: Engine) -> None:
    recording = written(f"text('before'); {BOTH}", asked(said(1, "a"), said(2, "b")), delivered(10, (2, "B")))
    done = await run(engine, recording)
    assert (done.outcome.code, done.outcome.error) == ("aborted", "the recording ends here, before its program does")
    assert [each["text"] for each in done.outcome.outputs] == ["before"]


async def test_a_run_that_was_cancelled_ends_as_it_did(engine: Engine) -> None:
    cancelled = lines.End("failed", None, error="the program was cancelled", code="aborted")
    recording = written(
        "await new Promise((resolve) => setTimeout(resolve, 1000)); return 1", asked(Timer(1, 1000)), end=cancelled
    )
    done = await run(engine, recording)
    assert (done.divergence, done.outcome.error) == (None, "the program was cancelled")


async def test_a_damaged_recording_is_refused(engine: Engine) -> None:
    with pytest.raises(ProgramError, match="request 7 ends, but it was never made"):
        await run(engine, written("return 1", delivered(1, (7, "x"))))
    broken = written("return 1")
    broken = replace(broken, catalog=lines.CatalogText("", "{}"))
    with pytest.raises(ProgramError, match="the recording is damaged"):
        await run(engine, broken)


async def test_another_program_that_polls_without_end_fails(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "MAX_OTHER_TURNS", 100)
    code = "while (true) await new Promise((done) => setTimeout(done, 0));"
    done = await run(engine, two_calls(), code)
    assert done.outcome.code == "timeout"
    assert "times for timers" in done.outcome.error


@pytest.mark.parametrize("started", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"])
async def test_a_recording_of_a_distant_time_is_replayed(engine: Engine, started: str) -> None:
    recording = written("return new Date().getFullYear() > 0", end=completed(True))
    opening = structs.replace(recording.opening, started=started)
    done = await run(engine, replace(recording, opening=opening))
    assert done.divergence is None
