"""Cases at three levels: in bare guests, through the run manager, and through the real `codemode-mcp serve`.

What every case has to keep is in `Play`: each answer has a documented form, in time, and a program whose end is known
ends so. In bare guests, calls are answered turn by turn with made-up results, and guests are suspended and restored in
between; a program that does the same every time does it when it is suspended at every turn too.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from codemode_mcp.base.errors import ERROR_CODES, CodeModeError, ProgramError
from codemode_mcp.base.settings import ToolSettings
from codemode_mcp.program import prepare as programs
from codemode_mcp.program.error_location import syntax_error_column
from codemode_mcp.program.preflight import inspect
from codemode_mcp.runs.calls.outcome import Outcome
from codemode_mcp.runs.rendering import TELEMETRY_BYTES, TELEMETRY_KEY, render, render_error
from codemode_mcp.sandbox import messages
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.guest import COLLECT_SECONDS, EPOCH_GRACE_SECONDS, Guest, Turn
from codemode_mcp.sandbox.messages import (
    Completion,
    GuestError,
    Request,
    Thrown,
    TurnReport,
    decode_turn,
    deliver_message,
    start_message,
)
from tests.faults.fuzz.cases import Case
from tests.integration.harness import CODE_MODE_RESULT, MODERN, Raw, counting, is_running, raw, write_config
from tests.runs.bench import Bench, bench
from tests.sandbox.guest_harness import MANIFEST
from tests.values import replace
from upstream_clients.errors import UpstreamCallError
from upstream_clients.testing import FailingSource, ScriptedSource

TARGETS = {"mcp:my-files:read_file", "mcp:my-files:remove", "mcp:my-files:resources/list", "plugin:issues:list"}
"""Tools that `MCP` and `tools` can call; the server that is down takes any name."""

MAX_TURNS = 12
OUTPUT_LIMIT = 1024 * 1024
CALL_LIMIT = 200

OVERRUN = COLLECT_SECONDS + EPOCH_GRACE_SECONDS
"""Seconds that a turn may continue after its time, in a native loop that asks no one."""
_NOISE = 0.35
"""Seconds of processor time for what is measured along with the turn: the epoch's period, messages, decoding."""

BOUND = 15.0
"""Seconds from the request to its answer, whatever the program does, on a machine that is busy with other things."""

MAX_STARVED = 0.3
"""Seconds without a processor after which the time of a program, by the clock, says little about it."""

MAX_WAITS = 3
"""Maximum number of `wait`s of a case, after which it is cancelled."""

CANARY = """
const answer = await MCP.files.readFile({ path: "canary" });
const { ok } = answer.structuredContent ?? answer;
const prototypes = [Object, Array, Promise, Map, String, Set].map((C) => Reflect.ownKeys(C.prototype).length > 3);
return [6 * 7, JSON.stringify({ a: [1] }), typeof leaked, ok, new URL("http://a/b").pathname, [..."ab"], prototypes];
"""
CANARY_VALUE = [42, '{"a":[1]}', "undefined", 1, "/b", ["a", "b"], [True] * 6]


@dataclass(slots=True)
class Play:
    """The result of one case.

    Attributes:
        ended: `completed`, `waiting`, an error code, or `trap`.
        trace: all that the guest told, turn by turn.
        slowest: processor seconds of the longest turn.
        violations: what must not be.
        traps: what the engine said when it stopped a program for no reason that is documented.
    """

    ended: str = "waiting"
    value: Any = None
    message: str = ""
    turns: int = 0
    trace: list[Any] = field(default_factory=list)
    slowest: float = 0.0
    violations: list[str] = field(default_factory=list)
    traps: list[str] = field(default_factory=list)
    timed_out: bool = False

    def took(self, began: float) -> None:
        self.slowest = time.monotonic() - began
        if self.slowest > BOUND * (MAX_WAITS + 2):
            self.violations.append(f"it took {self.slowest:.1f} s")


class Level(ABC):
    """A place where cases are run."""

    @abstractmethod
    async def run_case(self, case: Case) -> Play: ...

    @abstractmethod
    async def canary(self) -> list[str]:
        """Return what is wrong with a small program that is run after all that hostile ones have done."""


class Bare(Level):
    """Bare guests, on the threads of the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def run_case(self, case: Case) -> Play:
        return self._engine.threads.submit(run_case, self._engine, case).result()

    async def canary(self) -> list[str]:
        return self._engine.threads.submit(canary, self._engine).result()


def run_case(engine: Engine, case: Case) -> Play:
    """Return one case, on the calling thread, which has to be one of the engine's."""
    suspends = case.random("parks")
    played = _guarded(engine, case, lambda: suspends.random() < 0.3)
    if case.known is not None:
        hold_against_known(case, played)
    compared = case.repeatable and case.random("compared").random() < (1.0 if case.kind == "known" else 0.2)
    if compared and played.turns > 1 and not played.timed_out:
        again = _guarded(engine, case, lambda: True)
        played.violations += again.violations
        # Which allocation fails first is not the same in a heap that was restored; the turns before it are.
        last = -1 if again.ended == played.ended == "memory_limit_exceeded" else None
        if not again.timed_out and again.trace[:last] != played.trace[:last]:
            played.violations.append(
                f"suspended at every turn it does something else:\n{_first_difference(played, again)}"
            )
    return played


def canary(engine: Engine) -> list[str]:
    with Guest(engine, engine.image(MANIFEST), memory_limit=64 * 1024 * 1024) as guest:
        first = guest.start(_start(CANARY, None), 20.0)
        report = decode_turn(first.text or "")
        if first.stopped or [type(request) for request in report.requests] != [messages.ToolCall]:
            return [f"the canary's first turn: {first}"]
        completion = Completion(report.requests[0].id, '{"ok":1}')
        second = guest.deliver(deliver_message([completion], elapsed_ms=1), 20.0)
        report = decode_turn(second.text or "")
    return [] if report.value == CANARY_VALUE else [f"the canary returned {report.value}, {report.error}"]


def _guarded(engine: Engine, case: Case, suspend: Callable[[], bool]) -> Play:
    play = Play()
    try:
        _Player(engine, case, play, suspend).play()
    except Exception as error:
        play.violations.append(f"{type(error).__name__}: {error}")
        play.ended = "internal_error"
    return play


class _Player:
    def __init__(self, engine: Engine, case: Case, play: Play, suspend: Callable[[], bool]) -> None:
        self._image = engine.image(MANIFEST)
        self._engine = engine
        self._case = case
        self._play = play
        self._suspend = suspend
        self._script = case.random("script")
        self._waiting: dict[int, Request] = {}
        self._last_id = 0
        self._positions: Any = None
        self._guest: Guest

    def play(self) -> None:
        case, play = self._case, self._play
        try:
            made = programs.javascript(inspect(case.source, "javascript"))
        except ProgramError as error:
            self._end(error.code, error.message)
            if error.code != "module_access_denied":
                play.violations.append(f"the preflight said {error.code}")
            return
        self._positions = made.positions
        self._guest = Guest(self._engine, self._image, memory_limit=case.memory_limit)
        try:
            message = _start(made.code, made.fallback)
            turn = self._timed(lambda: self._guest.start(message, case.seconds))
            while self._absorb(turn) and play.turns < MAX_TURNS:
                batch = self._completions()
                if not batch:
                    return
                if self._suspend():
                    self._restore()
                message = deliver_message(batch, elapsed_ms=play.turns * 10.0)
                turn = self._timed(lambda message=message: self._guest.deliver(message, case.seconds))
        finally:
            self._guest.close()

    def _restore(self) -> None:
        suspended = self._guest.snapshot()
        self._guest.close()
        self._guest = Guest(self._engine, self._image, memory_limit=self._case.memory_limit, suspended=suspended)

    def _timed(self, work: Callable[[], Turn]) -> Turn:
        began = time.thread_time()
        turn = work()
        took = time.thread_time() - began
        self._play.slowest = max(self._play.slowest, took)
        if took > self._case.seconds + OVERRUN + _NOISE:
            self._play.violations.append(f"a turn of {self._case.seconds:g} s took {took:.2f} s")
        return turn

    # reading a turn

    def _absorb(self, turn: Turn) -> bool:
        """Return True if the program continues."""
        play = self._play
        play.turns += 1
        report = None if turn.text is None else decode_turn(turn.text)
        if report is None:
            play.trace.append((turn.stopped, None))
        else:
            play.trace.append((turn.stopped, report))
            self._check(report)
        if turn.stopped is not None:
            self._stopped(turn, report)
            return False
        if report is None:
            play.violations.append("a turn that ended well told nothing")
            return False
        match report.state:
            case "done":
                play.value = report.value
                json.dumps(report.value)
                self._end("completed")
            case "syntax":
                self._syntax(report)
            case "failed":
                self._failed(turn, report)
            case "pending":
                if self._waiting:
                    return True
                if turn.full:
                    self._end("memory_limit_exceeded")
                else:
                    self._end("internal_error", "nothing can settle")
        return False

    def _end(self, code: str, message: str = "") -> None:
        self._play.ended = code
        self._play.message = message

    def _check(self, report: TurnReport) -> None:
        for request in report.requests:
            if isinstance(request, messages.Timer) and request.id <= self._last_id:
                pass  # the next round of an interval
            elif request.id <= self._last_id:
                self._play.violations.append(f"the id {request.id} comes twice: {request}")
            self._last_id = max(self._last_id, request.id)
            match request:
                case messages.ToolCall(target=target, by_id=False) if not (
                    target in TARGETS or target.startswith("mcp:lost:")
                ):
                    self._play.violations.append(f"a call of what is not there: {request}")
                case messages.ClearTimer(target=timer):
                    self._waiting.pop(timer, None)
                    continue
            self._waiting[request.id] = request
        if sum(len(json.dumps(item, ensure_ascii=False)) for item in report.outputs) > 2 * OUTPUT_LIMIT:
            self._play.violations.append("more output than the guest keeps")
        if report.state in ("done", "failed"):
            for thrown in report.rejections:
                self._positions.describe(thrown)

    def _stopped(self, turn: Turn, report: TurnReport | None) -> None:
        play = self._play
        fault = None if report is None else report.fault
        match turn.stopped:
            case "time":
                play.timed_out = True
                self._end("timeout")
            case "memory":
                self._end("memory_limit_exceeded")
            case "trap" if fault is not None and (_is_out_of_memory(fault) or (turn.full and fault.is_null)):
                self._end("memory_limit_exceeded")
            case "trap" if fault is not None and not fault.engine:
                self._end("internal_error", self._positions.describe(fault))  # thrown by a microtask
            case _:
                said = turn.detail or ("" if fault is None else f"{fault.name}: {fault.message}")
                play.traps.append(said)
                self._end("trap", said)

    def _syntax(self, report: TurnReport) -> None:
        assert report.error is not None
        frames = self._positions.frames(report.error)
        if frames:
            line = int(frames[0].split(":")[1])
            column = syntax_error_column(self._case.source, line, report.error.message)
            if column < 1:
                self._play.violations.append(f"a column of {column}")
        if self._play.turns > 1:
            self._play.violations.append("a syntax error after the first turn")
        self._end("invalid_input", report.error.message)

    def _failed(self, turn: Turn, report: TurnReport) -> None:
        error = report.error
        assert error is not None
        message = self._positions.describe(error)
        if _is_out_of_memory(error) or (turn.full and error.is_null):
            self._end("memory_limit_exceeded", message)
        elif error.code in ("too_many_pending_tool_calls", "module_access_denied"):
            self._end(error.code, message)
        else:
            self._end("internal_error" if error.code is None else "nested_tool_failed", message)

    # answering

    def _completions(self) -> list[Completion]:
        """Answers to some of what is waited for. What is drawn depends on nothing but the requests so far."""
        script = self._script
        chosen = [number for number in self._waiting if script.random() < 0.7] or list(self._waiting)[:1]
        if script.random() < 0.3:
            script.shuffle(chosen)
        batch = [_answer(script, self._waiting.pop(number)) for number in chosen[:50]]
        if script.random() < 0.05:
            batch.append(Completion(script.choice((0, 1, self._last_id + 1, 10**9)), '"spurious"'))
        return batch


def _start(code: str, fallback: str | None) -> str:
    return start_message(
        code=code,
        fallback=fallback,
        seed=bytes(32),
        output_limit=OUTPUT_LIMIT,
        call_limit=CALL_LIMIT,
        elapsed_ms=0.0,
        file="cell.js",
    )


_RESULTS = (
    "null",
    "[]",
    "{}",
    "5",
    '"text"',
    '{"content":[{"type":"text","text":"hello"}]}',
    '{"content":[{"type":"text","text":"{\\"size\\":3}"}],"structuredContent":{"size":3,"items":[1,2,{"a":null}]}}',
    '{"content":[],"isError":true}',
    '{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"}]}',
    '{"then":1,"toJSON":2,"__proto__":{"polluted":1},"constructor":3}',
    '{"a":1,"a":2,"\\ud800":"\\udfff\\u0000"}',
    "[" * 60 + "]" * 60,
    json.dumps(["x" * 100] * 200),
    "1e400",
    "-0",
)


def _answer(script: Random, request: Request) -> Completion:
    match request:
        case messages.ToolCall(input=str() as given) if '"echo"' in given:
            return Completion(request.id, json.dumps({"structuredContent": json.loads(given)}))
        case messages.ToolCall(input=str() as given) if '"fail"' in given:
            return Completion(request.id, error=GuestError(f"refused: {given}", name="ToolCallError"))
        case messages.Load():
            return Completion(request.id, script.choice(("[]", "[null]", f"[{script.choice(_RESULTS)}]")))
        case messages.Store() | messages.Timer() | messages.YieldControl():
            return Completion(request.id)
    if script.random() < 0.15:
        code = script.choice(ERROR_CODES)
        data = script.choice(("null", '{"tool":"t","dispatched":true,"repeatable":false}', "[1]"))
        message = script.choice(("it failed", "", "é\ud800\n\0", "x" * 3000))
        return Completion(
            request.id, error=GuestError(message, script.choice(("Error", "", "ToolCallError")), code, data)
        )
    return Completion(request.id, script.choice(_RESULTS))


def _is_out_of_memory(thrown: Thrown) -> bool:
    return thrown.engine and ("out of memory" in thrown.message or thrown.message == "string too long")


def without_processor(pid: int | str) -> float:
    """Return the seconds that the threads of a process have waited for a processor; 0 where none are counted."""
    found = 0.0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError):
            found += int(path.read_text("utf-8").split()[1]) / 1e9
    return found


def hold_against_known(case: Case, played: Play, *, starved: float = 0.0) -> None:
    """Compare the end of a program with the known one.

    Args:
        starved: seconds without a processor. After many, a program may be late that would have ended in time.
    """
    known = case.known
    assert known is not None
    if played.ended == "timeout" and starved > MAX_STARVED:
        return
    if played.ended not in known.codes:
        played.violations.append(f"ended as {played.ended} ({played.message!r}), not as {' or '.join(known.codes)}")
    elif known.value is not ... and not same_json(played.value, known.value):
        played.violations.append(f"returned {played.value!r}, not {known.value!r}")
    elif known.says not in played.message:
        played.violations.append(f"said {played.message!r}, nothing of {known.says!r}")


def same_json(one: Any, other: Any) -> bool:
    """Return True if two values are the same JSON; 1 and true are not."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _first_difference(one: Play, other: Play) -> str:
    for number, (a, b) in enumerate(zip(one.trace, other.trace, strict=False)):
        if a != b:
            first, second = repr(a), repr(b)
            at = max(0, next((i for i, (x, y) in enumerate(zip(first, second, strict=False)) if x != y), 0) - 200)
            return f"turn {number}, from character {at} on:\n  {first[at : at + 500]}\n  {second[at : at + 500]}"
    return f"{len(one.trace)} turns and {len(other.trace)}"


# Through the run manager.

LIMITS: Final = {
    "timeout_ms": 1000,
    "memory_limit_bytes": 16 * 1024 * 1024,
    "max_output_bytes": 8 * 1024,
    "max_queued_tool_calls": 200,
}

MARKER_BYTES = 3000
"""Bytes of two markers of output that was left out."""


class _Records(logging.Handler):
    """Records that the product logs as its own failures."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.levelno >= logging.ERROR:
            self.texts.append(logging.Formatter().format(record))


@dataclass(slots=True)
class Managed(Level):
    """The manager under test, with made-up servers, real time and small limits."""

    bench: Bench
    records: _Records
    settings: ToolSettings

    async def run_case(self, case: Case) -> Play:
        """Return one case: its answer, and those of a few `wait`s when it is suspended; then it is cancelled."""
        play = Play()
        self.records.texts.clear()
        began, starved = time.monotonic(), without_processor("self")
        try:
            outcome = await self.bench.execute(for_manager(case.source))
            while outcome.status == "waiting" and play.turns < MAX_WAITS:
                await self._check(outcome, play)
                play.turns += 1
                outcome = await self.bench.observe(outcome.run_id)
            if outcome.status == "waiting":
                play.ended = "waiting"
                ended = await self.bench.observe(outcome.run_id, cancel=True)
                if ended.code != "aborted" and ended.status == "waiting":
                    play.violations.append(f"cancelled, it is {ended.status} {ended.code}")
            await self._check(outcome, play)
            play.ended = outcome.code if outcome.status == "failed" else outcome.status
            play.value, play.message = outcome.value, outcome.error
        except CodeModeError as error:
            play.ended, play.message = error.code, error.message
            self._check_rendered(render_error(error, self.settings), play)
        except Exception as error:
            play.ended = "internal_error"
            play.violations.append(f"{type(error).__name__}: {error}")
        play.took(began)
        play.violations += self.records.texts
        for foreign in ("Traceback", 'File "', "inside codemode-mcp", "not valid (", "the sandbox failed"):
            if foreign in play.message and foreign not in case.source:
                play.violations.append(f"the message says {foreign!r}: {play.message[:500]}")
        if case.known is not None:
            hold_against_known(case, play, starved=without_processor("self") - starved)
        return play

    async def canary(self) -> list[str]:
        outcome = await self.bench.execute(for_manager(CANARY))
        if outcome.status != "completed" or outcome.value != CANARY_VALUE:
            return [f"the canary: {outcome}"]
        return [] if repr(self.bench.manager) == "<RunManager: 0 runs>" else [f"runs are left: {self.bench.manager!r}"]

    async def _check(self, outcome: Outcome, play: Play) -> None:
        if outcome.status == "failed" and outcome.code not in ERROR_CODES:
            play.violations.append(f"an unknown code, {outcome.code}")
        self._check_rendered(await render(outcome, self.settings, _offload, time.monotonic()), play)

    def _check_rendered(self, rendered: Any, play: Play) -> None:
        structured = rendered.structured
        size = len(dump({key: structured[key] for key in ("value", "output") if key in structured}))
        cap = self.settings.code_mode.max_output_bytes
        if size > cap + MARKER_BYTES + 40 * len(structured.get("output", ())):
            play.violations.append(f"{size} bytes of value and output, more than {cap}")
        if len(dump(rendered.meta[TELEMETRY_KEY])) > TELEMETRY_BYTES:
            play.violations.append("the telemetry is too large")
        if not rendered.content:
            play.violations.append("there is nothing to read")


def dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def for_manager(source: str) -> str:
    """Return a program of the bare guests, for the manager's catalog: it has the same server under its derived name."""
    return source.replace("MCP.files.", "MCP.myFiles.").replace("readFile", "read_file")


async def _offload(owner: str, text: str) -> str:
    return "result:1"


def _read(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": "hello"}], "structuredContent": {"ok": 1, **arguments}}


def _remove(arguments: dict[str, Any]) -> dict[str, Any]:
    raise UpstreamCallError("my-files", f"refused: {arguments}", dispatched=True)


@asynccontextmanager
async def managed(engine: Engine) -> AsyncIterator[Managed]:
    """Yield a manager over two servers, one of them down."""
    records = _Records()
    log = logging.getLogger("codemode_mcp")
    log.addHandler(records)
    try:
        sources = ScriptedSource("my-files", {"read_file": _read, "remove": _remove}), FailingSource("lost")
        async with bench(engine, *sources, **LIMITS) as opened:
            settings = replace(ToolSettings(), code_mode=opened.settings)
            yield Managed(opened, records, settings)
    finally:
        log.removeHandler(records)


# Through the server.

NEEDS_SERVER = ("echo", "fail:")
"""Texts in programs whose end depends on the answer of a server."""


def for_server(source: str) -> str:
    """Return a program of the bare guests, with tools that this server has."""
    return source.replace("MCP.files.readFile", "MCP.files.count").replace("MCP.files.remove", "MCP.files.refuse")


class Served(Level):
    """A client of bare lines: whatever the server writes that is no MCP message is a failure."""

    def __init__(self, client: Raw) -> None:
        self._client = client

    async def run_case(self, case: Case) -> Play:
        play = Play()
        began, starved = time.monotonic(), without_processor(self._client.process.pid)
        try:
            answer = await self._call("exec", {"code": for_server(case.source)})
            while answer["status"] == "waiting":
                play.turns += 1
                last = play.turns > MAX_WAITS
                answer = await self._call("wait", {"runId": answer["runId"], "cancel": last})
                if last:
                    break
            play.ended = "waiting" if play.turns > MAX_WAITS else answer.get("code", answer["status"])
            play.value, play.message = answer.get("value"), answer.get("error", "")
        except Exception as error:
            play.violations.append(f"{type(error).__name__}: {error}")
        play.took(began)
        if not is_running(self._client.process.pid):
            play.violations.append(f"the server is gone: {self._client.stderr[-2000:]}")
        if case.known is not None and not any(word in case.source for word in NEEDS_SERVER):
            hold_against_known(case, play, starved=without_processor(self._client.process.pid) - starved)
        return play

    async def canary(self) -> list[str]:
        answer = await self._call("exec", {"code": "return [6 * 7, typeof leaked, [...'ab']]"})
        return [] if same_json(answer.get("value"), [42, "undefined", ["a", "b"]]) else [f"the canary: {answer}"]

    async def _call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        answer = await self._client.request("tools/call", {**MODERN, "name": tool, "arguments": arguments})
        structured: dict[str, Any] = answer["result"]["structuredContent"]
        CODE_MODE_RESULT.validate(structured)
        return structured


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    """Yield the server with one upstream, `files`."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        limits = {"timeoutMs": 1000, "memoryLimitBytes": 16 * 1024 * 1024, "maxOutputBytes": 8192}
        config = write_config(root, {"files": counting(root / "log")}, codeMode=limits)
        async with raw(config) as client:
            yield Served(client)


@asynccontextmanager
async def open_level(name: str, engine: Engine) -> AsyncIterator[Level]:
    """Yield a level: `engine`, `driver` or `serve`."""
    match name:
        case "engine":
            yield Bare(engine)
        case "driver":
            async with managed(engine) as level:
                yield level
        case _:
            async with served() as level:
                yield level
