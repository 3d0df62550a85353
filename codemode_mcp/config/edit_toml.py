"""Changes to tables of TOML. Everything else in the text stays as it is. Pure.

TOML consists of headers `[a.b]` and statements `a.b = value`, which may take several lines. A table is added at the end
of the text, where a new header is always allowed. A table is removed by dropping its headers and statements, and those
of its sub-tables.

No library for round trips is used. These libraries treat a comment above a header as part of the table before it, and
would drop the comment together with that table.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from codemode_mcp.config.edit_members import change_members, newline_of
from codemode_mcp.config.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_PART = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}|'
    r"'''(?:[^']|'(?!''))*'{3,5}|"
    r'"(?:[^"\\\n]|\\.)*"|'
    r"'[^'\n]*'|#[^\n]*|[\[\]{}]|\n|[^\"'#\[\]{}\n]+",
    re.DOTALL,
)
_LINE_OF_ERROR = re.compile(r"\(at (line \d+, column \d+|end of document)\)")


def parse(text: str) -> dict[str, Any]:
    """Return the tables of a text.

    Raises:
        SourceError: the text is not TOML. The message names the line, and quotes nothing.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = _LINE_OF_ERROR.search(str(error))
        raise SourceError(f"is not valid TOML{': ' + where[1] if where else ''}") from None
    except RecursionError:
        raise SourceError("is nested too deeply") from None


def with_members(text: str, keys: Sequence[str], members: Mapping[str, object], without: Collection[str] = ()) -> str:
    """Return the text whose table at `keys` has these tables as members, and none of `without`.

    Raises:
        SourceError: the text is not TOML, has another value at `keys`, or cannot be changed safely.
    """
    return change_members(text, keys, members, without, parse=parse, change=_changed, noun="a table")


def member_text(keys: Sequence[str], name: str, value: object) -> str:
    """Return one table as TOML, with a header for it and for each table in it."""
    return "\n".join(_table((*keys, name), value)) + "\n"


def _changed(text: str, keys: Sequence[str], put: Mapping[str, object], drop: Collection[str]) -> str:
    for name in (*drop, *put):
        text = _removed(text, (*keys, name))
    if not put:
        return text
    newline = newline_of(text)
    added = "\n".join(member_text(keys, name, value) for name, value in put.items()).replace("\n", newline)
    before = text if not text or text.endswith("\n") else text + newline
    blank = newline if before.strip() and not before.endswith((newline * 2, "\n\n")) else ""
    return before + blank + added


def _table(keys: Sequence[str], value: object) -> Iterator[str]:
    assert isinstance(value, dict)
    tables = {key: each for key, each in value.items() if isinstance(each, dict)}
    rest = {key: each for key, each in value.items() if key not in tables}
    if rest or not tables:
        yield f"[{'.'.join(map(_key, keys))}]"
        for key, each in rest.items():
            yield f"{_key(key)} = {_value(each)}"
    for key, each in tables.items():
        if rest:
            yield ""
        yield from _table((*keys, key), each)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _value(key)


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            # A JSON string is also a basic string of TOML, except for DEL and halves of surrogate pairs.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
        case list():
            return "[" + ", ".join(map(_value, value)) + "]"
        case dict():
            return "{ " + ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items()) + " }"
        case int() | float():
            return repr(value)
    return _value(str(value))  # a date, which no server entry has


@dataclass(frozen=True, slots=True)
class _Statement:
    """A header or an assignment.

    Attributes:
        begin: where the first line of the statement begins.
        end: where the line after the statement begins.
        keys: the full dotted key.
    """

    begin: int
    end: int
    keys: tuple[str, ...]
    is_header: bool


def _statements(text: str) -> Iterator[_Statement]:
    """Yield the statements of a text. The text was parsed before, so it is valid TOML."""
    table: tuple[str, ...] = ()
    at = 0
    while True:
        blank = _BLANK.match(text, at)
        assert blank is not None
        begin = blank.end()
        if begin >= len(text):
            return
        is_header = text[begin] == "["
        end = _end(text, begin, nested=not is_header)
        line = text[begin:end]
        keys = _keys(tomllib.loads(line), is_header=is_header)
        if is_header:
            table = keys
        yield _Statement(text.rfind("\n", 0, begin) + 1, end, keys if is_header else (*table, *keys), is_header)
        at = end


def _end(text: str, at: int, *, nested: bool) -> int:
    """Return where the line after a statement begins."""
    depth = 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            return len(text)
        at = part.end()
        if part[0] == "\n" and (depth == 0 or not nested):
            return at
        depth += (part[0] in ("[", "{")) - (part[0] in ("]", "}"))
    return at


def _keys(value: object, *, is_header: bool) -> tuple[str, ...]:
    """Return the dotted key of a statement. `value`: the statement, parsed alone, as nested objects of one member."""
    keys: list[str] = []
    while isinstance(value, dict) and len(value) == 1:
        key, value = next(iter(value.items()))
        keys.append(key)
        if isinstance(value, list) and is_header:
            value = value[0]
    return tuple(keys)


def _removed(text: str, keys: tuple[str, ...]) -> str:
    """Return the text without the statements of a table and its sub-tables."""
    statements = list(_statements(text))
    pieces: list[str] = []
    at = 0
    for number, each in enumerate(statements):
        if each.keys[: len(keys)] != keys:
            continue
        previous = statements[number - 1] if number else None
        inside = previous is not None and previous.keys[: len(keys)] == keys
        # Comments inside the table are removed with it. Comments before and after it stay.
        pieces.append("" if inside and not each.is_header else text[at : each.begin])
        at = each.end
    pieces.append(text[at:])
    kept = ""
    for piece in pieces:
        if kept.endswith(("\n\n", "\n\r\n")) or not kept:
            # Where the removal leaves two blank lines, keep one.
            piece = re.sub(r"\A(?:[ \t]*\r?\n)+", "", piece) if kept or pieces[0] != piece else piece
        kept += piece
    return kept if text.endswith(("\n\n", "\n\r\n")) else re.sub(r"(\r?\n)(?:[ \t]*\r?\n)+\Z", r"\1", kept)
