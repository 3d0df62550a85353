"""`codemode-mcp remove`, `codemode-mcp enable` and `codemode-mcp disable`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from codemode_mcp.cli.completion import server_names
from codemode_mcp.cli.messages import say, say_line, stop_line
from codemode_mcp.cli.options import ConfigOption

if TYPE_CHECKING:
    from codemode_mcp.cli.adding.target import Target

app = typer.Typer()

ServerArgument = Annotated[
    str,
    typer.Argument(metavar="SERVER", help="Name of the server in the configuration.", autocompletion=server_names),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be changed, and change nothing.")]


_DRY: Final = "nothing was written, because of --dry-run"


@app.command(epilog="Example: codemode-mcp remove weather")
def remove(server: ServerArgument, dry_run: DryRunOption = False, config: ConfigOption = None) -> None:
    """Remove a server: its entry, its pins and its login, and on request its stored secrets."""
    from codemode_mcp.cli.adding import removal
    from codemode_mcp.cli.adding.questions import ask_yes
    from codemode_mcp.cli.deciding import confirm

    target = _shown("remove", server, config, dry_run=dry_run)
    assert target.document is not None
    entry = target.entry(server)
    secrets = removal.own_secrets(server, target.document.value)
    spec = removal.login_spec(server, entry, target.path.parent)
    say("Its pins are deleted, too." if spec is None else "Its pins and its login are deleted, too.")
    if dry_run:
        if secrets:
            say_line(f"You are asked about its stored secrets: {', '.join(secrets)}")
        say(_DRY)
        return
    deletes = bool(secrets) and ask_yes(f"Delete its stored secrets, too ({', '.join(secrets)})?")
    confirm("remove", server)
    backup = target.write(target.removing(server))
    left = [*removal.forget(server, target.path, spec, secrets if deletes else [])]
    say_line(f"{server} is removed from {target.path}")
    if backup is not None:
        say_line(f"  the old file is kept as {backup}")
    if secrets and not deletes:
        left.append(f"its stored secrets are left: {', '.join(secrets)}")
    for sentence in (*left, *removal.left_behind(server, target.document.value, target.path)):
        say_line(f"  {sentence}")


@app.command(epilog="Example: codemode-mcp enable weather")
def enable(server: ServerArgument, dry_run: DryRunOption = False, config: ConfigOption = None) -> None:
    """Enable a disabled server. A running instance starts it when it is needed."""
    from codemode_mcp.cli.adding.proposal import Refused
    from codemode_mcp.cli.adding.trial import spec_of
    from codemode_mcp.cli.deciding import confirm

    target = _shown("enable", server, config, dry_run=dry_run)
    entry = target.entry(server)
    if entry.get("disabled") is not True:
        say_line(f"{server} is enabled already")
        return
    try:
        spec_of(server, entry, target.path.parent)
    except Refused as error:
        stop_line(1, f"{server} stays disabled, since its entry cannot be used: {error}")
    if dry_run:
        say(_DRY)
        return
    confirm("enable", server)
    target.write(target.changing(server, {}, ("disabled",)))
    say_line(f"{server} is enabled in {target.path}")


@app.command(epilog="Example: codemode-mcp disable weather")
def disable(server: ServerArgument, dry_run: DryRunOption = False, config: ConfigOption = None) -> None:
    """Disable a server. Its entry, its pins and its secrets stay."""
    from codemode_mcp.cli.deciding import confirm

    target = _shown("disable", server, config, dry_run=dry_run)
    if target.entry(server).get("disabled") is True:
        say_line(f"{server} is disabled already")
        return
    if dry_run:
        say(_DRY)
        return
    confirm("disable", server)
    target.write(target.changing(server, {"disabled": True}))
    say_line(f"{server} is disabled in {target.path}")


def _shown(command: str, server: str, config: str | None, *, dry_run: bool) -> Target:
    """Return the configuration file of a command, after its server was shown. End the command without a person."""
    from codemode_mcp.cli.adding.target import find_target
    from codemode_mcp.cli.adding.views import entry_lines, show
    from codemode_mcp.cli.deciding import require_person

    if not dry_run:
        require_person(command)
    target = find_target(config)
    entry = target.entry(server)
    say_line(f"server {server} in {target.path}")
    show(entry_lines(entry))
    return target
