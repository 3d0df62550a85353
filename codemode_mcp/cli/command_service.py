"""Commands of terminals as requests, and the shared instance's part of carrying them out.

Relays wait for the start of the instance, so the first command imports what commands need.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from codemode_mcp.cli.messages import COLUMNS, stop
from codemode_mcp.extension_points import first

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from codemode_mcp.cli.command_programs import GivenProgram
    from codemode_mcp.process.instance.clients import CommandTerminal
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.server.services import App


# The requests of commands, as they were typed, which the command or the shared instance carries out.


UNCUT: Final = 10_000
"""Width for output to a pipe, which is not cut."""


class CallRequest(NamedTuple):
    """A call of one tool.

    Attributes:
        server: the name of the server, or its identifier in programs.
        values: the arguments.
        are_strings: the values are strings, and are to be converted as the tool's schema requires.
    """

    server: str
    tool: str
    values: Mapping[str, Any]
    are_strings: bool


def read_call(tool: str, arguments: Sequence[str], text: str | None) -> CallRequest:
    """Return the request of a command line. End the command if it is not valid.

    Args:
        tool: `SERVER.TOOL`.
        arguments: `KEY=VALUE` each.
        text: the value of `--json`.
    """
    server, _, name = tool.removeprefix("MCP.").removeprefix("mcp:").replace(":", ".", 1).partition(".")
    if not name:
        stop(2, f"{tool!r} names no tool: write SERVER.TOOL, as in github.listIssues; codemode-mcp tools lists them")
    return CallRequest(server, name, _parse(arguments, text), text is None)


def _parse(arguments: Sequence[str], text: str | None) -> Mapping[str, Any]:
    """Return the arguments: JSON values, or the strings of KEY=VALUE."""
    if text is None:
        pairs = [each.partition("=") for each in arguments]
        for key, equals, _ in pairs:
            if not equals or not key:
                stop(2, f"{key!r}: write arguments as KEY=VALUE, or all of them as --json '{{...}}'")
        return {key: value for key, _, value in pairs}
    if arguments:
        stop(2, "give either KEY=VALUE or --json, not both")
    try:
        value = json.loads(text)
    except ValueError as error:
        stop(2, f"--json: this is not JSON ({error}); write it in single quotes, as in --json '{{\"a\": 1}}'")
    if not isinstance(value, dict):
        stop(2, "--json: arguments are one JSON object, as in --json '{\"a\": 1}'")
    return value


class ToolsRequest(NamedTuple):
    """A list of tools.

    Attributes:
        query: what to search for; None for all tools.
        server: the only server or plugin; None for all.
        long: show whole signatures and descriptions, on several lines.
        width: the columns of a line.
    """

    query: str | None
    server: str | None
    long: bool
    as_json: bool
    width: int


def read_tools(words: Sequence[str], server: str | None, *, long: bool, as_json: bool) -> ToolsRequest:
    """Return the request of a command line. The lines fit the terminal; those for a pipe are not cut."""
    import shutil

    piped = COLUMNS if long else UNCUT
    width = shutil.get_terminal_size((COLUMNS, 24)).columns if sys.stdout.isatty() else piped
    return ToolsRequest(" ".join(words) if words else None, server, long, as_json, width)


class ProgramRequest(NamedTuple):
    """A program to run.

    Attributes:
        language: `javascript`, `typescript` or a wrong name; None to find it out by trying.
        args: the values of `args` in the program.
        as_json: print answers as JSON.
        saved: the name of the saved program to run instead of `code`.
        input: the input of a saved program, as unchecked JSON text.
        accept_changes: run a saved program even if definitions of its tools have changed.
    """

    code: str | None
    language: str | None
    args: Sequence[str]
    as_json: bool
    quiet: bool
    saved: str | None = None
    input: str | None = None
    accept_changes: bool = False


def read_program(file: Path, language: str | None) -> tuple[str, str | None]:
    """Return the text of a program, and its language by the name of the file. End the command if it cannot be read."""
    if language is None and file.suffix in (".ts", ".mts", ".cts"):
        language = "typescript"
    elif language is None and file.suffix in (".js", ".mjs", ".cjs"):
        language = "javascript"
    return _read(file), language


def read_input(text: str | None) -> str | None:
    """Return the value of `--input`: JSON text, `@FILE`, or `-` for stdin. End the command if it cannot be read."""
    from pathlib import Path

    if text is None or (text != "-" and not text.startswith("@")):
        return text
    if text == "-" and sys.stdin is None:
        stop(2, "--input -: standard input is closed; give the input itself, or @FILE")
    path = Path(text.removeprefix("@"))
    if text != "-" and not path.exists():
        stop(2, f"--input: there is no file {path}")
    return _read(path)


def _read(file: Path) -> str:
    import re
    import shlex

    try:
        if str(file) == "-":
            return sys.stdin.buffer.read().decode("utf-8")
        return file.read_text("utf-8")
    except FileNotFoundError:
        if re.search(r"[\s(;=]", str(file)):
            stop(2, f"there is no file {str(file)!r}; to run this text: codemode-mcp run -e {shlex.quote(str(file))}")
        stop(2, f"there is no file {file}; to give the program itself, use -e CODE")
    except (OSError, UnicodeDecodeError) as error:
        name = "the program from stdin" if str(file) == "-" else str(file)
        stop(1, f"cannot read {name}: {getattr(error, 'strerror', None) or error}")


async def run_command(
    app: App, caller: Caller, terminal: CommandTerminal, arguments: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Run a command and return its result, as JSON.

    Args:
        arguments: as the same version of the command has sent them.
    """
    found = _COMMANDS.get(terminal.name)
    if found is None:
        found = first(lambda each: each.instance_commands.get(terminal.name))
    assert found is not None
    return await found(app, caller, terminal, **arguments)


async def _call(
    app: App, caller: Caller, terminal: CommandTerminal, *, request: Mapping[str, Any], quiet: bool
) -> Mapping[str, Any]:
    """Make one call. The result has the exit code of the command."""
    from codemode_mcp.cli.command_programs import CallingProgram, Refused

    try:
        program = CallingProgram(CallRequest(**request), app.config)
    except Refused as error:
        _say(terminal, error.message)
        return {"code": error.exit_code}
    return await _follow(app, caller, terminal, program, quiet=quiet)


async def _run(app: App, caller: Caller, terminal: CommandTerminal, *, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run a program. The result has the exit code of the command."""
    from codemode_mcp.cli.command_programs import NO_SERVERS, Refused, run_of

    asked = ProgramRequest(**request)
    await app.manager()
    await app.read_programs()  # a program that was just written or accepted can be run
    try:
        program = run_of(asked, app.config)
    except Refused as error:
        _say(terminal, error.message)
        return {"code": error.exit_code}
    if app.config.path is None and asked.saved is None:
        _say(terminal, NO_SERVERS)
    return await _follow(app, caller, terminal, program, as_json=asked.as_json, quiet=asked.quiet)


async def _follow(
    app: App, caller: Caller, terminal: CommandTerminal, program: GivenProgram, *, as_json: bool = False, quiet: bool
) -> Mapping[str, Any]:
    from codemode_mcp.cli.following import FollowedRun, client_at

    followed = FollowedRun(
        terminal,
        client_at(terminal, attended=terminal.attended),
        program,
        as_json=as_json,
        shows_progress=terminal.draws and not quiet,
        servers=program.servers(app.config),
    )
    return {"code": program.exit_code(await followed.follow(app, caller))}


async def _tools(
    app: App, caller: Caller, terminal: CommandTerminal, *, request: Mapping[str, Any]
) -> Mapping[str, Any]:
    """List or search tools. The result has the exit code of the command."""
    from codemode_mcp.cli.listing import emptiness, printed, tools_of, unknown_source

    asked = ToolsRequest(**request)
    found = await tools_of(app, caller, asked.query, asked.server)
    if found is None:
        _say(terminal, unknown_source(asked.server or "", app.config))
        return {"code": 2}
    for line in printed(found, asked):
        terminal.print(line)
    for note in (*found.notes, *emptiness(app.config)):
        _say(terminal, note)
    return {"code": 0}


async def _types(app: App, caller: Caller, _: CommandTerminal) -> Mapping[str, Any]:
    from codemode_mcp.cli.listing import emptiness, types_of

    files, errors = await types_of(app, caller)
    return {"files": files, "notes": [*errors, *emptiness(app.config)]}


def _say(terminal: CommandTerminal, text: str) -> None:
    from codemode_mcp.cli.messages import escape, wrap

    terminal.say(wrap(escape(text)))


_COMMANDS: Final[dict[str, Callable[..., Awaitable[Mapping[str, Any]]]]] = {
    "call": _call,
    "run": _run,
    "tools": _tools,
    "types": _types,
}
