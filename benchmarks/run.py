"""Measure what has bars: .venv/bin/python benchmarks/run.py [NAME ...] [--rounds N]

Each scenario compares things in one run, and prints the median of the ratios. Without names, the quick ones run:
sandbox, startup, exec, openapi, first-output. The others take minutes: control, dead, saved, check, hostile, stores,
replicas, and search, which needs recorded lists of tools (`--tools`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio
import hostile
import replicas
import stores
from harness import report
from scenarios import SCENARIOS, Scenario
from search import BY_MODELS, LISTS, QUERIES, search

from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.rules.policy.policy import Policy
from codemode_mcp.sandbox.engine import Engine, open_engine
from codemode_mcp.sandbox.guest import Guest
from codemode_mcp.sandbox.messages import Completion, deliver_message, start_message
from upstream_clients.tools import Tool, UpstreamView

LIMIT = 64 * 1024 * 1024
QUICK = ("sandbox", "startup", "exec", "openapi", "first-output")


def sandbox() -> None:
    """A fresh guest with a trivial program; suspending and resuming a small one."""
    view = UpstreamView("echo", "ready", tools=(Tool("echo"),))
    manifest = build([view], Policy(PolicyRules())).manifest
    with tempfile.TemporaryDirectory() as cache, open_engine(Path(cache), max_threads=1) as engine:
        engine.threads.submit(_sandbox, engine, manifest).result()


def _sandbox(engine: Engine, manifest: str) -> None:
    image = engine.image(manifest)
    start = partial(
        start_message, fallback=None, seed=os.urandom(32), output_limit=1 << 20, call_limit=16, elapsed_ms=0
    )
    trivial = start(code="return 1")
    small = start(code="const r = await MCP.echo.echo({ text: 'x' }); return r.content[0].text")
    answer = deliver_message([Completion(1, json.dumps({"content": [{"type": "text", "text": "x"}]}))], elapsed_ms=1)
    fresh, suspending, sizes = [], [], []
    for _ in range(300):
        began = time.perf_counter()
        with Guest(engine, image, memory_limit=LIMIT) as guest:
            guest.start(trivial, 1)
        fresh.append(time.perf_counter() - began)
    for _ in range(200):
        with Guest(engine, image, memory_limit=LIMIT) as guest:
            guest.start(small, 1)
            began = time.perf_counter()
            data = guest.snapshot()
        with Guest(engine, image, memory_limit=LIMIT, suspended=data) as guest:
            turn = guest.deliver(answer, 1)
            suspending.append(time.perf_counter() - began)
        assert turn.text is not None
        assert '"state":"done","value":"x"' in turn.text
        sizes.append(len(data))
    first, second = statistics.median(fresh) * 1000, statistics.median(suspending) * 1000
    report("fresh sandbox and trivial program", f"{first:.2f} ms", "< 1 ms", first < 1)
    report("suspend and resume of a small program", f"{second:.2f} ms", "< 5 ms", second < 5)
    report("stored snapshot of it", f"{max(sizes)} bytes", "< 65536 bytes", max(sizes) < 65536)


async def compare(scenario: Scenario, rounds: int | None) -> None:
    """Run a scenario in a folder of its own, and report its comparisons."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        async with AsyncExitStack() as stack:
            async for each in scenario(stack, Path(folder)):
                await each.report(rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", default=QUICK)
    parser.add_argument("--rounds", type=int, help="rounds of each comparison, for a first look")
    parser.add_argument("--tools", type=Path, default=LISTS, metavar="DIR", help="recorded tools/list answers as JSON")
    parser.add_argument("--queries", type=Path, nargs="+", default=[QUERIES, BY_MODELS], metavar="FILE")
    given = parser.parse_args()
    known: dict[str, Callable[[], object]] = {
        "sandbox": sandbox,
        "hostile": partial(anyio.run, hostile.hostile, given.rounds),
        "stores": stores.stores,
        "replicas": partial(anyio.run, replicas.two),
        "search": lambda: search(given.tools, *given.queries),
    }
    known |= {name: partial(anyio.run, compare, each, given.rounds) for name, each in SCENARIOS.items()}
    for name in given.name:
        if name not in known:
            parser.error(f"there is no benchmark {name!r}")
        known[name]()


if __name__ == "__main__":
    main()
