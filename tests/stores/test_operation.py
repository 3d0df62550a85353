"""Tests of what an operator sees of runs that are in a store, and does to those that no process has, or another one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from codemode_mcp.audit.events import Event
from codemode_mcp.base.errors import StoreUnavailable
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.cli.serving_processes import StoreContents, read_store
from codemode_mcp.runs import manager, observation
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.stores.opening import ReopenedDatabase
from tests.runs.bench import OWNER, FakeClient, bench
from tests.stores.replicas import Replicas, fast, slow, until_done
from tests.stores.test_opening import Opening, now, running
from tests.waiting import until

WRITE = "return unwrap(await MCP.files.write({n: 1})).text"
ASKS = PolicyRules(ask=("mcp:files:write",))


async def test_a_run_without_a_process_is_listed_and_its_calls_can_be_approved(replicas: Replicas) -> None:
    code = "return (await Promise.all([...Array(60).keys()].map((n) => MCP.files.write({n})))).length"
    async with replicas(fast(), rules=ASKS) as first:
        waiting = await first.execute(code, client=FakeClient("none"))
        assert await first.manager.operator.stored_views() == []
    async with replicas(fast(), rules=ASKS) as second:
        (view,) = await second.manager.operator.stored_views()
        assert (view.id, view.state, view.observed, view.approvals) == (waiting.run_id, "waiting", False, 60)
        operator = second.manager.operator
        totals = await operator.totals()
        assert (totals.suspended, (totals.oldest or 99) < 60, totals.size > 1000) == (1, True, True)
        assert not await operator.take_over("run_nobody_has_it")
        assert not await operator.take_over(waiting.run_id, lambda owner: owner != OWNER), "it is not for its servers"
        assert not await operator.cancel(waiting.run_id, lambda owner: owner != OWNER)
        assert await operator.take_over(waiting.run_id)
        assert len(operator.approvals(waiting.run_id)) == 60, "they are there when it returns"
        assert await operator.stored_views() == []
        operator.decide(waiting.run_id, None, approved=True, by="a test")
        assert (await until_done(second, waiting.run_id)).value == 60
        assert (await operator.totals()).suspended == 0


async def test_a_process_that_adopts_a_run_with_nothing_to_approve_does_not_wait(replicas: Replicas) -> None:
    waiting = await replicas.execute(slow(), "await yield_control(); " + WRITE)
    async with replicas(fast()) as second:
        with anyio.fail_after(observation.TAKEOVER_SECONDS):
            assert await second.manager.operator.take_over(waiting.run_id)


async def test_a_run_without_a_process_is_cancelled_by_the_one_that_is_asked(replicas: Replicas) -> None:
    waiting = await replicas.execute(slow(), WRITE)
    source = fast()
    async with replicas(source) as second:
        assert await second.manager.operator.cancel(waiting.run_id)
        assert (await second.observe(waiting.run_id)).code == "aborted"
        assert not await second.manager.operator.cancel(waiting.run_id), "it has ended"
    assert source.calls == []


async def test_a_run_that_another_process_drives_is_seen_there_and_cancelled(replicas: Replicas) -> None:
    source = slow()
    async with replicas(source, timeout_ms=20_000) as first, replicas(fast()) as other:
        waiting = await first.execute("await yield_control('x'); return unwrap(await MCP.files.read({n: 1})).text")
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(first.observe, waiting.run_id)
                await source.wait_pending(1)
                (view,) = await other.manager.operator.stored_views()
                assert (view.state, view.observed) == ("running", True)
                assert await other.manager.operator.cancel(waiting.run_id)
        assert (await first.observe(waiting.run_id)).code == "aborted"


async def test_who_takes_a_run_over_and_who_leaves_it_is_told(replicas: Replicas) -> None:
    told: list[tuple[str, str]] = []

    def listen(who: str) -> Any:
        def heard(event: Event) -> None:
            if event.kind in ("parked", "left", "taken_over", "run_ended"):
                told.append((who, event.kind))

        return heard

    async with replicas(fast()) as first:
        first.auditor.add(listen("first"))
        waiting = await first.execute("await yield_control(); return 1")
        async with replicas(fast()) as second:
            second.auditor.add(listen("second"))
            assert (await until_done(second, waiting.run_id)).value == 1
            await until(lambda: ("first", "left") in told)
        suspended = await first.execute("await yield_control(); return 1")
    assert [each for each in told if each[0] == "second"] == [("second", "taken_over"), ("second", "run_ended")]
    assert [each for each in told if each[0] == "first"] == [("first", "parked"), ("first", "left")] * 2
    assert suspended.status == "waiting"


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "sqlite"])
async def test_what_a_store_has_is_measured(replicas: Replicas, durable: bool) -> None:
    replicas.patch.setattr(manager, "SWEEP_SECONDS", 0.01)
    found = anyio.Event()
    measured: dict[str, Any] = {}

    def meter(what: str, kind: str, figures: Any) -> None:
        if figures.get("suspended") == 1:
            measured.update(what=what, kind=kind, **figures)
            found.set()

    async with replicas(fast()) if durable else bench(replicas.engine, fast()) as it:
        it.auditor.add_meter(meter)
        await it.execute("await yield_control()")
        with anyio.fail_after(10):
            await found.wait()
    assert (measured["what"], measured["kind"]) == ("store_swept", "sqlite" if durable else "memory")
    assert 0 <= measured["oldest"] < 60
    assert measured["size"] > 1000


async def test_with_memory_the_end_gives_open_programs_their_time(engine: Engine) -> None:
    async with bench(engine, fast()) as it:
        await it.manager.retire()
        assert (await it.execute("return 1")).value == 1


async def test_each_use_of_a_database_is_measured_and_whether_it_failed() -> None:
    used: list[tuple[bool, bool]] = []
    open_it = Opening(StoreUnavailable("the disk is full"))
    open_it.may.set()
    database = ReopenedDatabase(open_it, "fake", lambda seconds, failed: used.append((seconds >= 0, failed)))
    async with running(database):
        with pytest.raises(StoreUnavailable):
            await database.execute(now)
    database = ReopenedDatabase(open_it, "fake", lambda seconds, failed: used.append((seconds >= 0, failed)))
    async with running(database):
        await database.execute(now)
    assert used == [(True, True), (True, False)]


# without a server


def configure(folder: Path, store: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps({"store": store, "mcpServers": {"x": {"command": "${NOT_SET_ANYWHERE}"}}}), "utf-8")
    return str(path)


async def test_a_terminal_looks_into_the_store_of_the_configuration_without_its_servers(replicas: Replicas) -> None:
    path = replicas.path / "runs.sqlite3"
    config = configure(replicas.path, {"kind": "sqlite", "path": "runs.sqlite3"})
    waiting = await replicas.execute(fast(), "await yield_control()")
    found = await anyio.to_thread.run_sync(read_store, config, ())
    runs = [(each["id"], each["where"], each["state"]) for each in found.runs]
    assert runs == [(waiting.run_id, "stored", "waiting")]
    assert (found.name, found.problem) == (str(path), None)
    assert found.totals is not None
    assert (found.totals["kind"], found.totals["suspended"]) == ("sqlite", 1)
    assert await anyio.to_thread.run_sync(read_store, config, (str(path),)) == StoreContents(), "a server has told"


def test_a_terminal_makes_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for store in (None, {"kind": "memory"}, {"kind": "sqlite", "path": "none.sqlite3"}):
        assert read_store(configure(tmp_path, store), ()) == StoreContents()
    assert [each.name for each in tmp_path.iterdir()] == ["config.json"]


def test_a_store_that_cannot_be_looked_at_is_a_line_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "broken.sqlite3").write_bytes(b"this is no database" * 1000)
    for store, said in (
        ({"kind": "sqlite", "path": "broken.sqlite3"}, "broken.sqlite3"),
        ({"kind": "cloud"}, "store.kind"),
        ({"kind": "sqlite", "encryptionKey": "${NOT_SET_ANYWHERE}"}, "NOT_SET_ANYWHERE"),
    ):
        found = read_store(configure(tmp_path, store), ())
        assert found.runs == ()
        assert found.problem is not None
        assert said in found.problem
    assert "does not exist" in (read_store(str(tmp_path / "nowhere.json"), ()).problem or "")
