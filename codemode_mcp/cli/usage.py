"""Better messages for wrong commands and options, with the command or option that was probably meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from typer._click.exceptions import BadOptionUsage, MissingParameter, NoSuchOption, UsageError

from codemode_mcp.did_you_mean import nearest

if TYPE_CHECKING:
    from collections.abc import Collection

_COMMANDS: Final = {
    "exec": "codemode-mcp run -e CODE",
    "eval": "codemode-mcp run -e CODE",
    "execute": "codemode-mcp run -e CODE",
    "tool": "codemode-mcp tools",
    "search": "codemode-mcp tools QUERY",
    "servers": "codemode-mcp tools",
    "list": "codemode-mcp tools, or codemode-mcp runs list",
    "ls": "codemode-mcp tools, or codemode-mcp runs list",
    "uninstall": "codemode-mcp install --client NAME --undo",
    "rm": "codemode-mcp remove NAME",
    "delete": "codemode-mcp remove NAME",
    "check": "codemode-mcp doctor",
    "start": "codemode-mcp serve",
    "shell": "codemode-mcp repl",
    "version": "codemode-mcp --version",
    "help": "codemode-mcp --help",
}
"""Our commands, by the names of similar commands in other programs."""

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

_EXAMPLES: Final = {
    "install": "codemode-mcp install --client cursor",
    "add": "codemode-mcp add https://example.com/mcp",
    "remove": "codemode-mcp remove docs; codemode-mcp doctor shows the servers",
    "enable": "codemode-mcp enable docs; codemode-mcp doctor shows the servers",
    "disable": "codemode-mcp disable docs; codemode-mcp doctor shows the servers",
    "login": "codemode-mcp login docs; codemode-mcp doctor shows the servers",
    "logout": "codemode-mcp logout docs; codemode-mcp doctor shows the servers",
    "call": "codemode-mcp call github.listIssues state=open; codemode-mcp tools lists all tools",
}
"""An example of each command that has a required argument, for the message if the argument is missing."""

_WITH_ARGUMENT: Final = {
    "types": "codemode-mcp types --out",
    "repl": "codemode-mcp run",
    "serve": "codemode-mcp serve --config",
}
"""Command lines to suggest, by a command that takes no argument. The given argument is added to them."""

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
    """Return the message for an unknown command."""
    meant = _COMMANDS.get(name.lower())
    if meant is None:
        close = nearest(name, commands)
        meant = " or ".join(f"codemode-mcp {each}" for each in close) or "codemode-mcp --help, which lists all"
    return f"There is no command {name!r}. Write {meant}."


def improve(error: UsageError) -> None:
    """Change the message of a usage error so that it says what to write."""
    command = "" if error.ctx is None else str(error.ctx.info_name)
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
        elif command in _EXAMPLES:
            error.message = f"Write it as in: {_EXAMPLES[command]}"
    elif isinstance(error, BadOptionUsage):
        example = "codemode-mcp run -e 'return 1'" if error.option_name == "-e" else ""
        error.message += f" Write it as in: {example}" if example else f" See codemode-mcp {command} --help."
    elif (extra := _EXTRA.match(error.message)) is not None:
        if command == "import":
            error.message = f"Name a file or a client with --from: codemode-mcp import --from {extra[1]}"
        elif command == "run":
            error.message += ". Write arguments of the program after --, and the text of a program after -e, in quotes."
        else:
            without = f"codemode-mcp {command}, without it"
            advice = f"{_WITH_ARGUMENT[command]} {extra[1]}" if command in _WITH_ARGUMENT else without
            error.message = f"{command} takes no argument, but got {extra[1]}. Write {advice}."
    elif error.message.startswith("No such command ") and "Did you mean" not in error.message:
        subcommands = getattr(getattr(error.ctx, "command", None), "commands", {})
        error.message += f" Write {' or '.join(f'codemode-mcp {command} {each}' for each in subcommands)}."
    else:
        for library_words, ours in _REWORDED.items():
            error.message = error.message.replace(library_words, ours)
