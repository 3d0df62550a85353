"""Measure what the specification sets bars for, as ratios taken in one run: python benchmarks/run.py [NAME ...].

Names: sandbox, startup, exec, sequential, parallel, openapi, documents, first-output; search and tools, which want
recorded tool lists (`--tools`); and control, dead, http, hostile, memory, page, saved, stores and replicas, which take
minutes. The last eleven are measured only when they are named.

Every figure is the median of several rounds; things that are compared are measured in turn, A B A B, so that a machine
whose speed drifts does not favour either.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import control
import dead
import first_output
import http_clients
import limits
import openapi
import openapi_documents
import page
import replicas
import saved
import stores
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from measure import ECHO, ours, report
from tools import BY_MODELS, LISTS, QUERIES, many, search

from codemode_mcp.catalog.per_caller import build
from codemode_mcp.policy.policy import Policy
from codemode_mcp.sandbox.engine import Engine, open_engine
from codemode_mcp.sandbox.guest import Guest
from codemode_mcp.sandbox.messages import Completion, deliver_message, start_message
from codemode_mcp.settings import PolicyRules
from upstream_clients.tools import Tool, UpstreamView

LIMIT = 64 * 1024 * 1024
CALLS = 100


# in one process


def sandbox() -> None:
    """A fresh guest with a trivial program; suspending and resuming a small one."""
    view = UpstreamView("echo", "ready", tools=(Tool("echo"),))
    manifest = build([view], Policy(PolicyRules())).manifest
    with tempfile.TemporaryDirectory() as cache, open_engine(Path(cache), max_threads=1) as engine:
        engine.threads.submit(_sandbox, engine, manifest).result()


def _sandbox(engine: Engine, manifest: str) -> None:
    image = engine.image(manifest)
    trivial = start_message(
        code="return 1", fallback=None, seed=os.urandom(32), output_limit=1 << 20, call_limit=16, elapsed_ms=0
    )
    small = start_message(
        code="const r = await MCP.echo.echo({ text: 'x' }); return r.content[0].text",
        fallback=None,
        seed=os.urandom(32),
        output_limit=1 << 20,
        call_limit=16,
        elapsed_ms=0,
    )
    answer = deliver_message([Completion(1, json.dumps({"content": [{"type": "text", "text": "x"}]}))], elapsed_ms=1)
    fresh, suspending, sizes = [], [], []
    for _ in range(300):
        began = time.perf_counter()
        with Guest(engine, image, memory_limit=LIMIT) as guest:
            guest.start(trivial, 1)
        fresh.append(time.perf_counter() - began)
    for _ in range(200):
        guest = Guest(engine, image, memory_limit=LIMIT)
        guest.start(small, 1)
        began = time.perf_counter()
        data = guest.snapshot()
        guest.close()
        guest = Guest(engine, image, memory_limit=LIMIT, suspended=data)
        turn = guest.deliver(answer, 1)
        suspending.append(time.perf_counter() - began)
        guest.close()
        assert turn.text is not None
        assert '"state":"done","value":"x"' in turn.text
        sizes.append(len(data))
    first, second = statistics.median(fresh) * 1000, statistics.median(suspending) * 1000
    report("fresh sandbox and trivial program", f"{first:.2f} ms", "< 1 ms", first < 1)
    report("suspend and resume of a small program", f"{second:.2f} ms", "< 5 ms", second < 5)
    report("stored snapshot of it", f"{max(sizes)} bytes", "< 65536 bytes", max(sizes) < 65536)


# over stdio


def plain() -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=[str(ECHO)])


@asynccontextmanager
async def clients() -> AsyncIterator[tuple[Client, Client]]:
    """Yield one of codemode-mcp with the echo server behind it, one of the echo server itself; both warm."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "codemode-mcp.json"
        config.write_text(json.dumps({"mcpServers": {"echo": {"command": sys.executable, "args": [str(ECHO)]}}}))
        async with Client(ours(config)) as code_mode, Client(plain()) as direct:
            for _ in range(5):
                result = await code_mode.call_tool("exec", {"code": "return await MCP.echo.echo({ text: 'x' })"})
                assert not result.is_error, result
                await direct.call_tool("echo", {"text": "x"})
            yield code_mode, direct


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def compare(
    name: str, bar: float, rounds: int, a: Callable[[], Awaitable[object]], b: Callable[[], Awaitable[object]]
) -> None:
    times: list[tuple[float, float]] = [(await timed(a), await timed(b)) for _ in range(rounds)]
    ratio = statistics.median(x / y for x, y in times)
    ms_a, ms_b = (statistics.median(pair[i] for pair in times) * 1000 for i in (0, 1))
    report(name, f"{ratio:.2f}x ({ms_a:.1f} ms to {ms_b:.1f} ms)", f"<= {bar}x", ratio <= bar)


async def startup() -> None:
    """Measure the time from the start of the process to the answer to the first tools/list."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "codemode-mcp.json"
        servers = {f"echo{i}": {"command": sys.executable, "args": [str(ECHO)]} for i in range(3)}
        config.write_text(json.dumps({"mcpServers": servers}))

        async def first_list(parameters: StdioServerParameters) -> float:
            began = time.perf_counter()
            async with Client(parameters) as client:
                await client.list_tools()
                return time.perf_counter() - began

        for parameters in (ours(config), plain()):
            await first_list(parameters)
        pairs = [(await first_list(ours(config)), await first_list(plain())) for _ in range(9)]
    ratio = statistics.median(a / b for a, b in pairs)
    a, b = (statistics.median(pair[i] for pair in pairs) * 1000 for i in (0, 1))
    report("start to first tools/list", f"{ratio:.2f}x ({a:.0f} ms to {b:.0f} ms)", "<= 1.3x", ratio <= 1.3)


async def one_exec() -> None:
    """`return 1` against one call of the echo tool."""
    async with clients() as (code_mode, direct):
        await compare(
            "exec of `return 1` over stdio, to a plain echo call",
            2.5,
            200,
            lambda: code_mode.call_tool("exec", {"code": "return 1"}),
            lambda: direct.call_tool("echo", {"text": "1"}),
        )


SEQUENTIAL = f"for (let i = 0; i < {CALLS}; i++) await MCP.echo.echo({{ text: 'x' }})"
PARALLEL = f"await Promise.all(Array.from({{ length: {CALLS} }}, () => MCP.echo.echo({{ text: 'x' }}))); return 1"


async def sequential() -> None:
    """A hundred nested calls, one after another."""
    async with clients() as (code_mode, direct):

        async def directly() -> None:
            for _ in range(CALLS):
                await direct.call_tool("echo", {"text": "x"})

        await compare(
            f"{CALLS} nested calls in sequence, to the same made directly",
            1.3,
            15,
            lambda: code_mode.call_tool("exec", {"code": SEQUENTIAL}),
            directly,
        )


async def parallel() -> None:
    """Measure a hundred concurrent nested calls."""
    async with clients() as (code_mode, direct):

        async def directly() -> None:
            async with anyio.create_task_group() as group:
                for _ in range(CALLS):
                    group.start_soon(direct.call_tool, "echo", {"text": "x"})

        await compare(
            f"{CALLS} nested calls in parallel, to the same made directly",
            1.2,
            15,
            lambda: code_mode.call_tool("exec", {"code": PARALLEL}),
            directly,
        )


def main() -> None:
    """Run what is named, or all that is quick."""
    known: dict[str, Callable[[], object]] = {
        "sandbox": sandbox,
        "startup": lambda: anyio.run(startup),
        "exec": lambda: anyio.run(one_exec),
        "sequential": lambda: anyio.run(sequential),
        "parallel": lambda: anyio.run(parallel),
        "openapi": lambda: anyio.run(openapi.openapi),
        "documents": openapi_documents.documents,
        "first-output": first_output.first_output,
    }
    long = {
        "control": lambda: anyio.run(control.control),
        "dead": lambda: anyio.run(dead.dead),
        "http": lambda: anyio.run(http_clients.http),
        "hostile": lambda: anyio.run(limits.hostile),
        "memory": lambda: anyio.run(limits.memory),
        "page": lambda: anyio.run(page.page),
        "saved": lambda: anyio.run(saved.saved),
        "stores": stores.stores,
        "replicas": lambda: anyio.run(replicas.two),
    }
    lists = {"search": lambda: search(given.tools, *given.queries), "tools": lambda: many(given.tools)}
    parser = argparse.ArgumentParser(description="Measure codemode-mcp against a plain MCP server and client.")
    parser.add_argument(
        "name", nargs="*", help=f"{', '.join(known)} (all of these unless named); {', '.join(lists | long)}"
    )
    parser.add_argument("--tools", type=Path, default=LISTS, metavar="DIR", help="recorded tools/list answers as JSON")
    parser.add_argument(
        "--queries",
        type=Path,
        nargs="+",
        default=[QUERIES, BY_MODELS],
        metavar="FILE",
        help="labelled requests as JSON",
    )
    given = parser.parse_args()
    for name in given.name:
        if name not in known | lists | long:
            parser.error(f"there is no benchmark {name!r}")
    for name in given.name or known:
        (known | lists | long)[name]()


if __name__ == "__main__":
    main()
