"""The program that makes one call, for `codemode-mcp call`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.catalog.entries import Entry
from codemode_mcp.errors import ProgramError
from codemode_mcp.json_text import as_javascript

if TYPE_CHECKING:
    from collections.abc import Iterator

    from codemode_mcp.app.app import App
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.cli.command_requests import CallRequest
    from codemode_mcp.policy.callers import Caller

CONNECT_SECONDS: Final = 30.0
"""Timeout for connecting the server."""


async def program_of(request: CallRequest, opened: App, caller: Caller) -> str:
    """Return the program that makes a call.

    Args:
        request: has the name of the server, not its identifier.

    Raises:
        ProgramError: there is no such tool, it is held, or its server is down.
    """
    pool = await opened.pool()
    if any(view.state != "idle" for view in pool.views() if view.name == request.server):
        await pool.connect([request.server], CONNECT_SECONDS)
    is_api = request.server in opened.configured() and pool.spec(request.server).is_api
    entry = _entry(await opened.catalog_for(caller, None), request.server, request.tool, is_api)
    values = request.values
    if request.are_strings:
        properties = entry.tool.input_schema.get("properties")
        schemas = properties if isinstance(properties, dict) else {}
        values = {key: _convert(value, schemas.get(key)) for key, value in values.items()}
    return f"return unwrap(await {entry.path}({as_javascript(values)}))"


def _entry(catalog: Catalog, server: str, name: str, is_api: bool) -> Entry:
    from codemode_mcp.did_you_mean import nearest

    found = next(each for each in catalog.servers if each.name == server)
    entry = found.member(name)
    if isinstance(entry, Entry) and entry.operation is None:
        return entry
    if name in found.withheld:
        raise ProgramError("nested_tool_failed", f"{server}.{name} {found.withheld[name]}")
    if found.status != "ready" and found.error:
        raise ProgramError("nested_tool_failed", found.error)
    near = nearest(name, [entry.identifier for entry in found.tools])
    advice = f"did you mean {' or '.join(f'{found.identifier}.{each}' for each in near)}?" if near else ""
    listed = (
        f"codemode-mcp tools --server {found.name} lists its tools, and codemode-mcp policy explain "
        f"{found.name}.TOOL says if a rule hides one"
    )
    if is_api:
        listed += f"; codemode-mcp doctor {found.name} names the operations that are skipped"
    raise ProgramError("invalid_input", f"{server} has no tool {name!r}; {advice or listed}")


def _types(schema: object) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    named = schema.get("type")
    yield from [named] if isinstance(named, str) else named if isinstance(named, list) else ()
    if isinstance(schema.get("enum"), list) and named is None:
        yield from (
            "string" if isinstance(each, str) else "null" if each is None else "other" for each in schema["enum"]
        )
    for key in ("anyOf", "oneOf"):
        for each in schema[key] if isinstance(schema.get(key), list) else ():
            yield from _types(each)


def _convert(value: str, schema: object) -> Any:
    """Return a value as its schema requires: as a string, or else as JSON if it is JSON."""
    types = set(_types(schema))
    if "string" in types and types <= {"string", "null"}:
        return None if value == "null" and "null" in types else value
    try:
        return json.loads(value)
    except ValueError:
        return value
