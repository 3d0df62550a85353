"""Chance: programs at random over servers of every kind, while at random the servers and the lines to them fail.

What happens follows from a seed, when it happens from the machine too: the same seed gives the same kinds of trouble in
the same order. After each episode all is repaired; then every server must answer again, and nothing may be left over.
"""

from __future__ import annotations

import os
import random
import signal
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

import anyio

from tests.chaos.proxy import Proxy
from tests.chaos.rig import HttpServer, rig, stdio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from tests.chaos.rig import Footprint, Job, Rig

NETWORK = {"modern": (), "legacy": ("--legacy",), "sse": ("--sse",)}
LOCAL = ("local", "other")
TIMEOUT_MS = 1000
WORKERS = 4
PAUSE = 0.25
"""Maximum seconds between two faults, which overlap."""

WAYS_LOCAL = (*["now"] * 30, "never", "twice", "wrong_id", "strangers", "junk", "changed", "cancelled", "torn", "die")
WAYS_NETWORK = (*["now"] * 30, "never")


class Storm:
    """A series of random faults, made by `brewing`."""

    def __init__(self, chaos: Rig, servers: dict[str, HttpServer], lines: dict[str, Proxy], seed: int) -> None:
        self.chaos = chaos
        self._servers = servers
        self._lines = lines
        self._random = random.Random(seed)
        self.log: list[str] = []
        """Faults so far, in order."""

    async def episode(self, seconds: float) -> None:
        """Cause faults for some seconds, then repair until everything answers."""
        chance = self._random
        async with anyio.create_task_group() as tasks:
            over = anyio.Event()
            for _ in range(WORKERS):
                tasks.start_soon(self._work, random.Random(chance.random()), over)
            began = anyio.current_time()
            while anyio.current_time() - began < seconds:
                trouble, victim = self._choose(chance)
                self.log.append(f"{trouble.__name__} {victim}")
                await trouble(victim)
                await anyio.sleep(chance.random() * PAUSE)
            over.set()
            await self._repair()
        for server in (*NETWORK, *LOCAL):
            await self.chaos.works(server)

    async def _work(self, chance: random.Random, over: anyio.Event) -> None:
        while not over.is_set():
            asked = []
            for server in chance.sample((*NETWORK, *LOCAL), chance.randint(1, 3)):
                ways = WAYS_LOCAL if server in LOCAL else WAYS_NETWORK
                asked += self.chaos.job(server, chance.choice((1, 5, 40)), lambda _, w=ways: chance.choice(w)).asked
            chance.shuffle(asked)
            job = self.chaos.add(asked)
            if chance.random() < 0.2:
                await self._run_and_cancel(job, chance.random() * 0.5)
            else:
                await self.chaos.run(job)

    async def _run_and_cancel(self, job: Job, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self.chaos.run(job)

    def _choose(self, chance: random.Random) -> tuple[Callable[[str], Awaitable[None]], str]:
        local = [self.kill, self.stop, self.resume, self.resume]
        network = [self.cut, self.bend, self.bend, self.mend, self.mend, self.refuse, self.accept, self.accept]
        network += [self.pour, self.clear, self.clear, self.restart]
        if chance.random() < 0.3:
            return chance.choice(local), chance.choice(LOCAL)
        return chance.choice(network), chance.choice(list(NETWORK))

    # of processes

    def _signal(self, server: str, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.chaos.pid_of(server), number)

    async def kill(self, server: str) -> None:
        self._signal(server, signal.SIGKILL)

    async def stop(self, server: str) -> None:
        self._signal(server, signal.SIGSTOP)

    async def resume(self, server: str) -> None:
        self._signal(server, signal.SIGCONT)

    # of lines and servers over HTTP

    async def cut(self, server: str) -> None:
        self._lines[server].cut()

    async def bend(self, server: str) -> None:
        self._lines[server].line(self._random.choice(("stalled", "lossy", "silent", "trickling", "endless headers")))

    async def mend(self, server: str) -> None:
        self._lines[server].line("good")

    async def refuse(self, server: str) -> None:
        self._lines[server].refuse()

    async def accept(self, server: str) -> None:
        await self._lines[server].accept()

    async def pour(self, server: str) -> None:
        statuses = self._random.choice(("429", "500", "502", "429,500,502,503"))
        words = (f"fail {statuses} 40 {self._random.randrange(1000)}", "fail_all 502", "swallow 502")
        self._servers[server].weather(self._random.choice(words))

    async def clear(self, server: str) -> None:
        self._servers[server].weather("")

    async def restart(self, server: str) -> None:
        await self._servers[server].restart()

    async def _repair(self) -> None:
        for server in LOCAL:
            await self.resume(server)
        for server in NETWORK:
            await self.clear(server)
            await self.mend(server)
            await self.accept(server)

    async def at_rest(self, rest: Footprint) -> Footprint:
        """Wait until the process is at rest, but for up to 20 sockets of idle connections to HTTP servers."""
        return await self.chaos.until_at_rest(rest, more_sockets=20)


@asynccontextmanager
async def brewing(folder: Path, seed: int) -> AsyncIterator[Storm]:
    """Yield the server, its upstreams and the lines to them, all working."""
    async with AsyncExitStack() as stack:
        servers = {
            name: await stack.enter_async_context(HttpServer(folder, name, *flags)) for name, flags in NETWORK.items()
        }
        lines = {name: await stack.enter_async_context(Proxy(server.port)) for name, server in servers.items()}
        entries = {
            name: {"type": "sse" if name == "sse" else "http", "url": f"http://127.0.0.1:{line.port}/mcp"}
            for name, line in lines.items()
        }
        entries |= {name: stdio(folder, name) for name in LOCAL}
        for entry in entries.values():
            entry["timeoutMs"] = TIMEOUT_MS
        chaos = await stack.enter_async_context(rig(folder, entries))
        for server in entries:
            await chaos.works(server)
        yield Storm(chaos, servers, lines, seed)
