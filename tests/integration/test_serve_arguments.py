"""A call with wrong arguments never reaches its server, and says how it goes right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from harness import Session, counting, events, serve, write_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def session(folder: Path) -> AsyncIterator[Session]:
    async with serve(write_config(folder, {"counter": counting(folder / "counter")})) as session:
        yield session


async def test_a_refused_call_names_every_problem_and_is_not_sent(session: Session, folder: Path) -> None:
    messages = await session.value("""
        const said = [];
        for (const input of [{ nam: "x" }, { name: 7 }, { Name: "x" }]) {
          try { await MCP.counter.count(input) } catch (error) { said.push([error.message, error.data.dispatched]) }
        }
        return said;
    """)
    first = "MCP.counter.count: invalid arguments, nothing was sent."
    last = "Signature: MCP.counter.count(input: { name: string }): Promise<McpToolResult>"
    assert messages == [
        [f"{first}\n- {problem}\n{last}", False]
        for problem in (
            "input.nam: no such argument; did you mean name (missing, string)?",
            "input.name: expected string, got number 7",
            "input.Name: no such argument; did you mean name (missing, string)?",
        )
    ]
    assert not [event for event in events(folder / "counter") if event.startswith("call")]
    assert await session.value('return unwrap(await MCP.counter.count({ name: "x" }))') == "x"


async def test_a_call_that_was_not_sent_may_be_repeated_whatever_its_tool_does(session: Session) -> None:
    answer = await session.exec("""
        await MCP.counter.count({ name: "sent" });
        try { await MCP.counter.count({ name: 7 }) } catch (error) { return error.data }
    """)
    assert answer.value == {"tool": "mcp:counter:count", "dispatched": False, "repeatable": True}
    calls = [(call["dispatched"], call["repeatable"]) for call in answer.telemetry["calls"]]
    assert calls == [(True, False), (False, True)]
