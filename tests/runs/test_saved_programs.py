"""Saved programs in runs: their input and result, their chain, their errors, and their lines among the calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from codemode_mcp.audit import Event
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.catalog.saved_programs.saved_program import FileProblem
from codemode_mcp.runs.calls.outcome import Calling, CallRecord
from codemode_mcp.runs.deliveries import PROPOSALS_PER_RUN, bounded_proposal
from codemode_mcp.runs.run import Run
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.messages import SaveProgram, ToolCall
from tests.runs.bench import CALLER, OWNER, FakeClient, bench
from tests.runs.saved_programs import DOUBLE, WORK, library
from tests.runs.test_approvals import NO, YES
from tests.values import replace
from tests.waiting import refusal
from upstream_clients.testing import ScriptedSource, SlowSource


def answer(arguments: Any) -> Any:
    return {"content": [], "structuredContent": {"text": f"done {arguments['n']}"}}


async def test_a_saved_program_gets_checked_input_and_gives_its_result(engine: Engine) -> None:
    files = ScriptedSource("files", {"read": answer})
    async with bench(engine, files) as it:
        it.library = library(double=DOUBLE, work=WORK, none="export default () => { return undefined; }")
        outcome = await it.execute(
            "const parts = await Promise.all([1, 2, 3].map((n) => programs.work({ n })));"
            "return [await programs.double({ n: 4 }), parts, await programs.none(), Object.keys(programs)]"
        )
        assert outcome.value == [{"twice": 8}, ["done 1!", "done 2!", "done 3!"], None, ["double", "none", "work"]]
        wrong = await it.execute("try { await programs.double({ m: 1 }) } catch (error) { return error.message }")
        assert wrong.value.startswith(
            "programs.double: invalid arguments, nothing was sent.\n- input.n: missing (number)"
        )
        assert "Signature: programs.double(input: { n: number }): Promise<unknown>" in wrong.value
    assert it.waited_for[0] == {"files"}  # the server that only the text of a saved program names


async def test_input_and_result_are_copies_and_each_call_has_its_own_variables(engine: Engine) -> None:
    async with bench(engine) as it:
        it.library = library(
            count="let calls = 0; const seen = [];\n"
            '/** @input {"type": "object"} */\nexport default (input) => { input.list.push(1); seen.push(input); '
            "globalThis.leaked = input; return { calls: ++calls, seen, when: new Date(0) }; }"
        )
        outcome = await it.execute(
            "const input = { list: [] };"
            "const [first, second] = [await programs.count(input), await programs.count(input)];"
            "leaked.list.push(2);"
            "return [input, first, second]"
        )
        result = {"calls": 1, "seen": [{"list": [1]}], "when": "1970-01-01T00:00:00.000Z"}
        assert outcome.value == [{"list": []}, result, result]


async def test_saved_programs_call_each_other_four_deep_and_never_in_a_circle(engine: Engine) -> None:
    def calling(name: str) -> str:
        return f"export default async () => programs.{name}();"

    async with bench(engine) as it:
        it.library = library(
            a=calling("b"), b=calling("c"), c=calling("d"), d="export default () => 'deep';", e=calling("a"),
            ping=calling("pong"), pong=calling("ping"),
        )  # fmt: skip
        assert (await it.execute("return await programs.a()")).value == "deep"
        deeper = await it.execute("return await programs.e()")
        assert "at most 4 saved programs may call each other (e → a → b → c → d)" in deeper.error
        circle = await it.execute("return await programs.ping()")
        assert "may not call each other in a circle (ping → pong → ping)" in circle.error


async def test_an_error_names_its_place_in_each_file(engine: Engine) -> None:
    async with bench(engine) as it:
        it.library = library(
            double=DOUBLE,
            outer="\nexport default async () =>\n  programs.double({ n: 200 });",
            broken="export default () => { let x = ; }",
        )
        outcome = await it.execute("\nreturn await programs.outer()")
        assert outcome.code == "nested_tool_failed"
        assert outcome.error.startswith(
            "RangeError: programs.outer failed: programs.double failed: too large (programs/double.js:5:11) "
            "(programs/outer.js:3:"
        )
        assert outcome.error.endswith("at cell.js:2:23")
        caught = await it.execute(
            "try { await programs.outer() } catch (error) { return [error.name, error.code, error.data.tool] }"
        )
        assert caught.value == ["RangeError", "nested_tool_failed", "program:saved:outer"]
        broken = await it.execute("return await programs.broken()")
        assert "SyntaxError" in broken.error
        assert "programs/broken.js:1:" in broken.error


async def test_the_line_of_a_saved_program_covers_all_of_it_and_has_its_end(engine: Engine) -> None:
    slow = SlowSource("files", {"read": answer})
    async with bench(engine, slow, timeout_ms=300) as it:
        it.library = library(work=WORK, double=DOUBLE)
        heard: list[Event] = []
        it.auditor.add(heard.append)
        waiting = await it.execute(
            "const failed = await programs.double({ n: 101 }).catch((error) => error.name);"
            "return [failed, await programs.work({ n: 1 })]"
        )
        assert waiting.status == "waiting"
        run = it.manager.operator.view(waiting.run_id)
        assert run is not None
        assert [(call.tool, call.status) for call in run.calls] == [
            ("program:saved:double", "failed"),
            ("program:saved:work", "executing"),
            ("mcp:files:read", "executing"),
        ]
        it.clock.advance(5)
        slow.release.set()
        assert (await it.observe(waiting.run_id)).value == ["RangeError", "done 1!"]
        ends = {event.fields["tool"]: event.fields for event in heard if event.kind == "call_ended"}
        assert ends["program:saved:double"]["status"] == "failed"
        assert ends["program:saved:work"]["status"] == "completed"
        assert ends["program:saved:work"]["ms"] >= 5000
        assert ends["program:saved:work"]["bytes"] == len('"done 1!"')


async def test_a_program_that_is_not_awaited_ends_with_the_run(engine: Engine) -> None:
    async with bench(engine, SlowSource("files", {"read": answer})) as it:
        it.library = library(work=WORK)
        outcome = await it.execute("programs.work({ n: 1 }); await programs.work({ m: 1 }).catch(() => {}); return 1")
        assert outcome.value == 1
        assert any("program:saved:work" in note and note.startswith("Not waited for") for note in outcome.notes)
        run = it.manager.operator.view(outcome.run_id)
        assert run is not None
        assert run.calls[0].status == "failed"


async def test_a_program_that_nothing_can_continue_is_not_waited_for(engine: Engine) -> None:
    async with bench(engine) as it:
        it.library = library(never="export default () => new Promise(() => {});")
        outcome = await it.execute("return await programs.never()")
        assert "awaits a promise that nothing can settle" in outcome.error


async def test_many_saved_programs_together_do_not_take_the_places_of_their_calls(engine: Engine) -> None:
    files = ScriptedSource("files", {"read": answer})
    async with bench(engine, files, max_pending_tool_calls=2) as it:
        it.library = library(work=WORK)
        outcome = await it.execute(
            "return (await Promise.all([...Array(20).keys()].map((n) => programs.work({ n })))).length"
        )
        assert outcome.value == 20


async def test_a_run_keeps_the_programs_with_which_it_began(engine: Engine) -> None:
    async with bench(engine) as it:
        it.library = library(version="export default () => 1;")
        waiting = await it.execute("await yield_control(); return await programs.version()")
        it.library = library(version="export default () => 2;")
        assert (await it.observe(waiting.run_id)).value == 1
        assert (await it.execute("return await programs.version()")).value == 2


async def test_a_program_whose_file_is_broken_is_named_only_to_callers_that_policy_lets_see_it(engine: Engine) -> None:
    files = library(bad1="export default () => 1;", outer="export default () => programs.bad2();")
    files = replace(files, problems=(FileProblem("bad2.ts", 1, "export default is no function"),))
    advice = "its file has a problem; ask the user to run: codemode-mcp programs check"
    async with bench(engine) as it:
        it.library = files
        refused = await refusal(it.execute("return await programs.bad2()"))
        assert refused.message == f"programs.bad2 cannot be used (cell.js:1:14): {advice}"
        saved = await it.execute("return await programs.outer()")
        assert f"({advice})" in saved.error
        assert "nearest" not in saved.error
    async with bench(engine, rules=PolicyRules(deny=("program:saved:bad2",))) as it:
        it.library = files
        refused = await refusal(it.execute("return await programs.bad2()"))
        assert refused.message == "programs.bad2 does not exist (cell.js:1:14). Nearest: programs.bad1."
        assert advice not in (await it.execute("return await programs.outer()")).error


async def test_policy_decides_about_saved_programs_and_about_each_of_their_calls(engine: Engine) -> None:
    files = ScriptedSource("files", {"read": answer})
    rules = PolicyRules(deny=("program:saved:double",), ask=("program:saved:none", "mcp:files:read"))
    async with bench(engine, files, rules=rules) as it:
        it.library = library(double=DOUBLE, work=WORK, none="export default () => 1;")
        hidden = await it.execute("return [Object.keys(programs), await API.list('programs/')]")
        assert hidden.value[0] == ["none", "work"]
        assert "double" not in str(hidden.value)
        client = FakeClient("ask", replies=[YES, NO])
        outcome = await it.execute(
            "return [await programs.none(), await programs.work({ n: 1 }).catch((error) => error.message)]",
            client=client,
        )
        assert outcome.value[0] == 1
        assert "MCP.files.read was not approved" in outcome.value[1]
        assert ["program:saved:none" in str(question) for question in client.asked] == [True, False]
    restricted = PolicyRules(read_only=True)
    async with bench(engine, files, rules=restricted) as it:
        it.library = library(double=DOUBLE, write=WORK)
        outcome = await it.execute(
            "return [await programs.double({ n: 1 }), await programs.write({ n: 1 }).catch((error) => error.message)]"
        )
        assert outcome.value[0] == {"twice": 2}
        assert outcome.value[1].startswith("programs.write failed: cannot read property 'read' of undefined")


async def test_without_saved_programs_nothing_of_the_catalog_changes(engine: Engine) -> None:
    async with bench(engine) as it:
        before = it.catalog().manifest
        assert "programs" not in before
        assert (await it.execute("return typeof programs")).value == "undefined"
        it.library = library(double=DOUBLE)
        assert it.catalog().manifest.startswith(before[:-1] + ',"programs":')


async def test_what_is_called_by_id_is_told_the_right_call(engine: Engine) -> None:
    async with bench(engine) as it:
        it.library = library(double=DOUBLE)
        outcome = await it.execute('return await tools.call("program:saved:double", { n: 1 })')
        assert "is a saved program: call it as programs.double({...})" in outcome.error
        assert (await it.execute("return ALL_TOOLS.length")).value == 0


async def test_programs_that_never_end_are_limited_like_calls(engine: Engine) -> None:
    async with bench(engine, max_pending_tool_calls=2, max_queued_tool_calls=8) as it:
        it.library = library(never="export default () => new Promise(() => {});")
        outcome = await it.execute(
            "const seen = []; for (let n = 0; n < 12; n++) {"
            "  programs.never().catch((error) => seen.push(error.message)); await new Promise((r) => setTimeout(r, 1));"
            "} return seen"
        )
        assert len(outcome.value) == 2
        assert "and 10 saved programs have not ended" in outcome.value[0]


async def test_a_program_that_changes_built_ins_changes_neither_calls_nor_results(engine: Engine) -> None:
    async with bench(engine) as it:
        it.library = library(double=DOUBLE)
        outcome = await it.execute(
            "JSON.parse = JSON.stringify = () => 'forged'; Map.prototype.get = () => () => 666;"
            "Function.prototype.call = () => 666; globalThis.eval = globalThis.Function = () => () => 666;"
            "Promise.prototype.then = function () { throw new Error('then') };"
            "Object.defineProperty(Object.prototype, 'chain', { get: () => ['x'] });"
            "try { programs.double = () => 666 } catch {}"
            "return [await programs.double({ n: 2 }), Object.isFrozen(programs), Object.isFrozen(programs.double)]"
        )
        assert (outcome.error, outcome.value) == ("", [{"twice": 4}, True, True])


async def test_an_error_names_its_line_or_its_function(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "\n".join(f"  const a{n} = {{ b: {n} }};" for n in range(200))  # searched in a thread
    async with bench(engine) as it:
        it.library = library(fails=f"export default () => {{\n{lines}\n  const c = undefined.x;\n}}")
        code = "return await programs.fails().catch((error) => error.message)"
        assert "(programs/fails.js:202:23)" in (await it.execute(code)).value
        monkeypatch.setattr("codemode_mcp.runs.live_call.DESCRIBE_SECONDS", 0.0)
        assert "(programs/fails.js:1:1)" in (await it.execute(code)).value


async def test_only_a_program_can_call_a_saved_program(engine: Engine) -> None:
    async with bench(engine) as it:
        it.library = library(double=DOUBLE)
        context = it.dispatcher.context("run_1", OWNER, CALLER, it.catalog())
        call = ToolCall(1, "program:saved:double", '{"n":1}')
        ended = await it.dispatcher.call(Calling(call, context, CallRecord(1, call.target, 0.0)))
        assert ended.error is not None
        assert "only programs of exec can call" in ended.error.message


async def test_proposals_beyond_the_limit_of_a_run_are_queued_without_their_texts() -> None:
    source = "x" * 1000
    run = cast("Run", SimpleNamespace(proposed=0))
    queued = [
        bounded_proposal(run, SaveProgram(number, "a", "d", "javascript", source, "{}"))
        for number in range(PROPOSALS_PER_RUN + 2)
    ]
    assert [each.source for each in queued] == [source] * PROPOSALS_PER_RUN + ["", ""]
    assert [each.id for each in queued] == list(range(PROPOSALS_PER_RUN + 2))
    assert (queued[-1].description, queued[-1].input) == ("", None)
