"""Look-ups of programs in their catalog: `API`, `$api`, `tools.search` and `tools.describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.calls.context import entry_by_id
from codemode_mcp.errors import CodeModeError
from codemode_mcp.json_text import json_text
from codemode_mcp.sandbox import messages
from codemode_mcp.sandbox.messages import Completion, GuestError
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.calls.context import CallContext
    from codemode_mcp.sandbox.messages import Lookup
    from codemode_mcp.search.found import Found
    from codemode_mcp.settings import CodeModeSettings


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
