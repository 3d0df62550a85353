"""Decisions of a person at a terminal. Neither piped input nor a program of a server can make them."""

from __future__ import annotations

import os
import sys
from typing import Final

from codemode_mcp.cli.messages import say_line, stop_line
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
    from codemode_mcp.nesting import DEPTH_VARIABLE

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
