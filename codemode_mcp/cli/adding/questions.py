"""Questions to the person at the terminal. What was typed before a question is no answer to it."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from codemode_mcp.cli.adding.proposal import Answers
from codemode_mcp.cli.messages import say_line, stop_line
from codemode_mcp.cli.terminal import forget_typed
from codemode_mcp.control.display import cut, exact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from codemode_mcp.cli.adding.proposal import Setting

MAX_ANSWER: Final = 4000
"""Characters of an answer. A terminal drops the rest of a line of more than 4,095 bytes."""

MAX_TEXT: Final = 300
"""Characters of a description, a default or the choices in a question."""

_WORDS: Final = {"env": "the variable", "headers": "the header", "args": "the argument"}


def ask_all(settings: Sequence[Setting], given: Mapping[Setting, str]) -> Answers:
    """Ask for the value of each setting. End the command if a required one stays empty.

    Args:
        given: values that the command line has already.
    """
    plain: dict[Setting, str] = {}
    secret: dict[Setting, str] = {}
    for setting in settings:
        value = given[setting] if setting in given else _ask(setting)
        if value:
            (secret if setting.secret else plain)[setting] = value
    return Answers(plain, secret)


def ask_yes(question: str) -> bool:
    """Return True if the person types yes."""
    say_line(f"{question} Type yes; anything else: no.")
    return _typed().casefold() in ("yes", "y")


def _ask(setting: Setting) -> str:
    if setting.table == "auth":
        name, about = cut(setting.title, 100), ""
    else:
        name = f"{_WORDS[setting.table]} {cut(setting.name, 60)}"
        about = f": {cut(exact(setting.description), MAX_TEXT)}" if setting.description else ""
    how = "it is not shown while you type" if setting.secret else ""
    if setting.choices:
        how = f"one of {cut(exact(', '.join(setting.choices)), MAX_TEXT)}"
    if setting.default is not None:
        how += f"{'; ' if how else ''}empty for {cut(exact(setting.default), MAX_TEXT)}"
    elif not setting.required:
        how += f"{'; ' if how else ''}empty for none"
    while True:
        say_line(f"Value of {name}{about}{f' ({how})' if how else ''}")
        value = (_typed_hidden() if setting.secret else _typed()) or setting.default or ""
        if len(value.encode()) > MAX_ANSWER:
            stop_line(
                1,
                f"the value of {name} is too long for a terminal; nothing was added; store it with keyring set "
                "codemode-mcp NAME, and write the entry by hand",
            )
        if value and not value.isprintable():
            say_line("That has characters that cannot be printed; type it again.")
        elif setting.choices and value and value not in setting.choices:
            say_line("That is not one of these values; type it again.")
        elif not value and setting.required:
            stop_line(1, f"{name} is needed, and has no value; nothing was added")
        else:
            return value


def _typed() -> str:
    forget_typed()
    sys.stderr.write("> ")
    sys.stderr.flush()
    return sys.stdin.readline().strip()


def _typed_hidden() -> str:
    if sys.platform == "win32":
        import getpass

        return getpass.getpass("> ").strip()
    with _without_echo():
        value = _typed()
    sys.stderr.write("\n")
    return value


@contextmanager
def _without_echo() -> Iterator[None]:
    # Not `getpass`, which reads from another terminal if standard input is not that of the session.
    import termios

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    hidden = [*before]
    hidden[3] = before[3] & ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSAFLUSH, hidden)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
