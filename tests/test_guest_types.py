"""`declarations/guest.d.ts` against the globals a program really has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import declarations
from codemode_mcp.sandbox.engine import Engine
from tests.runs.bench import bench

TEXT = (Path(declarations.__file__).parent / "guest.d.ts").read_text("utf-8")


@pytest.mark.anyio
async def test_every_declared_global_is_there(engine: Engine) -> None:
    names = re.findall(r"^declare (?:const|function|class) (\w+)", TEXT, re.MULTILINE)
    assert {"API", "unwrap", "console", "setTimeout", "URL"} <= set(names)
    async with bench(engine) as it:
        outcome = await it.execute(f"return {names!r}.filter((name) => !(name in globalThis))")
    assert outcome.value == []


@pytest.mark.anyio
async def test_every_method_of_the_console_is_declared(engine: Engine) -> None:
    async with bench(engine) as it:
        outcome = await it.execute("return Object.keys(console)")
    assert [name for name in outcome.value if not re.search(rf"^  {name}\(", TEXT, re.MULTILINE)] == []
