"""Recordings that are written by hand, of programs that call `MCP.echo.say`."""

from __future__ import annotations

from typing import Any

from codemode_mcp.audit.recordings import format as lines
from codemode_mcp.audit.recordings.format import Line, Recording
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.base.strict_json import json_text
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.catalog.serialize import catalog_text
from codemode_mcp.rules.policy.policy import Policy
from codemode_mcp.sandbox.messages import Request, ToolCall, message_of
from upstream_clients.testing import ScriptedSource, text_result

SAY = "mcp:echo:say"

MIB = 1024 * 1024


def written(code: str, *steps: Line, end: lines.End | None = None) -> Recording:
    """Return the recording of a program; `steps` are the lines after its start."""
    source = ScriptedSource("echo", {"say": lambda _: text_result(""), "shout": lambda _: text_result("")})
    text = catalog_text(build([source.view()], Policy(PolicyRules())))
    opening = lines.Opening(1, "0", "run_1", "2026-01-02T03:04:05.678Z", "javascript", code)
    start = lines.Start(code, None, "07" * 32, MIB, 1000, 64 * MIB, 1.5)
    return Recording(opening, lines.CatalogText("", text), start, steps, end)


def said(number: int, text: str) -> ToolCall:
    """Return a call of the tool."""
    return ToolCall(number, SAY, json_text({"text": text}))


def asked(*requests: Request) -> lines.Requests:
    """Return the requests of a turn."""
    return lines.Requests(tuple(map(message_of, requests)))


def delivered(elapsed: float, *ends: tuple[int, str]) -> lines.Turn:
    """Return a turn that gets texts as the results of calls."""
    results = [(number, {"content": [{"type": "text", "text": text}]}) for number, text in ends]
    return lines.Turn(elapsed, tuple(lines.Completed(number, json_text(result)) for number, result in results))


def completed(value: Any, *texts: str) -> lines.End:
    """Return the end of a program that printed texts and returned a value."""
    return lines.End("completed", value, tuple({"type": "text", "text": text} for text in texts))
