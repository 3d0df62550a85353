"""Ask a person once before a configuration of the working directory is obeyed."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Final

from codemode_mcp.cli.shared import fitted, harmless, say, say_command

if TYPE_CHECKING:
    from pathlib import Path

SHOWN: Final = 20
"""Lines of what a configuration starts that a question shows."""

MAX_LINE: Final = 200


def admit(path: Path) -> None:
    """Admit a configuration that was found in the working directory, and not named.

    A person at a terminal is asked, once for each path and content. Elsewhere nothing is asked and nothing admitted.

    Raises:
        NotConfirmedError: nobody has confirmed it. The message says how to name it.
    """
    from codemode_mcp.cli.terminal import forget_typed, is_at_terminal
    from codemode_mcp.config import trust

    if _is_known(path):
        return
    if not is_at_terminal():
        raise _refusal(path)
    value, folder = _read(path), _folder()
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


def refuse_unknown(path: Path) -> None:
    """Admit a configuration of the working directory only where a person has confirmed it; ask nothing.

    Raises:
        NotConfirmedError: nobody has.
    """
    if not _is_known(path):
        raise _refusal(path)


def _is_known(path: Path) -> bool:
    from codemode_mcp.config import trust
    from codemode_mcp.config.source import SourceError

    try:
        value = _read(path)
    except SourceError:
        return True  # the reader of the configuration refuses it, and nothing starts
    return trust.is_confirmed(path, value, _folder())


def _read(path: Path) -> object:
    from codemode_mcp.config.source import parse, read_text

    value: object = parse(read_text(path))
    return value


def _folder() -> Path:
    from codemode_mcp.app import state_dir

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
