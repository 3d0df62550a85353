"""The compilation of saved programs into functions for the guest."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import anyio
from msgspec import Struct

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.catalog.saved_programs.program_file import default_function, exports_type
from codemode_mcp.catalog.saved_programs.saved_program import ProgramFileError, SavedProgram
from codemode_mcp.program.positions import FilePositions
from codemode_mcp.program.syntax import from_utf16_units, line_count, parse, span_of, utf16_units

if TYPE_CHECKING:
    from codemode_mcp.program.prepare import Transform

MAX_COMPILED: Final = 500
"""Maximum number of compiled programs in memory."""

_EXPORT: Final = len("export")
_DEFAULT: Final = len("default")
_VARIABLE: Final = "$$main"
"""The variable for a function without a name of its own. With `=` it is as long as `default`."""


class CompiledProgram(Struct, frozen=True):
    """A saved program for the guest.

    Attributes:
        code: the body of an async function with the parameter `programs`, which returns the program's function.
        positions: maps positions to the file.
        calls_programs: True if the text may call other saved programs.
    """

    code: str
    positions: FilePositions
    calls_programs: bool


class ProgramCompiler:
    """The compiler of saved programs. Each text is compiled once."""

    def __init__(self, transform: Transform) -> None:
        self._transform = transform
        self._compiled: OrderedDict[tuple[str, str], CompiledProgram] = OrderedDict()
        self._locks: WeakValueDictionary[tuple[str, str], anyio.Lock] = WeakValueDictionary()

    def known(self, program: SavedProgram) -> CompiledProgram | None:
        return self._compiled.get((program.file, program.text))

    async def compile(self, program: SavedProgram) -> CompiledProgram:
        """Return the compiled program.

        Raises:
            ProgramError: the text is no saved program, or the transform refuses it.
            RuntimeUnavailable: esbuild is missing.
        """
        found = self.known(program)
        if found is not None:
            return found
        # A run may call a program many times before it is compiled for the first time.
        key = program.file, program.text
        async with self._locks.setdefault(key, anyio.Lock()):
            found = self.known(program)
            if found is None:
                found = self._compiled[key] = await self._compile(program)
                while len(self._compiled) > MAX_COMPILED:
                    self._compiled.popitem(last=False)
        return found

    async def _compile(self, program: SavedProgram) -> CompiledProgram:
        file, lines = f"programs/{program.file}", line_count(program.text)
        body = function_body(program)
        calls_programs = "programs" in program.text
        if program.language == "javascript":
            return CompiledProgram(body, FilePositions("javascript", lines, body, None, None, file), calls_programs)
        try:
            made = await self._transform(body)
        except ProgramError as error:
            raise ProgramError(error.code, error.message.replace("cell.ts:", f"{file}:")) from None
        positions = FilePositions("typescript", lines, made.code, made.source_map, None, file)
        return CompiledProgram(made.code, positions, calls_programs)


def function_body(program: SavedProgram) -> str:
    """Return the body of a function that returns the program's function. Positions stay the same.

    Raises:
        ProgramError: the text is no saved program.
    """
    units = utf16_units(program.text)
    tree = parse(units)
    if tree is None:
        raise ProgramError("invalid_input", f"programs/{program.file}: reading the program takes too long")
    try:
        found = default_function(units, tree.root_node)
    except ProgramFileError as error:
        raise ProgramError("invalid_input", f"programs/{program.file}:{error.line}: {error.text}") from None
    edits: list[tuple[int, int, str]] = []
    for statement in tree.root_node.named_children:
        if statement.type == "export_statement" and exports_type(statement):
            start = span_of(statement).start
            edits.append((start, start + _EXPORT, " " * _EXPORT))
        elif statement.type == "hash_bang_line":
            start = span_of(statement).start
            edits.append((start, start + 2, "//"))
    keywords = [span_of(child) for child in found.statement.children if child.type in ("export", "default")]
    if found.name is not None:
        edits += [(start, end, " " * (end - start)) for start, end in keywords]
    else:
        (start, end), (second, last) = keywords[0], keywords[1]
        # A semicolon ends the assignment, since a declaration needs none before the next statement.
        exported = found.node.start_byte >= found.statement.start_byte and found.node.type == "function_expression"
        after = span_of(found.node if exported else found.statement).end
        edits += [
            (start, end, "var".ljust(_EXPORT)),
            (second, last, f"{_VARIABLE}=".ljust(_DEFAULT)),
            (after, after, ";"),
        ]
    for start, end, text in sorted(edits, reverse=True):
        units = f"{units[:start]}{text}{units[end:]}"
    return f"{from_utf16_units(units)}\nreturn {found.name or _VARIABLE};"
