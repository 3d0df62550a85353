"""The number of servers that start at the same time, and whose turn is next."""

import sys
from collections import defaultdict

import anyio
import pytest
from counted_processes import Processes, said

from upstream_clients import UpstreamPool, UpstreamSpec, start_places
from upstream_clients import pool as shared_servers
from upstream_clients.start_places import StartPlace, StartPlaces

pytestmark = pytest.mark.anyio


class Starts:
    """Servers that take places, and the order in which they get them."""

    def __init__(self, count: int) -> None:
        self.places = StartPlaces(count)
        self.order: list[str] = []
        self.taken: dict[str, StartPlace] = {}
        self.urgent: defaultdict[str, anyio.Event] = defaultdict(anyio.Event)

    async def take(self, name: str) -> None:
        self.taken[name] = await self.places.take(self.urgent[name])
        self.order.append(name)


async def test_a_place_is_given_to_the_next_server_and_an_urgent_one_does_not_wait() -> None:
    starts = Starts(2)
    async with anyio.create_task_group() as group:
        for name in "abcdef":
            group.start_soon(starts.take, name)
        await anyio.wait_all_tasks_blocked()
        assert starts.order == ["a", "b"]
        starts.urgent["e"].set()
        await anyio.wait_all_tasks_blocked()
        assert starts.order == ["a", "b", "e"]
        for ended, after in (("a", "abe"), ("a", "abe"), ("b", "abec"), ("e", "abecd"), ("c", "abecdf")):
            starts.taken[ended].end()
            await anyio.wait_all_tasks_blocked()
            assert "".join(starts.order) == after
    assert starts.places.try_take() is None
    starts.taken["d"].end()
    assert starts.places.try_take() is not None


async def test_a_server_that_gives_up_leaves_its_turn_to_others() -> None:
    starts = Starts(1)
    async with anyio.create_task_group() as group:
        group.start_soon(starts.take, "a")
        await anyio.wait_all_tasks_blocked()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await starts.take("b")
        async with anyio.create_task_group() as other:
            other.start_soon(starts.take, "c")
            await anyio.wait_all_tasks_blocked()
            group.start_soon(starts.take, "d")
            await anyio.wait_all_tasks_blocked()
            # The turn is given, and the taker is cancelled in the same step.
            starts.taken["a"].end()
            other.cancel_scope.cancel()
    assert starts.order[-1] == "d"


async def test_a_server_that_hangs_keeps_its_place_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_places, "HOLD_SECONDS", 0.01)
    starts = Starts(1)
    with anyio.fail_after(10):
        for name in "abc":
            await starts.take(name)


async def test_a_pool_starts_a_bounded_number_of_servers_and_waits_for_each_from_its_start(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_servers, "StartPlaces", lambda: StartPlaces(1))
    specs = [processes.spec(name=name, connect_timeout=20.0) for name in "abcd"]
    most = 0
    async with UpstreamPool(specs) as pool:

        def starting() -> int:
            views = pool.views()
            return sum(view.state == "connecting" and bool(pool.pids(view.name)) for view in views)

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, starting())
                await anyio.sleep(0.001)

        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            await pool.connect(None, 20)
            group.cancel_scope.cancel()
        assert [view.state for view in pool.views()] == ["ready"] * 4
    assert most <= 1


async def test_a_call_is_not_delayed_by_servers_that_hang(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_servers, "StartPlaces", lambda: StartPlaces(1))
    hangs = UpstreamSpec("hangs", command=sys.executable, args=("-c", "import sys; sys.stdin.read()"))
    async with UpstreamPool([hangs, processes.spec(name="called"), processes.spec(name="named")]) as pool:
        with anyio.fail_after(20):
            await said(pool.source("called"))
            await pool.wait_settled(["named"], 20)
        assert [view.state for view in pool.views()] == ["connecting", "ready", "ready"]
