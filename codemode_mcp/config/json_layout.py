"""Positions of members and items in the text of JSON with comments. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemode_mcp.config.edit_members import not_changeable
from codemode_mcp.config.source import SourceError, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        """Return the position after white space and comments."""
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
        """Return where the value that begins at `at` ends."""
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
        """Return the object or list that begins at `at`."""
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
    """Return where the line of a position begins."""
    return max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1


def _name(token: str) -> str:
    if token[0] not in "\"'":
        return token
    try:
        name = parse(token)
    except SourceError:
        return ""
    return name if isinstance(name, str) else ""
