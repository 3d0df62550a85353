"""The command line parser. The module of a command is imported when the command is used."""

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
    "add": "add",
    "remove": "remove",
    "enable": "remove",
    "disable": "remove",
    "doctor": "doctor",
    "setup": "doctor",
    "serve": "serve",
    "run": "run",
    "new": "new",
    "test": "testing",
    "call": "call",
    "repl": "repl",
    "tools": "tools",
    "types": "tools",
    "runs": "runs",
    "programs": "programs",
    "trust": "trust",
    "servers": "servers",
    "policy": "policy",
    "clients": "clients",
    "instance": "instance",
    "trace": "trace",
    "ui": "ui",
    "savings": "savings",
    "login": "login",
    "logout": "login",
}
"""The module in `commands` of each command, in the order of `--help`, in which a new user needs them."""


class _Commands(TyperGroup):
    def list_commands(self, ctx: Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        found = typer.main.get_group(import_module(f"codemode_mcp.cli.commands.{module}").app)
        # A module has several commands, or one command with subcommands.
        command = found if found.name == cmd_name else found.get_command(ctx, cmd_name)
        if command is not None:
            _hide_flag_types(command, typer.Context(command, ctx))
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
        return _without_flag_types(super().get_params(ctx))


def _hide_flag_types(command: Command, context: Context) -> None:
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
