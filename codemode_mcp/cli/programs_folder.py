"""The folder of saved programs, for commands that do not use the configuration otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.cli.messages import stop

if TYPE_CHECKING:
    from pathlib import Path


def programs_folder(config: str | None) -> Path:
    """Return the folder of saved programs. Nothing of the configuration is used but its place."""
    from codemode_mcp.cli.confirming import find
    from codemode_mcp.errors import ConfigError
    from codemode_mcp.saved_programs.folder import folder_of

    try:
        folder = folder_of(find(config, lambda _: None))
    except ConfigError as error:
        stop(2, "\n".join(error.problems))
    if folder is None:
        stop(
            2,
            "there is no configuration, and saved programs are in a folder beside it; codemode-mcp import writes one, "
            "or name one with --config FILE",
        )
    return folder
