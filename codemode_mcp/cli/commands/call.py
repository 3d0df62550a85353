"""`codemode-mcp call`."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codemode_mcp.cli.commands.run import end, execute
from codemode_mcp.cli.completion import server_names
from codemode_mcp.cli.options import ConfigOption, LogFileOption, LogLevelOption
from codemode_mcp.cli.selection import configured, suggestion, with_servers
from codemode_mcp.cli.shared import load, stop
from codemode_mcp.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from codemode_mcp.app.app import App
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import Entry

CONNECT_SECONDS = 30.0

app = typer.Typer()


@app.command(
    epilog="Example: codemode-mcp call github.listIssues owner=octocat repo=hello state=open\n\n"
    'Example: codemode-mcp call github.create_issue --json \'{"title": "Broken", "labels": ["bug"]}\''
)
def call(
    tool: Annotated[str, typer.Argument(metavar="SERVER.TOOL", help="Tool to call.", autocompletion=server_names)],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Arguments. What the tool wants as no text is read as JSON."),
    ] = None,
    text: Annotated[
        str | None, typer.Option("--json", metavar="OBJECT", help="All arguments as one JSON object.")
    ] = None,
    config: ConfigOption = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Admit read-only tools only.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no line of progress.")] = False,
    log_level: LogLevelOption = None,
    log_file: LogFileOption = None,
) -> None:
    """Call one tool and print its result. It starts the server of the tool alone.

    The same rules and approvals apply as to programs.
    """
    server, _, name = tool.removeprefix("MCP.").removeprefix("mcp:").replace(":", ".", 1).partition(".")
    if not name:
        stop(2, f"{tool!r} names no tool: write SERVER.TOOL, as in github.listIssues; codemode-mcp tools lists them")
    given = _given(arguments or [], text)
    loaded = load(config, log_level or "warning", log_file, read_only=read_only)
    known = configured(loaded)
    if server not in known:
        stop(2, f"there is no server {server!r}{suggestion(server, loaded)}")
    narrowed = with_servers(loaded, [server], called=True)
    end(execute(narrowed, partial(_program, known[server], name, given), quiet=quiet))


def _given(arguments: Sequence[str], text: str | None) -> dict[str, Any] | dict[str, str]:
    """Return the arguments as they were typed; texts where they are not JSON yet."""
    if text is None:
        pairs = [each.partition("=") for each in arguments]
        for key, mark, _ in pairs:
            if not mark or not key:
                stop(2, f"{key!r}: write arguments as KEY=VALUE, or all of them as --json '{{...}}'")
        return {key: _Typed(value) for key, _, value in pairs}
    if arguments:
        stop(2, "give either KEY=VALUE or --json, not both")
    try:
        value = json.loads(text)
    except ValueError as error:
        stop(2, f"--json: this is no JSON ({error}); write it in single quotes, as in --json '{{\"a\": 1}}'")
    if not isinstance(value, dict):
        stop(2, "--json: arguments are one JSON object, as in --json '{\"a\": 1}'")
    return value


class _Typed(str):
    """A value that was typed behind a key."""

    __slots__ = ()


async def _program(server: str, name: str, given: Mapping[str, Any], opened: App) -> str:
    """Return the program that makes the call.

    Raises:
        ProgramError: there is no such tool, or its server is down.
    """
    pool = await opened.pool()
    if any(view.state != "idle" for view in pool.views()):
        await opened.connect(CONNECT_SECONDS)
    entry = _entry(await opened.catalog_for(opened.operator, None), server, name)
    properties = entry.tool.input_schema.get("properties")
    arguments = {key: _read(value, properties, key) for key, value in given.items()}
    return f"return unwrap(await {entry.path}({json.dumps(arguments)}))"


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


def _kinds(schema: object) -> Iterator[str]:
    """Yield the JSON types that a schema names."""
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    yield from [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else ()
    if isinstance(schema.get("enum"), list) and kind is None:
        yield from (
            "string" if isinstance(each, str) else "null" if each is None else "other" for each in schema["enum"]
        )
    for key in ("anyOf", "oneOf"):
        for each in schema[key] if isinstance(schema.get(key), list) else ():
            yield from _kinds(each)


def _read(value: Any, properties: object, key: str) -> Any:
    """Return a typed value as what the tool wants there: text as it is, anything else as JSON where it is JSON."""
    if not isinstance(value, _Typed):
        return value
    schema = properties.get(key) if isinstance(properties, dict) else None
    kinds = set(_kinds(schema))
    if "string" in kinds and kinds <= {"string", "null"}:
        return None if value == "null" and "null" in kinds else str(value)
    try:
        return json.loads(value)
    except ValueError:
        return str(value)
