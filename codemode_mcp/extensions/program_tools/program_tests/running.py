"""The running of tests, one after the other, with one engine and no server."""

from __future__ import annotations

import os
import re
import secrets
import stat
import time
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, structs

from codemode_mcp.audit.recordings.format import NotReadable, Recording, read_recording
from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.base.strict_json import as_javascript
from codemode_mcp.catalog.saved_programs.compiling import CompiledProgram, ProgramCompiler, function_body
from codemode_mcp.catalog.saved_programs.saved_program import SavedProgram, file_name
from codemode_mcp.catalog.toolset import ProgramSet
from codemode_mcp.extensions.program_tools.program_tests import comparison
from codemode_mcp.extensions.program_tools.program_tests.report import TestResult
from codemode_mcp.extensions.program_tools.replay.replay import Options, OtherProgram, replay
from codemode_mcp.runs.calls.schema_errors import SchemaErrors
from codemode_mcp.runs.calls.schema_phrases import path_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from codemode_mcp.catalog.saved_programs.folder import Library
    from codemode_mcp.extensions.program_tools.program_tests.cases import Case
    from codemode_mcp.program.prepare import Transform
    from codemode_mcp.sandbox.engine import Engine


_CELL = re.compile(r"cell\.[jt]s(?=:\d)")

MAX_EXPECTATION = 16 * 1024 * 1024
"""Maximum bytes of a file with what a test expects."""


MAX_TURN_SECONDS = 10.0
"""Maximum seconds for which a program computes without waiting. A program of a client has as many by default."""

MAX_PROBLEMS = 20
"""Problems of an input that are shown."""


class BrokenTest(Exception):
    """Error for a test that cannot run. The message is for the user."""


class Runner(Struct, frozen=True):
    """The means by which tests run.

    Attributes:
        transform: compiles TypeScript.
        compiler: compiles saved programs that others call.
        update: write what programs do now into their snapshots.
    """

    engine: Engine
    transform: Transform
    compiler: ProgramCompiler
    update: bool = False

    async def run(self, case: Case, library: Library) -> TestResult:
        """Run one test.

        Args:
            library: the saved programs of its folder.
        """
        began = time.perf_counter()
        program = library.get(case.program)
        file = f"{case.folder.name}/{program.file if program else _file_of(case, library)}"
        try:
            lines, updated = await self._run(case, library)
        except BrokenTest as error:
            result = TestResult(file, case.name, "error", tuple(str(error).split("\n")))
        else:
            result = TestResult(file, case.name, "failed" if lines else "passed", tuple(lines), updated=updated)
        return structs.replace(result, seconds=time.perf_counter() - began)

    async def _run(self, case: Case, library: Library) -> tuple[list[str], str]:
        program = _program(case, library)
        recording, recorded = _recording(case)
        expectation = _expectation(case)
        if expectation.calls is not UNSET:
            expectation = structs.replace(expectation, calls=recorded.spelled(expectation.calls))
        if recording.end is None and expectation.result is UNSET and expectation.error is UNSET:
            raise BrokenTest(f"{case.recording.name}: the recorded run has no end, so there is nothing to compare with")
        called = recorded.inputs.get(case.program)
        given = (called or {}) if expectation.input is UNSET else expectation.input
        unfit = _input_problems(program, given)
        if unfit:
            return unfit, ""
        other: OtherProgram | None = None
        if called is None:
            other = OtherProgram(calling_program(program, given), program.language)
        elif expectation.input is not UNSET:
            other = OtherProgram(f"return await programs.{program.name}({as_javascript(given)});", "javascript")
        source = recording.opening.source if other is None else other.source
        try:
            programs = await used_programs(source, library, self.compiler)
            options = Options(
                loose=expectation.loose,
                programs=programs,
                shown=ProgramSet(library.programs),
                turn_seconds=MAX_TURN_SECONDS,
                same_times=True,
            )
            done = await replay(self.engine, recording, self.transform, other, options)
        except CodeModeError as error:
            raise BrokenTest(error.message) from None
        end = comparison.snapshot_of(done.outcome, recorded.counts(done.unused))
        # The program that calls the file has its lines, so a position in it is a position in the file.
        file = f"{case.folder.name}/{program.file}"
        diverged = () if done.divergence is None else tuple(_CELL.sub(file, str(done.divergence)).split("\n"))
        message = _CELL.sub(file, done.outcome.error)
        seen = comparison.Seen(end, diverged, comparison.unmade_lines(recorded, done.unused), message)
        found = comparison.problems(expectation, recorded.end, seen)
        if not self.update or not found or diverged:
            return found, ""
        return self._update(case, expectation, recorded, seen, found)

    def _update(
        self,
        case: Case,
        expectation: comparison.Expectation,
        recorded: comparison.Recorded,
        seen: comparison.Seen,
        found: list[str],
    ) -> tuple[list[str], str]:
        """Write a new snapshot. Return what is still wrong, and what has changed.

        Args:
            found: the lines about what was wrong.
        """
        parts = comparison.changes(expectation, recorded.end, seen.end)
        snapshot = UNSET if seen.end == recorded.end else seen.end
        made = structs.replace(expectation, snapshot=snapshot)
        try:
            if comparison.written(made) == comparison.written(expectation):
                pass  # what a person has written stays byte for byte
            elif made.is_empty:
                case.expectation.unlink(missing_ok=True)
            else:
                _replace(case.expectation, comparison.written(made))
        except OSError as error:
            raise BrokenTest(f"cannot write {case.expectation}: {error.strerror}") from None
        updated = "\n".join([f"{case.expectation.name}: {', '.join(parts)}", *found]) if parts else ""
        return comparison.problems(made, recorded.end, seen), updated


def _replace(path: Path, text: str) -> None:
    """Write a file as a whole. A link is replaced, never followed. Raises `OSError`."""
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        with open(new, "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


def _program(case: Case, library: Library) -> SavedProgram:
    program = library.get(case.program)
    if program is None:
        found = [str(each) for each in library.problems if each.file.partition(".")[0] == case.program or not each.file]
        raise BrokenTest(
            "\n".join(found)
            or f"there is no saved program {case.program}; rename {case.recording.name}, or write "
            f"{case.folder.name}/{case.program}.ts"
        )
    return program


def _input_problems(program: SavedProgram, given: Any) -> list[str]:
    found, _ = SchemaErrors(program.input_schema).problems(given)
    lines = [f"  {path_text(each.path) or 'input'}: {each.text}" for each in found[:MAX_PROBLEMS]]
    return [f"the input does not fit the parameters of {program.file}", *lines] if lines else []


def _file_of(case: Case, library: Library) -> str:
    """Return the name of the file of a saved program that cannot be used."""
    broken = [each.file for each in library.problems if each.file.partition(".")[0] == case.program]
    return broken[0] if broken else file_name(case.program, "typescript")


def _recording(case: Case) -> tuple[Recording, comparison.Recorded]:
    try:
        recording = read_recording(case.recording)
        return recording, comparison.recorded_facts(recording)
    except FileNotFoundError:
        raise BrokenTest(f"{case.expectation.name} is there without its recording {case.recording.name}") from None
    except OSError as error:
        raise BrokenTest(f"{case.recording.name} cannot be read: {error.strerror}") from None
    except (NotReadable, ValueError, CodeModeError) as error:
        raise BrokenTest(f"{case.recording.name} is no recording that can be read: {error}") from None


def _expectation(case: Case) -> comparison.Expectation:
    name = case.expectation.name
    try:
        # Opening a pipe would wait for a writer.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with open(os.open(case.expectation, flags), "rb") as file:
            data = file.read(MAX_EXPECTATION + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
        if data is None:
            raise BrokenTest(f"{name} is not a regular file; remove it")
        if len(data) > MAX_EXPECTATION:
            raise BrokenTest(f"{name} is larger than {MAX_EXPECTATION // 1024**2} MiB")
        return comparison.read_expectation(data.decode("utf-8-sig"))
    except FileNotFoundError:
        return comparison.NOTHING
    except OSError as error:
        raise BrokenTest(f"{name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BrokenTest(f"{name} is not UTF-8 text") from None
    except comparison.ExpectationError as error:
        raise BrokenTest(f"{name}: {error}") from None


def calling_program(program: SavedProgram, given: Any) -> str:
    """Return a program that calls a saved program with an input. The lines of its text are those of the file."""
    return f"{function_body(program).removesuffix(';')}({as_javascript(given)});"


_WORD = re.compile(r"[\w$]+")


async def used_programs(text: str, library: Library, compiler: ProgramCompiler) -> Mapping[str, CompiledProgram]:
    """Return the compiled saved programs that a program may call, by their ids, also through others.

    Raises:
        ProgramError: one of them cannot be compiled.
        RuntimeUnavailable: esbuild is missing.
    """
    found: dict[str, CompiledProgram] = {}
    waiting = [text]
    while waiting:
        names = set(_WORD.findall(waiting.pop()))
        for program in library.programs:
            if program.name in names and program.id not in found:
                found[program.id] = await compiler.compile(program)
                waiting.append(program.text)
    return found
