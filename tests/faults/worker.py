"""A process under test: the real manager, dispatcher, sandbox and store over made-up tools; and the parent of them all.

A process is commanded by lines of JSON on a socket, and dies where its `Task` says. The parent forks them: it has
imported everything, and has no thread, no event loop and no engine. On its socket come lines of JSON, each answered by
the id of a process: a `Task`, with the socket of the new process, or the id of one that is ending. Until then no other
process has that id."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Collection, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.base.settings import CodeModeSettings, PolicyRules, ToolSettings
from codemode_mcp.base.strict_json import json_text
from codemode_mcp.catalog.catalog import Catalog
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.rules.policy.policy import Caller, Policy
from codemode_mcp.runs import driver
from codemode_mcp.runs.calls.dispatch import Dispatcher
from codemode_mcp.runs.calls.outcome import Outcome
from codemode_mcp.runs.guests import Guests
from codemode_mcp.runs.manager import Cell, RunManager, Services, open_manager
from codemode_mcp.sandbox.engine import Engine, open_engine
from codemode_mcp.sandbox.guest import Guest
from codemode_mcp.stores import postgres
from codemode_mcp.stores.postgres import open_postgres
from codemode_mcp.stores.runs import DurableStore
from codemode_mcp.stores.schema import Lease
from codemode_mcp.stores.seal import Seal
from codemode_mcp.stores.sqlite import open_sqlite
from codemode_mcp.stores.values import StoredValues
from tests.faults.instruments import Points, sabotage, watch_states, wrap
from tests.faults.servers.ledger import Ledger
from upstream_clients.errors import UpstreamCallError
from upstream_clients.tools import (
    AdmitFn,
    Annotations,
    Asking,
    BeginFn,
    JsonObject,
    ProgressFn,
    SentFn,
    TaskOptions,
    Tool,
    ToolOutcome,
    UpstreamView,
)

OWNER = "somebody"
CALLER = Caller(OWNER)

TIMEOUT_MS = 100
"""Timeout of one request: short, so that programs are suspended often."""

LEASE = Lease(valid=1.5, every=0.3, margin=0.3)

SCHEMA = {
    "type": "object",
    "properties": {"key": {"type": "string"}, "step": {"type": "integer"}, "past": {"type": "integer"}},
    "required": ["key", "step", "past"],
}


@dataclass(frozen=True, slots=True)
class Task:
    """The task of a process.

    Attributes:
        store: path of a file, or URL of PostgreSQL.
        point, count: where it is killed, see `Points`.
        broken: what is broken in the product, see `sabotage`.
    """

    store: str
    ledger: str
    engine: str
    point: str = ""
    count: int = 1
    broken: str = ""
    opened: dict[str, int] = field(default_factory=dict)


class Box:
    """The tools, as far as they are in this process; what they have done is in the ledger.

    A slow one answers when it is told to: `opened` has for the tag of a program up to which step. `task_append` and
    `task_put` are slow too, but calls of them are answered with tasks, which any process can follow.
    """

    name = "box"

    def __init__(self, ledger: Ledger, points: Points, opened: dict[str, int]) -> None:
        self._ledger = ledger
        self._points = points
        self._opened = opened
        self._change = anyio.Event()
        reads, repeats = Annotations(read_only=True), Annotations(idempotent=True)
        plain = Annotations()
        self._view = UpstreamView(
            self.name,
            "ready",
            era="modern",
            tools=tuple(
                Tool(name, input_schema=SCHEMA, annotations=annotations)
                for name, annotations in (
                    ("append", plain),
                    ("slow_append", plain),
                    ("broken_append", plain),
                    ("task_append", plain),
                    ("put", repeats),
                    ("task_put", repeats),
                    ("slow_put", repeats),
                    ("read", reads),
                    ("slow_read", reads),
                )
            ),
        )

    def view(self) -> UpstreamView:
        return self._view

    def open(self, tag: str, step: int) -> None:
        self._opened[tag] = step
        self._change.set()
        self._change = anyio.Event()

    async def call_tool(
        self,
        tool: str,
        arguments: JsonObject,
        *,
        on_progress: ProgressFn | None = None,
        timeout: float | None = None,
        asking: Asking | None = None,
        on_sent: SentFn | None = None,
        admit: AdmitFn | None = None,
        begin: BeginFn | None = None,
        task: TaskOptions | None = None,
    ) -> ToolOutcome:
        await anyio.lowlevel.checkpoint()
        if task is not None and task.known:
            return await self._follow(task)
        if begin is not None:
            await begin()
        if admit is not None:
            admit(next(each for each in self._view.tools if each.name == tool))
        if on_sent is not None:
            on_sent()
        serial = secrets.token_hex(8)
        self._points.pass_by("before:act")
        self._ledger.write(what="act", tool=tool, key=arguments["key"], past=arguments["past"], serial=serial)
        self._points.pass_by("after:act")
        await anyio.lowlevel.checkpoint()
        if tool.startswith("task_"):
            assert task is not None
            assert task.created is not None
            known = TaskOptions(json.dumps([arguments["key"], serial]), is_left=task.is_left)
            await task.created(known.known)
            self._ledger.write(what="task", key=arguments["key"], serial=serial)
            return await self._follow(known)
        tag, _, step = arguments["key"].partition("/")
        while tool.startswith("slow_") and int(step) > self._opened.get(tag, 0):
            await self._change.wait()
        if tool == "broken_append":
            raise UpstreamCallError(self.name, "it is broken", dispatched=True)
        self._points.pass_by("answered:act")
        return ToolOutcome({"content": [], "structuredContent": {"serial": serial}})

    async def _follow(self, task: TaskOptions) -> ToolOutcome:
        key, serial = json.loads(task.known)
        tag, _, step = key.partition("/")
        try:
            while int(step) > self._opened.get(tag, 0):
                await self._change.wait()
        except BaseException:
            self._ledger.write(what="given up", key=key, left=task.is_left())
            raise
        self._points.pass_by("answered:act")
        self._ledger.write(what="followed", key=key, serial=serial)
        return ToolOutcome({"content": [], "structuredContent": {"serial": serial}})

    async def request(self, method: str, params: JsonObject, **_: Any) -> JsonObject:
        raise NotImplementedError


class _Upstreams:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def servers_for(self, caller: Caller, names: Collection[str] | None) -> set[str] | None:
        return None

    async def catalog_for(self, caller: Caller, client: object) -> Catalog:
        return self._catalog

    async def wait_settled(self, names: Collection[str] | None, seconds: float) -> None:
        pass


class _Faults(logging.Handler):
    """Writes failures that the product logs into the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(logging.ERROR)
        self._ledger = ledger

    def emit(self, record: logging.LogRecord) -> None:
        self._ledger.write(what="fault", text=logging.Formatter().format(record))


def run(commands: socket.socket, task: Task) -> None:
    """Serve commands until the other end of the socket is closed, or this process is killed."""
    asyncio.run(work(commands, task))


async def work(commands: socket.socket, task: Task) -> None:
    ledger = Ledger(Path(task.ledger))
    logging.getLogger("codemode_mcp").addHandler(_Faults(ledger))
    logging.getLogger("codemode_mcp").propagate = False
    points = Points(task.point, task.count)
    settings = CodeModeSettings(timeout_ms=TIMEOUT_MS, max_suspended_runs=100_000, snapshot_ttl_seconds=3600)
    # A machine that is busy with other things is not what this is about.
    driver.DEADLINE_GRACE = 10.0
    postgres.CONNECT_TIMEOUT = 60.0
    _watch_turns(ledger, points)
    watch_states(ledger)
    sabotage(task.broken)
    box = Box(ledger, points, task.opened)
    reader, writer = await asyncio.open_connection(sock=commands)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _confess, ledger)
    async with AsyncExitStack() as stack:
        engine = stack.enter_context(open_engine(Path(task.engine), max_threads=2))
        if task.store.startswith("postgresql:"):
            database: Any = await stack.enter_async_context(open_postgres(task.store, lease=LEASE, timeout=60.0))
        else:
            database = await stack.enter_async_context(open_sqlite(Path(task.store), synchronous=False))
        ledger.write(what="process", process=database.process)
        database.execute = partial(points.around_execute, database.execute)
        catalog = build([box.view()], Policy(PolicyRules()))
        rules = ToolSettings(code_mode=settings, policy=PolicyRules())
        seal = Seal()

        async def ready() -> Engine:
            return engine

        async def transform(source: str) -> Any:
            raise NotImplementedError

        manager = await stack.enter_async_context(
            open_manager(
                Services(
                    engine=ready,
                    dispatcher=Dispatcher(lambda entry, _: box, rules),
                    store=DurableStore(database, seal, settings, clock=time.monotonic),
                    values=StoredValues(database, seal, settings.store_max_bytes),
                    upstreams=_Upstreams(catalog),
                    transform=transform,
                    clock=time.monotonic,
                ),
                settings,
            )
        )
        server = Server(manager, box, points, writer)
        await server.send({"pid": os.getpid()})
        with suppress(ConnectionError):
            await server.serve(reader)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def _confess(ledger: Ledger) -> None:
    """Write into the ledger what every task here waits for."""
    for task in asyncio.all_tasks():
        frames: list[str] = []
        going: Any = task.get_coro()
        while (frame := getattr(going, "cr_frame", None)) is not None:
            frames.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
            going = going.cr_await
        ledger.write(what="waits", at=" ".join(frames))


def _watch_turns(ledger: Ledger, points: Points) -> None:
    wrap(Guest, "snapshot", points, "snapshot")
    for name, what in (("_restore", "restore"),):
        wrap(Guests, name, points, what)
    inner = driver.Driver._deliver

    async def deliver(self: driver.Driver, engine: Engine, run: Any, observation: Any) -> Any:
        ledger.write(what="turn", run=run.id)
        try:
            points.pass_by("before:turn")
            turn = await inner(self, engine, run, observation)
            points.pass_by("after:turn")
        finally:
            ledger.write(what="turned", run=run.id)
        return turn

    driver.Driver._deliver = deliver  # type: ignore[method-assign]


class Server:
    """Carries out commands, several at a time, and answers each under its number."""

    def __init__(self, manager: RunManager, box: Box, points: Points, writer: asyncio.StreamWriter) -> None:
        self._manager = manager
        self._box = box
        self._points = points
        self._writer = writer
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def serve(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            command = json.loads(line)
            match command["do"]:
                case "open":
                    self._box.open(command["tag"], command["step"])
                case "drop":
                    if command["request"] in self._tasks:
                        self._tasks[command["request"]].cancel()
                case "retire":
                    await self._manager.retire()
                    break
                case _:
                    task = asyncio.create_task(self._answer(command))
                    self._tasks[command["request"]] = task
                    task.add_done_callback(partial(self._done, command["request"]))
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _done(self, request: int, task: asyncio.Task[None]) -> None:
        self._tasks.pop(request, None)
        if task.cancelled():
            # A request that is dropped before its task has begun runs none of its code. It needs an answer, too.
            self._write({"request": request, "dropped": True})
        elif task.exception() is not None:
            logging.getLogger("codemode_mcp.test").error("a request failed", exc_info=task.exception())

    async def _answer(self, command: dict[str, Any]) -> None:
        answer: dict[str, Any]
        try:
            if command["do"] == "exec":
                outcome = await self._manager.execute(Cell(command["code"], "javascript", CALLER))
            else:
                outcome = await self._manager.observe(
                    command["run"], OWNER, cancel=command["cancel"], from_start=command["fromStart"]
                )
            answer = told(outcome)
        except CodeModeError as error:
            answer = {"refused": error.code, "message": error.message}
        except asyncio.CancelledError:
            answer = {"dropped": True}
        self._points.pass_by("before:answer")
        await self.send({"request": command["request"], **answer})
        self._points.pass_by("after:answer")

    def _write(self, line: dict[str, Any]) -> None:
        self._writer.write(json.dumps(line).encode() + b"\n")

    async def send(self, line: dict[str, Any]) -> None:
        self._write(line)
        with suppress(ConnectionError):
            await self._writer.drain()


def told(outcome: Outcome) -> dict[str, Any]:
    return {
        "status": outcome.status,
        "run": outcome.run_id,
        "outputs": [each["text"] for each in outcome.outputs],
        "value": json.loads(json_text(outcome.value)) if outcome.status == "completed" else None,
        "code": outcome.code if outcome.status == "failed" else None,
        "error": outcome.error,
    }


class Nursery:
    """The other end. Use `nursery`."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control

    def bear(self, task: Task) -> tuple[int, socket.socket]:
        """A new process; its id, and the socket on which it takes commands."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [json.dumps(asdict(task)).encode() + b"\n"], [theirs.fileno()])
            return self._answer(), ours

    def bury(self, pid: int) -> None:
        """One that has been killed."""
        self._control.sendall(json.dumps({"pid": pid}).encode() + b"\n")
        self._answer()

    def _answer(self) -> int:
        return int.from_bytes(self._control.recv(8, socket.MSG_WAITALL))


@contextmanager
def nursery() -> Iterator[Nursery]:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "tests.faults.worker", str(theirs.fileno())]
    with ours, theirs, subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL) as process:
        theirs.close()
        try:
            yield Nursery(ours)
        finally:
            ours.close()
            process.wait(30)


def main() -> int:
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What is there now is not looked at again, so that the pages stay shared.
    gc.freeze()
    while True:
        line, files, _, _ = socket.recv_fds(control, 1 << 20, 1)
        if not line:
            return 0
        given = json.loads(line)
        if "pid" in given:
            pid, _ = os.waitpid(given["pid"], 0)
        else:
            pid = _bear(control, files[0], Task(**given))
            os.close(files[0])
        control.sendall(pid.to_bytes(8))


def _bear(control: socket.socket, file: int, task: Task) -> int:
    if pid := os.fork():
        return pid
    # Whatever happens here, this process must not continue as its parent.
    try:
        control.close()
        run(socket.socket(fileno=file), task)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
