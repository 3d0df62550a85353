"""Guests without a driver: one turn at a time, decoded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.guest import Guest, Turn
from codemode_mcp.sandbox.messages import Completion, ToolCall, TurnReport, decode_turn, deliver_message, start_message

MIB = 1024 * 1024

MANIFEST = json.dumps(
    {
        "servers": [
            {
                "identifier": "files",
                "alias": "my-files",
                "name": "my-files",
                "down": False,
                "tools": [
                    ["readFile", "read_file", "mcp:my-files:read_file"],
                    ["remove", None, "mcp:my-files:remove"],
                ],
                "groups": [["resources", [["list", "mcp:my-files:resources/list"]]]],
            },
            {"identifier": "lost", "alias": None, "name": "lost", "down": True, "tools": [], "groups": []},
        ],
        "tools": [{"id": "plugin:issues:list", "name": "list", "description": "", "source": "plugin"}],
        "named": [["list", "plugin:issues:list"]],
    }
)
"""A catalog as `prelude/70_api.js` takes it: two MCP servers, one of them down, and a plugin's tool."""

LOW = """
let frames = 0; const deepest = () => { frames += 1; deepest() }; try { deepest() } catch {}
const under = (n, f) => n > 0 ? under(n - 1, f) : f(); const low = (f) => under(frames * 0.8 | 0, f);
"""
"""Code in front of a program: `low` calls a function with little stack left. `JSON.stringify` compares each level with
all that it is in: with the whole stack it takes 15 s to come to its end.
"""

SECONDS = 30.0
"""Time limit of turns that end by themselves, on a busy machine."""

READ = "mcp:my-files:read_file"
REMOVE = "mcp:my-files:remove"


@dataclass(frozen=True, slots=True)
class Told:
    """One turn. `report` is None if the guest could no longer make one."""

    turn: Turn
    report: TurnReport | None

    @property
    def stopped(self) -> str | None:
        return self.turn.stopped

    @property
    def value(self) -> Any:
        assert self.report is not None
        assert (self.report.state, self.report.error) == ("done", None), self.turn
        return self.report.value

    @property
    def requests(self) -> list[Any]:
        assert self.report is not None
        return list(self.report.requests)

    @property
    def texts(self) -> list[str]:
        assert self.report is not None
        return [item["text"] for item in self.report.outputs if item["type"] == "text"]

    @property
    def out_of_memory(self) -> bool:
        if self.turn.stopped == "memory":
            return True
        if self.report is None:
            return False
        if self.report.state == "pending" and self.turn.full and self.turn.stopped is None:
            # What should have ended the program was dropped for want of memory.
            return True
        said = [self.report.error, self.report.fault]
        return any(
            one is not None
            and ((one.engine and "out of memory" in one.message) or (self.turn.full and (one.is_null or one.is_blank)))
            for one in said
        )


class Cell:
    """A program in its own guest."""

    def __init__(
        self,
        engine: Engine,
        *,
        manifest: str = MANIFEST,
        memory_limit: int = 64 * MIB,
        suspended: bytes | None = None,
    ) -> None:
        self._engine = engine
        self.guest: Guest = self.on_thread(
            lambda: Guest(engine, engine.image(manifest), memory_limit=memory_limit, suspended=suspended)
        )

    def on_thread(self, work: Callable[[], Any]) -> Any:
        """Return the result of `work()` on a thread of the engine."""
        return self._engine.threads.submit(work).result(timeout=2 * SECONDS)

    def start(
        self,
        code: str,
        *,
        seconds: float = SECONDS,
        fallback: str | None = None,
        file: str | None = None,
        lines: str = "null",
        seed: bytes = bytes(32),
        output_limit: int = MIB,
        call_limit: int = 1000,
        elapsed_ms: float = 0.0,
        namespaces: str = "[]",
    ) -> Told:
        message = start_message(
            code=code,
            fallback=fallback,
            file=file,
            lines=lines,
            seed=seed,
            output_limit=output_limit,
            call_limit=call_limit,
            elapsed_ms=elapsed_ms,
            namespaces=namespaces,
        )
        return self._told(self.on_thread(lambda: self.guest.start(message, seconds)))

    def deliver(self, *completions: Completion, seconds: float = SECONDS, elapsed_ms: float = 0.0) -> Told:
        message = deliver_message(completions, elapsed_ms=elapsed_ms)
        return self._told(self.on_thread(lambda: self.guest.deliver(message, seconds)))

    def snapshot(self) -> bytes:
        data: bytes = self.on_thread(self.guest.snapshot)
        return data

    def close(self) -> None:
        self.guest.close()

    @staticmethod
    def _told(turn: Turn) -> Told:
        return Told(turn, None if turn.text is None else decode_turn(turn.text))


def ok(request: int, value: Any = None) -> Completion:
    """Return the successful completion of a request."""
    return Completion(request, json.dumps(value))


def called(request: int, target: str, given: Any) -> ToolCall:
    """Return a call with one argument, as the guest writes it."""
    return ToolCall(request, target, json.dumps(given, ensure_ascii=False, separators=(",", ":")))
