"""Cost of one dead server among twenty for the users of the others."""

from __future__ import annotations

import json
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from mcp.client.client import Client
from measure import ours, report

BARE = Path(__file__).parent / "bare_server.py"
SERVERS = 20
ROUNDS = 5
USE_ROUNDS = 15
LISTS = 20
BAR = 1.1
"""Two healthy ones differ by as much on a quiet machine."""

FIRST = "return (await MCP.s0.echo({ text: 'x' })).content[0].text"
CALLS = "for (let i = 0; i < 100; i++) await MCP.s0.echo({ text: 'x' })"
START_FIGURES = ("to tools/list", "to end of first exec")
USE_FIGURES = ("100 calls", f"{LISTS} tools/list")


@contextmanager
def black_hole() -> Iterator[str]:
    """Yield an address of loopback where packets vanish: its queue is full, and a connection gets no answer at all."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        filling = [socket.socket() for _ in range(4)]
        for each in filling:
            each.setblocking(False)
            with suppress(BlockingIOError):
                each.connect(listening.getsockname())
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        for each in filling:
            each.close()


async def _start(config: Path) -> tuple[float, float]:
    """Seconds from the start of the process to the first tools/list, and to the end of the first exec."""
    began = time.perf_counter()
    async with Client(ours(config)) as client:
        await client.list_tools()
        listed = time.perf_counter()
        await _exec(client, FIRST)
        return listed - began, time.perf_counter() - began


async def _exec(client: Client, code: str) -> None:
    result = await client.call_tool("exec", {"code": code})
    assert not result.is_error, result


async def _use(client: Client) -> tuple[float, float]:
    """Seconds of a hundred calls in one program, and of some answers to tools/list."""
    began = time.perf_counter()
    await _exec(client, CALLS)
    called = time.perf_counter()
    for _ in range(LISTS):
        await client.list_tools()
    return called - began, time.perf_counter() - called


async def dead() -> None:
    """Twenty healthy servers against nineteen and one that is missing, hangs, or is behind a line that swallows all.

    A second healthy one shows what two of the same differ by: the figures of the dead ones mean nothing below that.
    """
    with tempfile.TemporaryDirectory() as folder, black_hole() as nowhere:
        healthy: dict[str, Any] = {"command": sys.executable, "args": [str(BARE)]}
        last = {
            "healthy": healthy,
            "healthy again": healthy,
            "command missing": {"command": "no-such-command-anywhere"},
            "hangs at its start": {"command": sys.executable, "args": [str(BARE), "hang"]},
            "packets swallowed": {"type": "http", "url": nowhere},
        }
        configs = {}
        for name, entry in last.items():
            servers = {f"s{i}": healthy for i in range(SERVERS - 1)} | {"last": entry}
            configs[name] = Path(folder) / f"{name.replace(' ', '-')}.json"
            configs[name].write_text(json.dumps({"mcpServers": servers}))
        starts: dict[str, list[tuple[float, float]]] = {name: [] for name in configs}
        uses: dict[str, list[tuple[float, float]]] = {name: [] for name in configs}
        await _start(configs["healthy"])
        for _ in range(ROUNDS):
            for name, config in configs.items():
                starts[name].append(await _start(config))
        async with AsyncExitStack() as stack:
            clients = {name: await stack.enter_async_context(Client(ours(config))) for name, config in configs.items()}
            for client in clients.values():
                await _exec(client, FIRST)
            for _ in range(USE_ROUNDS):
                for name, client in clients.items():
                    uses[name].append(await _use(client))
    for name in list(last)[1:]:
        for times, figures in ((starts, START_FIGURES), (uses, USE_FIGURES)):
            for i, figure in enumerate(figures):
                _report(name, figure, [each[i] for each in times[name]], [each[i] for each in times["healthy"]])


def _report(name: str, figure: str, seconds: list[float], healthy: list[float]) -> None:
    ratio = statistics.median(a / b for a, b in zip(seconds, healthy, strict=True))
    text = f"{ratio:.2f}x ({statistics.median(seconds) * 1000:.1f} ms to {statistics.median(healthy) * 1000:.1f} ms)"
    if name == "healthy again":
        print(f"      noise, two healthy ones: {figure:<33} {text}", flush=True)
    else:
        report(f"1 of {SERVERS} dead ({name}): {figure}", text, f"<= {BAR}x", ratio <= BAR)
