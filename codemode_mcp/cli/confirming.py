"""Ask a person once before a configuration of the working directory is obeyed.

A file that lies there can be exchanged between two looks at it, and while a person thinks about the question. So a
command decides on the very content that it uses: `trust.Gate` notes which file was found, and decides once it is read.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Final

from codemode_mcp.cli.shared import fitted, harmless, say, say_command

if TYPE_CHECKING:
    from pathlib import Path

SHOWN: Final = 100
"""Lines of what a configuration starts that a question shows."""

MAX_LINE: Final = 1000
"""Characters of one of them. Blanks, which could push the rest out of sight, are joined before."""


def admit(path: Path) -> None:
    """Admit a configuration that was found in the working directory, for a command that does not load it.

    Raises:
        ConfigError: it is not confirmed, or another user's.
    """
    from codemode_mcp.config.load import check_owner
    from codemode_mcp.config.source import SourceError, parse, read_file

    try:
        text, about = read_file(path)
        value = parse(text)
    except SourceError:
        return  # what reads the configuration refuses it, and nothing starts
    check_owner(path, about)
    ask(path, value)


def ask(path: Path, value: object) -> None:
    """Admit a configuration that was found in the working directory, and not named.

    A person at a terminal is asked, once for each path and content. Elsewhere nothing is asked and nothing admitted.

    Raises:
        NotConfirmedError: it is not confirmed. The message says how to name it.
    """
    from codemode_mcp.cli.terminal import forget_typed, is_at_terminal
    from codemode_mcp.config import trust

    folder = _folder()
    if trust.is_confirmed(path, value, folder):
        return
    if not is_at_terminal():
        raise _refusal(path)
    say(f"{path} was found in the working directory. You have not used it before as it is now. It starts, as you:")
    _show(trust.named(value))
    forget_typed()
    sys.stderr.write(fitted("Type yes if you have read it and trust it; anything else: no. ") + "\n> ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().casefold() not in ("yes", "y"):
        raise _denial(path)
    try:
        trust.confirm(path, value, folder)
    except OSError as error:
        say(f"your answer could not be kept in {folder}: {error.strerror}; you will be asked again")


def refuse_unknown(path: Path, value: object) -> None:
    """Admit a configuration of the working directory only where a person has confirmed it; ask nothing.

    Raises:
        NotConfirmedError: it is not confirmed.
    """
    from codemode_mcp.config import trust

    if not trust.is_confirmed(path, value, _folder()):
        raise _refusal(path)


def _folder() -> Path:
    from codemode_mcp.paths import state_dir

    return state_dir() / "confirmed"


def _show(lines: list[str]) -> None:
    from codemode_mcp.control.display import cut

    for line in lines[:SHOWN]:
        say_command(cut(line, MAX_LINE))
    if len(lines) > SHOWN:
        say_command(f"and {len(lines) - SHOWN} more")


def _refusal(path: Path) -> Exception:
    from codemode_mcp.config.trust import NotConfirmedError

    shown = harmless(str(path))
    return NotConfirmedError(
        f"{shown} was found in the working directory, and you have not confirmed it as it is now; a configuration "
        "starts programs as you",
        f"read it, then name it with {_option(shown)}, or give the command at a terminal, which asks you once",
    )


def _denial(path: Path) -> Exception:
    from codemode_mcp.config.trust import NotConfirmedError

    shown = harmless(str(path))
    return NotConfirmedError(
        f"nothing of {shown} was started",
        f"another configuration is named with --config FILE; this one, once you trust it, with {_option(shown)}",
    )


def _option(shown: str) -> str:
    return f"--config {shlex.quote(shown)}"
