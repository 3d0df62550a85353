"""`codemode-mcp add`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from codemode_mcp.cli.adding.proposal import Proposal, Refused, with_settings
from codemode_mcp.cli.messages import stop_line

app = typer.Typer()


@app.command(
    epilog="Example: codemode-mcp add https://example.com/mcp\n\n"
    "Example: codemode-mcp add weather --env API_KEY -- node server.js"
)
def add(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="URL of a server; or a name, with a command after --.")
    ],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND", help="Command that starts the server.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the server in the configuration.")] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME[=VALUE]", help="Variable of the server; without a value, you are asked."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME[=VALUE]", help="Header of requests; without a value, you are asked."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be written, and start nothing.")] = False,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="File to add to; it may be a new one.")
    ] = None,
) -> None:
    """Add a server: show what it runs and lists, and write and accept it after a person has confirmed both.

    Secrets are kept in the system keyring.
    """
    from dataclasses import replace

    from codemode_mcp.cli.adding.sources import read_settings
    from codemode_mcp.cli.adding.steps import add as add_server
    from codemode_mcp.cli.adding.steps import print_plan
    from codemode_mcp.cli.adding.target import find_target
    from codemode_mcp.cli.deciding import require_person

    if not dry_run:
        require_person("add")
    target = find_target(config)
    try:
        settings, values = read_settings(env or (), header or ())
        proposal = with_settings(_proposal(source, command or []), settings)
    except Refused as error:
        stop_line(2, str(error))
    if name is not None:
        proposal = replace(proposal, name=name)
    if dry_run:
        print_plan(proposal, target, values)
    else:
        add_server(proposal, target, values)


def _proposal(source: str, command: list[str]) -> Proposal:
    """Return the proposal for a source. Raise `Refused`."""
    from codemode_mcp.cli.adding.sources import local, read_address, remote

    if command:
        return local(source, command, Path.cwd())
    address = read_address(source)
    if address is None:
        raise Refused(f"{source} is no URL; to add a command, write it after --: codemode-mcp add NAME -- COMMAND ...")
    return remote(address)
