"""A client of several processes on one store, some of which always die, and what it holds them to."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.campaign import Campaign, Figures
from tests.faults.crash_programs import Program, program
from tests.faults.histories import Broken
from tests.faults.instruments import NAMES
from tests.faults.model import Model
from tests.faults.servers.ledger import Ledger
from tests.faults.stored import Recorded, Stored, in_sqlite
from tests.faults.worker import LEASE, Nursery, Task

PATIENCE = 240.0
"""Seconds after which a request or a run is taken for lost that nothing says so of. The machine may have other work."""

WAITS = 300
"""Answers to `wait`, all of them `waiting`, after which a run that could have ended has been lost."""

HELLO = 120.0

ALL = 1_000_000


@dataclass(frozen=True, slots=True)
class Orders:
    """The options of a campaign.

    Attributes:
        crashes: processes to kill.
        completed: programs that complete at least, however late the processes are killed.
        store: path of a file, or URL of PostgreSQL.
        processes: at the same time.
        clients: programs at the same time.
        points: to kill at, any of these; none: at any moment.
        at_random: the share of processes that are killed at any moment.
        parallel: the share of waits that come with another one of the same run.
        shapes: of the programs; none: all.
        broken: see `sabotage`.
        retiring: the share of processes that end in order, of those that outlive their point.
        patience: seconds until a run that does not end has been lost.
    """

    crashes: int
    seed: int
    store: str
    folder: Path
    engine: Path
    processes: int = 2
    clients: int = 4
    points: tuple[str, ...] = NAMES
    at_random: float = 0.3
    parallel: float = 0.1
    retiring: float = 0.1
    shapes: tuple[str, ...] = ()
    broken: str = ""
    patience: float = PATIENCE
    completed: int = 0
    progress: bool = False


class Died(Exception):
    """The process is gone, and with it the answer."""


class Process:
    """One process under test, from here."""

    def __init__(self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self.up = asyncio.Event()
        """It takes requests, or is gone."""
        self.dead = asyncio.Event()
        self.retiring = False
        self._reader = reader
        self._writer = writer
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._requests = 0
        self._listening = asyncio.create_task(self._listen())

    def tell(self, **command: Any) -> None:
        self._writer.write(json.dumps(command).encode() + b"\n")

    def ask(self, **command: Any) -> tuple[int, asyncio.Future[dict[str, Any]]]:
        """The number of a request, and its answer, which may be `Died`."""
        self._requests += 1
        answer = self._answers[self._requests] = asyncio.get_running_loop().create_future()
        # No process may ask for it.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self.dead.is_set():
            answer.set_exception(Died())
        else:
            self.tell(request=self._requests, **command)
        return self._requests, answer

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    async def close(self) -> None:
        self._writer.close()
        await self._listening
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _listen(self) -> None:
        with suppress(ConnectionError):
            while line := await self._reader.readline():
                if not line.endswith(b"\n"):
                    break
                answer = json.loads(line)
                if "pid" in answer:
                    self.up.set()
                    continue
                waiting = self._answers.pop(answer.pop("request"), None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        self.dead.set()
        self.up.set()
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(Died())


@dataclass(slots=True)
class _Run:
    """A program that a client has begun.

    Attributes:
        id: once the client has it.
        opened: up to which step its slow tools have answered.
    """

    program: Program
    id: str = ""
    opened: int = 0
    waits: int = 0
    cancelled: bool = False
    history: list[str] = field(default_factory=list)


class Crashes(Campaign):
    """Run programs on processes that die, until enough have, and see all runs to their ends.

    Args:
        stored: the store that the processes share.
    """

    def __init__(self, nursery: Nursery, orders: Orders, stored: Stored) -> None:
        super().__init__(orders.seed, orders.crashes, progress=orders.progress)
        self.model = Model()
        self._nursery = nursery
        self._orders = orders
        self._stored = stored
        self._watched = False
        self._ledger_path = orders.folder / "ledger"
        self._ledger = Ledger(self._ledger_path)
        self._alive: list[Process] = []
        self._changed = asyncio.Event()
        self._over = asyncio.Event()
        self._runs: dict[str, _Run] = {}
        self._pids: set[int] = set()

    def _evidence(self, text: str) -> Iterator[str]:
        yield from (str(line) for line in self._ledger.new() if line["what"] in ("fault", "waits"))
        for run in self._runs.values():
            if re.search(rf"\b({run.program.tag}|{run.id or run.program.tag})\b", text):
                yield from (f"{run.program.tag} is {run.id}", run.program.code, *run.history, *self.events[-30:])
                yield from (f"{step}: {done}" for step, done in self.model.acts[run.program.tag].items())
                yield from self.model.histories.steps[run.id]

    async def _close(self) -> None:
        self._ledger.close()

    async def _run(self) -> None:
        tasks = [asyncio.create_task(self._keep_one(number)) for number in range(self._orders.processes)]
        try:
            await self._together(tasks, [self._client(number) for number in range(self._orders.clients)])
            for run_id in self._stored.look()[0]:
                # Its process was killed between storing it and answering.
                self.figures.counts["adopted"] += 1
                await self._together(tasks, [self._follow(None, run_id)])
            self._over.set()
            await asyncio.gather(*tasks)
            self._look()
            waiting, wrong = self._stored.look()
            if waiting or wrong:
                raise Broken(f"left in the store: {waiting} {wrong}")
            self.model.histories.judge_rows(self._stored.changes())
            self.figures.judged += self.model.histories.counts
            self.figures.counts += self.model.counts
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for pid in self._pids:
                os.kill(pid, signal.SIGKILL)
                self._nursery.bury(pid)

    async def _together(self, tasks: list[asyncio.Task[None]], work: list[Any]) -> None:
        """All of the work, unless one of the tasks fails before."""
        doing: asyncio.Future[Any] = asyncio.gather(*work)
        done, _ = await asyncio.wait({doing, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        if doing in done:
            await doing
            return
        doing.cancel()
        with suppress(asyncio.CancelledError):
            await doing
        for task in tasks:
            if task.done():
                task.result()
        raise Broken("a process was not replaced")

    # processes

    async def _keep_one(self, number: int) -> None:
        """Always have one more process, until it is over."""
        chance = self.fork(number)
        while not self._over.is_set():
            doomed = self.figures.done < self._orders.crashes
            at_random = not self._orders.points or chance.random() < self._orders.at_random
            point = "" if at_random or not doomed else chance.choice(self._orders.points)
            count = 1 + int(chance.expovariate(0.7))
            process = await self._bear(point, count)
            self._alive.append(process)
            self._change()
            try:
                end = await self._live(process, chance, point if doomed else None)
            finally:
                self._alive.remove(process)
                process.signal(signal.SIGKILL)  # until it is buried, its id is its own
                await process.close()
                self._nursery.bury(process.pid)
                self._pids.discard(process.pid)
            if end:
                self.figures.faults[end] += 1
                self.note(f"{process.pid}: {end} {count}")
            if end and end != "retired":
                self.advance()
            self._look()

    async def _bear(self, point: str, count: int) -> Process:
        opened = {run.program.tag: run.opened for run in self._runs.values()}
        orders = self._orders
        task = Task(orders.store, str(self._ledger_path), str(orders.engine), point, count, orders.broken, opened)
        pid, commands = self._nursery.bear(task)
        self._pids.add(pid)
        reader, writer = await asyncio.open_connection(sock=commands, limit=1 << 24)
        process = Process(pid, reader, writer)
        try:
            async with asyncio.timeout(HELLO):
                await process.up.wait()
        except BaseException:
            await process.close()
            raise
        if process.dead.is_set():
            raise Broken("a process did not come up")
        if not self._watched:
            self._watched = True
            self._stored.watch()  # the first process has made its tables, and no program has begun
        for run in self._runs.values():
            if run.opened != opened.get(run.program.tag):
                process.tell(do="open", tag=run.program.tag, step=run.opened)
        return process

    async def _live(self, process: Process, chance: random.Random, point: str | None) -> str:
        """Return how it has ended. `point`: the point at which it is killed; None for none."""
        if point is None:
            await self._over.wait()
            return ""
        stops = chance.random() < 0.1
        left = chance.expovariate(1 / 0.3) if not point else 0.8 + chance.expovariate(1 / 0.8)
        if await self._dies(process, left):
            return point
        if stops:
            await self._stop(process, chance)
        if chance.random() < self._orders.retiring:
            process.retiring = True
            process.tell(do="retire")
            if not await self._dies(process, HELLO):
                await self._have_confess()
                raise Broken(f"process {process.pid} does not end")
            return "retired"
        process.signal(signal.SIGKILL)
        await process.dead.wait()
        return "any moment"

    async def _stop(self, process: Process, chance: random.Random) -> None:
        """Have it stand still, with PostgreSQL until others take it for dead."""
        with suppress(ProcessLookupError):
            process.signal(signal.SIGSTOP)
            self._ledger.write(what="stopped", whom=process.pid)
            self._look()
            self.figures.counts["stopped"] += 1
            shared = self._orders.store.startswith("postgresql:")
            await asyncio.sleep(chance.uniform(0.5, 2 * LEASE.valid) if shared else chance.uniform(0.05, 0.4))
            process.signal(signal.SIGCONT)
            await asyncio.sleep(chance.uniform(0, 0.5))

    async def _have_confess(self) -> None:
        """Have all processes write into the ledger what they wait for."""
        for process in self._alive:
            process.signal(signal.SIGUSR1)
        await asyncio.sleep(0.5)

    async def _dies(self, process: Process, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await process.dead.wait()
        return process.dead.is_set()

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _any(self) -> Process:
        while True:
            found = [process for process in self._alive if not process.retiring and not process.dead.is_set()]
            if found:
                return self.chance.choice(found)
            await self._changed.wait()

    # clients

    async def _client(self, number: int) -> None:
        """One program after the other."""
        chance = self.fork(f"client {number}")
        count = 0
        orders = self._orders
        while self.figures.done < orders.crashes or self.model.counts["completed"] < orders.completed:
            count += 1
            tag = f"t{self._orders.seed}c{number}n{count}"
            run = _Run(program(chance, tag, self._orders.shapes))
            self._runs[tag] = run
            self.model.begin(run.program)
            self.figures.counts["runs"] += 1
            await self._begin(run, chance)
            self._look()

    async def _begin(self, run: _Run, chance: random.Random) -> None:
        process = await self._any()
        _, answer = process.ask(do="exec", code=run.program.code)
        try:
            got = await self._patiently(answer, run)
        except Died:
            self.figures.counts["died before their first answer"] += 1
            return
        if "refused" in got:
            if process.retiring or got["refused"] == "aborted":
                return
            raise Broken(f"{run.program.tag} was refused: {got}")
        if got["code"] == "aborted" and process.retiring and "nothing of the program has run" in got["error"]:
            self._look()
            if run.program.tag in self.model.acts:
                raise Broken(f"{run.program.tag} has not run, it is said, and yet something was done: {got}")
            return
        run.id = got["run"]
        run.history.append(f"{self.now} {process.pid}: {got}")
        if got["status"] == "waiting":
            self.model.answered(run.program.tag, got["outputs"])
            self._open_more(run, chance)
            await self._follow(run, run.id, chance)
        else:
            self._ended(run, got, got["outputs"])

    async def _follow(self, run: _Run | None, run_id: str, chance: random.Random | None = None) -> None:
        """Call wait until a run ends, whichever processes die. `run`: None for a run that is unknown here."""
        chance = chance or self.fork(run_id)
        until, waits = time.monotonic() + self._orders.patience, 0
        if run is None:
            for each in self._runs.values():
                self._open(each, ALL)
        while True:
            if time.monotonic() > until or waits > WAITS:
                name = run_id if run is None else run.program.tag
                await self._have_confess()
                raise Broken(f"{name} does not end; {self._stored.look()}")
            got = await self._wait(run, run_id, chance)
            if got is None:
                continue
            if got["status"] == "waiting":
                waits += 1
                if run is not None:
                    self.model.answered(run.program.tag, got["outputs"])
                    self._open_more(run, chance)
                continue
            whole = await self._again(run_id, got)
            if run is None:
                tag = got["value"]["tag"] if got["status"] == "completed" else ""
                run = self._runs.get(tag)
                if run is None:
                    self._ended(None, got, whole)
                    return
            self._ended(run, got, whole)
            return

    async def _wait(self, run: _Run | None, run_id: str, chance: random.Random) -> dict[str, Any] | None:
        """Return the answer of one wait, of several parallel ones, or of one that was dropped, if there is any."""
        roll = chance.random()
        cancels = run is not None and roll < 0.02
        if cancels and run is not None:
            run.cancelled = True
        many = 2 if 0.1 <= roll < 0.1 + self._orders.parallel else 1
        asked = []
        for _ in range(many):
            process = await self._any()
            asked.append((process, *process.ask(do="wait", run=run_id, cancel=cancels, fromStart=False)))
        if 0.03 <= roll < 0.08:
            await asyncio.sleep(chance.uniform(0, 0.1))
            process, number, _ = asked[0]
            process.tell(do="drop", request=number)
        found = None
        for process, _, answer in asked:
            try:
                got = await self._patiently(answer, run)
            except Died:
                got = {"died": True}
            if run is not None:
                run.history.append(f"{self.now} {process.pid}: {got}")
            if "status" in got:
                if found is not None and found["status"] == "waiting" and run is not None:
                    self.model.answered(run.program.tag, found["outputs"])
                if found is None or found["status"] == "waiting":
                    found = got
            elif "refused" in got:
                await self._refused(run, run_id, got)
        return found

    async def _refused(self, run: _Run | None, run_id: str, got: dict[str, Any]) -> None:
        message = got["message"]
        for known in ("another request is waiting for run", "was taken over by another process", "shutting down"):
            if known in message:
                self.figures.counts[f"refused: {known}"] += 1
                await asyncio.sleep(0.02)
                return
        if got["refused"] == "runtime_unavailable" and self.model.histories.stopped:
            # It was stopped, and does not know for how long others have taken it for dead.
            self.figures.counts["refused: fenced off"] += 1
            await asyncio.sleep(0.02)
            return
        raise Broken(f"wait of {run.program.tag if run else run_id} was refused: {got}")

    async def _again(self, run_id: str, got: dict[str, Any]) -> list[str]:
        """All that a run has printed, by another wait; it has ended as it had."""
        while True:
            process = await self._any()
            _, answer = process.ask(do="wait", run=run_id, cancel=False, fromStart=True)
            try:
                again = await self._patiently(answer, None)
            except Died:
                continue
            if "refused" in again and "shutting down" in again["message"]:
                continue
            if any(again.get(key) != got[key] for key in ("status", "value", "code", "error")):
                raise Broken(f"{run_id} has ended as {got}, and then as {again}")
            outputs: list[str] = again["outputs"]
            return outputs

    def _ended(self, run: _Run | None, got: dict[str, Any], whole: list[str]) -> None:
        self._look()
        if run is not None and run.cancelled and got["code"] == "aborted":
            self.figures.counts["cancelled"] += 1
            return
        tag = "a run" if run is None else run.program.tag
        self.model.ended(tag, got["status"], got["code"], got["error"])
        if run is not None:
            self.model.answered(tag, got["outputs"])
        self.model.completed(got["value"], whole)

    async def _patiently(self, answer: asyncio.Future[dict[str, Any]], run: _Run | None) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._orders.patience):
                return await answer
        except TimeoutError:
            await self._have_confess()
            raise Broken(f"a request about {run.program.tag if run else 'a run'} is not answered") from None

    def _open_more(self, run: _Run, chance: random.Random) -> None:
        run.waits += 1
        if run.waits > 4:
            self._open(run, ALL)
        elif chance.random() < 0.7:
            self._open(run, run.opened + chance.randint(1, 4))

    def _open(self, run: _Run, step: int) -> None:
        if step != run.opened:
            run.opened = step
            for process in self._alive:
                process.tell(do="open", tag=run.program.tag, step=step)

    def _look(self) -> None:
        self.model.take(self._ledger.new())


def on_sqlite(births: Nursery, folder: Path, engine_cache: Path, **orders: Any) -> Figures:
    path = folder / "store" / "runs.sqlite3"
    ordered = Orders(store=str(path), folder=folder, engine=engine_cache, **orders)
    return asyncio.run(Crashes(births, ordered, in_sqlite(path)).run())


def record(births: Nursery, folder: Path, engine_cache: Path, **orders: Any) -> Recorded:
    """Run a campaign, and keep its evidence."""
    figures = on_sqlite(births, folder, engine_cache, **orders)
    with closing(Ledger(folder / "ledger")) as ledger:
        lines = tuple(ledger.new())
    return Recorded(figures, lines, tuple(in_sqlite(folder / "store" / "runs.sqlite3").changes()))
