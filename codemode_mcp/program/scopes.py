"""Scopes of names in a program's syntax tree. Pure."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from codemode_mcp.program.syntax import FUNCTIONS, Span, span_of, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node


@dataclass(frozen=True, slots=True)
class Scope:
    """The context of a node.

    Attributes:
        function: the nearest function around it; None at the top level.
        block: the span in which a `let` would be visible.
        caught: whether it is inside a `try` that has a `catch`.
        namespace: whether it is inside a TypeScript namespace, whose `export` is not module syntax.
        declares: the span in which a name that is declared here is visible; None if no name is declared.
    """

    function: Span | None
    block: Span
    caught: bool = False
    namespace: bool = False
    declares: Span | None = None


_BLOCKS = words("statement_block for_statement for_in_statement catch_clause switch_statement")


_ERASED = words(
    "type_annotation type_alias_declaration interface_declaration type_arguments type_parameters "
    "ambient_declaration type_query nested_type_identifier function_type constructor_type implements_clause "
    "index_signature"
)
"""Types and ambient declarations, which are removed before the program runs."""


_SKIPPED = _ERASED | {"comment", "html_comment", "string", "regex"}


PATTERNS = words(
    "identifier shorthand_property_identifier_pattern object_pattern array_pattern pair_pattern rest_pattern "
    "assignment_pattern object_assignment_pattern"
)


_NAMED_DECLARATIONS = words(
    "function_declaration generator_function_declaration function_signature class_declaration "
    "abstract_class_declaration enum_declaration internal_module module"
)


_NAMED_EXPRESSIONS = words("function_expression generator_function class")


def _scope_of(node: Node, field: str | None, path: list[Node], scopes: list[Scope]) -> Scope:
    """Return the scope of a child of `path[-1]`."""
    scope, kind = scopes[-1], node.type
    declares = _declared_span(kind, field, path, scopes)
    if declares is not scope.declares:
        scope = replace(scope, declares=declares)
    if kind in FUNCTIONS:
        return replace(scope, function=span_of(node), block=span_of(node))
    if kind in _BLOCKS:
        caught = scope.caught or (
            path[-1].type == "try_statement" and field == "body" and path[-1].child_by_field_name("handler") is not None
        )
        return replace(scope, block=span_of(node), caught=caught)
    if kind in {"internal_module", "module"}:
        return replace(scope, namespace=True)
    return scope


def _declared_span(kind: str, field: str | None, path: list[Node], scopes: list[Scope]) -> Span | None:
    scope, parent = scopes[-1], path[-1].type
    if scope.declares is not None:
        return scope.declares if kind in PATTERNS and field != "right" else None
    match parent, field:
        case "variable_declarator", "name":
            if path[-2].type == "variable_declaration":  # `var`
                return scope.function or span_of(path[0])
            return scope.block
        case (("required_parameter" | "optional_parameter"), "pattern"):
            return scope.block
        case (("arrow_function" | "catch_clause"), "parameter"):
            return scope.block
        case "for_in_statement", "left":
            return scope.block if path[-1].child_by_field_name("kind") is not None else None
        case _, "name" if parent in _NAMED_DECLARATIONS:
            return scopes[-2].block
        case _, "name" if parent in _NAMED_EXPRESSIONS:
            return span_of(path[-1])
    return None


def leaves(root: Node, hits: list[int]) -> Iterator[tuple[list[Node], Scope]]:
    """Yield the path from the root to every leaf that contains a hit, and its scope. The lists are reused.

    Subtrees without a hit are skipped, so the cost depends on the number of hits, not on the size of the source. There
    is no recursion, since source may be nested more deeply than Python's stack.

    Args:
        hits: sorted offsets in UTF-16 units.
    """
    path, scopes = [root], [Scope(function=None, block=span_of(root))]
    cursor = root.walk()
    if not cursor.goto_first_child():
        return
    while True:
        node = cursor.node
        if node is not None and node.type not in _SKIPPED and _contains(hits, span_of(node)):
            scopes.append(_scope_of(node, cursor.field_name, path, scopes))
            path.append(node)
            if cursor.goto_first_child():
                continue
            yield path, scopes[-1]
            path.pop()
            scopes.pop()
        while not cursor.goto_next_sibling():
            path.pop()
            scopes.pop()
            if not path:
                return
            cursor.goto_parent()


def _contains(hits: list[int], span: Span) -> bool:
    first = bisect_left(hits, span.start)
    return first < len(hits) and hits[first] < span.end
