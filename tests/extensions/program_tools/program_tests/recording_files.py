"""Folders of saved programs with recordings, written as a recorded run would write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from codemode_mcp.audit.recordings.format import (
    CatalogText,
    Completed,
    End,
    Line,
    Opening,
    Requests,
    Start,
    Turn,
    encode,
)
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.catalog.serialize import catalog_hash, catalog_text
from codemode_mcp.rules.policy.policy import Policy
from codemode_mcp.sandbox.messages import ToolCall, message_of
from upstream_clients.tools import Tool, UpstreamView

STATES = {"type": "object", "properties": {"state": {"type": "string", "enum": ["open", "closed"]}}}
TRACKER = UpstreamView("tracker", "ready", tools=(Tool("list_issues", "List issues", input_schema=STATES),))
CATALOG = build([TRACKER], Policy(PolicyRules()))
LIST = "mcp:tracker:list_issues"


class Call(NamedTuple):
    """A recorded call, with its result."""

    input: dict[str, Any]
    result: dict[str, Any]
    tool: str = LIST


def lines(source: str, calls: list[Call], value: Any, outputs: tuple[dict[str, Any], ...] = ()) -> list[Line]:
    """Return the lines of a run that made calls one after the other."""
    found: list[Line] = [
        Opening(1, "1.0.0", "run_x", "2026-01-02T03:04:05.000Z", "javascript", source),
        CatalogText(catalog_hash(CATALOG), catalog_text(CATALOG)),
        Start(source, None, "00" * 32, 100_000, 100, 64 * 2**20, 0),
    ]
    for number, call in enumerate(calls, 1):
        request = ToolCall(number, call.tool, json.dumps(call.input))
        found.append(Requests((message_of(request),)))
        found.append(Turn(number, (Completed(number, json.dumps(call.result)),)))
    found.append(End("completed", value, outputs))
    return found


def record(folder: Path, stem: str, source: str, calls: list[Call], value: Any, *outputs: dict[str, Any]) -> None:
    """Write the recording of a test."""
    folder.mkdir(exist_ok=True)
    (folder / f"{stem}.recording.jsonl").write_bytes(b"".join(map(encode, lines(source, calls, value, outputs))))
