"""`codemode-mcp serve` between a client and servers that misbehave, with the books of every call.

The servers write what they do into one ledger. Each program is checked as soon as it has ended, all
again at the end.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Self

import anyio

from tests.faults.books import Asked, Books, code_of
from tests.faults.client import LineClient, check
from tests.faults.proxy import Proxy
from tests.integration.harness import CODE_MODE_RESULT, is_running, until, write_config
from tests.sdk_servers import SdkServer

SERVERS = Path(__file__).resolve().parent / "servers"
SECONDS = 240
"""Seconds that a program may take, also if its calls fail, on a machine with other work."""
CONCURRENT = 128
CALL_MS = 1000
"""`timeoutMs` of servers that are made to hang."""
HASTY = "Hasty"
"""Suffix of the name of a server that is configured again, with that timeout."""
NETWORK: Final = {"modern": (), "legacy": ("--legacy",), "sse": ("--sse",)}
"""The servers over HTTP, by the kind of their transport."""
STREAMS: Final = ("legacy", "sse")
"""Those of which a client keeps a stream open."""


@dataclass
class Job:
    """One program: its calls and, once it has ended, the outcome that it saw of each."""

    asked: list[Asked]
    outcomes: dict[str, tuple[str, str]] | None = None
    """`done` with the serial number; `unknown`, `not sent` or `?` with the error."""
    ended: anyio.Event = field(default_factory=anyio.Event)

    @property
    def tools(self) -> dict[str, str]:
        return {key: tool for _, tool, key, _ in self.asked}

    @property
    def ends(self) -> Counter[str]:
        assert self.outcomes is not None
        return Counter(end for end, _ in self.outcomes.values())

    @property
    def errors(self) -> set[str]:
        assert self.outcomes is not None
        return {text for end, text in self.outcomes.values() if end != "done"}


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

    def most(self, other: Footprint) -> Footprint:
        """Return the larger number of each resource."""
        pairs = ((getattr(self, each.name), getattr(other, each.name)) for each in fields(self))
        return Footprint(*(dict(Counter(a) | Counter(b)) if isinstance(a, dict) else max(a, b) for a, b in pairs))

    def is_within(self, rest: Footprint, more_sockets: int) -> bool:
        return (
            self.sockets <= rest.sockets + more_sockets
            and self.other_fds <= rest.other_fds
            and self.children <= rest.children
            and sum(self.tasks.values()) <= sum(rest.tasks.values())
        )


class Rig:
    """A server under test, and the servers behind it."""

    def __init__(self, client: LineClient, folder: Path, books: Books) -> None:
        self.books = books
        self.pid = client.pid
        self.jobs: list[Job] = []
        self._client = client
        self._tasks = folder / "tasks"
        self._ids = itertools.count(1)

    # Programs.

    def job(self, server: str, calls: int, how: str | Callable[[int], str] = "now", *, beacon: str = "") -> Job:
        """Make a program of concurrent calls of one server; `beacon` is called behind the first hundred of them.

        When the beacon has been called, those before it have left for their server.
        """
        ways = (how if isinstance(how, str) else how(i) for i in range(calls))
        asked: list[Asked] = [(server, "append", f"{server}-{next(self._ids)}", {"how": way}) for way in ways]
        if beacon:
            asked.insert(100, (beacon, "append", f"beacon-{next(self._ids)}", {}))
        return self.add(asked)

    def add(self, asked: list[Asked]) -> Job:
        job = Job(asked)
        self.jobs.append(job)
        return job

    async def run(self, job: Job) -> Job:
        """Run the program to its end, and check its calls immediately."""
        request = {"name": "exec", "arguments": {"code": code_of("", job.asked)}}
        with anyio.fail_after(SECONDS):
            while True:
                answer = await self._client.request("tools/call", request)
                told = answer["result"]["structuredContent"]
                CODE_MODE_RESULT.validate(told)
                if told["status"] != "waiting":
                    break
                request = {"name": "wait", "arguments": {"runId": told["runId"]}}
        check(self._client)
        assert told["status"] == "completed", told
        job.outcomes = {key: (end, text) for key, (end, text) in told["value"]["outcomes"].items()}
        job.ended.set()
        self.books.check(job.tools, job.outcomes)
        return job

    async def works(self, *servers: str) -> None:
        """Call each server until it answers, since a restart takes a moment."""
        for server in servers:
            said: set[str] = set()
            with anyio.move_on_after(SECONDS) as scope:
                while not (job := await self.run(self.job(server, 1))).ends["done"]:
                    said |= job.errors
                    await anyio.sleep(0.05)
            assert not scope.cancelled_caught, f"{server} does not come back: {said}"

    def pid_of(self, server: str) -> int:
        """Return the latest process of a server."""
        self.books.read()
        return self.books.pids[server][-1]

    def signal(self, server: str, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # killed before, and not started again yet
            os.kill(self.pid_of(server), number)

    def done(self, *jobs: Job) -> int:
        """Return the number of calls of these programs that were done so far."""
        return self.books.count(key for job in jobs for key in job.tools)

    async def until_done(self, job: Job, calls: int) -> None:
        await until(lambda: self.done(job) >= calls)

    async def until_begun(self, job: Job, how: str) -> None:
        """Return when all its calls with this kind of answer have reached their server."""
        keys = [key for _, _, key, more in job.asked if more.get("how") == how]
        await until(lambda: self.books.count(keys) == len(keys))

    async def until_cancelled(self, server: str, keys: set[str]) -> None:
        """Return when a server was told to cancel these calls."""

        def all_cancelled() -> bool:
            self.books.read()
            return keys <= self.books.cancelled[server]

        await until(all_cancelled)

    async def until_streams_are_open(self) -> None:
        """Return when the client has its streams: a server answers before its stream is open again."""

        def all_open() -> bool:
            self.books.read()
            return all(self.books.streams[server] > 0 for server in STREAMS)

        await until(all_open)

    @asynccontextmanager
    async def running(self, *jobs: Job) -> AsyncIterator[anyio.CancelScope]:
        """Run programs during the context, and until they have ended. Yield the scope that cancels them."""
        async with anyio.create_task_group() as tasks:
            for job in jobs:
                tasks.start_soon(self.run, job)
            yield tasks.cancel_scope

    # The process.

    async def footprint(self) -> Footprint:
        lines = self._tasks.read_text("utf-8").splitlines()
        os.kill(self.pid, signal.SIGUSR1)
        await until(lambda: self._tasks.read_text("utf-8").count("\n") > len(lines))
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

    async def settled(self) -> Footprint:
        """Return what the process holds once that has been the same for a second: late exchanges have ended."""
        now, same = await self.footprint(), 0
        with anyio.move_on_after(SECONDS / 2):
            while same < 5:
                await anyio.sleep(0.2)
                last, now = now, await self.footprint()
                same = same + 1 if (now.tasks, now.sockets) == (last.tasks, last.sockets) else 0
        return now

    async def until_at_rest(self, rest: Footprint, *, more_sockets: int = 0) -> Footprint:
        """Return once the process has no more resources than before. Fail with a list of those that are left."""
        now = await self.footprint()
        with anyio.move_on_after(SECONDS / 2):
            while not now.is_within(rest, more_sockets):
                await anyio.sleep(0.1)
                now = await self.footprint()
        assert now.is_within(rest, more_sockets), f"left behind:\n{now}\nat rest there was\n{rest}"
        return now


def descendants(pid: int) -> list[int]:
    """Return the processes below `pid`."""
    found = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                for child in (task / "children").read_text("utf-8").split():
                    found += [int(child), *descendants(int(child))]
    return found


def without_processor(pid: int) -> float:
    """Return the seconds that the main thread of a process has waited for a processor; 0 where none are counted."""
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text("utf-8").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def ledger_server(ledger: Path, name: str, *flags: str, **more: Any) -> dict[str, Any]:
    """Return the entry of a stdio server."""
    script = str(SERVERS / "ledger_server.py")
    return {"command": sys.executable, "args": ["-S", "-E", script, str(ledger), name, *flags], **more}


@asynccontextmanager
async def rig(folder: Path, servers: dict[str, Any], *, tried: tuple[str, ...]) -> AsyncIterator[Rig]:
    """Yield the server with these upstreams, some of which are tried once. In the end nothing of it may be left."""
    limits = {"maxPendingToolCalls": CONCURRENT, "maxOutputBytes": 10_000_000}
    entries = {name: {"maxConcurrentCalls": CONCURRENT, **entry} for name, entry in servers.items()}
    config = write_config(folder, entries, codeMode=limits)
    stderr = folder / "stderr"
    watched = [str(SERVERS / "watched_serve.py"), str(folder / "tasks"), "serve", "--private", "--config", str(config)]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    client = await LineClient.start([sys.executable, *watched], environ, "rig", stderr, modern=True)
    started = Rig(client, folder, Books(folder / "ledger"))
    try:
        await client.request("tools/list", {})
        await started.works(*tried)
        yield started
        below = descendants(started.pid)
        assert await client.close(SECONDS) == 0
    finally:
        with suppress(ProcessLookupError):
            client.ending = True
            client.process.kill()
        await client.wait()
    try:
        await until(lambda: not any(is_running(pid) for pid in below))
    finally:
        for pid in filter(is_running, below):
            os.kill(pid, signal.SIGKILL)
    check(client)
    # A late call may have been done meanwhile.
    started.books.check_asked({key for job in started.jobs for key in job.tools})
    started.books.close()
    said = stderr.read_text("utf-8", "replace")
    for words in ("Traceback", "never retrieved", "was destroyed but it is pending", "in an unexpected way"):
        assert words not in said, said[-8000:]


class Remote(SdkServer):
    """A process of `servers/http_server.py` and the line to it, whose ports stay the same after restarts."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._weather = folder / f"{name}.weather"
        flags = (str(folder / "ledger"), name, str(self._weather), *NETWORK[name])
        super().__init__(SERVERS / "http_server.py", *flags)
        self.line = Proxy(self.port)

    async def __aenter__(self) -> Self:
        await self.start()
        await self.line.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.line.close()
            await self.kill()

    @property
    def entry(self) -> dict[str, Any]:
        return {"type": "sse" if self.name == "sse" else "http", "url": f"http://127.0.0.1:{self.line.port}/mcp"}

    def weather(self, words: str) -> None:
        """Set what happens to requests from now on."""
        new = self._weather.with_suffix(".new")
        new.write_text(words, "utf-8")
        new.replace(self._weather)

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    async def repair(self) -> None:
        if self._pid is None:
            await self.start()
        self.send_signal(signal.SIGCONT)
        self.weather("")
        self.line.line("good")
        await self.line.accept()


@asynccontextmanager
async def remotes(folder: Path) -> AsyncIterator[dict[str, Remote]]:
    """Run one server of each kind of transport."""
    async with AsyncExitStack() as stack:
        yield {name: await stack.enter_async_context(Remote(folder, name)) for name in NETWORK}
