"""Changes to JSON with or without comments. Everything else in the text stays as it is. Pure.

Comments, trailing commas, indentation and line ends stay. New members are written in the style of their neighbours. The
result is parsed and compared with the intended value, so that a text is never damaged.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from codemode_mcp.config.edit_members import change_members, newline_of, value_at, verified, with_value
from codemode_mcp.config.json_layout import COMMENT, QUOTED, JsonLayout, line_start
from codemode_mcp.config.source import parse

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from codemode_mcp.config.json_layout import Container

_REST_OF_LINE = re.compile(r"(?:[ \t]*(?://[^\r\n\u2028\u2029]*|/\*(?:[^*\r\n]|\*(?!/))*\*/))*")
"""The comments on the rest of a line. They belong to the text before them."""


def with_members(text: str, keys: Sequence[str], members: Mapping[str, object], without: Collection[str] = ()) -> str:
    """Return the text whose object at `keys` has these members, and none of `without`. Missing objects are created.

    Raises:
        SourceError: the text is not JSON, has another value at `keys`, or cannot be changed safely.
    """
    return change_members(text, keys, members, without, parse=parse, change=_changed)


def with_items(text: str, keys: Sequence[str], items: Sequence[str]) -> str:
    """Return the text whose list at `keys` also has these items. Missing items are added at the end.

    Raises:
        SourceError: the text is not JSON, has another value at `keys`, or cannot be changed safely.
    """
    value = parse(text)
    listed = value_at(value, keys, list, "a list")
    new = [item for item in items if item not in (listed or ())]
    if not new:
        return text
    if listed is None:
        changed = _changed(text, keys[:-1], {keys[-1]: new}, (), inline=True)
    else:
        layout = JsonLayout(text)
        at = layout.skip_blanks(0)
        for key in keys:
            at = next(each.value for each in layout.container(at).members if each.name == key)
        changed = _add(text, layout.container(at), [_dumped(item) for item in new], None)
    return verified(changed, parse, with_value(value, keys, [*(listed or ()), *new]))


@dataclass(frozen=True, slots=True)
class _Style:
    """The style of members that are added to an object.

    Attributes:
        indent: the indentation of members that each have a line; None if all members are on one line.
        unit: the additional indentation of nested members.
        base: the indentation of the line on which the object begins.
        newline: the line end.
        tight: True for `{"a":1,"b":2}`, without spaces.
    """

    indent: str | None
    unit: str
    base: str
    newline: str
    tight: bool

    def member(self, name: str, value: object) -> str:
        return _dumped(name) + (":" if self.tight else ": ") + self.value(value)

    def value(self, value: object) -> str:
        """Return the value of a member in this style."""
        if self.indent is None:
            return _dumped(value, separators=(",", ":") if self.tight else (", ", ": "))
        return _dumped(value, indent=self.unit).replace("\n", self.newline + self.indent)


def _dumped(value: object, **how: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, **how)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which can only be written as an escape
        return json.dumps(value, **how)
    return text


def _changed(
    text: str, keys: Sequence[str], put: Mapping[str, object], drop: Collection[str], *, inline: bool = False
) -> str:
    """Return the text after members of the object at `keys` were set and removed.

    Args:
        inline: write each new value on one line.
    """
    layout = JsonLayout(text)
    containers = [layout.container(layout.skip_blanks(0))]
    for depth, key in enumerate(keys):
        member = next((each for each in containers[-1].members if each.name == key), None)
        if member is None or layout.token(member.value) == "null":
            # Add the first missing object with everything inside it.
            put, drop = {key: with_value({}, keys[depth + 1 :], dict(put))}, ()
            break
        containers.append(layout.container(member.value))
    style = _style(text, containers)
    target = containers[-1]
    # From here on, only the object itself is scanned. The rest of the file may be large.
    piece = text[target.begin : target.close + 1]
    members = {each.name for each in target.members}
    if members and members <= set(drop) and "/" not in re.sub(QUOTED, "", piece, flags=re.DOTALL):
        piece = "{}"  # all members are removed, and there is no comment to keep
    else:
        for name in drop:
            piece = _removed(piece, name)
    for name in [name for name in put if name in members]:
        piece = _replaced(piece, style, name, put[name], inline=inline)
    if new := {name: value for name, value in put.items() if name not in members}:
        written = [
            f"{_dumped(name)}: {_on_one_line(value)}" if inline else style.member(name, value)
            for name, value in new.items()
        ]
        piece = _add(piece, JsonLayout(piece).container(0), written, None if inline else style)
    return text[: target.begin] + piece + text[target.close + 1 :]


def _style(text: str, containers: Sequence[Container]) -> _Style:
    """Return the style of the innermost object that has members."""
    unit = "  "
    for container in reversed(containers):
        base = _line_indent(text, container.begin)
        if container.indent is not None and container.indent.startswith(base) and container.indent != base:
            unit = container.indent[len(base) :]
            break
    target = containers[-1]
    base = _line_indent(text, target.begin)
    shown = next((each for each in reversed(containers) if each.members), None)
    if shown is None or shown.indent is not None:
        indent = base + unit if target.indent is None else target.indent
        return _Style(indent, unit, base, newline_of(text), tight=False)
    first = shown.members[0]
    return _Style(None, unit, base, newline_of(text), tight=text[first.value - 1] == ":")


def _line_indent(text: str, at: int) -> str:
    begin = line_start(text, at)
    return text[begin : begin + len(text[begin:at]) - len(text[begin:at].lstrip(" \t"))]


def _replaced(piece: str, style: _Style, name: str, value: object, *, inline: bool) -> str:
    """Return an object with another value for one of its members.

    Args:
        inline: write the value on one line.
    """
    old = next(each for each in JsonLayout(piece).container(0).members if each.name == name)
    written = _on_one_line(value) if inline else style.value(value)
    if style.indent is not None and old.begin != line_start(piece, old.begin) + len(_line_indent(piece, old.begin)):
        written = _dumped(value)
    return piece[: old.value] + written + piece[old.end :]


def _on_one_line(value: object) -> str:
    """Return a value on one line, with spaces inside braces."""
    if isinstance(value, dict) and value:
        return "{ " + ", ".join(f"{_dumped(key)}: {_on_one_line(item)}" for key, item in value.items()) + " }"
    return _dumped(value)


def _add(text: str, container: Container, members: Sequence[str], style: _Style | None) -> str:
    """Return the text with more members after the last one, in the style of the others.

    Args:
        style: the style for an empty container; None for one line.
    """
    newline = style.newline if style else newline_of(text)
    indent = container.indent if container.members or style is None else style.indent
    if not container.members:
        if indent is None or style is None:
            # The members follow the bracket directly. After a line comment, they would be part of the comment.
            at = container.begin + 1
            return text[:at] + ("," if style is not None and style.tight else ", ").join(members) + text[at:]
        inside = text[container.begin + 1 : container.close]
        at = container.begin + 1 + len(inside.rstrip())
        added = newline + indent + ("," + newline + indent).join(members)
        rest = text[at : container.close]
        if "\n" not in rest and "\r" not in rest:
            rest = newline + style.base
        return text[:at] + added + rest + text[container.close :]
    last = container.members[-1]
    between = newline + indent if indent is not None else "" if style is not None and style.tight else " "
    added = between + ("," + between).join(members)
    at, comma = last.end, ","
    if last.comma is not None:
        # There is a trailing comma, and there will be one after the new members.
        at, comma, added = last.comma + 1, "", added + ","
    after = at if indent is None else _end_of_comments(text, at)
    return text[:at] + comma + text[at:after] + added + text[after:]


def _end_of_comments(text: str, at: int) -> int:
    """Return where the comments on the rest of the line end; `at` if the line has anything else."""
    match = _REST_OF_LINE.match(text, at)
    assert match is not None
    return match.end() if _is_end_of_line(text, match.end()) else at


def _removed(piece: str, name: str) -> str:
    """Return an object without a member, its comma, and the comments after it on its line."""
    container = JsonLayout(piece).container(0)
    number = next(number for number, each in enumerate(container.members) if each.name == name)
    member = container.members[number]
    before = container.members[number - 1] if number else None
    last = number == len(container.members) - 1
    begin, end = member.begin, member.end if member.comma is None else member.comma + 1
    line = line_start(piece, begin)
    after = _end_of_comments(piece, end)
    alone = _is_end_of_line(piece, after)
    above = line - (2 if piece[line - 2 : line] == "\r\n" else 1)
    comments = re.findall(COMMENT, piece[1 if before is None else (before.comma or 0) + 1 : max(above, 1)], re.DOTALL)
    # If more text follows on the line, the line break before the member must stay when it ends a line comment.
    ends_comment = not alone and bool(comments) and comments[-1].startswith("//")
    begins_line = line > 0 and not piece[line:begin].strip()
    if begins_line and (alone or last) and not ends_comment:
        begin, end = above, after
    elif not last:
        end += len(piece[end:]) - len(piece[end:].lstrip(" \t"))
    elif before is not None and before.comma is not None and not piece[before.comma + 1 : begin].strip(" \t"):
        begin = before.comma + 1
    piece = piece[:begin] + piece[end:]
    if last and member.comma is None and before is not None and before.comma is not None:
        piece = piece[: before.comma] + piece[before.comma + 1 :]
    return "{}" if before is None and last and not piece[1:-1].strip() else piece


def _is_end_of_line(text: str, at: int) -> bool:
    """Return True if the rest of the line is blank."""
    return text[at:].lstrip(" \t")[:1] in ("", "\r", "\n", "\u2028", "\u2029")
