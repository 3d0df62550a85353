"""Cases through the run manager, with made-up servers, real time and small limits."""

from __future__ import annotations

import json
import logging
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from codemode_mcp.errors import ERROR_CODES, CodeModeError
from codemode_mcp.runs.rendering import TELEMETRY_BYTES, TELEMETRY_KEY, render, render_error
from codemode_mcp.settings import ToolSettings
from tests.fuzz.engine_level import CANARY_VALUE, Play, same_json
from tests.runs.bench import bench
from upstream_clients.errors import UpstreamCallError
from upstream_clients.testing import FailingSource, ScriptedSource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from codemode_mcp.calls.outcome import Outcome
    from codemode_mcp.sandbox.engine import Engine
    from tests.fuzz.cases import Case
    from tests.runs.bench import Bench

TIMEOUT_MS = 1000
MEMORY = 16 * 1024 * 1024
MAX_OUTPUT = 8 * 1024
MAX_WAITS = 3

BOUND = 15.0
"""Seconds from the request to its answer, whatever the program does, on a machine that is busy with other things."""

MARKER_BYTES = 3000
"""Bytes of two markers of output that was left out."""

CANARY = """
const { ok } = (await MCP.myFiles.read_file({ path: "canary" })).structuredContent;
const prototypes = [Object, Array, Promise, Map, String, Set].map((C) => Reflect.ownKeys(C.prototype).length > 3);
return [6 * 7, JSON.stringify({ a: [1] }), typeof leaked, ok, new URL("http://a/b").pathname, [..."ab"], prototypes];
"""


class _Records(logging.Handler):
    """Records that the product logs as its own failures."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.levelno >= logging.ERROR:
            self.texts.append(logging.Formatter().format(record))


@dataclass(slots=True)
class Subject:
    """The manager under test."""

    bench: Bench
    records: _Records
    settings: ToolSettings
    offloaded: list[str] = field(default_factory=list)

    async def run_case(self, case: Case) -> Play:
        """Return one case: its answer, and those of a few `wait`s when it is suspended; then it is cancelled."""
        play = Play()
        self.records.texts.clear()
        began = time.monotonic()
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
        play.slowest = time.monotonic() - began
        if play.slowest > BOUND * (MAX_WAITS + 2):
            play.violations.append(f"it took {play.slowest:.1f} s")
        play.violations += self.records.texts
        for foreign in ("Traceback", 'File "', "inside codemode-mcp", "not valid (", "the sandbox failed"):
            if foreign in play.message and foreign not in case.source:
                play.violations.append(f"the message says {foreign!r}: {play.message[:500]}")
        if case.known is not None:
            hold_against_known(case, play)
        return play

    async def canary(self) -> list[str]:
        """Return what is wrong with a small program that is run after all the others."""
        outcome = await self.bench.execute(CANARY)
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


def hold_against_known(case: Case, play: Play) -> None:
    known = case.known
    assert known is not None
    if play.ended not in known.codes:
        play.violations.append(f"ended as {play.ended} ({play.message!r}), not as {' or '.join(known.codes)}")
    elif known.value is not ... and not same_json(play.value, known.value):
        play.violations.append(f"returned {play.value!r}, not {known.value!r}")
    elif known.says not in play.message:
        play.violations.append(f"said {play.message!r}, nothing of {known.says!r}")


async def _offload(owner: str, text: str) -> str:
    return "result:1"


def _read(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": "hello"}], "structuredContent": {"ok": 1, **arguments}}


def _remove(arguments: dict[str, Any]) -> dict[str, Any]:
    raise UpstreamCallError("my-files", f"refused: {arguments}", dispatched=True)


@asynccontextmanager
async def subject(engine: Engine) -> AsyncIterator[Subject]:
    """Yield a manager over two servers, one of them down."""
    records = _Records()
    log = logging.getLogger("codemode_mcp")
    log.addHandler(records)
    try:
        sources = ScriptedSource("my-files", {"read_file": _read, "remove": _remove}), FailingSource("lost")
        limits = {
            "timeout_ms": TIMEOUT_MS,
            "memory_limit_bytes": MEMORY,
            "max_output_bytes": MAX_OUTPUT,
            "max_queued_tool_calls": 200,
        }
        async with bench(engine, *sources, **limits) as opened:
            settings = replace(ToolSettings(), code_mode=opened.settings)
            yield Subject(opened, records, settings)
    finally:
        log.removeHandler(records)
