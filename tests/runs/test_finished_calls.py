"""Failed programs do not lose their work: the next program loads the results of the calls that had succeeded."""

from __future__ import annotations

import re
from typing import Any

import anyio
import pytest

from codemode_mcp.base.errors import StoreUnavailable
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.runs.calls.outcome import Outcome
from codemode_mcp.runs.run_recording import LISTED, MAX_CHARACTERS, MAX_RESULTS, RecentResults
from codemode_mcp.runs.values import MemoryValues
from codemode_mcp.sandbox.engine import Engine
from tests.runs.bench import OWNER, bench, ran
from upstream_clients.testing import ScriptedSource, SlowSource, text_result
from upstream_clients.tools import Annotations, Tool

ANSWERS: dict[str, Any] = {
    "create": text_result('{"id": 17}', structuredContent={"id": 17}),
    "read": text_result("read"),
    "fail": text_result("status 400", isError=True),
}
TOOLS = [Tool("create"), Tool("read", annotations=Annotations(read_only=True)), Tool("fail")]
ELEVEN = "for (let n = 0; n < 11; n++) await MCP.u.read({ n });"
MANY = 64 * 1024 * 1024


def source() -> ScriptedSource:
    return ScriptedSource("u", ANSWERS, tools=TOOLS)


def kept(outcome: Outcome) -> str:
    """Return the note about finished calls; empty if there is none."""
    return next((note for note in outcome.notes if note.startswith("Finished calls are kept")), "")


def key(outcome: Outcome) -> str:
    found = re.search(r'await load\("(result:[0-9a-f]{16})"\)', kept(outcome))
    assert found is not None, outcome.notes
    return found[1]


@pytest.mark.parametrize(
    "end",
    [
        *("throw new Error('enough')", "unwrap(await MCP.u.fail({}))", "await MCP.u.read({}, 'no options')"),
        *("return nothing.at.all", "await new Promise(() => {})"),
        "while (true) {}",
        "const all = []; while (true) all.push(new Array(10000).fill(all.length))",
        "return 'x'.repeat(25 * 1024 * 1024)",
        "await yield_control(); throw new Error('later')",
        "await new Promise((done) => setTimeout(done, 1)); throw new Error('later')",
        "await Promise.all([MCP.u.read({ n: 11, m: 1 }, 1), MCP.u.fail({})])",
    ],
)
async def test_the_next_program_loads_the_results_of_a_failed_one(engine: Engine, end: str) -> None:
    upstream = source()
    settings = {"timeout_ms": 1_000 if "while (true) {}" in end else 20_000, "memory_limit_bytes": 32 * 1024 * 1024}
    async with bench(engine, upstream, **settings) as it:
        outcome = await it.execute(f"{ELEVEN}\n{end}")
        if outcome.status == "waiting":
            outcome = (await it.finish(outcome.run_id))[-1]
        assert outcome.status == "failed"
        assert 'an array of { tool, input, result }: [0] MCP.u.read({"n":0}), [1] MCP.u.read({"n":1})' in kept(outcome)
        made = len(upstream.calls)
        code = f"return (await load('{key(outcome)}')).map((each) => [each.tool, each.input.n, unwrap(each.result)])"
        loaded = await it.execute(code)
    assert loaded.value == [["MCP.u.read", n, "read"] for n in range(11)]
    assert len(upstream.calls) == made


async def test_results_of_calls_that_must_not_be_repeated_are_kept_and_failed_calls_are_not(engine: Engine) -> None:
    code = """
        await MCP.u.create({});
        await MCP.u.fail({});
        await MCP.u.read(1, 2, 3).catch(() => {});
        await API.list();
        throw new Error("enough");
    """
    async with bench(engine, source()) as it:
        outcome = await it.execute(code)
        loaded = await it.execute(f"return (await load('{key(outcome)}')).map((each) => unwrap(each.result))")
    assert outcome.notes[0].startswith("Already made, do not repeat: mcp:u:create (completed)")
    assert kept(outcome).endswith(": [0] MCP.u.create({}).")
    assert loaded.value == [{"id": 17}]


async def test_the_note_shows_no_value_that_the_program_has_got_from_a_tool(engine: Engine) -> None:
    secret = ScriptedSource("vault", {"get": text_result("sk-live-9f8e"), "use": text_result("ok")})
    code = """
        const token = unwrap(await MCP.vault.get({ name: "main" }));
        await MCP.vault.use({ token, deep: [{ [token]: 123456 }], page: 7, last: true, long: "x".repeat(1000) });
        await MCP.vault.use({ token, deep: [{ [token]: 123456 * 2 }], page: 7, last: true });
        throw new Error("enough");
    """
    async with bench(engine, secret) as it:
        outcome = await it.execute(code)
        loaded = await it.execute(f"return (await load('{key(outcome)}')).at(-1).input.token")
    assert kept(outcome).partition("}: ")[2] == (
        '[0] MCP.vault.get({"name":"main"}), [1] MCP.vault.use(…), '
        '[2] MCP.vault.use({"token":"…","deep":[{"…":"…"}],"page":7,"last":true}).'
    )
    assert loaded.value == "sk-live-9f8e"


async def test_a_program_that_completes_or_has_finished_no_call_keeps_nothing(engine: Engine) -> None:
    values = MemoryValues(MANY)
    async with bench(engine, source(), values=values) as it:
        for code in (ELEVEN, "x.y", "await MCP.u.fail({}); throw new Error('x')", "await API.list(); x.y"):
            assert kept(await it.execute(code)) == ""
    assert (await values.listed(OWNER, 0, 10)).total == 0


async def test_results_of_before_a_suspension_are_kept_until_the_run_ends(engine: Engine) -> None:
    slow = SlowSource("slow", {"wait": text_result("slow")})
    async with bench(engine, source(), slow, timeout_ms=200) as it:
        waiting = await it.execute(f"{ELEVEN} await MCP.slow.wait({{}}); await yield_control(); throw new Error('x')")
        assert waiting.status == "waiting"
        slow.release.set()
        outcome = (await it.finish(waiting.run_id))[-1]
        loaded = await it.execute(f"return (await load('{key(outcome)}')).map((each) => unwrap(each.result))")
        assert loaded.value == ["read"] * 11 + ["slow"]
        again = await it.observe(waiting.run_id)
        assert key(again) == key(outcome)


async def test_a_program_cancelled_by_wait_keeps_its_work_and_a_cancelled_exec_does_not(engine: Engine) -> None:
    slow = SlowSource("slow", {"wait": text_result("slow")})
    values = MemoryValues(MANY)
    async with bench(engine, source(), slow, timeout_ms=200, values=values) as it:
        waiting = await it.execute(f"{ELEVEN} await MCP.slow.wait({{}})")
        assert "[10]" in kept(await it.observe(waiting.run_id, cancel=True))
    values = MemoryValues(MANY)
    async with (
        bench(engine, source(), slow, values=values, timeout_ms=60_000) as it,
        anyio.create_task_group() as group,
    ):
        group.start_soon(it.execute, f"{ELEVEN} await MCP.slow.wait({{}})")
        await slow.wait_pending(1)
        group.cancel_scope.cancel()
    assert (await values.listed(OWNER, 0, 10)).total == 0


async def test_another_owner_loads_nothing_and_runs_without_an_owner_keep_nothing(engine: Engine) -> None:
    async with bench(engine, source()) as it:
        outcome = await it.execute(f"{ELEVEN} throw new Error('x')")
        other = Caller("another")
        assert (await it.execute(f"return await load('{key(outcome)}')", caller=other)).value is None
        assert len((await it.execute(f"return await load('{key(outcome)}')")).value) == 11
        unknown = await it.execute(f"{ELEVEN} throw new Error('x')", caller=Caller(None, "http"))
        assert (unknown.status, kept(unknown)) == ("failed", "")


async def test_programs_of_one_owner_that_fail_side_by_side_do_not_lose_each_others_work(engine: Engine) -> None:
    outcomes: list[Outcome] = []
    async with bench(engine, source()) as it:

        async def fail(n: int) -> None:
            outcomes.append(await it.execute(f"await MCP.u.read({{ n: {n} }}); throw new Error('x')"))

        async with anyio.create_task_group() as group:
            for n in range(4):
                group.start_soon(fail, n)
        await it.execute("return 1")
        keys = [key(outcome) for outcome in outcomes]
        code = f"return await Promise.all({keys}.map(async (key) => (await load(key))[0].input.n))"
        assert sorted((await it.execute(code)).value) == [0, 1, 2, 3]


async def test_the_latest_results_are_kept_up_to_a_number_and_a_size(engine: Engine) -> None:
    large = ScriptedSource("u", {"read": text_result("x" * (MAX_CHARACTERS // 3))})
    async with bench(engine, large) as it:
        outcome = await it.execute(f"{ELEVEN} throw new Error('x')")
        loaded = await it.execute(f"return (await load('{key(outcome)}')).map((each) => each.input.n)")
    assert loaded.value == [9, 10]
    many = ScriptedSource("u", {"read": text_result("1")})
    async with bench(engine, many, max_output_bytes=2048) as it:
        code = f"for (let n = 0; n < {MAX_RESULTS + 5}; n++) await MCP.u.read({{ n, long: 'é\\n'.repeat(1000) }}); x.y"
        outcome = await it.execute(code)
        loaded = await it.execute(f"return (await load('{key(outcome)}')).map((each) => each.input.n)")
    assert loaded.value == list(range(5, MAX_RESULTS + 5))
    assert kept(outcome).endswith(f" and {MAX_RESULTS - LISTED} more.")
    assert len(kept(outcome)) < 2500
    assert "\n" not in kept(outcome)


async def test_values_of_programs_are_never_dropped_for_them_and_without_room_there_is_no_note(engine: Engine) -> None:
    async with bench(engine, source(), store_max_bytes=10_000) as it:
        await it.execute("store('mine', 'x'.repeat(9_000))")
        outcome = await it.execute(f"{ELEVEN} throw new Error('x')")
        assert (outcome.status, kept(outcome)) == ("failed", "")
        assert (await it.execute("return (await load('mine')).length")).value == 9_000


async def test_a_store_that_does_not_answer_changes_nothing_but_the_note(engine: Engine) -> None:
    class Away(MemoryValues):
        async def offload(self, owner: str, text: str) -> str | None:
            raise StoreUnavailable("the store is away")

    outcome = await ran(engine, "await MCP.u.create({}); throw new Error('enough')", source(), values=Away(MANY))
    assert "enough" in outcome.error
    assert len(outcome.notes) == 1


async def test_integers_and_texts_come_back_as_they_were(engine: Engine) -> None:
    big = {"content": [], "structuredContent": {"n": 2**60, "text": 'é "\\ud800" \u2028'}}
    async with bench(engine, ScriptedSource("u", {"read": big})) as it:
        outcome = await it.execute("await MCP.u.read({ n: 2n ** 61n, half: '\\ud800' }); throw new Error('x')")
        code = f"""
            const [{{ input, result }}] = await load('{key(outcome)}');
            return [String(input.n), input.half, String(unwrap(result).n), unwrap(result).text]
        """
        loaded = await it.execute(code)
    assert loaded.value == [str(2**61), "\ufffd", str(2**60), 'é "\\ud800" \u2028']


def test_an_input_that_is_no_json_is_left_out() -> None:
    from codemode_mcp.base.settings import PolicyRules
    from codemode_mcp.catalog.per_caller import build
    from codemode_mcp.rules.policy.policy import Policy

    results = RecentResults()
    results.add("mcp:u:gone", '{"content":[]}', '1,"injected":2')
    finished = results.finished_calls(build([], Policy(PolicyRules())))
    assert finished is not None
    assert finished.text == '[{"tool":"mcp:u:gone","input":null,"result":{"content":[]}}]'
