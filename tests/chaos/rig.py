"""`codemode-mcp serve` between a client and servers that misbehave, and the books: what was asked, done and answered.

Every call has an id of its own. What a program was told of a call is held against what the servers wrote into their
ledgers: a call has one outcome; one that was answered was done once; one that failed with `dispatched: false` was never
done; none was done twice, and nothing was done that no program had asked for.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.integration.harness import Answer, checked, is_running, until, write_config
from tests.sdk_servers import SdkServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


SERVERS = Path(__file__).resolve().parent / "servers"
SECONDS = 60
"""Seconds that a program may take, also if its calls fail."""
CONCURRENT = 128
CALL_MS = 1000
"""`timeoutMs` of servers that are made to hang."""
HASTY = "Hasty"
"""Suffix of the name of a server that is configured again, with that timeout."""

PROGRAM = """
const asked = %s;
const call = ([server, id, how]) => MCP[server].act({ id, how }).then((result) => result.content[0].text);
const outcomes = await Promise.allSettled(asked.map(call));
return outcomes.map((o) => o.status === "fulfilled"
  ? ["done", o.value]
  : [o.reason?.data?.dispatched === true ? "unknown" : o.reason?.data?.dispatched === false ? "not sent" : "?",
     String(o.reason?.message)]);
"""


@dataclass
class Job:
    """One program: its calls and, once it has ended, the outcome that it saw of each."""

    asked: list[tuple[str, str, str]]
    """Server, id of the call, and the requested kind of answer."""
    outcomes: list[tuple[str, str]] | None = None
    """`done` with the answer's text; `unknown`, `not sent` or `?` with the error."""
    answer: Answer | None = None
    ended: anyio.Event = field(default_factory=anyio.Event)

    @property
    def ends(self) -> Counter[str]:
        assert self.outcomes is not None, self.answer
        return Counter(end for end, _ in self.outcomes)

    @property
    def errors(self) -> set[str]:
        assert self.outcomes is not None
        return {text for end, text in self.outcomes if end != "done"}


@dataclass(frozen=True)
class Footprint:
    """Resources that the process of the server holds."""

    sockets: int
    other_fds: int
    threads: int
    children: int
    tasks: dict[str, int]
    resident: int
    """Bytes."""


class Rig:
    """A server under test, the servers behind it, and their ledgers."""

    def __init__(self, client: Client, folder: Path, tasks: Path, stderr: Path) -> None:
        self.client = client
        self.folder = folder
        self._tasks = tasks
        self._stderr = stderr
        self.pid: int = json.loads(tasks.read_text("utf-8").splitlines()[0])["pid"]
        self.jobs: list[Job] = []
        self._ids = itertools.count(1)

    # Programs.

    def job(self, server: str, calls: int, how: str | Callable[[int], str] = "now", *, beacon: str = "") -> Job:
        """Make a program of concurrent calls of one server; `beacon` is called behind the first hundred of them.

        When the beacon has been called, those before it have left for their server.
        """
        names = (f"{server}-{next(self._ids)}" for _ in range(calls))
        asked = [(server, name, how if isinstance(how, str) else how(i)) for i, name in enumerate(names)]
        if beacon:
            asked.insert(100, (beacon, f"beacon-{next(self._ids)}", "now"))
        return self.add(asked)

    def add(self, asked: list[tuple[str, str, str]]) -> Job:
        job = Job(asked)
        self.jobs.append(job)
        return job

    async def run(self, job: Job) -> Job:
        """Run the program to its end, and check its calls immediately."""
        code = PROGRAM % json.dumps(job.asked)
        with anyio.fail_after(SECONDS):
            answer = checked(await self.client.call_tool("exec", {"code": code}))
            while answer.status == "waiting":
                answer = checked(await self.client.call_tool("wait", {"runId": answer.run_id}))
        job.answer = answer
        job.outcomes = [(end, text) for end, text in answer.value]
        job.ended.set()
        self.audit(job)
        return job

    async def works(self, server: str) -> None:
        """Call a server until it answers, since a restart takes a moment."""
        said: set[str] = set()
        with anyio.move_on_after(SECONDS / 2):
            while True:
                job = await self.run(self.job(server, 1))
                if job.ends["done"]:
                    return
                said |= job.errors
                await anyio.sleep(0.05)
        raise AssertionError(f"{server} does not come back: {said}")

    # Ledgers.

    def ledger(self, server: str) -> Path:
        """Return the ledger of a server. A server that is configured twice has one ledger."""
        return self.folder / f"{server.removesuffix(HASTY)}.ledger"

    def lines(self, server: str, kind: str) -> list[str]:
        path = self.ledger(server)
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{kind} ")]

    def pid_of(self, server: str) -> int:
        """Return the latest process of a server."""
        return int(self.lines(server, "pid")[-1])

    def done(self, job: Job) -> int:
        """Return the number of a program's calls that were done so far."""
        acted = {server: set(self.lines(server, "act")) for server in {server for server, _, _ in job.asked}}
        return sum(name in acted[server] for server, name, _ in job.asked)

    async def until_done(self, job: Job, calls: int) -> None:
        await until(lambda: self.done(job) >= calls)

    async def until_begun(self, job: Job, how: str) -> None:
        """Return when all its calls with this kind of answer have reached their server."""
        for server in {server for server, _, _ in job.asked}:
            names = {name for where, name, its in job.asked if (where, its) == (server, how)}
            await until(lambda server=server, names=names: names <= set(self.lines(server, "act")))

    def audit(self, *jobs: Job) -> None:
        """Compare the outcomes that programs saw with the ledgers."""
        servers = {server for job in jobs for server, _, _ in job.asked}
        acts = {server: Counter(self.lines(server, "act")) for server in servers}
        for job in jobs:
            if job.outcomes is None:
                continue
            assert len(job.outcomes) == len(job.asked)
            for (server, name, how), (end, text) in zip(job.asked, job.outcomes, strict=True):
                times = acts[server][name]
                what = f"call {name} ({how}) was done {times} times; the program was told: {end}: {text}"
                match end:
                    case "done":
                        assert (times, text) == (1, name), what
                    case "unknown":
                        assert times <= 1, what
                    case _:
                        assert (times, end) == (0, "not sent"), what

    def audit_all(self) -> None:
        """Compare again at the end, since a late call may have been done meanwhile."""
        self.audit(*self.jobs)
        asked = Counter(name for job in self.jobs for _, name, _ in job.asked)
        for server in {server for job in self.jobs for server, _, _ in job.asked}:
            for name, times in Counter(self.lines(server, "act")).items():
                assert times <= asked[name], f"call {name} was done {times} times"

    # The process.

    async def footprint(self) -> Footprint:
        before = len(self._tasks.read_text("utf-8").splitlines())
        os.kill(self.pid, signal.SIGUSR1)
        await until(lambda: len(self._tasks.read_text("utf-8").splitlines()) > before)
        return self._footprint(json.loads(self._tasks.read_text("utf-8").splitlines()[-1])["tasks"])

    def _footprint(self, tasks: dict[str, int]) -> Footprint:
        targets = []
        for fd in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(OSError):
                targets.append(str(fd.readlink()))
        sockets = sum(target.startswith("socket:") for target in targets)
        status = Path(f"/proc/{self.pid}/status").read_text("utf-8").splitlines()
        resident = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))
        threads = len(list(Path(f"/proc/{self.pid}/task").iterdir()))
        children = sum(is_running(pid) for pid in descendants(self.pid))
        return Footprint(sockets, len(targets) - sockets, threads, children, tasks, resident)

    async def until_at_rest(self, rest: Footprint, *, more_sockets: int = 0) -> Footprint:
        """Return once the process has no more resources than before. Fail with a list of those that are left."""
        now = await self.footprint()
        with anyio.move_on_after(20):
            while not _within(now, rest, more_sockets):
                await anyio.sleep(0.1)
                now = await self.footprint()
        assert _within(now, rest, more_sockets), f"left behind:\n{now}\nat rest there was\n{rest}"
        return now

    @property
    def stderr(self) -> str:
        return self._stderr.read_text("utf-8", "replace")


def _within(now: Footprint, rest: Footprint, more_sockets: int) -> bool:
    return (
        now.sockets <= rest.sockets + more_sockets
        and now.other_fds <= rest.other_fds
        and now.children <= rest.children
        and sum(now.tasks.values()) <= sum(rest.tasks.values())
    )


def descendants(pid: int) -> list[int]:
    """Return the processes below `pid`."""
    found = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                for child in (task / "children").read_text("utf-8").split():
                    found += [int(child), *descendants(int(child))]
    return found


def stdio(folder: Path, name: str, *flags: str, **more: Any) -> dict[str, Any]:
    """Return the entry of a stdio server with a ledger."""
    script = str(SERVERS / "stdio_server.py")
    return {"command": sys.executable, "args": [script, str(folder / f"{name}.ledger"), *flags], **more}


@asynccontextmanager
async def rig(folder: Path, servers: dict[str, Any], **code_mode: Any) -> AsyncIterator[Rig]:
    """Yield the server with these upstreams, each of which has been tried once. In the end nothing of it may be
    left."""
    limits = {"maxPendingToolCalls": CONCURRENT, "maxOutputBytes": 10_000_000, **code_mode}
    entries = {name: {"maxConcurrentCalls": CONCURRENT, **entry} for name, entry in servers.items()}
    config = write_config(folder, entries, codeMode=limits)
    tasks, stderr = folder / "tasks", folder / "stderr"
    with stderr.open("w", encoding="utf-8") as errlog:
        parameters = StdioServerParameters(
            command=sys.executable,
            args=[str(SERVERS / "watched_serve.py"), str(tasks), "serve", "--private", "--config", str(config)],
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            cwd=folder,
        )
        async with Client(stdio_client(parameters, errlog=errlog)) as client:
            started = Rig(client, folder, tasks, stderr)
            yield started
            below = descendants(started.pid)
    await until(lambda: not is_running(started.pid))
    try:
        await until(lambda: not any(is_running(pid) for pid in below))
    finally:
        for pid in filter(is_running, below):
            os.kill(pid, signal.SIGKILL)
    started.audit_all()
    for words in ("Traceback", "never retrieved", "was destroyed but it is pending", "in an unexpected way"):
        assert words not in started.stderr, started.stderr[-8000:]


class HttpServer(SdkServer):
    """A process of `servers/http_server.py`, on a port that stays the same after restarts. An async context manager."""

    def __init__(self, folder: Path, name: str, *flags: str) -> None:
        self._weather = folder / f"{name}.weather"
        super().__init__(SERVERS / "http_server.py", str(folder / f"{name}.ledger"), str(self._weather), *flags)

    async def __aenter__(self) -> HttpServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.kill()

    def weather(self, words: str) -> None:
        new = self._weather.with_suffix(".new")
        new.write_text(words, "utf-8")
        new.replace(self._weather)

    async def restart(self) -> None:
        await self.kill()
        await self.start()
