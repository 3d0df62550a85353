"""`codemode-mcp call`."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codemode_mcp.cli.completion import server_names
from codemode_mcp.cli.following import execute, exit_after
from codemode_mcp.cli.loading import load
from codemode_mcp.cli.messages import stop
from codemode_mcp.cli.options import ConfigOption, LogFileOption, LogLevelOption, QuietOption, ReadOnlyOption
from codemode_mcp.cli.selection import configured, server_suggestion, with_servers
from codemode_mcp.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from codemode_mcp.app.app import App
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import Entry

CONNECT_SECONDS = 30.0
"""Timeout for connecting the server."""

app = typer.Typer()


@app.command(
    epilog="Example: codemode-mcp call github.listIssues owner=octocat repo=hello state=open\n\n"
    'Example: codemode-mcp call github.create_issue --json \'{"title": "Broken", "labels": ["bug"]}\''
)
def call(
    tool: Annotated[str, typer.Argument(metavar="SERVER.TOOL", help="Tool to call.", autocompletion=server_names)],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", help="Arguments; values that are not strings in the tool's schema are JSON."
        ),
    ] = None,
    text: Annotated[
        str | None, typer.Option("--json", metavar="OBJECT", help="All arguments as one JSON object.")
    ] = None,
    config: ConfigOption = None,
    read_only: ReadOnlyOption = False,
    quiet: QuietOption = False,
    log_level: LogLevelOption = None,
    log_file: LogFileOption = None,
) -> None:
    """Call one tool and print its result. Only the server of the tool is started.

    The same rules and approvals apply as to programs.
    """
    server, _, name = tool.removeprefix("MCP.").removeprefix("mcp:").replace(":", ".", 1).partition(".")
    if not name:
        stop(2, f"{tool!r} names no tool: write SERVER.TOOL, as in github.listIssues; codemode-mcp tools lists them")
    values = _parse(arguments or [], text)
    loaded = load(config, log_level or "warning", log_file, read_only=read_only)
    known = configured(loaded)
    if server not in known:
        stop(2, f"there is no server {server!r}; {server_suggestion(server, loaded)}")
    narrowed = with_servers(loaded, [server], called=True)
    exit_after(execute(narrowed, partial(_program, known[server], name, values, text is None), quiet=quiet))


def _parse(arguments: Sequence[str], text: str | None) -> Mapping[str, Any]:
    """Return the arguments: JSON values, or the strings of KEY=VALUE."""
    if text is None:
        pairs = [each.partition("=") for each in arguments]
        for key, equals, _ in pairs:
            if not equals or not key:
                stop(2, f"{key!r}: write arguments as KEY=VALUE, or all of them as --json '{{...}}'")
        return {key: value for key, _, value in pairs}
    if arguments:
        stop(2, "give either KEY=VALUE or --json, not both")
    try:
        value = json.loads(text)
    except ValueError as error:
        stop(2, f"--json: this is not JSON ({error}); write it in single quotes, as in --json '{{\"a\": 1}}'")
    if not isinstance(value, dict):
        stop(2, "--json: arguments are one JSON object, as in --json '{\"a\": 1}'")
    return value


async def _program(server: str, name: str, values: Mapping[str, Any], are_strings: bool, opened: App) -> str:
    """Return the program that makes the call. Values that are strings are converted as the tool's schema requires.

    Raises:
        ProgramError: there is no such tool, or its server is down.
    """
    pool = await opened.pool()
    if any(view.state != "idle" for view in pool.views()):
        await opened.connect(CONNECT_SECONDS)
    entry = _entry(await opened.catalog_for(opened.operator, None), server, name)
    if are_strings:
        properties = entry.tool.input_schema.get("properties")
        schemas = properties if isinstance(properties, dict) else {}
        values = {key: _convert(value, schemas.get(key)) for key, value in values.items()}
    return f"return unwrap(await {entry.path}({json.dumps(values)}))"


def _entry(catalog: Catalog, server: str, name: str) -> Entry:
    from codemode_mcp.did_you_mean import nearest

    found = next(each for each in catalog.servers if each.name == server)
    for entry in found.tools:
        if name in (entry.identifier, entry.tool.name):
            return entry
    if found.status != "ready" and found.error:
        raise ProgramError("nested_tool_failed", found.error)
    near = nearest(name, [entry.identifier for entry in found.tools])
    advice = f"did you mean {' or '.join(f'{found.identifier}.{each}' for each in near)}?" if near else ""
    listed = f"codemode-mcp tools --server {found.name} lists its tools"
    raise ProgramError("invalid_input", f"{server} has no tool {name!r}; {advice or listed}")


def _types(schema: object) -> Iterator[str]:
    """Yield the JSON types that a schema names."""
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
