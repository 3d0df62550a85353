"""Reading and changing files of MCP clients in JSON, TOML or YAML. The rest of a text stays. Pure."""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from codemode_mcp.config import edit_json, source
from codemode_mcp.config.edit_json import change_members, newline_of, not_changeable
from codemode_mcp.config.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import PurePath


# Changes to tables of TOML. Everything else in the text stays as it is.
#
# TOML consists of headers `[a.b]` and statements `a.b = value`, which may take several lines. A table is added at the
# end of the text, where a new header is always allowed. A table is removed by dropping its headers and statements, and
# those of its sub-tables.
#
# No library for round trips is used. These libraries treat a comment above a header as part of the table before it, and
# would drop the comment together with that table.


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


def parse_toml(text: str) -> dict[str, Any]:
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


def toml_with_members(
    text: str, keys: Sequence[str], members: Mapping[str, object], without: Collection[str] = ()
) -> str:
    """Return the text whose table at `keys` has these tables as members, and none of `without`.

    Raises:
        SourceError: the text is not TOML, has another value at `keys`, or cannot be changed safely.
    """
    return change_members(text, keys, members, without, parse=parse_toml, change=_changed_toml, noun="a table")


def toml_member_text(keys: Sequence[str], name: str, value: object) -> str:
    return "\n".join(_table((*keys, name), value)) + "\n"


def _changed_toml(text: str, keys: Sequence[str], put: Mapping[str, object], drop: Collection[str]) -> str:
    for name in (*drop, *put):
        text = _removed(text, (*keys, name))
    if not put:
        return text
    newline = newline_of(text)
    added = "\n".join(toml_member_text(keys, name, value) for name, value in put.items()).replace("\n", newline)
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


class _Statement(Struct, frozen=True):
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


# Changes to the members of a mapping in YAML. Everything else in the text stays as it is.
#
# A parser finds the lines of each member, and only these lines change. No library for round trips is used, because it
# would indent and wrap the whole file in its own way. A mapping on one line (`{...}`) or with anchors is refused.


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
"""Strings that need no quotes, apart from `_WORDS`."""

_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))
"""Words that are not strings in YAML 1.1 or 1.2, unless they are quoted."""


_UNPRINTABLE = re.compile(r"[^\t\n -~\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u2028\u2029\ufeff]")
"""Characters that JSON allows in a string and that YAML does not read back unchanged, unless they are escaped.

These are all outside `c-printable` (YAML 1.2.2, 5.1), and those that some parsers take for the end of a line.
"""


def parse_yaml(text: str) -> Any:
    """Return the value of a text; an empty object if there is no value.

    Raises:
        SourceError: the text is not YAML. The message names the line, and quotes nothing.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    reader = YAML(typ="safe", pure=True)
    try:
        value = reader.load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        raise SourceError(
            f"is not valid YAML{f': line {mark.line + 1}, column {mark.column + 1}' if mark else ''}"
        ) from None
    except YAMLError:
        raise SourceError("is not valid YAML") from None
    except RecursionError:
        raise SourceError("is nested too deeply") from None
    except ValueError:
        raise SourceError("is not valid YAML: a value in it cannot be read") from None
    return {} if value is None else value


def yaml_with_members(
    text: str, keys: Sequence[str], members: Mapping[str, object], without: Collection[str] = ()
) -> str:
    """Return the text whose mapping at `keys` has these members, and none of `without`.

    Args:
        keys: one key; nested mappings are not supported.

    Raises:
        SourceError: the text is not YAML, has another value at `keys`, or cannot be changed safely.
    """
    return change_members(text, keys, members, without, parse=parse_yaml, change=_changed_yaml, noun="a mapping")


def yaml_member_text(name: str, value: object, indent: str = "") -> str:
    return "\n".join(_lines({name: value}, indent)) + "\n"


def _changed_yaml(text: str, keys: Sequence[str], put: Mapping[str, object], drop: Collection[str]) -> str:
    from ruamel.yaml import YAML
    from ruamel.yaml.nodes import MappingNode

    (key,), newline = keys, newline_of(text)
    root = YAML(typ="safe", pure=True).compose(text)
    pairs = root.value if isinstance(root, MappingNode) else []
    outer = next(((k, v) for k, v in pairs if k.value == key), None)
    if outer is None:
        before = text if not text or text.endswith("\n") else text + newline
        return before + "".join(_lines_of({key: put}, "", newline))
    key_node, node = outer
    colon = text.index(":", key_node.end_mark.index) + 1
    if not isinstance(node, MappingNode) or node.flow_style or not node.value:
        if node.value:
            raise not_changeable()
        # `extensions:`, `extensions: {}` or `extensions: null`
        rest, line_end, others = text[max(node.end_mark.index, colon) :].partition("\n")
        return text[:colon] + rest + (line_end or newline) + "".join(_lines_of(put, "  ", newline)) + others
    indent = " " * node.value[0][0].start_mark.column
    begins = [_line_start(text, k.start_mark.index) for k, _ in node.value]
    end = _end_of_member(text, begins[-1], node.value[-1][1].end_mark.index)
    members = zip(node.value, begins, [*begins[1:], end], strict=True)
    spans = {k.value: (begin, _end_of_member(text, begin, until)) for (k, _), begin, until in members}
    pieces: list[str] = []
    at = 0
    for name, (begin, until) in spans.items():
        if name in drop or name in put:
            new = _lines_of({name: put[name]} if name in put else {}, indent, newline)
            pieces.append(text[at:begin] + "".join(new))
            at = until
    if at < end:
        pieces.append(text[at:end])
        at = end
    if pieces and pieces[-1] and not pieces[-1].endswith("\n"):
        pieces.append(newline)
    fresh = {name: each for name, each in put.items() if name not in spans}
    pieces += _lines_of(fresh, indent, newline)
    if len(drop) == len(spans) and not put:
        # Without `{}`, the value of the key would be null.
        pieces[0] = pieces[0][:colon] + " {}" + pieces[0][colon:]
    return "".join(pieces) + text[at:]


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _end_of_member(text: str, begin: int, until: int) -> int:
    """Return where the lines of a member end. Comments and blank lines after the member belong to the next member."""
    lines = text[begin:until].splitlines(keepends=True)
    if text[until - 1 : until] != "\n":
        # The position may be in the middle of the last line, or at the end of the text.
        rest = text[until:].split("\n", 1)
        lines = (text[begin:until] + rest[0] + ("\n" if len(rest) > 1 else "")).splitlines(keepends=True)
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        lines.pop()
    return begin + len("".join(lines))


def _lines_of(members: Mapping[str, object], indent: str, newline: str) -> list[str]:
    return [line + newline for line in _lines(members, indent)]


def _lines(members: Mapping[str, object], indent: str) -> list[str]:
    found: list[str] = []
    for name, value in members.items():
        head = f"{indent}{_scalar(name)}:"
        if isinstance(value, dict) and value:
            found += [head, *_lines(value, indent + "  ")]
        elif isinstance(value, list) and value:
            found += [head, *(f"{indent}  - {_scalar(each)}" for each in value)]
        else:
            found.append(f"{head} {_scalar(value)}")
    return found


def _scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    # JSON is a subset of YAML, apart from some characters.
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


Format = Literal["json", "toml", "yaml"]

_SUFFIXES: Final[Mapping[str, Format]] = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
_PARSERS: Final = {"json": source.parse, "toml": parse_toml, "yaml": parse_yaml}
_EDITORS: Final = {
    "json": edit_json.with_members,
    "toml": toml_with_members,
    "yaml": yaml_with_members,
}


def format_of(path: PurePath) -> Format:
    """Return the format that belongs to the name of a file; JSON for an unknown name."""
    return _SUFFIXES.get(path.suffix.lower(), "json")


def parse(kind: Format, text: str) -> Any:
    """Return the value of a text.

    Raises:
        SourceError: the text is not in this format.
    """
    return _PARSERS[kind](text)


def with_members(
    kind: Format, text: str, keys: Sequence[str], members: Mapping[str, object], without: Collection[str] = ()
) -> str:
    """Return the text whose object at `keys` has these members, and none of `without`. Everything else stays.

    Raises:
        SourceError: the text cannot be changed safely.
    """
    return _EDITORS[kind](text, keys, members, without)


def member_text(kind: Format, keys: Sequence[str], name: str, value: object) -> str:
    match kind:
        case "toml":
            return toml_member_text(keys, name, value).rstrip("\n")
        case "yaml":
            return yaml_member_text(name, value).rstrip("\n")
    return json.dumps({name: value}, ensure_ascii=False, indent=2)
