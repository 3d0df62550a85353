"""The preparation of search in the background."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.catalog.search import warmup
from codemode_mcp.catalog.search.warmup import Warmup
from codemode_mcp.rules.policy.policy import Policy
from upstream_clients.tools import Tool, UpstreamView

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "DELAY_SECONDS", 0.0)
    monkeypatch.setattr(warmup, "MAX_REST_SECONDS", 0.0)


class Catalogs:
    """Successive catalogs, which record whether they were prepared."""

    def __init__(self) -> None:
        self.change = anyio.Event()
        self.current: Any = Catalog(self, "first")
        self.prepared: list[tuple[str, bool]] = []
        self.filled = threading.Semaphore(0)

    def next_change(self) -> anyio.Event:
        self.change = anyio.Event()
        return self.change

    def become(self, name: str) -> None:
        self.current = Catalog(self, name)
        self.change.set()

    def fill(self, stopped: Callable[[], bool]) -> None:
        self.filled.release()

    async def until_filled(self) -> None:
        with anyio.fail_after(30):
            await anyio.to_thread.run_sync(self.filled.acquire)


class Catalog:
    def __init__(self, catalogs: Catalogs, name: str) -> None:
        self._catalogs = catalogs
        self._name = name

    def prepare_search(self) -> None:
        self._catalogs.prepared.append((self._name, threading.current_thread() is threading.main_thread()))
        if self._name == "broken":
            raise RuntimeError("no index")


async def test_each_catalog_is_prepared_once_and_not_on_the_event_loop() -> None:
    catalogs = Catalogs()
    with Warmup(catalogs.fill) as ready:
        async with anyio.create_task_group() as group:
            group.start_soon(ready.run, lambda: catalogs.current, catalogs.next_change)
            await catalogs.until_filled()
            catalogs.become("second")
            await catalogs.until_filled()
            group.cancel_scope.cancel()
    assert catalogs.prepared == [("first", False), ("second", False)]


async def test_a_catalog_that_cannot_be_prepared_does_not_keep_the_next_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    catalogs = Catalogs()
    catalogs.current = Catalog(catalogs, "broken")
    with Warmup(catalogs.fill) as ready:
        async with anyio.create_task_group() as group:
            group.start_soon(ready.run, lambda: catalogs.current, catalogs.next_change)
            with anyio.fail_after(30):
                while not caplog.records:  # noqa: ASYNC110 - a log record sets no event
                    await anyio.sleep(0.01)
            catalogs.become("second")
            await catalogs.until_filled()
            group.cancel_scope.cancel()
    assert [name for name, _ in catalogs.prepared] == ["broken", "second"]
    assert "search could not be prepared" in caplog.text


async def test_leaving_stops_what_is_in_flight() -> None:
    begun = threading.Event()
    ended = threading.Event()

    def fill(stopped: Callable[[], bool]) -> None:
        begun.set()
        while not stopped():
            pass
        ended.set()

    catalogs = Catalogs()
    with Warmup(fill) as ready:
        async with anyio.create_task_group() as group:
            group.start_soon(ready.run, lambda: catalogs.current, catalogs.next_change)
            with anyio.fail_after(30):
                await anyio.to_thread.run_sync(begun.wait)
            group.cancel_scope.cancel()
    assert ended.is_set()


async def test_leaving_does_not_wait_long_for_what_does_not_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "CLOSE_SECONDS", 0.01)
    begun = threading.Event()
    may_end = threading.Event()

    def fill(stopped: Callable[[], bool]) -> None:
        begun.set()
        may_end.wait()

    catalogs = Catalogs()
    with anyio.fail_after(30):
        with Warmup(fill) as ready:
            async with anyio.create_task_group() as group:
                group.start_soon(ready.run, lambda: catalogs.current, catalogs.next_change)
                await anyio.to_thread.run_sync(begun.wait)
                group.cancel_scope.cancel()
    may_end.set()


async def test_a_prepared_catalog_has_its_index_and_finds_the_same() -> None:
    views = [UpstreamView("acme", "ready", tools=(Tool("list_people"), Tool("frob")))]
    prepared, other = build(views, Policy(PolicyRules())), build(views, Policy(PolicyRules()))
    assert "finder" not in vars(prepared.index)
    await anyio.to_thread.run_sync(prepared.prepare_search)
    assert "finder" in vars(prepared.index)
    assert prepared.search("people", 5, None) == other.search("people", 5, None)
