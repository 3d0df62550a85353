"""Questions to the person at the terminal: decisions, and the confirmation of a configuration file."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from codemode_mcp.cli.messages import escape, say, say_command, say_line, stop_line, wrap
from codemode_mcp.cli.terminal import forget_typed, is_at_terminal

_MAX_ANSWER: Final = 200
_DIGITS: Final = "0123456789"


def require_person(command: str) -> None:
    """End the command unless a person is at the terminal.

    Neither piped input nor a program that one of our upstream servers started may decide.

    Args:
        command: the command for messages, such as `runs approve`.
    """
    refuse_to_children(command)
    if not is_at_terminal():
        stop_line(1, f"{command} needs a terminal, and a person at it who confirms; nothing was decided; run it in one")


def refuse_to_children(command: str) -> None:
    """End the command if a program runs it that one of our upstream servers has started."""
    from codemode_mcp.base.nesting import DEPTH_VARIABLE

    if DEPTH_VARIABLE in os.environ:
        stop_line(
            1,
            f"{command} is not for programs started by a server behind codemode-mcp; nothing was done; use a "
            "terminal of your own",
        )


def confirm(verb: str, what: str) -> None:
    """Have the person type a code that is shown only now. End the command if something else is typed."""
    import secrets

    answer = f"{verb} {''.join(secrets.choice(_DIGITS) for _ in range(4))}"
    forget_typed()
    say_line(f"To {verb} {what}, type: {answer}")
    sys.stderr.write("> ")
    sys.stderr.flush()
    try:
        typed = sys.stdin.readline(_MAX_ANSWER)
    except KeyboardInterrupt:
        typed = ""
    if " ".join(typed.split()) != answer:
        stop_line(1, "that was not the code; nothing was decided; run the command again to be asked again")


# Asks a person once before a configuration from the working directory is used.
#
# The file could be replaced between two reads, and while the person thinks. So the decision is about exactly the
# content that the command uses: `confirmation.Gate` notes which file was found, and decides after it is read.


MAX_LINES: Final = 100
"""Programs of a configuration that a question shows."""

MAX_LINE: Final = 1000
"""Characters of the line about one program. Runs of blanks are shortened: they could push the rest out of sight."""


def find(config: str | None, admit: Callable[[Path], None]) -> Path | None:
    """Return the path of the configuration for a command: a named one, or that of the working directory or the user.

    Args:
        admit: called with the path of a configuration that was found in the working directory.

    Raises:
        ConfigError: the named file does not exist, or the configuration is not admitted.
    """
    from codemode_mcp.base.paths import config_dir
    from codemode_mcp.config import find_config

    return find_config(config, environ=os.environ, cwd=Path.cwd(), user_config_dir=config_dir(), admit=admit)


def admit(path: Path) -> None:
    """Admit a configuration that was found in the working directory, for a command that does not load it.

    Raises:
        ConfigError: it is not confirmed, or belongs to another user.
    """
    from codemode_mcp.base.config_path import check_owner
    from codemode_mcp.config.source import SourceError, parse, read_file

    try:
        text, about = read_file(path)
        value = parse(text)
    except SourceError:
        return  # it is refused where it is loaded, and nothing starts
    check_owner(path, about)
    ask(path, value)


def ask(path: Path, value: object) -> None:
    """Admit a configuration that was found in the working directory and not named by the user.

    A person at a terminal is asked once for each path and content. Without a terminal it is refused.

    Raises:
        NotConfirmedError: it is not confirmed. The message says how to name it.
    """
    from codemode_mcp.base.display import cut, exact
    from codemode_mcp.config import confirmation

    folder = _folder()
    if confirmation.is_confirmed(path, value, folder):
        return
    if not is_at_terminal():
        raise _refusal(path)
    say(f"{path} was found in the working directory. You have not used its current content before. It starts, as you:")
    programs = confirmation.described_parts(value)
    for line in programs[:MAX_LINES]:
        say_command(cut(exact(line), MAX_LINE))
    if len(programs) > MAX_LINES:
        say_command(f"and {len(programs) - MAX_LINES} more")
    forget_typed()
    sys.stderr.write(wrap("Type yes if you have read it and trust it; anything else: no. ") + "\n> ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().casefold() not in ("yes", "y"):
        raise confirmation.NotConfirmedError(
            f"nothing of {escape(str(path))} was started",
            f"to use another configuration, name it with --config FILE; to use this one, once you trust it, add "
            f"{_option(path)}",
        )
    try:
        confirmation.confirm(path, value, folder)
    except OSError as error:
        say(f"your answer could not be stored in {folder}: {error.strerror}; you will be asked again")


def refuse_unknown(path: Path, value: object) -> None:
    """Admit a configuration of the working directory only if a person has confirmed it; ask nothing.

    Raises:
        NotConfirmedError: it is not confirmed.
    """
    from codemode_mcp.config import confirmation

    if not confirmation.is_confirmed(path, value, _folder()):
        raise _refusal(path)


def is_confirmed(path: Path, value: object) -> bool:
    """Return True if a person has confirmed the content of a configuration of the working directory."""
    from codemode_mcp.config import confirmation

    return confirmation.is_confirmed(path, value, _folder())


def confirm_changed(path: Path, value: object) -> None:
    """Confirm a configuration of the working directory after a person has changed it by a command.

    If the confirmation cannot be stored, the person is asked again.

    Args:
        value: the value of the file that the command has written. The file itself may have been replaced since.
    """
    from contextlib import suppress

    from codemode_mcp.config import confirmation

    with suppress(OSError):
        confirmation.confirm(path, value, _folder())


def _folder() -> Path:
    from codemode_mcp.base.paths import state_dir

    return state_dir() / "confirmed"


def _refusal(path: Path) -> Exception:
    from codemode_mcp.config.confirmation import NotConfirmedError

    return NotConfirmedError(
        f"{escape(str(path))} was found in the working directory, and you have not confirmed its current content; a "
        "configuration starts programs as you",
        f"read it, then name it with {_option(path)}, or give the command at a terminal, which asks you once",
    )


def _option(path: Path) -> str:
    return f"--config {shlex.quote(escape(str(path)))}"
