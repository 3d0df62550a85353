"""Tests of what goes wrong between two who could resume a run, or in the middle of taking it over: no one waits for
ever, nothing is sent twice, and no one keeps what is not theirs any more. And what one program may keep in a store."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from codemode_mcp.base.errors import CodeModeError, StoreUnavailable
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.runs import persisting, run_calls
from codemode_mcp.runs.store import Fenced
from tests.stores.replicas import READ, WRITE, Replicas, fast, slow, until_done
from tests.waiting import until
from upstream_clients.testing import ScriptedSource

YIELDS = "await yield_control('x'); "


def failing(store: Any, name: str, *errors: Exception) -> None:
    """A method of a store fails in these ways, one after the other, and works from then on."""
    method, left = getattr(store, name), list(errors)

    async def fails(*args: Any) -> Any:
        if left:
            raise left.pop(0)
        return await method(*args)

    setattr(store, name, fails)


async def test_the_last_calls_of_a_program_are_not_sent_when_another_process_has_it_by_then(replicas: Replicas) -> None:
    replicas.patch.setattr(persisting, "RETRY_SECONDS", 0.001)
    source = fast()
    async with replicas(source) as it:
        waiting = await it.execute(YIELDS + "MCP.files.write({n: 1}); return 1")
        failing(it.store, "end", StoreUnavailable("away"), *[Fenced(waiting.run_id)] * 1000)
        run = it.manager._live.runs[waiting.run_id]
        assert (await it.observe(waiting.run_id)).value == 1
        it.clock.advance(100_000)
        await until(lambda: not run.calls)
    assert source.calls == []


async def test_the_last_calls_are_not_sent_either_when_its_holder_is_unknown(replicas: Replicas) -> None:
    replicas.patch.setattr(persisting, "RETRY_SECONDS", 0.001)
    source = fast()
    async with replicas(source) as it:
        waiting = await it.execute(YIELDS + "MCP.files.write({n: 1}); return 1")
        failing(it.store, "end", *[StoreUnavailable("away")] * 100_000)
        run = it.manager._live.runs[waiting.run_id]
        assert (await it.observe(waiting.run_id)).value == 1
        it.clock.advance(100_000)
        await until(lambda: not run.calls)
    assert source.calls == []


@pytest.mark.parametrize(("tool", "seen"), [("read", ["aborted", None]), ("write", ["nested_tool_failed", "unknown"])])
async def test_a_call_that_is_cancelled_where_it_was_sent_ends_everywhere(
    replicas: Replicas, tool: str, seen: list[str | None]
) -> None:
    told = "(error) => [error.code, error.data.outcome ?? null]"
    code = f"return await MCP.files.{tool}({{n: 1}}).catch({told})"
    async with replicas(slow()) as first, replicas(fast()) as second:
        waiting = await first.execute(code)
        run = first.manager._live.runs[waiting.run_id]
        assert (await second.observe(waiting.run_id)).status == "waiting"
        run.cancel_calls()
        assert (await until_done(second, waiting.run_id)).value == seen


async def test_a_failed_takeover_leaves_the_run(replicas: Replicas) -> None:
    async with replicas(fast()) as first:
        waiting = await first.execute(YIELDS + "return 1")
        failing(first.store, "suspend", StoreUnavailable("away"))
    async with replicas(fast()) as second, replicas(fast()) as third:
        failing(
            second.manager._takeover._restoring, "run_of", StoreUnavailable("away"), RuntimeError("a fault of ours")
        )
        for kind in (StoreUnavailable, RuntimeError):
            with pytest.raises(kind):
                await second.observe(waiting.run_id)
        assert (await until_done(third, waiting.run_id)).value == 1


async def test_a_run_that_its_process_has_let_go_of_without_a_word_is_free_after_a_sweep(replicas: Replicas) -> None:
    code = YIELDS + "await yield_control('y'); return unwrap(await MCP.files.write({n: 1})).text"
    async with replicas(fast()) as first, replicas(fast()) as second:
        waiting = await first.execute(code)
        failing(first.store, "suspend", StoreUnavailable("away"))
        with pytest.raises(StoreUnavailable):
            await first.observe(waiting.run_id)
        with pytest.raises(CodeModeError, match="another request is waiting"):
            await second.observe(waiting.run_id)
        await first.manager.sweep()
        assert (await until_done(second, waiting.run_id)).value == "done 1"


async def test_a_run_that_fails_inside_us_can_be_waited_for_again(replicas: Replicas) -> None:
    async with replicas(fast()) as it:
        waiting = await it.execute(YIELDS + "await yield_control('y'); return 1")
        failing(it.store, "suspend", RuntimeError("a fault of ours"))
        with pytest.raises(CodeModeError, match="see its log"):
            await it.observe(waiting.run_id)
        assert (await until_done(it, waiting.run_id)).value == 1


async def test_a_run_that_computes_when_its_process_ends_is_left_for_the_next(replicas: Replicas) -> None:
    code = YIELDS + "const now = Date.now(); while (Date.now() - now < 150); return 'computed'"
    async with replicas(fast(), timeout_ms=20_000) as first:
        waiting = await first.execute(code)
        async with anyio.create_task_group() as group:
            group.start_soon(first.observe, waiting.run_id)
            run = first.manager._live.runs[waiting.run_id]
            await until(lambda: run.guest is not None)
            await anyio.sleep(0.05)
            group.cancel_scope.cancel()
    outcome = await replicas.end(fast(), waiting.run_id, timeout_ms=20_000)
    assert (outcome.status, outcome.value) == ("completed", "computed")


async def test_undelivered_results_hold_up_other_calls(replicas: Replicas) -> None:
    replicas.patch.setattr(run_calls, "BACKLOG_CHARACTERS", 50_000)
    source = ScriptedSource("files", {"read": lambda _: {"content": [], "text": "x" * 10_000}}, tools=[READ, WRITE])
    code = (
        "const all = Promise.all([...Array(40).keys()].map((n) => MCP.files.read({n}))); await yield_control('x');"
        "return (await all).length"
    )
    async with replicas(source, max_pending_tool_calls=4) as it:
        waiting = await it.execute(code)
        run = it.manager._live.runs[waiting.run_id]
        await until(lambda: not run.executing)
        assert 5 <= len(source.calls) <= 9
        assert (await until_done(it, waiting.run_id)).value == 40
    assert len(source.calls) == 40


async def test_arguments_of_calls_that_wait_are_bounded(replicas: Replicas) -> None:
    replicas.patch.setattr(run_calls, "ARGUMENTS_CHARACTERS", 200_000)
    code = (
        "const text = 'x'.repeat(150_000); const first = MCP.files.write({text});"
        "const second = await MCP.files.write({text}).catch((error) => [error.code, error.message]);"
        "await first; const third = await MCP.files.write({text}); return [...second, unwrap(third).text]"
    )
    code_, message, text = (await replicas.execute(fast(), code)).value
    assert (code_, text) == ("too_many_pending_tool_calls", "done ")
    assert "200000 characters" in message


async def test_what_is_written_down_besides_the_memory_is_bounded(replicas: Replicas) -> None:
    replicas.patch.setattr(persisting, "MIN_RECORD_LIMIT", 10)
    code = "store('key', 'x'.repeat(200_000)); await yield_control()"
    outcome = await replicas.execute(fast(), code, max_snapshot_bytes=150_000)
    assert outcome.code == "snapshot_limit_exceeded", outcome
    assert "besides its memory" in outcome.error


async def test_a_program_that_may_have_been_written_down_is_not_resumed_beside_that(replicas: Replicas) -> None:
    sources = fast(), fast()
    code = "const one = MCP.files.write({n: 1}); await yield_control('x'); await one; return 1"
    async with (
        replicas(sources[0], max_pending_tool_calls=1, rules=PolicyRules(ask=("mcp:files:write",))) as it,
        replicas(sources[1]) as other,
    ):
        suspend = it.store.suspend

        async def unheard(run: Any) -> None:
            await suspend(run)
            raise StoreUnavailable("it is not known whether it was done", unsure=True)

        it.store.suspend = unheard  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable, match="not known"):
            await it.execute(code)
        assert not it.manager.operator.views() or it.manager.operator.views()[0].state != "waiting"
        (view,) = await other.manager.operator.stored_views()
        assert (await until_done(other, view.id)).value == 1
    assert [len(source.calls) for source in sources] == [0, 1]
