"""Clients of one shared instance, while the instance, relays and the upstream server are killed and stopped.

In each round, every client runs programs that make many calls at the same time. At random moments, processes get
signals. Then all clients finish. The promises:

- a call that must not be repeated is executed once at most;
- a call that succeeded for its program is in the ledger of the upstream server, with the same serial number;
- a call that was not sent, as an answer says, is not in the ledger;
- each request of a client whose relay lives gets exactly one answer, and only with data of this client;
- a run that is stored, as an answer says, can be resumed, and completes;
- at the end, no process, socket or record is left.

Two campaigns with the same seed run the same programs and send the same signals, but not at the same moments.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.chaos_instance.client import Gone, RelayClient, check
from tests.chaos_instance.processes import VARIABLE, kill_all, processes_of, send_signal
from tests.chaos_instance.programs import (
    BUSY_RUN,
    CONNECTION_CLOSED,
    DEADLINE_MS,
    HAS_ENDED,
    IS_STORED,
    NO_CALL_SENT,
    UNKNOWN_RUN,
    Program,
    make_program,
    named_run,
)
from tests.crashes.histories import Broken
from tests.crashes.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Mapping

UPSTREAM: Final = Path(__file__).with_name("upstream.py")
PATIENCE: Final = 90.0
"""Seconds after which a request that could have been answered is lost. The machine may have other work."""

END_SECONDS: Final = 40.0
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


@dataclass(slots=True)
class Figures:
    """The numbers of what has happened in campaigns."""

    rounds: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def __add__(self, other: Figures) -> Figures:
        counts, faults = self.counts + other.counts, self.faults + other.faults
        return Figures(self.rounds + other.rounds, counts, faults, self.seconds + other.seconds)

    def __str__(self) -> str:
        def listed(counter: Counter[str]) -> str:
            return ", ".join(f"{name} {count}" for name, count in sorted(counter.items()))

        return f"{self.rounds} rounds in {self.seconds:.0f} s; {listed(self.counts)}; faults: {listed(self.faults)}"


class Calls:
    """The executed calls by the ledger, and the statements about calls, which must agree with it."""

    def __init__(self, path: Path) -> None:
        self._ledger = Ledger(path)
        self._executed: dict[str, list[tuple[str, str]]] = defaultdict(list)  # tool and serial number, by key
        self._unsent: dict[str, str] = {}
        self.upstreams: list[int] = []

    def read(self) -> None:
        """Take the new lines of the ledger. Raises `Broken` if a call was executed again."""
        for line in self._ledger.new():
            if line["what"] == "started":
                self.upstreams.append(line["pid"])
                continue
            key, executed = line["key"], self._executed[line["key"]]
            executed.append((line["tool"], line["serial"]))
            if line["tool"] == "append" and len(executed) > 1:
                raise Broken(f"{key} was executed more than once: {executed}")

    def check_unsent(self) -> None:
        """Raise `Broken` if a call was executed that was not sent, as an answer says."""
        self.read()
        for key, text in self._unsent.items():
            if key in self._executed:
                raise Broken(f"{key} was not sent, says {text!r}, but it was executed: {self._executed[key]}")

    def note_unsent(self, keys: list[str], text: str) -> None:
        """Note an answer that says that calls were not sent."""
        self._unsent.update(dict.fromkeys(keys, text))
        self.check_unsent()

    def forget_unsent(self, keys: list[str]) -> None:
        """Note that calls may be sent from now on."""
        for key in keys:
            self._unsent.pop(key, None)

    def check_outcome(self, key: str, tool: str, outcome: str, told: str) -> None:
        """Compare the outcome of a call that its program has seen with the ledger. Raises `Broken`."""
        executed = self._executed.get(key, [])
        if outcome == "done" and (tool, told) not in executed:
            raise Broken(f"{tool} {key} has succeeded with {told}, but the ledger has {executed}")
        if outcome == "not sent" and tool == "append":
            # A call that may be repeated may have been sent before an instance was killed, and not again.
            self.note_unsent([key], told)
        if outcome == "?":
            raise Broken(f"{tool} {key} has failed in an unexpected way: {told}")

    def close(self) -> None:
        self._ledger.close()


class Campaign:
    """One campaign; see the module."""

    def __init__(self, orders: Orders) -> None:
        self.figures = Figures()
        self._orders = orders
        self._chance = random.Random(orders.seed)
        self._home = orders.folder
        self._mark = f"{os.getpid()}-{orders.seed}-{time.monotonic_ns()}"
        self._config = self._home / "config.json"
        self._calls = Calls(self._home / "ledger")
        self._clients: list[RelayClient] = []
        self._programs: list[Program] = []
        self._stopped: set[int] = set()
        self._events: list[str] = []
        self._began = time.monotonic()

    async def run(self) -> None:
        """Run all rounds, and end everything. Raises `Broken`."""
        self._prepare()
        try:
            for number in range(self._orders.clients):
                self._clients.append(await self._start_client(number))
            for number in range(self._orders.rounds):
                await self._round(number)
                self.figures.rounds += 1
                if self._orders.progress:
                    print(f"\r{number + 1} of {self._orders.rounds}", end="", file=sys.stderr, flush=True)
            await self._end()
        except Broken as broken:
            for line in self._evidence(str(broken)):
                broken.add_note(line)
            raise
        finally:
            self.figures.seconds = time.monotonic() - self._began
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
        box = {
            "command": sys.executable,
            "args": ["-S", "-E", str(UPSTREAM), str(self._home / "ledger")],
            "env": {VARIABLE: self._mark},
        }
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

    async def _start_client(self, number: int) -> RelayClient:
        token = f"client-{number}-{random.Random(f'{self._orders.seed} {number}').getrandbits(48):012x}"
        command = [sys.executable, "-m", "codemode_mcp", "serve", "--config", str(self._config)]
        stderr = self._home / f"relay-{number}.log"
        while True:
            try:
                async with asyncio.timeout(self._orders.patience):
                    return await RelayClient.start(command, self._environ, token, stderr, modern=number % 2 == 1)
            except TimeoutError:
                raise Broken(f"client {number} could not be greeted: {stderr.read_text()[-1000:]}") from None

    # rounds

    async def _round(self, number: int) -> None:
        each = max(1, self._orders.calls // (self._orders.clients * self._orders.programs))
        self._programs = []
        work = []
        for index, client in enumerate(self._clients):
            for place in range(self._orders.programs):
                program = make_program(f"{client.token}/{number}-{place}", client.token, each, self._chance)
                self._programs.append(program)
                work.append(self._finish(index, program))
        faults = [self._draw_fault() for _ in range(self._chance.choice((1, 1, 1, 2, 2, 3)))]
        try:
            async with asyncio.timeout(self._orders.patience), asyncio.TaskGroup() as group:
                for task in (*work, *(self._cause(*fault) for fault in faults)):
                    group.create_task(task)
        except TimeoutError:
            raise Broken(f"round {number} did not end within {self._orders.patience:g} s") from None
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        self._note(f"round {number} ends")
        self._calls.check_unsent()
        for client in self._clients:
            check(client)
            if client.open_requests:
                raise Broken(f"{client.token} has no answer to {client.open_requests}")
        self._check_logs()

    def _draw_fault(self) -> tuple[str, str, float, float, float]:
        """Return whom a fault hits, what it is, when, for how long, and a number that chooses among several."""
        ((who, what),) = self._chance.choices(list(FAULTS), list(FAULTS.values()))
        return who, what, self._chance.uniform(0, 1.5), self._chance.uniform(0.05, 1.5), self._chance.random()

    async def _cause(self, who: str, what: str, after: float, seconds: float, choice: float) -> None:
        await asyncio.sleep(after)
        match who:
            case "instance":
                pid = self._instance()
            case "upstream":
                self._calls.read()
                pid = self._calls.upstreams[-1] if self._calls.upstreams else None
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
        self._note(f"{who} {pid}: {what}")
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
                    self._note(f"{who} {pid}: continues")

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
                program.history.append(f"{time.monotonic() - self._began:.2f} relay {client.pid} has gone")
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

    async def _replace(self, index: int, client: RelayClient) -> None:
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

    def _take(self, client: RelayClient, program: Program, answer: dict[str, Any]) -> bool:
        """Check an answer, and note what the client knows from now on. Raises `Broken`.

        Return True if the run still belongs to another process, for example to a killed one with a lease, or if the
        store does not answer. The same request has to be made again.
        """
        program.history.append(f"{time.monotonic() - self._began:.2f} {json.dumps(answer)[:600]}")
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

    def _take_failure(self, client: RelayClient, program: Program, text: str) -> None:
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
        if outcomes.keys() != program.tools.keys():
            raise Broken(f"{program.name} has made {list(program.tools)}, and has outcomes of {list(outcomes)}")
        self._calls.read()
        for key, (outcome, told) in outcomes.items():
            self.figures.counts[f"calls {outcome}"] += 1
            self._calls.check_outcome(key, program.tools[key], outcome, told)

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

    def _note(self, event: str) -> None:
        self._events.append(f"{time.monotonic() - self._began:.2f} {event}")

    def _evidence(self, text: str) -> list[str]:
        found = ["last faults:", *self._events[-12:]]
        for program in self._programs:
            if program.name in text or (text.startswith("round ") and not program.end):
                found += [f"{program.name} ({program.run}, stored: {program.stored})", *program.history[-8:]]
        for client in self._clients:
            if client.open_requests:
                found.append(f"relay {client.pid} of {client.token} has no answer to {client.open_requests}")
        for path in (self._home / "cache" / "codemode-mcp" / "instance").glob("*.log"):
            found.append(path.read_text("utf-8")[-6000:])
        return found


async def campaign(orders: Orders) -> Figures:
    """Run a campaign. Raises `Broken`."""
    campaign = Campaign(orders)
    await campaign.run()
    return campaign.figures
