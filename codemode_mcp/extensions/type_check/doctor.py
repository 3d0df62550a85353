"""The check of the compiler, and its download ahead of time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.base.paths import cache_dir
from codemode_mcp.cli.check import Check, elapsed_ms
from codemode_mcp.extensions.type_check.checker import TypeChecker
from codemode_mcp.extensions.type_check.compiler import VERSION, fetch_compiler, find_compiler
from codemode_mcp.extensions.type_check.declared import of_cell
from codemode_mcp.program.preflight import inspect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from codemode_mcp.config import Config
    from codemode_mcp.server.services import App

_NAME: Final = "type check"
_FETCH: Final = "run codemode-mcp setup --check (npm fetches 10 MB)"


async def check_compiler(app: App, config: Config) -> Iterable[Check]:
    mode = config.tools.code_mode.check
    wanted = mode != "off"
    try:
        await anyio.to_thread.run_sync(find_compiler, cache_dir(), abandon_on_cancel=True)
    except CodeModeError as error:
        if wanted:
            return [Check(_NAME, "warn", f"programs are not checked: {error.message}", _FETCH)]
        return [Check(_NAME, "info", f"off, and TypeScript {VERSION} is not fetched", f"to check programs: {_FETCH}")]
    checker = (await app.opened()).checker
    assert isinstance(checker, TypeChecker)
    began = time.monotonic()
    trial = of_cell(inspect("(await MCP.$api()).nothing", "javascript"), "javascript")
    found = await checker.check(trial, await app.catalog_for(app.operator, None))
    if not found.problems:
        why = found.unchecked or "it does not find an error that it should find"
        return [Check(_NAME, "warn", f"TypeScript {VERSION} does not work: {why}", f"delete {cache_dir()}; {_FETCH}")]
    return [Check(_NAME, "ok", f"{mode}; TypeScript {VERSION} checks a program in {elapsed_ms(began):,} ms")]


async def prepare(config: Config, report: Callable[[Check], None], wanted: bool) -> None:
    """Fetch the compiler if a person or the configuration wants it."""
    if wanted or config.tools.code_mode.check != "off":
        report(await anyio.to_thread.run_sync(_compiler, abandon_on_cancel=True))


def _compiler() -> Check:
    try:
        try:
            compiler, how = find_compiler(cache_dir()), "there already"
        except CodeModeError:
            compiler, how = fetch_compiler(cache_dir()), "fetched with npm"
    except CodeModeError as error:
        return Check("type check", "fail", error.message, "connect to the network and run codemode-mcp setup --check")
    return Check("type check", "ok", f"{how}, TypeScript {VERSION}, {compiler.executable}")
