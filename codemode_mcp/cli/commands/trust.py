"""`codemode-mcp trust`: what servers list, what a person has accepted of it, and decisions about the differences.

Listings go to stdout, questions to a person to stderr.
"""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from codemode_mcp.cli.deciding import confirm, require_person
from codemode_mcp.cli.messages import end, print_json, say, say_command, say_line, stop_line
from codemode_mcp.cli.options import ConfigOption, JsonOption
from codemode_mcp.cli.parser import listed_items

if TYPE_CHECKING:
    from codemode_mcp.cli.pinned_items import Verb

app = typer.Typer(
    name="trust",
    no_args_is_help=True,
    help="Show what servers have changed since it was accepted, and decide about the changes.",
    epilog="Example: codemode-mcp trust status\n\nExample: codemode-mcp trust accept github.create_issue",
)

ItemArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="SERVER[.TOOL]",
        help="A server, its tool, SERVER.prompts/NAME or SERVER.templates/URI; default: all servers.",
        autocompletion=listed_items,
    ),
]


@app.command(epilog="Example: codemode-mcp trust status github")
def status(item: ItemArgument = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show what is accepted of each server, and each item that differs. No server is started."""
    from codemode_mcp.base.display import table
    from codemode_mcp.cli import trust_views
    from codemode_mcp.cli.pinned_items import find_items

    found = find_items(config, item)
    if as_json:
        print_json(trust_views.items_json(found, whole=False))
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 1000
    for line in table(trust_views.SERVER_HEAD, [trust_views.server_row(each) for each in found.servers], width):
        print(line)
    rows = [trust_views.item_row(server, report) for server in found.servers for report in found.reports_of(server)]
    if rows:
        print()
        for line in table(trust_views.ITEM_HEAD, rows, width):
            print(line)
    for problem in found.problems:
        say_line(problem)
    if rows:
        say("to see the differences, and to accept or reject them:")
        for verb in ("diff", "accept", "reject"):
            say_command(trust_views.command(verb, item or "SERVER.TOOL", config))


@app.command(epilog="Example: codemode-mcp trust diff github.create_issue")
def diff(item: ItemArgument = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Show the differences between what is accepted and what servers list, word by word. No server is started."""
    from codemode_mcp.cli import trust_views
    from codemode_mcp.cli.pinned_items import find_items

    found = find_items(config, item)
    if as_json:
        print_json(trust_views.items_json(found, whole=True))
        return
    console = trust_views.console_for(sys.stdout)
    differs = False
    for server in found.servers:
        reports = found.reports_of(server)
        differs = differs or bool(reports)
        trust_views.show(console, trust_views.server_lines(server, reports))
    for problem in found.problems:
        say_line(problem)
    if not differs and not found.problems:
        say("nothing differs from what is accepted")


@app.command(epilog="Example: codemode-mcp trust accept github.create_issue")
def accept(item: ItemArgument = None, config: ConfigOption = None) -> None:
    """Show what servers list now, and accept it after a confirmation. Programs can use it then."""
    _decide(item, config, "accept")


@app.command(epilog="Example: codemode-mcp trust reject github.create_issue")
def reject(item: ItemArgument = None, config: ConfigOption = None) -> None:
    """Show what servers list now, and reject it after a confirmation. It is held until it is accepted."""
    _decide(item, config, "reject")


@app.command(epilog="Example: codemode-mcp trust lock")
def lock(config: ConfigOption = None) -> None:
    """Write codemode-mcp.lock.json beside the configuration: digests of what is accepted, for a team."""
    from codemode_mcp.base.display import counted
    from codemode_mcp.cli.pinned_items import find_items, lock_of, path_of
    from codemode_mcp.rules.trust.pins_file import write_lock_file

    found = find_items(config, None)
    path = path_of(found.config)
    locked, missing, held = lock_of(found)
    for note in (*found.problems, *missing, *held):
        say_line(note)
    try:
        is_written = write_lock_file(path, locked)
    except OSError as error:
        stop_line(1, f"cannot write {path}: {error.strerror}")
    items, servers = counted(sum(map(len, locked.servers.values())), "item"), counted(len(locked.servers), "server")
    say_line(f"{path} {'now has' if is_written else 'already has'} {items} of {servers}")
    if found.problems or missing:
        end(1)


@app.command(epilog="Example: codemode-mcp trust check")
def check(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Connect to all servers, and compare what they list with codemode-mcp.lock.json. Exit with 1 for a difference."""
    from codemode_mcp.cli import trust_views
    from codemode_mcp.cli.pinned_items import check_servers

    path, differences = check_servers(config)
    if as_json:
        print_json({"lockFile": str(path), "differences": [each.to_json() for each in differences]})
    else:
        for each in differences:
            print(trust_views.difference_line(each))
        if not differences:
            say_line(f"all servers list what {path} has")
    if differences:
        end(1)


def _decide(item: str | None, config: str | None, verb: Verb) -> None:
    from codemode_mcp.cli import trust_views
    from codemode_mcp.cli.pinned_items import decide, find_items

    require_person(f"trust {verb}")
    found = find_items(config, item)
    for problem in found.problems:
        say_line(problem)
    chosen = {server.name: (server, found.choosable(server, verb)) for server in found.servers}
    for name in trust_views.unshown(found) if verb == "accept" else ():
        say_line(f"{name} cannot be accepted, because it cannot be shown; codemode-mcp trust diff says why")
    names = [trust_views.name_of(report) for _, reports in chosen.values() for report in reports]
    if not names:
        subject = "" if item is None else f" of {item}"
        stop_line(1, f"there is nothing to {verb}{subject}; codemode-mcp trust status shows all items")
    console = trust_views.console_for(sys.stderr)
    for server, reports in chosen.values():
        trust_views.show(console, trust_views.server_lines(server, reports))
    confirm(verb, f"{trust_views.shown_names(names)} as shown above")
    for server, reports in chosen.values():
        if reports:
            decide(server, verb, reports, found.config)
    say_line(f"{verb}ed: {trust_views.shown_names(names)}")
