"""`codemode-mcp call`."""

from __future__ import annotations

from typing import Annotated

import typer

from codemode_mcp.cli.command_requests import read_call
from codemode_mcp.cli.completion import server_names
from codemode_mcp.cli.messages import stop
from codemode_mcp.cli.options import (
    ConfigOption,
    LogFileOption,
    LogLevelOption,
    PrivateOption,
    QuietOption,
    ReadOnlyOption,
)
from codemode_mcp.cli.quick_commands import call_there

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
    private: PrivateOption = False,
) -> None:
    """Call one tool and print its result. Only the server of the tool is started.

    The same rules and approvals apply as to programs.
    """
    request = read_call(tool, arguments or [], text)
    if not private and log_level is None and log_file is None:
        code = call_there(request, config=config, read_only=read_only, quiet=quiet)
        if code is not None:
            raise typer.Exit(code)
    from functools import partial

    from codemode_mcp.cli.following import execute, exit_after
    from codemode_mcp.cli.loading import load
    from codemode_mcp.cli.selection import configured, unknown_server, with_servers
    from codemode_mcp.cli.tool_call import program_of

    loaded = load(config, log_level or "warning", log_file, read_only=read_only)
    known = configured(loaded, in_programs=True)
    if request.server not in known:
        stop(2, unknown_server(request.server, loaded))
    narrowed = with_servers(loaded, [known[request.server]], called=True)
    exit_after(execute(narrowed, partial(program_of, request._replace(server=known[request.server])), quiet=quiet))
