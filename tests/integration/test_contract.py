"""The contract of the server, held by every way to reach it: a private process, the shared instance, and HTTP of both
protocol eras.

Decisions are tested where they are made. These tests show that each way to the server has them, so all of them share
one configuration, and each server of it belongs to one test.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.integration.attached import instance
from tests.integration.harness import COMMAND, SECONDS, Session, counting, events, serve, until, write_config
from tests.integration.http_harness import ALICE, BOB, TWO_TOKENS, serve_http

pytestmark = pytest.mark.anyio

BUDGETS = {
    "hourly": {"server": "hour*", "calls": 3},
    "few": {"server": "together", "calls": 3},
    "small": {"server": "small", "bytes": 60},
    "short": {"server": "short", "runningMs": 50},
    "asked": {"server": "asked", "calls": 1},
    "changed": {"server": "changed", "calls": 1},
}
NAMES = ("counter", "secret", "hourly", "together", "small", "short", "asked", "changed")


def configure(folder: Path, budgets: dict[str, Any], **sections: Any) -> Path:
    """Write the configuration: a counting server for each test, with its log."""
    servers = {name: counting(folder / name) for name in NAMES}
    tools = {"budgets": budgets, "ask": ["mcp:asked:hold"], "deny": ["mcp:secret:*"]}
    path = write_config(folder, servers, **tools)
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **sections}), "utf-8")
    return path


@dataclass
class Way:
    """A client that has reached the server in one way, and the folder of its configuration."""

    session: Session
    folder: Path
    sections: dict[str, Any]

    @property
    def value(self) -> Any:
        return self.session.value

    @property
    def exec(self) -> Any:
        return self.session.exec

    def events(self, server: str) -> list[str]:
        """Return what has reached a server."""
        return events(self.folder / server)


@asynccontextmanager
async def reach(way: str, folder: Path) -> AsyncIterator[Way]:
    """Start the server in a folder of its own, and reach it."""
    sections = {"http": TWO_TOKENS, "store": {"kind": "memory"}} if way.startswith("http") else {}
    config = configure(folder, BUDGETS, **sections)
    if way.startswith("http"):
        mode, token = ("legacy", ALICE) if way == "http-2025" else ("auto", BOB)
        async with serve_http(config) as served:
            await served.ready()
            async with served.client(mode, token) as session:
                yield Way(session, folder, sections)
    elif way == "instance":
        async with instance(config), serve(config, private=False) as session:
            yield Way(session, folder, sections)
    else:
        async with serve(config, mode="auto") as session:
            yield Way(session, folder, sections)


@pytest.fixture(scope="module", params=["private", "instance", "http-2025", "http-2026"])
async def way(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Way]:
    """Yield each way to the server in turn."""
    async with reach(request.param, tmp_path_factory.mktemp(request.param)) as found:
        yield found


# programs


async def test_programs_run_suspend_and_resume(way: Way) -> None:
    assert [tool.name for tool in (await way.session.client.list_tools()).tools] == ["exec", "wait"]
    assert await way.value("return 6 * 7") == 42
    suspended = await way.exec("text('a'); await yield_control(); return 'end'")
    assert suspended.texts == ["a"]
    assert (await way.session.finish(suspended)).value == "end"


async def test_concurrent_programs_get_their_own_answers(way: Way) -> None:
    values: dict[int, object] = {}

    async def one(number: int) -> None:
        suspended = await way.exec(f"await yield_control(); return {number}")
        values[number] = (await way.session.finish(suspended)).value

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(one, number)
    assert values == {number: number for number in range(6)}


async def test_a_large_value_is_cut_and_can_be_read_later(way: Way) -> None:
    cut = await way.value("return 'x'.repeat(100_000)")
    assert cut["truncated"] is True
    assert cut["bytes"] == 100_002
    assert await way.value(f"return (await load({json.dumps(cut['ref'])})).length") == 100_000


async def test_outputs_keep_the_order_of_the_program(way: Way) -> None:
    code = 'text("one"); json({ two: 2 }); console.log("three", 3); text({ four: 4 }); return 5'
    answer = await way.exec(code)
    outputs = answer.structured["output"]
    assert [item["type"] for item in outputs] == ["text", "json", "text", "text"]
    assert outputs[1]["value"] == {"two": 2}
    assert answer.read.splitlines() == ["one", "```json", '{"two":2}', "```", "three 3", '{"four":4}', "5"]


async def test_what_was_printed_before_a_failure_is_there(way: Way) -> None:
    answer = await way.exec('text("so far"); throw new Error("no further")')
    assert answer.code == "internal_error"
    assert answer.texts == ["so far"]
    assert answer.read.startswith("so far\n")


async def test_a_tool_that_fails_resolves_and_a_program_can_catch_the_rest(way: Way) -> None:
    code = """
        const result = await MCP.counter.refuse({});
        const caught = await MCP.counter.reject({}).catch((e) => ({ message: e.message, code: e.code }));
        return { isError: result.isError, caught };
    """
    value = await way.value(code)
    assert value["isError"] is True
    assert value["caught"]["code"] == "nested_tool_failed"
    assert "the server says no" in value["caught"]["message"]


# arguments


async def test_a_refused_call_names_every_problem_and_is_not_sent(way: Way) -> None:
    await way.value("return unwrap(await MCP.counter.count({ name: 'before' }))")
    before = way.events("counter")
    messages = await way.value("""
        const said = [];
        for (const input of [{ nam: "x" }, { name: 7 }, { Name: "x" }]) {
          try { await MCP.counter.count(input) } catch (error) { said.push([error.message, error.data.dispatched]) }
        }
        return said;
    """)
    first = "MCP.counter.count: invalid arguments, nothing was sent."
    seen = "/* observed: text, not JSON: one line */ string"
    last = f"Signature: MCP.counter.count(input: {{ name: string }}): Promise<McpToolResult<{seen}>>"
    assert messages == [
        [f"{first}\n- {problem}\n{last}", False]
        for problem in (
            "input.nam: no such argument; did you mean name (missing, string)?",
            "input.name: expected string, got number 7",
            "input.Name: no such argument; did you mean name (missing, string)?",
        )
    ]
    assert way.events("counter") == before
    assert await way.value('return unwrap(await MCP.counter.count({ name: "x" }))') == "x"


async def test_a_call_that_was_not_sent_may_be_repeated_whatever_its_tool_does(way: Way) -> None:
    answer = await way.exec("""
        await MCP.counter.count({ name: "sent" });
        try { await MCP.counter.count({ name: 7 }) } catch (error) { return error.data }
    """)
    assert answer.value == {"tool": "mcp:counter:count", "dispatched": False, "repeatable": True}
    calls = [(call["dispatched"], call["repeatable"]) for call in answer.telemetry["calls"]]
    assert calls == [(True, False), (False, True)]


# policy


async def test_a_denied_server_does_not_exist(way: Way) -> None:
    assert "secret" not in (await way.session.client.list_tools()).tools[0].description
    assert await way.value("return ['secret' in MCP, JSON.stringify(ALL_TOOLS).includes('mcp:secret')]") == [
        False,
        False,
    ]
    refused = await way.exec("return await tools.call('mcp:secret:count', { name: 'x' })")
    assert 'there is no tool "mcp:secret:count"' in refused.error
    assert not [event for event in way.events("secret") if event.startswith("call")]


async def test_a_call_that_needs_approval_waits_with_advice_and_is_not_sent(way: Way) -> None:
    waiting = await way.exec("await MCP.asked.hold({ name: 'a' })")
    assert waiting.pending == ["mcp:asked:hold"]
    (pending,) = waiting.structured["pendingToolCalls"]
    assert pending["status"] == "needs_approval"
    assert f"{shlex.join(COMMAND)} runs approve" in waiting.structured["next"]
    assert (await way.session.wait(waiting.run_id, cancel=True)).code == "aborted"
    assert "call a" not in way.events("asked")


# budgets

CALLS = """
const ends = [];
for (let i = 0; i < %d; i++) {
  try { await MCP.%s.count({ name: String(i) }); ends.push("ok"); }
  catch (error) { ends.push(error.message); }
}
return JSON.stringify(ends);
"""


async def test_calls_beyond_the_budget_are_refused_by_name_with_the_time_and_not_sent(way: Way) -> None:
    ends = json.loads(await way.value(CALLS % (5, "hourly")))
    assert ends[:3] == ["ok"] * 3
    found = re.fullmatch(
        r"MCP\.hourly\.count was not called: the budget 'hourly' for server 'hourly' is used up "
        r"\(3 of 3 calls in 3600 s\)\. It opens again at (\S+), in (\d+) s; do not call this server before that",
        ends[3],
    )
    assert found is not None, ends[3]
    opens = datetime.fromisoformat(found[1].replace("Z", "+00:00"))
    assert abs(opens - datetime.now(UTC) - timedelta(seconds=int(found[2]))) < timedelta(seconds=60)
    assert 3500 < int(found[2]) <= 3660
    assert way.events("hourly") == ["call 0", "call 1", "call 2"]


async def test_calls_that_are_made_together_do_not_exceed_the_budget(way: Way) -> None:
    program = """
      const ends = await Promise.allSettled([...Array(10).keys()].map((i) => MCP.together.count({ name: String(i) })));
      return ends.filter((each) => each.status === "fulfilled").length;
    """
    assert await way.value(program) == 3
    assert len(way.events("together")) == 3


async def test_a_result_counts_with_its_bytes(way: Way) -> None:
    ends = json.loads(await way.value(CALLS % (4, "small")))
    assert ends.count("ok") == 2, ends
    assert "of 60 bytes of results in 3600 s" in ends[-1]


async def test_the_time_of_a_call_that_is_given_up_counts(way: Way) -> None:
    given_up = await way.exec("await MCP.short.hold({ name: 'a' }, { timeoutMs: 200 })")
    assert given_up.status == "failed"
    again = await way.exec("await MCP.short.count({ name: 'b' })")
    assert "ms of running calls" in again.error
    assert "call b" not in way.events("short")


async def test_no_person_is_asked_for_a_call_without_room(way: Way) -> None:
    assert await way.value("return unwrap(await MCP.asked.count({ name: 'first' }))") == "first"
    refused = await way.exec("await MCP.asked.hold({ name: 'b' })")
    assert "the budget 'asked'" in refused.error


async def test_a_changed_budget_applies_to_the_next_call(way: Way) -> None:
    (made, refused) = json.loads(await way.value(CALLS % (2, "changed")))
    assert made == "ok"
    assert "the budget 'changed'" in refused
    configure(way.folder, {**BUDGETS, "changed": {"server": "changed", "calls": 2}}, **way.sections)
    with anyio.fail_after(SECONDS):
        while json.loads(await way.value(CALLS % (1, "changed"))) != ["ok"]:  # noqa: ASYNC110 - another process
            await anyio.sleep(0.05)
    assert len([event for event in way.events("changed") if event.startswith("call")]) == 2


async def test_callers_over_http_have_their_own_accounts(tmp_path: Path) -> None:
    config = configure(tmp_path, {"few": {"server": "hourly", "calls": 1}}, http=TWO_TOKENS, store={"kind": "memory"})
    async with serve_http(config) as served:
        await served.ready()
        for token in (ALICE, BOB):
            async with served.client("auto", token) as session:
                ends = json.loads(await session.value(CALLS % (2, "hourly")))
                assert ends[0] == "ok"
                assert "the budget 'few'" in ends[1]


async def test_pass_through_mode_has_budgets(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")}, budgets={"few": {"calls": 1}}, codeMode=False)
    async with serve(config) as session:
        assert not (await session.client.call_tool("up__count", {"name": "a"})).is_error
        second = await session.client.call_tool("up__count", {"name": "b"})
        assert second.is_error
        assert "the budget 'few'" in str(second.content)
    await until(lambda: events(tmp_path / "log") == ["call a"])
