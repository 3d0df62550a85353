"""`codemode-mcp new` and `codemode-mcp test`."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
import typer
from msgspec import Struct

from codemode_mcp.cli.command_service import read_program
from codemode_mcp.cli.loading import programs_folder
from codemode_mcp.cli.messages import say, say_command, say_line, stop, stop_line
from codemode_mcp.cli.options import ConfigOption
from codemode_mcp.cli.parser import live_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codemode_mcp.audit.recordings.format import Recording
    from codemode_mcp.base.settings import Language
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.saved_programs.folder import Library
    from codemode_mcp.extensions.program_tools.drafts import Draft, Parameter
    from codemode_mcp.extensions.program_tools.drafts.parameters import ValueSchema
    from codemode_mcp.extensions.program_tools.program_tests.cases import Case
    from codemode_mcp.extensions.program_tools.program_tests.report import TestResult
    from upstream_clients.tools import JsonObject


app = typer.Typer()

FIRST = "first"
"""Name of the test that a draft gets."""

MAX_TYPE = 60
"""Characters of a name with its type in the list of parameters."""

MAX_DEFAULT = 40
"""Characters of a default value in the list of parameters."""


@app.command(
    epilog="Example: codemode-mcp new weeklyReport --from run_4fK2mQ8xZ1\n\n"
    "Example: codemode-mcp new weeklyReport --from report.ts"
)
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the saved program; with .js for JavaScript.")],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="RUN|FILE",
            help="Run, recording or program that becomes the saved program.",
            autocompletion=live_runs,
        ),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Write a saved program: an empty one, or one made from a program that has run."""
    from codemode_mcp.catalog.saved_programs.saved_program import file_name
    from codemode_mcp.extensions.program_tools.drafts import skeleton

    stem, language = _split(name)
    folder = programs_folder(config)
    if source is None:
        language = language or "typescript"
        path = _write(folder, file_name(stem, language), skeleton(language))
        say(f"{path} is written; fill in what it does and what it needs")
        return
    program = read_source(source, config)
    draft = _draft(program, name, language)
    path = _write(folder, file_name(stem, draft.language), draft.text)
    _say_parameters(path, draft)
    _say_problem(path, stem, draft)
    if program.recording is not None:
        _write_test(folder, stem, program.recording, draft)
        say("Its recorded run is its first test; the next command runs it:")
        say_command(f"codemode-mcp test {shlex.quote(str(path))}")
        return
    say("The next command runs it, and keeps the run as its first test:")
    say_command(_run_command(stem, draft, folder, config))


def _run_command(name: str, draft: Draft, folder: Path, config: str | None) -> str:
    """Return the command that runs a draft with the values of its program, and records the run."""
    from codemode_mcp.extensions.program_tools.drafts.literals import UNKNOWN
    from codemode_mcp.extensions.program_tools.program_tests.cases import RECORDING

    given = {each.name: each.value for each in draft.parameters if each.text is not None and each.value is not UNKNOWN}
    given |= {each.name: "..." for each in draft.parameters if each.text is None}
    option = f" --input {shlex.quote(json.dumps(given, ensure_ascii=False))}" if given else ""
    option += "" if config is None else f" --config {shlex.quote(config)}"
    recording = folder / f"{name}.{FIRST}{RECORDING}"
    return f"codemode-mcp run --program {name}{option} --record {shlex.quote(str(recording))}"


def _split(name: str) -> tuple[str, Language | None]:
    """Return the name of a program and the language by its suffix. End the command if it is no name."""
    from codemode_mcp.catalog.saved_programs.saved_program import SUFFIXES, name_problem

    suffix = Path(name).suffix
    stem = name.removesuffix(suffix) if suffix in SUFFIXES else name
    problem = name_problem(stem)
    if problem is not None:
        stop_line(2, f"{name}: {problem}")
    return stem, SUFFIXES.get(suffix)


def _draft(source: DraftSource, name: str, language: Language | None) -> Draft:
    from codemode_mcp.base.errors import ProgramError
    from codemode_mcp.extensions.program_tools.drafts import make_draft

    if source.language == "typescript" and language == "javascript":
        stop_line(2, f"the program is TypeScript; leave .js out of {name}")
    try:
        return make_draft(
            source.text,
            language or source.language,
            origin=source.origin,
            args=source.args,
            schema_of=source.schema_of,
        )
    except ProgramError as error:
        stop_line(1, f"{source.origin}: {error.message}")


def _write(folder: Path, name: str, text: str) -> Path:
    """Write a new file. End the command if a program of this name exists."""
    from codemode_mcp.catalog.saved_programs.saved_program import SUFFIXES

    stem = Path(name).stem.casefold()
    path = folder / name
    if folder.is_symlink():
        stop_line(1, f"{folder} is a symbolic link, and saved programs are not read through links; use a folder")
    try:
        folder.mkdir(exist_ok=True)
        for other in os.listdir(folder):
            # Names that differ only by case would be one file on some systems.
            if Path(other).suffix in SUFFIXES and Path(other).stem.casefold() == stem:
                stop_line(1, f"{folder / other} exists already; choose another name, or remove it first")
        with open(path, "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        stop_line(1, f"cannot write {path}: {error.strerror}")
    return path


def _write_test(folder: Path, name: str, recording: bytes, draft: Draft) -> None:
    """Write the recording of the program, and the input with which the draft does the same, as its first test."""
    from codemode_mcp.extensions.program_tools.program_tests.cases import Case
    from codemode_mcp.extensions.program_tools.program_tests.comparison import Expectation, written

    case = Case(folder, name, FIRST, f"{name}.{FIRST}")
    try:
        # A recording has results of calls, so it is private, as where it comes from.
        descriptor = os.open(case.recording, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(recording)
        if draft.old_input:
            with open(case.expectation, "x", encoding="utf-8", newline="\n") as text:
                text.write(written(Expectation(input=draft.old_input)))
    except OSError as error:
        stop_line(1, f"cannot write the test {case.stem} in {folder}: {error.strerror}; move files of this name away")


def _say_parameters(path: Path, draft: Draft) -> None:
    say_line(f"{path} is written")
    if not draft.parameters:
        say("It has no parameters: no call of a tool has a text or a number in its arguments.")
    else:
        say("Its parameters, with the values of the program as defaults:")
        for parameter in draft.parameters:
            say_command(_row(parameter))
    if draft.quotes_secret:
        say("A secret, or its placeholder, is still in the text. Take it out before the program is used.")
    say("Say in its first comment what it does: models choose it by this text.")


def _row(parameter: Parameter) -> str:
    from codemode_mcp.base.display import cut

    default = "required: a secret stood here"
    if parameter.text is not None:
        default = f"default {cut(parameter.example or parameter.text, MAX_DEFAULT)}"
    return f"{cut(f'{parameter.name}: {parameter.type}', MAX_TYPE)} ({default}), for {cut(parameter.used, 80)}"


def _say_problem(path: Path, name: str, draft: Draft) -> None:
    """End the command if the file that was written is not yet a saved program."""
    from codemode_mcp.catalog.saved_programs.program_file import read_program
    from codemode_mcp.catalog.saved_programs.saved_program import ProgramFileError

    try:
        read_program(name, draft.language, draft.text)
    except ProgramFileError as error:
        stop_line(1, f"{path}:{error.line}: {error.text}")


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
    from codemode_mcp.extensions.program_tools.program_tests.report import summary

    for line in summary(results, time.perf_counter() - began):
        print(line)
    if junit_file is not None:
        _write_junit(junit_file, results)
    if any(each.status != "passed" for each in results):
        raise typer.Exit(1)


def _cases(paths: list[Path]) -> list[Case]:
    from codemode_mcp.extensions.program_tools.program_tests.cases import cases_at, without_repetition

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
    from codemode_mcp.extensions.program_tools.program_tests.cases import SelectionError, selection

    try:
        is_selected = selection(only)
    except SelectionError as error:
        stop_line(2, str(error))
    return [case for case in cases if is_selected(f"{case.program}::{case.name}")]


async def _run_all(cases: list[Case], results: list[TestResult], verbose: bool, exit_first: bool, update: bool) -> None:
    """Run the tests in order, and print the progress. The results are complete as far as the tests came."""
    from codemode_mcp.base.errors import CodeModeError
    from codemode_mcp.base.paths import cache_dir
    from codemode_mcp.catalog.saved_programs.compiling import ProgramCompiler
    from codemode_mcp.catalog.saved_programs.folder import read_folder
    from codemode_mcp.extensions.program_tools.program_tests.report import Progress
    from codemode_mcp.extensions.program_tools.program_tests.running import Runner
    from codemode_mcp.extensions.program_tools.replaying import compile_typescript
    from codemode_mcp.program.intl import intl_reader
    from codemode_mcp.sandbox.engine import open_engine

    progress = Progress(len(cases), verbose=verbose)
    libraries: dict[Path, Library] = {}
    try:
        with open_engine(cache_dir(), max_threads=1, intl=intl_reader(cache_dir())) as engine:
            runner = Runner(engine, compile_typescript, ProgramCompiler(compile_typescript), update)
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


def _write_junit(path: Path, results: list[TestResult]) -> None:
    from codemode_mcp.extensions.program_tools.program_tests.report import junit

    try:
        path.write_text(junit(results), "utf-8")
    except OSError as error:
        stop_line(1, f"cannot write {path}: {error.strerror}; name another file with --junit")
    print(f"the results are in {path}", file=sys.stderr)


# The programs of which `codemode-mcp new --from` makes saved programs: files and recordings.


_RUN = re.compile(r"run_[A-Za-z0-9_-]{4,80}")


class DraftSource(Struct, frozen=True):
    """A program of which a saved program is made.

    Attributes:
        origin: words for it in the new file.
        args: the values of `args` in the run.
        schema_of: the schemas of the called tools; None if they are not known.
        recording: the file of its recorded run; None if it is only a text.
    """

    text: str
    language: Language
    origin: str
    args: Sequence[str] = ()
    schema_of: ValueSchema | None = None
    recording: bytes | None = None


def read_source(source: str, config: str | None) -> DraftSource:
    """Return the program of a file, of a recording or of a run. End the command if there is none.

    Args:
        source: the path of a file, or the id of a run.
        config: the value of `--config`.
    """
    path = Path(source)
    if _RUN.fullmatch(source) and not path.exists():
        from codemode_mcp.cli.recording_files import exported_run

        found = exported_run(source, config)
        return _recorded(found.data, f"the recording of run {found.run_id}")
    if not path.exists():
        stop_line(2, f"there is no run and no file {source}; codemode-mcp runs list shows the runs")
    if path.suffix == ".jsonl":
        return _recorded(_read(path), str(path))
    text, language = read_program(path, None)
    if language is None:
        stop_line(2, f"{source} is no program and no recording: their names end in .ts, .js and .jsonl")
    return DraftSource(text, "typescript" if language == "typescript" else "javascript", path.name)


def _read(path: Path) -> bytes:
    from codemode_mcp.audit.recordings.format import MAX_BYTES

    try:
        # Opening a pipe would wait for a writer.
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        stop_line(1, f"cannot read {path}: {error.strerror}")
    if len(data) > MAX_BYTES:
        stop_line(1, f"{path} has more than {MAX_BYTES} bytes; record a shorter run")
    return data


def _recorded(data: bytes, name: str) -> DraftSource:
    from codemode_mcp.audit.recordings.format import NotReadable, recording_of
    from codemode_mcp.base.errors import CodeModeError
    from codemode_mcp.catalog.serialize import read_catalog

    try:
        recording = recording_of(io.BytesIO(data))
        catalog = read_catalog(recording.catalog.text)
    except (NotReadable, ValueError, CodeModeError) as error:
        stop_line(1, f"{name} is no recording that can be read: {error}")
    return source_of(recording, catalog, data)


def source_of(recording: Recording, catalog: Catalog, data: bytes) -> DraftSource:
    """Return the program of a recording.

    Args:
        catalog: the catalog of the recording.
        data: the file.
    """
    opening = recording.opening
    return DraftSource(
        opening.source,
        opening.language,
        f"run {opening.run}",
        opening.args,
        _Schemas(catalog),
        data,
    )


class _Schemas:
    """The schemas of the tools of a catalog, by the members of calls."""

    def __init__(self, catalog: Catalog) -> None:
        entries = (*catalog.index.by_id.values(), *catalog.toolset.entries)
        self._by_path = {entry.path: entry.tool.input_schema for entry in entries}
        self._by_id = {entry.id: entry.tool.input_schema for entry in entries}

    def __call__(self, call: tuple[str, ...], path: tuple[str, ...]) -> JsonObject | None:
        from codemode_mcp.extensions.program_tools.drafts.parameters import value_schema

        schema = self._by_path.get(".".join(call)) or self._by_id.get(call[-1])
        return None if schema is None else value_schema(schema, path)
