"""Campaigns for as long as one likes: `python -m tests.chaos_instance --rounds 500 [--store postgres] [--seed N]`.

Each campaign has a home and a store of its own. Exits with 1 at the first broken promise, and prints which one, with
the seed of its campaign.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from codemode_mcp.sandbox.engine import open_engine
from tests.chaos_instance.campaign import Figures, Orders, campaign
from tests.crashes.histories import Broken
from tests.stores.postgres_server import NoServer, postgres_server

EACH = 25
"""Rounds of one campaign."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos_instance", description="Kill and stop the shared instance and its relays."
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first campaign; the others follow")
    parser.add_argument("--each", type=int, default=EACH, help="rounds of one campaign")
    given = parser.parse_args()
    figures = Figures()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cm-")))
        with open_engine(folder / "engine", max_threads=1):
            pass  # compiled for all campaigns
        server = None
        if given.store == "postgres":
            try:
                server = stack.enter_context(postgres_server())
            except NoServer as missing:
                print(missing)
                return 2
        seed = given.seed
        while figures.rounds < given.rounds:
            home = folder / str(seed)
            home.mkdir()
            store = {"kind": "sqlite"} if server is None else {"kind": "postgres", "url": server.url(f"chaos_{seed}")}
            rounds = min(given.each, given.rounds - figures.rounds)
            orders = Orders(rounds, seed, store, home, folder / "engine", progress=sys.stderr.isatty())
            try:
                found = asyncio.run(campaign(orders))
            except Broken as broken:
                print(f"\n!!! --store {given.store} --seed {seed} --rounds {rounds}: {broken}")
                print("\n".join(getattr(broken, "__notes__", ())))
                return 1
            figures += found
            print(f"\rseed {seed}: {found}", flush=True)
            seed += 1
    print(f"every promise was kept: {figures}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
