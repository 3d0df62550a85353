"""Messages of commands to people, and how commands end.

Exit codes: 0 for success, 1 if what was asked for failed, 2 for wrong usage or an invalid configuration. Messages go to
stderr, results to stdout, which belongs to MCP in `serve`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, NoReturn, TextIO

COLUMNS = 100
"""Columns of a message in a terminal."""

MAX_LISTED = 200
"""Characters of the names that a message lists."""


def say(text: str) -> None:
    """Print a message to stderr, in lines that fit."""
    print(wrap(escape(text)), file=sys.stderr)


def say_line(text: str) -> None:
    """Print a message that quotes programs, servers or files. Line breaks in it are escaped too."""
    from codemode_mcp.base.display import plain

    print(wrap(plain(text)), file=sys.stderr)


def say_command(text: str) -> None:
    """Print a command to copy. It stays on one line: wrapped, it would be two commands."""
    print(f"  {escape(text)}", file=sys.stderr)


def escape(text: str) -> str:
    """Escape characters that would move the cursor of a terminal or be invisible. Line breaks stay."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    from codemode_mcp.base.display import plain

    return "\n".join("\t".join(plain(part) for part in line.split("\t")) for line in text.split("\n"))


def wrap(text: str) -> str:
    """Return the text in lines of at most `COLUMNS`, broken between words; continuation lines are indented further.

    A longer word, such as a path, stays whole so that it can be copied.
    """
    import textwrap

    lines = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        wrapped = textwrap.wrap(
            line,
            COLUMNS,
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
        )
        lines += wrapped or [line]
    return "\n".join(lines)


def suggestion(name: str, known: Iterable[str], listed: Iterable[str] | None = None) -> str:
    """Return the end of a message about an unknown name: the names that it may stand for, or the names that exist.

    Args:
        listed: the names that exist, if they are fewer than all that are `known`.
    """
    from codemode_mcp.base.did_you_mean import nearest, normalize_name
    from codemode_mcp.base.display import cut

    known = tuple(known)
    if near := nearest(name, known):
        if normalize_name(near[0]) == normalize_name(name):
            near = near[:1]
        return f"did you mean {' or '.join(repr(cut(each, 60)) for each in near)}?"
    return f"there are: {cut(', '.join(known if listed is None else listed), MAX_LISTED) or 'none'}"


def print_json(value: Any) -> None:
    """Print a result as ASCII JSON."""
    import json

    print(json.dumps(value, ensure_ascii=True, indent=2))


def is_utf8(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "") == "utf8"


def stop(code: int, text: str) -> NoReturn:
    say(text)
    end(code)


def stop_line(code: int, text: str) -> NoReturn:
    """Print a message as `say_line` does, and end the command."""
    say_line(text)
    end(code)


def end(code: int) -> NoReturn:
    import typer  # slow to import, so `serve` does without it until here

    raise typer.Exit(code) from None
