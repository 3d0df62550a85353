"""The commands that the shared instance runs for terminals, each in an application that serves other clients, too.

Relays wait for the start of the instance, so the first command imports what commands need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from codemode_mcp.app.app import App
    from codemode_mcp.cli.command_requests import ProgramRequest
    from codemode_mcp.cli.terminal_client import UnattendedClient
    from codemode_mcp.instance.command_terminal import CommandTerminal
    from codemode_mcp.policy.callers import Caller


async def run_command(
    app: App, caller: Caller, terminal: CommandTerminal, arguments: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Run a command and return its result, as JSON.

    Args:
        arguments: as the same version of the command has sent them.
    """
    return await _COMMANDS[terminal.name](app, caller, terminal, **arguments)


async def _call(
    app: App, caller: Caller, terminal: CommandTerminal, *, request: Mapping[str, Any], quiet: bool
) -> Mapping[str, Any]:
    """Make one call. The result has the exit code of the command."""
    from functools import partial

    from codemode_mcp.cli.command_requests import CallRequest
    from codemode_mcp.cli.following import FollowedRun
    from codemode_mcp.cli.selection import configured, unknown_server
    from codemode_mcp.cli.tool_call import program_of

    call = CallRequest(**request)
    known = configured(app.config, in_programs=True)
    if call.server not in known:
        _say(terminal, unknown_server(call.server, app.config))
        return {"code": 2}
    call = call._replace(server=known[call.server])
    followed = FollowedRun(
        terminal, _client_of(terminal), shows_progress=terminal.draws and not quiet, servers=[call.server]
    )
    return {"code": 0 if await followed.follow(app, caller, partial(program_of, call), None) else 1}


async def _run(app: App, caller: Caller, terminal: CommandTerminal, *, request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run a program. The result has the exit code of the command."""
    from codemode_mcp.cli.command_requests import ProgramRequest
    from codemode_mcp.cli.following import FollowedRun
    from codemode_mcp.cli.program import NO_SERVERS, BadProgram, check
    from codemode_mcp.cli.selection import for_program

    asked = ProgramRequest(**request)
    await app.manager()
    await app.read_programs()  # a program that was just written or accepted can be run
    if asked.saved is not None:
        return await _run_saved(app, caller, terminal, asked)
    try:
        program = check(asked)
    except BadProgram as error:
        _say(terminal, str(error))
        return {"code": error.exit_code}
    if app.config.path is None:
        _say(terminal, NO_SERVERS)
    reachable = for_program(app.config, program.source, program.language)
    followed = FollowedRun(
        terminal,
        _client_of(terminal),
        tuple(asked.args),
        as_json=asked.as_json,
        shows_progress=terminal.draws and not asked.quiet,
        servers=[spec.name for spec in reachable.upstreams],
    )

    async def source(_: App, __: Caller) -> str:
        return program.source

    return {"code": 0 if await followed.follow(app, caller, source, program.language) else 1}


async def _run_saved(app: App, caller: Caller, terminal: CommandTerminal, asked: ProgramRequest) -> Mapping[str, Any]:
    """Run a saved program. The result has the exit code of the command."""
    from codemode_mcp.cli.following import FollowedRun
    from codemode_mcp.cli.saved_runs import SavedRun
    from codemode_mcp.config_path import command_option
    from codemode_mcp.paths import config_dir

    run = SavedRun(asked, command_option(app.config.path, config_dir()))
    followed = FollowedRun(
        terminal,
        _client_of(terminal),
        run.args,
        as_json=asked.as_json,
        shows_progress=terminal.draws and not asked.quiet,
        servers=(),
        on_denied=run.note_denied,
    )
    return {"code": run.exit_code(await followed.follow(app, caller, run.source, "javascript"))}


async def _repl(app: App, caller: Caller, terminal: CommandTerminal) -> Mapping[str, Any]:
    """Run the programs of a prompt until it leaves."""
    from codemode_mcp.cli.repl.program_service import serve_programs

    return await serve_programs(app, caller, terminal)


async def _tools(
    app: App, caller: Caller, terminal: CommandTerminal, *, request: Mapping[str, Any]
) -> Mapping[str, Any]:
    """List or search tools. The result has the exit code of the command."""
    from codemode_mcp.cli.command_requests import ToolsRequest
    from codemode_mcp.cli.listing import printed
    from codemode_mcp.cli.tool_catalog import emptiness, tools_of, unknown_source

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
    from codemode_mcp.cli.tool_catalog import emptiness, types_of

    files, errors = await types_of(app, caller)
    return {"files": files, "notes": [*errors, *emptiness(app.config)]}


def _say(terminal: CommandTerminal, text: str) -> None:
    from codemode_mcp.cli.messages import escape, wrap

    terminal.say(wrap(escape(text)))


def _client_of(terminal: CommandTerminal) -> UnattendedClient:
    """Return the client of a program whose output is shown at a terminal."""
    from codemode_mcp.cli.terminal_client import TerminalClient, UnattendedClient

    return TerminalClient(terminal) if terminal.attended else UnattendedClient()


_COMMANDS: Final[dict[str, Callable[..., Awaitable[Mapping[str, Any]]]]] = {
    "call": _call,
    "repl": _repl,
    "run": _run,
    "tools": _tools,
    "types": _types,
}
