"""The preparation of every program: checks that need no sandbox, hooks of plugins, and compilation."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio
import anyio.to_thread

from codemode_mcp.errors import Exceeded, ProgramError, RuntimeUnavailable
from codemode_mcp.program import compile as programs
from codemode_mcp.program.hints import PYTHON, looks_like_python, syntax_hint
from codemode_mcp.program.members import check_members, contested_names
from codemode_mcp.program.not_javascript import looks_like_shell
from codemode_mcp.program.preflight import inspect
from codemode_mcp.program.program_form import take_fence
from codemode_mcp.program.program_uses import check_programs
from codemode_mcp.program.syntax import LINE_END, Lines, utf16_units
from codemode_mcp.program.type_annotations import has_types

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.program.compile import Program, Transform
    from codemode_mcp.program.inspection import Preflight
    from codemode_mcp.program.positions import Positions
    from codemode_mcp.sandbox.messages import Thrown
    from codemode_mcp.settings import CodeModeSettings, Language

    Note = Callable[[str], None]
    """A function that adds a sentence for the reader of the program's result."""

    Hook = Callable[[str, Language, Note], Awaitable[str]]
    """A function that returns the text to run instead of a program's. `CodeModeError` refuses the program."""

    FindMembers = Callable[[Preflight], Awaitable["Members"]]
    """A function that returns the members of `MCP` that a program sees, for the servers that its preflight found."""


class Members(Protocol):
    """The members of `MCP` and of `programs` that a program sees. A catalog has them."""

    @property
    def members(self) -> Mapping[str, Collection[str] | None]: ...

    @property
    def withheld(self) -> Mapping[str, Mapping[str, str]]: ...

    @property
    def contested(self) -> Mapping[str, str]: ...

    @property
    def programs(self) -> Collection[str]: ...

    @property
    def broken_programs(self) -> Collection[str]: ...


Result = TypeVar("Result")

MAX_SOURCE = 1_100_000
"""Maximum number of characters of one program."""

_LARGE_SOURCE = 20_000
"""Characters above which a program is inspected in a thread."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The text of one `exec`.

    Attributes:
        language: the language that the client named; None if it named none.
        caller: the caller. The run of an unknown caller belongs to the holder of its id, and ends with the process.
        request: the id of the request in events.
        args: the value of `args` in the program.
    """

    source: str
    language: Language | None
    caller: Caller
    request: str | None = None
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A cell after hooks and without its Markdown fence, with its preflight and its compiled program."""

    cell: Cell
    preflight: Preflight
    program: Program


class Preparer:
    """Checks and compiles cells.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, transform: Transform, settings: CodeModeSettings, clock: Callable[[], float]) -> None:
        self._transform = transform
        self._settings = settings
        self._clock = clock
        # The syntax tree of a large program takes a few hundred times its size, so only one is built at a time.
        self._inspecting = anyio.CapacityLimiter(1)

    def apply(self, settings: CodeModeSettings) -> None:
        """Use these settings for programs from now on."""
        self._settings = settings

    async def prepare(
        self, cell: Cell, *, hook: Hook | None, members: FindMembers, note: Note, deadline: float
    ) -> Prepared:
        """Check and compile a program.

        Args:
            hook: calls the hooks of plugins; None if no plugin sees programs.
            deadline: the time by the clock at which hooks and the transform of TypeScript must have ended.

        Raises:
            CodeModeError: the program cannot run. Nothing of it has run.
        """
        _check_size(cell.source)
        if hook is not None:
            cell = await self._admit(cell, hook, note, deadline)
        _refuse_shell(cell.source)
        cell = await self._unfence(cell, note)
        try:
            found = await self._inspect(cell)
        except ProgramError:
            if looks_like_python(cell.source):
                raise ProgramError("invalid_input", PYTHON) from None
            raise
        if found.called is not None:
            note(found.called.note)
        if found.rounded:
            note(found.rounded)
        seen = await members(found)
        check_members(found, seen.members, cell.language or "javascript", seen.withheld)
        for sentence in contested_names(found, seen.contested):
            note(sentence)
        check_programs(found.program_calls, seen.programs, cell.language or "javascript", seen.broken_programs)
        if cell.language != "typescript":
            return Prepared(cell, found, programs.javascript(found))
        with anyio.move_on_after(deadline - self._clock()):
            return Prepared(cell, found, await programs.typescript(found, self._transform))
        raise ProgramError("timeout", "transforming the TypeScript took too long; write a shorter program")

    async def as_typescript(
        self, prepared: Prepared, hook: Hook | None, note: Note, seconds: float
    ) -> Program | ProgramError | None:
        """Compile a program as TypeScript that the engine refused as JavaScript and whose client named no language.

        Returns:
            The program, the error of the transform that refused it, or None if the time was too short.

        Raises:
            CodeModeError: a hook refuses the program as TypeScript, or would change it.
        """
        cell = prepared.cell
        if cell.language is not None or "typescript" not in self._settings.languages:
            return None
        second: Program | None = None
        with suppress(RuntimeUnavailable), anyio.move_on_after(seconds):
            try:
                second = await programs.typescript(prepared.preflight, self._transform)
            except ProgramError as error:
                return error
        if second is not None and hook is not None and await hook(cell.source, "typescript", note) != cell.source:
            # The hooks have approved the program as JavaScript. A text that they changed now would be a third version.
            raise ProgramError("invalid_input", 'a hook changes this program; send it with language: "typescript"')
        return second

    async def syntax_error(self, prepared: Prepared, thrown: Thrown, refused: ProgramError | None) -> ProgramError:
        """Return the error for a program that the engine refused.

        Args:
            thrown: the error of the engine.
            refused: the error of the transform, if the program was tried as TypeScript.
        """
        positions, found = prepared.program.positions, prepared.preflight
        error = await self._in_thread_if_large(found.source, _syntax_error, thrown, positions, found)
        # If esbuild gets further than the engine, the program is TypeScript with a mistake.
        return refused if refused is not None and 0 < _line_of(error) < _line_of(refused) else error

    async def _admit(self, cell: Cell, hook: Hook, note: Note, deadline: float) -> Cell:
        if cell.language is None and await self._is_typescript(cell.source):
            # Decided before the hooks, so that the program runs in the language that they have seen.
            cell = replace(cell, language="typescript")
        with anyio.move_on_after(deadline - self._clock()):
            source = await hook(cell.source, cell.language or "javascript", note)
            if source == cell.source:
                return cell
            _check_size(source)
            return replace(cell, source=source)
        raise ProgramError("timeout", "hooks of plugins took too long to check the program; nothing of it has run")

    async def _is_typescript(self, source: str) -> bool:
        if "typescript" not in self._settings.languages:
            return False
        return await self._in_thread_if_large(source, _is_typescript, source)

    async def _in_thread_if_large(self, source: str, function: Callable[..., Result], *arguments: Any) -> Result:
        if len(source) > _LARGE_SOURCE:
            return await anyio.to_thread.run_sync(function, *arguments, limiter=self._inspecting)
        return function(*arguments)

    async def _unfence(self, cell: Cell, note: Note) -> Cell:
        fenced = await self._in_thread_if_large(cell.source, take_fence, cell.source)
        if fenced is None:
            return cell
        _refuse_shell(fenced.source)
        note(fenced.note)
        labelled = fenced.language if fenced.language in self._settings.languages else None
        return replace(cell, source=fenced.source, language=cell.language or labelled)

    async def _inspect(self, cell: Cell) -> Preflight:
        enabled = self._settings.languages
        if cell.language is not None and cell.language not in enabled:
            raise ProgramError(
                "unsupported_language", f"language {cell.language!r} is not enabled here; enabled: {', '.join(enabled)}"
            )
        return await self._in_thread_if_large(cell.source, inspect, cell.source, cell.language or "javascript")


def _is_typescript(source: str) -> bool:
    try:
        fenced = take_fence(source)
    except ProgramError:
        return False  # it is refused later
    if fenced is not None and fenced.language is not None:
        return fenced.language == "typescript"
    return has_types(source if fenced is None else fenced.source)


def _refuse_shell(source: str) -> None:
    guidance = looks_like_shell(source)
    if guidance is not None:
        raise ProgramError("invalid_input", guidance)


def _check_size(source: str) -> None:
    if len(source) > MAX_SOURCE:
        raise ProgramError(
            "invalid_input",
            f"the program has {len(source)} characters, more than {MAX_SOURCE}; write a shorter one",
            Exceeded("programCharacters", len(source), MAX_SOURCE),
        )


def _syntax_error(error: Thrown, positions: Positions, found: Preflight) -> ProgramError:
    # Imported late, since a server starts without it.
    from codemode_mcp.program.syntax_errors import regex_offsets, stray_await, syntax_error_column

    source = found.source
    frames = positions.frames(error)
    message = f"{error.name}: {error.message}"
    if error.name != "SyntaxError":
        return ProgramError("invalid_input", message)  # the engine's stack overflowed, without a position
    if frames:
        line = int(frames[0].split(":")[1])
        column = stray_await(source, line) or syntax_error_column(source, line, error.message)
    elif found.broken:
        # The engine stopped after the end of the program, so a bracket or string is not closed.
        line = positions.lines
        column = len(LINE_END.split(source)[-1]) + 1
        if "string" not in error.message and "comment" not in error.message:
            # The engine quotes the wrapper there, which the author has not written.
            message = "SyntaxError: the program ends before everything in it is closed: a }, ) or ] is missing"
        else:
            message += ", at the end of the program"
    else:
        if "regular expression" not in message:
            message += ", in a regular expression"
        expressions = regex_offsets(source, message)
        if len(expressions) != 1:
            return ProgramError("invalid_input", message)
        line, column = Lines(utf16_units(source)).position(expressions[0])
    location = f"{positions.file}:{line}:{column}"
    message += syntax_hint(source, line, column, error.message)
    return ProgramError("invalid_input", f"{message} ({location})\n{excerpt(source, line, column)}")


def _line_of(error: ProgramError) -> int:
    """Return the first line that a message names, or 0."""
    location = re.search(r"cell\.[jt]s:([0-9]+)", error.message)
    return 0 if location is None else int(location[1])


def excerpt(source: str, line: int, column: int) -> str:
    """Return a line of the source with a mark under a column. Both are 1-based."""
    lines = LINE_END.split(source)
    if not 1 <= line <= len(lines):
        return ""
    text = lines[line - 1].rstrip("\r")
    start = max(0, column - 80)
    shown = text[start : start + 120]
    number = f"{line} | "
    return f"{number}{shown}\n{' ' * (len(number) + max(0, column - 1 - start))}^"
