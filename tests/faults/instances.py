"""Clients of one shared instance, while the instance, relays and the upstream server are killed and stopped.

In each round, every client runs programs that make many calls at the same time. At random moments, processes get
signals. Then all clients finish. The promises:

- what programs and answers say of calls is true, as in `books`;
- each request of a client whose relay lives gets exactly one answer, and only with data of this client;
- a run that is stored, as an answer says, can be resumed, and completes;
- at the end, no process, socket or record is left.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.faults.books import Asked, Books, code_of
from tests.faults.campaign import Campaign
from tests.faults.client import Gone, LineClient, check
from tests.faults.histories import Broken
from tests.faults.rig import ledger_server

PATIENCE: Final = 300.0
"""Seconds after which a request that could have been answered is lost. The machine may have other work."""

END_SECONDS: Final = 120.0
"""Seconds for the relays, the instance and the upstream servers to end."""

FAULTS: Final = {
    ("instance", "kill"): 6,
    ("instance", "stop"): 3,
    ("instance", "end"): 3,
    ("relay", "kill"): 2,
    ("relay", "stop"): 2,
    ("relay", "end"): 1,
    ("upstream", "kill"): 2,
    ("upstream", "stop"): 1,
}
"""The faults and their weights: `kill` is SIGKILL, `end` is SIGTERM, `stop` is SIGSTOP with a later SIGCONT."""

MAX_REPEATS: Final = 30
"""Maximum number of requests for one program."""

BUSY_SECONDS: Final = 0.5
"""Pause before another request for a run that another process has. PostgreSQL's lease of a killed one must run out."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The options of a campaign.

    Attributes:
        store: the section `store` of the configuration.
        folder: an empty folder with a short path, since sockets are in it.
        engine_cache: a folder with the compiled engine.
        programs: programs that each client runs at the same time.
        calls: calls of all programs of a round. An upstream server gets at most 32 of each client at the same time.
        patience: see `PATIENCE`.
    """

    rounds: int
    seed: int
    store: Mapping[str, Any]
    folder: Path
    engine_cache: Path
    clients: int = 8
    programs: int = 4
    calls: int = 256
    patience: float = PATIENCE
    progress: bool = False


TOOLS: Final = ("append", "append", "put", "read")
DEADLINE_MS: Final = 400
"""Time limit of a request. Programs with slower calls are suspended while these are in flight."""

NO_CALL_SENT: Final = re.compile(
    r"None of (?:the program's|its) calls was sent|No call to a tool was sent|nothing of the program has run"
)
IS_STORED: Final = "The program is stored."
HAS_ENDED: Final = "The program itself has ended."
CONNECTION_CLOSED: Final = "Connection closed"
"""The answer to open requests of a client that leaves."""

UNKNOWN_RUN: Final = "there is no run "
BUSY_RUN: Final = re.compile(
    "another request is waiting for run|was taken over by another process|the store cannot be used now"
)
_RUN: Final = re.compile(r'call wait(?: again)? with runId "?([\w-]+)', re.IGNORECASE)


@dataclass(slots=True)
class Program:
    """A program of one client, and what the client knows about it.

    Attributes:
        name: unique; the keys of its calls begin with it.
        tools: the tool of each key.
        run: the id of its run.
        stored: the client was told that the run is stored, so it must not be lost.
        end: `completed`, or `unknown` if the run is lost and was never stored; empty before that.
        history: the answers so far.
    """

    name: str
    token: str
    code: str
    tools: dict[str, str]
    run: str | None = None
    stored: bool = False
    end: str = ""
    history: list[str] = field(default_factory=list)

    @property
    def request(self) -> dict[str, Any]:
        """The parameters of the next `tools/call` for this program."""
        if self.run is not None:
            return {"name": "wait", "arguments": {"runId": self.run}}
        return {"name": "exec", "arguments": {"code": self.code}}


def make_program(name: str, token: str, calls: int, chance: random.Random) -> Program:
    """Return a program with so many calls."""
    keys = [f"{name}/{number}" for number in range(calls)]
    tools = {key: chance.choice(TOOLS) for key in keys}
    rows: list[Asked] = [("box", tools[key], key, {"ms": chance.choice((0, 5, 50, 200, 600))}) for key in keys]
    first = chance.choice((calls, calls, calls // 2))
    phases = [rows[:first], rows[first:]] if first < calls else [rows]
    return Program(name, token, code_of(token, *phases), tools)


def named_run(text: str) -> str | None:
    """Return the id of the run that an error tells the client to wait for."""
    found = _RUN.search(text)
    return None if found is None else found[1]


VARIABLE: Final = "CODEMODE_CHAOS"


def processes_of(mark: str) -> dict[int, str]:
    """Return the command of each running process whose environment has the mark."""
    found = {}
    wanted = f"{VARIABLE}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
                if command:  # a process that has ended and was not waited for has none
                    found[int(entry.name)] = command
    return found


def send_signal(pid: int, number: int) -> bool:
    """Send a signal to a process. Return False if it has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def kill_all(mark: str) -> None:
    """Kill the processes of a campaign, after it has failed."""
    for pid in processes_of(mark):
        send_signal(pid, signal.SIGKILL)


class Instances(Campaign):
    """One campaign; see the module."""

    def __init__(self, orders: Orders) -> None:
        super().__init__(orders.seed, orders.rounds, progress=orders.progress)
        self._orders = orders
        self._home = orders.folder
        self._mark = f"{os.getpid()}-{orders.seed}-{time.monotonic_ns()}"
        self._config = self._home / "config.json"
        self._calls = Books(self._home / "ledger")
        self._clients: list[LineClient] = []
        self._programs: list[Program] = []

    async def _run(self) -> None:
        """Run all rounds, and end everything."""
        self._prepare()
        for number in range(self._orders.clients):
            self._clients.append(await self._start_client(number))
        for number in range(self._orders.rounds):
            await self._round(number)
            self.advance()
        await self._end()

    async def _close(self) -> None:
        kill_all(self._mark)
        for client in self._clients:
            client.ending = True
            await client.wait()
        self._calls.close()

    def _prepare(self) -> None:
        cache = self._home / "cache" / "codemode-mcp"
        cache.mkdir(parents=True, mode=0o700)
        for file in self._orders.engine_cache.iterdir():
            shutil.copy2(file, cache)  # the product does not follow a link
        for name in ("run", "config", "data", "state"):
            (self._home / name).mkdir(mode=0o700)
        box = ledger_server(self._home / "ledger", "box", env={VARIABLE: self._mark})
        document = {
            "mcpServers": {"box": box},
            "store": dict(self._orders.store),
            "instance": {"idleSeconds": 1},
            "tools": {"codeMode": {"maxPendingToolCalls": 1000, "timeoutMs": DEADLINE_MS}},
        }
        self._config.write_text(json.dumps(document), "utf-8")

    @property
    def _environ(self) -> dict[str, str]:
        folders = {f"XDG_{name.upper()}_HOME": str(self._home / name) for name in ("cache", "config", "data", "state")}
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("CODEMODE_MCP_")},
            **folders,
            "HOME": str(self._home),
            "XDG_RUNTIME_DIR": str(self._home / "run"),
            VARIABLE: self._mark,
        }

    async def _start_client(self, number: int) -> LineClient:
        token = f"client-{number}-{random.Random(f'{self._orders.seed} {number}').getrandbits(48):012x}"
        command = [sys.executable, "-m", "codemode_mcp", "serve", "--config", str(self._config)]
        stderr = self._home / f"relay-{number}.log"
        while True:
            try:
                async with asyncio.timeout(self._orders.patience):
                    return await LineClient.start(command, self._environ, token, stderr, modern=number % 2 == 1)
            except TimeoutError:
                raise Broken(f"client {number} could not be greeted: {stderr.read_text()[-1000:]}") from None

    # rounds

    async def _round(self, number: int) -> None:
        each = max(1, self._orders.calls // (self._orders.clients * self._orders.programs))
        self._programs = []
        work = []
        for index, client in enumerate(self._clients):
            for place in range(self._orders.programs):
                program = make_program(f"{client.token}/{number}-{place}", client.token, each, self.chance)
                self._programs.append(program)
                work.append(self._finish(index, program))
        faults = [self._draw_fault() for _ in range(self.chance.choice((1, 1, 1, 2, 2, 3)))]
        try:
            async with asyncio.timeout(self._orders.patience), asyncio.TaskGroup() as group:
                for task in (*work, *(self._cause(*fault) for fault in faults)):
                    group.create_task(task)
        except TimeoutError:
            raise Broken(f"round {number} did not end within {self._orders.patience:g} s") from None
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        self.note(f"round {number} ends")
        self._calls.check_unsent()
        for client in self._clients:
            check(client)
            if client.open_requests:
                raise Broken(f"{client.token} has no answer to {client.open_requests}")
        self._check_logs()

    def _draw_fault(self) -> tuple[str, str, float, float, float]:
        """Return whom a fault hits, what it is, after which share of calls, for how long, and a number that chooses."""
        ((who, what),) = self.chance.choices(list(FAULTS), list(FAULTS.values()))
        return who, what, self.chance.uniform(0, 0.9), self.chance.uniform(0.05, 1.5), self.chance.random()

    async def _cause(self, who: str, what: str, share: float, seconds: float, choice: float) -> None:
        await self._reach(share)
        match who:
            case "instance":
                pid = self._instance()
            case "upstream":
                self._calls.read()
                pid = self._calls.pids["box"][-1] if self._calls.pids["box"] else None
                if pid not in processes_of(self._mark):
                    pid = None
            case _:
                client = self._clients[int(choice * len(self._clients))]
                pid = client.pid
                client.ending = client.ending or what in ("kill", "end")
        if pid is None:
            self.figures.faults[f"{who} was away"] += 1
            return
        self.figures.faults[f"{who} {what}"] += 1
        self.note(f"{who} {pid}: {what}")
        match what:
            case "kill":
                send_signal(pid, signal.SIGKILL)
            case "end":
                send_signal(pid, signal.SIGTERM)
            case "stop":
                send_signal(pid, signal.SIGSTOP)
                try:
                    await asyncio.sleep(seconds)
                finally:
                    send_signal(pid, signal.SIGCONT)
                    self.note(f"{who} {pid}: continues")

    async def _reach(self, share: float) -> None:
        """Return when this share of the calls of the round is executed, or no program of it runs any more."""
        keys = [key for program in self._programs for key in program.tools]

        def is_reached() -> bool:
            return self._calls.count(keys) >= share * len(keys) or all(program.end for program in self._programs)

        while not is_reached():  # noqa: ASYNC110 - other processes set no events
            await asyncio.sleep(0.01)

    def _instance(self) -> int | None:
        """Return the process of the instance; None while there is none."""
        with suppress(OSError, ValueError):
            for record in (self._home / "cache" / "codemode-mcp" / "instance").glob("*.json"):
                pid = json.loads(record.read_text("utf-8"))["pid"]
                if pid in processes_of(self._mark):
                    return int(pid)
        return None

    # programs

    async def _finish(self, index: int, program: Program) -> None:
        """Run a program of a client to its end, as the answers advise, also behind another relay."""
        repeats = 0
        while repeats < MAX_REPEATS:
            repeats += 1
            client = self._clients[index]
            asked = program.request
            if asked["name"] == "exec":
                self._calls.forget_unsent(list(program.tools))
            try:
                answer = await client.request("tools/call", asked)
            except Gone:
                program.history.append(f"{self.now} relay {client.pid} has gone")
                self.figures.counts["requests of relays that have gone"] += 1
                await self._replace(index, client)
                if program.run is None:
                    program.end = "unknown"
                    return
                continue
            is_busy = self._take(client, program, answer)
            check(client)
            if is_busy:
                repeats -= 1
                await asyncio.sleep(BUSY_SECONDS)
            if program.end:
                self.figures.counts[f"programs {program.end}"] += 1
                return
        raise Broken(f"{program.name} did not end")

    async def _replace(self, index: int, client: LineClient) -> None:
        """Give a client another relay, once."""
        check(client)
        if client.replaced:
            await client.has_successor.wait()
            return
        client.replaced = True
        code = await client.wait()
        if code not in (0, -signal.SIGKILL, -signal.SIGTERM):  # the last: before it has attached
            raise Broken(f"the relay of {client.token} has ended with {code}")
        self._clients[index] = await self._start_client(index)
        client.has_successor.set()

    def _take(self, client: LineClient, program: Program, answer: dict[str, Any]) -> bool:
        """Check an answer, and note what the client knows from now on. Raises `Broken`.

        Return True if the run still belongs to another process, for example to a killed one with a lease, or if the
        store does not answer. The same request has to be made again.
        """
        program.history.append(f"{self.now} {json.dumps(answer)[:600]}")
        result = answer.get("result", {})
        told = result.get("structuredContent", {})
        match told.get("status"):
            case "completed":
                self._check_completed(program, told["value"])
                program.end = "completed"
                return False
            case "waiting":
                self.figures.counts["suspensions"] += 1
                if program.run not in (None, told["runId"]):
                    raise Broken(f"{program.name} is {program.run}, but {told['runId']} has answered")
                program.run, program.stored = told["runId"], True
                return False
        text = answer["error"]["message"] if "error" in answer else str(told.get("error", result))
        if BUSY_RUN.search(text):
            self.figures.counts["answers: not now"] += 1
            return True
        if told.get("code") == "timeout":  # the instance was stopped while the program computed
            program.end = "timed out"
            return False
        self._take_failure(client, program, text)
        return False

    def _take_failure(self, client: LineClient, program: Program, text: str) -> None:
        run = named_run(text)
        if run is not None and program.run not in (None, run):
            raise Broken(f"{program.name} is {program.run}, but an answer names {run}: {text}")
        if NO_CALL_SENT.search(text):
            if program.run is None:
                self._calls.note_unsent(list(program.tools), text)
            self.figures.counts["answers: no call was sent"] += 1
            program.run = run if program.run is None else program.run
            return
        if run is not None:
            stored = IS_STORED in text or HAS_ENDED in text
            self.figures.counts["answers: call wait" if stored else "answers: call wait, perhaps"] += 1
            program.run, program.stored = run, program.stored or stored
            return
        if client.ending and CONNECTION_CLOSED in text:
            program.end = "" if program.stored else "unknown"
            return
        if program.stored:
            raise Broken(f"{program.name} was stored, and now its client is told: {text}")
        if "results are unknown" not in text and UNKNOWN_RUN not in text:
            raise Broken(f"{program.name} has failed: {text}")
        program.end = "unknown"

    def _check_completed(self, program: Program, value: Any) -> None:
        if value.get("token") != program.token:
            raise Broken(f"{program.name} of {program.token} has got the value of another client: {value}")
        outcomes = value["outcomes"]
        self.figures.counts.update(f"calls {outcome}" for outcome, _ in outcomes.values())
        self._calls.check(program.tools, outcomes)

    # the end

    async def _end(self) -> None:
        """Let the clients leave, and check that nothing is left. Raises `Broken`."""
        for client in self._clients:
            try:
                code = await client.close(END_SECONDS)
            except TimeoutError:
                raise Broken(f"the relay {client.pid} of {client.token} does not end") from None
            check(client)
            if code != 0:
                raise Broken(f"the relay of {client.token} has ended with {code}")
        deadline = time.monotonic() + END_SECONDS
        while left := processes_of(self._mark):
            if time.monotonic() > deadline:
                raise Broken(f"processes are left: {left}")
            await asyncio.sleep(0.2)
        files = [path.name for path in (self._home / "cache" / "codemode-mcp" / "instance").iterdir()]
        if wrong := [name for name in files if not name.endswith((".life", ".lock", ".log"))]:
            raise Broken(f"files of the instance are left: {wrong}")
        if sockets := [path for path in self._home.rglob("*") if path.is_socket()]:
            raise Broken(f"sockets are left: {sockets}")
        self._calls.check_unsent()

    # evidence

    def _check_logs(self) -> None:
        """Raise `Broken` if a relay has written anything, or the instance has logged a fault."""
        for path in self._home.glob("relay-*.log"):
            if text := path.read_text("utf-8"):
                lines = [line for line in text.splitlines() if not self._is_expected(line)]
                if lines:
                    raise Broken(f"{path.name}: {lines[:10]}")
        for path in (self._home / "cache" / "codemode-mcp" / "instance").glob("*.log"):
            text = path.read_text("utf-8")
            if "Traceback" in text:
                raise Broken(f"the instance has logged a fault:\n{text[text.index('Traceback') - 500 :][:5000]}")

    def _is_expected(self, line: str) -> bool:
        return " WARNING " in line or " INFO " in line or "warning" in line.lower()

    def _evidence(self, text: str) -> list[str]:
        found = ["last faults:", *self.events[-12:]]
        for program in self._programs:
            if program.name in text or (text.startswith("round ") and not program.end):
                found += [f"{program.name} ({program.run}, stored: {program.stored})", *program.history[-8:]]
        for client in self._clients:
            if client.open_requests:
                found.append(f"relay {client.pid} of {client.token} has no answer to {client.open_requests}")
        for path in (self._home / "cache" / "codemode-mcp" / "instance").glob("*.log"):
            found.append(path.read_text("utf-8")[-6000:])
        return found
