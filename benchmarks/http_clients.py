"""Many HTTP clients of one process, each with a suspended program of its own, and what that costs.

Half of them speak the modern revision and half a legacy one; each is a principal with a bearer token of its own.
"""

from __future__ import annotations

import json
import secrets
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
from limits import resident
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from measure import report

BARE = Path(__file__).parent / "bare_server.py"
CLIENTS = 500
CONNECTING = 50
"""Clients that connect concurrently; all are connected before the first program runs."""
STRANGERS = 50
"""Clients that try another one's run."""
SECONDS = 300

SUSPENDED = """
store("mine", "%s");
const before = (await MCP.echo.echo({ text: "%s" })).content[0].text;
await yield_control();
return [before, await load("mine"), (await MCP.echo.echo({ text: "%s" })).content[0].text];
"""


@asynccontextmanager
async def served(config: Path) -> AsyncIterator[tuple[int, str]]:
    """`codemode-mcp serve --transport http`: its process id and the URL of its endpoint."""
    command = [sys.executable, "-m", "codemode_mcp", "serve", "--transport", "http", "--port", "0"]
    log = config.with_suffix(".log")
    with log.open("wb") as stderr:
        process = await anyio.open_process(
            [*command, "--config", str(config), "--log-level", "error"], stderr=stderr, stdout=stderr
        )
    try:
        with anyio.fail_after(60):
            while "/mcp\n" not in (text := log.read_text("utf-8")):  # noqa: ASYNC110 - another process sets no events
                await anyio.sleep(0.02)
        yield process.pid, next(word for word in text.split() if word.startswith("http"))
    finally:
        with anyio.CancelScope(shield=True):
            process.terminate()
            await process.wait()
            await process.aclose()


async def _connected(stack: AsyncExitStack, url: str, number: int, token: str) -> Client:
    headers = {"Authorization": f"Bearer {token}"}
    http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(120)))
    mode = "auto" if number % 2 else "legacy"
    return await stack.enter_async_context(Client(streamable_http_client(url, http_client=http), mode=mode))


async def http() -> None:
    """Run many clients concurrently: each suspends and resumes a run, and some try the run of another client."""
    tokens = [secrets.token_hex(16) for _ in range(CLIENTS)]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "codemode-mcp.json"
        settings: dict[str, Any] = {
            "mcpServers": {"echo": {"command": sys.executable, "args": [str(BARE)], "maxConcurrentCalls": 128}},
            "tools": {"codeMode": {"maxSuspendedRuns": 2 * CLIENTS, "timeoutMs": 60_000, "maxRequestMs": 120_000}},
            "http": {"auth": {"tokens": [{"name": f"n{i}", "token": token} for i, token in enumerate(tokens)]}},
        }
        config.write_text(json.dumps(settings))
        async with served(config) as (pid, url):
            await _measure(pid, url, tokens)


async def _measure(pid: int, url: str, tokens: list[str]) -> None:
    ready, suspended, over = anyio.Event(), anyio.Event(), anyio.Event()
    runs: dict[int, str] = {}
    refused: list[str] = []
    mixed: list[str] = []
    counts: Counter[str] = Counter()
    took: dict[str, list[float]] = {"suspend": [], "resume": []}
    limiter = anyio.CapacityLimiter(CONNECTING)

    async def call(client: Client, tool: str, arguments: dict[str, Any], step: str) -> dict[str, Any]:
        began = time.perf_counter()
        result = await client.call_tool(tool, arguments)
        took[step].append(time.perf_counter() - began)
        return dict(result.structured_content or {"status": "failed", "error": str(result.content)})

    def done(step: str, event: anyio.Event) -> None:
        counts[step] += 1
        if counts[step] == CLIENTS:
            event.set()

    async def one(number: int) -> None:
        name = f"client-{number}"
        async with AsyncExitStack() as stack:
            try:
                async with limiter:
                    client = await _connected(stack, url, number, tokens[number])
            except Exception as error:
                refused.append(f"{name} could not connect: {error!r}"[:300])
                for step, event in (("connected", ready), ("suspended", suspended), ("resumed", over)):
                    done(step, event)
                return
            done("connected", ready)
            await ready.wait()
            answer = await call(client, "exec", {"code": SUSPENDED % (name, name, name)}, "suspend")
            if answer["status"] == "waiting":
                runs[number] = answer["runId"]
            else:
                refused.append(f"{name}: {answer}"[:300])
            done("suspended", suspended)
            await suspended.wait()
            await midway.wait()
            if number in runs:
                answer = await call(client, "wait", {"runId": runs[number]}, "resume")
                if answer["status"] != "completed":
                    refused.append(f"{name}: {answer}"[:300])
                elif answer["value"] != [name] * 3:
                    mixed.append(f"{name} got {answer['value']}"[:300])
            done("resumed", over)
            await over.wait()

    async def strangers() -> int:
        """Count the runs that a client could see of other clients."""
        seen = 0
        for number in range(STRANGERS):
            async with AsyncExitStack() as stack:
                client = await _connected(stack, url, number, tokens[number])
                foreign = runs.get((number + 1) % CLIENTS)
                result = await client.call_tool("wait", {"runId": foreign})
                seen += not result.is_error
        return seen

    midway = anyio.Event()
    idle = resident(pid)["VmRSS"]
    began = time.perf_counter()
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as group:
            for number in range(CLIENTS):
                group.start_soon(one, number)
            await ready.wait()
            connected, connected_at = resident(pid)["VmRSS"], time.perf_counter()
            await suspended.wait()
            full, suspended_at = resident(pid)["VmRSS"], time.perf_counter()
            print(f"http: {len(runs)} runs are suspended at the same time", flush=True)
            seen = await strangers()
            resumed_from = time.perf_counter()
            midway.set()
            await over.wait()
            resumed_at = time.perf_counter()
    print(f"  memory: {idle:.0f} MiB idle, {connected:.0f} with the clients, {full:.0f} with their runs")
    print(f"  connecting {connected_at - began:.1f} s, suspending {suspended_at - connected_at:.1f} s, ", end="")
    print(f"resuming {resumed_at - resumed_from:.1f} s (client and server share the machine)")
    for step, seconds in took.items():
        if seconds:
            print(f"  {step}: median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s")
    for line in (refused + mixed)[:5]:
        print(f"  {line}")
    report(f"{CLIENTS} HTTP clients with a suspended run: refused", str(len(refused)), "0", not refused)
    report(f"{CLIENTS} HTTP clients with a suspended run: mixed up", str(len(mixed)), "0", not mixed)
    report(f"runs of others that {STRANGERS} clients could see", str(seen), "0", not seen)
