"""Detection of TypeScript types in a program's text. Pure."""

from __future__ import annotations

from codemode_mcp.program.syntax import parse, utf16_units, words

_TYPES = words(
    "abstract_class_declaration accessibility_modifier ambient_declaration as_expression enum_declaration "
    "implements_clause interface_declaration internal_module non_null_expression optional_parameter predefined_type "
    "satisfies_expression type_alias_declaration type_annotation type_parameters"
)
"""Types of nodes that only TypeScript has. `a<b>(c)` is valid in both, and counts only with a type such as `string`."""


def has_types(source: str) -> bool:
    """Return True if a program contains syntax that only TypeScript has."""
    tree = parse(utf16_units(source))
    if tree is None:
        return False
    cursor = tree.root_node.walk()
    while True:
        node = cursor.node
        if node is not None and node.type in _TYPES:
            return True
        if cursor.goto_first_child() or cursor.goto_next_sibling():
            continue
        while cursor.goto_parent():
            if cursor.goto_next_sibling():
                break
        else:
            return False
