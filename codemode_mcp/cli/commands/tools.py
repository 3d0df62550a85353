"""`codemode-mcp tools` and `codemode-mcp types`."""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from codemode_mcp.cli.completion import server_names
from codemode_mcp.cli.listing import UNCUT, find, lines, problems
from codemode_mcp.cli.options import ConfigOption, JsonOption
from codemode_mcp.cli.selection import configured, suggestion, with_servers
from codemode_mcp.cli.shared import COLUMNS, load, logging_as, plugins_on_stderr, say, stop
from codemode_mcp.errors import ProgramError

if TYPE_CHECKING:
    from codemode_mcp.cli.listing import Found
    from codemode_mcp.config import Config

CONNECT_SECONDS = 30.0

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
        typer.Option(metavar="NAME", help="Of this server or plugin alone.", autocompletion=server_names),
    ] = None,
    long: Annotated[bool, typer.Option("--long", "-l", help="With signatures, and whole descriptions.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the tools a program can call, or search them."""
    query = " ".join(words) if words else None
    loaded = load(config, "warning", None)
    all_servers, kept = loaded, server is not None
    if server is not None:
        loaded = with_servers(loaded, [server] if server in configured(loaded) else [], called=False)
    with logging_as(loaded, level="error"), plugins_on_stderr():  # servers that are down are told in the end
        found = anyio.run(partial(_tools, loaded, query, server, kept=kept))
    if isinstance(found, ProgramError):
        assert server is not None
        near = suggestion(server, all_servers)
        stop(2, f"--server: there is no server or plugin {server!r}{near}")
    if as_json:
        print(json.dumps(found.entries, ensure_ascii=True, indent=2))  # noqa: T201
    else:
        piped = COLUMNS if long else UNCUT
        width = shutil.get_terminal_size((COLUMNS, 24)).columns if sys.stdout.isatty() else piped
        for line in lines(found, width, grouped=query is None, long=long):
            print(line)  # noqa: T201
    for note in found.notes:
        say(note)
    _say_none(all_servers)


async def _tools(config: Config, query: str | None, server: str | None, *, kept: bool) -> Found | ProgramError:
    """List or search. `kept`: answer from a kept listing where that is fresh."""
    from codemode_mcp.app.app import open_app

    async with open_app(config) as opened:
        pool = await opened.pool()
        if not kept or any(view.state != "idle" for view in pool.views()):
            await opened.connect(CONNECT_SECONDS)
        catalog = await opened.catalog_for(opened.operator, None)
        views = (await opened.pool()).views()
    try:
        return find(catalog, views, query, server, config.tools.code_mode.search_default_limit)
    except ProgramError as error:
        return error


@app.command(
    epilog="Example: codemode-mcp types --out cells\n\nThen open the folder in an editor: cells/*.ts are completed and "
    "checked."
)
def types(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write.")] = Path("codemode-types"),
    config: ConfigOption = None,
) -> None:
    """Write the declaration files to disk, and a tsconfig.json, so that an editor completes and checks programs."""
    from codemode_mcp.cli.editor import EXAMPLE, PROJECT, keep

    loaded = load(config, "warning", None)
    with logging_as(loaded, level="error"), plugins_on_stderr():
        files, problems = anyio.run(partial(_types, loaded))
    try:
        kept = keep(out, files)
    except OSError as error:
        stop(1, f"cannot write to {error.filename or out}: {error.strerror}; name another folder with --out")
    for path in kept.declarations:
        print(out / path)  # noqa: T201
    for path in kept.removed:
        say(f"removed {out / path}: there is no such server any more")
    for path in kept.changed:
        say(f"left {out / path}: there is no such server any more, but the file was changed by hand")
    if not kept.project:
        say(f"left {out / PROJECT}, which is not ours; delete it and run this again to have programs checked")
    if kept.example:
        say(f"{out / EXAMPLE} is a first program: open {out} in an editor")
    for problem in problems:
        say(problem)
    _say_none(loaded)


def _say_none(config: Config) -> None:
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
    ours = resources.files("declarations")
    files["guest.d.ts"] = (ours / "guest.d.ts").read_text("utf-8")
    files["codemode-mcp.schema.json"] = (ours / "configuration.schema.json").read_text("utf-8")
    return files, problems(catalog)
