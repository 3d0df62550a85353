"""Divergences: the first point at which a replay differs from its recording, in words. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.json_text import json_text
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DIFFERENCES: Final = 8
"""Maximum number of differences that are shown."""

MAX_PLACES: Final = 3
"""Maximum number of positions that are named."""

SHOWN: Final = 160
"""Maximum characters that are shown of a value."""

_ABSENT: Final = object()

_BLOCK_COMMENT: Final = re.compile(r"^[ \t]*/\*.*?\*/", re.DOTALL | re.MULTILINE)
"""A comment that begins a line, such as the one before a saved program, which may name tools."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference between a replay and its recording.

    Attributes:
        what: a sentence about the difference.
        differences: lines that show the recorded and the actual value of each part that differs.
        places: positions in the program that may have made the call, such as `cell.js:3:9`.
    """

    what: str
    differences: tuple[str, ...] = ()
    places: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = [f"at {' or '.join(self.places)}"] if self.places else []
        return "\n".join([self.what, *(f"  {each}" for each in (*self.differences, *where))])


def places_of(expression: str, source: str, file: str) -> tuple[str, ...]:
    """Return the positions of an expression such as `MCP.github.listIssues` in a program; none if there are many."""
    names = r"\s*\.\s*".join(map(re.escape, expression.split(".")))
    source = _BLOCK_COMMENT.sub(_blank, source)
    found = [match.start() for match in re.finditer(rf"(?<![\w$.]){names}(?![\w$])", source)]
    if len(found) > MAX_PLACES:
        return ()
    lines = [(source.count("\n", 0, at) + 1, at - source.rfind("\n", 0, at)) for at in found]
    return tuple(f"{file}:{line}:{column}" for line, column in lines)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def differences(recorded: Any, actual: Any) -> tuple[str, ...]:
    """Return a line for each part in which two JSON values differ, at most `MAX_DIFFERENCES` and one that counts."""
    try:
        found = list(_differing(recorded, actual, ""))
    except RecursionError:
        return ("the values are nested too deep to show where they differ",)
    lines = [f"{path or 'value'}: recorded {_shown(old)}, now {_shown(new)}" for path, old, new in found]
    if len(lines) > MAX_DIFFERENCES:
        lines[MAX_DIFFERENCES:] = [f"and {len(lines) - MAX_DIFFERENCES} more differences"]
    return tuple(lines)


def _differing(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            inner = f"{path}.{key}" if key.isidentifier() else f"{path}[{json_text(key)}]"
            yield from _differing(old.get(key, _ABSENT), new.get(key, _ABSENT), inner.removeprefix("."))
        if list(old) != list(new) and old == new:
            yield path, list(old), list(new)  # only the order of the keys differs
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            before = old[index] if index < len(old) else _ABSENT
            after = new[index] if index < len(new) else _ABSENT
            yield from _differing(before, after, f"{path}[{index}]")
    elif isinstance(old, str) and isinstance(new, str) and old != new:
        at = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        start = max(0, at - 40)
        yield (
            (path, old, new) if start == 0 else (f"{path or 'value'} from character {start}", old[start:], new[start:])
        )
    elif old is not new and (type(old) is not type(new) or old != new):
        yield path, old, new


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = escape_line(json_text(value))
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"
