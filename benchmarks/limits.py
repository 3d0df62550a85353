"""Cost of hostile programs for the server: for the honest programs beside them, and in memory over many runs.

Both work through `serve` and one client. They read `/proc` and pin processes to cores, so they need Linux.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from mcp.client.client import Client
from measure import ours, report, write_config

MIB = 1024 * 1024

# processes


def descendants(pid: int) -> list[int]:
    """Return the processes below `pid`."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def server_process() -> int:
    """Return the one `serve` that this process has started."""
    for pid in descendants(os.getpid()):
        if b"codemode_mcp\0serve" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise RuntimeError("the server was not found")


def pin(cores: Iterable[int]) -> None:
    """Let this process and all below it, every thread of them, run on these cores alone."""
    wanted = set(cores)
    for pid in (os.getpid(), *descendants(os.getpid())):
        with suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(OSError):
                    os.sched_setaffinity(int(task.name), wanted)


def resident(pid: int) -> dict[str, float]:
    """`VmRSS`, its parts and `VmHWM` of a process, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    pairs = (line.split() for line in lines if line.startswith(("VmRSS", "VmHWM", "RssAnon", "RssFile", "RssShmem")))
    return {pair[0].rstrip(":"): int(pair[1]) / 1024 for pair in pairs}


# honest programs beside a hostile one

HONEST = [
    *["return 1"] * 5,
    *["let n = 0; for (let i = 0; i < 300_000; i++) n = (n * 31 + i) % 1_000_003; return n"] * 5,
    *["return JSON.parse(JSON.stringify(Array.from({ length: 5_000 }, (_, id) => ({ id, name: `n${id}` })))).length"]
    * 5,
    *["let n = 0; for (let i = 0; i < 5; i++) n += (await MCP.echo.echo({ text: 'x' })).content.length; return n"] * 5,
]
"""Twenty."""

HOSTILE = {
    "endless loop": "for (;;);",
    "memory churn": (
        "for (;;) { const kept = []; for (let i = 0; i < 100; i++) kept.push(new Uint8Array(3e5).fill(i)) }"
    ),
    "garbage with cycles": "for (;;) { const a = { b: new Array(100).fill({}) }; a.a = a }",
    "output flood in one turn": "const line = 'x'.repeat(1000); for (;;) text(line)",
    "output flood over turns": (
        "for (let i = 0; ; i++) { for (let j = 0; j < 50; j++) text('x'.repeat(1000)); await load('k') }"
    ),
    "catastrophic regular expression": "/^(a+)+$/.test('a'.repeat(60) + 'b')",
    "native loop": "for (;;) Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1)",
    "calls, one after another": "for (;;) await MCP.echo.echo({ text: 'x' })",
    "calls, many concurrent": (
        "for (;;) await Promise.all(Array.from({ length: 1000 }, () => MCP.echo.echo({ text: 'x' })))"
    ),
    "refused calls": (
        "for (;;) await Promise.allSettled(Array.from({ length: 1000 }, () => MCP.echo.echo({ text: 1 })))"
    ),
    "large arguments": "const text = 'x'.repeat(1e6); for (;;) await MCP.echo.echo({ text })",
    "look-ups": "for (;;) await Promise.allSettled(Array.from({ length: 500 }, (_, i) => API.search('echo ' + i)))",
    "turns without end": "for (;;) await load('k')",
    "timers": "for (;;) await new Promise((r) => setTimeout(r, 0))",
    "many timers": (
        "for (;;) await Promise.all(Array.from({ length: 5000 }, () => new Promise((r) => setTimeout(r, 0))))"
    ),
    "large stored values": "const big = 'x'.repeat(5e6); for (;;) { store('k', big); await load('k') }",
    "stored objects": (
        "const big = Array.from({ length: 1e5 }, (_, id) => ({ id })); for (;;) { store('k', big); await load('k') }"
    ),
    "many stored values": "for (;;) { for (let i = 0; i < 20_000; i++) store('k' + i, i); await load('k') }",
}

HOSTILE_BAR = {
    "endless loop",
    "memory churn",
    "output flood in one turn",
    "catastrophic regular expression",
    "native loop",
}
"""Programs that compute on a core of their own; the others load the event loop or a tool, which all programs share."""

PAIRS = 11


@asynccontextmanager
async def beside(client: Client, program: str | None) -> AsyncIterator[None]:
    """Keep a program running, started again whenever it ends."""
    async with anyio.create_task_group() as group:

        async def again() -> None:
            while True:
                await client.call_tool("exec", {"code": program})

        if program is not None:
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


async def honest(client: Client) -> float:
    began = time.perf_counter()
    for code in HONEST:
        result = await client.call_tool("exec", {"code": code})
        assert not result.is_error, result
    return time.perf_counter() - began


async def hostile() -> None:
    """Twenty honest programs in a row, without and with a hostile one in the same server.

    The bar speaks of the honest ones' time "on the other core": what they take with a core to themselves while the
    other is busy. So the baseline is everything honest (client, server, upstream) pinned to one core, with a loop of a
    process that is none of ours on the other; beside a hostile program they get two cores, of which it takes one. Both
    measure the same machine at work, so that the ratio shows what being in one server with it costs. The second figure
    is to one core while the other is idle, which on a virtual machine is often faster by itself.
    """
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        print("hostile: needs two cores")
        return
    print(f"hostile: {len(HONEST)} honest programs beside one hostile; cores {cores}; medians of {PAIRS} rounds")
    print("  the bar's figure: to one core, the other kept busy elsewhere; in brackets: to one core, the other idle")
    try:
        with tempfile.TemporaryDirectory() as folder:
            config = write_config(folder, timeoutMs=60_000)
            async with Client(ours(config)) as client:
                for _ in range(3):
                    await honest(client)
                for name, program in HOSTILE.items():
                    await _hostile(client, cores, name, program)
    finally:
        pin(cores)


async def _hostile(client: Client, cores: list[int], name: str, program: str) -> None:
    to_busy, to_idle, alone = [], [], []
    for _ in range(PAIRS):
        pin(cores[:1])
        idle = await honest(client)
        with spinning(cores[1]):
            busy = await honest(client)
        pin(cores)
        async with beside(client, program):
            with_it = await honest(client)
        to_busy.append(with_it / busy)
        to_idle.append(with_it / idle)
        alone.append(busy * 1000)
        # What was cancelled has ended before the next round.
        await anyio.sleep(0.2)
    ratio = statistics.median(to_busy)
    figure = f"{ratio:.2f}x [{statistics.median(to_idle):.2f}x] of {statistics.median(alone):.0f} ms"
    if name in HOSTILE_BAR:
        report(f"honest programs beside: {name}", figure, "<= 1.10x", ratio <= 1.10)
    else:
        print(f"      honest programs beside: {name:<34} {figure}", flush=True)


# memory in the long run

RUNS = 10_000
CONCURRENT = 4
TTL_SECONDS = 5

REFUSED = "return (await Promise.allSettled(Array.from({ length: 3000 }, () => MCP.echo.echo({ text: 'x' })))).length"
MEGABYTE = "const kept = new Array(1e5).fill(0).map((_, i) => i * 7); await yield_control(); return kept.length"

MIXED: list[tuple[int, str, str]] = [
    (300, "value", "return [1, 2, 3].map((n) => n * 2)"),
    (150, "work", "let n = 0; for (let i = 0; i < 20_000; i++) n += i; return { n }"),
    (200, "call", "return unwrap(await MCP.echo.echo({ text: 'x'.repeat(1000) }))"),
    (60, "parallel calls", "return (await Promise.all([1, 2, 3].map((n) => MCP.echo.echo({ text: `${n}` })))).length"),
    (40, "look-up", "return (await API.search('echo')).length"),
    (40, "throw", "throw new Error('on purpose')"),
    (30, "syntax", "return ]"),
    (20, "recursion", "const f = () => 1 + f(); return f()"),
    (30, "loop", "text('before'); for (;;);"),
    (8, "native loop", "Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1)"),
    (10, "regular expression", "/^(a+)+$/.test('a'.repeat(60) + 'b')"),
    (20, "memory", "const kept = []; for (;;) kept.push(new Array(1e5).fill(0))"),
    (15, "output", "for (let i = 0; i < 1000; i++) text('x'.repeat(1000))"),
    (10, "large value", "return Array.from({ length: 20_000 }, (_, n) => n)"),
    (10, "output without end", "for (;;) text('x'.repeat(1000))"),
    (15, "refused calls", REFUSED),
    (25, "suspended and resumed", "const kept = new Array(1000).fill('x'); await yield_control(); return kept.length"),
    (8, "suspended with a megabyte", MEGABYTE),
    (7, "suspended and left", "await yield_control(); return 1"),
    (20, "store", "store('k' + (Date.now() % 10), 'x'.repeat(10_000)); return await load('k1')"),
    (2, "typescript", "const n: number = 1; return n as number"),
]  # fmt: skip
"""Weight, name, program."""


async def _mixed(client: Client, name: str, code: str, ends: dict[str, int]) -> None:
    # Without a language, TypeScript is what does not parse as JavaScript.
    language = {"typescript": "typescript", "syntax": "javascript"}.get(name)
    result = await client.call_tool("exec", {"code": code, **({} if language is None else {"language": language})})
    answer: dict[str, Any] = dict(result.structured_content or {})
    while answer["status"] == "waiting" and name != "suspended and left":
        answer = dict((await client.call_tool("wait", {"runId": answer["runId"]})).structured_content or {})
    end = f"{name}: {answer.get('code', answer['status'])}"
    ends[end] = ends.get(end, 0) + 1


async def memory(runs: int = RUNS) -> None:
    """Measure the server's resident memory before and after a long mixed suite.

    The first figure is taken after three runs of each kind of program, which load late modules, start the threads and
    fill the store of large results. The second is taken once the suspended programs have expired.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = write_config(
            folder,
            timeoutMs=100,
            memoryLimitBytes=32 * MIB,
            snapshotTtlSeconds=TTL_SECONDS,
            maxRunningRuns=CONCURRENT,
            storeMaxBytes=4 * MIB,
        )
        async with Client(ours(config)) as client:
            pid = server_process()
            ends: dict[str, int] = {}

            async def worker(programs: Iterable[tuple[str, str]]) -> None:
                for name, code in programs:
                    await _mixed(client, name, code, ends)

            async def run_concurrently(programs: list[tuple[str, str]]) -> None:
                shared = iter(programs)
                async with anyio.create_task_group() as group:
                    for _ in range(CONCURRENT):
                        group.start_soon(worker, shared)

            async def settle() -> dict[str, float]:
                await anyio.sleep(2 * TTL_SECONDS + 6)
                return resident(pid)

            await run_concurrently([(name, code) for _ in range(3) for _, name, code in MIXED])
            before = await settle()
            ends.clear()
            chosen = random.Random(1).choices(
                [(name, code) for _, name, code in MIXED], [weight for weight, _, _ in MIXED], k=runs
            )
            highest = before["VmRSS"]
            began = time.monotonic()
            async with anyio.create_task_group() as watched:

                async def watch() -> None:
                    nonlocal highest
                    while True:
                        highest = max(highest, resident(pid)["VmRSS"])
                        await anyio.sleep(0.1)

                watched.start_soon(watch)
                await run_concurrently(chosen)
                watched.cancel_scope.cancel()
            seconds = time.monotonic() - began
            after = await settle()
    print(f"memory: {runs} runs, {CONCURRENT} concurrent, in {seconds:.0f} s; how they ended:")
    print("  " + "; ".join(f"{end} {count}" for end, count in sorted(ends.items())))
    print("  before " + ", ".join(f"{key} {value:.1f}" for key, value in before.items()) + " MiB")
    print("  after  " + ", ".join(f"{key} {value:.1f}" for key, value in after.items()) + " MiB")
    grown = after["VmRSS"] - before["VmRSS"]
    figure = f"{grown:+.1f} MiB ({before['VmRSS']:.0f}, at most {highest:.0f}, {after['VmRSS']:.0f})"
    report(f"resident memory after {runs} mixed runs", figure, "<= +20 MiB", grown <= 20)
