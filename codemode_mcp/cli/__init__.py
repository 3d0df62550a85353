"""The command line: parsing, printing and exit codes.

`parser` parses with typer, and `commands` has a module for each command or pair of commands. `serving` imports neither,
so that `serve` starts faster. `relaying` imports even less, because each client of a shared instance waits for it.
`running_instance` has what the shared instance does for other commands, and imports as little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codemode_mcp.cli.parser import app, command_modules

__all__ = ["app", "command_modules"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from codemode_mcp.cli import parser

    return getattr(parser, name)
