"""Runs from start to end, over fakes: draining, suspending, resuming, limits, cancelling, expiring."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import anyio
import pytest

from codemode_mcp.audit.events import Event
from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.sandbox.engine import Engine
from tests.runs.bench import OWNER, bench, ran, texts
from tests.waiting import answering, refusal, until
from upstream_clients.errors import UpstreamCallError, UpstreamUnavailable
from upstream_clients.testing import FailingSource, ScriptedSource, SlowSource, text_result
from upstream_clients.tools import Annotations, Tool

READ_ONLY = Tool("look", annotations=Annotations(read_only=True))
WRITING = Tool("change", annotations=Annotations(read_only=False))


def echo() -> ScriptedSource:
    return ScriptedSource("echo", {"say": lambda arguments: text_result(str(arguments.get("text")))})


async def test_a_program_calls_a_tool_and_returns_what_it_makes_of_it(engine: Engine) -> None:
    source = echo()
    outcome = await ran(engine, "const r = await MCP.echo.say({ text: 'hi' }); return unwrap(r) + '!'", source)
    assert (outcome.status, outcome.value) == ("completed", "hi!")
    assert source.calls == [("say", {"text": "hi"})]


async def test_parallel_calls_are_in_flight_at_the_same_time(engine: Engine) -> None:
    slow = SlowSource("slow", {"work": text_result("done")})
    code = "return (await Promise.all([1,2,3].map(() => MCP.slow.work({})))).length"
    async with bench(engine, slow) as it, answering(it.execute(code)) as outcomes:
        await until(lambda: slow.pending >= 3)
        slow.release.set()
    assert [outcome.value for outcome in outcomes] == [3]


async def test_a_program_continues_with_the_first_call_that_ends(engine: Engine) -> None:
    slow, quick = SlowSource("slow", {"work": text_result("slow")}), echo()
    async with bench(engine, slow, quick) as it:
        outcome = await it.execute(
            "return unwrap(await Promise.race([MCP.slow.work({}), MCP.echo.say({ text: 'quick' })]))"
        )
        assert (outcome.value, outcome.notes) == ("quick", ("Not waited for, still in flight: mcp:slow:work",))


async def test_a_call_that_outlives_the_request_is_delivered_once_by_wait(engine: Engine) -> None:
    slow = SlowSource("slow", {"work": text_result("at last")})
    async with bench(engine, slow, timeout_ms=400) as it:
        first = await it.execute("text('before'); const r = await MCP.slow.work({}); text('after'); return unwrap(r)")
        assert (first.status, first.reason, texts(first)) == ("waiting", "pending_tools", ["before"])
        assert [(call.tool, call.status) for call in first.pending] == [("mcp:slow:work", "executing")]
        second = await it.observe(first.run_id)
        assert (second.status, second.run_id, texts(second)) == ("waiting", first.run_id, [])
        slow.release.set()
        third = await it.observe(first.run_id)
        assert (third.status, third.value, texts(third)) == ("completed", "at last", ["after"])
        again = await it.observe(first.run_id)
        assert (again.status, again.value, texts(again)) == ("completed", "at last", ["after"])
        whole = await it.observe(first.run_id, from_start=True)
        assert texts(whole) == ["before", "after"]
    assert len(slow.calls) == 1


async def test_a_call_of_a_suspended_run_continues_without_a_wait(engine: Engine) -> None:
    slow = SlowSource("slow", {"work": text_result("done")})
    async with bench(engine, slow, timeout_ms=400) as it:
        suspended = await it.execute("return unwrap(await MCP.slow.work({}))")
        slow.release.set()
        await until(lambda: slow.calls)
        assert (await it.observe(suspended.run_id)).value == "done"


async def test_a_program_that_yields_is_suspended_and_resumed_immediately(engine: Engine) -> None:
    async with bench(engine, echo()) as it:
        suspended = await it.execute(
            "let n = 1; await yield_control('look'); n += 1; await yield_control(); return n + 1"
        )
        assert (suspended.status, suspended.reason, suspended.pending) == ("waiting", "yield", ())
        suspended = await it.observe(suspended.run_id)
        assert suspended.status == "waiting"
        assert (await it.observe(suspended.run_id)).value == 3


async def test_a_timer_survives_a_suspension(engine: Engine) -> None:
    async with bench(engine, timeout_ms=400) as it:
        suspended = await it.execute("await new Promise((r) => setTimeout(r, 3600_000)); return 'woken'")
        assert [call.tool for call in suspended.pending] == ["core:timer"]
        it.clock.advance(3600)
        assert (await refusal(it.observe(suspended.run_id))).code == "snapshot_expired"
        suspended = await it.execute("await new Promise((r) => setTimeout(r, 600_000)); return 'woken'")
        it.clock.advance(600)
        assert (await it.observe(suspended.run_id)).value == "woken"


async def test_a_second_wait_is_refused_while_the_first_is_open(engine: Engine) -> None:
    slow = SlowSource("slow", {"work": text_result("done")})
    async with bench(engine, slow, timeout_ms=500) as it:
        suspended = await it.execute("return unwrap(await MCP.slow.work({}))")
        async with answering(it.observe(suspended.run_id)) as ended:
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(ProgramError, match="another request is waiting"):
                await it.observe(suspended.run_id)
            slow.release.set()
        assert ended[0].value == "done"


async def test_a_run_of_another_owner_looks_like_one_that_does_not_exist(engine: Engine) -> None:
    async with bench(engine) as it:
        suspended = await it.execute("await yield_control(); return 1")
        foreign = await refusal(it.observe(suspended.run_id, owner="another owner"))
        unknown = "run_" + "x" * (len(suspended.run_id) - 4)
        missing = await refusal(it.observe(unknown))
        assert foreign.message.replace(suspended.run_id, unknown) == missing.message
        assert foreign.code == missing.code == "invalid_input"


async def test_cancelling_exec_cancels_its_calls_upstream(engine: Engine) -> None:
    slow = SlowSource("slow", {"work": text_result("done")})
    async with bench(engine, slow) as it:
        async with anyio.create_task_group() as group:
            group.start_soon(it.execute, "await MCP.slow.work({})")
            await until(lambda: slow.pending >= 1)
            group.cancel_scope.cancel()
        await until(lambda: slow.cancelled)
    assert slow.cancelled == 1


@pytest.mark.parametrize(
    "code", ["for (;;) {}", "return Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 5)"], ids=["loop", "native"]
)
async def test_cancelling_exec_stops_a_program_that_computes(engine: Engine, code: str) -> None:
    async with bench(engine, timeout_ms=60_000) as it:
        with anyio.move_on_after(0.2):
            await it.execute(code)
        await until(lambda: "0 runs" in repr(it.manager))


async def test_cancelling_wait_only_lets_go(engine: Engine) -> None:
    slow = SlowSource("slow", {"work": text_result("done")})
    async with bench(engine, slow, timeout_ms=400) as it:
        suspended = await it.execute("return unwrap(await MCP.slow.work({}))")
        async with anyio.create_task_group() as group:
            group.start_soon(it.observe, suspended.run_id)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        slow.release.set()
        outcome = None
        with anyio.fail_after(20):
            while outcome is None:
                # Until the driver has noticed, the first wait still holds the run.
                with suppress(ProgramError):
                    outcome = await it.observe(suspended.run_id)
                await anyio.lowlevel.checkpoint()
        assert outcome.value == "done"
    assert slow.cancelled == 0


async def test_wait_with_cancel_ends_the_run_and_its_calls(engine: Engine) -> None:
    slow = SlowSource("slow", {"work": text_result("done")})
    async with bench(engine, slow, timeout_ms=400) as it:
        suspended = await it.execute("await MCP.slow.work({})")
        ended = await it.observe(suspended.run_id, cancel=True)
        assert (ended.status, ended.code) == ("failed", "aborted")
        await until(lambda: slow.cancelled)
        assert (await it.observe(suspended.run_id)).code == "aborted"


async def test_a_suspended_run_past_its_time_is_dropped_and_its_calls_are_cancelled(engine: Engine) -> None:
    slow = SlowSource("slow", {"work": text_result("done")})
    async with bench(engine, slow, timeout_ms=400, snapshot_ttl_seconds=60) as it:
        suspended = await it.execute("await MCP.slow.work({})")
        it.clock.advance(61)
        await it.manager.sweep()
        assert (await refusal(it.observe(suspended.run_id))).code == "snapshot_expired"
        await until(lambda: slow.cancelled)


async def test_calls_beyond_the_concurrent_ones_queue_in_order(engine: Engine) -> None:
    slow = SlowSource("slow", {"work": lambda arguments: text_result(str(arguments["n"]))})
    code = "return (await Promise.all([0,1,2,3,4].map((n) => MCP.slow.work({ n })))).map(unwrap)"
    async with bench(engine, slow, max_pending_tool_calls=2) as it, answering(it.execute(code)) as outcomes:
        await until(lambda: slow.pending >= 2)
        await anyio.wait_all_tasks_blocked()
        assert slow.pending == 2
        slow.release.set()
    assert outcomes[0].value == [0, 1, 2, 3, 4]
    assert [arguments["n"] for _, arguments in slow.calls] == [0, 1, 2, 3, 4]


async def test_calls_beyond_the_queue_are_rejected_and_can_be_caught(engine: Engine) -> None:
    async with bench(engine, echo(), max_pending_tool_calls=1, max_queued_tool_calls=1) as it:
        outcome = await it.execute(
            "const all = await Promise.allSettled([1,2,3].map((n) => MCP.echo.say({ text: String(n) })));"
            "return all.map((one) => one.reason?.code ?? 'ok')"
        )
        assert outcome.value == ["ok", "ok", "too_many_pending_tool_calls"]
        uncaught = await it.execute("await Promise.all([1,2,3].map(() => MCP.echo.say({ text: 'x' })))")
        assert (uncaught.status, uncaught.code) == ("failed", "too_many_pending_tool_calls")


async def test_read_only_calls_are_cancelled_when_their_program_is_over_and_others_continue(engine: Engine) -> None:
    slow = SlowSource("slow", {"look": text_result("1"), "change": text_result("2")}, tools=[READ_ONLY, WRITING])
    async with bench(engine, slow) as it:
        outcome = await it.execute("MCP.slow.look({}); MCP.slow.change({}); return 'over'")
        assert outcome.value == "over"
        assert outcome.notes == (
            "Not waited for, still in flight: mcp:slow:change",
            "Not waited for, never sent: mcp:slow:look; await such calls",
        )
        slow.release.set()
        await until(lambda: slow.calls)
    assert [tool for tool, _ in slow.calls] == ["change"]


async def test_read_only_calls_that_were_sent_are_named_as_cancelled(engine: Engine) -> None:
    slow = SlowSource("slow", {"look": text_result("1")}, tools=[READ_ONLY])
    async with bench(engine, slow, timeout_ms=50) as it:
        first = await it.execute("MCP.slow.look({}); await new Promise((r) => setTimeout(r, 100)); return 'over'")
        outcome = await it.observe(first.run_id)
        while outcome.status == "waiting":
            outcome = await it.observe(first.run_id)
        assert outcome.notes == ("Not waited for, cancelled: mcp:slow:look",)


@pytest.mark.parametrize(
    "failing",
    [UpstreamCallError("slow", "the disk is full", dispatched=True), text_result("the disk is full", isError=True)],
    ids=["error", "isError"],
)
async def test_a_call_that_fails_after_its_program_is_told_with_the_next_answer(engine: Engine, failing: Any) -> None:
    slow = SlowSource("slow", {"change": failing}, tools=[WRITING])
    heard: list[Event] = []
    async with bench(engine, slow) as it:
        it.auditor.add(heard.append)
        first = await it.execute("MCP.slow.change({}); return 'over'")
        await until(lambda: slow.pending >= 1)
        slow.release.set()
        await anyio.wait_all_tasks_blocked()
        (event,) = [each for each in heard if each.kind == "call_ended"]
        assert (event.fields["late"], first.value) == (True, "over")
        second = await it.execute("return 2")
        (note,) = second.notes
        assert "mcp:slow:change failed after its program" in note
        assert "the disk is full" in note
        assert (await it.execute("return 3")).notes == ()


async def test_what_failed_late_is_told_with_an_end_that_is_given_again_and_to_no_other_owner(engine: Engine) -> None:
    failing = text_result("the disk is full", isError=True)
    slow = SlowSource("slow", {"change": failing}, tools=[WRITING])
    async with bench(engine, slow) as it:
        first = await it.execute("await yield_control(); MCP.slow.change({}); return 'over'")
        ended = await it.observe(first.run_id)
        assert (ended.value, len(ended.notes)) == ("over", 1)
        await until(lambda: slow.pending >= 1)
        slow.release.set()
        await anyio.wait_all_tasks_blocked()
        assert (await it.execute("return 2", caller=Caller("another"))).notes == ()
        assert it.manager.late_notes(Caller("another")) == it.manager.late_notes(Caller(None)) == ()
        again = await it.observe(first.run_id)
        assert again.value == "over"
        assert "the disk is full" in again.notes[-1]
        assert (await it.observe(first.run_id)).notes == ended.notes
        assert it.manager.late_notes(Caller(OWNER)) == ()


async def test_too_much_output_ends_a_program_before_it_calls_on_where_that_is_to_fail(engine: Engine) -> None:
    source = echo()
    settings = {"max_output_bytes": 1024, "on_output_limit": "fail"}
    async with bench(engine, source, **settings) as it:
        outcome = await it.execute(
            "await MCP.echo.say({ text: 'first' }); text('x'.repeat(2000)); await MCP.echo.say({ text: 'second' })"
        )
        assert (outcome.status, outcome.code) == ("failed", "output_limit_exceeded")
        assert [arguments["text"] for _, arguments in source.calls] == ["first"]
        waiting = await it.execute("text('x'.repeat(2000)); await new Promise((r) => setTimeout(r, 60_000))")
        assert (waiting.status, waiting.code) == ("failed", "output_limit_exceeded")


async def test_an_endless_program_delays_no_other(engine: Engine) -> None:
    async with bench(engine, echo(), timeout_ms=1_000) as it, answering(it.execute("for (;;) {}")) as outcomes:
        await anyio.lowlevel.checkpoint()
        for _ in range(10):
            assert (await it.execute("return unwrap(await MCP.echo.say({ text: 'x' }))")).value == "x"
        assert outcomes == []
    assert outcomes[0].code == "timeout"


KEEP = "const kept = Array.from({ length: 50_000 }, Math.random); await yield_control()"
FAILURES: dict[str, tuple[str, dict[str, int], str, str]] = {
    "a promise that nothing can settle": ("await new Promise(() => {})", {}, "internal_error", "nothing can settle"),
    "a snapshot over its limit": (KEEP, {"max_snapshot_bytes": 40_000}, "snapshot_limit_exceeded", ""),
    "a forgotten await before unwrap": (
        *("return unwrap(MCP.echo.say({ text: 'x' }))", {}, "internal_error"),
        "unwrap(await MCP.server.tool({...}))",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_a_failure_has_its_code_and_its_reason(engine: Engine, case: str) -> None:
    code, settings, expected, reason = FAILURES[case]
    outcome = await ran(engine, code, echo(), timeout_ms=30_000, **settings)
    assert (outcome.status, outcome.code) == ("failed", expected)
    assert reason in outcome.error


async def test_what_was_printed_before_the_time_was_over_is_kept(engine: Engine) -> None:
    code = "text('so far');\nfunction spin() { for (;;); }\nspin();"
    outcome = await ran(engine, code, timeout_ms=400)
    assert (outcome.code, texts(outcome)) == ("timeout", ["so far"])
    assert "its time of 0.4 s was over, in spin;" in outcome.error


async def test_a_program_too_large_to_suspend_leaves_calls_that_may_change_something(engine: Engine) -> None:
    slow = SlowSource("slow", {"look": text_result("1"), "change": text_result("2")}, tools=[READ_ONLY, WRITING])
    async with bench(engine, slow, timeout_ms=30_000, max_snapshot_bytes=40_000) as it:
        outcome = await it.execute(f"MCP.slow.look({{}}).catch(() => 0); MCP.slow.change({{}}).catch(() => 0); {KEEP}")
        assert outcome.code == "snapshot_limit_exceeded"
        slow.release.set()
        await until(lambda: slow.calls)
    assert [tool for tool, _ in slow.calls] == ["change"]


async def test_a_server_that_is_down_rejects_its_calls_with_the_reason(engine: Engine) -> None:
    async with bench(engine, FailingSource("broken"), echo()) as it:
        outcome = await it.execute(
            "return await MCP.broken.anything({}).catch((error) => [error.code, error.message, error.data.tool])"
        )
        reason = "MCP.broken is down: server 'broken' is down"
        assert outcome.value == ["nested_tool_failed", reason, "mcp:broken:anything"]
        assert [call.tool for call in outcome.usage.calls] == ["mcp:broken:anything"]


async def test_a_server_that_needs_a_login_says_to_the_model_what_the_user_has_to_do(engine: Engine) -> None:
    error = UpstreamUnavailable("tracker", "server 'tracker' needs a login: run codemode-mcp login tracker")
    source = ScriptedSource(
        "tracker", {"find": error}, state="down", error=error.message, login_required=True, tools=[Tool("find")]
    )
    async with bench(engine, source) as it:
        outcome = await it.execute("return await MCP.tracker.find({}).catch((error) => error.message)")
        advice = "needs a login; ask the user to run: codemode-mcp login tracker"
        assert outcome.value == f"MCP.tracker.find: server 'tracker' {advice}"


async def test_denied_tools_do_not_exist_for_a_program(engine: Engine) -> None:
    source = ScriptedSource("s", {"open": text_result("1"), "secret": text_result("2")})
    async with bench(engine, source, rules=PolicyRules(deny=("mcp:s:secret",))) as it:
        outcome = await it.execute(
            "const found = [Object.keys(MCP.s), (await API.search('secret')).length, typeof MCP.s['secret']];"
            "const file = (await API.read('mcp/s.d.ts')).content.includes('secret');"
            "const called = await tools.call('mcp:s:secret').catch((error) => error.message);"
            "return [...found, file, called]"
        )
        assert outcome.value == [["open"], 0, "undefined", False, outcome.value[4]]
        assert "there is no tool" in outcome.value[4]
    assert source.calls == []


async def test_exactly_the_servers_that_a_program_names_are_waited_for(engine: Engine) -> None:
    async with bench(engine, echo(), FailingSource("other")) as it:
        await it.execute("return 1")
        await it.execute("return unwrap(await MCP.echo.say({}))")
        await it.execute("return Object.keys(MCP)")
    assert it.waited_for == [{"echo"}, None]


async def test_values_are_kept_for_later_programs_of_the_same_owner(engine: Engine) -> None:
    async with bench(engine) as it:
        await it.execute("store('k', { n: [1, undefined, 2n] })")
        outcome = await it.execute("return [await load('k'), (await load('none')) === undefined]")
        assert outcome.value == [{"n": [1, None, 2]}, True]
    assert OWNER == "somebody"


async def test_invalid_arguments_are_refused_before_anything_is_sent(engine: Engine) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    schema |= {"additionalProperties": False}
    source = ScriptedSource("s", {"take": text_result("ok")}, tools=[Tool("take", input_schema=schema)])
    async with bench(engine, source) as it:
        for argument in ("", "{ n: 'x' }", "{ n: 1, m: 2 }", "'text'", "null", "{ n: 1 }, 2", "[1]"):
            outcome = await it.execute(f"return await MCP.s.take({argument}).catch((error) => error.message)")
            assert "MCP.s.take" in outcome.value, argument
            assert "Signature: MCP.s.take(input: { n: int })" in outcome.value, argument
        assert source.calls == []
        assert (await it.execute("return unwrap(await MCP.s.take({ n: 1 }))")).value == "ok"


async def test_arguments_nested_without_end_are_the_matter_of_their_call_alone(engine: Engine) -> None:
    source = echo()
    async with bench(engine, source) as it:
        outcome = await it.execute(
            "const deep = (n) => { let a = 1; for (let i = 0; i < n; i++) a = [a]; return a };"
            "const tried = await Promise.allSettled([50, 300, 2000].map((n) => MCP.echo.say({ text: deep(n) })));"
            "const odd = await MCP.echo.say({ text: JSON.rawJSON?.('9'.repeat(5000)) ?? 1 }).catch((e) => e.message);"
            "return [tried.map((one) => one.status), tried[1].reason.message, typeof odd]"
        )
        assert outcome.value[0] == ["fulfilled", "rejected", "rejected"]
        assert "nested deeper than 100 levels" in outcome.value[1]
        assert "nothing was sent" in outcome.value[1]


async def test_values_nested_without_end_are_cut(engine: Engine) -> None:
    outcome = await ran(engine, "let a = 1; for (let i = 0; i < 100000; i++) a = [a]; return a")
    text = json.dumps(outcome.value)
    assert text.count("[") == 101
    assert "Too deep" in text


async def test_look_ups_take_a_bounded_time_of_all(engine: Engine) -> None:
    tools = [Tool(f"tool_number_{n}_with_a_long_name") for n in range(3000)]
    async with bench(engine, ScriptedSource("many", {}, tools=tools), timeout_ms=20_000) as it:
        outcome = await it.execute(
            "const all = await Promise.all(Array.from({ length: 600 }, (_, i) =>"
            " MCP.many.$api('tool_numbr_' + i + '_wth_lng_nme').catch((error) => error.message)));"
            "return [all[0].includes('Nearest'), all[599].includes('for look-ups')]"
        )
        assert outcome.value == [True, True]


async def test_what_is_there_at_the_deadline_is_delivered_before_the_program_is_suspended(engine: Engine) -> None:
    slow = SlowSource("slow", {"work": text_result("done")})
    code = "return unwrap(await MCP.slow.work({}))"
    async with bench(engine, slow, timeout_ms=60_000) as it, answering(it.execute(code)) as outcomes:
        await until(lambda: slow.pending >= 1)
        await anyio.wait_all_tasks_blocked()
        (suspended,) = it.manager._live.runs.values()
        assert suspended.observation is not None
        it.clock.advance(suspended.observation.deadline - it.clock())
        slow.release.set()
    assert (outcomes[0].status, outcomes[0].value) == ("completed", "done")


async def test_a_printed_error_has_the_authors_frames_alone(engine: Engine) -> None:
    async with bench(engine) as it:
        outcome = await it.execute("function f() {\n  return new Error('x');\n}\ntext(f());\nreturn 1")
        assert texts(outcome)[0].startswith("Error: x\n    at f (cell.js:2:")
        assert "prelude" not in texts(outcome)[0]
        assert "native" not in texts(outcome)[0]


async def test_describing_rejections_runs_nothing_of_the_programs(engine: Engine) -> None:
    code = "for (let i = 0; i < 40; i++) Promise.reject({ get message() { for (;;); } }); return 1"
    outcome = await ran(engine, code)
    assert (outcome.status, outcome.value) == ("completed", 1)


@pytest.mark.parametrize(
    "code",
    [
        '}); text("out"); (async function () {',
        '}, text("out"), async function () {',
        '} in text("out") || async function () {',
        'return 1 }.call(), text("out"), async function () {',
        '}); MCP.echo.say({ text: "out" }); (async () => {',
    ],
)
async def test_a_program_cannot_leave_the_function_it_is_put_into(engine: Engine, code: str) -> None:
    source = echo()
    refused = await refusal(ran(engine, code, source))
    assert refused.code == "invalid_input"
    assert "cell.js:1:" in refused.message
    assert source.calls == []


WHY = "try { await MCP.slow.change({}); return 'made' } catch (error) { return error.message }"


async def test_a_run_keeps_the_rules_of_its_client_after_a_wait_of_another_client(engine: Engine) -> None:
    source = ScriptedSource("slow", {"change": text_result("2")}, tools=[WRITING])
    free, bound = Caller(OWNER, share="client 1"), Caller(OWNER, share="client 2", read_only=True)
    async with bench(engine, source) as it:
        waiting = await it.execute(f"await yield_control(); {WHY}", caller=bound)
        ended = await it.observe(waiting.run_id, caller=free)
        assert ended.value == "MCP.slow.change may not be called: only read-only tools are allowed"
        assert source.calls == []
        waiting = await it.execute(f"await yield_control(); {WHY}", caller=free)
        assert (await it.observe(waiting.run_id, caller=bound)).value == "made"
        assert (await it.execute(WHY, caller=bound)).value == ended.value


async def test_notes_about_late_failures_reach_the_client_that_had_the_program(engine: Engine) -> None:
    slow = SlowSource("slow", {"change": text_result("the disk is full", isError=True)}, tools=[WRITING])
    mine, other = Caller(OWNER, share="client 1"), Caller(OWNER, share="client 2")
    async with bench(engine, slow) as it:
        await it.execute("MCP.slow.change({}); return 'over'", caller=mine)
        await until(lambda: slow.pending >= 1)
        slow.release.set()
        await anyio.wait_all_tasks_blocked()
        assert (await it.execute("return 1", caller=other)).notes == ()
        assert "the disk is full" in (await it.execute("return 1", caller=mine)).notes[-1]


async def test_suspended_programs_of_all_clients_count_for_their_owner(engine: Engine) -> None:
    async with bench(engine, max_suspended_runs_per_owner=2) as it:
        for number in (1, 2):
            waiting = await it.execute("await yield_control()", caller=Caller(OWNER, share=f"client {number}"))
            assert waiting.status == "waiting"
        refused = await it.execute("await yield_control()", caller=Caller(OWNER, share="client 3"))
        assert refused.code == "too_many_pending_tool_calls"
        assert "2 programs of yours" in str(refused.error)


async def test_a_run_takes_turns_for_the_client_that_waits_for_it(engine: Engine) -> None:
    slow = SlowSource("slow", {"look": text_result("1")}, tools=[READ_ONLY])
    async with bench(engine, slow, max_running_runs=1, timeout_ms=300) as it:
        waiting = await it.execute("return unwrap(await MCP.slow.look({}))", caller=Caller(OWNER, share="client 1"))
        assert waiting.status == "waiting"
        slow.release.set()
        ended = await it.observe(waiting.run_id, caller=Caller(OWNER, share="client 2"))
        assert ended.value == 1
        # Every slot was given back by the share that took it, so that one program after another still gets one.
        for number in range(1, 6):
            assert (await it.execute("return 1", caller=Caller(OWNER, share=f"client {number}"))).value == 1
