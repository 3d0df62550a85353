"""The parts that this extension adds to the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from codemode_mcp.extension_points import Command, Extension

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.process.instance.clients import CommandTerminal
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.server.services import App


async def _serve(app: App, caller: Caller, terminal: CommandTerminal) -> Mapping[str, Any]:
    from codemode_mcp.extensions.repl.app_programs import serve_programs

    return await serve_programs(app, caller, terminal)


EXTENSION = Extension(
    commands={
        "repl": Command(
            f"{__package__}.command",
            140,
            extra="repl takes no argument, but got {}. Write codemode-mcp run {}.",
            similar={"shell": "codemode-mcp repl"},
        )
    },
    instance_commands={"repl": _serve},
)
