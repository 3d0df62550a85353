"""Starts codemode-mcp from a bundle of Claude Desktop, with the settings of its form.

Each setting is one argument, `--NAME=VALUE`. A setting that was left empty arrives as an empty value, or as the text
`${user_config.NAME}`, depending on the version of the host.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FIRST_CONFIGURATION = {"mcpServers": {}, "tools": {"ask": ["destructive"]}}
"""The configuration of a user who has none, and wants to be asked."""


def settings_of(words: Sequence[str]) -> dict[str, str]:
    """Return the settings that were filled in."""
    pairs = (word.removeprefix("--").partition("=") for word in words)
    return {name: value for name, _, value in pairs if value and not value.startswith("${user_config.")}


def serve_arguments(settings: Mapping[str, str]) -> list[str]:
    """Return the arguments of `codemode-mcp` for the settings."""
    valued = [f"--{name}={settings[name]}" for name in ("config", "context", "record") if name in settings]
    return ["serve", *valued, *(["--read-only"] if is_on(settings, "read-only") else [])]


def is_on(settings: Mapping[str, str], name: str) -> bool:
    """Return False if a switch is off or not set. A form of on that is not known counts as on."""
    return settings.get(name, "false").strip().lower() not in ("false", "0", "no", "off")


def write_first_configuration(settings: Mapping[str, str]) -> None:
    """Write a configuration that asks before destructive calls, if the form wants it and the user has no other one."""
    from codemode_mcp.base.config_path import FILE_NAME, PATH_VARIABLE
    from codemode_mcp.base.paths import config_dir

    if not is_on(settings, "ask") or "config" in settings or os.environ.get(PATH_VARIABLE):
        return
    folder = config_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / FILE_NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    except OSError as error:
        print(f"{folder / FILE_NAME} cannot be written: {error.strerror}; nothing asks before calls", file=sys.stderr)
        return
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(json.dumps(FIRST_CONFIGURATION, indent=2) + "\n")


def main() -> None:
    settings = settings_of(sys.argv[1:])
    write_first_configuration(settings)
    from codemode_mcp.__main__ import main as run

    # The folder of this file must not be the first place for imports of plugins.
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).resolve().parent)]
    sys.argv = ["codemode-mcp", *serve_arguments(settings)]
    run()


if __name__ == "__main__":
    main()
