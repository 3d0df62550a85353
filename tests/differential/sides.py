"""The two sides of a comparison: Node in a process of its own, and guests in this process."""

from __future__ import annotations

import functools
import heapq
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.base.paths import cache_dir
from codemode_mcp.base.settings import Language
from codemode_mcp.program import prepare as programs
from codemode_mcp.program.esbuild import find_esbuild
from codemode_mcp.program.preflight import inspect
from codemode_mcp.program.time_zones import named_zones
from codemode_mcp.program.typescript import transform
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.guest import Guest
from codemode_mcp.sandbox.messages import (
    ClearTimer,
    Completion,
    Thrown,
    Timer,
    TurnReport,
    decode_turn,
    deliver_message,
    start_message,
)

VERSION = 20
"""The major version of Node that guests are compared with."""

RUNNER = Path(__file__).with_name("runner.js")
MANIFEST = json.dumps({"servers": [], "tools": [], "named": []})
MEMORY = 64 * 1024 * 1024
SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a program on one side.

    Attributes:
        error: the name and message of the error that ended it; only the name for errors whose words are the engine's.
    """

    value: Any
    error: str | None
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        shown = self.error if self.error is not None else json.dumps(self.value, ensure_ascii=False)
        return "\n".join((*(f"> {line}" for line in self.outputs), shown))


_ENGINE_ERRORS = (
    *("SyntaxError", "TypeError", "RangeError", "ReferenceError", "URIError"),
    *("DataCloneError", "InvalidCharacterError"),
)


def _error(name: str, message: str) -> str:
    # The guest's message has causes and parts of an error on further lines.
    return name if name in _ENGINE_ERRORS else f"{name}: {message.splitlines()[0] if message else ''}"


@functools.cache
def missing_node() -> str:
    """Return why Node cannot be compared with; empty if it can."""
    executable = shutil.which("node")
    if executable is None:
        return "node is not installed, so there is nothing to compare with"
    version = subprocess.run([executable, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    if not version.startswith(f"v{VERSION}."):
        return f"node {version} is installed, and guests are compared with version {VERSION}"
    return ""


class Node:
    """A process that runs programs. A context manager that ends it."""

    def __init__(self) -> None:
        command = [shutil.which("node") or "node", "--no-warnings", str(RUNNER)]
        environment = {**os.environ, "TZ": "UTC", "LANG": "en_US.UTF-8", "LC_ALL": "en_US.UTF-8"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=environment
        )

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(SECONDS)
        self._process.stdout.close()

    def run(self, bodies: Sequence[str]) -> Iterator[Outcome]:
        """Yield the outcomes of programs. Node computes some of them in advance."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        sent = 0
        for done in range(len(bodies)):
            for body in bodies[sent : done + _AHEAD]:
                stdin.write(json.dumps(body) + "\n")
                sent += 1
            stdin.flush()
            line = stdout.readline()
            if not line:
                raise RuntimeError(f"node ended in this program or in one soon after it:\n{bodies[done]}")
            told = json.loads(line)
            error = told["error"]
            outcome = None if error is None else _error(error["name"], error["message"])
            yield Outcome(told["value"], outcome, tuple(told["outputs"]))


_AHEAD = 4
"""Number of programs that Node gets in advance: few enough to fit into a pipe."""


class Guests:
    """The engine of this process, with a new guest for each program."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, source: str, language: Language = "javascript") -> Outcome:
        """Return the outcome of a program, prepared as `exec` does."""
        return self._engine.threads.submit(self._run, source, language).result()

    def _run(self, source: str, language: Language) -> Outcome:
        try:
            found = inspect(source, language)
            if language == "typescript":
                program = anyio.run(programs.typescript, found, _transform)
            else:
                program = programs.javascript(found)
        except CodeModeError as error:
            return Outcome(None, f"{error.code}: {error.message}", ())
        message = start_message(
            code=program.code,
            fallback=program.fallback,
            seed=bytes(32),
            output_limit=1_000_000,
            call_limit=10,
            elapsed_ms=0,
            file=program.positions.file,
            lines=program.positions.guest_lines,
            zones=named_zones(source),
        )
        image = self._engine.image(self._engine.with_intl(MANIFEST) if found.intl else MANIFEST)
        with Guest(self._engine, image, memory_limit=MEMORY) as guest:
            return _computed(guest, message)


def _computed(guest: Guest, message: str) -> Outcome:
    """Return the outcome of a program, whose timers run without waiting."""
    outputs: list[str] = []
    timers: list[tuple[int, int]] = []
    cleared: set[int] = set()
    clock = 0
    turn = guest.start(message, SECONDS)
    while True:
        if turn.stopped is not None or turn.text is None:
            return Outcome(None, f"stopped: {turn.stopped} {turn.detail}", tuple(outputs))
        report = decode_turn(turn.text)
        outputs += [output.get("text", "") for output in report.outputs]
        if report.state != "pending" or report.fault is not None:
            return _ended(report, outputs)
        for request in report.requests:
            if isinstance(request, Timer):
                heapq.heappush(timers, (clock + max(1, int(request.ms)), request.id))
            elif isinstance(request, ClearTimer):
                cleared.add(request.target)
        timers = [timer for timer in timers if timer[1] not in cleared]
        heapq.heapify(timers)
        if not timers:
            return Outcome(None, "pending: ", tuple(outputs))
        clock, due = heapq.heappop(timers)
        turn = guest.deliver(deliver_message([Completion(due)], elapsed_ms=clock), SECONDS)


def _ended(report: TurnReport, outputs: list[str]) -> Outcome:
    thrown: Thrown | None = report.error or report.fault
    error = None if thrown is None else _error(thrown.name, thrown.message)
    return Outcome(report.value if error is None else None, error, tuple(outputs))


async def _transform(source: str) -> Any:
    esbuild = find_esbuild(None, environ=os.environ, cache_dir=cache_dir())
    return await transform(esbuild, source, timeout=SECONDS)
