"""The preparation of every program: checks that need no sandbox, hooks of plugins, and compilation."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio
import anyio.to_thread
from msgspec import Struct, structs

from codemode_mcp.base.errors import Exceeded, ProgramError, RuntimeUnavailable
from codemode_mcp.program.global_uses import check_programs
from codemode_mcp.program.mcp_uses import check_members, contested_names
from codemode_mcp.program.positions import Positions
from codemode_mcp.program.preflight import inspect
from codemode_mcp.program.program_form import FENCE, PYTHON, looks_like_python, syntax_hint, take_fence
from codemode_mcp.program.syntax import LINE_END, Lines, line_count, parse, utf16_units, words

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from codemode_mcp.base.settings import CodeModeSettings, Language
    from codemode_mcp.program.inspection import Preflight
    from codemode_mcp.program.typescript import Transformed
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.sandbox.messages import Thrown

    Note = Callable[[str], None]
    """A function that adds a sentence for the reader of the program's result."""

    Hook = Callable[[str, Language, Note], Awaitable[str]]
    """A function that returns the text to run instead of a program's. `CodeModeError` refuses the program."""

    FindMembers = Callable[[Preflight], Awaitable["Members"]]
    """A function that returns the members of `MCP` that a program sees, for the servers that its preflight found."""


# Compilation of a cell into the program that the sandbox runs.


class Transform(Protocol):
    """A transform of TypeScript to JavaScript.

    Raises:
        ProgramError: `typescript_transform_failed`.
        RuntimeUnavailable: esbuild is missing.
    """

    async def __call__(self, source: str) -> Transformed: ...


class Program(Struct, frozen=True):
    """A program for the sandbox.

    Attributes:
        code: the body of an async function.
        fallback: the body without the implicit return, to be run if `code` does not parse.
        positions: maps positions to the author's text.
        suspect: whether the text may be more than the body of one function.
    """

    code: str
    fallback: str | None
    positions: Positions
    suspect: bool = False


def javascript(found: Preflight) -> Program:
    source = _as_body(found.source)
    explicit, inserted = found.explicit
    text = _as_body(explicit)
    positions = Positions("javascript", line_count(source), text, None, inserted)
    fallback = None if found.called is not None or inserted is None else source
    return Program(text, fallback, positions, found.broken)


async def typescript(found: Preflight, transform: Transform) -> Program:
    """Compile a TypeScript cell. Raises as `Transform` does."""
    lines = line_count(found.source)
    rewritten, inserted, plain = found.returning, found.inserted, found.source
    if found.called is not None:
        rewritten, inserted, plain = found.called.text, found.called.inserted, found.called.plain
    if rewritten is not None:
        try:
            made = await transform(_as_body(rewritten))
        except ProgramError as error:
            if error.code != "typescript_transform_failed":
                raise
            # The inserted return or call may be the cause, so the author's text is tried.
        else:
            positions = Positions("typescript", lines, made.code, made.source_map, inserted)
            return Program(made.code, None, positions)
    made = await transform(_as_body(plain))
    return Program(made.code, None, Positions("typescript", lines, made.code, made.source_map, None))


def _as_body(script: str) -> str:
    """Comment out a leading `#!`, which a function body may not have. Positions stay the same."""
    return _HASHBANG.sub(r"\1//", script)


_HASHBANG = re.compile(r"\A(\ufeff?)#!")


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


class Cell(Struct, frozen=True):
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


class Prepared(Struct, frozen=True):
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
            return Prepared(cell, found, javascript(found))
        with anyio.move_on_after(deadline - self._clock()):
            return Prepared(cell, found, await typescript(found, self._transform))
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
                second = await typescript(prepared.preflight, self._transform)
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
            cell = structs.replace(cell, language="typescript")
        with anyio.move_on_after(deadline - self._clock()):
            source = await hook(cell.source, cell.language or "javascript", note)
            if source == cell.source:
                return cell
            _check_size(source)
            return structs.replace(cell, source=source)
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
        if FENCE not in cell.source:
            return cell
        fenced = await self._in_thread_if_large(cell.source, take_fence, cell.source)
        if fenced is None:
            return cell
        _refuse_shell(fenced.source)
        note(fenced.note)
        labelled = fenced.language if fenced.language in self._settings.languages else None
        return structs.replace(cell, source=fenced.source, language=cell.language or labelled)

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
    from codemode_mcp.program.error_location import regex_offsets, stray_await, syntax_error_column

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


_COMMANDS = (
    "apt|apt-get|awk|aws|az|bash|brew|bun|cargo|cat|cd|chmod|chown|cmd|cp|curl|deno|df|diff|docker|du|echo|env|find|"
    "gcloud|gh|git|go|grep|head|jq|kill|kubectl|less|ls|make|man|mkdir|mv|mysql|nano|nc|node|npm|npx|ping|pip|pip3|pnpm|"
    "powershell|ps|psql|pwd|pwsh|pytest|python|python3|rg|rm|rsync|scp|sed|sh|sleep|sort|sqlite3|ssh|sudo|tail|tar|tee|"
    "terraform|test|time|touch|tree|tsc|unzip|uv|vim|wc|wget|which|whoami|xargs|yarn|zip|zsh"
)


_OPERATOR_WORDS = "in|instanceof|of|as|satisfies|is"


_SHELL_LINE = re.compile(
    rf"""
      \#!(?!.*\b(?:node|deno|bun|tsx|ts-node|zx)\b)                   # a script, but none of JavaScript
    | [$%]\ (?!(?:{_OPERATOR_WORDS})\b)(?:[A-Za-z_~/]|\./)             # a prompt
    | (?:[A-Z_][A-Z0-9_]*=\S*\ +)*+
      (?:
        (?:{_COMMANDS})                                               # a command with something that is no operand
        (?:
          \ +(?!(?:{_OPERATOR_WORDS})\b)
          (?:-{{1,2}}[A-Za-z]|-$|--[0-9]|-[0-9]+(?![\w.]|\ *(?:;|$))    # `kill -9;` alone is a subtraction
            |[~./]?/(?:\S|$)|\./|~|\.\.?(?:$|[\s/])|["'$\w*@]|\+[rwx]+\ )
        | \ +(?:-\ +)?<[<-]*\ *["']?[A-Za-z./][\w./-]*["']?(?=\s|$)    # its input
        | \ *(?:\|\|?|&&|;)\ *(?:{_COMMANDS})(?=$|\ +["'\w.~/-])         # and another command
        )
      | \.\.?/[\w.-]+(?:/[\w.-]+)*(?=\s|$) | (?:/[\w.-]+){{3,}}(?=\s|$)  # a file
      )
    | (?:bash|clear|date|env|exit|history|ls|make|printenv|pwd|sh|whoami|yarn|zsh)$
    | export\ [A-Za-z_]\w*= | alias\ [\w-]+=["'] | set\ -[a-z]+(?=\s|$) | source\ +[~./\w-]*[./] | \.\ +[~./\w]
    | (?:if|while)\ \[\[?\ | \[\[?\ +-[a-z]\ +["'$\w./] | for\ \w+\ in\ [^;]*;\ *do\b | while\ [^(;]+;\ *do\b
    | function\ +[\w-]+\ *\{{ | (?:Get|Set|New|Remove|Invoke|Select|Write)-[A-Z]\w+
    """,
    re.VERBOSE,
)


def looks_like_shell(source: str) -> str | None:
    """Return an error message if a program is a shell command, or else None.

    Only the first line of code counts. A JavaScript statement with the same text would need a variable with the name of
    the command, which cannot be declared before the first line.
    """
    for line in source[:10_000].removeprefix("\ufeff").splitlines():
        text = line.strip()
        if not text or text.startswith(("# ", "//")):
            continue
        if _SHELL_LINE.match(text) is None:
            return None
        return (
            "This is a shell command; exec runs JavaScript or TypeScript, without a shell, files or processes. "
            'Call tools instead: return await MCP.<server>.<tool>({...}). API.search("...") finds them.'
        )
    return None


_TYPES = words(
    "abstract_class_declaration accessibility_modifier ambient_declaration as_expression enum_declaration "
    "implements_clause interface_declaration internal_module non_null_expression optional_parameter predefined_type "
    "satisfies_expression type_alias_declaration type_annotation type_parameters"
)
"""Types of nodes that only TypeScript has. `a<b>(c)` is valid in both, and counts only with a type such as `string`."""


def has_types(source: str) -> bool:
    tree = parse(utf16_units(source))
    if tree is None:
        return False
    cursor = tree.root_node.walk()
    while True:
        node = cursor.node
        if node is not None and node.type in _TYPES:
            return True
        if cursor.goto_first_child() or cursor.goto_next_sibling():
            continue
        while cursor.goto_parent():
            if cursor.goto_next_sibling():
                break
        else:
            return False
