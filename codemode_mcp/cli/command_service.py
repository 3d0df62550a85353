"""The commands that the shared instance runs for terminals, each in an application that serves other clients, too.

Relays wait for the start of the instance, so the first command imports what commands need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from codemode_mcp.app.app import App
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
    app: App, caller: Caller, terminal: CommandTerminal, *, quiet: bool, **request: Any
) -> Mapping[str, Any]:
    """Make one call. The result has the exit code of the command."""
    from functools import partial

    from codemode_mcp.cli.call_request import CallRequest
    from codemode_mcp.cli.following import FollowedRun
    from codemode_mcp.cli.messages import wrap
    from codemode_mcp.cli.selection import configured, unknown_server
    from codemode_mcp.cli.tool_call import program_of

    call = CallRequest(**request)
    known = configured(app.config)
    if call.server not in known:
        terminal.say(wrap(unknown_server(call.server, app.config)))
        return {"code": 2}
    call = call._replace(server=known[call.server])
    followed = FollowedRun(
        terminal, _client_of(terminal), shows_progress=terminal.draws and not quiet, servers=[call.server]
    )
    return {"code": 0 if await followed.follow(app, caller, partial(program_of, call), None) else 1}


def _client_of(terminal: CommandTerminal) -> UnattendedClient:
    """Return the client of a program whose output is shown at a terminal."""
    from codemode_mcp.cli.terminal_client import TerminalClient, UnattendedClient

    return TerminalClient(terminal) if terminal.attended else UnattendedClient()


_COMMANDS: Final[dict[str, Callable[..., Awaitable[Mapping[str, Any]]]]] = {"call": _call}
