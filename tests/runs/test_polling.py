"""Runs whose clients poll their state: what polls return, what they keep, and answers and cancellation between them."""

from __future__ import annotations

import time
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.runs.calls.outcome import Outcome
from codemode_mcp.runs.observation import Polled
from codemode_mcp.sandbox.engine import Engine
from tests.runs.bench import CALLER, OWNER, Bench, FakeClient, bench, texts
from tests.waiting import refusal, until
from upstream_clients.testing import ScriptedSource, SlowSource, text_result

ASKED = PolicyRules(ask=("mcp:files:remove",))
YES = {"action": "accept", "content": {"decision": "approve"}}
SLOW = "text('first'); await MCP.files2.slow({}); text('second'); return 'done'"
REMOVE = "text('first'); await yield_control(); return unwrap(await MCP.files.remove({}))"


def files() -> ScriptedSource:
    return ScriptedSource("files", {"remove": text_result("removed")})


def slow() -> SlowSource:
    return SlowSource("files2", {"slow": text_result("slow")})


def polling_client() -> FakeClient:
    client = FakeClient("return")
    client.polls = True
    return client


async def poll(it: Bench, run_id: str, seconds: float = 10.0, caller: Caller = CALLER) -> Polled:
    with anyio.fail_after(10):
        return await it.manager.polling.poll(run_id, caller.owner, caller, polling_client(), seconds)


async def answer_of(it: Bench, run_id: str, seconds: float = 10.0) -> Outcome:
    """Return the outcome that a poll has found."""
    found = (await poll(it, run_id, seconds)).outcome
    assert found is not None
    return found


async def key_of(it: Bench, run_id: str) -> str:
    """Return the key of the only question of a run."""
    ((key, _),) = (await answer_of(it, run_id)).questions
    return key


async def give(it: Bench, run_id: str, answers: dict[str, Any]) -> None:
    await it.manager.polling.answer(run_id, OWNER, CALLER, polling_client(), answers)


async def poll_to_end(it: Bench, run_id: str) -> Polled:
    while (found := await poll(it, run_id)).outcome is None or found.outcome.status == "waiting":
        pass
    return found


async def test_a_poll_does_not_wait_for_the_run_and_the_run_works_without_it(engine: Engine) -> None:
    source = slow()
    async with bench(engine, source) as it:
        waiting = await it.execute(f"await yield_control(); {SLOW}", client=polling_client())
        assert (await poll(it, waiting.run_id, 0)).outcome is None
        await source.wait_pending(1)
        assert (await poll(it, waiting.run_id, 0)).outcome is None
        run = it.manager._live.runs[waiting.run_id]
        source.release.set()
        await until(lambda: run.state == "completed")
        assert (await answer_of(it, waiting.run_id, 0)).value == "done"


async def test_polls_leave_the_output_to_the_end_which_is_always_the_same(engine: Engine) -> None:
    source = slow()
    async with bench(engine, source, timeout_ms=100) as it:
        waiting = await it.execute(SLOW, client=polling_client())
        assert texts(waiting) == []
        suspended = await answer_of(it, waiting.run_id)
        assert (suspended.status, texts(suspended)) == ("waiting", [])
        source.release.set()
        ended = await poll_to_end(it, waiting.run_id)
        it.clock.advance(60)
        again = await poll(it, waiting.run_id)
        assert ended.outcome is not None
        assert (texts(ended.outcome), again.outcome) == (["first", "second"], ended.outcome)
        assert again.age == ended.age
        assert again.left == pytest.approx(ended.left - 60, abs=5)


async def test_a_run_that_is_polled_no_longer_is_suspended_and_dropped(engine: Engine) -> None:
    source = slow()
    async with bench(engine, source, timeout_ms=100) as it:
        waiting = await it.execute(SLOW, client=polling_client())
        await poll(it, waiting.run_id, 0)
        run = it.manager._live.runs[waiting.run_id]
        await until(lambda: run.observation is None)
        it.clock.advance(it.settings.snapshot_ttl_seconds + 1)
        assert (await refusal(poll(it, waiting.run_id))).code == "snapshot_expired"


async def test_a_run_of_another_owner_is_unknown(engine: Engine) -> None:
    bob = Caller("http", "bob")
    async with bench(engine, slow()) as it:
        waiting = await it.execute(f"await yield_control(); {SLOW}", client=polling_client())
        polling = it.manager.polling
        for driven in (False, True):
            if driven:
                await poll(it, waiting.run_id, 0)
            for send in (
                poll(it, waiting.run_id, caller=bob),
                polling.cancel(waiting.run_id, bob.owner, bob, polling_client()),
                polling.answer(waiting.run_id, bob.owner, bob, polling_client(), {"key": YES}),
            ):
                with pytest.raises(ProgramError, match="there is no run"):
                    await send
        assert it.manager._live.runs[waiting.run_id].observation is not None


async def test_a_question_stays_the_same_until_its_answer_is_taken(engine: Engine) -> None:
    source = files()
    async with bench(engine, source, rules=ASKED) as it:
        waiting = await it.execute(REMOVE, client=polling_client())
        key, again = [await key_of(it, waiting.run_id) for _ in range(2)]
        assert again == key
        await give(it, waiting.run_id, {"another": YES, key: YES})
        assert [tool for tool, _ in source.calls] == ["remove"]
        ended = await poll_to_end(it, waiting.run_id)
        assert ended.outcome is not None
        assert (ended.outcome.value, texts(ended.outcome)) == ("removed", ["first"])


async def test_an_answer_reaches_a_run_that_another_request_drives(engine: Engine) -> None:
    source = files()
    code = "await yield_control(); MCP.files2.slow({}); return unwrap(await MCP.files.remove({}))"
    async with bench(engine, source, slow(), rules=ASKED) as it:
        waiting = await it.execute(code, client=polling_client())
        key = await key_of(it, waiting.run_id)
        async with anyio.create_task_group() as group:
            # A client that cannot be asked waits for the decision of a person.
            group.start_soon(lambda: it.observe(waiting.run_id, client=FakeClient("later")))
            run = it.manager._live.runs[waiting.run_id]
            await until(lambda: run.observation is not None)
            await give(it, waiting.run_id, {key: YES})
        assert "remove" in [tool for tool, _ in source.calls]


async def test_a_person_may_dismiss_a_question_just_polled(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(engine, files(), rules=ASKED) as it:
        waiting = await it.execute(REMOVE, client=polling_client())
        await poll(it, waiting.run_id)
        monkeypatch.setattr(it.manager._live.runs[waiting.run_id].questions, "_clock", lambda: time.monotonic() + 5)
        await give(it, waiting.run_id, {await key_of(it, waiting.run_id): {"action": "cancel"}})
        ended = await poll_to_end(it, waiting.run_id)
        assert ended.outcome is not None
        assert "the user dismissed the question" in ended.outcome.error


@pytest.mark.parametrize("driven", [False, True])
async def test_a_cancelled_run_has_ended(engine: Engine, driven: bool) -> None:
    async with bench(engine, slow()) as it:
        waiting = await it.execute(f"await yield_control(); {SLOW}", client=polling_client())
        if driven:
            await poll(it, waiting.run_id, 0)
        for _ in range(2):
            await it.manager.polling.cancel(waiting.run_id, OWNER, CALLER, polling_client())
        assert (await answer_of(it, waiting.run_id, 0)).code == "aborted"
