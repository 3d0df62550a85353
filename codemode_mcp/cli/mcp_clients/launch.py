"""The command line by which a client starts this server: one that works tomorrow, and from an app that has no PATH."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from codemode_mcp.cli.mcp_clients.dialects import own, shared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from codemode_mcp.cli.mcp_clients.places import ClientName, System

PROGRAM: Final = "codemode-mcp"

_SHARED: Final = ("claude-desktop", "claude-code", "cursor", "vscode", "windsurf")
"""Clients whose entries are in the words that most clients share."""

_OF_UV: Final = re.compile(r"(?:archive|environments|builds)-v\d+|\.tmp\w+")
"""Folders in the cache of uv in which it makes environments for one run of `uvx`."""


class NoLaunchError(Exception):
    """There is no command that would start this server tomorrow. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Program:
    """This program as it runs.

    Attributes:
        argv0: the absolute path by which it was started.
        python: the absolute path of its interpreter.
        origin: where it was installed from, if that is no package index: a URL.
    """

    argv0: str
    python: str
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """Command that starts this server.

    Attributes:
        args: in front of those that `serve` takes, itself included.
        note: what is remarkable about it.
    """

    command: str
    args: tuple[str, ...]
    note: str | None = None


def launch(
    program: Program, system: System, exists: Callable[[str], bool], which: Callable[[str], str | None]
) -> Launch:
    """Return the command that starts this program again.

    Args:
        exists: whether there is such a file.
        which: the absolute path of a program on the PATH.

    Raises:
        NoLaunchError: this one will be gone, and what made it cannot be found.
    """
    flavour = PureWindowsPath if system == "win32" else PurePosixPath
    maker = _maker(flavour(program.python).parts)
    if maker is not None:
        return _made_for_one_run(maker, program, system, which)
    suffix = ".exe" if system == "win32" else ""
    started = flavour(program.argv0)
    if started.name.lower().removesuffix(".exe") == PROGRAM:
        found = started if started.suffix == suffix or not suffix else started.with_name(PROGRAM + suffix)
        if started.is_absolute() and exists(str(found)):
            return Launch(str(found), ("serve",))
    beside = flavour(program.python).with_name(PROGRAM + suffix)
    if exists(str(beside)):
        return Launch(str(beside), ("serve",))
    # Without -P the folder that the client is in comes first in sys.path, and a file there would be imported as ours.
    return Launch(program.python, ("-P", "-m", "codemode_mcp", "serve"))


def _maker(parts: Sequence[str]) -> str | None:
    """Return the tool that made an environment for one run alone."""
    lower = [part.lower() for part in parts]
    if any(map(_OF_UV.fullmatch, lower)):
        return "uvx"
    if "pipx" in lower and "venvs" not in lower:
        return "pipx"
    return None


def _made_for_one_run(maker: str, program: Program, system: System, which: Callable[[str], str | None]) -> Launch:
    source = _spec(program.origin, system)
    # Without an origin it came from an index, which has it under this name.
    named = shlex.quote(source or PROGRAM)
    stay = f"`uv tool install {named}` or `pipx install {named}`"
    path = which(maker)
    if path is None:
        raise NoLaunchError(
            f"this program runs in an environment that {maker} has made for one run, and {maker} is not on the PATH; "
            f"install it to stay: {stay}"
        )
    if maker == "uvx":
        args = (*(("--from", source) if source else ()), PROGRAM, "serve")
    else:
        args = ("run", *(("--spec", source) if source else ()), PROGRAM, "serve")
    return Launch(
        path,
        args,
        f"this environment was made for one run, so the client will start `{maker} {' '.join(args)}`; "
        f"{stay} makes one that stays and starts faster",
    )


def origin(direct_url: str | None) -> str | None:
    """Return the origin of the package, out of the `direct_url.json` of an installation; None for an index."""
    try:
        value = json.loads(direct_url or "{}")
        url, vcs = value["url"], value.get("vcs_info")
        return f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else str(url)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _spec(origin: str | None, system: System) -> str | None:
    """Return the origin as uv and pipx are told.

    Raises:
        NoLaunchError: it may hold a password.
    """
    if origin is None:
        return None
    parts = urlsplit(origin)
    if "@" in parts.netloc:
        raise NoLaunchError(
            "this program runs in an environment made for one run, from an address with credentials in it; "
            "install it to stay, with `uv tool install` or `pipx install`"
        )
    if parts.scheme != "file":
        return origin
    path = unquote(parts.path)
    return path.lstrip("/").replace("/", "\\") if system == "win32" else path


def entry(
    client: ClientName,
    launched: Launch,
    config: str,
    old: Mapping[str, Any] | None = None,
    name: str = PROGRAM,
    handed: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return this server as a client's file has it.

    Args:
        config: the absolute path of our configuration.
        old: an entry that is this server, of which everything else stays: its variables, its other options.
        name: by which the client calls it.
        handed: variables that servers behind this one need, and how the client writes them.
    """
    handed = handed or {}
    if client not in _SHARED:
        common = shared(client, old)[0] if old else {}
        args = [*launched.args, "--config", config, *_options(common.get("args"))]
        return own(
            client, name, {"command": launched.command, "args": args, "env": (old or {}).get("env")}, handed, old
        )
    old = dict(old or {})
    made: dict[str, Any] = {"type": "stdio"} if client in ("vscode", "claude-code") else {}
    made["command"] = launched.command
    made["args"] = [*launched.args, "--config", config, *_options(old.get("args"))]
    for key in ("url", "serverUrl", "type", "transport", "disabled"):
        if key not in made:
            old.pop(key, None)
    if client == "claude-code":
        # Its tool search would hide both tools until the model asks for them.
        made |= {"env": {}, "alwaysLoad": True}
    made |= {key: value for key, value in old.items() if key not in ("type", "command", "args")}
    if handed:
        made["env"] = {**handed, **(made.get("env") or {})}
    return made


def _options(args: object) -> list[str]:
    """Return the options after `serve` but the configuration: `--read-only` stays."""
    words = [word for word in args if isinstance(word, str)] if isinstance(args, list) else []
    if "serve" not in words:
        return []
    words = words[words.index("serve") + 1 :]
    kept = []
    skip = False
    for word in words:
        if not skip and word != "--config" and not word.startswith("--config="):
            kept.append(word)
        skip = word == "--config" and not skip
    return kept
