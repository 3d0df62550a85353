"""Cases through the real `codemode-mcp serve`, over its standard streams."""

from __future__ import annotations

import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fuzz.driver_level import BOUND, hold_against_known
from tests.fuzz.engine_level import Play, same_json
from tests.integration.harness import CODE_MODE_RESULT, MODERN, counting, is_running, raw, write_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fuzz.cases import Case
    from tests.integration.harness import Raw

LIMITS = {"timeoutMs": 1000, "memoryLimitBytes": 16 * 1024 * 1024, "maxOutputBytes": 8192}
MAX_WAITS = 2

NEEDS_SERVER = ("echo", "fail:")
"""Texts in programs whose end depends on the answer of a server."""


def for_server(source: str) -> str:
    """Return a program of the bare guests, with tools that this server has."""
    return source.replace("MCP.files.readFile", "MCP.files.count").replace("MCP.files.remove", "MCP.files.refuse")


class Client:
    """A client of bare lines: whatever the server writes that is no MCP message is a failure."""

    def __init__(self, client: Raw) -> None:
        self._client = client

    async def run_case(self, case: Case) -> Play:
        play = Play()
        began = time.monotonic()
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
        play.slowest = time.monotonic() - began
        if play.slowest > BOUND * (MAX_WAITS + 2):
            play.violations.append(f"it took {play.slowest:.1f} s")
        if not is_running(self._client.process.pid):
            play.violations.append(f"the server is gone: {self._client.stderr[-2000:]}")
        if case.known is not None and not any(word in case.source for word in NEEDS_SERVER):
            hold_against_known(case, play)
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
async def served() -> AsyncIterator[Client]:
    """Yield the server with one upstream, `files`."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        config = write_config(root, {"files": counting(root / "log")}, codeMode=LIMITS)
        async with raw(config) as client:
            yield Client(client)
