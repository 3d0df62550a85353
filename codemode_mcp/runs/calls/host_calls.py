"""Requests of programs that the host answers itself: look-ups, and calls of saved programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.base.errors import CodeModeError, ProgramError
from codemode_mcp.base.strict_json import json_text
from codemode_mcp.catalog.saved_programs.saved_program import SavedProgram, program_id
from codemode_mcp.runs.calls.outcome import CallContext, entry_by_id
from codemode_mcp.sandbox import messages
from codemode_mcp.sandbox.messages import Completion, GuestError, Lookup, Thrown, ToolCall
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.base.settings import CodeModeSettings
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.catalog.saved_programs.compiling import CompiledProgram, ProgramCompiler
    from codemode_mcp.catalog.search import Found
    from upstream_clients.tools import JsonObject


NOTED_SEARCHES: Final = 3
"""The first searches of a program, of which notes say how many hits they leave out."""

SHOWN_QUERY: Final = 40
"""Maximum characters of a query in such a note."""


def answer(
    lookup: Lookup, context: CallContext, settings: CodeModeSettings, note: Callable[[str], None] = lambda _: None
) -> Completion:
    """Answer a look-up from the run's catalog. `note`: called with a note for the reader of the run's result."""
    try:
        found = _look_up(lookup, context, settings)
        if isinstance(lookup, messages.ApiSearch | messages.ToolSearch) and context.counts.search <= NOTED_SEARCHES:
            left_out = _left_out(lookup, found, settings, is_first=context.counts.search == 1)
            if left_out:
                note(left_out)
        return Completion(lookup.id, json_text(found))
    except CodeModeError as error:
        return Completion(lookup.id, error=GuestError.of(error))


def _look_up(lookup: Lookup, context: CallContext, settings: CodeModeSettings) -> Any:
    catalog = context.catalog
    match lookup:
        case messages.ApiList(prefix=prefix, more=more):
            return {"files": catalog.files.list_files(prefix, *(more or ()))}
        case messages.ApiRead(path=path, more=more):
            return catalog.files.read(path, *(more or ()))
        case messages.ApiSearch(query=query, server=server):
            context.counts.search += 1
            return catalog.search(query, _limit(lookup, settings), server)
        case messages.Header(server=server, tool=tool, schema=schema):
            return catalog.header(server, tool, schema=schema)
        case messages.ToolSearch(query=query):
            context.counts.search += 1
            return catalog.toolset.search(query, _limit(lookup, settings))
        case messages.Describe(target=target):
            context.counts.describe += 1
            return catalog.toolset.describe(entry_by_id(target, context))


def _left_out(
    search: messages.ApiSearch | messages.ToolSearch, found: Found[Any], settings: CodeModeSettings, *, is_first: bool
) -> str:
    """Return the note that says how many hits a search leaves out; empty if it has all.

    Args:
        is_first: True for the first search of the program, whose query the note does not need.
    """
    if len(found) == found.total:
        return ""
    name, server = ("API.search", search.server) if isinstance(search, messages.ApiSearch) else ("tools.search", "")
    others = [] if _limit(search, settings) >= settings.max_search_limit else ["limit"]
    others += ["server"] if server is None else []
    how = f"{{ {', '.join(others)} }} for more" if others else "ask for something more precise"
    query = json_text(search.query if len(search.query) <= SHOWN_QUERY else search.query[:SHOWN_QUERY] + "...")
    which = name if is_first else f"{name}({escape_line(query)})"
    return f"{which}: {len(found)} of {found.total} hits; {how}."


def _limit(search: messages.ApiSearch | messages.ToolSearch, settings: CodeModeSettings) -> int:
    """Return the maximum number of hits of a search. `API.search("")` lists tools, so it has the largest one."""
    is_list = isinstance(search, messages.ApiSearch) and not search.query.strip()
    default = settings.max_search_limit if is_list else settings.search_default_limit
    return min(default if search.limit is None else search.limit, settings.max_search_limit)


# Calls of saved programs. The answer of the host has the text and the checked input; the guest runs the program.


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
        "file": compiled.positions.path,
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
