"""`codemode-mcp add`, `codemode-mcp remove`, `codemode-mcp enable` and `codemode-mcp disable`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from codemode_mcp.cli.messages import say, say_line, stop_line
from codemode_mcp.cli.options import ConfigOption
from codemode_mcp.cli.parser import server_names
from codemode_mcp.extensions.setup.adding.proposal import Proposal, Refused, with_settings

if TYPE_CHECKING:
    from codemode_mcp.extensions.setup.adding.packages import Found
    from codemode_mcp.extensions.setup.adding.registry import Kind
    from codemode_mcp.extensions.setup.adding.server_parts import Target


app = typer.Typer()


@app.command(
    epilog="Example: codemode-mcp add https://example.com/mcp\n\n"
    "Example: codemode-mcp add https://example.com/openapi.json\n\n"
    "Example: codemode-mcp add io.github.example/weather\n\n"
    "Example: codemode-mcp add npm:@modelcontextprotocol/server-filesystem -- /home/me/notes\n\n"
    "Example: codemode-mcp add weather --env API_KEY -- node server.js"
)
def add(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Name in the MCP registry, npm:NAME, pypi:NAME, URL of a server or of an OpenAPI document, file of an "
            "OpenAPI document; or any name, with a command after --.",
        ),
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="Command that starts the server, or arguments of the package."),
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
    auth: Annotated[
        str | None,
        typer.Option(
            "--auth",
            metavar="KIND[=VALUE]",
            help="Credentials of an API: bearer, basic, or apiKey:header:NAME (query, cookie); without a value, such "
            "as '${VARIABLE}', you are asked.",
        ),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", help="Address of an API, instead of its document's.")
    ] = None,
    use: Annotated[
        Literal["npm", "pypi", "oci", "remote"] | None,
        typer.Option("--use", help="How to use a server of the registry that offers several ways."),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(metavar="URL", help="MCP registry; default: CODEMODE_MCP_REGISTRY, else the official one."),
    ] = None,
    long: Annotated[bool, typer.Option("--long", "-l", help="Show all tools and findings, however many.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be written, and start nothing.")] = False,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="File to add to; it may be a new one.")
    ] = None,
) -> None:
    """Add a server: show what it runs and lists, and write and accept it after a person has confirmed both.

    Secrets are kept in the system keyring, or without one in files that only you can read.
    """
    from msgspec.structs import replace

    from codemode_mcp.cli.deciding import require_person
    from codemode_mcp.extensions.setup.adding.documents import with_auth
    from codemode_mcp.extensions.setup.adding.proposal import read_settings
    from codemode_mcp.extensions.setup.adding.server_parts import find_target
    from codemode_mcp.extensions.setup.adding.steps import add as add_server
    from codemode_mcp.extensions.setup.adding.steps import print_plan

    if not dry_run:
        require_person("add")
    target = find_target(config)
    try:
        settings, values = read_settings(env or (), header or ())
        proposal = _proposal(
            source, command or [], registry, use, base_url, is_api=auth is not None or base_url is not None
        )
        proposal = with_settings(proposal, settings)
        if auth is not None:
            proposal, of_auth = with_auth(proposal, auth)
            values = {**values, **of_auth}
    except Refused as error:
        stop_line(2, str(error))
    if name is not None:
        proposal = replace(proposal, name=name)
    if dry_run:
        print_plan(proposal, target, values)
    else:
        add_server(proposal, target, values, long=long)


def _proposal(
    source: str, command: list[str], registry: str | None, use: Kind | None, base_url: str | None, *, is_api: bool
) -> Proposal:
    """Return the proposal for a source. Raise `Refused`."""
    from codemode_mcp.extensions.setup.adding import documents
    from codemode_mcp.extensions.setup.adding.packages import package_proposal, read_package
    from codemode_mcp.extensions.setup.adding.proposal import local, read_address, remote
    from codemode_mcp.extensions.setup.adding.registry import NAME, find_by_name, registry_address

    package = read_package(source)
    if package is not None:
        return package_proposal(package, command, Path.cwd())
    if command:
        return local(source, command, Path.cwd())
    address = read_address(source)
    if address is not None:
        return documents.from_address(address, base_url, is_api=is_api) or remote(address)
    if documents.looks_like_file(source):
        return documents.from_file(Path(source).expanduser().absolute(), base_url)
    if NAME.fullmatch(source):
        return find_by_name(registry_address(registry), source, use)
    return _by_word(source, registry_address(registry), use)


def _by_word(word: str, registry: str, use: Kind | None) -> Proposal:
    """Return the proposal for a single word: a server of the registry, else a package. Raise `Refused`."""
    from codemode_mcp.extensions.setup.adding.packages import (
        PYPI_NAME,
        TITLES,
        NotInstalled,
        Package,
        Unreachable,
        find_package,
        proposal_of,
    )
    from codemode_mcp.extensions.setup.adding.registry import find_by_word

    if not PYPI_NAME.fullmatch(word):
        raise Refused(
            f"{word!r} is no URL, file, package or name of a server; to add a command, write it after a name: "
            "codemode-mcp add NAME -- COMMAND ..."
        )
    try:
        found = find_by_word(registry, word, use)
    except Unreachable as error:
        say_line(f"The registry is not used: {error}")
        found = None
    if found is not None:
        return found
    asked: list[str] = []
    packages: list[Found] = []
    for kind in TITLES:
        try:
            package = find_package(Package(kind, word), Path.cwd())
        except NotInstalled as error:
            say_line(f"{TITLES[kind]} is not asked: {error}")
            continue
        asked.append(TITLES[kind])
        if package is not None:
            packages.append(package)
    if not packages:
        raise Refused(
            f"{' and '.join(('the registry', *asked))} {'do' if asked else 'does'} not have {word!r}; check how it is "
            "written, or add a command: codemode-mcp add NAME -- COMMAND ..."
        )
    if len(packages) > 1:
        raise Refused(f"npm and PyPI both have a package {word!r}; write npm:{word} or pypi:{word}")
    say_line(f"The registry has no server of this name, and {TITLES[packages[0].package.kind]} has a package.")
    return proposal_of(packages[0], (), Path.cwd())


# `codemode-mcp remove`, `codemode-mcp enable` and `codemode-mcp disable`.


ServerArgument = Annotated[
    str,
    typer.Argument(metavar="SERVER", help="Name of the server in the configuration.", autocompletion=server_names),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be changed, and change nothing.")]


_DRY: Final = "nothing was written, because of --dry-run"


@app.command(epilog="Example: codemode-mcp remove weather")
def remove(server: ServerArgument, dry_run: DryRunOption = False, config: ConfigOption = None) -> None:
    """Remove a server: its entry, its pins and its login, and on request its stored secrets."""
    from codemode_mcp.cli.deciding import confirm
    from codemode_mcp.extensions.setup.adding import server_parts
    from codemode_mcp.extensions.setup.adding.steps import ask_yes

    target = _shown("remove", server, config, dry_run=dry_run)
    assert target.document is not None
    entry = target.entry(server)
    secrets = server_parts.own_secrets(server, target.document.value)
    spec = server_parts.login_spec(server, entry, target.path.parent)
    say("Its pins are deleted, too." if spec is None else "Its pins and its login are deleted, too.")
    if dry_run:
        if secrets:
            say_line(f"You are asked about its stored secrets: {', '.join(secrets)}")
        say(_DRY)
        return
    deletes = bool(secrets) and ask_yes(f"Delete its stored secrets, too ({', '.join(secrets)})?")
    confirm("remove", server)
    backup = target.write(target.removing(server))
    left = [*server_parts.forget_server(server, target.path, spec, secrets if deletes else [])]
    say_line(f"{server} is removed from {target.path}")
    if backup is not None:
        say_line(f"  the old file is kept as {backup}")
    if secrets and not deletes:
        left.append(f"its stored secrets are left: {', '.join(secrets)}")
    for sentence in (*left, *server_parts.left_behind(server, target.document.value, target.path)):
        say_line(f"  {sentence}")


@app.command(epilog="Example: codemode-mcp enable weather")
def enable(server: ServerArgument, dry_run: DryRunOption = False, config: ConfigOption = None) -> None:
    """Enable a disabled server. A running instance starts it when it is needed."""
    from codemode_mcp.cli.deciding import confirm
    from codemode_mcp.extensions.setup.adding.server_parts import spec_of

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
    from codemode_mcp.cli.deciding import require_person
    from codemode_mcp.extensions.setup.adding.server_parts import find_target
    from codemode_mcp.extensions.setup.adding.steps import entry_lines, show

    if not dry_run:
        require_person(command)
    target = find_target(config)
    entry = target.entry(server)
    say_line(f"server {server} in {target.path}")
    show(entry_lines(entry))
    return target
