"""The command line parser, its messages and its completion. A command is imported when it is used."""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer._click.exceptions import BadOptionUsage, MissingParameter, NoSuchOption, UsageError
from typer.core import TyperGroup

from codemode_mcp.base.did_you_mean import nearest
from codemode_mcp.extension_points import Command, extensions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from typer._click import Command as ParsedCommand
    from typer._click import Context, Parameter


_OPTIONS: Final = {
    "--eval": "-e",
    "--code": "-e",
    "-c": "--config",
    "-f": "--config",
    "--conf": "--config",
    "--verbose": "--log-level",
    "-v": "--log-level",
    "--name": "--server",
    "-s": "--server",
    "--client": "--from",
    "--file": "--config",
    "--output": "--out",
    "-o": "--out",
}
"""Our options, by the names of similar options in other programs."""

_REWORDED: Final = {
    "Value error, ": "",
    "Input should be a valid number, unable to parse string as a number": "write a number, such as 7",
    "Input should be a valid integer, unable to parse string as an integer": "write a whole number, such as 8808",
    "Input should be less than or equal to": "write a number of at most",
    "Input should be greater than or equal to": "write a number of at least",
}
"""Replacements for phrases of the libraries that parse options."""

_EXTRA: Final = re.compile(r"Got unexpected extra arguments? ?\(?s?\)? ?\((.*)\)")


def unknown_command(name: str, commands: Collection[str]) -> str:
    similar = {"version": "codemode-mcp --version", "help": "codemode-mcp --help"}
    for each in _commands().values():
        similar |= each.similar
    meant = similar.get(name.lower())
    if meant is None:
        close = nearest(name, commands)
        meant = " or ".join(f"codemode-mcp {each}" for each in close) or "codemode-mcp --help, which lists all"
    return f"There is no command {name!r}. Write {meant}."


def improve(error: UsageError) -> None:
    """Change the message of a usage error so that it says what to write."""
    command = "" if error.ctx is None else str(error.ctx.info_name)
    hints = _commands().get(command, Command("", 0))
    if isinstance(error, NoSuchOption) and error.ctx is not None:
        options = [each for parameter in error.ctx.command.get_params(error.ctx) for each in parameter.opts]
        options = [each for each in options if each.startswith("-")]
        meant = [_OPTIONS[error.option_name]] if _OPTIONS.get(error.option_name) in options else []
        close = meant or nearest(error.option_name, [each for each in options if each.startswith("--")])
        advice = f"Did you mean {' or '.join(close)}?" if close else f"See codemode-mcp {command} --help."
        error.message, error.possibilities = f"There is no option {error.option_name}. {advice}", None
    elif isinstance(error, MissingParameter):
        if error.param is not None and error.param.name == "run":
            error.message = "codemode-mcp runs list shows the ids of runs"
        elif hints.example:
            error.message = f"Write it as in: {hints.example}"
    elif isinstance(error, BadOptionUsage):
        example = "codemode-mcp run -e 'return 1'" if error.option_name == "-e" else ""
        error.message += f" Write it as in: {example}" if example else f" See codemode-mcp {command} --help."
    elif (extra := _EXTRA.match(error.message)) is not None:
        without = f"{command} takes no argument, but got {{}}. Write codemode-mcp {command}, without it."
        error.message = (hints.extra or without).replace("{}", extra[1])
    elif error.message.startswith("No such command ") and "Did you mean" not in error.message:
        subcommands = getattr(getattr(error.ctx, "command", None), "commands", {})
        error.message += f" Write {' or '.join(f'codemode-mcp {command} {each}' for each in subcommands)}."
    else:
        for library_words, ours in _REWORDED.items():
            error.message = error.message.replace(library_words, ours)


_HERE: Final = "codemode_mcp.cli.commands"

_CORE: Final = {
    "demo": Command(f"{_HERE}.serve", 0),
    "serve": Command(
        f"{_HERE}.serve",
        90,
        extra="serve takes no argument, but got {}. Write codemode-mcp serve --config {}.",
        similar={"start": "codemode-mcp serve"},
    ),
    "run": Command(
        f"{_HERE}.run",
        100,
        similar=dict.fromkeys(("exec", "eval", "execute"), "codemode-mcp run -e CODE"),
    ),
    "call": Command(
        f"{_HERE}.run",
        130,
        example="codemode-mcp call github.listIssues state=open; codemode-mcp tools lists all tools",
    ),
    "tools": Command(
        f"{_HERE}.tools",
        150,
        similar={"tool": "codemode-mcp tools", "search": "codemode-mcp tools QUERY"}
        | dict.fromkeys(("list", "ls"), "codemode-mcp tools, or codemode-mcp runs list"),
    ),
    "types": Command(
        f"{_HERE}.tools",
        160,
        extra="types takes no argument, but got {}. Write codemode-mcp types --out {}.",
    ),
    "runs": Command(f"{_HERE}.runs", 170),
    "programs": Command(f"{_HERE}.programs", 180),
    "trust": Command(f"{_HERE}.trust", 190),
    "servers": Command(f"{_HERE}.servers", 200),
    "policy": Command(f"{_HERE}.policy", 210),
    "clients": Command(f"{_HERE}.clients", 220),
    "instance": Command(f"{_HERE}.instance", 230),
    "login": Command(f"{_HERE}.login", 270, example="codemode-mcp login docs; codemode-mcp doctor shows the servers"),
    "logout": Command(f"{_HERE}.login", 280, example="codemode-mcp logout docs; codemode-mcp doctor shows the servers"),
}
"""The commands of the core."""


@cache
def _commands() -> dict[str, Command]:
    """Return all commands, in the order of `--help`, in which a new user needs them."""
    found = dict(_CORE)
    for each in extensions():
        found |= each.commands
    return {name: found[name] for name in sorted(found, key=lambda name: found[name].place)}


@cache
def command_modules() -> dict[str, str]:
    """Return the module of each command, in the order of `--help`."""
    return {name: command.module for name, command in _commands().items()}


class _Commands(TyperGroup):
    def list_commands(self, ctx: Context) -> list[str]:
        return list(command_modules())

    def get_command(self, ctx: Context, cmd_name: str) -> ParsedCommand | None:
        module = command_modules().get(cmd_name)
        if module is None:
            return None
        found = typer.main.get_group(import_module(module).app)
        # A module has several commands, or one command with subcommands.
        command = found if found.name == cmd_name else found.get_command(ctx, cmd_name)
        if command is not None:
            _hide_flag_types(command, typer.Context(command, ctx))
        return command

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, ParsedCommand | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in command_modules():
            ctx.fail(unknown_command(args[0], command_modules()))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Context) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            improve(error)
            raise

    def get_params(self, ctx: Context) -> list[Parameter]:
        return _without_flag_types(super().get_params(ctx))


def _hide_flag_types(command: ParsedCommand, context: Context) -> None:
    _without_flag_types(command.get_params(context))
    if isinstance(command, TyperGroup):
        for inner in command.commands.values():
            _hide_flag_types(inner, typer.Context(inner, context))


def _without_flag_types(options: list[Parameter]) -> list[Parameter]:
    """Show flags in help as `--write`. `--write <bool>` would look as if it took a value."""
    for option in options:
        if getattr(option, "is_flag", False):
            option.metavar = ""
    return options


app = typer.Typer(
    name="codemode-mcp",
    cls=_Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    epilog="See what it does: codemode-mcp demo\n\n"
    "Put the servers of a client behind it: codemode-mcp install --client cursor --move-servers\n\n"
    "Then check everything: codemode-mcp doctor",
)


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    """An MCP server with two tools, exec and wait, that puts every other MCP server behind a sandboxed program."""
    # Characters that stdout cannot encode are escaped, as on stderr. `reconfigure` flushes stdout, which belongs to MCP
    # in `serve`.
    if context.invoked_subcommand != "serve" and isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if version:
        from importlib import metadata

        print(metadata.version("codemode-mcp"))  # noqa: T201
        raise typer.Exit


# Shell completions for arguments: names of servers, ids of runs.
#
# Nothing here connects to a server, runs a program or expands a variable. Errors lead to no completions, since a shell
# would show their messages in the middle of the user's line. Some shells evaluate completions (zsh while it completes),
# and the configuration of a folder may be by others, so only plain names are offered.


MAX_RUNS: Final = 50
TAIL_BYTES: Final = 1 << 20
"""Bytes at the end of a trajectory that are searched for runs."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]{0,199}")
_ASK_SECONDS: Final = 0.5


def _completes(
    names: Callable[[typer.Context, str], Iterable[Any]],
) -> Callable[[typer.Context, str], list[str]]:
    """Return the completion that offers the plain ones of some names."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            found = [name for name in names(ctx, incomplete) if isinstance(name, str) and _PLAIN.fullmatch(name)]
        except Exception:  # an error cannot be shown
            return []
        return [name for name in found if name.startswith(incomplete)]

    return complete


def _configuration(ctx: typer.Context) -> tuple[Path, dict[str, Any]]:
    """Return the configuration file and its value as written, without expanding variables or running programs."""
    from codemode_mcp.cli.deciding import find
    from codemode_mcp.config.source import file_states, parse, read_text

    path = find(ctx.params.get("config"), lambda _: None)
    if path is None or file_states((path,)) == (None,):
        raise FileNotFoundError("there is no configuration, or it is not a regular file")
    value = parse(read_text(path))
    return path, value if isinstance(value, dict) else {}


def _servers(ctx: typer.Context, with_key: tuple[str, ...] = ()) -> list[str]:
    """Return names of servers, or of those whose entries have one of some keys."""
    _, value = _configuration(ctx)
    tables = [value[key] for key in ("mcpServers", "servers") if isinstance(value.get(key), dict)]
    return [
        name
        for table in tables
        for name, entry in table.items()
        if not with_key or any(key in (entry or ()) for key in with_key)
    ]


@_completes
def server_names(ctx: typer.Context, _incomplete: str) -> list[str]:
    """Return names of the servers in the configuration that the command would use."""
    return _servers(ctx)


@_completes
def remote_server_names(ctx: typer.Context, _incomplete: str) -> list[str]:
    """Return names of the servers that have a URL: only these have a login."""
    return _servers(ctx, with_key=("url", "serverUrl", "openapi"))


@_completes
def listed_items(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return names of servers, and those of the items of a server whose name is complete."""
    from codemode_mcp.base.paths import state_dir
    from codemode_mcp.rules.trust.items import reference
    from codemode_mcp.rules.trust.pins_file import PinsFolder

    path, _ = _configuration(ctx)
    folder, names = PinsFolder(state_dir() / "pins", path), _servers(ctx)
    for server in [each for each in names if incomplete.startswith(f"{each}.")]:
        pins = folder.load(server)
        items = {} if pins is None else {**pins.accepted, **pins.present.items}
        names += [reference(server, *key) for key in items]
    return names


@_completes
def saved_programs(ctx: typer.Context, _incomplete: str) -> list[str]:
    """Return names of saved programs and of proposals."""
    from codemode_mcp.catalog.saved_programs.folder import folder_of, name_of, program_files
    from codemode_mcp.catalog.saved_programs.program_state import state_of

    path, _ = _configuration(ctx)
    folder = folder_of(path)
    proposed = [each.name for each in state_of(path).proposals().waiting]
    return [*([] if folder is None else map(name_of, program_files(folder))), *proposed]


@_completes
def recorded_runs(ctx: typer.Context, _incomplete: str) -> list[str]:
    """Return ids of the latest runs in the trajectory, newest first."""
    import json

    from codemode_mcp.config.source import file_states

    trajectory = ctx.params.get("trajectory")
    if trajectory is None:
        path, value = _configuration(ctx)
        trajectory = path.parent / os.path.expanduser(value["audit"]["trajectory"])
    if file_states((Path(trajectory),)) == (None,):
        return []
    with open(trajectory, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        started = [line for line in file.read(TAIL_BYTES).splitlines()[::-1] if b'"kind":"run_started"' in line]
    return [json.loads(line)["id"] for line in started[:MAX_RUNS] if line.startswith(b"{")]


@_completes
def live_runs(ctx: typer.Context, _incomplete: str) -> list[str]:
    """Return ids of the runs of serving processes, which are asked over their control sockets."""
    import anyio

    from codemode_mcp.server.control.client import ask_all
    from codemode_mcp.server.control.protocol import Request

    async def ask() -> list[str]:
        with anyio.move_on_after(_ASK_SECONDS):
            found = await ask_all(Request("list"))
            return [run["id"] for _, answer in found.answers for run in answer["runs"]]
        return []

    return anyio.run(ask)
