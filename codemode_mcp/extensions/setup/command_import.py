"""`codemode-mcp import`."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from codemode_mcp.base.text import clip
from codemode_mcp.cli.messages import print_json, say, say_command, stop, suggestion, wrap
from codemode_mcp.cli.options import JsonOption
from codemode_mcp.extensions.setup.mcp_clients.locations import CLIENTS, ClientName, Machine, client_names

if TYPE_CHECKING:
    from codemode_mcp.extensions.setup.mcp_clients.client_files import Source
    from codemode_mcp.extensions.setup.mcp_clients.importing import Item, Plan

app = typer.Typer()

MAX_NAME = 40
"""Columns of a server's name in a listing."""

MAX_LINE = 100
"""Columns of a line of a listing."""


@app.command(
    "import",
    epilog="Example: codemode-mcp import --write\n\n"
    "Example: codemode-mcp import --from cursor --from ./mcp.json --secrets variables --write",
)
def import_servers(
    origins: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="NAME|FILE",
            autocompletion=client_names,
            help=f"{', '.join(CLIENTS)}, or a file; default: all clients on this machine.",
        ),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the configuration; the old file is kept as a backup.")
    ] = False,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="File to add to; default: the user's configuration.")
    ] = None,
    secrets: Annotated[
        Literal["keep", "variables"], typer.Option(help="Copy literal secrets, or replace them by ${VAR} references.")
    ] = "keep",
    as_json: JsonOption = False,
) -> None:
    """Import the servers of other MCP clients into the configuration: show what would be added, or add it with --write.

    Servers that are configured already are kept. No secret is ever shown.
    """
    from codemode_mcp.config.edit import ChangedMeanwhileError
    from codemode_mcp.config.source import SourceError
    from codemode_mcp.extensions.setup.mcp_clients import client_files, importing

    machine = client_files.this_machine()
    sources = _sources(origins, machine)
    target = _target(config)
    try:
        before = importing.existing_at(target)
        plan = importing.make_plan(sources, target, before, machine, secrets)
    except SourceError as error:
        stop(1, f"{_plain(target)} {error}; nothing was changed")
    except RecursionError:
        stop(1, "a server is nested too deeply: leave out its file with --from, or correct it; nothing was changed")
    backup = None
    written = write and plan.change is not None
    if write and plan.change is not None:
        try:
            backup = plan.change.write()
        except ChangedMeanwhileError:
            stop(
                1, f"{_plain(target)} was changed by another program at the same moment; nothing was written, try again"
            )
        except OSError as error:
            stop(1, f"{_plain(target)} could not be written: {error.strerror}; nothing was changed")
    if as_json:
        print_json(_as_json(plan, written=written, backup=backup))
    else:
        _print_plan(plan, written=written)
        _say_notes(plan, secrets)
        _say_result(plan, written=written, backup=backup)
    if any(source.problem for source in sources):
        raise typer.Exit(1)


def _sources(origins: list[str] | None, machine: Machine) -> list[Source]:
    """Return the sources to import from. End the command if there are none."""
    from codemode_mcp.extensions.setup.mcp_clients import client_files
    from codemode_mcp.extensions.setup.mcp_clients.locations import TITLES, locations

    found: list[Source] = []
    for origin in dict.fromkeys(origins or CLIENTS):
        client: ClientName | None = next((each for each in CLIENTS if each == origin), None)
        if client is not None:
            sources = client_files.read_clients(machine, [client])
            if not sources and origins:
                looked = dict.fromkeys(each.path for each in locations(client, machine))
                say(f"{TITLES[client]} has no file of servers here. Looked for:")
                stop(1, "\n".join(f"  {_plain(path)}" for path in looked))
            # Programs of a repository's author must not start only because the user is in its folder.
            found += [replace(each, comes_with_folder=not origins and each.scope == "project") for each in sources]
            continue
        path = Path(os.path.expanduser(origin))
        if not os.path.lexists(path):
            stop(2, f"--from {_plain(origin)}: no such client or file; {suggestion(origin, CLIENTS)}")
        found += client_files.read_named(path, machine)
    if not found:
        folders = " and ".join(dict.fromkeys((_plain(machine.home), _plain(machine.folder))))
        stop(
            1,
            f"nothing to import: no client has a file of servers here (looked for {', '.join(TITLES.values())}, in "
            f"{folders}); name a file with --from FILE",
        )
    return found


def _target(config: str | None) -> Path:
    from codemode_mcp.base.paths import config_dir
    from codemode_mcp.config import FILE_NAME, PATH_VARIABLE

    named = config or os.environ.get(PATH_VARIABLE)
    return Path(os.path.abspath(os.path.expanduser(named))) if named else config_dir() / FILE_NAME


def _print_plan(plan: Plan, *, written: bool) -> None:
    for number, source in enumerate(plan.sources):
        print(f"{source.title}: {_plain(source.path)}")
        items = [item for item in plan.items if item.source == number]
        width = min(MAX_NAME, max((len(_plain(item.name)) for item in items), default=0))
        for item in items:
            print(f"  {_cut(item.name, MAX_NAME):<{width}}  {_cut(_decision(item), MAX_LINE - width - 4)}")
        if not items and source.problem is None:
            print("  no servers")
        if source.problem is not None:
            print(wrap(f"  {_plain(source.problem)}"))
        for note in source.notes:
            print(wrap(f"  note: {_plain(note)}"))
    if plan.shown and not written:
        print(f"\nWould be added to {_plain(plan.path)}:")
        for name, entry in plan.shown.items():
            print(wrap("  " + json.dumps({name: entry})[1:-1]))
    print(flush=True)


def _decision(item: Item) -> str:
    renamed = item.our_name != item.name
    match item.status:
        case "new":
            return f"{item.kind:<5}  {f'as {item.our_name}: ' if renamed else ''}{item.target}"
        case "there":
            return f"is configured already{f', as {item.our_name}' if renamed else ''}"
        case "same":
            return f"the same as {item.our_name} above"
        case "itself":
            return "left out: this is codemode-mcp itself"
        case "left out":
            return f"left out: {item.reason}"


def _say_notes(plan: Plan, secrets: str) -> None:
    for item in plan.items:
        if item.status == "left out":
            # The listing may have cut the reason.
            say(f"{_cut(item.name, MAX_NAME)} is left out: {_plain(item.reason)}")
        for note in item.notes if item.status == "new" else ():
            say(f"{_cut(item.name, MAX_NAME)}: {_plain(note)}")
    copied = [f"{item.our_name} {key}" for item in plan.of_status("new") for key in item.secrets]
    if copied and secrets == "keep":
        count = "1 literal secret is" if len(copied) == 1 else f"{len(copied)} literal secrets are"
        say(f"{count} copied as written: {', '.join(map(_plain, copied))}")
        say("  --secrets variables replaces them by ${VAR} references")
    unset = [each for each in plan.variables if not each.is_set]
    if unset:
        say("Set these variables where codemode-mcp starts (`export NAME=...`, on Windows `setx NAME ...`):")
    for each in unset:
        say(f"  {each.name}: {_plain(each.meaning)}{', empty until then' if each.optional else ''}")
    for each in plan.variables:
        if each.differs:
            say(f"{each.name} is set here, but to another value than {_plain(each.meaning)}")


def _say_result(plan: Plan, *, written: bool, backup: Path | None) -> None:
    from codemode_mcp.base.paths import config_dir
    from codemode_mcp.config import FILE_NAME

    configured = plan.of_status("there")
    if written:
        say(f"written to {_plain(plan.path)}" + (f"; the old file is kept as {_plain(backup)}" if backup else ""))
        if plan.change is not None and plan.change.secret:
            say("  only you can read it: it holds secrets")
    elif plan.change is not None:
        say("nothing is written yet: add --write")
        return
    elif all(source.problem for source in plan.sources):
        say("nothing to add: no file could be read; correct what is named above, or name another with --from FILE")
    else:
        count = len(plan.of_status("there", "same"))
        say(f"nothing to add: {count} of these servers {'is' if count == 1 else 'are'} configured already")
    if plan.change is None and not configured:
        return
    local = Path.cwd() / FILE_NAME
    is_ours = plan.path == config_dir() / FILE_NAME
    if is_ours and local.exists() and not os.path.samefile(local, plan.path):
        say(f"in this folder {_plain(local)} is used instead, unless you name one with --config")
    option = "" if is_ours else f" --config {_plain(plan.path)}"
    client = next((each.client for each in plan.sources if each.client is not None), None)
    # Without --move-servers the client would still start the servers that are configured here now.
    name = "NAME" if client is None else f"{client} --move-servers"
    say("next, to check them and to add this server to a client:")
    say_command(f"codemode-mcp doctor{option}")
    say_command(f"codemode-mcp install --client {name}{option}")


def _as_json(plan: Plan, *, written: bool, backup: Path | None) -> dict[str, Any]:
    from codemode_mcp.audit.redaction import without_tokens
    from upstream_clients.json_values import map_json

    shown: dict[str, Any] = {
        "config": str(plan.path),
        "written": written,
        "backup": None if backup is None else str(backup),
        "sources": [
            {
                "client": source.client,
                "scope": source.scope,
                "path": str(source.path),
                "problem": source.problem,
                "notes": list(source.notes),
                "servers": [
                    {
                        "name": item.name,
                        "status": item.status,
                        "as": item.our_name or None,
                        "kind": item.kind or None,
                        "reason": item.reason or None,
                        "notes": list(item.notes),
                        "secrets": list(item.secrets),
                    }
                    for item in plan.items
                    if item.source == number
                ],
            }
            for number, source in enumerate(plan.sources)
        ],
        "servers": dict(plan.shown),
        "variables": [
            {
                "name": each.name,
                "what": each.meaning,
                "set": each.is_set,
                "different": each.differs,
                "optional": each.optional,
            }
            for each in plan.variables
        ],
    }
    hidden: dict[str, Any] = map_json(shown, without_tokens)
    return hidden


def _plain(value: object) -> str:
    """Return a text of a file on one line, without tokens of known forms."""
    from codemode_mcp.audit.redaction import without_tokens
    from codemode_mcp.base.display import plain

    return plain(without_tokens(str(value)))


def _cut(text: str, characters: int) -> str:
    return clip(_plain(text), characters)
