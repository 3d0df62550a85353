"""`codemode-mcp tools` and `codemode-mcp types`."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from codemode_mcp.cli.completion import server_names
from codemode_mcp.cli.listing import UNCUT, lines, list_tools, server_errors
from codemode_mcp.cli.loading import load, logging_of, plugins_on_stderr
from codemode_mcp.cli.messages import COLUMNS, print_json, say, stop
from codemode_mcp.cli.options import ConfigOption, JsonOption
from codemode_mcp.cli.selection import configured, server_suggestion, with_servers
from codemode_mcp.errors import ProgramError

if TYPE_CHECKING:
    from codemode_mcp.cli.listing import ToolList
    from codemode_mcp.config import Config

CONNECT_SECONDS = 30.0
"""Timeout for connecting servers."""

app = typer.Typer()


@app.command(
    epilog="Example: codemode-mcp tools\n\nExample: codemode-mcp tools open issues --server github\n\n"
    "Example: codemode-mcp tools --long --server github"
)
def tools(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="QUERY", help="Search words; default: all tools.")
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only tools of this server or plugin.", autocompletion=server_names),
    ] = None,
    long: Annotated[bool, typer.Option("--long", "-l", help="Show signatures and whole descriptions.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the tools a program can call, or search them."""
    query = " ".join(words) if words else None
    loaded = load(config, "warning", None)
    narrowed = loaded
    if server is not None:
        narrowed = with_servers(loaded, [server] if server in configured(loaded) else [], called=False)
    try:
        # Servers that are down are reported after the list.
        with logging_of(loaded, level="error"), plugins_on_stderr():
            found = anyio.run(partial(_tools, narrowed, query, server))
    except ProgramError:
        stop(2, f"--server: there is no server or plugin {server!r}; {server_suggestion(server or '', loaded)}")
    if as_json:
        print_json(found.entries)
    else:
        piped = COLUMNS if long else UNCUT
        width = shutil.get_terminal_size((COLUMNS, 24)).columns if sys.stdout.isatty() else piped
        for line in lines(found, width, grouped=query is None, long=long):
            print(line)
    for note in found.notes:
        say(note)
    _say_if_empty(loaded)


async def _tools(config: Config, query: str | None, server: str | None) -> ToolList:
    """List or search the tools.

    The tools of a single server may come from its kept list, so that it need not start.

    Raises:
        ProgramError: there is no such server or plugin.
    """
    from codemode_mcp.app.app import open_app

    async with open_app(config) as opened:
        pool = await opened.pool()
        if server is None or any(view.state != "idle" for view in pool.views()):
            await opened.connect(CONNECT_SECONDS)
        catalog = await opened.catalog_for(opened.operator, None)
        views = pool.views()
    return list_tools(catalog, views, query, server, config.tools.code_mode.search_default_limit)


@app.command(
    epilog="Example: codemode-mcp types --out cells\n\nThen open the folder in an editor: cells/*.ts are completed and "
    "checked."
)
def types(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to.")] = Path("codemode-types"),
    config: ConfigOption = None,
) -> None:
    """Write the declaration files and a tsconfig.json, so that an editor completes and checks programs."""
    from codemode_mcp.cli.editor import EXAMPLE, PROJECT, write_folder

    loaded = load(config, "warning", None)
    with logging_of(loaded, level="error"), plugins_on_stderr():
        files, errors = anyio.run(partial(_types, loaded))
    try:
        written = write_folder(out, files)
    except OSError as error:
        stop(1, f"cannot write to {error.filename or out}: {error.strerror}; name another folder with --out")
    for path in written.declarations:
        print(out / path)
    for path in written.removed:
        say(f"removed {out / path}: its server is no longer configured")
    for path in written.changed:
        say(f"kept {out / path}: its server is no longer configured, but the file was changed by hand")
    if not written.project:
        say(f"kept {out / PROJECT}, which is not ours; delete it and run this again to have programs checked")
    if written.example:
        say(f"{out / EXAMPLE} is a first program: open {out} in an editor")
    for error_of_server in errors:
        say(error_of_server)
    _say_if_empty(loaded)


def _say_if_empty(config: Config) -> None:
    if not config.upstreams and not config.plugins:
        say("no server is enabled: see codemode-mcp import, or name a configuration with --config")


async def _types(config: Config) -> tuple[dict[str, str], list[str]]:
    from importlib import resources

    from codemode_mcp.app.app import open_app

    async with open_app(config) as opened:
        await opened.connect(CONNECT_SECONDS)
        catalog = await opened.catalog_for(opened.operator, None)
        files = {path: catalog.files.text(path) for path in catalog.files.paths}
        if catalog.toolset:
            files["tools.d.ts"] = catalog.toolset.declarations()
    package = resources.files("declarations")
    files["guest.d.ts"] = (package / "guest.d.ts").read_text("utf-8")
    files["codemode-mcp.schema.json"] = (package / "configuration.schema.json").read_text("utf-8")
    return files, server_errors(catalog)
