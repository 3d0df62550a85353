"""Crashes for as long as one likes: `python -m tests.crashes --crashes 3000 [--store sqlite|postgres] [--seed N]`.

Campaigns of a few hundred crashes each, each on a store of its own. Exits with 1 at the first promise that is broken,
and says which, with the seed of its campaign.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from codemode_mcp.sandbox.engine import open_engine
from tests.crashes.campaign import Figures, Orders, campaign
from tests.crashes.histories import Broken
from tests.crashes.nursery import nursery
from tests.crashes.stored import in_postgres, in_sqlite
from tests.stores.postgres_server import NoServer, postgres_server

EACH = 200
"""Crashes of one campaign."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crashes", description="Kill processes, for a long time.")
    parser.add_argument("--crashes", type=int, default=1000)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seed", type=int, default=0, help="of the first campaign; the others follow")
    parser.add_argument("--each", type=int, default=EACH, help="crashes of one campaign")
    parser.add_argument("--retiring", type=float, default=0.1, help="the share of processes that end in order")
    given = parser.parse_args()
    figures = Figures()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="crashes-")))
        with open_engine(folder / "engine", max_threads=1):
            pass  # compiled, for all the others
        server = None
        if given.store == "postgres":
            try:
                server = stack.enter_context(postgres_server())
            except NoServer as missing:
                print(missing)
                return 2
        births = stack.enter_context(nursery())
        seed = given.seed
        while figures.crashes < given.crashes:
            place = folder / str(seed)
            place.mkdir()
            path = place / "runs.sqlite3"
            stored = in_sqlite(path) if server is None else in_postgres(server.sql, f"crashes_{seed}")
            chance = random.Random(seed)
            orders = Orders(
                crashes=min(given.each, given.crashes - figures.crashes),
                seed=seed,
                store=str(path) if server is None else server.url(f"crashes_{seed}"),
                folder=place,
                engine=folder / "engine",
                processes=chance.randint(1, 4),
                clients=chance.randint(3, 12),
                retiring=given.retiring,
                progress=sys.stderr.isatty(),
            )
            try:
                got = asyncio.run(campaign(births, orders, stored))
            except Broken as broken:
                print(f"\n!!! --store {given.store} --seed {seed} --crashes {orders.crashes}: {broken}")
                print("\n".join(getattr(broken, "__notes__", ())))
                return 1
            figures += got
            print(f"\rseed {seed}: {got}", flush=True)
            seed += 1
    print(f"every promise was kept: {figures}")
    print("judged by the tables: " + ", ".join(f"{name} {count}" for name, count in figures.judged.most_common()))
    print("killed at: " + ", ".join(f"{name} {count}" for name, count in figures.points.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
