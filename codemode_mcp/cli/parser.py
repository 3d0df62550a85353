"""All commands. Each is read from its module when it is asked for."""

from __future__ import annotations

import sys
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer._click.exceptions import UsageError
from typer.core import TyperGroup

if TYPE_CHECKING:
    from typer._click import Command, Context, Parameter

COMMANDS: Final = {
    "demo": "demo",
    "install": "install",
    "import": "import_",
    "doctor": "doctor",
    "setup": "doctor",
    "serve": "serve",
    "run": "run",
    "call": "call",
    "repl": "repl",
    "tools": "tools",
    "types": "tools",
    "runs": "runs",
    "clients": "clients",
    "trace": "trace",
    "savings": "savings",
    "login": "login",
    "logout": "login",
}
"""Modules of `commands` by the commands that are in them, in the order of `--help`: that in which one needs them."""


class _Commands(TyperGroup):
    def list_commands(self, ctx: Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        found = typer.main.get_group(import_module(f"codemode_mcp.cli.commands.{module}").app)
        # A module has some commands, or is one that has commands of its own.
        command = found if found.name == cmd_name else found.get_command(ctx, cmd_name)
        if command is not None:
            _without_types(command, typer.Context(command, ctx))
        return command

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from codemode_mcp.cli.usage import unknown_command

            ctx.fail(unknown_command(args[0], COMMANDS))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Context) -> Any:
        try:
            return super().invoke(ctx)
        except UsageError as error:
            from codemode_mcp.cli.usage import improve

            improve(error)
            raise

    def get_params(self, ctx: Context) -> list[Parameter]:
        return _plain(super().get_params(ctx))


def _without_types(command: Command, context: Context) -> None:
    _plain(command.get_params(context))
    if isinstance(command, TyperGroup):
        for inner in command.commands.values():
            _without_types(inner, typer.Context(inner, context))


def _plain(options: list[Parameter]) -> list[Parameter]:
    """Help shows `--write`, not `--write <bool>`, which looks as if it wanted a value."""
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
    epilog="To see what it does: codemode-mcp demo\n\n"
    "To put the servers of a client behind it: codemode-mcp install --client cursor --move-servers\n\n"
    "Then, to check everything: codemode-mcp doctor",
)


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    """An MCP server with two tools, exec and wait, that puts every other MCP server behind a sandboxed program."""
    # What stdout cannot encode is escaped, as it is on stderr. To set that writes what was printed before, and in
    # `serve` nothing of ours may get there.
    if context.invoked_subcommand != "serve" and isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if version:
        from importlib import metadata

        print(metadata.version("codemode-mcp"))  # noqa: T201
        raise typer.Exit
