"""The recording of a run: all that its program got and asked for, in order, however it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.audit.recordings import format as recorded
from codemode_mcp.audit.recordings.format import Recording, read_recording, recording_of
from codemode_mcp.audit.recordings.masking import Mask
from codemode_mcp.audit.recordings.recordings import (
    MAX_CATALOGS,
    KeptRecordings,
    MaskSource,
    NotKept,
    RecordingFolder,
    Recordings,
    use_folder,
)
from codemode_mcp.audit.recordings.writer import RecordingWriter
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.runs.manager import Cell
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.messages import StartParts
from tests.runs.bench import CALLER, FakeClient, bench, ran
from tests.runs.test_questions import ASK, YES, AskingSource
from tests.waiting import refusal
from upstream_clients.testing import ScriptedSource, text_result

SECRET = "s3cret-value-1"


def kept(max_bytes: int = 1 << 20) -> Recordings:
    return Recordings("1.0", KeptRecordings(max_bytes), MaskSource(lambda: {SECRET: "github_TOKEN"}))


def exported(recordings: Recordings, run_id: str) -> Recording:
    return recording_of(recordings.export(run_id).splitlines(keepends=True))


def asked(recordings: Recordings, run_id: str) -> tuple[recorded.Question, recorded.Answer]:
    """Return the only question of a run, and its answer."""
    steps = exported(recordings, run_id).steps
    (question,) = [step for step in steps if isinstance(step, recorded.Question)]
    (answer,) = [step for step in steps if isinstance(step, recorded.Answer)]
    return question, answer


def end_of(recordings: Recordings, run_id: str) -> recorded.End:
    end = exported(recordings, run_id).end
    assert end is not None
    return end


@contextmanager
def in_folder(folder: Path, **limits: int) -> Iterator[Recordings]:
    mask = MaskSource(lambda: {SECRET: "github_TOKEN"})
    with RecordingWriter(mask) as writer:
        place = RecordingFolder(writer, folder, **{"max_files": 100, "max_bytes": 1 << 30, **limits})
        use_folder(folder)
        yield Recordings("1.0", KeptRecordings(0), mask, place)


def echo() -> ScriptedSource:
    return ScriptedSource("srv", {"echo": lambda arguments: text_result(json.dumps(arguments))})


def targets(step: recorded.Line) -> list[str]:
    assert isinstance(step, recorded.Requests)
    return [str(getattr(each, "target", type(each).__name__)) for each in step.requests]


async def test_a_recording_has_everything_that_a_program_asks_for_and_gets_in_order(engine: Engine) -> None:
    recordings = kept()
    code = """
        text(args[0]);
        const both = await Promise.all([MCP.srv.echo({n: 1}), MCP.srv.echo({n: 2})]);
        store('key', 5);
        await new Promise(done => setTimeout(done, 1));
        return [both.length, await load('key'), typeof Date.now()];
    """
    async with bench(engine, echo(), recordings=recordings) as it:
        outcome = await it.manager.execute(Cell(code, "javascript", CALLER, None, ("given",)))
    assert outcome.status == "completed", outcome.error
    found = exported(recordings, outcome.run_id)
    assert found.notes == ()
    assert (found.opening.run, found.opening.source, found.opening.args) == (outcome.run_id, code, ("given",))
    assert json.loads(found.catalog.text)["servers"][0]["name"] == "srv"
    asked = [each for step in found.steps if isinstance(step, recorded.Requests) for each in targets(step)]
    assert asked == ["mcp:srv:echo", "mcp:srv:echo", "Store", "Timer", "Load"]
    ends = [end for step in found.steps if isinstance(step, recorded.Turn) for end in step.completions]
    by_id = {end.id: end for end in ends}
    assert {json.loads(by_id[n].value or "")["content"][0]["text"] for n in (1, 2)} == {'{"n": 1}', '{"n": 2}'}
    assert [end.value for end in ends if end.id not in (1, 2)] == ["null", "null", "[5]"]
    assert any(isinstance(step, recorded.Clock) and step.wall for step in found.steps)
    assert found.end is not None
    assert found.end.value == outcome.value == [2, 5, "number"]
    assert found.end.outputs == ({"type": "text", "text": "given"},)


def test_a_start_line_has_every_part_of_the_start_message() -> None:
    names = {"elapsed_ms": "elapsed"}
    assert {names.get(each, each) for each in StartParts.__annotations__} <= set(recorded.Start.__struct_fields__)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("throw new Error('mine')", "internal_error"),
        ("await MCP.srv.echo({n: 1}); while (true);", "timeout"),
        ("await new Promise(() => 0)", "internal_error"),
    ],
)
async def test_a_failed_run_has_the_error_at_its_end(engine: Engine, code: str, error: str) -> None:
    recordings = kept()
    outcome = await ran(engine, code, echo(), recordings=recordings, timeout_ms=300)
    end = end_of(recordings, outcome.run_id)
    assert (end.status, end.code) == ("failed", error)
    assert end.error


async def test_a_program_that_the_engine_refuses_has_the_reason_at_its_end(engine: Engine) -> None:
    recordings = kept()
    async with bench(engine, echo(), recordings=recordings) as it:
        refused = await refusal(it.execute("return ("))
        (view,) = it.manager.operator.views()
    end = end_of(recordings, view.id)
    assert (end.code, end.error) == (refused.code, refused.message)


async def test_a_cancelled_run_has_an_end(engine: Engine) -> None:
    recordings = kept()
    async with bench(engine, echo(), recordings=recordings) as it:
        outcome = await it.execute("await yield_control(); return 1")
        await it.observe(outcome.run_id, cancel=True)
    end = end_of(recordings, outcome.run_id)
    assert end.code == "aborted"


async def test_refused_calls_are_recorded_with_their_errors(engine: Engine) -> None:
    recordings = kept()
    async with bench(engine, echo(), recordings=recordings, rules=PolicyRules(deny=("mcp:srv:echo",))) as it:
        outcome = await it.execute("try { await tools.call('mcp:srv:echo', {}) } catch (e) { return e.code }")
    found = exported(recordings, outcome.run_id)
    (turn,) = [step for step in found.steps if isinstance(step, recorded.Turn)]
    assert turn.completions[0].error is not None
    assert turn.completions[0].error.code == outcome.value


async def test_a_suspended_run_is_recorded_to_its_end(engine: Engine) -> None:
    recordings = kept()
    async with bench(engine, echo(), recordings=recordings) as it:
        outcome = await it.execute("text('1'); await yield_control('soon'); text('2'); return await MCP.srv.echo({})")
        assert outcome.status == "waiting"
        first = exported(recordings, outcome.run_id)
        assert first.end is None
        assert len(first.notes) == 1
        last = await it.observe(outcome.run_id)
    found = exported(recordings, outcome.run_id)
    kinds = [type(step).__name__ for step in found.steps if not isinstance(step, recorded.Clock)]
    assert kinds == ["Requests", "Suspended", "Resumed", "Turn", "Requests", "Turn"]
    assert found.end is not None
    assert [each["text"] for each in found.end.outputs] == ["1", "2"]
    assert last.status == "completed"


async def test_decisions_of_a_person_are_recorded(engine: Engine) -> None:
    recordings = kept()
    client = FakeClient("ask", replies=[{"action": "accept", "content": {"decision": "approve"}}])
    rules = PolicyRules(ask=("mcp:srv:echo",))
    async with bench(engine, echo(), recordings=recordings, rules=rules) as it:
        outcome = await it.execute("return await MCP.srv.echo({n: 1})", client=client)
    question, answer = asked(recordings, outcome.run_id)
    assert (question.call, question.tool, question.about) == (1, "mcp:srv:echo", "approval")
    assert (answer.call, answer.by) == (1, "client")


async def test_questions_of_servers_and_their_answers_are_recorded(engine: Engine) -> None:
    recordings = kept()
    outcome = await ran(engine, ASK, AskingSource(), client=FakeClient("ask", replies=[YES]), recordings=recordings)
    assert outcome.value == YES
    question, answer = asked(recordings, outcome.run_id)
    assert (question.tool, question.about) == ("mcp:asker:ask", "elicitation/create")
    assert json.loads(question.params)["message"] == "name?"
    assert (answer.by, json.loads(answer.result)) == ("client", YES)


async def test_the_same_program_sees_the_same_with_and_without_a_recording(engine: Engine) -> None:
    code = "const r = await MCP.srv.echo({n: 1}); return [r, Object.keys(globalThis).length, args]"
    plain = await ran(engine, code, echo())
    recorded_run = await ran(engine, code, echo(), recordings=kept())
    assert plain.value == recorded_run.value


async def test_secrets_are_masked_in_all_lines(engine: Engine) -> None:
    recordings = kept()
    source = ScriptedSource("srv", {"echo": lambda _: text_result(f"token {SECRET}")})
    code = f"""
        text('{SECRET}');
        const result = await MCP.srv.echo({{t: '{SECRET}'}});
        await load('{SECRET}');
        throw new Error(result.content[0].text);
    """
    outcome = await ran(engine, code, source, recordings=recordings)
    text = recordings.export(outcome.run_id).decode()
    assert SECRET not in text
    assert text.count("__SECRET_github_TOKEN__") >= 6
    assert exported(recordings, outcome.run_id).end is not None


async def test_memory_keeps_the_latest_runs_and_says_why_one_is_missing(engine: Engine) -> None:
    recordings = kept(40_000)
    source = ScriptedSource("srv", {"big": lambda _: text_result("x" * 15_000)})
    async with bench(engine, source, recordings=recordings) as it:
        runs = [(await it.execute("await MCP.srv.big(); return 1")).run_id for _ in range(4)]
        large = (await it.execute("for (let i = 0; i < 4; i++) await MCP.srv.big(); return 1")).run_id
        last = (await it.execute("return 1")).run_id
    assert exported(recordings, last).end is not None
    with pytest.raises(NotKept, match="later runs took the room"):
        recordings.export(runs[0])
    with pytest.raises(NotKept, match="it took more than"):
        recordings.export(large)
    with pytest.raises(NotKept, match=r"^$"):
        recordings.export("run_unknown")


async def test_memory_keeps_few_lists_of_tools(engine: Engine) -> None:
    recordings = kept()
    async with bench(engine, echo(), recordings=recordings) as it:
        first = (await it.execute("return 1")).run_id
        for _ in range(MAX_CATALOGS):
            it.sources["srv"].relist(*echo().view().tools)  # type: ignore[attr-defined]
            last = (await it.execute("return 1")).run_id
    assert exported(recordings, last).end is not None
    with pytest.raises(NotKept, match="later programs had other tools"):
        recordings.export(first)


async def test_a_folder_has_one_private_file_for_each_run_and_drops_the_oldest(engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir(mode=0o700)
    (folder / "notes.txt").write_text("not ours")
    with in_folder(folder, max_files=2) as recordings:
        async with bench(engine, echo(), recordings=recordings) as it:
            runs = [(await it.execute(f"return {number}")).run_id for number in range(4)]
    left = sorted(folder.glob("*.jsonl"))
    assert {each.name for each in left} == {f"{run}.jsonl" for run in runs[2:]}
    assert [each.stat().st_mode & 0o777 for each in left] == [0o600, 0o600]
    assert read_recording(folder / f"{runs[3]}.jsonl").end is not None
    assert (folder / "notes.txt").exists()


async def test_a_folder_is_bounded_by_bytes_while_programs_write(engine: Engine, tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    source = ScriptedSource("srv", {"big": lambda _: text_result("x" * 20_000)})
    with in_folder(folder, max_bytes=400_000) as recordings:
        async with bench(engine, source, recordings=recordings) as it:
            for _ in range(8):
                endless = (await it.execute("for (let i = 0; i < 20; i++) await MCP.srv.big(); return 1")).run_id
    sizes = {each.name: each.stat().st_size for each in folder.glob("*.jsonl")}
    assert sum(sizes.values()) < 500_000
    assert sizes[f"{endless}.jsonl"] < 110_000
    found = read_recording(folder / f"{endless}.jsonl")
    assert "it is larger than 100000 bytes" in found.notes[0]


async def test_a_recording_that_cannot_be_written_disturbs_nothing(engine: Engine, tmp_path: Path, caplog: Any) -> None:
    with in_folder(tmp_path / "recordings") as recordings:
        (tmp_path / "recordings").rmdir()
        async with bench(engine, echo(), recordings=recordings) as it:
            assert (await it.execute("return (await MCP.srv.echo({})).content.length")).value == 1
    assert "is not complete: No such file" in caplog.text


def test_a_mask_follows_secrets_that_become_known() -> None:
    known: dict[str, str] = {}
    source = MaskSource(lambda: dict(known))
    before = source()
    known[SECRET] = "github_login"
    assert before.text(SECRET) == SECRET
    assert source().text(SECRET) == "__SECRET_github_login__"
    assert source() is source()
    assert isinstance(source(), Mask)
    assert source().digest("x") == before.digest("x")
