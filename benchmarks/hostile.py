"""Cost of hostile programs for the honest ones beside them. The programs are in `hostile_programs.json`.

Those that are `computing` need a core of their own, and have a bar. The others load the event loop or a tool, which all
programs share. Processes are pinned to cores, so it needs Linux.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import anyio
from harness import FOLDER, configured, descendants, ours, report, upstream
from mcp.client.client import Client

BAR = 1.1
ROUNDS = 11
HONEST_EACH = 5
"""Runs of each honest program in a row."""


def pin(cores: Iterable[int]) -> None:
    """Let this process and all below it, every thread of them, run on these cores alone."""
    wanted = set(cores)
    for pid in (os.getpid(), *descendants(os.getpid())):
        with suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(OSError):
                    os.sched_setaffinity(int(task.name), wanted)


@asynccontextmanager
async def beside(client: Client, program: str) -> AsyncIterator[None]:
    """Keep a program running, started again whenever it ends."""
    async with anyio.create_task_group() as group:

        async def again() -> None:
            while True:
                await client.call_tool("exec", {"code": program})

        group.start_soon(again)
        await anyio.sleep(0.3)
        yield
        group.cancel_scope.cancel()


@contextmanager
def spinning(core: int) -> Iterator[None]:
    """Keep a core busy with a process that has nothing to do with us."""
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(loop.pid, {core})
        time.sleep(0.1)
        yield
    finally:
        loop.kill()
        loop.wait()


async def honest(client: Client, programs: Iterable[str]) -> float:
    """Return the milliseconds of all honest programs in a row."""
    began = time.perf_counter()
    for code in programs:
        for _ in range(HONEST_EACH):
            result = await client.call_tool("exec", {"code": code})
            assert not result.is_error, result
    return (time.perf_counter() - began) * 1000


async def hostile(rounds: int | None) -> None:
    """Run honest programs in a row, without and with a hostile one in the same server.

    The bar is about the time of the honest ones "on the other core": with a core to themselves while the other is busy.
    So the baseline is everything honest (client, server, upstream) pinned to one core, with a loop of a foreign process
    on the other; beside a hostile program they get two cores, of which it takes one. Both measure the same machine at
    work, so that the ratio shows the cost of one server for both. The figure in brackets is to one core while the
    other is idle, which on a virtual machine is often faster by itself.
    """
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        print("hostile: needs two cores")
        return
    count = rounds or ROUNDS
    programs = json.loads((FOLDER / "hostile_programs.json").read_text("utf-8"))
    try:
        with tempfile.TemporaryDirectory() as folder:
            limits = {"codeMode": {"timeoutMs": 60_000}}
            async with Client(ours(configured(Path(folder), {"echo": upstream()}, tools=limits))) as client:
                for _ in range(3):
                    await honest(client, programs["honest"])
                for kind, some in programs["hostile"].items():
                    for name, program in some.items():
                        times = [await _round(client, cores, programs["honest"], program) for _ in range(count)]
                        _report(name, times, BAR if kind == "computing" else None)
    finally:
        pin(cores)


async def _round(client: Client, cores: list[int], programs: list[str], program: str) -> tuple[float, float, float]:
    """Return the milliseconds with the other core idle, with it busy, and beside a hostile program."""
    pin(cores[:1])
    idle = await honest(client, programs)
    with spinning(cores[1]):
        busy = await honest(client, programs)
    pin(cores)
    async with beside(client, program):
        with_it = await honest(client, programs)
    await anyio.sleep(0.2)  # what was cancelled ends before the next round
    return idle, busy, with_it


def _report(name: str, times: list[tuple[float, float, float]], bar: float | None) -> None:
    to_busy = statistics.median(with_it / busy for _, busy, with_it in times)
    to_idle = statistics.median(with_it / idle for idle, _, with_it in times)
    figure = f"{to_busy:.2f}x [{to_idle:.2f}x] of {statistics.median(busy for _, busy, _ in times):.0f} ms"
    shown = "none" if bar is None else f"<= {bar}x"
    report(f"honest programs beside: {name}", figure, shown, bar is None or to_busy <= bar)
