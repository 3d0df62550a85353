"""Suspended runs that cannot be resumed name the calls that they have made, whichever process is asked."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.runs.store import EndedRun
from tests.runs.bench import OWNER, Bench
from tests.stores.replicas import READ, WRITE, Replicas, answer, fast, slow
from tests.waiting import refusal, until
from upstream_clients.testing import ScriptedSource
from upstream_clients.tools import Tool

ASKS = PolicyRules(ask=("mcp:files:write",))
LONG = 60 * 24 * 3600
"""After so many seconds, a process that has just begun drops a run, too."""


def age(path: Path, seconds: float = LONG) -> None:
    """Make all runs in the store older."""
    with closing(sqlite3.connect(path / "runs.sqlite3")) as connection, connection:
        connection.execute("UPDATE runs SET parked = parked - ?, expires = expires - ?", (seconds, seconds))


async def expiry(it: Bench, run_id: str) -> str:
    raised = await refusal(it.observe(run_id))
    assert raised.code == "snapshot_expired"
    return raised.message


async def settled(it: Bench, run_id: str) -> None:
    """Wait until no call of a run is in flight."""
    await until(lambda: not it.manager._live.runs[run_id].calls)


async def approved_and_made(it: Bench) -> str:
    """Suspend a program whose call is approved and made while it is suspended. Return the id of its run."""
    waiting = await it.execute("await MCP.files.read({}); await MCP.files.write({n: 1}); return 'done'")
    assert it.manager.operator.decide(waiting.run_id, None, approved=True, by="a test") == [2]
    await settled(it, waiting.run_id)
    return waiting.run_id


@pytest.mark.parametrize("asked", ["the same process", "the same process, after a sweep", "another process"])
async def test_an_approved_and_made_call_is_named_when_its_run_has_expired(replicas: Replicas, asked: str) -> None:
    expected = "these calls were made: mcp:files:write (completed);"
    async with replicas(fast(), rules=ASKS) as first:
        run_id = await approved_and_made(first)
        age(replicas.path)
        if asked == "the same process, after a sweep":
            await first.manager.sweep()
        if asked != "another process":
            message = await expiry(first, run_id)
            assert expected in message
            assert "start the program again" not in message
    async with replicas(fast(), rules=ASKS) as second:
        assert expected in await expiry(second, run_id)
        await second.manager.sweep()
        assert expected in await expiry(second, run_id)
        (view,) = await second.manager.operator.stored_views()
        assert (view.state, view.made) == ("expired", (("mcp:files:write", "completed", 1),))


async def test_calls_before_and_in_the_suspension_count_together_without_reads(replicas: Replicas) -> None:
    code = """
        for (let n = 0; n < 12; n++) await MCP.files.write({n});
        await MCP.files.read({});
        await Promise.all([MCP.files.write({n: 12}), MCP.files.hold({}), MCP.files.read({})]);
    """
    source = slow()
    tools = [READ, WRITE, Tool("hold")]
    quick = ScriptedSource("files", {"read": answer, "write": answer, "hold": answer}, tools=tools)
    quick_call = quick.call_tool

    async def call_tool(tool: str, arguments: Any, **options: Any) -> Any:
        found = source if tool == "hold" else None
        return await (quick_call if found is None else found.call_tool)(tool, arguments, **options)

    quick.call_tool = call_tool  # type: ignore[method-assign]
    async with replicas(quick) as first:
        waiting = await first.execute(code)
        assert [call.tool for call in waiting.pending] == ["mcp:files:hold"]
    async with replicas(fast()) as second:
        age(replicas.path)
        message = await expiry(second, waiting.run_id)
        assert "mcp:files:write (13 times, completed), mcp:files:hold (outcome unknown);" in message


async def test_a_call_that_nothing_was_sent_of_is_not_named(replicas: Replicas) -> None:
    async with replicas(fast(), rules=ASKS) as first:
        denied = await first.execute("await MCP.files.write({n: 1}).catch(() => 0); await yield_control()")
        first.manager.operator.decide(denied.run_id, None, approved=False, by="a test")
        await settled(first, denied.run_id)
        waiting = await first.execute("await MCP.files.write({n: 1})")
    async with replicas(fast(), rules=ASKS) as second:
        age(replicas.path)
        for run in (denied, waiting):
            assert (await expiry(second, run.run_id)).endswith("was dropped; start the program again")


async def test_a_run_of_an_earlier_version_is_not_said_to_have_made_no_calls(replicas: Replicas) -> None:
    async with replicas(fast()) as first:
        waiting = await first.execute("await MCP.files.write({n: 1}); await yield_control()")
        age(replicas.path)
        with closing(sqlite3.connect(replicas.path / "runs.sqlite3")) as connection, connection:
            connection.execute("UPDATE runs SET view = NULL")
        message = await expiry(first, waiting.run_id)
    assert message.endswith("find out what its calls have changed before you start the program again")


@pytest.mark.parametrize("where", ["snapshot", "record"])
async def test_a_run_that_cannot_be_restored_names_its_calls(replicas: Replicas, where: str) -> None:
    async with replicas(fast(), rules=ASKS) as first:
        made = await approved_and_made(first)
        reading = (await first.execute("await MCP.files.read({}); await yield_control()")).run_id
    with closing(sqlite3.connect(replicas.path / "runs.sqlite3")) as connection, connection:
        connection.execute(f"UPDATE snapshots SET {where} = substr({where}, 1, 20)")
    async with replicas(fast(), rules=ASKS) as second:
        for _ in range(2):
            messages = []
            for run_id in (made, reading):
                try:
                    outcome = await second.observe(run_id)
                    messages.append(" ".join([outcome.error, *outcome.notes]))
                except ProgramError as error:
                    messages.append(error.message)
            assert all("cannot be restored" in message for message in messages)
            assert "mcp:files:write (completed)" in messages[0]
            assert "start the program again" not in messages[0]
            assert messages[1].endswith("start the program again")


async def test_a_run_whose_limits_have_shrunk_names_its_calls_in_its_end(replicas: Replicas) -> None:
    async with replicas(fast(), rules=ASKS) as first:
        run_id = await approved_and_made(first)
    async with replicas(fast(), rules=ASKS, max_snapshot_bytes=1024) as second:
        outcome = await second.observe(run_id)
        assert (outcome.status, outcome.code) == ("failed", "snapshot_restore_failed")
        assert "do not repeat: mcp:files:write (completed)" in outcome.notes[0]
        assert "start the program again" not in outcome.error
    async with replicas(fast(), rules=ASKS) as third:
        ended = await third.store.claim(run_id, OWNER)
        assert isinstance(ended, EndedRun)
        assert ended.outcome[0].notes == outcome.notes
        (view,) = await third.manager.operator.stored_views()
        assert view.made == (("mcp:files:write", "completed", 1),)


async def test_a_run_that_fails_in_the_next_process_names_the_calls_of_both(replicas: Replicas) -> None:
    code = """
        await MCP.files.write({n: 1});
        await yield_control();
        await MCP.files.write({n: 2});
        throw new Error("enough");
    """
    waiting = await replicas.execute(fast(), code)
    outcome = await replicas.observe(fast(), waiting.run_id)
    assert "do not repeat: mcp:files:write (2 times, completed)." in outcome.notes[0]
    assert (await replicas.observe(fast(), waiting.run_id)).notes == outcome.notes
