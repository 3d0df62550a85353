"""Commands that install packages into the environment that this program runs in."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path


def install_command(extra: str, *, again: bool = False) -> str:
    """Return the command that installs the packages of an extra here, for a shell.

    It names these packages and never this one: an index may have another package of its name.
    """
    return command(requirements(extra), Path(sys.prefix), sys.executable, again=again, has_pip=_has_pip())


def requirements(extra: str) -> list[str]:
    """Return what the metadata of this installation asks for with an extra."""
    from importlib import metadata  # takes 12 ms; a server that starts needs none of it

    try:
        listed = metadata.requires("codemode-mcp") or []
    except metadata.PackageNotFoundError:
        listed = []
    found = []
    for each in listed:
        package, _, marker = each.partition(";")
        if f'extra == "{extra}"' in marker.replace("'", '"'):
            found.append(package.strip())
    return found


def command(packages: list[str], prefix: Path, python: str, *, again: bool, has_pip: bool) -> str:
    """Return the command for an environment."""
    force = ["--force-reinstall"] if again else []
    parts = prefix.parts
    if "pipx" in parts and "venvs" in parts:
        words = ["pipx", "inject", *(["--force"] if again else []), prefix.name, *packages]
    elif has_pip and not ("uv" in parts and "tools" in parts):
        words = [python, "-m", "pip", "install", *force, *packages]
    else:
        words = ["uv", "pip", "install", "--python", python, *force, *packages]
    return shlex.join(words)


def _has_pip() -> bool:
    return importlib.util.find_spec("pip") is not None
