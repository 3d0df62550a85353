"""The format of values, as in Node: on one line if they fit, and shortened if they are long. Pure.

A line consists of parts, each with a style and a text. The caller chooses a colour for each style. Texts of programs
and servers are escaped, except for line ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, Literal

from codemode_mcp.base.display import columns, plain
from codemode_mcp.program.syntax import LINE_END

Style = Literal["", "string", "number", "special", "dim", "error"]
Part = tuple[Style, str]

MAX_LINES: Final = 40
"""Maximum number of lines that are shown of one value."""

MAX_ITEMS: Final = 100
"""Maximum number of items that are shown of one array or object."""

MAX_TEXT: Final = 2_000
"""Maximum number of characters that are shown of one string."""

MAX_DEPTH: Final = 30
"""Maximum number of levels that are shown of one value."""

_NAME: Final = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)


def shown(value: Any, width: int) -> tuple[list[list[Part]], bool]:
    """Return the lines of a value, and True if something was left out."""
    lines: list[list[Part]] = [[]]
    cut = False
    for part in _written(value, max(width, 20), 0, 0):
        if part is None:
            cut = True
        elif part[1] == "\n":
            if len(lines) == MAX_LINES:
                return lines, True
            lines.append([])
        else:
            lines[-1].append(part)
    return lines, cut


def _written(value: Any, width: int, indent: int, depth: int) -> Iterator[Part | None]:
    """Yield the parts of a value, and None where something is left out."""
    is_list = isinstance(value, list)
    if not isinstance(value, dict | list) or not value:
        yield _scalar(value)
        if isinstance(value, str) and len(value) > MAX_TEXT:
            yield None
            yield "dim", f"… {len(value) - MAX_TEXT:,} more characters"
        return
    opening, closing = ("[", "]") if is_list else ("{", "}")
    if depth == MAX_DEPTH:
        yield None
        yield "dim", f"{opening}…{closing}"
        return
    line = _on_one_line(value, width - indent)
    if line is not None:
        yield from line
        return
    yield "", opening
    if isinstance(value, list) and not any(isinstance(each, dict | list) and each for each in value[:MAX_ITEMS]):
        yield from _filled(value[:MAX_ITEMS], width, indent + 2, more=len(value) > MAX_ITEMS)
        items = []
    else:
        items = list(islice(value.items() if isinstance(value, dict) else enumerate(value), MAX_ITEMS))
    for number, (key, item) in enumerate(items):
        yield "", "\n"
        yield "", " " * (indent + 2) + ("" if is_list else f"{_key(key)}: ")
        yield from _written(item, width, indent + 2, depth + 1)
        if number < len(value) - 1:
            yield "", ","
    if len(value) > MAX_ITEMS:
        yield None
        yield "", "\n"
        yield "dim", f"{' ' * (indent + 2)}… {len(value) - MAX_ITEMS:,} more"
    yield "", "\n"
    yield "", " " * indent + closing


def _filled(items: list[Any], width: int, indent: int, *, more: bool) -> Iterator[Part | None]:
    used = width
    for number, item in enumerate(items):
        part = _scalar(item)
        size = columns(part[1]) + 2
        if used + size > width:
            yield "", "\n"
            yield "", " " * indent
            used = indent
        used += size
        yield part
        if isinstance(item, str) and len(item) > MAX_TEXT:
            yield None
            yield "dim", "…"
        if more or number < len(items) - 1:
            yield "", ", "


def _on_one_line(value: Any, room: int) -> list[Part] | None:
    found: list[Part] = []
    left = [room]

    def add(value: Any, depth: int) -> bool:
        if isinstance(value, str) and len(value) > left[0]:
            return False
        if not isinstance(value, dict | list) or not value:
            return put(*_scalar(value))
        # As in Node, a value with more levels takes several lines.
        if depth > 2 or len(value) > room:
            return False
        is_list = isinstance(value, list)
        if not put("", "[ " if is_list else "{ "):
            return False
        pairs: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else enumerate(value)
        for number, (key, item) in enumerate(pairs):
            if number and not put("", ", "):
                return False
            if not is_list and not put("", f"{_key(key)}: "):
                return False
            if not add(item, depth + 1):
                return False
        return put("", " ]" if is_list else " }")

    def put(style: Style, text: str) -> bool:
        left[0] -= columns(text)
        found.append((style, text))
        return left[0] > 0

    return found if add(value, 0) else None


def _scalar(value: Any) -> Part:
    match value:
        case str():
            return "string", quoted(value[:MAX_TEXT])
        case None | bool():
            return "special", json.dumps(value)
        case int() | float():
            return "number", json.dumps(value)
    return "", "[]" if isinstance(value, list) else "{}"


def _key(key: str) -> str:
    return key if _NAME.fullmatch(key) else quoted(key[:MAX_TEXT])


def quoted(text: str) -> str:
    """Return a string as a JavaScript literal. If possible, use quotes that the string does not contain."""
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    mark = next((each for each in ("'", '"', "`") if each not in text), "'")
    escaped = escaped.replace("'", "\\'") if mark == "'" and "'" in text else escaped
    return mark + plain(escaped, right_to_left=True) + mark


def lines_of(text: str) -> str:
    """Return a text of several lines with line ends kept and other characters that move the cursor escaped."""
    if text.isascii() and text.isprintable():
        return text
    return "\n".join(plain(line.expandtabs(8), right_to_left=True) for line in re.split(r"\r\n|\n", text))


def pointed(source: str, line: int, column: int, width: int) -> list[str]:
    """Return the line of a program that has an error, and a line that marks the column."""
    lines = LINE_END.split(source)
    if not 1 <= line <= len(lines):
        return []
    whole = lines[line - 1]
    at = max(0, min(column - 1, len(whole)))
    begin = max(0, at - width // 2)
    before, rest = plain(whole[begin:at].replace("\t", " ")), plain(whole[at : begin + width - 4].replace("\t", " "))
    return [f"  {before}{rest}", f"  {' ' * columns(before)}^"]
