"""Runs and their calls as the operator of the server sees them."""

from __future__ import annotations

import gc
import time
import tracemalloc

import pytest

from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.runs import takeover
from codemode_mcp.runs.calls.outcome import CallRecord
from codemode_mcp.runs.views import MAX_INPUT, MAX_RUN_CALLS, SHOWN_CALLS, Ledger, RunView, Track
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.messages import ToolCall
from tests.runs.bench import Bench, bench
from tests.waiting import answering, until
from upstream_clients.testing import ScriptedSource, SlowSource, text_result


def echo() -> ScriptedSource:
    return ScriptedSource("echo", {"say": lambda arguments: text_result(str(arguments.get("text")))})


def slow_source() -> SlowSource:
    return SlowSource("slow", {"get": lambda _: text_result("late")})


def view_of(it: Bench, run_id: str) -> RunView:
    view = it.manager.operator.view(run_id)
    assert view is not None
    return view


def the_one(views: list[RunView]) -> RunView:
    (view,) = views
    return view


async def test_a_run_is_listed_while_it_computes_while_it_waits_and_after_its_end(engine: Engine) -> None:
    slow = slow_source()
    async with bench(engine, slow, timeout_ms=200) as it:
        outcome = await it.execute("return await MCP.slow.get({ n: 1 })", caller=Caller("o", "http", "alice"))
        view = the_one(it.manager.operator.views())
        assert (view.id, view.state, view.kind, view.principal) == (outcome.run_id, "waiting", "http", "alice")
        assert view.expires_ms is not None
        assert 0 < view.expires_ms <= it.settings.snapshot_ttl_seconds * 1000
        assert view.ended_ms is None
        assert view.calls == ()
        shown = view_of(it, outcome.run_id)
        assert [(call.id, call.tool, call.status, call.dispatched, call.input) for call in shown.calls] == [
            (1, "mcp:slow:get", "executing", True, '{"n":1}')
        ]
        slow.release.set()
        assert (await it.observe(outcome.run_id, owner="o")).status == "completed"
        it.clock.advance(60)
        view = the_one(it.manager.operator.views())
        assert (view.state, view.waits, view.snapshots, view.expires_ms) == ("completed", 1, 1, None)
        assert view.ended_ms is not None
        assert view.ended_ms >= 60_000
        shown = view_of(it, outcome.run_id)
        (call,) = shown.calls
        assert (call.status, call.input) == ("completed", '{"n":1}')
        assert call.size > 0
        assert call.ms < 60_000, "it has ended, so it takes no longer"


async def test_every_call_of_a_run_is_there_with_its_outcome(engine: Engine) -> None:
    code = """
        for (let n = 0; n < 30; n++) await MCP.echo.say({ text: String(n) });
        await MCP.echo.say({ text: 1, wrong: 2 }).catch(() => {});
        await MCP.echo.say({ text: 'x'.repeat(5000) });
    """
    async with bench(engine, echo()) as it:
        outcome = await it.execute(code)
        view = view_of(it, outcome.run_id)
        assert view.call_count == len(view.calls) == 32
        assert [call.id for call in view.calls] == sorted(call.id for call in view.calls)
        assert all(call.ms >= 0 and call.at_ms >= 0 for call in view.calls)
        assert view.calls[3].input == '{"text":"3"}'
        assert view.calls[-1].input is None, "too long to be remembered"
        assert view.calls[-1].input_size > 5000


async def test_calls_that_continue_after_their_program_are_followed_to_their_end(engine: Engine) -> None:
    slow = slow_source()
    code = "for (let n = 0; n < 4; n++) MCP.slow.get({ n }); throw new Error('enough')"
    async with bench(engine, slow, max_pending_tool_calls=2, max_queued_tool_calls=2) as it:
        run_id = (await it.execute(code)).run_id
        view = view_of(it, run_id)
        assert (view.state, view.code) == ("failed", "internal_error")
        await until(lambda: slow.pending == 2)
        assert [call.status for call in view_of(it, run_id).calls] == ["executing", "executing", "queued", "queued"]
        slow.release.set()
        await until(lambda: {call.status for call in view_of(it, run_id).calls} == {"completed"})


async def test_a_run_that_was_cancelled_has_no_call_that_still_waits(engine: Engine) -> None:
    slow = slow_source()
    code = "return await Promise.all([1, 2, 3].map((n) => MCP.slow.get({ n })))"
    async with bench(engine, slow, timeout_ms=200, max_pending_tool_calls=1) as it:
        outcome = await it.execute(code)
        assert await it.manager.operator.cancel(outcome.run_id)
        await until(lambda: {call.status for call in view_of(it, outcome.run_id).calls} == {"failed"})
        view = view_of(it, outcome.run_id)
        assert (view.state, view.code, view.ended_ms is not None) == ("aborted", "aborted", True)
        assert len(view.calls) == 3
        assert not await it.manager.operator.cancel(outcome.run_id), "it has ended"
        assert not await it.manager.operator.cancel("run_that_never_was")


async def test_the_operator_cancels_a_run_that_a_client_waits_for_and_one_of_a_holder(engine: Engine) -> None:
    slow, holder = slow_source(), Caller(None, "http")
    async with (
        bench(engine, slow, timeout_ms=60_000) as it,
        answering(it.execute("await MCP.slow.get({})", caller=holder)) as outcomes,
    ):
        await until(lambda: any(view.call_count for view in it.manager.operator.views()))
        view = the_one(it.manager.operator.views())
        assert view.observed
        assert await it.manager.operator.cancel(view.id)
    assert outcomes[0].code == "aborted"


async def test_calls_that_wait_for_a_person_are_marked_and_decided_by_number(engine: Engine) -> None:
    async with bench(engine, echo(), rules=PolicyRules(ask=("mcp:echo:*",)), timeout_ms=500) as it:
        code = "return await Promise.allSettled(['a', 'b'].map((text) => MCP.echo.say({ text })))"
        outcome = await it.execute(code)
        assert outcome.status == "waiting"
        assert the_one(it.manager.operator.views()).approvals == 2
        view = view_of(it, outcome.run_id)
        assert [call.status for call in view.calls] == ["needs_approval", "needs_approval"]
        first, second = it.manager.operator.approvals(outcome.run_id)
        assert it.manager.operator.decide(outcome.run_id, [first.call], approved=True, by="a test") == [first.call]
        assert it.manager.operator.decide(outcome.run_id, [second.call], approved=False, by="a test") == [second.call]
        outcome = await it.observe(outcome.run_id)
        assert [each["status"] for each in outcome.value] == ["fulfilled", "rejected"]
        assert it.manager.operator.approvals(outcome.run_id) == ()


async def test_a_run_that_expired_is_listed_as_such(engine: Engine) -> None:
    async with bench(engine, slow_source(), timeout_ms=400) as it:
        outcome = await it.execute("await MCP.slow.get({})")
        it.clock.advance(it.settings.snapshot_ttl_seconds + 1)
        await it.manager.sweep()
        view = the_one(it.manager.operator.views())
        assert (view.id, view.state, view.code) == (outcome.run_id, "expired", "snapshot_expired")


async def test_a_program_whose_text_the_engine_refuses_is_listed_as_failed(engine: Engine) -> None:
    async with bench(engine, echo()) as it:
        with pytest.raises(CodeModeError):
            await it.execute("let a = 1; let a = 2;")
        assert [(view.state, view.code) for view in it.manager.operator.views()] == [("failed", "invalid_input")]


async def test_the_newest_come_first_and_old_ends_are_forgotten(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "SHOWN_ENDED", 5)
    async with bench(engine, echo()) as it:
        ids = [(await it.execute(f"return {n}")).run_id for n in range(8)]
        assert [view.id for view in it.manager.operator.views()] == ids[:2:-1]
        assert it.manager.operator.view(ids[0]) is None


# what is remembered


def made(track: Track, count: int, text: str = "{}") -> None:
    for number in range(track.total, track.total + count):
        record = CallRecord(number, "mcp:a:b", 0.0, "completed", 1.0)
        track.add(ToolCall(number, "mcp:a:b", text), record)


def test_a_run_with_very_many_calls_remembers_the_latest() -> None:
    track = Track(Ledger(), 0.0)
    made(track, MAX_RUN_CALLS + 500)
    views = track.views(2.0)
    assert track.total == MAX_RUN_CALLS + 500
    assert [view.id for view in views] == list(range(500, MAX_RUN_CALLS + 500))


def test_all_runs_together_remember_a_bounded_number() -> None:
    ledger = Ledger(most=100)
    tracks = [Track(ledger, 0.0) for _ in range(10)]
    for track in tracks:
        made(track, 30)
    assert sum(len(track.views(2.0)) for track in tracks) == 100
    assert [len(track.views(2.0)) for track in tracks] == [0, 0, 0, 0, 0, 0, 10, 30, 30, 30]


def test_the_calls_of_a_run_that_is_over_are_shown_as_before_and_take_far_less_memory() -> None:
    def make() -> Track:
        track = Track(Ledger(), 0.5)
        for number in range(900):
            record = CallRecord(number, f"mcp:a:{number % 7}".lower(), 1.0 + number, "completed", 2.5 + number, number)
            record.dispatched, record.repeatable = number % 2 == 0, number % 3 == 0
            track.add(ToolCall(number, record.tool, f'{{"n":{number % 50}}}'), record)
        failed = CallRecord(900, "mcp:a:b", 901.0, "failed")  # it never began
        track.add(ToolCall(900, "mcp:a:b", "x" * (MAX_INPUT + 1)), failed)
        track.add(ToolCall(901, "mcp:a:b", None), CallRecord(901, "mcp:a:b", 902.0, "failed", 903.0))
        return track

    tracemalloc.start()
    try:
        track = make()
        large = tracemalloc.get_traced_memory()[0]
        track.pack(())
        small = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert track.views(2000.0) == make().views(2000.0)
    assert len(track.views(2000.0)) == 902
    assert small < large / 7


def test_a_call_that_continues_after_its_run_is_shown_with_its_end() -> None:
    track = Track(Ledger(), 0.0)
    made(track, 3)
    record = CallRecord(3, "mcp:a:b", 1.0, "executing")
    track.add(ToolCall(3, "mcp:a:b", "{}"), record)
    track.pack({3})
    record.status, record.ended, record.size = "completed", 4.0, 77
    found = [(view.id, view.status, view.size, view.ms) for view in track.views(9.0)]
    assert found == [*((number, "completed", 0, 1000) for number in range(3)), (3, "completed", 77, 3000)]


def test_of_runs_that_are_over_too_the_oldest_calls_are_forgotten_first() -> None:
    ledger = Ledger(most=100)
    tracks = [Track(ledger, 0.0) for _ in range(10)]
    for track in tracks:
        made(track, 30)
        track.pack(())
    assert [len(track.views(2.0)) for track in tracks] == [0, 0, 0, 0, 0, 0, 10, 30, 30, 30]
    assert [view.id for view in tracks[6].views(2.0)] == list(range(20, 30))


def test_a_ledger_does_not_grow_with_runs_that_are_forgotten() -> None:
    ledger = Ledger()
    lasting = Track(ledger, 0.0)
    made(lasting, 5)
    tracemalloc.start()
    try:
        sizes = []
        for _ in range(2):
            for _ in range(5_000):
                track = Track(ledger, 0.0)
                made(track, 2)
                track.pack(())
                track.forget()
            del track
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert max(sizes) < 500_000
    assert len(lasting.views(2.0)) == 5


async def test_no_calls_of_runs_that_are_not_listed_are_kept(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "SHOWN_ENDED", 5)
    async with bench(engine, echo()) as it:
        for number in range(8):
            await it.execute(f"for (let i = 0; i < 3; i++) await MCP.echo.say({{ text: 'only here {number}' }})")
        shown = [it.manager.operator.view(view.id) for view in it.manager.operator.views()]
        assert [len(view.calls) for view in shown if view is not None] == [3, 3, 3, 3, 3]
        everywhere = [view for each in gc.get_objects() if isinstance(each, Track) for view in each.views(0.0)]
        assert sum("only here" in (view.input or "") for view in everywhere) == 15


def test_calls_that_have_not_ended_are_shown_before_those_that_have() -> None:
    track = Track(Ledger(), 0.0)
    waiting = [(ToolCall(n, "mcp:a:b", "x" * (MAX_INPUT + 1)), CallRecord(n, "mcp:a:b", 0.0)) for n in range(1500)]
    for call, record in waiting:
        track.add(call, record)
    made(track, 1000)
    views = track.views(2.0, waiting, approvals={3}, questions={4})
    assert len(views) == SHOWN_CALLS
    assert [view.id for view in views[:1500]] == list(range(1500))
    assert [view.status for view in views[2:6]] == ["queued", "needs_approval", "needs_input", "queued"]
    assert views[0].input is not None, "of one that has not ended it is still there"


def test_a_call_without_arguments_has_none_to_show() -> None:
    track = Track(Ledger(), 0.0)
    track.add(ToolCall(0, "mcp:a:b", None), CallRecord(0, "mcp:a:b", 0.5, "failed"))
    (view,) = track.views(2.0)
    assert (view.input, view.input_size, view.at_ms, view.ms) == ("", 0, 500, 0)


def test_remembering_a_call_costs_next_to_nothing() -> None:
    track = Track(Ledger(), 0.0)
    began = time.thread_time()
    made(track, 20_000, "{" + " " * 500 + "}")
    assert time.thread_time() - began < 2, "microseconds each"
