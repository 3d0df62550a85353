"""`codemode-mcp tools` and `codemode-mcp types`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from codemode_mcp.cli.command_service import read_tools
from codemode_mcp.cli.messages import say, stop
from codemode_mcp.cli.options import ConfigOption, JsonOption, PrivateOption
from codemode_mcp.cli.parser import server_names
from codemode_mcp.cli.running_instance import ask_instance, tools_there

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from codemode_mcp.config import Config
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.server.services import App

Result = TypeVar("Result")

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
    private: PrivateOption = False,
) -> None:
    """List the tools a program can call, or search them."""
    request = read_tools(words or (), server, long=long, as_json=as_json)
    if not private:
        code = tools_there(request, config=config)
        if code is not None:
            raise typer.Exit(code)
    from codemode_mcp.cli.listing import emptiness, of_server, printed, tools_of, unknown_source
    from codemode_mcp.cli.loading import load, logging_of, plugins_on_stderr

    loaded = load(config, "warning", None)
    # Servers that are down are reported after the list.
    with logging_of(loaded, level="error"), plugins_on_stderr():
        found = _run(of_server(loaded, server), partial(tools_of, query=request.query, server=server))
    if found is None:
        stop(2, unknown_source(server or "", loaded))
    for line in printed(found, request):
        print(line)
    for note in (*found.notes, *emptiness(loaded)):
        say(note)


@app.command(
    epilog="Example: codemode-mcp types --out cells\n\nThen open the folder in an editor: cells/*.ts are completed and "
    "checked."
)
def types(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to.")] = Path("codemode-types"),
    config: ConfigOption = None,
    private: PrivateOption = False,
) -> None:
    """Write the declaration files and a tsconfig.json, so that an editor completes and checks programs."""
    from codemode_mcp.cli.editor import EXAMPLE, PROJECT, write_folder

    result = None if private else ask_instance("types", {}, config=config, log_level="error")
    if result is None:
        from codemode_mcp.cli.listing import emptiness, types_of
        from codemode_mcp.cli.loading import load, logging_of, plugins_on_stderr

        loaded = load(config, "warning", None)
        with logging_of(loaded, level="error"), plugins_on_stderr():
            files, errors = _run(loaded, types_of)
        notes = [*errors, *emptiness(loaded)]
    else:
        files, notes = result["files"], result["notes"]
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
    for note in notes:
        say(note)


def _run(config: Config, function: Callable[[App, Caller], Awaitable[Result]]) -> Result:
    """Call a function with an application that is open meanwhile."""
    import anyio

    from codemode_mcp.process.app.app import open_app

    async def run() -> Result:
        async with open_app(config) as opened:
            return await function(opened, opened.operator)

    return anyio.run(run)
