"""Calls of saved programs. The answer of the host has the text and the checked input; the guest runs the program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from codemode_mcp.errors import ProgramError
from codemode_mcp.json_text import json_text
from codemode_mcp.sandbox.messages import GuestError
from codemode_mcp.saved_programs.saved_program import program_id
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from codemode_mcp.calls.context import CallContext
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.sandbox.messages import Thrown, ToolCall
    from codemode_mcp.saved_programs.compiling import CompiledProgram, ProgramCompiler
    from codemode_mcp.saved_programs.saved_program import SavedProgram
    from upstream_clients.tools import JsonObject

MAX_DEPTH: Final = 4
"""Maximum number of saved programs around each other."""


def check_chain(entry: Entry, call: ToolCall) -> None:
    """Raise `ProgramError` if a call of a saved program has options, is too deep in others, or in a circle."""
    if call.count > 1:
        raise ProgramError(
            "nested_tool_failed", f"{entry.path} takes one object, got {call.count} arguments; nothing was run"
        )
    names = [*(escape_line(name, 64) for name in call.chain), entry.identifier]
    chain = " → ".join(names)
    if entry.identifier in call.chain:
        raise ProgramError(
            "nested_tool_failed",
            f"{entry.path} was not called: saved programs may not call each other in a circle ({chain}); use a loop "
            "in one of them",
        )
    if len(names) > MAX_DEPTH:
        raise ProgramError(
            "nested_tool_failed",
            f"{entry.path} was not called: at most {MAX_DEPTH} saved programs may call each other ({chain}); put "
            "some of them into one program",
        )


class SavedCalls:
    """The texts of saved programs for guests, and the errors of programs that have failed.

    Args:
        compiler: compiles the programs of all runs.
    """

    def __init__(self, compiler: ProgramCompiler) -> None:
        self._compiler = compiler

    async def compile(self, entry: Entry, context: CallContext) -> CompiledProgram:
        """Return the compiled program of an entry, as the run's catalog has it.

        Raises:
            ProgramError: the program cannot be compiled, or its text means other tools than when it was accepted.
        """
        return await self._compiler.compile(_program(entry, context))

    def known(self, entry: Entry, context: CallContext) -> CompiledProgram | None:
        """Return the program of an entry if it was compiled before. Raises as `compile`."""
        return self._compiler.known(_program(entry, context))


def begin_text(call: ToolCall, compiled: CompiledProgram, arguments: JsonObject) -> str:
    """Return the answer to a call, as JSON text; see `prelude/76_programs.js`."""
    begun: JsonObject = {
        "file": compiled.positions.file_name,
        "input": arguments,
        "nested": compiled.calls_programs,
        **({} if call.known else {"code": compiled.code}),
    }
    return json_text(begun)


def program_error(name: str, thrown: Thrown, compiled: CompiledProgram | None, *, search: bool = False) -> GuestError:
    """Return the error that the caller of a saved program gets.

    Args:
        thrown: the error that it has thrown.
        compiled: the program, to find positions in its file; None if it is not known.
        search: True to search the program for the exact position, which takes time.
    """
    if compiled is None:
        message, place = f"{thrown.name}: {thrown.message}", ""
    else:
        positions = compiled.positions
        message, _, frames = positions.describe(thrown, search=search).partition("\n    at ")
        place = frames.partition("\n")[0]
        place = f" ({place.rpartition('(')[2].removesuffix(')')})" if place else ""
    message = message.removeprefix(f"{thrown.name}: ")
    data = json_text({"tool": program_id(name), "dispatched": True, "repeatable": False})
    return GuestError(
        f"programs.{escape_line(name, 64)} failed: {message}{place}",
        "Error" if thrown.name == "Uncaught" else thrown.name,
        thrown.code or "nested_tool_failed",
        data,
    )


def _program(entry: Entry, context: CallContext) -> SavedProgram:
    found = context.catalog.toolset.programs.program(entry.id)
    assert found is not None  # the entry is of the same catalog
    if found.refusal:
        raise ProgramError("nested_tool_failed", f"{entry.path} was not called: {found.refusal}")
    return found
