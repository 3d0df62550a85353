"""The saved programs that a test may use, compiled for its guest."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from codemode_mcp.catalog.program_set import ProgramSet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.saved_programs.compiling import CompiledProgram, ProgramCompiler
    from codemode_mcp.saved_programs.folder import Library

_WORD = re.compile(r"[\w$]+")


def shown_programs(library: Library) -> ProgramSet:
    """Return all saved programs of a folder, as a program sees them."""
    return ProgramSet(library.programs)


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
