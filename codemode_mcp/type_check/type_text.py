"""Types as the compiler writes them in its messages: their parts, and short forms for readers. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_MEMBERS: Final = 12
"""Maximum number of members of an object that are named."""

MAX_NAMES: Final = 8
"""Maximum number of names that are followed to the members of a type, and of types with the same name."""

_MAX_NAMED: Final = 20_000
_MAX_TYPE: Final = 160
_LITERAL: Final = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d[\d.e+-]*|true|false')
_MEMBER: Final = re.compile(r"""\s*(?:readonly )?(?:"((?:[^"\\]|\\.)*)"|([\w$]+))\??(?::|\()""")
_PATH: Final = re.compile(r"[A-Za-z_$][\w$.]*")
_NAMED: Final = re.compile(
    r"^\s*(?:export |declare )*(?:type (?P<type>[\w$]+) = |interface (?P<interface>[\w$]+) (?=\{))", re.MULTILINE
)
_LITERALS: Final = re.compile(r'"(?:[^"\\]|\\.)*"(?: \| "(?:[^"\\]|\\.)*")+')
_RESULT_MEMBERS: Final = ("content", "structuredContent", "isError", "_meta")


def is_promise(text: str) -> bool:
    """Return True for `Promise<...>`, and not for a union with it."""
    return text.startswith("Promise<") and len(union_of(text)) == 1


def union_of(text: str) -> list[str]:
    """Return the members of a union; the type itself if it is none."""
    return [part.strip() for part in _split(text, "|")]


def is_literal(text: str) -> bool:
    """Return True for a literal, such as `"open"`."""
    return _LITERAL.fullmatch(text) is not None


def are_literals(text: str) -> bool:
    """Return True for a literal and for a union of literals."""
    return all(map(is_literal, union_of(text)))


@dataclass(frozen=True)
class NamedTypes:
    """The named types of declarations.

    Attributes:
        texts: the texts of the types with a name. Several servers may have types with the same name.
        unions: the members of all unions of literals.
    """

    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unions: frozenset[frozenset[str]] = frozenset()

    def members_of(self, text: str, depth: int = 0) -> list[str] | None:
        """Return the names of the members of an object type; None for other types.

        Args:
            depth: the number of names that were followed so far. Names may be declared in a circle.
        """
        if text.startswith("McpToolResult<") and len(union_of(text)) == 1:
            return list(_RESULT_MEMBERS)
        named = self.texts.get(text.rpartition(".")[2]) if _PATH.fullmatch(text) else None
        if named is not None:
            if depth == MAX_NAMES:
                return None
            each = [self.members_of(one, depth + 1) for one in named[:MAX_NAMES]]
            return None if None in each else [*dict.fromkeys(name for members in each for name in members or ())]
        if not text.startswith("{") or len(union_of(text)) != 1:
            return None
        found = (_MEMBER.match(part) for part in _split(text[1:-1], ";"))
        return [*dict.fromkeys(match[1] or match[2] for match in found if match is not None)]

    def lacks(self, text: str, name: str) -> bool:
        """Return True if no member of a union, all of which are object types, has a member with this name."""
        each = [self.members_of(part) for part in union_of(text)]
        return all(members is not None and name not in members for members in each)

    def shortened(self, text: str) -> str:
        """Return a type as far as a reader needs it."""
        if len(text) <= _MAX_TYPE:
            return text
        names = self.members_of(text)
        if names:
            more = ", …" if len(names) > MAX_MEMBERS else ""
            return "{ " + ", ".join(names[:MAX_MEMBERS]) + more + " }"
        return text[:_MAX_TYPE] + "…"


def named_types(texts: Iterator[str]) -> NamedTypes:
    """Return the named types in declarations without comments. Types that extend others are left out."""
    found: dict[str, list[str]] = {}
    unions: set[frozenset[str]] = set()
    for text in texts:
        unions.update(frozenset(union_of(match[0])) for match in _LITERALS.finditer(text))
        for match in _NAMED.finditer(text):
            rest = text[match.end() : match.end() + _MAX_NAMED]
            body = next(_split(rest, ";" if match["type"] else None)).strip()
            if len(body) > _MAX_NAMED // 2:
                body = ""  # it may be cut, so its members are not known
            found.setdefault(match["type"] or match["interface"], []).append(body)
    return NamedTypes(found, frozenset(unions))


def content_of_result(text: str) -> str | None:
    """Return `T` of `McpToolResult<T>`; None for other types."""
    return text[len("McpToolResult<") : -1] if text.startswith("McpToolResult<") and text.endswith(">") else None


def _split(text: str, mark: str | None) -> Iterator[str]:
    """Split a text at a mark outside brackets and strings. None: end after the first closed bracket."""
    depth, start, at = 0, 0, 0
    while at < len(text):
        character = text[at]
        if character == '"':
            at += 1
            while at < len(text) and text[at] != '"':
                at += 2 if text[at] == "\\" else 1
        elif character in "([{<":
            depth += 1
        elif character in ")]}" or (character == ">" and text[at - 1] != "="):
            depth -= 1
            if depth == 0 and mark is None:
                yield text[: at + 1]
                return
        elif character == mark and depth == 0:
            yield text[start:at]
            start = at + 1
        at += 1
    yield text[start:]
