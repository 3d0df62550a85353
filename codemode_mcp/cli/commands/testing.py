"""`codemode-mcp test`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from codemode_mcp.cli.messages import say, stop, stop_line
from codemode_mcp.cli.options import ConfigOption
from codemode_mcp.cli.programs_folder import programs_folder

if TYPE_CHECKING:
    from codemode_mcp.program.typescript import Transformed
    from codemode_mcp.program_tests.cases import Case
    from codemode_mcp.program_tests.result import TestResult
    from codemode_mcp.saved_programs.folder import Library

app = typer.Typer()

TRANSFORM_SECONDS = 60.0
"""Maximum seconds to compile the TypeScript of one program."""

NO_TESTS = 5
"""Exit code if there are no tests, as with pytest."""


@app.command("test", epilog="Example: codemode-mcp test\n\nExample: codemode-mcp test programs/weeklyReport.ts -v")
def run_tests(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help="Folder, saved program or recording; default: all saved programs."),
    ] = None,
    config: ConfigOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print a line for each test.")] = False,
    only: Annotated[
        str | None, typer.Option("-k", metavar="WORDS", help="Only tests with these words, as in: report and not slow.")
    ] = None,
    exit_first: Annotated[bool, typer.Option("--exitfirst", "-x", help="Stop after the first failure.")] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Accept what the programs do now, and write it beside the recordings.")
    ] = False,
    junit_file: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write the results as JUnit XML.")
    ] = None,
) -> None:
    """Replay the recordings beside saved programs, without any server, and compare what the programs do.

    Exit codes: 0 if all tests pass, 1 if one fails or cannot run, 2 for wrong usage, 5 if there are no tests.
    """
    cases = _cases(paths or [programs_folder(config)])
    if only is not None:
        cases = _selected(cases, only)
    if not cases:
        where = ", ".join(map(str, paths)) if paths else "the folder of saved programs"
        say(
            f"no tests: no recording in {where}{'' if only is None else ' has a name that -k selects'}; record one: "
            "codemode-mcp run --program NAME --record programs/NAME.first.recording.jsonl"
        )
        raise typer.Exit(NO_TESTS)
    began = time.perf_counter()
    results: list[TestResult] = []
    try:
        anyio.run(_run_all, cases, results, verbose, exit_first, update)
    except KeyboardInterrupt:
        stop(2, "interrupted")
    from codemode_mcp.program_tests.report import summary

    for line in summary(results, time.perf_counter() - began):
        print(line)
    if junit_file is not None:
        _write_junit(junit_file, results)
    if any(each.status != "passed" for each in results):
        raise typer.Exit(1)


def _cases(paths: list[Path]) -> list[Case]:
    from codemode_mcp.program_tests.cases import cases_at, without_repetition

    found: list[Case] = []
    for path in paths:
        try:
            found += cases_at(path)
        except FileNotFoundError:
            if len(paths) > 1 or path.name != "programs":
                stop_line(2, f"there is no file or folder {path}; name a folder of saved programs, or one of its files")
        except OSError as error:
            stop_line(2, f"cannot read {path}: {error.strerror}")
    return without_repetition(found)


def _selected(cases: list[Case], only: str) -> list[Case]:
    from codemode_mcp.program_tests.selection import SelectionError, selection

    try:
        is_selected = selection(only)
    except SelectionError as error:
        stop_line(2, str(error))
    return [case for case in cases if is_selected(f"{case.program}::{case.name}")]


async def _run_all(cases: list[Case], results: list[TestResult], verbose: bool, exit_first: bool, update: bool) -> None:
    """Run the tests in order, and print the progress. The results are complete as far as the tests came."""
    from codemode_mcp.errors import CodeModeError
    from codemode_mcp.paths import cache_dir
    from codemode_mcp.program.intl import intl_reader
    from codemode_mcp.program_tests.report import Progress
    from codemode_mcp.program_tests.running import Runner
    from codemode_mcp.sandbox.engine import open_engine
    from codemode_mcp.saved_programs.compiling import ProgramCompiler
    from codemode_mcp.saved_programs.folder import read_folder

    progress = Progress(len(cases), verbose=verbose)
    libraries: dict[Path, Library] = {}
    try:
        with open_engine(cache_dir(), max_threads=1, intl=intl_reader(cache_dir())) as engine:
            runner = Runner(engine, _transform, ProgramCompiler(_transform), update)
            for case in cases:
                if case.folder not in libraries:
                    libraries[case.folder] = read_folder(case.folder)
                results.append(await runner.run(case, libraries[case.folder]))
                print(progress.of(results[-1]), end="", flush=True)
                if exit_first and results[-1].status != "passed":
                    break
    except CodeModeError as error:
        stop(1, error.message)
    print(progress.stopped(), end="")


async def _transform(source: str) -> Transformed:
    from codemode_mcp.paths import cache_dir
    from codemode_mcp.program.esbuild import find_esbuild
    from codemode_mcp.program.typescript import transform

    esbuild = find_esbuild(None, environ=os.environ, cache_dir=cache_dir())
    return await transform(esbuild, source, timeout=TRANSFORM_SECONDS)


def _write_junit(path: Path, results: list[TestResult]) -> None:
    from codemode_mcp.program_tests.junit import junit

    try:
        path.write_text(junit(results), "utf-8")
    except OSError as error:
        stop_line(1, f"cannot write {path}: {error.strerror}; name another file with --junit")
    print(f"the results are in {path}", file=sys.stderr)
