"""Runs that are resumed by another process: managers over one database, each with a process id of its own."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from contextlib import suppress
from typing import Any, NoReturn

import anyio
import pytest

from codemode_mcp.base.errors import CodeModeError, ProgramError, ShuttingDown, StoreUnavailable
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.runs import end_records, records
from codemode_mcp.stores.runs import DurableStore
from codemode_mcp.stores.seal import Seal
from codemode_mcp.stores.work import Query, Work
from tests.runs.bench import CALLER, OWNER, Bench, FakeClient, texts
from tests.runs.saved_programs import DOUBLE, WORK, library
from tests.runs.test_polling import poll, poll_to_end, polling_client
from tests.runs.test_questions import NO, YES, AskingSource
from tests.stores.replicas import READ, SETTINGS, Replicas, answer, fast, slow, until_done
from tests.values import replace
from tests.waiting import answering, until
from upstream_clients.testing import ScriptedSource

UNKNOWN = "try { await MCP.files.write({n: 1}); return 'made' } catch (error) { return error.data.outcome }"


class Weighed(Seal):
    """`weights`: bytes that were written down, by what they are."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: Counter[str] = Counter()

    def seal(self, data: bytes, *, owner: str, run: str, field: str) -> bytes:
        self.weights[field.split()[0]] += len(data)
        return super().seal(data, owner=owner, run=run, field=field)


async def test_a_read_that_died_with_its_process_is_made_again(replicas: Replicas) -> None:
    async with replicas(slow()) as first:
        waiting = await first.execute(
            "text('a'); const r = await MCP.files.read({n: 1}); text('b'); return unwrap(r).text"
        )
        assert (waiting.status, texts(waiting)) == ("waiting", ["a"])
    source = fast()
    async with replicas(source) as second:
        outcome = await until_done(second, waiting.run_id)
        assert (outcome.status, outcome.value, texts(outcome)) == ("completed", "done 1", ["b"])
        again = await second.observe(waiting.run_id, from_start=True)
        assert texts(again) == ["a", "b"]
    assert source.calls == [("read", {"n": 1})]


async def test_a_write_that_died_with_its_process_is_unknown_and_never_made_again(replicas: Replicas) -> None:
    code = (
        "try { await MCP.files.write({n: 1}); return 'made' }"
        "catch (error) { return [error.code, error.data.dispatched, error.data.outcome, error.message] }"
    )
    waiting = await replicas.execute(slow(), code)
    source = fast()
    outcome = await replicas.end(source, waiting.run_id)
    found, dispatched, unknown, message = outcome.value
    assert (found, dispatched, unknown) == ("nested_tool_failed", True, "unknown")
    assert "mcp:files:write" in message
    assert source.calls == []


async def test_unsent_calls_are_sent_once_by_the_next_process(replicas: Replicas) -> None:
    code = (
        "const all = await Promise.allSettled([1, 2, 3].map((n) => MCP.files.write({n})));"
        "return all.map((each) => each.status === 'fulfilled' ? unwrap(each.value).text : each.reason.data.outcome)"
    )
    async with replicas(slow(), max_pending_tool_calls=1) as first:
        waiting = await first.execute(code)
        assert waiting.pending_total == 3
    source = fast()
    outcome = await replicas.end(source, waiting.run_id, max_pending_tool_calls=1)
    assert outcome.value == ["unknown", "done 2", "done 3"]
    assert source.calls == [("write", {"n": 2}), ("write", {"n": 3})]


async def test_a_call_that_another_process_has_in_flight_is_waited_for(replicas: Replicas) -> None:
    executor, other = slow(), fast()
    async with replicas(executor) as first, replicas(other) as second:
        waiting = await first.execute(
            "const r = await MCP.files.write({n: 1});"
            "return [unwrap(r).text, unwrap(await MCP.files.write({n: 2})).text]"
        )
        still = await second.observe(waiting.run_id)
        assert (still.status, [each.status for each in still.pending]) == ("waiting", ["executing"])
        async with answering(until_done(second, waiting.run_id)) as found:
            executor.release.set()
        assert found[0].value == ["done 1", "done 2"]
        assert (executor.calls, other.calls) == ([("write", {"n": 1})], [("write", {"n": 2})])
        assert (await first.observe(waiting.run_id)).value == ["done 1", "done 2"]


async def test_a_call_whose_executor_dies_between_two_waits_of_another_process_is_given_up(replicas: Replicas) -> None:
    async with replicas(fast()) as second:
        async with replicas(slow()) as first:
            waiting = await first.execute(UNKNOWN)
            assert (await second.observe(waiting.run_id)).status == "waiting"
        assert (await until_done(second, waiting.run_id)).value == "unknown"


async def test_a_call_whose_executor_dies_while_another_process_waits_is_given_up(replicas: Replicas) -> None:
    ends: list[Any] = []

    async def wait() -> None:
        ends.append(await second.observe(waiting.run_id))

    async with replicas(fast(), timeout_ms=20_000) as second, anyio.create_task_group() as group:  # noqa: SIM117 - the first one ends before
        async with replicas(slow()) as first:
            waiting = await first.execute(UNKNOWN)
            group.start_soon(wait)
            await until(lambda: second.manager.operator.view(waiting.run_id) is not None)
    assert ends[0].value == "unknown"


async def test_a_call_being_sent_is_sent_after_a_takeover(replicas: Replicas) -> None:
    written, may_go = anyio.Event(), anyio.Event()
    inner = DurableStore.dispatching

    async def dispatching(self: DurableStore, run_id: str, call: int) -> bool:
        sends = await inner(self, run_id, call)
        written.set()
        await may_go.wait()
        return sends

    replicas.patch.setattr(DurableStore, "dispatching", dispatching)
    async with replicas(fast()) as first, replicas(fast()) as second:
        waiting = await first.execute(
            "await yield_control(); const sent = MCP.files.write({n: 1});"
            "await yield_control(); return unwrap(await sent).text"
        )
        assert (await first.observe(waiting.run_id)).status == "waiting"
        with anyio.fail_after(10):
            await written.wait()
            assert (await second.observe(waiting.run_id)).status == "waiting"
            await until(lambda: first.manager.operator.view(waiting.run_id) is None)
        may_go.set()
        assert (await until_done(second, waiting.run_id)).value == "done 1"


async def test_a_process_that_is_taken_for_dead_by_the_time_that_a_call_is_written_down_does_not_send_it(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = DurableStore.dispatching

    async def dispatching(self: DurableStore, run_id: str, call: int) -> bool:
        sends = await inner(self, run_id, call)
        monkeypatch.setattr(DurableStore, "claims_are_valid", lambda _: False)
        return sends

    monkeypatch.setattr(DurableStore, "dispatching", dispatching)
    source = fast()
    async with replicas(source) as it:
        waiting = await it.execute("await yield_control(); return unwrap(await MCP.files.write({n: 1})).text")
        with pytest.raises(StoreUnavailable):
            await it.observe(waiting.run_id)
    assert source.calls == []


async def test_an_unreadable_end_rejects_its_call_alone(replicas: Replicas) -> None:
    def of_another_version(text: str) -> NoReturn:
        raise ProgramError("snapshot_restore_failed", "written by another version")

    executor = slow()
    async with replicas(executor) as first, replicas(fast()) as second:
        waiting = await first.execute(
            "try { await MCP.files.write({n: 1}) }"
            "catch (error) { return [error.message, unwrap(await MCP.files.read({n: 2})).text] }"
        )
        assert (await second.observe(waiting.run_id)).status == "waiting"
        replicas.patch.setattr(records, "completion_of", of_another_version)
        executor.release.set()
        message, read = (await until_done(second, waiting.run_id)).value
    assert ("another version" in message, read) == (True, "done 2")


async def test_when_a_run_ends_elsewhere_reads_are_cancelled_and_nothing_else(replicas: Replicas) -> None:
    executor = slow()
    async with replicas(executor) as first, replicas(fast()) as second:
        waiting = await first.execute(
            "MCP.files.write({n: 1}); MCP.files.read({n: 2}); await yield_control(); return 'done'"
        )
        await until(lambda: executor.pending == 2)
        assert (await second.observe(waiting.run_id)).value == "done"
        await until(lambda: executor.cancelled)
        assert (executor.cancelled, executor.pending) == (1, 1)


async def test_a_process_that_has_heard_nothing_continues_from_where_another_was(replicas: Replicas) -> None:
    replicas.patch.setattr(DurableStore, "next_notification", lambda _: anyio.sleep_forever())
    code = "for (const each of ['a', 'b', 'c']) { text(each); await yield_control() } return 'done'"
    async with replicas(fast()) as first, replicas(fast()) as second:
        waiting = await first.execute(code)
        assert texts(await second.observe(waiting.run_id)) == ["b"]
        assert texts(await first.observe(waiting.run_id)) == ["c"]
        outcome = await first.observe(waiting.run_id, from_start=True)
        assert (texts(outcome), outcome.value) == (["a", "b", "c"], "done")


async def test_calls_in_flight_survive_news_that_come_while_their_run_is_first_stored(replicas: Replicas) -> None:
    """The run is not in the store yet, which must not be taken for a run that was dropped."""
    replicas.patch.setattr("codemode_mcp.runs.takeover.WATCH_SECONDS", 0.02)
    source = slow()
    async with replicas(source) as it:
        suspend, heard = it.store.suspend, 0

        async def late(run: Any) -> None:
            enough = heard + 3
            await until(lambda: heard >= enough)
            await suspend(run)

        async def missed() -> None:
            nonlocal heard
            heard += 1
            await anyio.sleep(0.01)

        it.store.suspend, it.store.next_notification = late, missed
        with anyio.fail_after(20):
            waiting = await it.execute("return unwrap(await MCP.files.write({n: 1})).text")
            assert (waiting.status, source.cancelled, source.pending) == ("waiting", 0, 1)
            source.release.set()
            assert (await until_done(it, waiting.run_id)).value == "done 1"


async def test_what_a_process_does_while_it_continues_is_not_done_again_after_its_death(replicas: Replicas) -> None:
    """Killed in the middle of a `wait`, in which the program has made calls since it was suspended."""
    code = (
        "await yield_control('first'); await 0; const seen = [];"
        "for (const n of [1, 2, 3]) {"
        "  try { seen.push(unwrap(await MCP.files.write({n})).text) } catch (error) { seen.push(error.data.outcome) }"
        "}"
        "return seen"
    )
    source = slow()
    async with replicas(source) as first:
        waiting = await first.execute(code)
        assert waiting.reason == "yield"
        async with anyio.create_task_group() as group:
            group.start_soon(first.observe, waiting.run_id)
            await source.wait_pending(1)
            group.cancel_scope.cancel()
            # Not even a chance to suspend the program again.
            first.manager._group.cancel_scope.cancel()
    later = fast()
    outcome = await replicas.end(later, waiting.run_id)
    assert outcome.value == ["unknown", "done 2", "done 3"]
    assert later.calls == [("write", {"n": 2}), ("write", {"n": 3})]


async def test_timers_continue_where_they_were(replicas: Replicas) -> None:
    async with replicas(fast()) as first:
        waiting = await first.execute("await new Promise((done) => setTimeout(done, 700)); return 'later'")
        assert [each.tool for each in waiting.pending] == ["core:timer"]
    assert (await replicas.end(fast(), waiting.run_id)).value == "later"


async def test_two_processes_do_not_drive_one_run(replicas: Replicas) -> None:
    async with replicas(slow(), timeout_ms=5000) as first, replicas(fast()) as second:
        waiting = await first.execute("await yield_control('x'); return unwrap(await MCP.files.read({n: 1})).text")
        async with anyio.create_task_group() as group:
            group.start_soon(first.observe, waiting.run_id)
            source: Any = first.sources["files"]
            await source.wait_pending(1)
            with pytest.raises(CodeModeError, match="another request is waiting"):
                await second.observe(waiting.run_id)
            source.release.set()
        assert (await second.observe(waiting.run_id)).value == "done 1"


async def test_a_run_is_cancelled_wherever_it_is_driven(replicas: Replicas) -> None:
    source = slow()
    async with replicas(source, timeout_ms=20_000) as first, replicas(fast()) as second:
        waiting = await first.execute("await yield_control('x'); return unwrap(await MCP.files.read({n: 1})).text")
        with anyio.fail_after(10):
            async with answering(first.observe(waiting.run_id)) as ends:
                await source.wait_pending(1)
                ends.append(await second.observe(waiting.run_id, cancel=True))
        assert ([end.code for end in ends], source.cancelled) == (["aborted", "aborted"], 1)


async def test_a_call_that_waits_for_a_person_waits_again_after_a_restart(replicas: Replicas) -> None:
    rules = PolicyRules(ask=("mcp:files:write",))
    code = (
        "const a = await MCP.files.write({n: 1}); return [unwrap(a).text, unwrap(await MCP.files.write({n: 2})).text]"
    )
    async with replicas(fast(), rules=rules) as first:
        waiting = await first.execute(code, client=FakeClient("none"))
        assert len(first.manager.operator.approvals(waiting.run_id)) == 1
    source = fast()
    async with replicas(source, rules=rules) as second:
        assert not second.manager.operator.approvals(waiting.run_id)
        assert await second.manager.operator.take_over(waiting.run_id)
        await until(lambda: second.manager.operator.approvals(waiting.run_id))
        second.manager.operator.decide(waiting.run_id, None, approved=True, remember="run", by="a test")
        outcome = await until_done(second, waiting.run_id)
        assert outcome.value == ["done 1", "done 2"]
    assert source.calls == [("write", {"n": 1}), ("write", {"n": 2})]


async def test_an_approval_for_the_run_is_remembered_after_a_restart(replicas: Replicas) -> None:
    rules = PolicyRules(ask=("mcp:files:write",))
    code = "await MCP.files.write({n: 1}); await yield_control('x'); return unwrap(await MCP.files.write({n: 2})).text"
    async with replicas(fast(), rules=rules) as first:
        waiting = await first.execute(code, client=FakeClient("none"))
        first.manager.operator.decide(waiting.run_id, None, approved=True, remember="run", by="a test")
        while (waiting := await first.observe(waiting.run_id, client=FakeClient("none"))).reason != "yield":
            pass
    assert (await replicas.end(fast(), waiting.run_id, client=FakeClient("none"), rules=rules)).value == "done 2"


async def test_an_error_after_a_restart_names_the_authors_line(replicas: Replicas) -> None:
    waiting = await replicas.execute(fast(), "await yield_control('x');\nconst thing = undefined;\nreturn thing.name;")
    outcome = await replicas.end(fast(), waiting.run_id)
    assert outcome.status == "failed"
    assert "cell.js:3" in outcome.error


async def test_a_tool_that_is_gone_rejects(replicas: Replicas) -> None:
    waiting = await replicas.execute(
        fast(), "await yield_control('x'); try { await MCP.files.write({}) } catch (error) { return error.message }"
    )
    async with replicas(ScriptedSource("others", {"read": answer})) as second:
        second.sources.pop("files", None)
        outcome = await until_done(second, waiting.run_id)
    assert "no longer configured" in outcome.value


async def test_what_a_program_has_printed_is_written_down_once(replicas: Replicas) -> None:
    """However often it is: here after each of 50 calls."""
    code = (
        "text('x'.repeat(1e6)); await yield_control('x');"
        "for (let n = 0; n < 50; n++) { await MCP.files.write({n}); if (n % 10 === 0) text('after ' + n) }"
        "await yield_control('y'); text('last')"
    )
    seal = Weighed()
    async with replicas(fast(), seal=seal) as first:
        waiting = await first.execute(code)
        while (waiting := await first.observe(waiting.run_id)).reason != "yield":
            pass
        assert seal.weights["record"] < 500_000, "no record has the text of 1 MB"
        assert 1_000_000 < seal.weights["outputs"] < 1_010_000
    later = Weighed()
    async with replicas(fast(), seal=later) as second:
        outcome = await until_done(second, waiting.run_id)
        assert texts(outcome) == ["last"]
        whole = await second.observe(waiting.run_id, from_start=True)
        assert texts(whole) == ["x" * 1_000_000, *(f"after {n}" for n in range(0, 50, 10)), "last"]
    assert later.weights["outputs"] == 0


async def test_arguments_are_written_down_once(replicas: Replicas) -> None:
    """A call waits, and its program is written down several times meanwhile."""
    source = slow()
    code = (
        "await yield_control('x');"
        "const waits = MCP.files.read({n: 1, text: 'x'.repeat(1e5)});"
        "for (let n = 0; n < 5; n++) await yield_control('y');"
        "return unwrap(await waits).text"
    )
    seal = Weighed()
    async with replicas(source, seal=seal) as it:
        waiting = await it.execute(code)
        for _ in range(6):
            waiting = await it.observe(waiting.run_id)
        assert seal.weights["snapshot"] > 0
        assert 100_000 < seal.weights["call"] < 200_000
        source.release.set()
        assert (await until_done(it, waiting.run_id)).value == "done 1"


async def test_a_run_that_has_lost_some_of_what_it_printed_ends_by_name(replicas: Replicas) -> None:
    async with replicas(fast()) as first:
        waiting = await first.execute("text('a'); await yield_control('x'); return 1")
        store: Any = first.store

        def lose() -> Work[None]:
            yield Query("DELETE FROM outputs")

        await store._database.execute(lose)
    async with replicas(fast()) as second:
        outcome = await second.observe(waiting.run_id)
        assert (outcome.status, outcome.code) == ("failed", "snapshot_restore_failed")
        assert "some of its output is missing" in outcome.error


async def test_a_question_ends_with_the_process_whose_server_has_asked_it(replicas: Replicas) -> None:
    """An answer to it that comes later counts for no other question, and nothing waits for one."""
    code = "return await MCP.asker.ask({message: 'Who?'}).catch((error) => error.data.outcome)"
    async with replicas(AskingSource()) as first:
        waiting = await first.execute(code, client=FakeClient("return"))
        [(key, _)] = waiting.questions
    outcome = await replicas.observe(AskingSource(), waiting.run_id, client=FakeClient("return"), answers={key: YES})
    assert (outcome.status, outcome.value, outcome.questions) == ("completed", "unknown", ())


async def test_a_server_whose_call_is_made_again_asks_again(replicas: Replicas) -> None:
    source = AskingSource(READ.annotations)
    async with replicas(source) as first:
        waiting = await first.execute("return unwrap(await MCP.asker.ask({})).action", client=FakeClient("return"))
        [(key, _)] = waiting.questions
    async with replicas(AskingSource(READ.annotations)) as second:
        again = await second.observe(waiting.run_id, client=FakeClient("return"), answers={key: YES})
        assert again.status == "waiting"
        [(other, _)] = again.questions
        assert other != key
        outcome = await second.observe(waiting.run_id, client=FakeClient("return"), answers={other: NO})
    assert outcome.value == "decline"


async def test_how_often_a_user_has_turned_a_program_down_is_remembered_after_a_restart(replicas: Replicas) -> None:
    asks = "await tools.elicit({message: 'Name?'}).then((each) => each.action, (error) => error.message)"
    code = (
        f"for (let n = 0; n < 3; n++) {asks};"
        "await yield_control('x');"
        f"const said = []; for (let n = 0; n < 4; n++) said.push({asks}); return said"
    )
    async with replicas(fast()) as first:
        client = FakeClient("ask", replies=[NO] * 3, supported=("elicitation/create",))
        waiting = await first.execute(code, client=client)
        assert (waiting.reason, len(client.asked)) == ("yield", 3)
    async with replicas(fast()) as second:
        client = FakeClient("ask", replies=[NO] * 4, supported=("elicitation/create",))
        outcome = await until_done(second, waiting.run_id, client=client)
    assert outcome.value[:2] == ["decline", "decline"]
    assert all("turned down 5 questions" in each for each in outcome.value[2:])
    assert len(client.asked) == 2


async def test_a_closing_process_suspends_what_it_drives(replicas: Replicas) -> None:
    source = slow()
    async with replicas(source, timeout_ms=20_000) as first:
        answers: list[Any] = []

        async def run() -> None:
            answers.append(await first.execute("const r = await MCP.files.read({n: 1}); return unwrap(r).text"))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await source.wait_pending(1)
            await first.manager.retire()
        assert answers[0].status == "waiting"
        with pytest.raises(CodeModeError, match="shutting down"):
            await first.execute("return 1")
    assert (await replicas.end(fast(), answers[0].run_id)).value == "done 1"


async def test_a_claim_that_ends_after_its_process_has_closed_leaves_the_run_to_the_next(replicas: Replicas) -> None:
    waiting = await replicas.execute(fast(), "await yield_control('x'); return 1")
    claimed, closed = anyio.Event(), anyio.Event()

    async def observe(it: Bench) -> None:
        with pytest.raises(ShuttingDown):
            await it.observe(waiting.run_id)

    async with anyio.create_task_group() as group:
        async with replicas(fast()) as second:
            claim = second.manager._takeover.claim

            async def claim_slowly(*arguments: Any, **options: Any) -> Any:
                found = await claim(*arguments, **options)
                claimed.set()
                await closed.wait()
                return found

            replicas.patch.setattr(second.manager._takeover, "claim", claim_slowly)
            group.start_soon(observe, second)
            await claimed.wait()
        closed.set()
    assert (await replicas.end(fast(), waiting.run_id)).value == 1


async def test_a_process_closes_after_a_claim_has_begun_the_calls_of_the_run(replicas: Replicas) -> None:
    source = slow()
    async with replicas(source, timeout_ms=100) as first:
        waiting = await first.execute("const r = await MCP.files.read({n: 1}); return unwrap(r).text")
        assert waiting.status == "waiting"
    claimed = anyio.Event()

    async def observe(it: Bench) -> None:
        with suppress(ShuttingDown):
            await it.observe(waiting.run_id)

    async with anyio.create_task_group() as group, replicas(slow()) as second:
        take_over = second.manager._takeover._take_over

        async def take_over_slowly(*arguments: Any) -> Any:
            claimed.set()
            await anyio.sleep(0.2)
            return await take_over(*arguments)

        replicas.patch.setattr(second.manager._takeover, "_take_over", take_over_slowly)
        group.start_soon(observe, second)
        await claimed.wait()
    assert (await replicas.end(fast(), waiting.run_id)).value == "done 1"


async def test_a_program_that_cannot_be_written_down_is_suspended_in_its_process_alone(replicas: Replicas) -> None:
    source = slow()
    async with replicas(source) as it:
        good = it.store.suspend

        async def suspend(run: Any) -> None:
            raise StoreUnavailable("the disk is full; make room")

        replicas.patch.setattr(it.store, "suspend", suspend)
        waiting = await it.execute(
            "const r = await MCP.files.write({n: 1}); await yield_control('x'); return unwrap(r).text"
        )
        assert waiting.status == "waiting"
        assert any("in this process alone" in note and "the disk is full" in note for note in waiting.notes)
        replicas.patch.setattr(it.store, "suspend", good)
        source.release.set()
        outcome = await it.observe(waiting.run_id)
        assert outcome.reason == "yield"
        assert (await it.observe(waiting.run_id)).value == "done 1"
        assert (await it.observe(waiting.run_id)).value == "done 1", "its end is given again"


async def test_a_store_that_fails_later_keeps_what_it_has(replicas: Replicas) -> None:
    """The run is not lost: it is resumed from where it was when the store answered last."""
    source = fast()
    async with replicas(source) as it:
        waiting = await it.execute(
            "await yield_control('x'); const r = await MCP.files.write({n: 1}); return unwrap(r).text"
        )

        async def checkpoint(run: Any) -> None:
            raise StoreUnavailable("the disk is full; make room")

        with replicas.patch.context() as patch:
            patch.setattr(it.store, "checkpoint", checkpoint)
            with pytest.raises(StoreUnavailable, match="the disk is full"):
                await it.observe(waiting.run_id)
        assert source.calls == []
        assert (await until_done(it, waiting.run_id)).value == "done 1"
    assert source.calls == [("write", {"n": 1})]


async def test_a_snapshot_of_another_engine_ends_its_run_by_name(replicas: Replicas) -> None:
    waiting = await replicas.execute(slow(), "await MCP.files.read({n: 1})")
    later = fast()
    async with replicas(later) as it:
        store: Any = it.store
        claim = store.claim

        async def foreign(run_id: str, owner: str) -> Any:
            found = await claim(run_id, owner)
            snapshot = bytearray(found.run.snapshot)
            snapshot[36:68] = bytes(32)
            snapshot[4:36] = hashlib.sha256(snapshot[36:]).digest()
            return replace(found, run=replace(found.run, snapshot=bytes(snapshot)))

        store.claim = foreign
        outcome = await it.observe(waiting.run_id)
        store.claim = claim
        assert (outcome.status, outcome.code) == ("failed", "snapshot_restore_failed")
        assert "engine" in outcome.error
        assert any("mcp:files:read" in note for note in outcome.notes)
        assert later.calls == [], "made again for a program that cannot be resumed"
        assert (await it.observe(waiting.run_id)).code == "snapshot_restore_failed"


async def test_a_store_that_fails_is_logged_once_however_many_runs_there_are(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: Any) -> Any:
        raise StoreUnavailable("the store{at} is away", at=" in /there")

    async with replicas(slow()) as it:
        await it.execute("await MCP.files.read({n: 1})")
        await it.execute("await MCP.files.read({n: 2})")
        monkeypatch.setattr(it.store, "news_of", fails)
        for _ in range(3):
            for run in list(it.manager._live.runs.values()):
                await it.manager._takeover._look_up(run)
    assert [record.getMessage().endswith("the store in /there is away") for record in caplog.records] == [True]


async def test_a_record_of_another_version_ends_its_run_by_name_with_what_was_pending(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = end_records.stored_text
    monkeypatch.setattr(end_records, "stored_text", lambda form: text(form).replace('"format":1', '"format":99', 1))
    waiting = await replicas.execute(slow(), "await MCP.files.write({n: 1})")
    monkeypatch.undo()
    async with replicas(fast()) as it:
        outcome = await it.observe(waiting.run_id)
        assert (outcome.status, outcome.code) == ("failed", "snapshot_restore_failed")
        assert "99" in outcome.error
        assert any("mcp:files:write" in note for note in outcome.notes)
        assert (await it.observe(waiting.run_id)).code == "snapshot_restore_failed"


HUGE = "const held = new Uint8Array(24 * 1024 * 1024); await yield_control('x'); return held.length"


@pytest.mark.parametrize(
    ("lowered", "said"),
    [
        ({"memory_limit_bytes": 16 * 1024 * 1024}, r"memory takes \d+ bytes, and memoryLimitBytes is now 16777216"),
        ({"max_snapshot_bytes": 1000}, r"snapshot takes \d+ bytes, and maxSnapshotBytes is now 1000"),
    ],
)
@pytest.mark.parametrize("restarted", [True, False], ids=["after a restart", "in the same process"])
async def test_a_program_beyond_limits_that_were_lowered_is_not_restored(
    replicas: Replicas, lowered: dict[str, int], said: str, restarted: bool
) -> None:
    async with replicas(fast()) as it:
        waiting = await it.execute(HUGE)
        assert waiting.status == "waiting"
        if not restarted:
            it.manager.apply(replace(SETTINGS, **lowered))
            outcome = await it.observe(waiting.run_id)
    if restarted:
        outcome = await replicas.observe(fast(), waiting.run_id, **lowered)
    assert (outcome.status, outcome.code) == ("failed", "snapshot_restore_failed")
    assert re.search(said, outcome.error)


async def test_a_restored_program_gets_no_more_memory_than_today_allows(replicas: Replicas) -> None:
    code = (
        "await yield_control('x'); const held = [];"
        "for (let n = 0; n < 30; n++) held.push(new Uint8Array(1024 * 1024).fill(n)); return held.length"
    )
    for lowered, status in (({}, "completed"), ({"memory_limit_bytes": 16 * 1024 * 1024}, "failed")):
        waiting = await replicas.execute(fast(), code)
        outcome = await replicas.observe(fast(), waiting.run_id, **lowered)
        assert outcome.status == status
        assert not lowered or outcome.code == "memory_limit_exceeded"


REFUSED = "MCP.files.write may not be called: only read-only tools are allowed"
WHY = "try { await MCP.files.write({n: 1}); return 'made' } catch (error) { return error.message }"


async def test_the_restrictions_of_a_client_stay_with_its_run_in_another_process(replicas: Replicas) -> None:
    free = Caller(OWNER, share="client 1")
    bound = replace(free, read_only=True)
    async with replicas(fast()) as first:
        runs = [await first.execute(f"await yield_control(); {WHY}", caller=each) for each in (bound, bound, free)]
        assert {each.status for each in runs} == {"waiting"}
    source = fast()
    async with replicas(source) as second:
        # By another client, by the operator, and an unrestricted run by a read-only client.
        waits = zip(runs, (free, None, replace(bound, share="client 2")), strict=True)
        values = [(await until_done(second, run.run_id, caller=caller)).value for run, caller in waits]
        assert values == [REFUSED, REFUSED, "made"]
    assert source.calls == [("write", {"n": 1})]


async def test_a_run_whose_client_has_named_a_context_that_is_gone_may_call_nothing(replicas: Replicas) -> None:
    source = fast()
    async with replicas(source) as it:
        waiting = await it.execute(f"await yield_control(); {WHY}", caller=Caller(OWNER, context="careful"))
        ended = await until_done(it, waiting.run_id, caller=Caller(OWNER))
    assert (ended.value, source.calls) == ("MCP.files.write may not be called: not among the allowed tools", [])


async def test_stored_programs_of_all_clients_count_for_their_owner_in_every_process(replicas: Replicas) -> None:
    limit = {"max_suspended_runs_per_owner": 2}
    waiting = await replicas.execute(fast(), "await yield_control()", caller=Caller(OWNER, share="client 1"), **limit)
    async with replicas(fast(), **limit) as second:
        await second.execute("await yield_control()", caller=Caller(OWNER, share="client 1"))
        refused = await second.execute("await yield_control()", caller=Caller(OWNER, share="client 2"))
        assert refused.code == "too_many_pending_tool_calls"
        # A run that is taken over uses the share of the client that waits for it.
        client = Caller(OWNER, share="client 3")
        ended = await second.observe(waiting.run_id, caller=client)
        assert ended.status == "completed"


# saved programs that another process continues, in the middle


OUTER = """export default async () => {
  const first = await programs.work({ n: 1 });
  const second = await programs.double({ n: 4 });
  return [first, second.twice];
};"""


async def test_a_saved_program_continues_in_another_process_that_has_none(replicas: Replicas) -> None:
    async with replicas(slow()) as first:
        first.library = library(outer=OUTER, work=WORK, double=DOUBLE)
        waiting = await first.execute("return [await programs.outer(), (await programs.double({ n: 5 })).twice]")
        assert waiting.status == "waiting"
    async with replicas(fast()) as second:
        heard = []
        second.auditor.add(heard.append)
        outcome = await until_done(second, waiting.run_id)
        assert (outcome.error, outcome.value) == ("", [["done 1!", 8], 10])
        run = second.manager.operator.view(waiting.run_id)
        assert run is not None
        programs = [(call.tool, call.status) for call in run.calls if call.tool.startswith("program:")]
        assert programs == [(f"program:saved:{name}", "completed") for name in ("outer", "work", "double", "double")]
        ended = [event.fields["tool"] for event in heard if event.kind == "call_ended"]
        assert sorted(ended) == sorted(["mcp:files:read", *(tool for tool, _ in programs)])


async def test_an_error_in_another_process_names_the_line_of_the_file(replicas: Replicas) -> None:
    failing = f"{WORK}\n// more\n".replace("return `${result.text}!`;", "throw new Error(result.text);")
    async with replicas(slow()) as first:
        first.library = library(work=failing)
        waiting = await first.execute("return await programs.work({ n: 1 })")
    async with replicas(fast()) as second:
        outcome = await until_done(second, waiting.run_id)
        assert "programs.work failed: done 1 (programs/work.js:4:9)" in outcome.error


# a question that one process has put and another gets the answer to


RULES = PolicyRules(ask=("mcp:files:write",))
CODE = "const r = await MCP.files.write({n: 1}); await MCP.files.write({n: 2}); return unwrap(r).text"
APPROVE = {"action": "accept", "content": {"decision": "approve"}}


async def test_it_counts_there_for_exactly_the_calls_that_were_shown(replicas: Replicas) -> None:
    first_source, second_source, client = fast(), fast(), FakeClient("return")
    async with replicas(first_source, rules=RULES) as first, replicas(second_source, rules=RULES) as second:
        asked = await first.execute(CODE, client=client)
        ((key, question),) = asked.questions
        assert '"n": 1' in question.message
        again = await second.observe(asked.run_id, client=client, answers={key: APPROVE})
        ((other, question),) = again.questions
        assert '"n": 2' in question.message, "the first is not asked for again"
        assert second_source.calls == [("write", {"n": 1})]
        # An answer to what was decided already counts for nothing more.
        repeated = await first.observe(asked.run_id, client=client, answers={key: APPROVE})
        assert [each for each, _ in repeated.questions] == [other] != [key]
        ended = await second.observe(asked.run_id, client=client, answers={other: APPROVE})
        assert ended.value == "done 1"
    assert (first_source.calls, len(second_source.calls)) == ([], 2)


@pytest.mark.parametrize(
    "answer",
    [{"action": "decline"}, {"action": "accept", "content": {"decision": "deny"}}, {}, None],
    ids=["declined", "denied", "empty", "null"],
)
async def test_what_is_no_approval_denies_there_too(replicas: Replicas, answer: Any) -> None:
    source, client = fast(), FakeClient("return")
    asked = await replicas.execute(fast(), "await MCP.files.write({n: 1})", client=client, rules=RULES)
    async with replicas(source, rules=RULES) as second:
        ended = await second.observe(asked.run_id, client=client, answers={asked.questions[0][0]: answer})
        assert ended.code == "nested_tool_failed"
        assert "was not approved" in (ended.error or "")
    assert source.calls == []


async def test_a_key_is_of_one_run(replicas: Replicas) -> None:
    client = FakeClient("return")
    keys = {(await replicas.execute(fast(), CODE, client=client, rules=RULES)).questions[0][0] for _ in range(2)}
    assert len(keys) == 2


async def test_a_server_that_has_asked_is_told_that_no_user_will_answer(replicas: Replicas) -> None:
    """No client comes any more to the process that has sent the call, and nothing waits for one."""
    code = "return await MCP.asker.ask({}).catch((error) => error.message)"
    async with (
        replicas(AskingSource(), timeout_ms=20_000) as first,
        replicas(AskingSource(), timeout_ms=20_000) as second,
    ):
        asked = await first.execute(code, client=FakeClient("return"))
        ((key, _),) = asked.questions
        ended = await second.observe(asked.run_id, client=FakeClient("return"), answers={key: YES})
        assert ended.status == "completed"
        assert "taken over by another process" in ended.value


# runs whose clients poll them at several processes over one database


PROGRAM = "text('first'); await MCP.files.read({n: 1}); text('second'); return 'done'"


async def test_a_run_that_another_process_drives_works_until_that_one_lets_go(replicas: Replicas) -> None:
    here, there = slow(), slow()
    async with replicas(here) as first, replicas(there, timeout_ms=60_000) as second:
        waiting = await first.execute(PROGRAM, client=polling_client())
        await here.wait_pending(1)
        assert (await poll(second, waiting.run_id, 0)).outcome is None
        # The second process drives the run now, and the first one has its call.
        elsewhere = await poll(first, waiting.run_id, 0)
        assert (elsewhere.outcome, elsewhere.left) == (None, first.settings.snapshot_ttl_seconds)
        here.release.set()
        ended = [(await poll_to_end(each, waiting.run_id)).outcome for each in (second, first)]
        assert ended[0] is not None
        assert ended[1] is not None
        assert texts(ended[0]) == ["first", "second"]
        assert [each.value for each in ended if each] == ["done", "done"]
        assert ended[0].usage.ms == ended[1].usage.ms
        assert (ended[0].outputs, ended[0].notes) == (ended[1].outputs, ended[1].notes)
    assert there.calls == []


async def test_a_run_that_another_process_drives_can_be_cancelled(replicas: Replicas) -> None:
    source = slow()
    async with replicas(source) as first, replicas(slow(), timeout_ms=60_000) as second:
        waiting = await first.execute(PROGRAM, client=polling_client())
        assert (await poll(second, waiting.run_id, 0)).outcome is None
        await first.manager.polling.cancel(waiting.run_id, OWNER, CALLER, FakeClient())
        for each in (first, second):
            found = (await poll(each, waiting.run_id)).outcome
            assert found is not None
            assert found.code == "aborted"
