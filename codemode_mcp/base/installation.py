"""The command that installs the packages of an extra into the environment of this process."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path


def install_command(extra: str, *, again: bool = False) -> str:
    """Return a shell command that installs the packages of an extra.

    The command names the packages and not `codemode-mcp[extra]`: an index may have another package called codemode-mcp.

    Args:
        again: True to replace packages that are installed already.
    """
    has_pip = importlib.util.find_spec("pip") is not None
    return command(requirements(extra), Path(sys.prefix), sys.executable, again=again, has_pip=has_pip)


def requirements(extra: str) -> list[str]:
    from importlib import metadata  # takes 12 ms, and a server needs it rarely

    try:
        listed = metadata.requires("codemode-mcp") or []
    except metadata.PackageNotFoundError:
        listed = []
    split = (requirement.partition(";") for requirement in listed)
    return [package.strip() for package, _, marker in split if f'extra == "{extra}"' in marker.replace("'", '"')]


def command(packages: list[str], prefix: Path, python: str, *, again: bool, has_pip: bool) -> str:
    """Return the command that fits an environment made by pip, pipx or uv."""
    force = ["--force-reinstall"] if again else []
    parts = prefix.parts
    if "pipx" in parts and "venvs" in parts:
        words = ["pipx", "inject", *(["--force"] if again else []), prefix.name, *packages]
    elif has_pip and not ("uv" in parts and "tools" in parts):
        words = [python, "-m", "pip", "install", *force, *packages]
    else:
        words = ["uv", "pip", "install", "--python", python, *force, *packages]
    return shlex.join(words)
