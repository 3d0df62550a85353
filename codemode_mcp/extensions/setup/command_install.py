"""`codemode-mcp install`."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer
from msgspec.structs import replace

from codemode_mcp.base.errors import ConfigError
from codemode_mcp.base.paths import config_dir, data_dir
from codemode_mcp.base.text import listed
from codemode_mcp.cli.messages import say, say_command, stop, suggestion
from codemode_mcp.cli.options import ConfigOption
from codemode_mcp.extensions.setup.mcp_clients.client_files import this_machine
from codemode_mcp.extensions.setup.mcp_clients.launch import PRIVATE, Launch
from codemode_mcp.extensions.setup.mcp_clients.locations import TITLES, Location, Machine, client_names
from upstream_clients.environment import find_executable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codemode_mcp.extensions.setup.mcp_clients.installing import Plan, UndoPlan

ATTEMPTS = 5
"""Maximum number of attempts to change a file that a client changes at the same moment."""

MAX_NAMES = 12
"""Names of servers in a message."""

app = typer.Typer()


@app.command(
    epilog="Example: codemode-mcp install --client cursor --move-servers\n\n"
    "Example: codemode-mcp install --client claude-code --scope project --dry-run\n\n"
    "Example: codemode-mcp install --client cursor --undo"
)
def install(
    client: Annotated[
        str,
        typer.Option(
            "--client",
            metavar="CLIENT",
            autocompletion=client_names,
            help=f"Client to add this server to: {', '.join(TITLES)}; for any other, an entry to copy is printed.",
        ),
    ],
    scope: Annotated[
        Literal["user", "project"], typer.Option("--scope", help="Add it for all your folders, or for this one.")
    ] = "user",
    config: ConfigOption = None,
    move_servers: Annotated[
        bool, typer.Option("--move-servers", help="Move the client's servers behind this one.")
    ] = False,
    name: Annotated[str, typer.Option("--name", help="Name of this server in the client.")] = "codemode",
    private: Annotated[
        bool, typer.Option("--private", help="Give this client a server process of its own, which it shares with none.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Remove this server, and put moved servers back.")] = False,
) -> None:
    """Add this server to the configuration of an MCP client. It can be undone.

    A dated backup of the client's file is kept in your state folder.
    """
    from codemode_mcp.config.edit import ChangedMeanwhileError
    from codemode_mcp.extensions.setup.mcp_clients import installing, locations

    machine = this_machine()
    known = next((each for each in locations.CLIENTS if each == client), None)
    if known is None:
        _print_entry_to_copy(client, name, config, machine, private=private)
    location = locations.install_location(known, scope, machine, os.path.exists)
    if location is None:
        stop(2, f"{TITLES[known]} keeps no servers for one folder; leave out `--scope {scope}`")
    if installing.NAME.fullmatch(name) is None:
        stop(2, "--name: a server's name is made of letters, digits, - and _, at most 64 of them")
    for _ in range(ATTEMPTS):
        try:
            if undo:
                _undo(location, dry_run=dry_run)
            else:
                _install(location, name, config, machine, move=move_servers, private=private, dry_run=dry_run)
        except installing.RefusedError as error:
            stop(1, str(error))
        except RecursionError:
            stop(1, f"{location.path} is nested too deeply; correct it, and run this again. Nothing was changed")
        except ChangedMeanwhileError:
            continue
        return
    stop(1, f"{location.path} keeps being changed by another program; quit {TITLES[known]}, and run this again")


def _install(
    location: Location,
    name: str,
    config: str | None,
    machine: Machine,
    *,
    move: bool,
    private: bool,
    dry_run: bool,
) -> None:
    from codemode_mcp.extensions.setup.mcp_clients import installing, locations

    ours = _configuration(config, machine, location, move=move)
    launch = _launch(machine, private=private)
    document = installing.read_document(location)
    plan = installing.plan(location, document, name, launch, ours, machine, move=move)
    title = TITLES[location.client]
    if plan.change is None:
        say(f"{title} has this server already: {plan.path} is unchanged")
        _say_other_servers(plan, title)
        return
    if dry_run:
        say(f"would {'change' if document.data is not None else 'create'} {plan.path}:")
        _say_changes(plan, launch, title)
        if (change := plan.config_change) is not None:
            say(f"would {'change' if change.before is not None else 'create'} {change.path} for the moved servers")
        _say_other_servers(plan, title)
        say("nothing is changed yet: run this without --dry-run")
        print(plan.shown)
        return
    backup = installing.carry_out(plan, data_dir() / "installed")
    say(f"{title} has this server now:")
    _say_changes(plan, launch, title)
    _say_other_servers(plan, title)
    if remark := locations.REMARKS.get(location.client):
        say(f"your choice: {remark}")
    say("to undo this, or to restore the file without this program:")
    scope = "" if location.scope == "user" else f" --scope {location.scope}"
    say_command(f"codemode-mcp install --client {location.client}{scope} --undo")
    say_command(installing.restore_command(plan.path, backup, windows=machine.system == "win32"))
    say(f"next: {locations.RESTART[location.client]}; to check it now:")
    say_command(f"codemode-mcp doctor --config {_quoted(ours)}")
    print(plan.path)


def _print_entry_to_copy(client: str, name: str, config: str | None, machine: Machine, *, private: bool) -> NoReturn:
    """Print an entry for an unknown client. End the command with 2, because nothing was installed."""
    from codemode_mcp.base.config_path import FILE_NAME

    try:
        found = _find(config, machine)
    except ConfigError:
        found = Path(config) if config else None
    launch = _launch(machine, private=private)
    words = [launch.command, *launch.args, "--config", os.path.abspath(found or config_dir() / FILE_NAME)]
    say(f"{_name(client)!r} is not a client that install knows; nothing was changed")
    say(f"  {suggestion(client, TITLES)}")
    say("most clients take this entry in their file of MCP servers:")
    print(json.dumps({"mcpServers": {name: {"command": words[0], "args": words[1:]}}}, indent=2))
    say("some have a command for it, such as:")
    say_command(f"CLIENT mcp add {name} -- {shlex.join(words)}")
    raise typer.Exit(2)


def _configuration(config: str | None, machine: Machine, location: Location, *, move: bool) -> Path:
    """Return the absolute path of our configuration, which need not exist if servers are moved into it.

    A configuration from the working directory that was not named may be by others. It is not used for all folders.
    """
    from codemode_mcp.base.config_path import FILE_NAME, PATH_VARIABLE

    try:
        found = _find(config, machine)
    except ConfigError as error:
        if not (move and config):
            stop(2, "\n".join(error.problems))
        found = Path(config)
    if found is None and not move:
        stop(
            2,
            "there is no configuration yet for this server to start with: add --move-servers to import the servers "
            "of this client, or run `codemode-mcp import --write` first",
        )
    own = config_dir() / FILE_NAME
    named = config or machine.environ.get(PATH_VARIABLE)
    if not named and location.scope == "user" and found == machine.folder / FILE_NAME and found != own:
        stop(
            2,
            f"{found} is of this folder, and {TITLES[location.client]} would start it everywhere: say which one you "
            f"mean, --config {_quoted(found)} or --config {_quoted(own)}",
        )
    return Path(os.path.abspath(found or own))


def _find(config: str | None, machine: Machine) -> Path | None:
    from codemode_mcp.cli.deciding import admit
    from codemode_mcp.config import find_config

    return find_config(config, environ=machine.environ, cwd=machine.folder, user_config_dir=config_dir(), admit=admit)


def _launch(machine: Machine, *, private: bool) -> Launch:
    from importlib import metadata

    from codemode_mcp.extensions.setup.mcp_clients.launch import NoLaunchError, Program, launch, origin

    try:
        direct_url = metadata.distribution("codemode-mcp").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        direct_url = None
    program = Program(os.path.abspath(sys.argv[0]), sys.executable, origin(direct_url))
    try:
        found = launch(program, machine.system, os.path.exists, find_executable)
        return replace(found, args=(*found.args, PRIVATE)) if private else found
    except NoLaunchError as error:
        stop(1, str(error))


def _say_changes(plan: Plan, launch: Launch, title: str) -> None:
    say(f"  + {plan.name}")
    if launch.note is not None:
        say(f"    {launch.note}")
    if plan.replaced:
        say(f"  - {_names(plan.replaced)}: this server too, under another name")
    if plan.moved:
        say(f"  - {_names(plan.moved)}: behind this server, in {plan.config}")
    if plan.config_change is not None and plan.config_change.secret:
        say("    their secrets were copied as written, into a file that only you can read")
    for name, note in plan.notes:
        say(f"    {_name(name)}: {note}")
    if plan.location.scope == "project":
        if plan.moved:
            say(f"    they were servers of this project only; now all clients that start {plan.config} have them")
        say("    the paths are those of this machine: others who get the file with the project have to set their own")
    if plan.passed:
        say(f"    variables that {title} passes on to it: {', '.join(plan.passed)}; in a terminal, set them yourself")
    if plan.is_private:
        say(f"  with {PRIVATE} in the entry, {title} has a server process of its own")
    else:
        say(f"  {title} shares one process with other clients of {plan.config}; add {PRIVATE} for a process of its own")


def _say_other_servers(plan: Plan, title: str) -> None:
    for name, reason in plan.refused.items():
        say(f"stays with {title}: {_name(name)}, because {reason}")
    if plan.both:
        say(
            f"both {title} and this server start {_names(plan.both)}; run this with --move-servers, or remove "
            f"{'it' if len(plan.both) == 1 else 'them'} from {plan.path}"
        )
    if unmovable := [name for name in plan.kept if name in plan.unmovable and name not in plan.refused]:
        say(f"{title} keeps showing the tools of {_names(unmovable)}, which cannot be moved behind this server")
    mentioned = {*plan.both, *plan.refused, *plan.unmovable}
    if others := [name for name in plan.kept if name not in mentioned]:
        say(f"{title} still shows the tools of {_names(others)}; --move-servers moves them behind this server")


def _undo(location: Location, *, dry_run: bool) -> None:
    from codemode_mcp.extensions.setup.mcp_clients import installing, locations

    records = data_dir() / "installed"
    document = installing.read_document(location)
    plan = installing.plan_undo(location, document, records)
    title = TITLES[location.client]
    if plan.change is None and not plan.lost:
        if not dry_run:
            installing.undo(plan, location, document.path, records)
        say(f"{title} does not have this server: {document.path} is unchanged")
        _say_undone(plan, title)
        return
    if dry_run:
        say(f"would {'remove' if plan.removes_file else 'change'} {document.path}:")
        _say_undone(plan, title)
        return
    backup = installing.undo(plan, location, document.path, records)
    if plan.removes_file:
        say(f"{document.path} is removed; it did not exist before")
    else:
        say(f"{document.path} is {'as it was before, byte for byte' if plan.exact else 'without this server'}")
    _say_undone(plan, title)
    if backup is not None:
        say(f"  the old file is kept as {backup}")
    say(f"next: {locations.RESTART_AFTER_UNDO[location.client]}")


def _say_undone(plan: UndoPlan, title: str) -> None:
    if plan.removed:
        say(f"  - {_names(plan.removed)}")
    if plan.restored:
        say(f"  + {_names(plan.restored)}: moved back from behind this server; {plan.config} still has them too")
    if not plan.recorded:
        say("  there is no record of moved servers; if any were moved, the dated backups of the file have them")
        if plan.config is not None:
            say(f"    and so has {plan.config}")
    if plan.occupied:
        say(f"  not put back, because {title} has other servers of these names now: {_names(plan.occupied)}")
    if plan.lost:
        say(f"  not put back, because the backup with their entries is gone: {_names(plan.lost)}; copy them from")
        say(f"    {plan.config}")


def _names(names: Sequence[str]) -> str:
    return listed([*map(_name, names)], MAX_NAMES)


def _name(name: str) -> str:
    from codemode_mcp.base.display import cut

    return cut(name, 60)


def _quoted(path: Path) -> str:
    return f'"{path}"' if sys.platform == "win32" else shlex.quote(str(path))
