"""Helpers of all commands: the configuration, the log, messages, and exit codes.

Exit codes: 0 ok, 1 the thing asked for failed, 2 usage or invalid configuration. Human output goes to stderr where
stdout belongs to MCP (`serve`), else to the terminal.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from codemode_mcp.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from codemode_mcp.audit import Redactor
    from codemode_mcp.config import Config
    from codemode_mcp.settings import LogLevel

COLUMNS = 100
"""Columns of a message in a terminal."""


def load(path: str | None, level: LogLevel | None, file: str | None, *, read_only: bool = False) -> Config:
    from codemode_mcp.cli.confirming import ask
    from codemode_mcp.config import find_config, load_config
    from codemode_mcp.config.trust import Gate, NotConfirmedError
    from codemode_mcp.paths import config_dir

    found, gate = None, Gate(ask)
    try:
        found = find_config(path, environ=os.environ, cwd=Path.cwd(), user_config_dir=config_dir(), admit=gate.find)
        loaded = load_config(found, environ=os.environ, admit=gate.admit)
    except NotConfirmedError as error:
        stop(2, "\n".join(error.problems))
    except ConfigError as error:
        say(f"invalid_config: {found or path}")
        for problem in error.problems:
            say(f"  - {problem}")
        say("Correct the file; codemode-mcp doctor checks it." if found else "Name a file that is there with --config.")
        end(2)
    return with_options(loaded, level, file, read_only=read_only)


def with_options(loaded: Config, level: LogLevel | None, file: str | None, *, read_only: bool) -> Config:
    """Return the configuration with the options of the command line, which win."""
    from dataclasses import replace

    log = loaded.log
    if level is not None:
        log = replace(log, level=level)
    if file is not None:
        log = replace(log, file=file)
    tools = loaded.tools
    if read_only:
        contexts = tuple(replace(each, rules=replace(each.rules, read_only=True)) for each in tools.contexts)
        tools = replace(tools, policy=replace(tools.policy, read_only=True), contexts=contexts)
    return replace(loaded, log=log, tools=tools)


@contextmanager
def logging_as(config: Config, level: LogLevel | None = None) -> Iterator[Redactor]:
    from dataclasses import replace

    from codemode_mcp.audit import Redactor, logging_to

    redactor = Redactor()
    redactor.know(config.secretive)
    settings = config.log if level is None else replace(config.log, level=level)
    try:
        with logging_to(settings, redactor):
            yield redactor
    except OSError as error:
        stop(1, f"cannot log to {settings.file}: {error.strerror}; name another file with --log-file or log.file")


@contextmanager
def plugins_on_stderr() -> Iterator[TextIO]:
    """Send what plugins print to stderr. Yield the stdout that the output of the command goes to."""
    out = sys.stdout
    with redirect_stdout(sys.stderr):
        yield out


def say(text: str) -> None:
    """Print a text for a person to stderr, in lines that fit."""
    print(fitted(harmless(text)), file=sys.stderr)  # noqa: T201


def harmless(text: str) -> str:
    """Lines for a terminal, in which nothing moves the cursor or hides: messages quote programs, servers and files."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    from codemode_mcp.control.display import plain

    return "\n".join("\t".join(plain(part) for part in line.split("\t")) for line in text.split("\n"))


def say_command(text: str) -> None:
    """A command to copy, on a line of its own: folded it would be two."""
    print(f"  {harmless(text)}", file=sys.stderr)  # noqa: T201


def fitted(text: str) -> str:
    """Return the text in lines of at most `COLUMNS`, broken between words; what continues a line is indented under it.

    A word that is longer, such as a path, stays whole: it is there to be copied.
    """
    import textwrap

    lines = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        folded = textwrap.wrap(
            line,
            COLUMNS,
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
            drop_whitespace=True,
        )
        lines += folded or [line]
    return "\n".join(lines)


def stop(code: int, text: str) -> NoReturn:
    say(text)
    end(code)


def end(code: int) -> NoReturn:
    """End the command with an exit code."""
    import typer  # not before: it takes a while, which `serve` does not have

    raise typer.Exit(code) from None
