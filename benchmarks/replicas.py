"""Runs a second of one `serve --transport http`, and of two with the same PostgreSQL.

Each request of a run goes to the next replica, so that with two every `wait` resumes a program that the other one has
suspended. Clients, replicas and database share the cores of this machine: that two serve twice as much as one can
only show while cores are free, so what one can serve is bounded by the servers behind it, which take few calls at a
time; each replica has its own. How many cores were busy is measured, of each.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream
from harness import address, configured, cpu_seconds, descendants, report, serve, upstream

from tests.stores.postgres_server import NoServer, postgres_server

TOKEN = "a-token-for-benchmarks-alone"
CLIENTS = 48
"""Enough that all calls that one server behind a replica takes are always asked for."""
CONCURRENT_CALLS = 4
"""Calls that one server behind a replica takes at a time."""
MS = 250
SECONDS = 20.0
WARM = 6.0
ROUNDS = 3

STEPS = 3
"""Requests of one run."""

WAITS = (
    f"await MCP.slow.read({{ ms: {MS} }}); await yield_control();"
    f"await MCP.slow.write({{ ms: {MS} }}); await yield_control();"
    f"await MCP.slow.read({{ ms: {MS} }}); return 1"
)
WORK = "for (let i = 0; i < 100_000; i++) n = (n * 31 + i) % 1_000_003;"
COMPUTES = f"let n = 0; {WORK} await yield_control(); {WORK} await yield_control(); {WORK} return 1"

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Connection:
    """One client's connection to one replica; bare, so that it takes little of the cores."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stream: Any = None

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._stream is None:
            self._stream = await anyio.connect_tcp("127.0.0.1", self._port)
            self._reader = BufferedByteReceiveStream(self._stream)
        params = {"name": tool, "arguments": arguments, "_meta": META}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nAuthorization: Bearer {TOKEN}\r\n"
            "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
            f"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        await self._stream.send((head + body).encode())
        text = await self._answer()
        if "data: " in text:
            text = text.rpartition("data: ")[2]
        answer: dict[str, Any] = json.loads(text)["result"]["structuredContent"]
        return answer

    async def _answer(self) -> str:
        lines = (await self._reader.receive_until(b"\r\n\r\n", 1 << 16)).decode().lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:])
        if "content-length" in headers:
            return (await self._reader.receive_exactly(int(headers["content-length"]))).decode()
        whole = b""
        while size := int(await self._reader.receive_until(b"\r\n", 64), 16):
            whole += await self._reader.receive_exactly(size)
            await self._reader.receive_exactly(2)
        await self._reader.receive_exactly(2)
        return whole.decode()

    async def close(self) -> None:
        if self._stream is not None:
            await self._stream.aclose()


@contextmanager
def replicas(folder: Path, url: str, how_many: int) -> Iterator[list[tuple[int, int]]]:
    """Process id and port of each."""
    limits = {"timeoutMs": 60_000, "maxRequestMs": 120_000, "maxRunningRuns": CLIENTS}
    limits |= {"maxSuspendedRuns": 1000, "maxSuspendedRunsPerOwner": 1000}
    sections = {
        "store": {"kind": "postgres", "url": url},
        "tools": {"codeMode": limits},
        "http": {"auth": {"tokens": [{"name": "bench", "token": TOKEN}]}},
    }
    servers = {"slow": {**upstream("--slow"), "maxConcurrentCalls": CONCURRENT_CALLS}}
    with ExitStack() as stack:
        opened = []
        for number in range(how_many):
            config = configured(folder, servers, f"replica-{number}", **sections)
            command = serve(config, "--transport", "http", "--port", "0", private=False)
            pid, url = stack.enter_context(address(command, folder / config.stem))
            opened.append((pid, urlsplit(url).port or 0))
        yield opened


async def drive(code: str, ports: list[int], after: float, seconds: float, on_begin: Any) -> float:
    """Runs a second."""
    turn = count()
    answered = 0
    until = time.monotonic() + after + seconds

    async def client() -> None:
        nonlocal answered
        connections = [Connection(port) for port in ports]

        async def ask(tool: str, **arguments: Any) -> dict[str, Any]:
            return await connections[next(turn) % len(connections)].call(tool, arguments)

        try:
            answer: dict[str, Any] = {}
            while time.monotonic() < until:
                before = answer
                if answer.get("status") == "waiting":
                    answer = await ask("wait", runId=answer["runId"])
                else:
                    answer = await ask("exec", code=code)
                assert answer["status"] in ("waiting", "completed"), (before, answer)
                if until - seconds <= time.monotonic() < until:
                    answered += 1
        finally:
            for connection in connections:
                await connection.close()

    async with anyio.create_task_group() as group:
        for _ in range(CLIENTS):
            group.start_soon(client)
        await anyio.sleep(after)
        on_begin()
        await anyio.sleep(seconds)
        on_begin()
    # All began at the same moment, so that their ends come in waves.
    return answered / STEPS / seconds


async def _measured(folder: Path, url: str, how_many: int, code: str, database: int) -> tuple[float, dict[str, float]]:
    with replicas(folder, url, how_many) as opened:
        stamps: list[dict[str, float]] = []

        def stamp() -> None:
            mine = [(pid, *descendants(pid)) for pid, _ in opened]
            stamps.append(
                {
                    "replicas": sum(cpu_seconds(pid) for pid, *_ in mine),
                    "servers behind": sum(cpu_seconds(each) for _, *behind in mine for each in behind),
                    "database": sum(cpu_seconds(each) for each in (database, *descendants(database))),
                    "clients": cpu_seconds(os.getpid()),
                    "machine": _machine(),
                }
            )

        rate = await drive(code, [port for _, port in opened], WARM, SECONDS, stamp)
    before, after = stamps
    return rate, {name: (after[name] - before[name]) / SECONDS for name in before}


def _machine() -> float:
    """Seconds that all cores together have been busy, with whatever."""
    busy = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    return sum(int(each) for index, each in enumerate(busy[:8]) if index not in (3, 4)) / os.sysconf("SC_CLK_TCK")


async def two() -> None:
    """One replica and two, in turn."""
    try:
        with postgres_server(safe=True) as server:
            process: Any = server._process
            with tempfile.TemporaryDirectory() as name:
                for what, code in (("waits", WAITS), ("computes", COMPUTES)):
                    rates: dict[int, list[float]] = {1: [], 2: []}
                    cores: dict[int, dict[str, float]] = {}
                    for number in range(ROUNDS):
                        for how_many in (1, 2):
                            schema = f"r{what}{number}{how_many}"
                            rate, busy = await _measured(Path(name), server.url(schema), how_many, code, process.pid)
                            rates[how_many].append(rate)
                            cores[how_many] = busy
                    one, both = (statistics.median(rates[each]) for each in (1, 2))
                    figure = f"{both / one:.2f}x ({one:.1f} to {both:.1f} runs/s)"
                    if what == "waits":
                        report("two replicas to one, programs that wait", figure, ">= 1.8x", both / one >= 1.8)
                    else:
                        print(f"      two replicas to one, programs that compute: {figure}")
                    for how_many, busy in cores.items():
                        shares = ", ".join(f"{each} {share:.2f}" for each, share in busy.items())
                        print(f"        cores busy with {how_many} of {os.cpu_count()}: {shares}", flush=True)
    except NoServer as error:
        print(f"      replicas: skipped: {error}")
