"""The configuration of a command, its log, its programs, and the servers that it needs."""

from __future__ import annotations

import logging
import os
import re
import shlex
import sys
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TextIO

from codemode_mcp.base.errors import ConfigError
from codemode_mcp.cli.messages import end, say, stop, suggestion
from declarations.names import HOST_GLOBALS, LANGUAGE_GLOBALS, RESERVED_WORDS, identifiers, is_displaced

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from codemode_mcp.audit import Redactor
    from codemode_mcp.base.settings import Language, LogLevel
    from codemode_mcp.catalog.saved_programs.folder import Library
    from codemode_mcp.config import Config


def load(
    path: str | None, level: LogLevel | None, file: str | None, *, read_only: bool = False, locked: bool = False
) -> Config:
    """Return the configuration of a command, with its options. End the command if there is no valid one."""
    from codemode_mcp.cli.deciding import ask, find
    from codemode_mcp.config import load_config
    from codemode_mcp.config.confirmation import Gate, NotConfirmedError

    found, gate = None, Gate(ask)
    try:
        found = find(path, gate.remember)
        loaded = load_config(found, environ=os.environ, admit=gate.admit, locked=locked)
    except NotConfirmedError as error:
        stop(2, "\n".join(error.problems))
    except ConfigError as error:
        say(f"invalid_config: {found or path}")
        for problem in error.problems:
            say(f"  - {problem}")
        say("Correct the file; codemode-mcp doctor checks it." if found else "Name an existing file with --config.")
        end(2)
    return with_options(loaded, level, file, read_only=read_only)


def with_options(loaded: Config, level: LogLevel | None, file: str | None, *, read_only: bool) -> Config:
    log = replace(
        loaded.log, level=loaded.log.level if level is None else level, file=loaded.log.file if file is None else file
    )
    tools = loaded.tools
    if read_only:
        contexts = tuple(replace(each, rules=replace(each.rules, read_only=True)) for each in tools.contexts)
        tools = replace(tools, policy=replace(tools.policy, read_only=True), contexts=contexts)
    return replace(loaded, log=log, tools=tools)


@contextmanager
def logging_of(config: Config, level: LogLevel | None = None) -> Iterator[Redactor]:
    """Log as the configuration says, for the duration of the context. Yield the redactor of the log.

    Args:
        level: replaces the level of the configuration.
    """
    from codemode_mcp.audit import Redactor, logging_to

    redactor = Redactor()
    redactor.know(config.secretive)
    settings = config.log if level is None else replace(config.log, level=level)
    try:
        with logging_to(settings, redactor.own):
            yield redactor
    except OSError as error:
        stop(1, f"cannot log to {settings.file}: {error.strerror}; name another file with --log-file or log.file")


@contextmanager
def log_filter(logger: str, keep: Callable[[logging.LogRecord], bool]) -> Iterator[None]:
    """Drop the other records of a logger for the duration of the context."""
    log = logging.getLogger(logger)
    log.addFilter(keep)
    try:
        yield
    finally:
        log.removeFilter(keep)


@contextmanager
def plugins_on_stderr() -> Iterator[TextIO]:
    """Send what plugins print to stderr. Yield the original stdout, for the results of the command."""
    out = sys.stdout
    with redirect_stdout(sys.stderr):
        yield out


def programs_folder(config: str | None) -> Path:
    """Return the folder of saved programs. Nothing of the configuration is used but its place."""
    from codemode_mcp.catalog.saved_programs.folder import folder_of
    from codemode_mcp.cli.deciding import find

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


# Selects the servers that a command needs, so that it starts no others.


_ANY_SERVER: Final = re.compile(r"\b(?:API|tools|programs|resources|prompts|globalThis|eval|Function|call)\b|\$api|\\u")
"""Words with which a program may reach servers that its text does not name."""

_NAME: Final = re.compile(r"(?<![\w$.])([A-Za-z_$][\w$]*)(\s*[.(])?")
_FUNCTION: Final = re.compile(r"(?<![\w$.])([A-Za-z_$][\w$]*)\s*\([^()]*\)\s*\{")
"""A function or method that is declared; a call is not followed by a brace."""

_MCP_NAME: Final = "mcp__"


def configured(config: Config, *, in_programs: bool = False) -> dict[str, str]:
    """Return the names of all enabled servers, by their identifiers in programs and by the names themselves.

    Args:
        in_programs: what counts if the name of a server is the identifier of another one: True for the identifier,
            False for the name.
    """
    from codemode_mcp.base.paths import state_dir
    from codemode_mcp.rules.trust.pins_file import PinsFolder

    names = [spec.name for spec in config.upstreams]
    enabled = tuple(dict.fromkeys((*config.enabled, *names)))
    identifier_of = PinsFolder(state_dir() / "pins", config.path).server_names(enabled, config.disabled)
    by_identifier, by_name = {identifier_of[name]: name for name in names}, {name: name for name in names}
    return by_name | by_identifier if in_programs else by_identifier | by_name


def with_servers(config: Config, wanted: Collection[str], *, called: bool) -> Config:
    """Return the configuration with these servers only. End the command for an unknown name.

    Args:
        called: whether the servers are about to be called. Then each is started, even if its list of tools is kept.
    """
    known = configured(config)
    for name in wanted:
        if name not in known:
            stop(2, f"--server: {unknown_server(name, config)}")
    return narrowed(config, {known[name] for name in wanted}, called=called)


def unknown_server(name: str, config: Config) -> str:
    if name in config.disabled:
        return f"server {name!r} is disabled; codemode-mcp enable {shlex.quote(name)} enables it"
    return f"there is no server {name!r}; {server_suggestion(name, config)}"


def server_suggestion(name: str, config: Config) -> str:
    return suggestion(name, configured(config), [spec.name for spec in config.upstreams])


def for_program(config: Config, source: str, language: Language | None) -> Config:
    """Return the configuration with only the servers that a program names, if its text names all that it can reach.

    Servers that its saved programs name count as well.
    """
    from codemode_mcp.base.errors import CodeModeError
    from codemode_mcp.program.preflight import inspect

    if _ANY_SERVER.search(source):
        return config
    try:
        found = inspect(source, language or "javascript")
    except CodeModeError:
        return config
    if found.broken or found.servers is None or (not found.servers and _calls_unknown_names(source, config)):
        return config
    return of_names(config, saved_programs_of(config).servers_in(source, found.servers))


def of_names(config: Config, named: Collection[str] | None) -> Config:
    """Return the configuration with only the servers with these names in programs, if all of them are known."""
    known = configured(config, in_programs=True)
    if named is None or not all(name in known for name in named):
        return config
    others = (name for key, name in known.items() if key != name and is_displaced(name, key, "server"))
    if any(identifiers([name], kind="server")[name] in named for name in others):
        return config  # the answer names the other server, which would have this name too
    return narrowed(config, {known[name] for name in named}, called=True)


def saved_programs_of(config: Config) -> Library:
    from codemode_mcp.catalog.saved_programs.folder import EMPTY, folder_of, read_folder

    folder = folder_of(config.path)
    return EMPTY if folder is None else read_folder(folder)


def _calls_unknown_names(source: str, config: Config) -> bool:
    """Return True if a program calls a name that it does not declare, such as a tool's name without its server.

    The error for it names the expression to write instead, which needs the tools of all servers. With plugins, which
    may add any global, only names of servers count.
    """
    declared = set(_FUNCTION.findall(source))
    called: set[str] = set()
    for name, use in _NAME.findall(source):
        (called if use else declared).add(name)
    called -= declared | HOST_GLOBALS | LANGUAGE_GLOBALS | RESERVED_WORDS
    if not config.plugins:
        return bool(called)
    return any(name in configured(config) or name.startswith(_MCP_NAME) for name in called)


def narrowed(config: Config, names: Collection[str], *, called: bool) -> Config:
    others = tuple(spec.name for spec in config.upstreams if spec.name not in names)
    upstreams = tuple(spec for spec in config.upstreams if spec.name in names)
    if called:
        upstreams = tuple(replace(spec, start="eager") for spec in upstreams)
    return replace(config, upstreams=upstreams, left_out=(*config.left_out, *others))
