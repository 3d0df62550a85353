"""Look-ups of programs in their catalog: `API`, `$api`, `tools.search` and `tools.describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from codemode_mcp.calls.context import entry_by_id
from codemode_mcp.errors import CodeModeError
from codemode_mcp.json_text import json_text
from codemode_mcp.sandbox import messages
from codemode_mcp.sandbox.messages import Completion, GuestError

if TYPE_CHECKING:
    from codemode_mcp.calls.context import CallContext
    from codemode_mcp.sandbox.messages import Lookup
    from codemode_mcp.settings import CodeModeSettings


def answer(lookup: Lookup, context: CallContext, settings: CodeModeSettings) -> Completion:
    """Answer a look-up from the run's catalog."""
    try:
        return Completion(lookup.id, json_text(_look_up(lookup, context, settings)))
    except CodeModeError as error:
        return Completion(lookup.id, error=GuestError.of(error))


def _look_up(lookup: Lookup, context: CallContext, settings: CodeModeSettings) -> Any:
    catalog = context.catalog
    match lookup:
        case messages.ApiList(prefix=prefix):
            return {"files": catalog.files.list_files(prefix)}
        case messages.ApiRead(path=path):
            return catalog.files.read(path)
        case messages.ApiSearch(query=query, limit=limit, server=server):
            context.counts.search += 1
            return catalog.search(query, _limit(limit, settings), server)
        case messages.Header(server=server, tool=tool, schema=schema):
            return catalog.header(server, tool, schema=schema)
        case messages.ToolSearch(query=query, limit=limit):
            context.counts.search += 1
            return catalog.toolset.search(query, _limit(limit, settings))
        case messages.Describe(target=target):
            context.counts.describe += 1
            return catalog.toolset.describe(entry_by_id(target, context))


def _limit(requested: int | None, settings: CodeModeSettings) -> int:
    return min(settings.search_default_limit if requested is None else requested, settings.max_search_limit)
