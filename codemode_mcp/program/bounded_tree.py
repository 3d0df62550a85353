"""The syntax tree of a program, read within a budget of nodes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from codemode_mcp.program.syntax import FUNCTIONS, Span, covers, parse, span_of, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node

MAX_EXPRESSION: Final = 60
"""Maximum number of characters of an expression that is shown."""

_MAX_NODES: Final = 50_000
"""Maximum number of nodes that are visited for one error, in about 0.1 s."""

_MAX_SOURCE: Final = 1_000
"""Maximum number of characters of an expression in the source, with line ends and indentation."""


class BudgetExceededError(Exception):
    """More nodes were visited than the budget allows."""


class BoundedTree:
    """The tree of one program. Methods raise `BudgetExceededError` once too many nodes were visited.

    Args:
        units: the program, as `utf16_units` returns it.
        nodes: maximum number of nodes that are visited.
    """

    def __init__(self, units: str, nodes: int = _MAX_NODES) -> None:
        tree = parse(units)
        self.units = units
        self.root = None if tree is None else tree.root_node
        self._left = nodes

    def spend(self, nodes: int) -> None:
        """Count visited nodes against the budget."""
        self._left -= nodes
        if self._left < 0:
            raise BudgetExceededError

    def text(self, node: Node) -> str:
        """Return an expression on one line; empty if it is too long to be shown."""
        source = text_of(self.units, node)
        if len(source) > _MAX_SOURCE:
            return ""
        text = "".join(line.strip() for line in source.split("\n"))
        return text if len(text) <= MAX_EXPRESSION else ""

    def string(self, node: Node) -> str:
        """Return the text between the quotes of a string."""
        return text_of(self.units, node)[1:-1]

    def is_text(self, node: Node, text: str) -> bool:
        return text_of(self.units, node) == text

    def key(self, node: Node) -> str | None:
        """Return the name of the member that an expression reads; None if it is computed."""
        if node.type == "member_expression":
            name = node.child_by_field_name("property")
            return None if name is None or name.type != "property_identifier" else self.text(name)
        index = node.child_by_field_name("index") if node.type == "subscript_expression" else None
        if index is None or index.type not in ("string", "number"):
            return None
        return self.string(index) if index.type == "string" else self.text(index)

    def pattern_keys(self, pattern: Node) -> Iterator[str]:
        """Yield the names of the members that an object pattern reads."""
        for part in pattern.named_children:
            name = part.child_by_field_name("left") if part.type == "object_assignment_pattern" else part
            name = part.child_by_field_name("key") if part.type == "pair_pattern" else name
            if name is not None and name.type in ("shorthand_property_identifier_pattern", "property_identifier"):
                yield self.text(name)

    def path(self, span: Span) -> list[Node]:
        """Return the nodes that cover a span, outermost first."""
        path: list[Node] = []
        node = self.root
        while node is not None:
            path.append(node)
            self.spend(node.named_child_count)
            node = next((child for child in node.named_children if covers(child, span)), None)
        return path

    def walk(self, scope: Node, *, into_functions: bool) -> Iterator[Node]:
        """Yield the nodes in a node. Functions in it are yielded, but entered only if `into_functions`."""
        left = list(scope.named_children)
        self.spend(len(left))
        while left:
            node = left.pop()
            yield node
            if into_functions or node.type not in FUNCTIONS:
                children = node.named_children
                self.spend(len(children))
                left.extend(children)

    def functions(self, name: Node) -> list[Node]:
        """Return the functions that a name may refer to, in the innermost scope that declares one."""
        for scope in reversed(self.path(span_of(name))):
            if scope.type not in FUNCTIONS and scope is not self.root:
                continue
            found = []
            for node in self.walk(scope, into_functions=False):
                if node.type == "variable_declarator" or node.type in FUNCTIONS:
                    declared = node.child_by_field_name("name")
                    if declared is not None and self.text(declared) == self.text(name):
                        function = node.child_by_field_name("value") if node.type == "variable_declarator" else node
                        if function is not None and function.type in FUNCTIONS:
                            found.append(function)
            if found:
                return found
        return []
