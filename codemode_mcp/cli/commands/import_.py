"""`codemode-mcp import`."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from codemode_mcp.cli.completion import client_names
from codemode_mcp.cli.mcp_clients.places import CLIENTS
from codemode_mcp.cli.options import JsonOption
from codemode_mcp.cli.shared import fitted, say, say_command, stop

if TYPE_CHECKING:
    from codemode_mcp.cli.mcp_clients.importing import Item, Plan
    from codemode_mcp.cli.mcp_clients.places import ClientName
    from codemode_mcp.cli.mcp_clients.reading import Here, Source

app = typer.Typer()

MAX_NAME = 40
"""Columns of a server's name in a listing."""

MAX_LINE = 100


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
            help=f"{', '.join(CLIENTS)}, or a file; default: all that are here.",
        ),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Write what is shown; the file before is kept.")] = False,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="File to add to; default: the user's configuration.")
    ] = None,
    secrets: Annotated[
        str, typer.Option(metavar="keep|variables", help="Copy literal secrets, or put ${VAR} in their place.")
    ] = "keep",
    as_json: JsonOption = False,
) -> None:
    """Take the servers of other MCP clients into the configuration: shows what it would add, and adds it with --write.

    Servers that are configured already stay as they are. No secret is ever shown.
    """
    from codemode_mcp.cli.mcp_clients import importing, reading
    from codemode_mcp.config.edit import ChangedMeanwhileError
    from codemode_mcp.config.source import SourceError

    if secrets not in ("keep", "variables"):
        stop(2, f"--secrets: expected keep or variables, got {_plain(secrets)}")
    here = reading.this_machine()
    sources = _sources(origins, here)
    target = _target(config)
    try:
        before = importing.existing_at(target)
        kept: importing.Secrets = "keep" if secrets == "keep" else "variables"
        plan = importing.make_plan(sources, target, before, here, kept, disable_unset=kept == "keep")
    except SourceError as error:
        stop(1, f"{_plain(target)} {error}; nothing was changed")
    except RecursionError:
        stop(1, "a server is nested too deeply: take its file out with --from, or correct it; nothing was changed")
    backup = None
    if write and plan.text is not None:
        try:
            backup = importing.write(plan)
        except ChangedMeanwhileError:
            stop(
                1, f"{_plain(target)} was changed by another program at the same moment; nothing was written, try again"
            )
        except OSError as error:
            stop(1, f"{_plain(target)} could not be written: {error.strerror}; nothing was changed")
    written = write and plan.text is not None
    if as_json:
        print(json.dumps(_as_json(plan, written=written, backup=backup), indent=2))  # noqa: T201
    else:
        _show(plan, secrets, written=written, backup=backup)
    if any(source.problem for source in sources):
        raise typer.Exit(1)


def _sources(origins: list[str] | None, here: Here) -> list[Source]:
    """Return the sources to import from."""
    from codemode_mcp.cli.mcp_clients import reading
    from codemode_mcp.cli.mcp_clients.places import TITLES, places
    from codemode_mcp.did_you_mean import nearest

    found: list[Source] = []
    for origin in dict.fromkeys(origins or CLIENTS):
        client: ClientName | None = next((each for each in CLIENTS if each == origin), None)
        if client is not None:
            there = reading.read_clients(here, [client])
            if not there and origins:
                looked = [str(each.path) for each in places(client, here.system, here.home, here.environ, here.folder)]
                say(f"{TITLES[client]} has no file of servers here. Looked for:")
                stop(1, "\n".join(f"  {_plain(path)}" for path in dict.fromkeys(looked)))
            # The author of a repository must not start programs here because the user stands in it.
            found += [replace(each, by_others=not origins and each.scope == "project") for each in there]
            continue
        path = Path(os.path.expanduser(origin))
        if not os.path.lexists(path):
            close = next(iter(nearest(origin, CLIENTS, count=1)), None)
            hint = f" (did you mean {close}?)" if close else ""
            stop(2, f"--from {_plain(origin)}: no such client or file{hint}; clients: {', '.join(CLIENTS)}")
        found += reading.read_named(path, here)
    if not found:
        folders = " and ".join(dict.fromkeys((_plain(here.home), _plain(here.folder))))
        stop(
            1,
            f"nothing to import: no client has a file of servers here (looked for {', '.join(TITLES.values())}, in "
            f"{folders}); name a file with --from FILE",
        )
    return found


def _target(config: str | None) -> Path:
    from codemode_mcp.config import FILE_NAME, PATH_VARIABLE
    from codemode_mcp.paths import config_dir

    named = config or os.environ.get(PATH_VARIABLE)
    return Path(os.path.abspath(os.path.expanduser(named))) if named else config_dir() / FILE_NAME


# for people


def _show(plan: Plan, secrets: str, *, written: bool, backup: Path | None) -> None:
    for number, source in enumerate(plan.sources):
        print(f"{source.title}: {_plain(source.path)}")  # noqa: T201
        items = [item for item in plan.items if item.source == number]
        width = min(MAX_NAME, max((len(_plain(item.name)) for item in items), default=0))
        for item in items:
            print(f"  {_cut(item.name, MAX_NAME):<{width}}  {_cut(_told(item), MAX_LINE - width - 4)}")  # noqa: T201
        if not items and source.problem is None:
            print("  no servers")  # noqa: T201
        if source.problem is not None:
            print(fitted(f"  {_plain(source.problem)}"))  # noqa: T201
        for note in source.notes:
            print(fitted(f"  note: {_plain(note)}"))  # noqa: T201
    if plan.shown and not written:
        print(f"\nWould be added to {_plain(plan.path)}:")  # noqa: T201
        for name, entry in plan.shown.items():
            print(fitted("  " + json.dumps({name: entry})[1:-1]))  # noqa: T201
    print(flush=True)  # noqa: T201
    _say_notes(plan, secrets)
    _say_end(plan, written=written, backup=backup)


def _told(item: Item) -> str:
    """Return the decision on a server, in a line."""
    match item.status:
        case "new":
            renamed = "" if item.under == item.name else f"as {item.under}: "
            return f"{item.kind:<5}  {renamed}{item.what}"
        case "there":
            return f"is configured already{'' if item.under == item.name else f', as {item.under}'}"
        case "same":
            return f"the same as {item.under} above"
        case "itself":
            return "left out: this is codemode-mcp itself"
        case "left out":
            return f"left out: {item.reason}"


def _say_notes(plan: Plan, secrets: str) -> None:
    for item in plan.items:
        if item.status == "left out":
            # In the listing it may have been cut.
            say(f"{_cut(item.name, MAX_NAME)} is left out: {_plain(item.reason)}")
        for note in item.notes if item.status == "new" else ():
            say(f"{_cut(item.name, MAX_NAME)}: {_plain(note)}")
    places = [f"{item.under} {key}" for item in plan.added for key in item.secrets]
    if places and secrets == "keep":
        count = "1 literal secret is" if len(places) == 1 else f"{len(places)} literal secrets are"
        say(f"{count} copied as written: {', '.join(map(_plain, places))}")
        say("  --secrets variables puts ${VAR} references in their place")
    unset = [each for each in plan.variables if not each.is_set]
    if unset:
        say("Set these variables where codemode-mcp starts (`export NAME=...`, on Windows `setx NAME ...`):")
    for each in unset:
        say(f"  {each.name}: {_plain(each.what)}{', empty until then' if each.optional else ''}")
    for each in plan.variables:
        if each.is_other:
            say(f"{each.name} is set here, but to something else than {_plain(each.what)}")


def _say_end(plan: Plan, *, written: bool, backup: Path | None) -> None:
    if plan.text is None and all(source.problem for source in plan.sources):
        say("nothing to add: no file could be read; correct what is named above, or name another with --from FILE")
    elif plan.text is None:
        there = sum(item.status in ("there", "same") for item in plan.items)
        say(f"nothing to add: {there} of these servers {'is' if there == 1 else 'are'} configured already")
    elif written:
        say(f"written to {_plain(plan.path)}" + (f"; the file before is {_plain(backup)}" if backup else ""))
        if plan.private:
            say("  only you can read it: it holds secrets")
    else:
        say("nothing is written yet: add --write")
        return
    _say_next(plan)


def _say_next(plan: Plan) -> None:
    from codemode_mcp.config import FILE_NAME
    from codemode_mcp.paths import config_dir

    if plan.text is None and not any(item.status == "there" for item in plan.items):
        return
    local = Path.cwd() / FILE_NAME
    own = plan.path == config_dir() / FILE_NAME
    if own and local.exists() and not os.path.samefile(local, plan.path):
        say(f"in this folder {_plain(local)} is used in its place, unless you name one with --config")
    option = "" if own else f" --config {_plain(plan.path)}"
    client = next((each.client for each in plan.sources if each.client is not None), None)
    # Without moving, the client still starts the servers that are configured here now.
    into = "NAME" if client is None else f"{client} --move-servers"
    say("next, to check them and to have them in a client:")
    say_command(f"codemode-mcp doctor{option}")
    say_command(f"codemode-mcp install --client {into}{option}")


# for programs


def _as_json(plan: Plan, *, written: bool, backup: Path | None) -> dict[str, Any]:
    from codemode_mcp.audit.redaction import without_tokens
    from codemode_mcp.cli.mcp_clients.secrets import mapped

    told: dict[str, Any] = {
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
                        "as": item.under or None,
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
                "what": each.what,
                "set": each.is_set,
                "different": each.is_other,
                "optional": each.optional,
            }
            for each in plan.variables
        ],
    }
    without: dict[str, Any] = mapped(told, without_tokens)
    return without


def _plain(value: object) -> str:
    """Return a foreign text on one line, without tokens of known forms."""
    from codemode_mcp.audit.redaction import without_tokens
    from codemode_mcp.control.display import plain

    return plain(without_tokens(str(value)))


def _cut(text: str, characters: int) -> str:
    shown = _plain(text)
    return shown if len(shown) <= characters else shown[: characters - 1] + "…"
