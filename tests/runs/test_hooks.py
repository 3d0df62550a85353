"""Hooks and middleware on the one road: every form of nested call, the outer `exec`, and what the reader is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from codemode_mcp.base.errors import CodeModeError, ProgramError
from codemode_mcp.base.settings import DuplicateSettings, PolicyRules, ToolSettings
from codemode_mcp.base.strict_json import json_text
from codemode_mcp.catalog.plugins.bundled.duplicates import Duplicates
from codemode_mcp.catalog.plugins.interception import Interceptors, Registered
from codemode_mcp.plugins import EXEC_ID, ChangeInput, DenyCall, NoteCall, ToolCallEvent
from codemode_mcp.rules.policy.approval import ApprovalRequest, Verdict
from codemode_mcp.runs.calls.outcome import Calling, CallRecord
from codemode_mcp.runs.manager import Cell
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.messages import Completion, ToolCall
from tests.runs.bench import CALLER, OWNER, Bench, FakeClient, bench, ran
from tests.waiting import answering, refusal
from upstream_clients.testing import ScriptedSource, SlowSource, text_result
from upstream_clients.tools import Annotations, Tool

SCHEMA = {
    "type": "object",
    "properties": {"branch": {"type": "string"}, "force": {"type": "boolean", "default": False}},
    "required": ["branch"],
    "additionalProperties": False,
}


def source() -> ScriptedSource:
    return ScriptedSource(
        "git",
        {"push": text_result("pushed"), "log": text_result("log"), "resources/list": {"resources": []}},
        tools=[Tool("push", input_schema=SCHEMA), Tool("log", annotations=Annotations(read_only=True))],
        resources=True,
    )


def with_hooks(*hooks: Callable[..., Any], middleware: tuple[Callable[..., Any], ...] = ()) -> Interceptors:
    """All of plugin `guard`, which sees all tools and the outer `exec`."""
    made = Interceptors()

    def registered(callbacks: tuple[Callable[..., Any], ...]) -> list[Registered]:
        return [Registered("guard", each, ("*",), ("*",)) for each in callbacks]

    made.apply(registered(hooks), registered(middleware))
    return made


def with_guard(**settings: Any) -> Interceptors:
    made = Interceptors()
    guard = Duplicates(lambda: DuplicateSettings(**settings))
    made.apply([Registered("duplicates", guard, ("*",), ("*",), core=True)], [])
    return made


def says(answer: Any) -> Callable[..., Any]:
    async def hook(event: ToolCallEvent) -> Any:
        return answer

    return hook


async def push(it: Bench, approve: Any = None) -> Completion:
    """Return the end of a call of `push`, without a program."""
    context = it.dispatcher.context("run_1", OWNER, CALLER, it.catalog())
    call = ToolCall(1, "mcp:git:push", json_text({"branch": "main"}))
    return await it.dispatcher.call(Calling(call, context, CallRecord(1, call.target, 0.0), approve=approve))


PUSH = "await MCP.git.push({ branch: 'main' });"


# nested calls


async def test_hooks_see_every_nested_call_as_it_will_be_sent(engine: Engine) -> None:
    seen: list[ToolCallEvent] = []

    async def look(event: ToolCallEvent) -> None:
        if event.tool_id != EXEC_ID:
            seen.append(event)

    async with bench(engine, source(), interception=with_hooks(look)) as it:
        outcome = await it.execute(f"{PUSH} await MCP.git.log(); await MCP.git.resources.list(); return 1")
    assert outcome.value == 1
    assert [(event.tool_id, event.tool_kind, event.input) for event in seen] == [
        ("mcp:git:push", "mcp", {"branch": "main"}),
        ("mcp:git:log", "mcp", {}),
        ("mcp:git:resources/list", "mcp", {}),
    ]
    assert [event.defaults for event in seen] == [{"force": False}, {}, {}]
    assert {event.run_id for event in seen} == {outcome.run_id}
    assert {event.owner for event in seen} == {OWNER}
    assert [(event.read_only, event.destructive) for event in seen] == [(False, True), (True, False), (True, False)]


async def test_hooks_see_no_call_that_policy_denies_or_whose_arguments_do_not_fit(engine: Engine) -> None:
    seen: list[str] = []

    async def look(event: ToolCallEvent) -> None:
        seen.append(event.tool_id)

    rules = PolicyRules(deny=("mcp:git:log",))
    async with bench(engine, source(), interception=with_hooks(look), rules=rules) as it:
        await it.execute("await MCP['git']['log']?.().catch(() => 0); await MCP.git.push({ branch: 7 }).catch(() => 0)")
    assert seen == [EXEC_ID]


async def test_a_changed_input_is_what_is_sent_and_what_is_approved(engine: Engine) -> None:
    upstream = source()
    shown: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> Verdict:
        shown.append(request)
        return Verdict(True)

    rules = PolicyRules(ask=("mcp:git:push",))
    async with bench(
        engine, upstream, interception=with_hooks(says(ChangeInput({"branch": "dev"}))), rules=rules
    ) as it:
        completion = await push(it, approve)
    assert completion.error is None
    assert [request.arguments for request in shown] == [{"branch": "dev"}]
    assert upstream.calls == [("push", {"branch": "dev"})]


async def test_arguments_that_were_changed_after_a_person_saw_them_are_not_sent(engine: Engine) -> None:
    upstream = source()

    async def approve(request: ApprovalRequest) -> Verdict:
        dict.update(request.arguments, branch="evil")  # type: ignore[arg-type]
        return Verdict(True)

    async with bench(engine, upstream, rules=PolicyRules(ask=("mcp:git:push",))) as it:
        completion = await push(it, approve)
    assert completion.error is not None
    assert "its arguments were changed after a person had approved the call" in completion.error.message
    assert upstream.calls == []


async def test_rules_that_come_to_ask_while_a_hook_thinks_let_nothing_through_unasked(engine: Engine) -> None:
    upstream = source()

    async def think(event: ToolCallEvent) -> None:
        asking = PolicyRules(ask=("mcp:git:push",))
        it.dispatcher.apply(ToolSettings(code_mode=it.settings, policy=asking))

    async with bench(engine, upstream, interception=with_hooks(think)) as it:
        completion = await push(it)
    assert completion.error is not None
    assert "needs a person's approval now (asked for by the rule 'mcp:git:push')" in completion.error.message
    assert upstream.calls == []


async def test_a_denial_while_a_hook_thinks_keeps_a_question_from_the_client(engine: Engine) -> None:
    client = FakeClient("ask", supported=["elicitation/create"])

    async def think(event: ToolCallEvent) -> None:
        if event.tool_id == "client:session:elicit":
            denying = PolicyRules(deny=("client:*",))
            it.dispatcher.apply(ToolSettings(code_mode=it.settings, policy=denying))

    async with bench(engine, interception=with_hooks(think)) as it:
        outcome = await it.execute("await tools.elicit({ message: 'Who?' })", client=client)
    assert "may not be called: denied by the rule 'client:*'" in outcome.error
    assert client.asked == []


async def test_a_call_waits_until_it_is_known_who_has_to_see_it(engine: Engine) -> None:
    upstream, unready = source(), Interceptors()
    async with bench(engine, upstream, interception=unready) as it, answering(push(it)) as completions:
        await anyio.wait_all_tasks_blocked()
        assert (completions, upstream.calls) == ([], [])
        unready.apply([Registered("guard", says(DenyCall("seen")), ("*",), ("*",))], [])
    assert completions[0].error is not None
    assert "was denied by plugin 'guard': seen" in completions[0].error.message
    assert upstream.calls == []


async def test_a_changed_input_that_the_tool_does_not_take_is_not_sent(engine: Engine) -> None:
    upstream = source()

    async def wrong(event: ToolCallEvent) -> ChangeInput | None:
        return None if event.tool_id == EXEC_ID else ChangeInput({"branch": 7})

    async with bench(engine, upstream, interception=with_hooks(wrong)) as it:
        outcome = await it.execute(f"try {{ {PUSH} }} catch (e) {{ return [e.message, e.data.dispatched] }}")
    message, dispatched = outcome.value
    assert message.startswith("MCP.git.push: plugin 'guard' changed the input to an invalid one")
    assert dispatched is False
    assert upstream.calls == []


async def test_a_denied_call_rejects_with_the_reason_and_the_others_continue(engine: Engine) -> None:
    upstream = source()

    async def deny(event: ToolCallEvent) -> DenyCall | None:
        return DenyCall("main is protected") if event.input.get("branch") == "main" else None

    code = f"let why; try {{ {PUSH} }} catch (e) {{ why = [e.message, e.code] }}\n"
    async with bench(engine, upstream, interception=with_hooks(deny)) as it:
        outcome = await it.execute(code + "await MCP.git.push({ branch: 'dev' }); return why")
    assert outcome.value == ["MCP.git.push was denied by plugin 'guard': main is protected", "nested_tool_failed"]
    assert [arguments["branch"] for _, arguments in upstream.calls] == ["dev"]


async def test_middleware_replaces_results_and_a_failure_says_that_the_call_was_made(engine: Engine) -> None:
    async def middle(event: ToolCallEvent, result: Any) -> Any:
        if event.tool_id == "mcp:git:log":
            raise ValueError("no")
        return {"content": [], "structuredContent": {"was": result["content"][0]["text"], "input": event.input}}

    async with bench(engine, source(), interception=with_hooks(middleware=(middle,))) as it:
        outcome = await it.execute(
            "const pushed = unwrap(await MCP.git.push({ branch: 'main' }));\n"
            "try { await MCP.git.log() } catch (e) { return [pushed, e.message, e.data.dispatched] }"
        )
    pushed, message, dispatched = outcome.value
    assert pushed == {"was": "pushed", "input": {"branch": "main"}}
    assert message.startswith("MCP.git.log: plugin 'guard' failed")
    assert dispatched is True


async def test_middleware_may_make_a_result_small_enough(engine: Engine) -> None:
    upstream = ScriptedSource("git", {"log": text_result("x" * 5000)})

    async def shorten(event: ToolCallEvent, result: Any) -> Any:
        return text_result(result["content"][0]["text"][:10])

    async with bench(
        engine, upstream, interception=with_hooks(middleware=(shorten,)), max_tool_result_bytes=1024
    ) as it:
        outcome = await it.execute("return unwrap(await MCP.git.log())")
    assert outcome.value == "x" * 10


async def test_a_note_is_shown_once_also_when_the_run_was_suspended(engine: Engine) -> None:
    upstream = SlowSource("slow", {"work": text_result("done"), "other": text_result("done")})

    async def note(event: ToolCallEvent) -> NoteCall | None:
        return NoteCall(f"{event.tool_id} is old") if event.tool_id != EXEC_ID else None

    code = "await Promise.all([MCP.slow.work(), MCP.slow.work()]); MCP.slow.work(); await MCP.slow.other(); return 1"
    async with bench(engine, upstream, interception=with_hooks(note), timeout_ms=200) as it:
        first = await it.execute(code)
        assert (first.status, first.notes) == ("waiting", ("Plugin 'guard': mcp:slow:work is old",))
        upstream.release.set()
        later = await it.finish(first.run_id)
    notes = [note for each in later for note in each.notes if "is old" in note]
    assert (later[-1].value, notes) == (1, ["Plugin 'guard': mcp:slow:other is old"])


async def test_a_hook_is_asked_before_a_person_and_a_denial_asks_no_person(engine: Engine) -> None:
    asked: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> Verdict:
        asked.append(request)
        return Verdict(True)

    rules = PolicyRules(ask=("mcp:git:push",))
    async with bench(engine, source(), interception=with_hooks(says(DenyCall("no"))), rules=rules) as it:
        completion = await push(it, approve)
    assert completion.error is not None
    assert asked == []


# the outer exec


async def test_hooks_see_the_program_before_anything_looks_at_it_and_may_change_it(engine: Engine) -> None:
    seen: list[ToolCallEvent] = []

    async def fix(event: ToolCallEvent) -> ChangeInput:
        seen.append(event)
        return ChangeInput({"code": event.input["code"].replace("import 'x';", "")})

    outcome = await ran(engine, "import 'x'; return 40 + 2", interception=with_hooks(fix))
    assert outcome.value == 42
    (event,) = seen
    assert (event.tool_id, event.tool_kind, event.tool_input_kind) == (EXEC_ID, "code_mode_exec", "javascript")
    assert event.run_id == outcome.run_id


@pytest.mark.parametrize(
    ("code", "kinds"),
    [
        ("const a: number = 1; return a", ["typescript"]),
        ("interface A { x: number } return 1", ["typescript"]),
        ("return new Map<string, number>().size", ["typescript"]),
        ("```ts\nreturn 1\n```", ["typescript"]),
        ("const a = 1 < 2; return a ? 1 : 2", ["javascript"]),
        ("return [1].map((a, b) => a < b).length", ["javascript"]),
    ],
)
async def test_hooks_are_told_the_language_that_runs(engine: Engine, code: str, kinds: list[str]) -> None:
    seen: list[str] = []

    async def look(event: ToolCallEvent) -> DenyCall:
        seen.append(event.tool_input_kind)
        return DenyCall("seen")

    async with bench(engine, interception=with_hooks(look)) as it:
        with pytest.raises(ProgramError, match="seen"):
            await it.manager.execute(Cell(code, None, CALLER))
    assert seen == kinds


async def test_what_a_hook_makes_of_a_program_is_checked_like_any(engine: Engine) -> None:
    failed = await refusal(
        ran(engine, "return 1", interception=with_hooks(says(ChangeInput({"code": "import fs from 'fs'"})))),
        CodeModeError,
    )
    assert failed.code == "module_access_denied"


async def test_a_program_that_a_hook_denies_does_not_run(engine: Engine) -> None:
    async def deny(event: ToolCallEvent) -> DenyCall | None:
        return DenyCall("no programs at night") if event.tool_kind == "code_mode_exec" else None

    upstream = source()
    failed = await refusal(ran(engine, PUSH, upstream, interception=with_hooks(deny)), CodeModeError)
    said = "exec was denied by plugin 'guard': no programs at night"
    assert (failed.code, failed.message) == ("invalid_input", said)
    assert upstream.calls == []


@pytest.mark.parametrize("changed", [{"code": 7}, {"code": " "}, {"code": "return 1", "language": "python"}, {}])
async def test_nonsense_for_a_program_fails_by_the_name_of_the_plugin(engine: Engine, changed: Any) -> None:
    hooks = with_hooks(lambda _: ChangeInput(changed))
    failed = await refusal(ran(engine, "return 1", interception=hooks), CodeModeError)
    assert failed.code == "internal_error"
    assert failed.message.startswith("exec: plugin 'guard' changed the input to an invalid one")


async def test_a_hook_that_takes_too_long_over_a_program_does_not_outlast_the_request(engine: Engine) -> None:
    async def wait(event: ToolCallEvent) -> None:
        await anyio.sleep_forever()

    with anyio.fail_after(4):
        program = ran(engine, "return 1", interception=with_hooks(wait), max_request_ms=50, timeout_ms=50)
        assert (await refusal(program, CodeModeError)).code == "timeout"


async def test_programs_wait_until_it_is_known_who_sees_them(engine: Engine) -> None:
    unready = Interceptors()
    async with (
        bench(engine, interception=unready) as it,
        answering(refusal(it.execute("return 1"), CodeModeError)) as errors,
    ):
        await anyio.wait_all_tasks_blocked()
        assert errors == []
        unready.apply([Registered("guard", says(DenyCall("seen")), ("*",), ("*",))], [])
    assert errors[0].message == "exec was denied by plugin 'guard': seen"


# duplicates


@pytest.mark.parametrize("window", [0, 600])
async def test_the_same_call_again_and_again_is_reported_once(engine: Engine, window: int) -> None:
    upstream = source()
    async with bench(engine, upstream, interception=with_guard(max=2, window_seconds=window)) as it:
        outcome = await it.execute("for (let i = 0; i < 6; i++) await MCP.git.push({ branch: 'main' })")
        fine = await it.execute("for (const b of ['a', 'b', 'c']) await MCP.git.push({ branch: b })")
        again = await it.execute("for (let i = 0; i < 2; i++) await MCP.git.push({ branch: 'main' })")
    assert len(upstream.calls) == 11
    (note,) = outcome.notes
    assert note.startswith("mcp:git:push was called with the same arguments more than 2 times")
    assert fine.notes == ()
    assert [f"also by another program of the same user ({outcome.run_id[:12]}, " in each for each in again.notes] == (
        [True] if window else []
    )


async def test_the_order_of_keys_and_given_defaults_make_no_other_call(engine: Engine) -> None:
    upstream = source()
    async with bench(engine, upstream, interception=with_guard(max=1, action="deny")) as it:
        outcome = await it.execute(
            "await MCP.git.push({ branch: 'main', force: false });\n"
            "const again = [{ force: false, branch: 'main' }, { branch: 'main' }];\n"
            "return (await Promise.allSettled(again.map((each) => MCP.git.push(each))))\n"
            "  .map((each) => each.reason.message)"
        )
    assert (len(upstream.calls), len(outcome.value)) == (1, 2)
    assert all(why.startswith("MCP.git.push was denied: this program has made the same") for why in outcome.value)


async def test_calls_are_counted_across_suspending(engine: Engine) -> None:
    upstream = source()
    async with bench(engine, upstream, interception=with_guard(max=1, action="deny")) as it:
        suspended = await it.execute(f"{PUSH} await yield_control(); {PUSH}")
        assert suspended.status == "waiting"
        outcome = await it.observe(suspended.run_id)
    assert outcome.status == "failed"
    assert "MCP.git.push was denied: this program has made the same call once already" in outcome.error
    assert len(upstream.calls) == 1
