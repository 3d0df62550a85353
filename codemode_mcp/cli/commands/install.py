"""`codemode-mcp install`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from codemode_mcp.cli.completion import client_names
from codemode_mcp.cli.mcp_clients.places import TITLES
from codemode_mcp.cli.mcp_clients.reading import this_machine
from codemode_mcp.cli.options import ConfigOption
from codemode_mcp.cli.shared import say, say_command, stop
from codemode_mcp.errors import ConfigError
from codemode_mcp.paths import config_dir, data_dir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codemode_mcp.cli.mcp_clients.installing import File, Plan
    from codemode_mcp.cli.mcp_clients.launch import Launch, Program
    from codemode_mcp.cli.mcp_clients.places import Place
    from codemode_mcp.cli.mcp_clients.reading import Here
    from codemode_mcp.cli.mcp_clients.undoing import Undoing

ATTEMPTS = 5
"""Attempts to change a file that a client changes at the same moment."""

NAMES_SHOWN = 12

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
            help=f"Whose file gets this server: {', '.join(TITLES)}; any other: print an entry to copy.",
        ),
    ],
    scope: Annotated[
        Literal["user", "project"], typer.Option("--scope", help="For all your folders, or for this one.")
    ] = "user",
    config: ConfigOption = None,
    move_servers: Annotated[
        bool, typer.Option("--move-servers", help="Move the client's servers into the configuration of this one.")
    ] = False,
    name: Annotated[str, typer.Option("--name", help="What the client calls this server.")] = "codemode",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take it back, with the servers that were moved.")] = False,
) -> None:
    """Add this server to the configuration of an MCP client, with a way back.

    A dated copy of the client's file is kept in your state folder.
    """
    from codemode_mcp.cli.mcp_clients import installing, places
    from codemode_mcp.config.edit import ChangedMeanwhileError

    here = this_machine()
    known = next((each for each in places.CLIENTS if each == client), None)
    if known is None:
        _print_to_copy(client, name, config, here)
    place = places.find(known, scope, here.system, here.home, here.environ, here.folder, os.path.exists)
    if place is None:
        stop(2, f"{TITLES[known]} keeps no servers for one folder; leave out `--scope {scope}`")
    if installing.NAME.fullmatch(name) is None:
        stop(2, "--name: a server's name is made of letters, digits, - and _, at most 64 of them")
    for _ in range(ATTEMPTS):
        try:
            if undo:
                _undo(place, dry_run=dry_run)
            else:
                _install(place, name, config, here, move=move_servers, dry_run=dry_run)
        except installing.RefusedError as error:
            stop(1, str(error))
        except RecursionError:
            stop(1, f"{place.path} is nested too deeply; take out what is, and run this again. Nothing was changed")
        except ChangedMeanwhileError:
            continue
        return
    stop(1, f"{place.path} is being changed all the time; quit {TITLES[known]}, and run this again")


# to install


def _install(
    place: Place, name: str, config: str | None, here: Here, *, move: bool, dry_run: bool
) -> None:  # fmt: skip
    from codemode_mcp.cli.mcp_clients import installing, undoing

    ours = _configuration(config, here, place, move=move)
    launched = _launch(here)
    file = _file(place)
    plan = installing.plan(place, file, name, launched, ours, here, move=move)
    title = TITLES[place.client]
    if plan.change is None:
        say(f"{title} has this server already: {plan.path} stays as it is")
        _tell_the_rest(plan, title)
        return
    if dry_run:
        say(f"would {'change' if file.data is not None else 'make'} {plan.path}:")
        _tell(plan, launched, title)
        if plan.config is not None:
            say(f"would {'change' if plan.config.before is not None else 'make'} {plan.config.path} for what is moved")
        _tell_the_rest(plan, title)
        say("nothing is changed yet: run this without --dry-run")
        print(plan.shown)  # noqa: T201
        return
    backup = installing.carry_out(plan, _records())
    say(f"{title} has this server now:")
    _tell(plan, launched, title)
    _tell_the_rest(plan, title)
    if remark := installing.REMARKS.get(place.client):
        say(f"your choice: {remark}")
    say("the way back, and another one that needs nothing of ours:")
    say_command(f"codemode-mcp install --client {place.client}{_scoped(place)} --undo")
    say_command(undoing.way_back(plan.path, backup, windows=here.system == "win32"))
    say(f"next: {installing.RESTART[place.client]}; to check it now:")
    say_command(f"codemode-mcp doctor --config {_quoted(ours)}")
    print(plan.path)  # noqa: T201


def _print_to_copy(client: str, name: str, config: str | None, here: Here) -> NoReturn:
    """Print an entry for a client whose file is not known here. Ends the command with 2: nothing was installed."""
    import shlex

    from codemode_mcp.cli.confirming import admit
    from codemode_mcp.config import find_config
    from codemode_mcp.config.load import FILE_NAME
    from codemode_mcp.control.display import cut
    from codemode_mcp.did_you_mean import nearest

    try:
        found = find_config(config, environ=here.environ, cwd=here.folder, user_config_dir=config_dir(), admit=admit)
    except ConfigError:
        found = Path(config) if config else None
    ours = os.path.abspath(found or config_dir() / FILE_NAME)
    launched = _launch(here)
    words = [launched.command, *launched.args, "--config", ours]
    close = nearest(client, TITLES, count=3)
    say(f"{cut(client, 60)!r} is not a client that install knows; nothing was changed")
    say(f"  {'did you mean: ' + ', '.join(close) if close else 'it knows: ' + ', '.join(TITLES)}")
    say("most clients take this entry in their file of MCP servers:")
    print(json.dumps({"mcpServers": {name: {"command": words[0], "args": words[1:]}}}, indent=2))  # noqa: T201
    say("some have a command for it, such as:")
    say_command(f"CLIENT mcp add {name} -- {shlex.join(words)}")
    raise typer.Exit(2)


def _configuration(given: str | None, here: Here, place: Place, *, move: bool) -> Path:
    """Return the absolute path of our configuration, which need not be there when servers are moved into it.

    One that merely lies in the folder that the user is in, and may be by others, is not taken for all folders.
    """
    from codemode_mcp.cli.confirming import admit
    from codemode_mcp.config import PATH_VARIABLE, find_config
    from codemode_mcp.config.load import FILE_NAME

    try:
        found = find_config(given, environ=here.environ, cwd=here.folder, user_config_dir=config_dir(), admit=admit)
    except ConfigError as error:
        if not (move and given):
            stop(2, "\n".join(error.problems))
        found = Path(given)
    if found is None and not move:
        stop(
            2,
            "there is no configuration yet for this server to start with: add --move-servers to take over the servers "
            "of this client, or run `codemode-mcp import --write` first",
        )
    own = config_dir() / FILE_NAME
    asked = given or here.environ.get(PATH_VARIABLE)
    if not asked and place.scope == "user" and found == here.folder / FILE_NAME and found != own:
        stop(
            2,
            f"{found} is of this folder, and {TITLES[place.client]} would start it everywhere: say which one you mean, "
            f"--config {_quoted(found)} or --config {_quoted(own)}",
        )
    return Path(os.path.abspath(found or own))


def _launch(here: Here) -> Launch:
    import shutil

    from codemode_mcp.cli.mcp_clients.launch import NoLaunchError, launch

    try:
        return launch(_program(), here.system, os.path.exists, shutil.which)
    except NoLaunchError as error:
        stop(1, str(error))


def _program() -> Program:
    from importlib import metadata

    from codemode_mcp.cli.mcp_clients.launch import Program, origin

    try:
        text = metadata.distribution("codemode-mcp").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        text = None
    return Program(os.path.abspath(sys.argv[0]), sys.executable, origin(text))


def _file(place: Place) -> File:
    from codemode_mcp.cli.mcp_clients import installing

    return installing.read(Path(place.path), installing.empty_for(place.client), place.format)


def _records() -> Path:
    return data_dir() / "installed"


def _tell(plan: Plan, launched: Launch, title: str) -> None:
    say(f"  + {plan.name}")
    if launched.note is not None:
        say(f"    {launched.note}")
    if plan.replaced:
        say(f"  - {_names(plan.replaced)}: this server too, under another name")
    if plan.moved:
        say(f"  - {_names(plan.moved)}: behind this server, in {plan.starts_with}")
    if plan.config is not None and plan.config.secret:
        say("    their secrets went along as they stand, into a file that only you can read")
    for name, note in plan.notes:
        say(f"    {_name(name)}: {note}")
    if plan.moved and plan.place.scope == "project":
        say(f"    they were servers of this project alone; now all clients that start {plan.starts_with} have them")
    if plan.place.scope == "project":
        say("    the paths are those of this machine: others who get the file with the project have to set their own")
    if plan.handed:
        say(f"    variables that {title} passes to it: {', '.join(plan.handed)}; in a terminal, set them yourself")


def _tell_the_rest(plan: Plan, title: str) -> None:
    for name, why in plan.left.items():
        say(f"stays with {title}: {_name(name)}, because {why}")
    if plan.both:
        say(
            f"both {title} and this server start {_names(plan.both)}; run this with --move-servers, or remove "
            f"{'it' if len(plan.both) == 1 else 'them'} from {plan.path}"
        )
    if unmovable := [name for name in plan.kept if name in plan.unmovable and name not in plan.left]:
        say(f"{title} keeps showing the tools of {_names(unmovable)}, which cannot be moved behind this server")
    told = {*plan.both, *plan.left, *plan.unmovable}
    others = [name for name in plan.kept if name not in told]
    if others:
        say(f"{title} still shows the tools of {_names(others)}; --move-servers puts them behind this server")


# and back


def _undo(place: Place, *, dry_run: bool) -> None:
    from codemode_mcp.cli.mcp_clients import installing, undoing

    file = _file(place)
    taken_back = undoing.plan_undo(place, file, _records())
    title = TITLES[place.client]
    if taken_back.change is None and not taken_back.lost:
        if not dry_run:
            undoing.undo(taken_back, place, file.path, _records())
        say(f"{title} does not have this server: {file.path} stays as it is")
        _tell_undone(taken_back, title)
        return
    if dry_run:
        say(f"would {'remove' if taken_back.removes else 'change'} {file.path}:")
        _tell_undone(taken_back, title)
        return
    backup = undoing.undo(taken_back, place, file.path, _records())
    if taken_back.removes:
        say(f"{file.path} is removed; it was not there before")
    else:
        say(f"{file.path} is {'as it was before, to the byte' if taken_back.whole else 'without this server'}")
    _tell_undone(taken_back, title)
    if backup is not None:
        say(f"  the file before is kept as {backup}")
    say(f"next: {installing.RESTART_AFTER_UNDO[place.client]}")


def _tell_undone(undoing: Undoing, title: str) -> None:
    if undoing.removed:
        say(f"  - {_names(undoing.removed)}")
    if undoing.restored:
        say(f"  + {_names(undoing.restored)}: back from behind this server; {undoing.config} has them still")
    if not undoing.recorded:
        say("  nothing is recorded of servers that were moved; if any were, the dated copies of the file have them")
        if undoing.config is not None:
            say(f"    and so has {undoing.config}")
    if undoing.occupied:
        say(f"  not put back, as {title} has others of these names now: {_names(undoing.occupied)}")
    if undoing.lost:
        say(f"  not put back, as the copy is gone that had them: {_names(undoing.lost)}; copy them from")
        say(f"    {undoing.config}")


# what is printed


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(map(_name, names[:NAMES_SHOWN])) + more


def _name(name: str) -> str:
    from codemode_mcp.control.display import cut

    return cut(name, 60)


def _scoped(place: Place) -> str:
    return "" if place.scope == "user" else f" --scope {place.scope}"


def _quoted(path: Path) -> str:
    import shlex

    return f'"{path}"' if sys.platform == "win32" else shlex.quote(str(path))
