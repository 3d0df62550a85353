"""Cases in bare guests: turn by turn, calls answered with made-up results, suspended and restored in between.

What every case has to keep is in `Play`: each turn has a documented form, in time; a program whose end is known ends
so; and one that does the same every time does it when it is suspended at every turn too.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from codemode_mcp.errors import ERROR_CODES, ProgramError
from codemode_mcp.program import prepare as programs
from codemode_mcp.program.error_location import syntax_error_column
from codemode_mcp.program.preflight import inspect
from codemode_mcp.sandbox import messages
from codemode_mcp.sandbox.guest import COLLECT_SECONDS, EPOCH_GRACE_SECONDS, Guest
from codemode_mcp.sandbox.messages import Completion, GuestError, decode_turn, deliver_message, start_message
from tests.sandbox.guest_harness import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from codemode_mcp.sandbox.engine import Engine
    from codemode_mcp.sandbox.guest import Turn
    from codemode_mcp.sandbox.messages import Request, Thrown, TurnReport
    from tests.fuzz.cases import Case

TARGETS = {"mcp:my-files:read_file", "mcp:my-files:remove", "mcp:my-files:resources/list", "plugin:issues:list"}
"""Tools that `MCP` and `tools` can call; the server that is down takes any name."""

MAX_TURNS = 12
OUTPUT_LIMIT = 1024 * 1024
CALL_LIMIT = 200

OVERRUN = COLLECT_SECONDS + EPOCH_GRACE_SECONDS
"""Seconds that a turn may continue after its time, in a native loop that asks no one."""
_NOISE = 0.35
"""Seconds of processor time for what is measured along with the turn: the epoch's period, messages, decoding."""

CANARY = """
const { ok } = await MCP.files.readFile({ path: "canary" });
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


def run_case(engine: Engine, case: Case) -> Play:
    """Return one case, on the calling thread, which has to be one of the engine's."""
    suspends = case.random("parks")
    played = _guarded(engine, case, lambda: suspends.random() < 0.3)
    if case.known is not None:
        _hold_against_known(case, played)
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
    """Return what is wrong with a small program that is run after all that hostile ones have done."""
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


def _hold_against_known(case: Case, played: Play) -> None:
    known = case.known
    assert known is not None
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
