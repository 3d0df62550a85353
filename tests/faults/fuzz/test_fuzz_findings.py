"""Tests of what fuzzing has found, made small."""

from __future__ import annotations

from typing import Any

import pytest

from codemode_mcp.runs.driver import DEADLINE_GRACE
from codemode_mcp.sandbox.engine import Engine
from tests.runs.bench import bench
from upstream_clients.testing import ScriptedSource, text_result

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("code", ["await null", "return null", "Promise.prototype.then = null"])
async def test_what_a_microtask_throws_ends_no_program(engine: Engine, code: str) -> None:
    async with bench(engine) as it:
        ended = await it.execute(f'queueMicrotask(() => {{ throw new TypeError("in a microtask"); }});\n{code};')
    assert (ended.status, ended.value) == ("completed", None)
    assert "TypeError: in a microtask\n    at cell.js:1:" in ended.notes[0]


async def test_a_program_that_nothing_can_settle_is_not_suspended_at_the_deadline(engine: Engine) -> None:
    def just_past_the_deadline(arguments: dict[str, Any]) -> dict[str, Any]:
        it.clock.advance(began + seconds - it.clock() + 0.1 * DEADLINE_GRACE)
        return text_result("late")

    seconds = 5.0
    async with bench(engine, ScriptedSource("s", {"t": just_past_the_deadline}), timeout_ms=5000) as it:
        began = it.clock()
        ended = await it.execute("await MCP.s.t({});\nawait new Promise(() => {});")
    assert ended.status == "failed"
    assert "nothing can settle" in ended.error
