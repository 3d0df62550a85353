"""Names, literals and operators of nodes in a program's syntax tree. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from codemode_mcp.program.syntax import text_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from tree_sitter import Node

MEMBER_ACCESS = frozenset(("member_expression", "subscript_expression"))

_ESCAPE = re.compile(r"\\u(?:\{([0-9a-fA-F]+)\}|([0-9a-fA-F]{4}))")


def unescaped(name: str) -> str:
    """Replace the Unicode escapes in an identifier."""
    return _ESCAPE.sub(_character, name) if "\\" in name else name


def _character(match: re.Match[str]) -> str:
    code = int(match[1] or match[2], 16)
    return chr(code) if code <= 0x10FFFF else match[0]


def name_of(units: str, node: Node) -> str:
    """Return the name of an identifier, without escapes."""
    return unescaped(text_of(units, node))


def member_of(units: str, access: Node) -> str | None:
    """Return the static name in `x.name`, `x["name"]` or a template without parts."""
    if access.type == "member_expression":
        name = access.child_by_field_name("property")
        return name_of(units, name) if name is not None and name.type == "property_identifier" else None
    index = access.child_by_field_name("index")
    return literal_of(units, index) if index is not None else None


def literal_of(units: str, node: Node) -> str | None:
    """Return the value of a string, or of a template without parts; None for other nodes and for escapes."""
    text = text_of(units, node)
    if node.type not in {"string", "template_string"} or "\\" in text or "${" in text:
        return None
    return text[1:-1]


def operator_of(node: Node) -> str | None:
    operator = node.child_by_field_name("operator")
    return operator.type if operator is not None else None


def outermost(path: list[Node], index: int, kinds: Collection[str]) -> int:
    """Return the index of the outermost node that wraps `path[index]` in nodes of some types only."""
    while path[index - 1].type in kinds:
        index -= 1
    return index


def is_callee(node: Node, user: Node) -> bool:
    return user.type == "call_expression" and user.start_byte == node.start_byte


def is_target(path: list[Node], index: int) -> bool:
    """Return True if the node at `path[index]` is assigned to."""
    user = path[index - 1]
    return user.type == "assignment_expression" and user.start_byte == path[index].start_byte
