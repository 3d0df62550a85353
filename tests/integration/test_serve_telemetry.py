"""The telemetry of answers, and failures after the end of a program, from the real process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.harness import Session, counting, serve

pytestmark = pytest.mark.anyio

LIMITS = {
    "timeoutMs": 3000,
    "memoryLimitBytes": 8 * 1024 * 1024,
    "maxOutputBytes": 2000,
    "maxSnapshotBytes": 10_000,
    "maxPendingToolCalls": 1,
    "maxQueuedToolCalls": 0,
    "maxToolResultBytes": 1024,
}


RANDOM = "const a = Array.from({ length: 4_000 }, Math.random);"
"""Data of which a snapshot takes more than 30 kB."""


def write(folder: Path, name: str, **code_mode: Any) -> Path:
    """Return a configuration with a counting server and a store of its own."""
    config = {
        "mcpServers": {"up": counting(folder / f"{name}.log")},
        "tools": {"codeMode": code_mode},
        "store": {"kind": "sqlite", "path": f"{name}.sqlite3"},
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(config), "utf-8")
    return path


@pytest.fixture(scope="module")
async def limited(folder: Path) -> AsyncIterator[Session]:
    async with serve(write(folder, "limited", **LIMITS)) as session:
        await session.value("return (await MCP.up.count({ name: 'up' })).content.length")
        yield session


async def test_the_catalog_is_counted_also_where_nothing_ran(folder: Path, limited: Session) -> None:
    counted = {}
    for tool, arguments in (
        ("exec", {}),
        ("exec", {"code": "return (("}),
        ("exec", {"code": " " * 1_200_000}),
        ("exec", {"code": "1" * 1_200_000}),
        ("exec", {"code": 7}),
        ("exec", {"code": "return 1", "language": "cobol"}),
        ("exec", {"code": "await MCP.up.nothing({})"}),
        ("wait", {}),
        ("wait", {"runId": "run_that_there_is_not"}),
    ):
        answer = await limited.call(tool, arguments)
        assert answer.is_error
        shown = {key: len(value) if isinstance(value, str) else value for key, value in arguments.items()}
        counted[f"{tool} {shown}"] = answer.telemetry["catalog"]
        assert (answer.telemetry["counts"][tool], answer.telemetry["visibleTools"]) == (1, ["exec", "wait"])
    right = (await limited.exec("return 1")).telemetry["catalog"]
    assert right["sources"]["mcp"] == 9
    assert sum(right["sources"].values()) == right["size"]
    assert counted == dict.fromkeys(counted, right)


@pytest.mark.parametrize(
    ("code", "cap", "least", "limit"),
    [
        ("for (;;);", "timeoutMs", 3000, 3000),
        ("const a = []; for (;;) a.push('x'.repeat(1e5) + a.length)", "memoryLimitBytes", 1_000_000, 8 * 1024 * 1024),
        ("return 'x'.repeat(5000)", "maxOutputBytes", 5002, 2000),
        ("for (let i = 0; i < 9; i++) text('x'.repeat(500)); return 1", "maxOutputBytes", 4500, 2000),
        (f"{RANDOM} await yield_control(); return a.length", "maxSnapshotBytes", 10_000, 10_000),
        ("await Promise.all([1, 2, 3].map((n) => MCP.up.count({ name: `${n}` })))", "maxQueuedToolCalls", 2, 1),
        ("return (await MCP.up.count({ name: 'x'.repeat(2000) }).catch(() => 1))", "maxToolResultBytes", 2000, 1024),
        ("/*" + "x" * 1_200_000 + "*/ return 1", "programCharacters", 1_200_000, 1_100_000),
    ],
    ids=lambda each: each if isinstance(each, str) and each.isalpha() else "",
)
async def test_a_cap_that_was_exceeded_is_told_with_its_figure_and_limit(
    limited: Session, code: str, cap: str, least: int, limit: int
) -> None:
    answer = await limited.exec(code)
    assert "exceeded" in answer.telemetry, answer
    told = answer.telemetry["exceeded"]
    assert (told["cap"], told["limit"]) == (cap, limit)
    assert told["figure"] >= least
    assert "exceeded" not in (await limited.exec("return 1")).telemetry


async def test_snapshots_are_told_with_their_bytes_and_who_restored_them(folder: Path) -> None:
    config = write(folder, "kept")
    async with serve(config) as session:
        assert "snapshot" not in (await session.exec("return 1")).telemetry
        suspended = await session.exec("for (let i = 0; i < 2; i++) await yield_control(); return 'over'")
        first = suspended.telemetry["snapshot"]
        assert first["bytes"] > 100
        assert {**first, "bytes": 0} == {"bytes": 0, "store": "sqlite", "restored": 0, "takenOver": False}
        again = (await session.wait(suspended.run_id)).telemetry
        assert (again["snapshot"]["restored"], again["snapshots"], again["counts"]["wait"]) == (1, 2, 1)
        large = await session.exec(f"{RANDOM} await yield_control(); return a.length")
    write(folder, "kept", maxSnapshotBytes=20_000)
    async with serve(config) as session:
        ended = await session.wait(suspended.run_id)
        assert ended.value == "over"
        assert (ended.telemetry["snapshot"]["restored"], ended.telemetry["snapshot"]["takenOver"]) == (1, True)
        # A limit that was lowered meanwhile is told too.
        refused = await session.wait(large.run_id)
        assert refused.code == "snapshot_restore_failed"
        size = large.telemetry["snapshot"]["bytes"]
        assert refused.telemetry["exceeded"] == {"cap": "maxSnapshotBytes", "figure": size, "limit": 20_000}
        assert refused.telemetry["catalog"]["size"] > 0
