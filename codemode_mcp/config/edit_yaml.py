"""Changes to the members of a mapping in YAML. Everything else in the text stays as it is.

A parser finds the lines of each member, and only these lines change. No library for round trips is used, because it
would indent and wrap the whole file in its own way. A mapping on one line (`{...}`) or with anchors is refused.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from codemode_mcp.config.edit_members import change_members, newline_of, not_changeable
from codemode_mcp.config.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
"""Strings that need no quotes, apart from `_WORDS`."""

_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))
"""Words that are not strings in YAML 1.1 or 1.2, unless they are quoted."""


_UNPRINTABLE = re.compile(r"[^\t\n -~\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u2028\u2029\ufeff]")
"""Characters that JSON allows in a string and that YAML does not read back unchanged, unless they are escaped.

These are all outside `c-printable` (YAML 1.2.2, 5.1), and those that some parsers take for the end of a line.
"""


def parse(text: str) -> Any:
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


def with_members(text: str, keys: Sequence[str], members: Mapping[str, object], without: Collection[str] = ()) -> str:
    """Return the text whose mapping at `keys` has these members, and none of `without`.

    Args:
        keys: one key; nested mappings are not supported.

    Raises:
        SourceError: the text is not YAML, has another value at `keys`, or cannot be changed safely.
    """
    return change_members(text, keys, members, without, parse=parse, change=_changed, noun="a mapping")


def member_text(name: str, value: object, indent: str = "") -> str:
    """Return one member as lines of YAML."""
    return "\n".join(_lines({name: value}, indent)) + "\n"


def _changed(text: str, keys: Sequence[str], put: Mapping[str, object], drop: Collection[str]) -> str:
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
