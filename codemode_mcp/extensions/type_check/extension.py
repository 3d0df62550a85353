"""The parts that this extension adds to the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from codemode_mcp.extension_points import Extension, TypeCheck

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from codemode_mcp.base.settings import Language
    from codemode_mcp.catalog.saved_programs.saved_program import SavedProgram
    from codemode_mcp.cli.check import Check
    from codemode_mcp.config import Config
    from codemode_mcp.extension_points import Checker
    from codemode_mcp.server.services import App


def _open(cache_dir: Path) -> Checker:
    from codemode_mcp.extensions.type_check.checker import TypeChecker

    return TypeChecker(cache_dir)


def _check_cell_and_end(config: Config, source: str, language: Language | None, file: str) -> NoReturn:
    from codemode_mcp.extensions.type_check.terminal_checks import check_cell_and_end

    check_cell_and_end(config, source, language, file)


def _check_saved(config: Config, programs: Sequence[SavedProgram]) -> None:
    from codemode_mcp.extensions.type_check.terminal_checks import check_saved, report

    report(check_saved(config, programs))


async def _check_compiler(app: App, config: Config) -> Iterable[Check]:
    from codemode_mcp.extensions.type_check.terminal_checks import check_compiler

    return await check_compiler(app, config)


async def _prepare(config: Config, report: Callable[[Check], None], wanted: bool) -> None:
    from codemode_mcp.extensions.type_check.terminal_checks import prepare

    await prepare(config, report, wanted)


EXTENSION = Extension(
    type_check=TypeCheck(_open, _check_cell_and_end, _check_saved),
    checks={"type check": _check_compiler},
    prepare=_prepare,
)
