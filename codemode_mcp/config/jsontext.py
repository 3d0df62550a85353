"""Change JSON, with or without comments, as its reader would by hand: all that is not changed stays as it is written.

Pure. Comments, trailing commas, indentation and ends of lines are kept; what is added looks like its neighbours.
Whatever was overlooked, a text that does not mean exactly what was asked for is never given out.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from codemode_mcp.config.source import SourceError, parse

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

_COMMENT = r"//[^\r\n\u2028\u2029]*|/\*.*?\*/"
_QUOTED = r""""[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*'"""
_BLANK = re.compile(rf"(?:[\s\ufeff]+|{_COMMENT})*", re.DOTALL)
_TOKEN = re.compile(rf"""[{{}}\[\]:,]|{_QUOTED}|[^\s{{}}\[\]:,"'/\ufeff]+""", re.DOTALL)
_NESTED = re.compile(rf"""[^"'{{}}\[\]/]*(?:([{{}}\[\]])|{_QUOTED}|{_COMMENT})""", re.DOTALL)
"""Up to the next bracket, and over texts and comments, which may hold some."""

_REST_OF_LINE = re.compile(r"(?:[ \t]*(?://[^\r\n\u2028\u2029]*|/\*(?:[^*\r\n]|\*(?!/))*\*/))*")
"""Comments that follow on the same line, which are about what stands before them."""


def with_member(text: str, keys: Sequence[str], name: str, value: object) -> str:
    """Return the text whose object at `keys` has this member; objects that are missing on the way are made.

    Raises:
        SourceError: it is not JSON, or holds something else there.
    """
    return with_members(text, keys, {name: value})


def without_member(text: str, keys: Sequence[str], name: str) -> str:
    """Return the text whose object at `keys` has no such member.

    Raises:
        SourceError: it is not JSON, or holds something else there.
    """
    return with_members(text, keys, {}, (name,))


def with_members(text: str, keys: Sequence[str], members: Mapping[str, object], without: Collection[str] = ()) -> str:
    """Return the text whose object at `keys` has these members, and none of `without`.

    Raises:
        SourceError: it is not JSON, or holds something else there.
    """
    value = parse(text)
    target = _at(value, keys, "object")
    _once(target, (*members, *without), keys)
    drop = [name for name in without if name in (target or ()) and name not in members]
    put = {key: each for key, each in members.items() if target is None or not _same(target, key, each)}
    if not drop and not put:
        return text
    new = {key: each for key, each in (target or {}).items() if key not in drop} | put
    return _verified(_changed(text, keys, put, drop), _set(value, keys, new))


def with_items(text: str, keys: Sequence[str], items: Sequence[str]) -> str:
    """Return the text whose list at `keys` also holds these items, in front of which nothing changes.

    Raises:
        SourceError: it is not JSON, or holds something else there.
    """
    value = parse(text)
    listed = _at(value, keys, "list")
    new = [item for item in items if item not in (listed or ())]
    if not new:
        return text
    if listed is None:
        changed = _changed(text, keys[:-1], {keys[-1]: new}, (), inline=True)
    else:
        document = _Text(text)
        at = document.value(0)
        for key in keys:
            at = document.member(at, key)
        changed = _put(text, document.container(at), [_written(item) for item in new], None)
    return _verified(changed, _set(value, keys, [*(listed or ()), *new]))


# what it means


def _at(value: object, keys: Sequence[str], kind: str) -> Any:
    """Return the object or list at `keys`; None where it is missing or null."""
    for key in keys:
        if not isinstance(value, dict):
            raise SourceError(f"could not be changed: {_way(keys)} does not lead to {_a(kind)}")
        _once(value, (key,), keys)
        value = value.get(key)
        if value is None:
            return None
    if not isinstance(value, dict if kind == "object" else list):
        raise SourceError(
            f"could not be changed: {_way(keys)} is not {_a(kind)}" if keys else f"does not hold {_a(kind)}"
        )
    return value


def _once(value: object, names: Collection[str], keys: Sequence[str]) -> None:
    for name in getattr(value, "repeated", ()):
        if name in names:
            raise SourceError(f"could not be changed: {json.dumps(name)} is given twice; remove one of them")


def _way(keys: Sequence[str]) -> str:
    return ".".join(key if key.isidentifier() else json.dumps(key) for key in keys)


def _a(kind: str) -> str:
    return "an object" if kind == "object" else "a list"


def _same(target: Mapping[str, object], name: str, value: object) -> bool:
    return name in target and _canonical(target[name]) == _canonical(value)


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _set(value: Any, keys: Sequence[str], new: object) -> object:
    if not keys:
        return new
    return {**(value or {}), keys[0]: _set((value or {}).get(keys[0]), keys[1:], new)}


def _verified(changed: str, expected: object) -> str:
    with suppress(SourceError, RecursionError):
        if parse(changed) == expected:
            return changed
    raise SourceError("could not be changed as it is written; change it by hand")


# how it is written


@dataclass(frozen=True, slots=True)
class _Member:
    """A member or item: where its name (else its value) begins, its value, its end, and the comma after it if any."""

    name: str
    begin: int
    value: int
    end: int
    comma: int | None


@dataclass(frozen=True, slots=True)
class _Container:
    """An object or a list in the text.

    Attributes:
        begin: its opening bracket.
        close: its closing bracket.
        indent: of its first member where that begins a line; None otherwise.
    """

    begin: int
    close: int
    members: tuple[_Member, ...]
    indent: str | None


@dataclass(frozen=True, slots=True)
class _Style:
    """Style of members that are added to an object.

    Attributes:
        indent: of each on a line of its own; None for all on one line.
        unit: by which what is deeper is indented.
        base: the indent of the line that the object begins in.
        tight: no blanks between the marks.
    """

    indent: str | None
    unit: str
    base: str
    newline: str
    tight: bool

    def member(self, name: str, value: object) -> str:
        return _written(name) + (":" if self.tight else ": ") + self.value(value)

    def value(self, value: object) -> str:
        if self.indent is None:
            return _written(value, separators=(",", ":") if self.tight else (", ", ": "))
        return _written(value, indent=self.unit).replace("\n", self.newline + self.indent)


def _written(value: object, **how: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, **how)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a character, which no file can hold but as an escape
        return json.dumps(value, **how)
    return text


def _changed(
    text: str, keys: Sequence[str], put: Mapping[str, object], drop: Collection[str], *, inline: bool = False
) -> str:
    document = _Text(text)
    containers = [document.container(document.value(0))]
    for depth, key in enumerate(keys):
        member = next((each for each in containers[-1].members if each.name == key), None)
        if member is None or document.token(member.value) == "null":
            # The first that is missing, with all that is in it.
            inner: object = dict(put)
            for missing in reversed(keys[depth + 1 :]):
                inner = {missing: inner}
            put, drop = {key: inner}, ()
            break
        containers.append(document.container(member.value))
    style = _style(text, containers)
    target = containers[-1]
    # Only the object itself is looked at from now on, however large the rest is.
    piece = text[target.begin : target.close + 1]
    members = {each.name for each in target.members}
    if members and members <= set(drop) and "/" not in re.sub(_QUOTED, "", piece, flags=re.DOTALL):
        piece = "{}"  # what one after the other would come to, where there is no comment
    else:
        for name in drop:
            piece = _without(piece, name)
    for name in [name for name in put if name in members]:
        piece = _with(piece, style, name, put[name], inline=inline)
    if new := {name: value for name, value in put.items() if name not in members}:
        written = [
            f"{_written(name)}: {_spaced(value)}" if inline else style.member(name, value)
            for name, value in new.items()
        ]
        piece = _put(piece, _Text(piece).container(0), written, None if inline else style)
    return text[: target.begin] + piece + text[target.close + 1 :]


def _style(text: str, containers: Sequence[_Container]) -> _Style:
    """Return the style of the innermost object that shows one."""
    newline = "\r\n" if "\r\n" in text else "\n"
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
        return _Style(indent, unit, base, newline, tight=False)
    first = shown.members[0]
    return _Style(None, unit, base, newline, tight=text[first.value - 1] == ":")


def _line_indent(text: str, at: int) -> str:
    begin = _line(text, at)
    return text[begin : begin + len(text[begin:at]) - len(text[begin:at].lstrip(" \t"))]


def _line(text: str, at: int) -> int:
    """Return where the line begins that `at` is in."""
    return max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1


def _with(piece: str, style: _Style, name: str, value: object, *, inline: bool) -> str:
    """Return an object with another value for a member that it has; `inline` where that stays on one line."""
    old = next(each for each in _Text(piece).container(0).members if each.name == name)
    written = _spaced(value) if inline else style.value(value)
    if style.indent is not None and old.begin != _line(piece, old.begin) + len(_line_indent(piece, old.begin)):
        written = _written(value)
    return piece[: old.value] + written + piece[old.end :]


def _spaced(value: object) -> str:
    """Return a value on one line, as people write it."""
    if isinstance(value, dict) and value:
        return "{ " + ", ".join(f"{_written(key)}: {_spaced(item)}" for key, item in value.items()) + " }"
    return _written(value)


def _put(text: str, container: _Container, members: Sequence[str], style: _Style | None) -> str:
    """Add members after the last one, each on a line of its own where the others are.

    Args:
        style: for a container that is empty; None for one line then.
    """
    newline = style.newline if style else "\r\n" if "\r\n" in text else "\n"
    indent = container.indent if container.members or style is None else style.indent
    if not container.members:
        if indent is None or style is None:
            # Before whatever stands between the brackets: a line comment there must not swallow what is added.
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
    if last.comma is not None:
        # Another ends what is added, as it was.
        at = last.comma + 1
        added += ","
    else:
        at = last.end
    after = at if indent is None else _ends(text, at)
    return text[:at] + ("," if last.comma is None else "") + text[at:after] + added + text[after:]


def _ends(text: str, at: int) -> int:
    """Return where the comments end that follow on the line, if nothing else follows them; else `at`."""
    match = _REST_OF_LINE.match(text, at)
    assert match is not None
    end = match.end()
    rest = text[end:].lstrip(" \t")[:1]
    return end if rest in ("", "\r", "\n", "\u2028", "\u2029") else at


def _without(piece: str, name: str) -> str:
    """Return an object without a member, its comma and the comments behind it on its line."""
    container = _Text(piece).container(0)
    number = next(number for number, each in enumerate(container.members) if each.name == name)
    member = container.members[number]
    before = container.members[number - 1] if number else None
    last = number == len(container.members) - 1
    begin, end = member.begin, member.end if member.comma is None else member.comma + 1
    line = _line(piece, begin)
    after = _ends(piece, end)
    alone = _at_end(piece, after)
    above = line - (2 if piece[line - 2 : line] == "\r\n" else 1)
    comments = re.findall(_COMMENT, piece[1 if before is None else (before.comma or 0) + 1 : max(above, 1)], re.DOTALL)
    # Where more stands on its line, the break before it may be what ends a comment.
    needed = not alone and bool(comments) and comments[-1].startswith("//")
    begins_line = line > 0 and not piece[line:begin].strip()
    if begins_line and (alone or last) and not needed:
        begin, end = above, after
    elif not last:
        end += len(piece[end:]) - len(piece[end:].lstrip(" \t"))
    elif before is not None and before.comma is not None and not piece[before.comma + 1 : begin].strip(" \t"):
        begin = before.comma + 1
    piece = piece[:begin] + piece[end:]
    if last and member.comma is None and before is not None and before.comma is not None:
        piece = piece[: before.comma] + piece[before.comma + 1 :]
    return "{}" if before is None and last and not piece[1:-1].strip() else piece


def _at_end(text: str, at: int) -> bool:
    """Return True if the rest of the line is blank."""
    return text[at:].lstrip(" \t")[:1] in ("", "\r", "\n")


class _Text:
    """Finds its way in JSON with comments, which has been parsed already and so is known to be well-formed."""

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, at: int) -> int:
        """Return where the next thing begins that is neither blank nor comment."""
        match = _BLANK.match(self._text, at)
        assert match is not None
        return match.end()

    def token(self, at: int) -> str:
        match = _TOKEN.match(self._text, at)
        if match is None:
            raise SourceError("could not be changed as it is written; change it by hand")
        return match[0]

    def after(self, at: int) -> int:
        """Return where the value that begins at `at` ends."""
        first = self.token(at)
        if first not in ("{", "["):
            return at + len(first)
        depth, at = 1, at + 1
        while depth:
            match = _NESTED.match(self._text, at)
            if match is None:
                raise SourceError("could not be changed as it is written; change it by hand")
            if match[1]:
                depth += 1 if match[1] in "{[" else -1
            at = match.end()
        return at

    def member(self, at: int, key: str) -> int:
        """Return where the value of a member of the object at `at` begins."""
        return next(each.value for each in self.container(at).members if each.name == key)

    def container(self, at: int) -> _Container:
        members = tuple(self._members(at))
        begin, indent = at, None
        if members:
            close = self.value(members[-1].end if members[-1].comma is None else members[-1].comma + 1)
            first = members[0].begin
            line = _line(self._text, first)
            if line > at and not self._text[line:first].strip():
                indent = self._text[line:first]
        else:
            close = self.value(at + 1)
        return _Container(begin, close, members, indent)

    def _members(self, at: int) -> Iterator[_Member]:
        """Yield the members of an object, or the items of a list."""
        named = self.token(at) == "{"
        at = self.value(at + 1)
        while (token := self.token(at)) not in ("}", "]"):
            begin = at
            name = ""
            if named:
                name = _name(token)
                at = self.value(self.value(at + len(token)) + 1)
            value, end = at, self.after(at)
            at = self.value(end)
            comma = at if self.token(at) == "," else None
            if comma is not None:
                at = self.value(at + 1)
            yield _Member(name, begin, value, end, comma)


def _name(token: str) -> str:
    if token[0] not in "\"'":
        return token
    try:
        name = parse(token)
    except SourceError:
        return ""
    return name if isinstance(name, str) else ""
