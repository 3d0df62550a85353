"""Measure what the flood of one principal costs another one: the worst delays, on the flooded server and on another.

The other server is asked the same at the same time and is not flooded. Its delays are what the machine costs, which the
flood and its server keep busy; what is more on the flooded server is the flood's doing there. Seconds in which the main
thread of a server was ready to run and had no processor are no delay: a machine with other work has many of them.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import httpx2
from anyio.streams.text import TextReceiveStream

from tests.floods.wire import Wire
from tests.integration.harness import REPOSITORY, SECONDS
from tests.integration.http_harness import ALICE, BOB, TWO_TOKENS, serve_http

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.http_harness import Served

PROBES: Final = ("ping", "program", "call")
"""Requests of the principal meanwhile: a ping; a program that returns; one that makes a call to a server at rest."""

_PAUSE = 0.05
"""Seconds between two probes of a kind."""


@dataclass(frozen=True, slots=True)
class Delays:
    """The worst seconds of each probe, and how many there were."""

    worst: dict[str, float]
    count: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Delays during one flood, on the flooded server and on the other."""

    flooded: Delays
    other: Delays

    @property
    def added(self) -> float:
        """Return the seconds by which the worst probe was later than its like on the other server."""
        return max(self.flooded.worst[probe] - self.other.worst[probe] for probe in PROBES)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two servers with the same configuration."""

    flooded: Served
    other: Served

    async def cost(self, kind: str, seconds: float) -> Cost:
        """Measure for so many seconds of a flood, from its beginning on, and until each server has been measured."""
        found: dict[str, Delays] = {}

        async def probe(name: str, served: Served, begun: anyio.Event) -> None:
            found[name] = await delays(served, begun, over)

        over = anyio.Event()
        begun = anyio.Event(), anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(probe, "flooded", self.flooded, begun[0])
            group.start_soon(probe, "other", self.other, begun[1])
            async with flooding(kind, self.flooded.url):
                await anyio.sleep(seconds)
                for each in begun:
                    await each.wait()
                over.set()
        return Cost(found["flooded"], found["other"])


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[Pair]:
    """Yield two servers, each with a quiet upstream server and one for the flood."""
    upstream = {"command": sys.executable, "args": [str(Path(__file__).with_name("upstream.py"))]}
    document = {"mcpServers": {"calm": upstream, "wild": upstream}, "http": TWO_TOKENS}
    configs = []
    for name in ("flooded", "other"):
        home = folder / name
        home.mkdir()
        store = {"kind": "sqlite", "path": str(home / "runs" / "runs.sqlite3")}
        configs.append(home / "config.json")
        configs[-1].write_text(json.dumps({**document, "store": store}), "utf-8")
    async with serve_http(configs[0]) as flooded, serve_http(configs[1]) as other:
        for served in (flooded, other):
            await served.ready()
        yield Pair(flooded, other)


@asynccontextmanager
async def flooding(kind: str, url: str) -> AsyncIterator[None]:
    """Flood a server from a process of its own, for the time inside."""
    command = [sys.executable, "-m", "tests.floods.kinds", kind, url, BOB]
    async with await anyio.open_process(command, cwd=REPOSITORY, stderr=None) as process:
        try:
            assert process.stdout is not None
            with anyio.fail_after(4 * SECONDS):
                assert "flooding" in await TextReceiveStream(process.stdout).receive()
            yield
        finally:
            process.kill()


async def delays(served: Served, begun: anyio.Event, until: anyio.Event) -> Delays:
    """Ask as a principal who floods nothing, each probe again and again.

    Args:
        begun: is set once each probe has been answered.
    """
    worst = dict.fromkeys(PROBES, 0.0)
    count = 0
    waiting = set(PROBES)
    async with httpx2.AsyncClient(timeout=4 * SECONDS) as http:
        wire = Wire(http, served.url, ALICE)
        await wire.open()

        async def probe(name: str) -> None:
            nonlocal count
            while not until.is_set():
                began = time.monotonic() - without_processor(served)
                match name:
                    case "ping":
                        answer = await wire.ask("ping")
                    case "program":
                        answer = await wire.exec("return 1")
                    case _:
                        answer = await wire.exec("return (await MCP.calm.quick({})).content[0].text")
                assert "result" in answer, answer
                assert not answer["result"].get("isError"), answer
                worst[name] = max(worst[name], time.monotonic() - without_processor(served) - began)
                count += 1
                waiting.discard(name)
                if not waiting:
                    begun.set()
                await anyio.sleep(_PAUSE)

        async with anyio.create_task_group() as group:
            for name in PROBES:
                group.start_soon(probe, name)
    return Delays(worst, count)


def without_processor(served: Served) -> float:
    """Return the seconds that the main thread of a server has waited for a processor; 0 where none are counted."""
    pid = served.process.pid
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
