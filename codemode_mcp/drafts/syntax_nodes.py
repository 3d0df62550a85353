"""Walks over all nodes of a syntax tree. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.program.node_names import name_of
from codemode_mcp.program.syntax import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node


def identifiers(units: str, root: Node) -> frozenset[str]:
    """Return the names that a program declares or uses. Names of properties are not among them."""
    kinds = words(
        "identifier type_identifier shorthand_property_identifier shorthand_property_identifier_pattern "
        "statement_identifier"
    )
    return frozenset(name_of(units, node) for node in every_node(root) if node.type in kinds)


def every_node(root: Node) -> Iterator[Node]:
    """Yield a node and all nodes in it, in the order of the text, without recursion: source may be nested deeply."""
    cursor = root.walk()
    while True:
        if cursor.node is not None:
            yield cursor.node
        if cursor.goto_first_child() or cursor.goto_next_sibling():
            continue
        while True:
            if not cursor.goto_parent():
                return
            if cursor.goto_next_sibling():
                break
