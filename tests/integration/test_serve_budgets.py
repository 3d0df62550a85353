"""`tools.budgets` in a real server, with real upstreams and clients."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.harness import counting, events, serve, until, write_config
from tests.integration.http_harness import ALICE, BOB, serve_http

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

CALLS = """
const ends = [];
for (let i = 0; i < %d; i++) {
  try { await MCP.library.count({ name: String(i) }); ends.push("ok"); }
  catch (error) { ends.push(error.message); }
}
return JSON.stringify(ends);
"""


def config(folder: Path, budgets: dict[str, Any], **more: Any) -> Path:
    return write_config(
        folder, {"library": counting(folder / "log"), "other": counting(folder / "log2")}, budgets=budgets, **more
    )


async def test_calls_beyond_the_budget_are_refused_by_name_with_the_time_and_not_sent(tmp_path: Path) -> None:
    path = config(tmp_path, {"hourly": {"server": "lib*", "calls": 3}})
    async with serve(path) as session:
        ends = json.loads(await session.value(CALLS % 5))
        assert ends[:3] == ["ok"] * 3
        found = re.fullmatch(
            r"MCP\.library\.count was not called: the budget 'hourly' for server 'library' is used up "
            r"\(3 of 3 calls in 3600 s\)\. It opens again at (\S+), in (\d+) s; do not call this server before that",
            ends[3],
        )
        assert found is not None, ends[3]
        opens = datetime.fromisoformat(found[1].replace("Z", "+00:00"))
        assert abs(opens - datetime.now(UTC) - timedelta(seconds=int(found[2]))) < timedelta(seconds=60)
        assert 3500 < int(found[2]) <= 3660
        assert events(tmp_path / "log") == ["call 0", "call 1", "call 2"]
        # The other server has an account of its own, and no budget.
        assert await session.value("return unwrap(await MCP.other.count({ name: 'x' }))") == "x"


async def test_calls_that_are_made_together_do_not_exceed_the_budget(tmp_path: Path) -> None:
    path = config(tmp_path, {"few": {"calls": 3}})
    program = """
      const ends = await Promise.allSettled([...Array(10).keys()].map((i) => MCP.library.count({ name: String(i) })));
      return ends.filter((each) => each.status === "fulfilled").length;
    """
    async with serve(path) as session:
        assert await session.value(program) == 3
        assert len(events(tmp_path / "log")) == 3


async def test_a_result_counts_with_its_bytes(tmp_path: Path) -> None:
    path = config(tmp_path, {"small": {"bytes": 60}})
    async with serve(path) as session:
        ends = json.loads(await session.value(CALLS % 4))
        assert ends.count("ok") == 2, ends
        assert "of 60 bytes of results in 3600 s" in ends[-1]


async def test_the_time_of_a_call_that_is_given_up_counts(tmp_path: Path) -> None:
    path = config(tmp_path, {"short": {"runningMs": 50}})
    async with serve(path) as session:
        refused = await session.exec("await MCP.library.hold({ name: 'a' }, { timeoutMs: 200 })")
        assert refused.error is not None
        again = await session.exec("await MCP.library.count({ name: 'b' })")
        assert "ms of running calls" in (again.error or "")
        assert "call b" not in events(tmp_path / "log")


async def test_no_person_is_asked_for_a_call_without_room(tmp_path: Path) -> None:
    path = config(tmp_path, {"few": {"calls": 1}}, ask=["mcp:library:hold"])
    async with serve(path) as session:
        assert await session.value("return unwrap(await MCP.library.count({ name: 'a' }))") == "a"
        refused = await session.exec("await MCP.library.hold({ name: 'b' })")
        assert "the budget 'few'" in (refused.error or "")


async def test_a_changed_budget_applies_to_the_next_call(tmp_path: Path) -> None:
    path = config(tmp_path, {"few": {"calls": 1}})
    async with serve(path) as session:
        assert json.loads(await session.value(CALLS % 2))[0] == "ok"
        config(tmp_path, {"few": {"calls": 2}})
        await until(lambda: "the configuration has changed" in session.stderr)
        assert json.loads(await session.value(CALLS % 2))[0] == "ok"


async def test_callers_over_http_have_their_own_accounts(tmp_path: Path) -> None:
    tokens = [{"name": "alice", "token": ALICE}, {"name": "bob", "token": BOB}]
    path = tmp_path / "config.json"
    tools = {"budgets": {"few": {"calls": 1}, "none for bob": {"for": ["principal:bob"], "calls": 2}}}
    path.write_text(
        json.dumps(
            {
                "mcpServers": {"library": counting(tmp_path / "log")},
                "tools": tools,
                "http": {"auth": {"tokens": tokens}},
            }
        ),
        "utf-8",
    )
    async with serve_http(path) as served:
        await served.ready()
        for token in (ALICE, BOB):
            async with served.client("auto", token) as session:
                ends = json.loads(await session.value(CALLS % 2))
                assert ends[0] == "ok"
                assert "the budget 'few'" in ends[1]


async def test_pass_through_mode_has_budgets(tmp_path: Path) -> None:
    path = config(tmp_path, {"few": {"calls": 1}}, codeMode=False)
    async with serve(path) as session:
        first = await session.client.call_tool("library__count", {"name": "a"})
        assert not first.is_error
        second = await session.client.call_tool("library__count", {"name": "b"})
        assert second.is_error
        assert "the budget 'few'" in str(second.content)
