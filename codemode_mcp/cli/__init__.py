"""The command line: parse, print, exit codes. No logic.

`commands` parses with typer. `serving` needs nothing of it, so that `serve` starts sooner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codemode_mcp.cli.parser import COMMANDS, app

__all__ = ["COMMANDS", "app"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from codemode_mcp.cli import parser as commands

    return getattr(commands, name)
