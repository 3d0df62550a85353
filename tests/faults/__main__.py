"""Faults for as long as you like: `python -m tests.faults KIND [OPTIONS]`. `--help` after a kind lists its options.

`crashes` kills processes on one store at every point, and `instance` kills and stops the shared instance, its relays
and its upstream server. Both run campaigns one after the other, each on a store of its own. `chaos` is one campaign of
faults of upstream servers and of the lines to them, `floods` measures what floods cost others, and `fuzz` runs random
programs. Each exits with 1 at a broken promise, and prints which one, with the seed that repeats it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import anyio

from tests.faults.campaign import Campaign, Figures
from tests.faults.fuzz import run as fuzz
from tests.faults.histories import Broken
from tests.faults.worker import Nursery
from tests.stores.postgres_server import PostgresServer

Make = Callable[[int, int, Path], Campaign]
"""Make a campaign of a seed and of so many crashes or rounds in a folder."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Faults, for a long time.")
    kinds = parser.add_subparsers(dest="kind", required=True)
    for name, measured_by, number, each in (("crashes", "--crashes", 1000, 200), ("instance", "--rounds", 100, 25)):
        kind = kinds.add_parser(name)
        kind.add_argument(measured_by, type=int, default=number, dest="number")
        kind.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
        kind.add_argument("--seed", type=int, default=0, help="of the first campaign; the others follow")
        kind.add_argument("--each", type=int, default=each, help=f"{measured_by} of one campaign")
    kinds.choices["crashes"].add_argument(
        "--retiring", type=float, default=0.1, help="the share of processes that end in order"
    )
    # Each kind imports only what it needs: every job of the fuzzer is a process of this module.
    chaos = kinds.add_parser("chaos")
    chaos.add_argument("--minutes", type=float, default=5.0)
    chaos.add_argument("--seed", type=int, default=0)
    flood = kinds.add_parser("floods")
    flood.add_argument("--by", choices=("principal", "client"), default="principal")
    flood.add_argument("--seconds", type=float, default=10.0, help="of each flood")
    flood.add_argument("--kind", action="append", dest="kinds", help="all, if there is none")
    fuzz.add_options(kinds.add_parser("fuzz"))
    given = parser.parse_args()
    match given.kind:
        case "fuzz":
            return fuzz.main(given)
        case "floods":
            return run_floods(given)
        case "chaos":
            from tests.faults.storm import Soak

            return one_after_the_other(given, lambda seed, _, folder: Soak(folder, given.minutes * 60, seed))
        case _:
            return run_on_a_store(given)


def run_floods(given: argparse.Namespace) -> int:
    from tests.faults import floods

    by, every = (
        (floods.floods_of_principals, floods.PRINCIPALS)
        if given.by == "principal"
        else (floods.floods_of_clients, floods.CLIENTS)
    )
    with tempfile.TemporaryDirectory(prefix="floods-") as folder:
        late = anyio.run(by, Path(folder), given.kinds or list(every), given.seconds)
    if late:
        print(f"more than {floods.MOST:g} s: {', '.join(late)}")
    return bool(late)


def run_on_a_store(given: argparse.Namespace) -> int:
    from codemode_mcp.sandbox.engine import open_engine
    from tests.stores.postgres_server import NoServer, postgres_server

    with ExitStack() as stack:
        engine = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cm-")))
        with open_engine(engine, max_threads=1):
            pass  # compiled for all campaigns
        server = None
        if given.store == "postgres":
            try:
                server = stack.enter_context(postgres_server())
            except NoServer as missing:
                print(missing)
                return 2
        if given.kind == "instance":
            make = instances_on(server, engine)
        else:
            from tests.faults.worker import nursery

            make = crashes_on(server, engine, stack.enter_context(nursery()), given.retiring)
        return one_after_the_other(given, make)


def instances_on(server: PostgresServer | None, engine: Path) -> Make:
    from tests.faults import instances

    def make(seed: int, number: int, folder: Path) -> Campaign:
        store = {"kind": "sqlite"} if server is None else {"kind": "postgres", "url": server.url(f"chaos_{seed}")}
        return instances.Instances(instances.Orders(number, seed, store, folder, engine, progress=sys.stderr.isatty()))

    return make


def crashes_on(server: PostgresServer | None, engine: Path, births: Nursery, retiring: float) -> Make:
    from tests.faults import crashes
    from tests.faults.stored import in_postgres, in_sqlite

    def make(seed: int, number: int, folder: Path) -> Campaign:
        path, schema, chance = folder / "runs.sqlite3", f"crashes_{seed}", random.Random(seed)
        orders = crashes.Orders(
            crashes=number,
            seed=seed,
            store=str(path) if server is None else server.url(schema),
            folder=folder,
            engine=engine,
            processes=chance.randint(1, 4),
            clients=chance.randint(3, 12),
            retiring=retiring,
            progress=sys.stderr.isatty(),
        )
        return crashes.Crashes(births, orders, in_sqlite(path) if server is None else in_postgres(server.sql, schema))

    return make


def one_after_the_other(given: argparse.Namespace, make: Make) -> int:
    """Run campaigns until there were enough crashes or rounds; just one, if it ends by its time."""
    figures, seed, total = Figures(), given.seed, getattr(given, "number", 0)
    while figures.done < max(total, 1):
        number = min(getattr(given, "each", 0), total - figures.done)
        with tempfile.TemporaryDirectory(prefix="cm-") as folder:  # paths of sockets have to be short
            try:
                found = asyncio.run(make(seed, number, Path(folder)).run())
            except Broken as broken:
                print(f"\n!!! {given.kind} --store {getattr(given, 'store', '')} --seed {seed}, {number}: {broken}")
                print("\n".join(getattr(broken, "__notes__", ())))
                return 1
        figures += found
        print(f"\rseed {seed}: {found}", flush=True)
        seed += 1
    print(f"every promise was kept: {figures}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
