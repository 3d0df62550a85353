"""Telemetry of a run in its answer, for programs that read results. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from codemode_mcp.json_text import compact_json
from codemode_mcp.runs.truncation import size

if TYPE_CHECKING:
    from codemode_mcp.calls.outcome import Usage
    from codemode_mcp.settings import CodeModeSettings

TELEMETRY_BYTES = 900
"""Maximum bytes of the telemetry in one answer."""

TELEMETRY_KEY = "codemode-mcp/telemetry"
"""Key of telemetry in the `_meta` of a tool result."""

VISIBLE_TOOLS = ("exec", "wait")
"""Names of the tools that a client sees."""


def telemetry_json(usage: Usage, limits: CodeModeSettings, now: float) -> dict[str, Any]:
    """Return the usage of a run as JSON of at most `TELEMETRY_BYTES`, with the latest calls that fit.

    Args:
        now: the time, on the clock of the call records.
    """
    telemetry: dict[str, Any] = {
        "visibleTools": list(VISIBLE_TOOLS),
        "catalog": {"size": usage.catalog_size, "sources": dict(usage.sources)},
        "counts": {
            "exec": usage.execs,
            "wait": usage.waits,
            "search": usage.searches,
            "describe": usage.describes,
            "call": usage.call_count,
        },
        "calls": [],
        "caps": {"timeoutMs": limits.timeout_ms, "maxOutputBytes": limits.max_output_bytes},
        "snapshots": usage.snapshots,
        "ms": usage.ms,
    }
    if usage.exceeded is not None:
        telemetry["exceeded"] = usage.exceeded._asdict()
    if (snapshot := usage.snapshot) is not None:
        telemetry["snapshot"] = {
            "bytes": snapshot.size,
            "store": snapshot.store,
            "restored": snapshot.restored,
            "takenOver": snapshot.taken_over,
        }
    calls = [
        {
            "tool": record.tool if len(record.tool) <= 60 else record.tool[:59] + "…",
            "ms": record.milliseconds(now),
            "bytes": record.size,
            "status": record.status,
            "dispatched": record.dispatched,
            "repeatable": record.may_be_repeated,
        }
        for record in usage.calls
    ]
    while True:
        telemetry["calls"] = calls
        if usage.call_count > len(calls):
            telemetry["callsOmitted"] = usage.call_count - len(calls)
        if not calls or size(compact_json(telemetry)) <= TELEMETRY_BYTES:
            return telemetry
        calls = calls[1:]
