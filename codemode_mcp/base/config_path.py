"""The search for the configuration file.

A relay finds the file without loading it, and its client waits meanwhile. So this module imports little.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from codemode_mcp.base.errors import ConfigError
from upstream_clients.private_files import belongs_to_another

FILE_NAME = "codemode-mcp.json"
"""Name of the file in the working directory or in the user's configuration folder."""

PATH_VARIABLE = "CODEMODE_MCP_CONFIG"
"""Environment variable with the path of the file."""


def find_config(
    explicit: str | None,
    *,
    environ: Mapping[str, str],
    cwd: Path,
    user_config_dir: Path,
    admit: Callable[[Path], None],
) -> Path | None:
    """Return the path of the configuration file; None if there is no file.

    The first of these files is used: `--config`, `$CODEMODE_MCP_CONFIG`, the file in the working directory, the file in
    the user's configuration folder.

    Args:
        explicit: the value of `--config`.
        admit: called with the path of a file in the working directory, which may have come with a repository; raises
            `ConfigError` to refuse it. The file may change before it is loaded, so `load_config` has an `admit` too.

    Raises:
        ConfigError: the file of `--config` or `$CODEMODE_MCP_CONFIG` does not exist, or the file in the working
            directory belongs to another user or was refused.
    """
    for source, name in (("--config", explicit), (f"${PATH_VARIABLE}", environ.get(PATH_VARIABLE))):
        if name:
            path = resolve(name, cwd)
            if not os.path.exists(path):
                raise ConfigError((f"{source}: the file {printable(path)} does not exist",))
            return path
    for folder in (cwd, user_config_dir):
        path = folder / FILE_NAME
        if os.path.exists(path):
            if folder == cwd and cwd != user_config_dir:
                for status in (os.lstat(path), os.stat(path)):  # a link, and its target
                    check_owner(path, status)
                admit(path)
            return path
    return None


def command_option(path: Path | None, user_config_dir: Path) -> str:
    """Return the end of a command for a terminal, such as ` --config PATH`, so that it uses a configuration file.

    It is empty if the command uses the file in any folder.
    """
    if path is None or path == user_config_dir / FILE_NAME:
        return ""
    return f" --config {shlex.quote(printable(path))}"


def check_owner(path: Path, status: os.stat_result) -> None:
    """Refuse a file of another user in the working directory, because a configuration starts programs.

    Raises:
        ConfigError: the file belongs to another user.
    """
    if belongs_to_another(status):
        raise ConfigError(
            (
                f"{printable(path)} belongs to another user, and a configuration starts programs as you; "
                f"read the file, and pass --config {printable(path)} if you trust it",
            )
        )


def resolve(name: str, folder: Path) -> Path:
    """Return a name as an absolute path. `~` is the home directory, and a relative name starts in `folder`."""
    return Path(os.path.abspath(folder / os.path.expanduser(name)))


def printable(path: Path) -> str:
    """Return a path for a message; as JSON if it has characters that cannot be printed."""
    text = str(path)
    return text if text.isprintable() else json.dumps(text)
