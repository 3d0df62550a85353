"""The check of the compiler for type checks, with a trial."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from codemode_mcp.cli.doctor.check import Check, elapsed_ms
from codemode_mcp.errors import CodeModeError
from codemode_mcp.paths import cache_dir

if TYPE_CHECKING:
    from collections.abc import Iterable

    from codemode_mcp.app.app import App
    from codemode_mcp.config import Config

_NAME: Final = "type check"
_FETCH: Final = "run codemode-mcp setup --check (npm fetches 10 MB)"


async def check(app: App, config: Config) -> Iterable[Check]:
    """Check the compiler of TypeScript, and check a program with it."""
    from codemode_mcp.program.preflight import inspect
    from codemode_mcp.type_check.checked_text import of_cell
    from codemode_mcp.type_check.compiler import find_compiler
    from codemode_mcp.type_check.typescript_pin import VERSION

    mode = config.tools.code_mode.check
    wanted = mode != "off"
    try:
        await anyio.to_thread.run_sync(find_compiler, cache_dir(), abandon_on_cancel=True)
    except CodeModeError as error:
        if wanted:
            return [Check(_NAME, "warn", f"programs are not checked: {error.message}", _FETCH)]
        return [Check(_NAME, "info", f"off, and TypeScript {VERSION} is not fetched", f"to check programs: {_FETCH}")]
    await app.manager()
    assert app.checker is not None
    began = time.monotonic()
    trial = of_cell(inspect("(await MCP.$api()).nothing", "javascript"), "javascript")
    found = await app.checker.check(trial, await app.catalog_for(app.operator, None))
    if not found.problems:
        why = found.unchecked or "it does not find an error that it should find"
        return [Check(_NAME, "warn", f"TypeScript {VERSION} does not work: {why}", f"delete {cache_dir()}; {_FETCH}")]
    return [Check(_NAME, "ok", f"{mode}; TypeScript {VERSION} checks a program in {elapsed_ms(began):,} ms")]
