"""Changes to JSON with or without comments. Everything else in the text stays as it is. Pure.

Comments, trailing commas, indentation and line ends stay. New members are written in the style of their neighbours. The
result is parsed and compared with the intended value, so that a text is never damaged.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from codemode_mcp.config.source import SourceError, parse

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    Parse = Callable[[str], Any]

    Change = Callable[[str, Sequence[str], Mapping[str, object], Collection[str]], str]
    """A function that changes a text: from the text, the keys of an object, and members to set and to remove."""


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
    return text[at:].lstrip(" \t")[:1] in ("", "\r", "\n", "\u2028", "\u2029")


# Positions of members and items in the text of JSON with comments.


COMMENT = r"//[^\r\n\u2028\u2029]*|/\*.*?\*/"
QUOTED = r""""[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*'"""
_BLANK = re.compile(rf"(?:[\s\ufeff]+|{COMMENT})*", re.DOTALL)
_TOKEN = re.compile(rf"""[{{}}\[\]:,]|{QUOTED}|[^\s{{}}\[\]:,"'/\ufeff]+""", re.DOTALL)
_NESTED = re.compile(rf"""[^"'{{}}\[\]/]*(?:([{{}}\[\]])|{QUOTED}|{COMMENT})""", re.DOTALL)
"""Text up to the next bracket, or up to the end of a string or a comment. Brackets in these do not count."""


@dataclass(frozen=True, slots=True)
class Member:
    """The position of a member of an object, or of an item of a list.

    Attributes:
        name: the key of a member; empty for an item.
        begin: where the key of the member, or the item, begins.
        value: where the value begins.
        end: where the value ends.
        comma: where the comma after the value is; None if there is no comma.
    """

    name: str
    begin: int
    value: int
    end: int
    comma: int | None


@dataclass(frozen=True, slots=True)
class Container:
    """The position of an object or a list.

    Attributes:
        begin: where the opening bracket is.
        close: where the closing bracket is.
        indent: the indentation of the first member; None if other text precedes it on its line.
    """

    begin: int
    close: int
    members: tuple[Member, ...]
    indent: str | None


class JsonLayout:
    """The layout of a text. The text was parsed before, so it is valid JSON with comments."""

    def __init__(self, text: str) -> None:
        self._text = text

    def skip_blanks(self, at: int) -> int:
        match = _BLANK.match(self._text, at)
        assert match is not None
        return match.end()

    def token(self, at: int) -> str:
        """Return the bracket, mark, string or word at a position.

        Raises:
            SourceError: something else is at the position.
        """
        match = _TOKEN.match(self._text, at)
        if match is None:
            raise not_changeable()
        return match[0]

    def end_of_value(self, at: int) -> int:
        first = self.token(at)
        if first not in ("{", "["):
            return at + len(first)
        depth, at = 1, at + 1
        while depth:
            match = _NESTED.match(self._text, at)
            if match is None:
                raise not_changeable()
            if match[1]:
                depth += 1 if match[1] in "{[" else -1
            at = match.end()
        return at

    def container(self, at: int) -> Container:
        members = tuple(self._members(at))
        if not members:
            return Container(at, self.skip_blanks(at + 1), members, None)
        last, first = members[-1], members[0].begin
        close = self.skip_blanks(last.end if last.comma is None else last.comma + 1)
        line = line_start(self._text, first)
        is_first = line > at and not self._text[line:first].strip()
        return Container(at, close, members, self._text[line:first] if is_first else None)

    def _members(self, at: int) -> Iterator[Member]:
        is_object = self.token(at) == "{"
        at = self.skip_blanks(at + 1)
        while (token := self.token(at)) not in ("}", "]"):
            begin = at
            name = ""
            if is_object:
                name = _name(token)
                at = self.skip_blanks(self.skip_blanks(at + len(token)) + 1)
            value, end = at, self.end_of_value(at)
            at = self.skip_blanks(end)
            comma = at if self.token(at) == "," else None
            if comma is not None:
                at = self.skip_blanks(at + 1)
            yield Member(name, begin, value, end, comma)


def line_start(text: str, at: int) -> int:
    return max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1


def _name(token: str) -> str:
    if token[0] not in "\"'":
        return token
    try:
        name = parse(token)
    except SourceError:
        return ""
    return name if isinstance(name, str) else ""


# Changes to the members of an object in a text of any format, and the check of the result.


def change_members(
    text: str,
    keys: Sequence[str],
    members: Mapping[str, object],
    without: Collection[str],
    *,
    parse: Parse,
    change: Change,
    noun: str = "an object",
) -> str:
    """Return the text whose object at `keys` has these members, and none of `without`.

    Args:
        noun: the format's word for an object, for messages.

    Raises:
        SourceError: the text is not in the format, has another value at `keys`, or cannot be changed safely.
    """
    value = parse(text)
    target = value_at(value, keys, dict, noun)
    _refuse_repeated(target, (*members, *without))
    old = target or {}
    drop = [name for name in without if name in old and name not in members]
    put = {name: new for name, new in members.items() if name not in old or _canonical(old[name]) != _canonical(new)}
    if not drop and not put:
        return text
    new = {name: each for name, each in old.items() if name not in drop} | put
    accepted = [with_value(value, keys, new)]
    if not new and keys:
        accepted.append(_without_value(value, keys))  # in TOML, a table without members may be missing
    return verified(change(text, keys, put, drop), parse, *accepted)


def value_at(value: Any, keys: Sequence[str], kind: type, noun: str) -> Any:
    """Return the object or list at `keys`; None if it is missing or null.

    Raises:
        SourceError: the value has another type, or a key is given twice.
    """
    path = ".".join(key if key.isidentifier() else json.dumps(key) for key in keys)
    for key in keys:
        if not isinstance(value, dict):
            raise SourceError(f"could not be changed: {path} does not lead to {noun}")
        _refuse_repeated(value, (key,))
        value = value.get(key)
        if value is None:
            return None
    if not isinstance(value, kind):
        raise SourceError(f"could not be changed: {path} is not {noun}" if keys else f"does not contain {noun}")
    return value


def with_value(value: Any, keys: Sequence[str], new: object) -> object:
    if not keys:
        return new
    return {**(value or {}), keys[0]: with_value((value or {}).get(keys[0]), keys[1:], new)}


def verified(changed: str, parse: Parse, *accepted: object) -> str:
    """Return a changed text if its value is one of those accepted.

    The check protects files that are written in a way which the code does not expect.

    Raises:
        SourceError: the text has another value.
    """
    with suppress(SourceError, RecursionError):
        if parse(changed) in accepted:
            return changed
    raise not_changeable()


def not_changeable() -> SourceError:
    return SourceError("could not be changed, because it is written in an unusual way; change it by hand")


def newline_of(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _without_value(value: Mapping[str, Any], keys: Sequence[str]) -> Mapping[str, Any]:
    if len(keys) == 1:
        return {key: each for key, each in value.items() if key != keys[0]}
    return {**value, keys[0]: _without_value(value.get(keys[0]) or {}, keys[1:])}


def _refuse_repeated(value: object, names: Collection[str]) -> None:
    for name in getattr(value, "repeated", ()):
        if name in names:
            raise SourceError(f"could not be changed: {json.dumps(name)} is given twice; remove one of them")


def _canonical(value: object) -> str:
    """Return a text that is equal only for equal values. Unlike in Python, `1`, `1.0` and `true` are not equal."""
    return json.dumps(value, sort_keys=True, default=str)
