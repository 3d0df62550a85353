"""Tests of what a durable store promises, over every database: who may resume a run, and the end of its
calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from codemode_mcp.base.errors import ProgramError, StoreUnavailable
from codemode_mcp.base.settings import CodeModeSettings
from codemode_mcp.runs.calls.outcome import MadeCall, Outcome, Usage
from codemode_mcp.runs.records import completion_text
from codemode_mcp.runs.store import Claim, EndedRun, Fenced, News, StoredCall, StoredCatalog, SuspendedRun
from codemode_mcp.runs.views import RunView
from codemode_mcp.sandbox.messages import Completion
from codemode_mcp.stores import suspending
from codemode_mcp.stores.seal import Seal
from codemode_mcp.stores.work import Database, Query, Work
from tests.stores.shared_database import Process, SharedDatabase
from tests.values import replace
from tests.waiting import answering

ME = "stdio:me"
ONCE = StoredCall(1, "mcp:files:write", "queued", repeatable=False, body='{"n": 1}')
AGAIN = StoredCall(2, "mcp:files:read", "queued", repeatable=True, body='{"n": 2}')


def suspended(
    process: Process,
    run_id: str = "run_a",
    *calls: StoredCall,
    owner: str = ME,
    snapshot: bytes = b"snapshot",
    manifest: str = "{}",
    catalog: str = "all tools",
    lives: float = 900,
    view: RunView | None = None,
    printed: str = "",
    printed_from: int = 0,
) -> SuspendedRun:
    now = process.clock()
    stored = StoredCatalog(f"hash of {catalog}", lambda: catalog)
    known = (run_id, owner, snapshot, manifest, "pending_tools", now, now + lives, '{"record": 1}')
    return SuspendedRun(*known, calls, stored, view, printed, printed_from)


def ended(process: Process, run_id: str = "run_a", *, owner: str = ME, value: object = 42, size: int = 100) -> EndedRun:
    outcome = Outcome(run_id, owner, "completed", Usage(), value=value)
    return EndedRun(run_id, owner, (outcome, outcome), size, process.clock() + 900)


async def claimed(process: Process, run_id: str = "run_a", owner: str = ME) -> Claim:
    found = await process.store.claim(run_id, owner)
    assert isinstance(found, Claim)
    return found


async def claimants(*processes: Process) -> list[Process]:
    """Return those that get a run which all of them want together."""
    got: list[Process] = []

    async def want(process: Process) -> None:
        with suppress(ProgramError):
            await process.store.claim("run_a", ME)
            got.append(process)

    async with anyio.create_task_group() as group:
        for process in processes:
            group.start_soon(want, process)
    return got


def losing(database: Database) -> Any:
    """Does what it is asked, and says that it did not."""

    class Losing:
        process = database.process

        async def execute(self, work: Callable[[], Work[Any]]) -> Any:
            await database.execute(work)
            raise StoreUnavailable("unknown")

    return Losing()


async def refusal(process: Process, run_id: str = "run_a", owner: str = ME) -> str:
    with pytest.raises(ProgramError) as refused:
        await process.store.claim(run_id, owner)
    return refused.value.message


async def test_a_suspended_run_comes_back_as_it_was(shared: SharedDatabase, first: Process, second: Process) -> None:
    run = suspended(
        first, "run_a", ONCE, snapshot=bytes(range(256)) * 40, manifest='{"\ud800": "é"}', catalog="c\ud800"
    )
    await first.store.suspend(run)
    await shared.advance(10)
    claim = await claimed(second)
    assert not claim.current
    assert claim.catalog == "c\ud800"
    assert claim.run.catalog is not None
    assert (claim.run.catalog.hash, claim.run.catalog.text()) == ("hash of c\ud800", "c\ud800")
    assert (claim.run.snapshot, claim.run.manifest, claim.run.record) == (run.snapshot, run.manifest, run.record)
    assert (claim.run.calls, claim.run.reason) == ((ONCE,), "pending_tools")
    assert claim.run.suspended == pytest.approx(second.clock() - 10, abs=2)
    assert claim.run.expires == pytest.approx(second.clock() + 890, abs=2)


async def test_what_one_process_knows_still_counts_while_no_other_has_taken_over(shared: SharedDatabase) -> None:
    first, second = await shared.process(), await shared.process()
    await first.store.suspend(suspended(first))
    assert (await claimed(first)).current
    await first.store.release("run_a", ME)
    assert (await claimed(first)).current
    await first.store.suspend(suspended(first))
    await claimed(second)
    await second.store.release("run_a", ME)
    assert not (await claimed(first)).current
    await first.store.suspend(suspended(first))
    first.store.forget("run_a")
    assert not (await claimed(first)).current


async def test_a_process_that_has_suspended_a_run_hears_that_another_resumes_it(shared: SharedDatabase) -> None:
    first, second = await shared.process(), await shared.process()
    await first.store.suspend(suspended(first))
    await claimed(second)
    with anyio.fail_after(10):
        assert await first.store.next_notification() in ("run_a", None)
    assert (await first.store.news_of("run_a")).fenced


async def test_one_at_a_time_resumes_a_run(first: Process, second: Process) -> None:
    await first.store.suspend(suspended(first))
    await claimed(second)
    assert "another request is waiting" in await refusal(first)
    assert "another request is waiting" in await refusal(second)
    await second.store.suspend(suspended(second))
    await claimed(first)
    assert "another request is waiting" in await refusal(second)


async def test_of_many_who_want_a_run_together_one_gets_it(shared: SharedDatabase) -> None:
    processes = [await shared.process() for _ in range(4)]
    await processes[0].store.suspend(suspended(processes[0]))
    assert len(await claimants(*processes)) == 1


async def test_of_two_requests_of_one_process_one_gets_a_run(process: Process) -> None:
    await process.store.suspend(suspended(process))
    assert len(await claimants(process, process)) == 1


async def test_a_process_that_claims_a_run_while_it_suspends_it_resumes_it(process: Process) -> None:
    await process.store.suspend(suspended(process))
    await claimed(process)
    inner = process.database

    class Late:
        process = inner.process

        async def execute(self, work: Callable[[], Work[Any]]) -> Any:
            result = await inner.execute(work)
            process.store._database = inner
            await claimed(process)
            return result

    process.store._database = Late()  # type: ignore[assignment]
    await process.store.suspend(suspended(process))
    assert "another request is waiting" in await refusal(process)


async def test_a_run_of_another_owner_looks_like_an_unknown_one(process: Process) -> None:
    await process.store.suspend(suspended(process))
    foreign = await refusal(process, owner="http:you")
    unknown = await refusal(process, "run_b")
    assert foreign == unknown.replace("run_b", "run_a")
    assert await process.store.cancel("run_a", "http:you") is False
    await process.store.release("run_a", "http:you")
    for odd in ("", "run_a\x00", "\ud800", '" OR 1=1', "x" * 100_000):
        assert "there is no run" in await refusal(process, odd)
    assert await process.store.owner_of("run_a") == ME
    assert await process.store.owner_of("run_b") is None


async def test_the_state_of_a_run_is_told_to_its_owner(shared: SharedDatabase) -> None:
    process, other = await shared.process(), await shared.process()
    assert await process.store.state_of("run_a", ME) is None
    await process.store.suspend(suspended(process, lives=100))
    for each in (process, other):
        assert await each.store.state_of("run_a", ME) == "waiting"
        assert await each.store.state_of("run_a", "http:you") is None
    await claimed(other)
    await shared.advance(200)
    assert await process.store.state_of("run_a", ME) == "waiting"  # expired, but another process has it
    await other.store.end(ended(other))
    assert await process.store.state_of("run_a", ME) == "completed"
    await process.store.suspend(suspended(process, "run_b", lives=100))
    await shared.advance(200)
    assert await process.store.state_of("run_b", ME) is None


async def test_owners_and_tools_may_be_called_anything(process: Process) -> None:
    odd = "http:\x00\ud800'\\u0041"
    await process.store.suspend(suspended(process, "run_a", StoredCall(1, odd, "queued", True), owner=odd))
    assert await process.store.owner_of("run_a") == odd
    assert (await claimed(process, owner=odd)).run.calls[0].tool == odd
    assert "there is no run" in await refusal(process, owner="http:\x00\ud800'A")


async def test_a_run_of_a_dead_process_is_resumed_from_its_last_checkpoint(shared: SharedDatabase) -> None:
    first, second = await shared.process(), await shared.process()
    await first.store.suspend(suspended(first))
    await claimed(first)
    await first.store.checkpoint(suspended(first, snapshot=b"later"))
    assert "another request is waiting" in await refusal(first)
    assert "another request is waiting" in await refusal(second)
    await shared.kill(first)
    claim = await claimed(second)
    assert (claim.run.snapshot, claim.current) == (b"later", False)


async def test_a_process_that_was_taken_for_dead_changes_nothing_any_more(shared: SharedDatabase) -> None:
    first, second = await shared.process(), await shared.process()
    await first.store.suspend(suspended(first, "run_a", ONCE))
    await claimed(first)
    await shared.kill(first)
    await claimed(second)
    for attempt in (
        lambda: first.store.suspend(suspended(first, snapshot=b"of the dead")),
        lambda: first.store.checkpoint(suspended(first, snapshot=b"of the dead")),
        lambda: first.store.end(ended(first)),
    ):
        with pytest.raises(Fenced):
            await attempt()
    await first.store.release("run_a", ME)
    assert await first.store.dispatching("run_a", 1) is False
    assert await first.store.settle("run_a", 1, "of the dead") is False
    assert (await first.store.news_of("run_a")).fenced
    assert "another request is waiting" in await refusal(first)
    assert await second.store.dispatching("run_a", 1) is True
    await second.store.suspend(suspended(second, "run_a", ONCE, snapshot=b"mine"))
    third = await shared.process()
    assert (await claimed(third)).run.snapshot == b"mine"


async def test_a_run_that_a_process_has_lost_is_not_stored_again_when_it_is_gone(shared: SharedDatabase) -> None:
    first, second = await shared.process(), await shared.process()
    await first.store.suspend(suspended(first))
    await claimed(second)
    await second.store.end(ended(second))
    await shared.advance(1000)
    await second.store.sweep()
    assert await shared.rows("SELECT * FROM runs") == []
    with pytest.raises(Fenced):
        await first.store.suspend(suspended(first))
    assert await first.store.news_of("run_a") == News(fenced=True, ended="expired")


async def test_a_process_takes_back_what_it_has_claimed_but_resumes_no_more(process: Process) -> None:
    await process.store.suspend(suspended(process))
    await claimed(process)
    process.store.forget("run_a")
    with pytest.raises(Fenced):
        await process.store.checkpoint(suspended(process))
    assert not (await claimed(process)).current
    await process.store.suspend(suspended(process))


# what was printed


async def test_what_was_printed_is_given_in_order_to_a_process_that_does_not_know_it(shared: SharedDatabase) -> None:
    first, second = await shared.process(), await shared.process()
    await first.store.suspend(suspended(first, printed='["\\ud800", 2]'))
    claim = await claimed(first)
    assert (claim.current, claim.printed) == (True, ())
    await first.store.checkpoint(suspended(first))
    await first.store.checkpoint(suspended(first, printed="[11]", printed_from=10))
    await first.store.suspend(suspended(first, printed="[3]", printed_from=2))
    claim = await claimed(second)
    assert (claim.current, claim.printed) == (False, ('["\\ud800", 2]', "[3]", "[11]"))
    await second.store.release("run_a", ME)
    assert (await claimed(second)).printed == ()
    second.store.forget("run_a")
    assert len((await claimed(second)).printed) == 3


async def test_what_was_printed_is_written_again_where_it_is_unknown_if_it_was(shared: SharedDatabase) -> None:
    first, second = await shared.process(), await shared.process()
    store, database = first.store, first.database
    await store.suspend(suspended(first, printed='["a"]'))
    await claimed(first)
    store._database = losing(database)  # type: ignore[assignment]
    with pytest.raises(StoreUnavailable):
        await store.checkpoint(suspended(first, printed='["b"]', printed_from=1))
    store._database = database
    await store.suspend(suspended(first, printed='["b", "c"]', printed_from=1))
    assert (await claimed(second)).printed == ('["a"]', '["b", "c"]')
    (size, of_printed), *_ = await shared.rows("SELECT size, printed FROM runs")
    assert [(of_printed,)] == await shared.rows("SELECT SUM(LENGTH(body)) FROM outputs")
    assert [(size - of_printed,)] == await shared.rows("SELECT LENGTH(record) + LENGTH(snapshot) FROM snapshots")


async def test_a_process_that_was_taken_for_dead_prints_nothing_any_more(shared: SharedDatabase) -> None:
    first, second = await shared.process(), await shared.process()
    await first.store.suspend(suspended(first, printed='["a"]'))
    await claimed(first)
    await shared.kill(first)
    await claimed(second)
    with pytest.raises(Fenced):
        await first.store.checkpoint(suspended(first, printed='["x"]', printed_from=1))
    await second.store.suspend(suspended(second))
    assert (await claimed(await shared.process())).printed == ('["a"]',)


@pytest.mark.parametrize("over", ["ended", "expired"])
async def test_what_was_printed_goes_with_its_run(shared: SharedDatabase, process: Process, over: str) -> None:
    await process.store.suspend(suspended(process, printed='["a"]'))
    if over == "ended":
        await claimed(process)
        await process.store.end(ended(process))
    else:
        await shared.advance(1000)
        await process.store.sweep()
    assert await shared.rows("SELECT COUNT(*) FROM outputs") == [(0,)]
    assert await shared.rows("SELECT printed FROM runs") == [(0,)]
    assert (await process.store.totals()).size == 0


async def test_what_is_forgotten_while_it_is_claimed_is_given_in_full(process: Process) -> None:
    store, database = process.store, process.database
    await store.suspend(suspended(process, printed='["a"]'))

    class Forgetting:
        process = database.process

        async def execute(self, work: Callable[[], Work[Any]]) -> Any:
            store._database = database
            done = await database.execute(work)
            store.forget("run_a")
            return done

    store._database = Forgetting()  # type: ignore[assignment]
    claim = await claimed(process)
    assert (claim.current, claim.catalog, claim.printed) == (False, "all tools", ('["a"]',))
    await store.suspend(suspended(process))


# calls


async def test_what_is_stored_of_a_call_is_not_wanted_again(first: Process, second: Process) -> None:
    done = StoredCall(3, "t", "settled", False, result="3", executor="nobody")
    await first.store.suspend(suspended(first, "run_a", ONCE, AGAIN, done))
    await claimed(first)
    short = replace(ONCE, body=""), replace(AGAIN, body=""), replace(done, result=None)
    await first.store.suspend(suspended(first, "run_a", *short))
    assert (await claimed(second)).run.calls == (ONCE, AGAIN, done)


async def test_a_call_is_sent_once(first: Process, second: Process) -> None:
    await first.store.suspend(suspended(first, "run_a", ONCE, AGAIN))
    assert await second.store.dispatching("run_a", 1) is False
    assert await first.store.dispatching("run_a", 1) is True
    assert await first.store.dispatching("run_a", 1) is False
    assert await first.store.dispatching("run_a", 2) is True
    assert await first.store.dispatching("run_a", 2) is True
    assert await first.store.dispatching("run_a", 3) is False
    assert await first.store.dispatching("run_b", 1) is False


async def test_calls_that_no_process_has_sent_go_along_with_their_run(first: Process, second: Process) -> None:
    await first.store.suspend(suspended(first, "run_a", ONCE, AGAIN))
    assert (await claimed(second)).run.calls == (ONCE, AGAIN)
    assert await first.store.dispatching("run_a", 1) is False
    assert await first.store.dispatching("run_a", 2) is False
    assert await second.store.dispatching("run_a", 1) is True


async def test_an_end_reaches_the_process_that_continues(first: Process, second: Process) -> None:
    await first.store.suspend(suspended(first, "run_a", ONCE))
    await first.store.dispatching("run_a", 1)
    claim = await claimed(second)
    assert (claim.run.calls[0].status, claim.run.calls[0].executor) == ("dispatched", "elsewhere")
    assert await second.store.news_of("run_a") == News()
    assert await second.store.settle("run_a", 1, "not its own") is False
    with anyio.fail_after(10):
        async with answering(second.store.next_notification()) as heard:
            await anyio.wait_all_tasks_blocked()
            assert await first.store.settle("run_a", 1, "42") is True
    assert heard == ["run_a"]
    news = await second.store.news_of("run_a")
    assert [(call.id, call.status, call.result) for call in news.calls] == [(1, "settled", "42")]
    assert (news.fenced, news.ended, news.cancelled) == (False, None, False)
    assert (await first.store.news_of("run_a")).fenced


async def test_an_own_claim_does_not_fence(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store has its new token before the process has the answer to the claim."""
    await process.store.suspend(suspended(process, "run_a", ONCE))
    execute, committed, answered = process.database.execute, anyio.Event(), anyio.Event()
    found: list[News] = []

    async def answers_late(work: Callable[[], Work[Any]]) -> Any:
        result = await execute(work)
        committed.set()
        await answered.wait()
        return result

    async def look() -> None:
        found.append(await process.store.news_of("run_a"))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            monkeypatch.setattr(process.database, "execute", answers_late)
            group.start_soon(process.store.claim, "run_a", ME)
            await committed.wait()
            monkeypatch.setattr(process.database, "execute", execute)
            group.start_soon(look)
            await anyio.sleep(0.1)
            answered.set()
    assert found == [News()]


async def test_the_first_end_of_a_call_counts(process: Process, other: Process) -> None:
    await process.store.suspend(suspended(process, "run_a", ONCE, AGAIN))
    assert await process.store.settle("run_a", 1, "first") is True
    assert await process.store.settle("run_a", 1, "second") is False
    assert await process.store.settle("run_a", 1, "first") is True
    assert await process.store.dispatching("run_a", 1) is False
    await claimed(process)
    late = StoredCall(1, ONCE.tool, "settled", False, result="third", executor="nobody")
    given_up = StoredCall(2, AGAIN.tool, "settled", True, result="given up", executor="nobody")
    await process.store.suspend(suspended(process, "run_a", late, given_up))
    calls = (await claimed(other)).run.calls
    assert [(call.status, call.result) for call in calls] == [("settled", "first"), ("settled", "given up")]
    assert {call.executor for call in calls} == {"nobody"}


async def test_suspending_takes_nothing_back_of_what_happened_to_a_call_meanwhile(shared: SharedDatabase) -> None:
    first, second = await shared.process(), await shared.process()
    await first.store.suspend(suspended(first, "run_a", ONCE, AGAIN))
    await first.store.dispatching("run_a", 1)
    await first.store.dispatching("run_a", 2)
    await first.store.settle("run_a", 2, "done")
    await claimed(second)
    await second.store.suspend(suspended(second, "run_a", ONCE, AGAIN, StoredCall(3, "t", "queued", False)))
    assert await second.store.dispatching("run_a", 1) is False
    assert await first.store.settle("run_a", 1, "late") is True
    assert [call.result for call in (await claimed(second)).run.calls] == ["late", "done", None]
    await second.store.suspend(suspended(second, "run_a", StoredCall(3, "t", "queued", False)))
    assert [call.id for call in (await claimed(second)).run.calls] == [3]
    assert await first.store.settle("run_a", 1, "too late") is False


@pytest.mark.parametrize("when", ["before the claim", "while it is resumed"])
async def test_calls_of_a_dead_process_are_made_again_where_it_is_safe(shared: SharedDatabase, when: str) -> None:
    first, second = await shared.process(), await shared.process()
    third = StoredCall(3, "mcp:files:delete", "queued", repeatable=False, body="{}")
    await first.store.suspend(suspended(first, "run_a", ONCE, AGAIN, third))
    await first.store.dispatching("run_a", 1)
    await first.store.dispatching("run_a", 2)
    if when == "before the claim":
        await shared.kill(first)
        calls = (await claimed(second)).run.calls
        found = [(call.status, call.executor) for call in calls]
        assert found == [("dispatched", "nobody"), ("queued", "here"), ("queued", "here")]
    else:
        calls = (await claimed(second)).run.calls
        assert [call.executor for call in calls] == ["elsewhere", "elsewhere", "here"]
        await shared.kill(first)
        calls = (await second.store.news_of("run_a")).calls
        seen = [(call.id, call.status, call.executor) for call in calls]
        assert seen == [(1, "dispatched", "here"), (2, "queued", "here")]
        assert calls[0].body == ONCE.body
    assert await first.store.settle("run_a", 1, "the dead has an answer") is False
    assert await second.store.dispatching("run_a", 1) is False
    assert await second.store.dispatching("run_a", 2) is True
    assert await second.store.dispatching("run_a", 3) is True
    assert await second.store.settle("run_a", 1, "unknown") is True
    assert await second.store.settle("run_a", 2, "done") is True


@pytest.mark.parametrize("when", ["before the claim", "while it is resumed"])
@pytest.mark.parametrize("stored", ["with the run", "later"])
async def test_the_task_of_a_call_of_a_dead_process_is_followed_by_the_next(
    shared: SharedDatabase, when: str, stored: str
) -> None:
    first, second, third = [await shared.process() for _ in range(3)]
    with_run = "the task\ud800" if stored == "with the run" else ""
    sent = StoredCall(1, "t", "dispatched", repeatable=False, task=with_run)
    await first.store.suspend(suspended(first, "run_a", sent, AGAIN))
    await first.store.dispatching("run_a", 2)
    if stored == "later":
        assert await first.store.note_task("run_a", 1, "the task\ud800") is True
    assert await first.store.note_task("run_a", 2, "of a read") is True
    assert await first.store.note_task("run_a", 3, "of no call") is False
    assert await second.store.note_task("run_a", 1, "of another process") is False
    followed = [(1, "dispatched", "here", "the task\ud800"), (2, "dispatched", "here", "of a read")]
    if when == "while it is resumed":
        assert [(call.executor, call.task) for call in (await claimed(second)).run.calls] == [("elsewhere", "")] * 2
        await shared.kill(first)
        calls = (await second.store.news_of("run_a")).calls
    else:
        await shared.kill(first)
        calls = (await claimed(second)).run.calls
    assert [(call.id, call.status, call.executor, call.task) for call in calls] == followed
    # From now on, both are calls of the second process, whose death is the next one.
    assert (await second.store.news_of("run_a")).calls == ()
    second.store.forget("run_a")
    assert [(call.executor, call.task) for call in (await claimed(second)).run.calls] == [("here", "")] * 2
    await second.store.release("run_a", ME)
    assert await second.store.settle("run_a", 2, "done") is True
    assert await second.store.note_task("run_a", 2, "too late") is False
    assert await first.store.note_task("run_a", 1, "of a dead process") is False
    await shared.kill(second)
    left = [(call.result, call.task) for call in (await claimed(third)).run.calls]
    assert left == [(None, followed[0][3]), ("done", "")]


async def test_a_task_of_a_claim_whose_answer_was_lost_is_followed(shared: SharedDatabase) -> None:
    first, second = await shared.process(), await shared.process()
    await first.store.suspend(suspended(first, "run_a", StoredCall(1, "t", "dispatched", False, task="the task")))
    await shared.kill(first)
    database = second.store._database
    second.store._database = losing(database)
    with pytest.raises(StoreUnavailable):
        await second.store.claim("run_a", ME)
    second.store._database = database
    assert [(call.executor, call.task) for call in (await claimed(second)).run.calls] == [("here", "the task")]


async def test_a_call_that_is_in_flight_here_is_not_given_up(process: Process) -> None:
    sent = StoredCall(1, "t", "dispatched", repeatable=False)
    await process.store.suspend(suspended(process, "run_a", sent, AGAIN))
    await process.store.dispatching("run_a", 2)
    assert [call.executor for call in (await claimed(process)).run.calls] == ["here", "here"]
    process.store.forget("run_a")
    assert [(call.status, call.executor) for call in (await claimed(process)).run.calls] == [("dispatched", "here")] * 2
    await process.store.settle("run_a", 1, "42")
    assert [call.result for call in (await process.store.news_of("run_a")).calls] == ["42"]


async def test_what_was_taken_over_by_a_claim_whose_answer_was_lost_is_still_given_up(shared: SharedDatabase) -> None:
    first, second = await shared.process(), await shared.process()
    await first.store.suspend(suspended(first, "run_a", ONCE, AGAIN))
    await first.store.dispatching("run_a", 1)
    await shared.kill(first)
    await claimed(second)
    second.store._known.clear()
    calls = (await claimed(second)).run.calls
    assert [(call.status, call.executor) for call in calls] == [("dispatched", "nobody"), ("queued", "here")]
    assert await second.store.dispatching("run_a", 1) is False


async def test_a_call_may_be_sent_when_only_the_answer_was_lost_that_it_may(process: Process) -> None:
    await process.store.suspend(suspended(process, "run_a", ONCE))
    store, database = process.store, process.database
    store._database = losing(database)  # type: ignore[assignment]
    with pytest.raises(StoreUnavailable):
        await store.dispatching("run_a", 1)
    store._database = database
    assert await store.dispatching("run_a", 1) is True
    assert await store.dispatching("run_a", 1) is False


# ends


async def test_an_end_is_told_again_to_its_owner_until_its_time(shared: SharedDatabase) -> None:
    first, second = await shared.process(), await shared.process()
    await first.store.suspend(suspended(first, "run_a", ONCE))
    await claimed(second)
    await second.store.end(ended(second))
    for process in (first, second):
        found = await process.store.claim("run_a", ME)
        assert isinstance(found, EndedRun)
        assert (found.outcome[0].value, found.state, found.size) == (42, "completed", 100)
        assert "there is no run" in await refusal(process, owner="http:you")
    assert await shared.rows("SELECT COUNT(*) FROM calls") == [(0,)]
    assert await shared.rows("SELECT COUNT(*) FROM snapshots") == [(0,)]
    await shared.advance(901)
    assert "there is no run" in await refusal(first)


async def test_an_end_may_be_given_again_when_the_answer_was_lost(process: Process, other: Process) -> None:
    await process.store.suspend(suspended(process))
    await claimed(process)
    known = process.store._known["run_a"]
    await process.store.end(ended(process))
    process.store._known["run_a"] = known
    await process.store.end(ended(process, value="another"))
    found = await other.store.claim("run_a", ME)
    assert isinstance(found, EndedRun)
    assert found.outcome[0].value == 42


async def test_a_process_that_carries_calls_of_a_run_hears_of_its_end(first: Process, second: Process) -> None:
    await first.store.suspend(suspended(first, "run_a", ONCE))
    await first.store.dispatching("run_a", 1)
    await claimed(second)
    with anyio.fail_after(10):
        assert await first.store.next_notification() in ("run_a", None)
        await second.store.end(ended(second))
        while (await first.store.news_of("run_a")).ended is None:
            await first.store.next_notification()
    assert (await first.store.news_of("run_a")).ended == "completed"
    assert await first.store.settle("run_a", 1, "42") is False


async def test_the_oldest_ends_make_room(shared: SharedDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspending, "MAX_ENDED_BYTES", 250)
    process = await shared.process()
    for number in range(4):
        run_id = f"run_{number}"
        await process.store.suspend(suspended(process, run_id))
        await process.store.end(ended(process, run_id))
        await shared.advance(1)
    assert [row[0] for row in await shared.rows("SELECT id FROM runs ORDER BY id")] == ["run_2", "run_3"]
    await process.store.suspend(suspended(process, "run_9"))
    monkeypatch.setattr(suspending, "MAX_ENDED", 1)
    await process.store.sweep()
    assert [row[0] for row in await shared.rows("SELECT id FROM runs ORDER BY id")] == ["run_3", "run_9"]


async def test_a_process_that_resumes_a_run_hears_that_it_shall_end(shared: SharedDatabase) -> None:
    first, second = await shared.process(), await shared.process()
    await first.store.suspend(suspended(first))
    assert await second.store.cancel("run_a", ME) is False
    await claimed(first)
    assert await second.store.cancel("run_a", ME) is True
    with anyio.fail_after(10):
        assert await first.store.next_notification() in ("run_a", None)
    assert (await first.store.news_of("run_a")).cancelled
    await shared.kill(first)
    assert await second.store.cancel("run_a", ME) is False
    assert await second.store.cancel("run_b", ME) is False


# time and room


async def test_runs_past_their_time_are_dropped_and_known_for_a_day(shared: SharedDatabase) -> None:
    first, second = await shared.process(), await shared.process()
    await first.store.suspend(suspended(first, "run_a", ONCE))
    await first.store.suspend(suspended(first, "run_b"))
    await first.store.dispatching("run_a", 1)
    assert await second.store.sweep() == []
    await shared.advance(901)
    assert "suspended for more than 900 s" in await refusal(second)
    assert await second.store.sweep() == []
    assert sorted(await first.store.sweep()) == ["run_a", "run_b"]
    assert await first.store.sweep() == []
    assert (await first.store.news_of("run_a")).ended == "expired"
    assert await shared.rows("SELECT COUNT(*) FROM snapshots") == [(0,)]
    assert await shared.rows("SELECT COUNT(*) FROM calls") == [(0,)]
    assert "suspended for more than 900 s" in await refusal(second)
    with pytest.raises(Fenced):
        await first.store.suspend(suspended(first))
    await shared.advance(24 * 3600 + 1)
    assert "there is no run" in await refusal(second)
    await second.store.sweep()
    assert await shared.rows("SELECT * FROM runs") == []
    assert await shared.rows("SELECT * FROM catalogs") == []


async def test_a_run_that_its_process_has_claimed_and_forgotten_expires(shared: SharedDatabase) -> None:
    process = await shared.process()
    await process.store.suspend(suspended(process))
    await claimed(process)
    process.store.forget("run_a")
    await shared.advance(1000)
    assert await process.store.sweep() == ["run_a"]


async def test_a_run_does_not_expire_while_a_process_resumes_it(shared: SharedDatabase) -> None:
    first, second = await shared.process(), await shared.process()
    await first.store.suspend(suspended(first))
    await claimed(first)
    await shared.advance(1000)
    assert await second.store.sweep() == []
    assert await first.store.sweep() == []
    await first.store.suspend(suspended(first))
    await claimed(second)
    await shared.advance(1000)
    await shared.kill(second)
    await first.store.sweep()
    assert "suspended for more than" in await refusal(first)


async def test_quotas_count_what_all_processes_have(shared: SharedDatabase) -> None:
    settings = CodeModeSettings(max_suspended_runs=3, max_suspended_runs_per_owner=2)
    first, second = await shared.process(settings), await shared.process(settings)
    await first.store.suspend(suspended(first, "run_1"))
    await second.store.suspend(suspended(second, "run_2"))
    with pytest.raises(ProgramError, match=r"2 programs of yours .* \(maxSuspendedRunsPerOwner is 2\)"):
        await first.store.suspend(suspended(first, "run_3"))
    assert "there is no run" in await refusal(first, "run_3")
    await second.store.suspend(suspended(second, "run_4", owner="http:you"))
    with pytest.raises(ProgramError, match=r"no room for another one \(maxSuspendedRuns is 3\)"):
        await first.store.suspend(suspended(first, "run_5", owner="http:them"))
    await claimed(first, "run_2")
    await first.store.suspend(suspended(first, "run_2"))
    await shared.advance(901)
    await first.store.suspend(suspended(first, "run_5", owner="http:them"))


async def test_runs_of_a_process_of_an_earlier_version_count_for_their_owner(shared: SharedDatabase) -> None:
    process = await shared.process(CodeModeSettings(max_suspended_runs=8, max_suspended_runs_per_owner=1))
    await process.store.suspend(suspended(process, "run_1"))
    await shared.rows("UPDATE runs SET share = ''")
    with pytest.raises(ProgramError, match=r"1 programs of yours .* \(maxSuspendedRunsPerOwner is 1\)"):
        await process.store.suspend(suspended(process, "run_2"))
    await process.store.suspend(suspended(process, "run_3", owner="http:you"))


async def test_a_catalog_is_stored_once_while_runs_see_it(shared: SharedDatabase, process: Process) -> None:
    made: list[str] = []

    def run(run_id: str) -> SuspendedRun:
        now = process.clock()
        catalog = StoredCatalog("h", lambda: made.append(run_id) or "text")
        return SuspendedRun(run_id, ME, b"s", "{}", "yield", now, now + 9000, "", (), catalog)

    await process.store.suspend(run("run_a"))
    await process.store.suspend(run("run_b"))
    assert made == ["run_a"]
    await shared.advance(3601)
    await process.store.sweep()
    assert await shared.rows("SELECT COUNT(*) FROM catalogs") == [(2,)]
    for run_id in ("run_a", "run_b"):
        await process.store.end(ended(process, run_id))
    await process.store.suspend(run("run_c"))
    await process.store.sweep()
    assert (await claimed(await shared.process(), "run_c")).catalog == "text"
    assert made == ["run_a"]


async def test_a_catalog_that_a_run_sees_again_is_kept_for_longer(shared: SharedDatabase, process: Process) -> None:
    for run_id in ("run_a", "run_b"):
        await process.store.suspend(suspended(process, run_id, lives=10_000))
        await shared.advance(suspending.CATALOG_SECONDS * 0.7)
    for run_id in ("run_a", "run_b"):
        await process.store.end(ended(process, run_id))
    await process.store.sweep()
    assert len(await shared.rows("SELECT hash FROM catalogs WHERE hash LIKE 'hash of%'")) == 1
    await shared.advance(suspending.CATALOG_SECONDS)
    await process.store.sweep()
    assert await shared.rows("SELECT hash FROM catalogs") == []


async def test_all_runs_are_listed_with_their_facts(shared: SharedDatabase, first: Process, second: Process) -> None:
    view = RunView("run_a", "waiting", "http", "ann", 5000, waits=3, call_count=7)
    await first.store.suspend(suspended(first, "run_a", view=view))
    await first.store.suspend(suspended(first, "run_b"))
    await shared.advance(100)
    await claimed(first, "run_b")
    await first.store.suspend(suspended(first, "run_c"))
    await first.store.end(ended(first, "run_c"))
    views = {view.id: view for view in await second.store.views()}
    states = {run_id: view.state for run_id, view in views.items()}
    assert states == {"run_a": "waiting", "run_b": "running", "run_c": "completed"}
    a = views["run_a"]
    assert (a.kind, a.principal, a.waits, a.call_count, a.observed) == ("http", "ann", 3, 7, False)
    assert a.age_ms == pytest.approx(105_000, abs=2000)
    assert a.expires_ms == pytest.approx(800_000, abs=2000)
    assert views["run_b"].observed
    assert views["run_c"].ended_ms is not None
    assert (await second.store.views())[-1].id == "run_a"
    stranger = await shared.process(seal=Seal((b"x" * 32,)))
    assert {view.id for view in await stranger.store.views()} == set(views)


async def test_nothing_waits_for_a_person_in_a_run_that_has_expired(shared: SharedDatabase, process: Process) -> None:
    view = RunView("run_a", "waiting", "http", "ann", 5000, approvals=2, questions=1, timers=1)
    await process.store.suspend(suspended(process, "run_a", ONCE, AGAIN, view=view))
    (found,) = await process.store.views()
    assert (found.approvals, found.questions, found.timers) == (2, 1, 1)
    await shared.advance(1000)
    await process.store.sweep()
    (found,) = await process.store.views()
    assert (found.state, found.approvals, found.questions, found.timers) == ("expired", 0, 0, 0)


async def test_a_call_that_was_sent_or_ended_does_not_count_as_an_approval(shared: SharedDatabase) -> None:
    killed, other = await shared.process(), await shared.process()
    view = RunView("run_a", "waiting", "http", "ann", 5000, approvals=2)
    await killed.store.suspend(suspended(killed, "run_a", ONCE, AGAIN, view=view))
    await claimed(killed, "run_a")

    async def approvals() -> int:
        (found,) = await other.store.views()
        return found.approvals

    assert await approvals() == 2
    assert await killed.store.dispatching("run_a", 1)
    assert await approvals() == 1
    assert await killed.store.settle("run_a", 2, "result")
    assert await approvals() == 0
    await shared.kill(killed)
    assert await approvals() == 0


# what is in the database


async def test_nothing_of_a_program_or_a_server_can_be_read_in_the_database(shared: SharedDatabase) -> None:
    process = await shared.process()
    secret = "hunter2-hunter2"
    run = suspended(
        process,
        "run_a",
        StoredCall(1, "t", "queued", False, body=secret),
        snapshot=secret.encode(),
        manifest=secret,
        view=RunView("run_a", "waiting", "http", secret, 1),
    )
    await process.store.suspend(replace(run, catalog=StoredCatalog("h", lambda: secret)))
    await process.store.settle("run_a", 1, secret)
    await process.store.suspend(suspended(process, "run_b"))
    await process.store.end(ended(process, "run_b", value=secret))
    held = [await shared.rows(f"SELECT * FROM {table}") for table in ("runs", "calls", "snapshots")]
    held.append(await shared.rows("SELECT body FROM catalogs"))
    assert all(held)
    assert secret not in repr(held)


async def test_a_program_needs_no_key_but_the_one_it_was_stored_with(shared: SharedDatabase) -> None:
    # What many programs see is stored once: it must not stay as it was when the key is another one.
    old, new = b"o" * 32, b"n" * 32
    for number, (keys, later) in enumerate((((), ()), ((old,), (old,)), ((new, old), (new,)), ((), ()))):
        run_id = f"run_{number}"
        process = await shared.process(seal=Seal(keys))
        run = replace(suspended(process, run_id), catalog=StoredCatalog("h", lambda: "text"))
        await process.store.suspend(run)
        claim = await claimed(await shared.process(seal=Seal(later)), run_id)
        assert (claim.catalog, claim.run.manifest) == ("text", run.manifest)
        assert claim.run.catalog is not None
        assert claim.run.catalog.hash == "h"
    assert await shared.rows("SELECT COUNT(*) FROM catalogs") == [(6,)]


async def test_a_run_that_cannot_be_opened_is_left_for_a_process_with_the_key(shared: SharedDatabase) -> None:
    first, stranger = await shared.process(), await shared.process(seal=Seal((b"x" * 32,)))
    await first.store.suspend(suspended(first, "run_a", ONCE))
    with pytest.raises(ProgramError) as refused:
        await stranger.store.claim("run_a", ME)
    assert refused.value.code == "snapshot_restore_failed"
    assert await first.store.dispatching("run_a", 1) is True
    assert (await claimed(first)).current


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE snapshots SET record = NULL", "record is missing"),
        ("DELETE FROM snapshots", "snapshot is missing"),
        ("UPDATE runs SET manifest = NULL", "manifest is missing"),
        ("UPDATE calls SET tool = '\"'", "no version of codemode-mcp"),
    ],
)
async def test_a_damaged_row_is_refused_by_name(first: Process, second: Process, damage: str, said: str) -> None:
    await first.store.suspend(suspended(first, "run_a", ONCE))

    def spoil() -> Work[None]:
        yield Query(damage)

    await first.database.execute(spoil)
    with pytest.raises(ProgramError) as refused:
        await second.store.claim("run_a", ME)
    assert refused.value.code == "snapshot_restore_failed"
    assert said in refused.value.message


async def test_an_expired_run_names_its_calls_before_and_after_its_suspension(shared: SharedDatabase) -> None:
    first, second = await shared.process(), await shared.process()
    sent = replace(ONCE, id=3, tool="mcp:files:pay")
    view = RunView("run_a", "waiting", "stdio", "ann", 5000, made=(MadeCall("mcp:files:write", "completed", 2),))
    await first.store.suspend(suspended(first, "run_a", ONCE, AGAIN, sent, replace(ONCE, id=4), view=view))
    for call in (1, 2, 3):
        assert await first.store.dispatching("run_a", call)
    for call in (1, 2):
        assert await first.store.settle("run_a", call, completion_text(Completion(call, '{"content":[]}')))
    await shared.advance(901)
    expected = "these calls were made: mcp:files:write (3 times, completed), mcp:files:pay (outcome unknown);"
    assert expected in await refusal(second)
    await first.store.sweep()
    assert expected in await refusal(second)
    (found,) = await second.store.views()
    assert (found.state, found.made) == (
        "expired",
        (MadeCall("mcp:files:write", "completed", 3), MadeCall("mcp:files:pay", "outcome unknown", 1)),
    )


async def test_a_run_is_kept_longer_by_the_process_that_suspended_it_alone(shared: SharedDatabase) -> None:
    first, second = await shared.process(), await shared.process()
    await first.store.suspend(suspended(first))
    for process, seconds, kept in ((second, 5000, 900), (first, 100, 900), (first, 5000, 5000)):
        await process.store.prolong("run_a", process.clock() + seconds)
        (view,) = await second.store.views()
        assert view.expires_ms == pytest.approx(kept * 1000, abs=2000)
    await shared.advance(4000)
    await first.store.sweep()
    await claimed(second)
    await second.store.suspend(suspended(second, lives=50))
    await first.store.prolong("run_a", first.clock() + 9000)
    await shared.advance(60)
    await second.store.prolong("run_a", second.clock() + 9000)
    assert "suspended for more than 50 s" in await refusal(first)


# tests of what the deployment guide says to do after an old backup was restored


GUIDE = Path(__file__).parents[2] / "docs" / "deployment.md"


async def test_the_statement_of_the_guide_ends_what_is_suspended_and_nothing_else(shared: SharedDatabase) -> None:
    (statement,) = re.findall(r"^(UPDATE .*);$", GUIDE.read_text("utf-8"), re.MULTILINE)
    before = await shared.process()
    for run in ("run_a", "run_b", "run_c"):
        await before.store.suspend(suspended(before, run, ONCE))
    await claimed(before, "run_b")
    await claimed(before, "run_c")
    await before.store.end(ended(before, "run_c"))
    await shared.kill(before)
    after = await shared.process()

    def restored() -> Work[None]:
        yield Query(statement)

    await after.database.execute(restored)
    for run in ("run_a", "run_b"):
        assert "was dropped" in await refusal(after, run)
    await after.store.sweep()
    for run in ("run_a", "run_b"):
        assert "was dropped" in await refusal(after, run)
    assert await shared.rows("SELECT COUNT(*) FROM calls") == [(0,)]
    found = await after.store.claim("run_c", ME)
    assert found.outcome[0].value == 42  # type: ignore[union-attr]
