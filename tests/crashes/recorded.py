"""Campaigns of the tests, and the evidence that they leave."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.crashes.campaign import Orders, campaign
from tests.crashes.histories import Histories
from tests.crashes.ledger import Ledger
from tests.crashes.stored import in_sqlite

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crashes.campaign import Figures
    from tests.crashes.nursery import Nursery


def on_sqlite(births: Nursery, folder: Path, engine_cache: Path, **orders: Any) -> Figures:
    path = folder / "store" / "runs.sqlite3"
    ordered = Orders(store=str(path), folder=folder, engine=engine_cache, **orders)
    return asyncio.run(campaign(births, ordered, in_sqlite(path)))


@dataclass(frozen=True, slots=True)
class Recorded:
    """A campaign that is over, with the evidence that its processes and its store have left."""

    figures: Figures
    lines: tuple[dict[str, Any], ...]
    changes: tuple[str, ...]

    def judge(self) -> Histories:
        histories = Histories()
        for line in self.lines:
            histories.take(line)
        histories.judge_rows(self.changes)
        return histories


def record(births: Nursery, folder: Path, engine_cache: Path, **orders: Any) -> Recorded:
    """Run a campaign, and keep its evidence."""
    figures = on_sqlite(births, folder, engine_cache, **orders)
    with closing(Ledger(folder / "ledger")) as ledger:
        lines = tuple(ledger.new())
    return Recorded(figures, lines, tuple(in_sqlite(folder / "store" / "runs.sqlite3").changes()))
