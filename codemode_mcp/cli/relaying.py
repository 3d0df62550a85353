"""The relay of `codemode-mcp serve` to the shared instance, and the command lines that need no typer.

A client waits for this, so the module imports little. If there can be no shared instance for this client, the command
serves it by a process of its own (`serving`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.base.config_path import find_config
from codemode_mcp.base.errors import ConfigError
from codemode_mcp.base.log_level import LOG_LEVELS
from codemode_mcp.base.nesting import depth
from codemode_mcp.base.paths import config_dir
from codemode_mcp.cli.messages import say

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from codemode_mcp.process.instance.attaching import Attached, Client


def read_options(
    arguments: Sequence[str], options: Mapping[str, str], flags: Mapping[str, str]
) -> tuple[list[str], dict[str, Any]] | None:
    """Return the words and the options of a command line. Return None for any other one, which typer has to read.

    Args:
        options: the names of the options with a value, by their spelling.
        flags: the names of the options without a value, by their spelling.
    """
    words: list[str] = []
    found: dict[str, Any] = {}
    rest = iter(arguments)
    for each in rest:
        name = options.get(each) or flags.get(each)
        if name is None:
            if not each or each.startswith("-"):
                return None
            words.append(each)
        elif name in found:
            return None
        elif each in flags:
            found[name] = True
        else:
            value = next(rest, "")
            if not value or value.startswith("-"):
                return None
            found[name] = value
    return words, found


def spelled(names: Collection[str]) -> dict[str, str]:
    """Return the names of options by their usual spelling: `log_file` by `--log-file`."""
    return {"--" + name.replace("_", "-"): name for name in names}


_OPTIONS: Final = spelled(("config", "context", "log_file", "log_level"))
_FLAGS: Final = spelled(("read_only", "locked", "private"))

_QUIET: Final = ("private", "invalid_config", "not_confirmed")
"""Refusals about which nothing is said here: a private server is wanted, or says the same."""


def common_options(arguments: Sequence[str]) -> dict[str, Any] | None:
    """Parse the common options of `serve`. Return None for any other command line, which typer has to parse.

    Clients start `serve` with hardly any options, and wait for it; importing typer takes long.
    """
    read = read_options(arguments, _OPTIONS, _FLAGS)
    if read is None:
        return None
    words, found = read
    return found if not words and found.get("log_level", LOG_LEVELS[0]) in LOG_LEVELS else None


def serve_by_relay(
    *,
    config: str | None = None,
    read_only: bool = False,
    locked: bool = False,
    context: str | None = None,
    log_level: str | None = None,
    log_file: str | None = None,
    private: bool = False,
) -> None:
    """Serve the client on the standard streams by the shared instance, and end the process when the client leaves.

    Return if this process has to serve the client itself. The arguments are the options of the command, which bind this
    client only.
    """
    if private or (log_file is not None and not _is_file(log_file)):
        return
    options = {
        "readOnly": read_only,
        "locked": locked,
        "context": context,
        "logLevel": log_level,
        # `/dev/stderr` is another file for another process.
        "logFile": None if log_file is None else os.path.realpath(log_file),
    }
    shareable = client_of(config, options)
    if shareable is None:
        return
    from codemode_mcp.process.instance import attaching, relay

    key, client = shareable
    environ = dict(os.environ)

    def attach() -> Attached:
        return attaching.attach(key, client, environ)

    try:
        attached = attach()
    except attaching.NoInstance as error:
        say(f"no shared instance can be used, so this process serves its client itself: {error}")
        return
    except attaching.Refused as error:
        if error.code not in _QUIET:
            say(f"the shared instance does not serve this client, so this process serves it itself: {error}")
        return
    if sys.stdin.isatty():
        say_hint()
    relayed = relay.Relay(0, 1, attach, say)
    relay.end_on_signals(relayed)
    code = relayed.run(attached)
    sys.stderr.flush()
    # A thread may still wait for the client's next line. Nothing can interrupt it.
    os._exit(code)


def client_of(config: str | None, options: Mapping[str, Any]) -> tuple[str, Client] | None:
    """Return the key of the shared instance for this process, and what this process is as its client.

    Return None if this process cannot be a client of a shared instance.

    Args:
        config: the value of `--config`.
        options: see `wire.attach_request`.
    """
    if depth(os.environ) > 0:
        return None
    found: list[Path] = []
    folder = Path.cwd()
    try:
        path = find_config(config, environ=os.environ, cwd=folder, user_config_dir=config_dir(), admit=found.append)
    except ConfigError:
        return None  # loading the configuration says what is wrong
    if path is not None and not is_shared(path):
        return None
    from codemode_mcp.process.instance import attaching, registry

    path = None if path is None else Path(os.path.abspath(path))
    client = attaching.Client(None if path is None else str(path), bool(found), str(folder), options)
    return registry.key_of(path), client


def say_hint() -> None:
    """Say to a person who has started `serve` at a terminal that it waits for a client."""
    say("this is an MCP server: it waits for an MCP client on standard input; Ctrl-C ends it")
    say("  to add it to a client: codemode-mcp install --client NAME; to see what it does: codemode-mcp demo")


def _is_file(log_file: str) -> bool:
    """Return True if another process can write a log without waiting: it is no pipe or terminal of this process."""
    return not os.path.exists(log_file) or os.path.isfile(log_file) or os.path.realpath(log_file) == os.devnull


def is_shared(path: Path) -> bool:
    """Return True if clients of a configuration file may share an instance.

    A pipe, such as `/dev/fd/63`, can be read once and by this process only, so its client has a private server.
    """
    if not path.is_file():
        return False
    try:
        text = path.read_bytes()
    except OSError:
        return True  # the instance says what is wrong
    # Parsing takes longer than all the rest, and hardly any file has this setting.
    if b"instance" not in text or b"shared" not in text:
        return True
    from codemode_mcp.config.source import SourceError, parse, text_of

    try:
        value = parse(text_of(text))
    except SourceError:
        return True
    instance = value.get("instance") if isinstance(value, dict) else None
    return not (isinstance(instance, dict) and instance.get("shared") is False)
