"""Chance: programs at random over servers of every kind, while at random the servers and the lines to them fail.

After each episode all is repaired; then every server must answer again, and nothing may be left over.
"""

from __future__ import annotations

import inspect
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from tests.faults.campaign import Campaign
from tests.faults.histories import Broken
from tests.faults.rig import NETWORK, Footprint, Job, Remote, Rig, ledger_server, remotes, rig

LOCAL = ("local", "other")
TIMEOUT_MS = 1000
WORKERS = 4
PAUSE = 0.25
"""Maximum seconds between two faults, which overlap."""
EPISODE = 20.0
"""Seconds of an episode of a campaign."""
WARM_UP = 2
"""Episodes until the server has everything that it keeps permanently."""
MAX_GROWTH = 50 * 1024 * 1024
"""Bytes of resident memory."""

WAYS_LOCAL = (*["now"] * 30, "never", "twice", "wrong_id", "strangers", "junk", "changed", "cancelled", "torn", "die")
WAYS_NETWORK = (*["now"] * 30, "never")
LINES: Final = ("stalled", "lossy", "silent", "trickling", "endless headers")
WEATHER: Final = ("fail_all 502", "swallow 502", *(f"fail {each} 40 7" for each in ("429", "500", "429,502")))

LOCAL_FAULTS: Final = (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT, signal.SIGCONT)
NETWORK_FAULTS: Final[dict[str, tuple[int, Callable[[Remote, random.Random], Awaitable[None] | None]]]] = {
    "cut": (1, lambda remote, _: remote.line.cut()),
    "bend": (2, lambda remote, chance: remote.line.line(chance.choice(LINES))),
    "mend": (2, lambda remote, _: remote.line.line("good")),
    "refuse": (1, lambda remote, _: remote.line.refuse()),
    "accept": (2, lambda remote, _: remote.line.accept()),
    "pour": (1, lambda remote, chance: remote.weather(chance.choice(WEATHER))),
    "clear": (2, lambda remote, _: remote.weather("")),
    "restart": (1, lambda remote, _: remote.restart()),
}
"""The faults of servers over HTTP and of the lines to them, and what mends these, with their weights."""


class Storm:
    """A series of random faults, made by `brewing`."""

    def __init__(self, chaos: Rig, servers: dict[str, Remote], chance: random.Random, rest: Footprint) -> None:
        self.chaos = chaos
        self.rest = rest
        """The process with all its streams open; `settle` adds what it keeps permanently."""
        self.log: list[str] = []
        """Faults so far, in order."""
        self._servers = servers
        self._random = chance

    async def episode(self, seconds: float) -> None:
        """Cause faults for some seconds, then repair until everything answers."""
        chance = self._random
        async with anyio.create_task_group() as tasks:
            over = anyio.Event()
            for _ in range(WORKERS):
                tasks.start_soon(self._work, random.Random(chance.random()), over)
            end = anyio.current_time() + seconds
            while anyio.current_time() < end:
                await self._cause(chance)
                await anyio.sleep(chance.random() * PAUSE)
            over.set()
            for server in LOCAL:
                self.chaos.signal(server, signal.SIGCONT)
            for remote in self._servers.values():
                await remote.repair()
        await self.chaos.works(*NETWORK, *LOCAL)

    async def _cause(self, chance: random.Random) -> None:
        if chance.random() < 0.3:
            number, victim = chance.choice(LOCAL_FAULTS), chance.choice(LOCAL)
            self.log.append(f"{number.name} {victim}")
            self.chaos.signal(victim, number)
            return
        ((what, (_, cause)),) = chance.choices(
            list(NETWORK_FAULTS.items()), [weight for weight, _ in NETWORK_FAULTS.values()]
        )
        victim = chance.choice(list(NETWORK))
        self.log.append(f"{what} {victim}")
        done = cause(self._servers[victim], chance)
        if inspect.isawaitable(done):
            await done

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

    async def settle(self) -> None:
        """Add to the rest what the process holds now. Some streams may not be open again yet, those of before count."""
        self.rest = self.rest.most(await self.chaos.settled())

    async def at_rest(self) -> Footprint:
        """Wait until the process is at rest, but for up to 20 sockets of idle connections to HTTP servers."""
        return await self.chaos.until_at_rest(self.rest, more_sockets=20)


@asynccontextmanager
async def brewing(folder: Path, chance: random.Random) -> AsyncIterator[Storm]:
    """Yield the server, its upstreams and the lines to them, all working."""
    async with remotes(folder) as servers:
        entries = {name: remote.entry for name, remote in servers.items()}
        entries |= {name: ledger_server(folder / "ledger", name) for name in LOCAL}
        for entry in entries.values():
            entry["timeoutMs"] = TIMEOUT_MS
        async with rig(folder, entries, tried=tuple(entries)) as chaos:
            await chaos.until_streams_are_open()
            yield Storm(chaos, servers, chance, await chaos.footprint())


class Soak(Campaign):
    """Episodes, each followed by repair and a look at what the server still holds."""

    def __init__(self, folder: Path, seconds: float, seed: int) -> None:
        super().__init__(seed, 0, progress=False)
        self._folder = folder
        self._seconds = seconds

    async def _run(self) -> None:
        try:
            async with brewing(self._folder, self.chance) as storm:
                await self._episodes(storm)
        except (AssertionError, TimeoutError, ExceptionGroup) as error:
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            raise Broken(f"{type(error).__name__}: {error}") from error

    async def _episodes(self, storm: Storm) -> None:
        chaos = storm.chaos
        end = anyio.current_time() + self._seconds
        while anyio.current_time() < end or self.figures.done <= WARM_UP:
            before = len(chaos.jobs)
            self.events = storm.log[-20:]
            try:
                await storm.episode(EPISODE)
            finally:
                self.events = storm.log[-100:]
            self.advance()
            if self.figures.done <= WARM_UP:
                await storm.settle()
            now = await storm.at_rest()
            for job in chaos.jobs[before:]:
                if job.outcomes is not None:
                    self.figures.counts += job.ends
            print(f"[{self.now} s] {dict(self.figures.counts)} {now}", flush=True)
            assert now.resident - storm.rest.resident < MAX_GROWTH, f"memory grew from {storm.rest} to {now}"

    def _evidence(self, text: str) -> Iterable[str]:
        return ["faults before it: " + "; ".join(self.events)]

    async def _close(self) -> None:
        pass
