"""The configuration and the log of a command."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from codemode_mcp.cli.messages import end, say, stop
from codemode_mcp.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from codemode_mcp.audit import Redactor
    from codemode_mcp.config import Config
    from codemode_mcp.settings import LogLevel


def load(
    path: str | None, level: LogLevel | None, file: str | None, *, read_only: bool = False, locked: bool = False
) -> Config:
    """Return the configuration of a command, with its options. End the command if there is no valid one."""
    from codemode_mcp.cli.confirming import ask, find
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
    """Return the configuration with the options of the command line, which take precedence."""
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
