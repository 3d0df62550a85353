"""Uses of `Intl`, and of methods of built-ins with locales and options, in a program's syntax tree. Pure.

A program with such a use starts from an image with `Intl`, which takes a few milliseconds more. The prelude itself has
the form of en-US without options; see `prelude/65_locale.js`. What only a running program names, such as
`globalThis["In" + "tl"]`, is not found, and is refused there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from codemode_mcp.program.node_names import is_callee, literal_of, name_of
from codemode_mcp.program.syntax import text_of, words

if TYPE_CHECKING:
    from tree_sitter import Node

METHODS: Final = words(
    "toLocaleString toLocaleDateString toLocaleTimeString localeCompare toLocaleUpperCase toLocaleLowerCase"
)
"""Methods that take locales."""

WORDS: Final = re.compile(rf"(?<![\w$])(?:Intl|{'|'.join(sorted(METHODS))})(?![\w$])")

_AS_TEXT: Final = re.compile(rf"([\"'`])(?:Intl|{'|'.join(sorted(METHODS))})\1")
"""A name in quotes, as in `globalThis["Intl"]`."""

_LIGHT_OPTIONS: Final = {
    "toLocaleString": frozenset(("minimumFractionDigits", "maximumFractionDigits", "timeZone")),
    "toLocaleDateString": frozenset(("timeZone",)),
    "toLocaleTimeString": frozenset(("timeZone",)),
}
"""Options that the prelude knows."""


def names_as_text(units: str) -> bool:
    """Return True if a program has one of the names in quotes."""
    return _AS_TEXT.search(units) is not None


def is_beyond_prelude(units: str, path: list[Node]) -> bool:
    """Return True if the prelude alone does not have what a name is used for.

    Args:
        path: the path to the name, which is `Intl` or one of `METHODS`.
    """
    name, access = name_of(units, path[-1]), path[-2]
    if name == "Intl":
        return True
    if access.type != "member_expression":
        # A pattern takes the method from its object. Otherwise the program defines a member with this name.
        return "pattern" in access.type or "pattern" in path[-1].type
    call = path[-3]
    arguments = call.child_by_field_name("arguments") if is_callee(access, call) else None
    if arguments is None:
        return True
    given = [node for node in arguments.named_children if node.type != "comment"]
    if name == "localeCompare":
        return not all(_is_usual(units, node) for node in given[1:])
    if not given:
        return False
    options = [node for node in given[1:] if text_of(units, node) != "undefined"]
    return not _is_usual(units, given[0]) or not all(_is_light(units, name, node) for node in options)


def _is_usual(units: str, locale: Node) -> bool:
    return text_of(units, locale) == "undefined" or literal_of(units, locale) in {"en-US", "en"}


def _is_light(units: str, method: str, options: Node) -> bool:
    """Return True if the prelude knows all members of an object literal."""
    if options.type != "object":
        return False
    known = _LIGHT_OPTIONS.get(method, frozenset())
    for member in options.named_children:
        key = member.child_by_field_name("key") if member.type == "pair" else member
        if member.type == "comment":
            continue
        if (
            key is None
            or member.type not in {"pair", "shorthand_property_identifier"}
            or text_of(units, key) not in known
        ):
            return False
    return True
