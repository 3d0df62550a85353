"""`codemode-mcp new`."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from codemode_mcp.cli.completion import live_runs
from codemode_mcp.cli.draft_sources import read_source
from codemode_mcp.cli.messages import say, say_command, say_line, stop_line
from codemode_mcp.cli.options import ConfigOption
from codemode_mcp.cli.programs_folder import programs_folder

if TYPE_CHECKING:
    from codemode_mcp.cli.draft_sources import DraftSource
    from codemode_mcp.drafts import Draft, Parameter
    from codemode_mcp.settings import Language

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
    from codemode_mcp.drafts import skeleton
    from codemode_mcp.saved_programs.saved_program import file_name

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
    from codemode_mcp.drafts.literals import UNKNOWN
    from codemode_mcp.program_tests.cases import RECORDING

    given = {each.name: each.value for each in draft.parameters if each.text is not None and each.value is not UNKNOWN}
    given |= {each.name: "..." for each in draft.parameters if each.text is None}
    option = f" --input {shlex.quote(json.dumps(given, ensure_ascii=False))}" if given else ""
    option += "" if config is None else f" --config {shlex.quote(config)}"
    recording = folder / f"{name}.{FIRST}{RECORDING}"
    return f"codemode-mcp run --program {name}{option} --record {shlex.quote(str(recording))}"


def _split(name: str) -> tuple[str, Language | None]:
    """Return the name of a program and the language by its suffix. End the command if it is no name."""
    from codemode_mcp.saved_programs.saved_program import SUFFIXES, name_problem

    suffix = Path(name).suffix
    stem = name.removesuffix(suffix) if suffix in SUFFIXES else name
    problem = name_problem(stem)
    if problem is not None:
        stop_line(2, f"{name}: {problem}")
    return stem, SUFFIXES.get(suffix)


def _draft(source: DraftSource, name: str, language: Language | None) -> Draft:
    from codemode_mcp.drafts import make_draft
    from codemode_mcp.errors import ProgramError

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
    from codemode_mcp.saved_programs.saved_program import SUFFIXES

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
    from codemode_mcp.program_tests.cases import Case
    from codemode_mcp.program_tests.expectation import Expectation, written

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
    from codemode_mcp.control.display import cut

    default = "required: a secret stood here"
    if parameter.text is not None:
        default = f"default {cut(parameter.example or parameter.text, MAX_DEFAULT)}"
    return f"{cut(f'{parameter.name}: {parameter.type}', MAX_TYPE)} ({default}), for {cut(parameter.used, 80)}"


def _say_problem(path: Path, name: str, draft: Draft) -> None:
    """End the command if the file that was written is not yet a saved program."""
    from codemode_mcp.saved_programs.program_file import read_program
    from codemode_mcp.saved_programs.saved_program import ProgramFileError

    try:
        read_program(name, draft.language, draft.text)
    except ProgramFileError as error:
        stop_line(1, f"{path}:{error.line}: {error.text}")
