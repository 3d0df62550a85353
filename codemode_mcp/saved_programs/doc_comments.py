"""Doc comments (JSDoc) before functions and members. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from codemode_mcp.program.syntax import from_utf16_units, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

MAX_COMMENTS: Final = 100
"""Maximum number of comments between a doc comment and what it describes. The parser takes longer for each."""

_LINE_START = re.compile(r"^[ \t]*\*?[ \t]?", re.MULTILINE)
_TAG = re.compile(r"^[ \t]*@(?P<name>[A-Za-z]+)\b[ \t]*", re.MULTILINE)
_PARAM_NAME = re.compile(
    r"(?P<optional>\[)?[ \t]*(?P<name>[\w$]+(?:\.[\w$]+)*)(?(optional)[^\]\n]*\])[ \t]*(?:-[ \t]+)?"
)


@dataclass(frozen=True, slots=True)
class Tag:
    """One tag of a doc comment.

    Attributes:
        name: the word after `@`.
        text: the text up to the next tag.
        line: the line of the file, 1-based.
    """

    name: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class DocComment:
    """A doc comment.

    Attributes:
        description: the text before the first tag.
    """

    description: str = ""
    tags: tuple[Tag, ...] = ()

    def tag(self, *names: str) -> Tag | None:
        """Return the first tag with one of the names."""
        return next((tag for tag in self.tags if tag.name in names), None)


@dataclass(frozen=True, slots=True)
class Param:
    """A tag `@param`.

    Attributes:
        path: the name of the parameter, and those of members after dots.
        optional: True for a name in brackets.
        type: the text of the type in braces; None without one.
        line: the line of the file, 1-based.
    """

    path: tuple[str, ...]
    optional: bool
    type: str | None
    description: str
    line: int


def doc_comment_before(units: str, node: Node) -> DocComment | None:
    """Return the doc comment directly before a node, if there is one."""
    before = node
    for _ in range(MAX_COMMENTS):
        previous = before.prev_sibling
        if previous is None or previous.type != "comment":
            return None
        before = previous
        text = text_of(units, before)
        if text.startswith("/**"):
            return parse_comment(from_utf16_units(text), before.start_point.row + 1)
    return None


def parse_comment(comment: str, line: int) -> DocComment:
    """Return the parts of a comment that begins with `/**`.

    Args:
        line: the line of its beginning, 1-based.
    """
    text = _LINE_START.sub("", comment.removeprefix("/**").removesuffix("*/"))
    marks = list(_TAG.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)][: len(marks)]
    tags = tuple(
        Tag(mark["name"], text[mark.end() : end].strip(), line + text.count("\n", 0, mark.start()))
        for mark, end in zip(marks, ends, strict=True)
    )
    return DocComment(text[: marks[0].start() if marks else len(text)].strip(), tags)


def braced_type(text: str) -> tuple[str | None, str]:
    """Return the type in braces at the beginning of a text, if there is one, and the text after it."""
    if not text.startswith("{"):
        return None, text
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return text[1:at].strip(), text[at + 1 :].strip()
    return None, text


def params(comment: DocComment) -> Sequence[Param]:
    """Return the tags `@param` of a comment."""
    found = []
    for tag in comment.tags:
        if tag.name in ("param", "arg", "argument"):
            written, rest = braced_type(tag.text)
            name = _PARAM_NAME.match(rest)
            if name is not None:
                path = tuple(name["name"].split("."))
                description = " ".join(rest[name.end() :].split())
                found.append(Param(path, name["optional"] is not None, written, description, tag.line))
    return found
