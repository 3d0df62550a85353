"""The command by which a client starts this server. It must work in later sessions and without a PATH. Pure."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from codemode_mcp.extensions.setup.mcp_clients.locations import System

PROGRAM: Final = "codemode-mcp"

PRIVATE: Final = "--private"
"""The option of `serve` for a process of its own, instead of the shared instance."""

_UV_CACHE: Final = re.compile(r"(?:archive|environments|builds)-v\d+|\.tmp\w+")
"""Folders in uv's cache that hold the environments of single runs of `uvx`."""


class NoLaunchError(Exception):
    """Raised if no command would start this server in later sessions. The message says what to do."""


class Program(Struct, frozen=True):
    """The running program.

    Attributes:
        argv0: the absolute path by which the program was started.
        python: the absolute path of the Python interpreter.
        origin: the URL that the program was installed from; None for a package index.
    """

    argv0: str
    python: str
    origin: str | None = None


class Launch(Struct, frozen=True):
    """A command that starts this server.

    Attributes:
        args: the arguments up to and including `serve`.
        note: a remark for the user.
    """

    command: str
    args: tuple[str, ...]
    note: str | None = None


def launch(
    program: Program, system: System, exists: Callable[[str], bool], which: Callable[[str], str | None]
) -> Launch:
    """Return the command that starts this program again.

    Args:
        exists: returns whether a file exists.
        which: returns the absolute path of a program on the PATH.

    Raises:
        NoLaunchError: the program runs in a temporary environment, and the tool that made it cannot be found.
    """
    flavour = PureWindowsPath if system == "win32" else PurePosixPath
    runner = _runner(flavour(program.python).parts)
    if runner is not None:
        return _launch_by_runner(runner, program, system, which)
    suffix = ".exe" if system == "win32" else ""
    started = flavour(program.argv0)
    if started.name.lower().removesuffix(".exe") == PROGRAM:
        found = started if started.suffix == suffix or not suffix else started.with_name(PROGRAM + suffix)
        if started.is_absolute() and exists(str(found)):
            return Launch(str(found), ("serve",))
    beside = flavour(program.python).with_name(PROGRAM + suffix)
    if exists(str(beside)):
        return Launch(str(beside), ("serve",))
    # Without -P the client's working directory comes first in sys.path, and a file there could replace our package.
    return Launch(program.python, ("-P", "-m", "codemode_mcp", "serve"))


def _runner(parts: Sequence[str]) -> str | None:
    """Return the tool that made a temporary environment; None for a permanent environment."""
    lower = [part.lower() for part in parts]
    if any(map(_UV_CACHE.fullmatch, lower)):
        return "uvx"
    return "pipx" if "pipx" in lower and "venvs" not in lower else None


def _launch_by_runner(runner: str, program: Program, system: System, which: Callable[[str], str | None]) -> Launch:
    source = _requirement(program.origin, system)
    package = shlex.quote(source or PROGRAM)
    advice = f"`uv tool install {package}` or `pipx install {package}`"
    path = which(runner)
    if path is None:
        raise NoLaunchError(
            f"this program runs in a temporary environment made by {runner}, and {runner} is not on the PATH; "
            f"install the program permanently: {advice}"
        )
    words, option = ((), "--from") if runner == "uvx" else (("run",), "--spec")
    args = (*words, *((option, source) if source else ()), PROGRAM, "serve")
    return Launch(
        path,
        args,
        f"this environment is temporary, so the client will start `{runner} {' '.join(args)}`; "
        f"{advice} makes a permanent one, which starts faster",
    )


def origin(direct_url: str | None) -> str | None:
    """Return the URL that the package was installed from; None for a package index.

    Args:
        direct_url: the text of `direct_url.json` in the installation, as defined by PEP 610.
    """
    try:
        value = json.loads(direct_url or "{}")
        url, vcs = value["url"], value.get("vcs_info")
        return f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else str(url)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _requirement(origin: str | None, system: System) -> str | None:
    """Return the origin in the form that uv and pipx accept.

    Raises:
        NoLaunchError: the origin may contain a password.
    """
    if origin is None:
        return None
    parts = urlsplit(origin)
    if "@" in parts.netloc:
        raise NoLaunchError(
            "this program runs in a temporary environment, installed from an address with credentials in it; "
            "install it permanently, with `uv tool install` or `pipx install`"
        )
    if parts.scheme != "file":
        return origin
    path = unquote(parts.path)
    return path.lstrip("/").replace("/", "\\") if system == "win32" else path
