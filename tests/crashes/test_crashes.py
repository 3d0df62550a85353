"""kill -9 at every point; see `model` for what must hold. Much more of it: `python -m tests.crashes`."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.crashes.campaign import Orders, campaign
from tests.crashes.histories import Broken
from tests.crashes.points import NAMES
from tests.crashes.recorded import on_sqlite
from tests.crashes.stored import in_postgres

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crashes.nursery import Nursery
    from tests.crashes.recorded import Recorded
    from tests.stores.postgres_server import PostgresServer

if not hasattr(os, "fork"):
    pytest.skip("processes are forked", allow_module_level=True)


def test_every_promise_is_kept_by_processes_on_one_file(recorded: Recorded) -> None:
    figures = recorded.figures
    assert figures.crashes >= 24
    # Whatever the machine did meanwhile: much of what this is about has happened.
    assert figures.ends["completed"] > 5
    assert figures.ends["unknown"] + figures.ends["repeated"] > 0
    assert len(figures.points) > 5
    assert figures.judged == recorded.judge().counts
    assert figures.judged["continued runs"] > 5
    assert figures.judged["sends after a claim"] > 5


def test_every_promise_is_kept_by_processes_on_postgres(
    births: Nursery, tmp_path: Path, engine_cache: Path, postgres: PostgresServer
) -> None:
    store = postgres.url("crashes")
    orders = Orders(10, 1, store, folder=tmp_path, engine=engine_cache, processes=3, clients=8, completed=1)
    figures = asyncio.run(campaign(births, orders, in_postgres(postgres.sql, "crashes")))
    assert figures.crashes >= 10
    assert figures.ends["completed"] > 0


@pytest.mark.parametrize(
    ("broken", "orders"),
    [
        ("dispatching", {"shapes": ("suspended_append",), "points": ("after:act", "answered:act")}),
        ("checkpoint", {"shapes": ("suspended_append",), "points": ("after:act", "answered:act")}),
        ("claims", {"parallel": 0.8, "shapes": ("suspended_slow", "all")}),
        ("told", {"shapes": ("suspended_slow", "all", "yield")}),
        ("end", {"shapes": ("suspended_slow",)}),
        ("permission", {"shapes": ("suspended_append",)}),
        ("states", {"shapes": ("suspended_append",)}),
        ("task", {"shapes": ("suspended_task",)}),
    ],
    ids=["dispatching", "checkpoint", "claims", "told", "end", "permission", "states", "task"],
)
def test_what_is_broken_on_purpose_is_found(
    broken: str, orders: dict[str, Any], births: Nursery, tmp_path: Path, engine_cache: Path
) -> None:
    chosen = {"crashes": 40, "seed": 7, "processes": 2, "clients": 6, "points": NAMES, "patience": 20.0, **orders}
    # Which promise is the first that is seen to be broken depends on who is faster.
    with pytest.raises(Broken):
        on_sqlite(births, tmp_path, engine_cache, broken=broken, **chosen)
