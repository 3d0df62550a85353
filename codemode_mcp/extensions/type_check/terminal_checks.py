"""The type check of programs at a terminal, for `codemode-mcp run --check` and `codemode-mcp programs check`.

Nothing of a program runs. Servers whose tool lists are kept are not started.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

import anyio
import anyio.to_thread
from msgspec import Struct

from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.base.paths import cache_dir
from codemode_mcp.cli.check import Check, elapsed_ms
from codemode_mcp.cli.loading import logging_of, plugins_on_stderr
from codemode_mcp.cli.messages import end, say, say_line
from codemode_mcp.extensions.type_check.checker import TypeChecker
from codemode_mcp.extensions.type_check.compiler import VERSION, fetch_compiler, find_compiler
from codemode_mcp.extensions.type_check.declared import CheckedText, of_cell
from codemode_mcp.extensions.type_check.problems import positions, signatures
from codemode_mcp.program.preflight import inspect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from codemode_mcp.base.settings import Language
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.saved_programs.saved_program import SavedProgram
    from codemode_mcp.config import Config
    from codemode_mcp.extensions.type_check.checker import Checked
    from codemode_mcp.program.inspection import Preflight
    from codemode_mcp.program.prepare import Transform
    from codemode_mcp.server.services import App

    Types = Callable[[CheckedText], Awaitable[Checked]]
    """A function that checks a text against the catalog."""


CONNECT_SECONDS: Final = 30.0
"""Timeout for connecting servers whose tools are unknown."""


class CheckedFiles(Struct, frozen=True):
    """The result of a check of some files.

    Attributes:
        errors: a line for each error, with its position.
        unchecked: a line for each file that could not be checked.
    """

    errors: Sequence[str] = ()
    unchecked: Sequence[str] = ()


def check_cell_and_end(config: Config, source: str, language: Language | None, file: str) -> NoReturn:
    """Check a program for `exec`, show its type errors, and end the command: with 1 if there are any.

    Args:
        file: the name of its file, for positions.
    """
    report(anyio.run(partial(_in_app, config, partial(_cell, source, language, file))))
    say(f"{file}: no type errors")
    end(0)


def report(found: CheckedFiles) -> None:
    """Show the lines of a check. End the command with 1 if there are errors, or a file could not be checked."""
    for line in (*found.errors, *found.unchecked):
        say_line(line)
    if found.errors or found.unchecked:
        end(1)


def check_saved(config: Config, programs: Sequence[SavedProgram]) -> CheckedFiles:
    return anyio.run(partial(_in_app, config, partial(_saved, programs)))


async def _in_app(
    config: Config, check: Callable[[Catalog, Transform, Types], Awaitable[CheckedFiles]]
) -> CheckedFiles:
    from codemode_mcp.process.app.app import open_app

    with logging_of(config, level="error"), plugins_on_stderr():
        async with open_app(config) as app:
            pool = await app.pool()
            unknown = {view.name for view in pool.views() if view.state != "idle"}
            await pool.connect(unknown, CONNECT_SECONDS)
            catalog = await app.catalog_for(app.operator, None)
            checker = (await app.opened()).checker
            assert isinstance(checker, TypeChecker)
            return await check(catalog, app.transform, lambda text: checker.check(text, catalog))


async def _cell(
    source: str, language: Language | None, file: str, catalog: Catalog, transform: Transform, types: Types
) -> CheckedFiles:
    from codemode_mcp.program.prepare import has_types

    language = language or ("typescript" if has_types(source) else "javascript")
    found = _inspected(source, language, file, catalog)
    if isinstance(found, CheckedFiles):
        return found
    text = of_cell(found, language)
    lines = _lines(text, await types(text), file, catalog)
    return await _syntax(source, file, transform) or lines if lines.unchecked else lines


async def _saved(
    programs: Sequence[SavedProgram], catalog: Catalog, transform: Transform, types: Types
) -> CheckedFiles:
    from codemode_mcp.catalog.saved_programs.compiling import function_body
    from codemode_mcp.extensions.type_check.declared import of_module

    found = []
    for program in programs:
        file = f"programs/{program.file}"
        inspected = _inspected(program.text, program.language, file, catalog)
        if isinstance(inspected, CheckedFiles):
            found.append(inspected)
            continue
        text = of_module(program.text, program.language)
        lines = _lines(text, await types(text), file, catalog)
        if lines.unchecked:
            lines = await _syntax(function_body(program), file, transform) or lines
        found.append(lines)
    return _joined(found)


async def _syntax(source: str, file: str, transform: Transform) -> CheckedFiles | None:
    """Return the syntax errors of a program that could not be checked; None if none are known.

    JavaScript is read as TypeScript here.
    """
    try:
        await transform(source)
    except CodeModeError as error:
        cell = "cell.ts:"
        found = [f"{file}:{line.removeprefix(cell)}" for line in error.message.splitlines() if line.startswith(cell)]
        return CheckedFiles(errors=found) if found else None
    return None


def _inspected(source: str, language: Language, file: str, catalog: Catalog) -> Preflight | CheckedFiles:
    """Return the preflight of a program, or its errors if it would be refused."""
    from codemode_mcp.program.inspection import CELL_FILES
    from codemode_mcp.program.mcp_uses import check_members

    try:
        found = inspect(source, language)
        check_members(found, catalog.members, language, catalog.withheld)
    except CodeModeError as error:
        return CheckedFiles(errors=error.message.replace(f"({CELL_FILES[language]}:", f"({file}:").splitlines())
    return found


def _lines(text: CheckedText, checked: Checked, file: str, catalog: Catalog) -> CheckedFiles:
    if checked.unchecked is not None:
        return CheckedFiles(unchecked=[f"{file}: not checked: {checked.unchecked}"])
    return CheckedFiles(positions(text, checked.problems, file, signatures(catalog)))


def _joined(files: Sequence[CheckedFiles]) -> CheckedFiles:
    return CheckedFiles(
        [line for each in files for line in each.errors],
        [line for each in files for line in each.unchecked],
    )


# The check of a cell by the setting `codeMode.check`, and the texts about its errors.


# The check of the compiler, and its download ahead of time.


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
