"""The values of a failed program's variables, from the expressions that set them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.program.described_values import Promised, elements, member
from codemode_mcp.program.syntax import FUNCTIONS, covers, parameters, span_of, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tree_sitter import Node

    from codemode_mcp.program.bounded_tree import BoundedTree

_BLOCKS: Final = words("program statement_block")
_TAKES_ELEMENTS: Final = words("map flatMap filter forEach find findIndex findLast some every")


@dataclass(frozen=True, slots=True)
class Site:
    """A place that sets a variable.

    Attributes:
        pattern: the pattern that contains the variable.
        source: the expression of the value that the pattern takes apart.
        evaluate: returns the values that the expression may have had.
    """

    pattern: Node
    source: Node
    evaluate: Callable[[], list[Any]]


class Variables:
    """The variables of one program.

    Args:
        values: returns the values that an expression may have had.
    """

    def __init__(self, tree: BoundedTree, values: Callable[[Node], list[Any]]) -> None:
        self._tree = tree
        self._values = values

    def values(self, name: Node) -> list[Any]:
        """Return the values that a variable may have had."""
        found: list[Any] = []
        for key, _, values in self.bindings(name):
            for value in values:
                try:
                    found.append(value if key is None else member(value, key))
                except LookupError:
                    continue
        return found

    def bindings(self, node: Node) -> Iterator[tuple[str | None, Node, list[Any]]]:
        """Yield how the innermost function that declares a variable sets it.

        Each item is the key that is read of a value (None for the value itself), the expression of the value, and the
        values that the expression may have had.
        """
        name = self._tree.text(node)
        path = self._tree.path(span_of(node))
        for number in range(len(path) - 1, -1, -1):
            scope = path[number]
            if scope.type not in FUNCTIONS and number > 0:
                continue
            sites = self._current(list(self._sites(scope, name, path[:number])), node)
            for site in sites:
                values = site.evaluate()
                yield from ((key, site.source, values) for key in self._keys(site.pattern, name))
            if sites:
                return

    def _current(self, sites: list[Site], use: Node) -> list[Site]:
        """Leave out sites that a later one replaces before the variable is used, and the site that contains the use."""
        span = span_of(use)
        others = [site for site in sites if not covers(site.source, span)]
        passed = [site for site in others if span_of(site.source).end <= span.start]
        for site in sorted(passed, key=lambda site: span_of(site.source).start, reverse=True):
            around = reversed(self._tree.path(span_of(site.source)))
            block = next((each for each in around if each.type in _BLOCKS), self._tree.root)
            if block is not None and covers(block, span):
                start = span_of(site.source).start
                return [each for each in others if span_of(each.source).start >= start]
        return others

    def _sites(self, scope: Node, name: str, outside: Sequence[Node]) -> Iterator[Site]:
        """Yield the places in a function that set a variable.

        Args:
            outside: the nodes around the function, outermost first.
        """
        if scope.type in FUNCTIONS:
            for position, pattern in enumerate(parameters(scope)):
                if self._sets(pattern, name):
                    yield Site(pattern, pattern, partial(self._passed, scope, outside, position))
        declared = False
        for node in self._tree.walk(scope, into_functions=False):
            left, right = _assignment(node)
            if left is None or right is None or not self._sets(left, name):
                continue
            declared = True
            is_loop = node.type == "for_in_statement"
            yield Site(left, right, partial(self._each, node, right) if is_loop else partial(self._values, right))
        if declared:
            # A function inside may set the variable too, at an unknown time.
            for function in self._tree.walk(scope, into_functions=False):
                if function.type in FUNCTIONS:
                    for node in self._tree.walk(function, into_functions=True):
                        left, right = _assignment(node)
                        if node.type == "assignment_expression" and left and right and self._sets(left, name):
                            yield Site(left, right, partial(self._values, right))

    def _each(self, loop: Node, source: Node) -> list[Any]:
        operator = loop.child_by_field_name("operator")
        if operator is None or operator.type != "of":
            return []
        return [each for value in self._values(source) for each in elements(value)]

    def passed(self, pattern: Node) -> list[Any]:
        """Return the values that calls pass to the parameter with a pattern; none if it is no parameter."""
        path = self._tree.path(span_of(pattern))
        number = max((n for n, node in enumerate(path) if node.type in FUNCTIONS), default=0)
        given = parameters(path[number]) if path[number].type in FUNCTIONS else []
        return self._passed(path[number], path[:number], given.index(pattern)) if pattern in given else []

    def _passed(self, function: Node, outside: Sequence[Node], position: int) -> list[Any]:
        """Return the values that calls of a function pass to one of its parameters."""
        call = next((each for each in reversed(outside) if each.type == "call_expression"), None)
        arguments = None if call is None else call.child_by_field_name("arguments")
        if call is not None and arguments is not None and function in arguments.named_children:
            return self._passed_by_method(call) if position == 0 else []
        parent = outside[-1] if outside else None
        named = parent if parent is not None and parent.type == "variable_declarator" else function
        name = named.child_by_field_name("name")
        found: list[Any] = []
        if name is None or self._tree.root is None:
            return found
        for node in self._tree.walk(self._tree.root, into_functions=True):
            callee = node.child_by_field_name("function") if node.type == "call_expression" else None
            given = node.child_by_field_name("arguments") if callee is not None else None
            if callee is None or given is None or self._tree.text(callee) != self._tree.text(name):
                continue
            if position < len(given.named_children):
                found += self._values(given.named_children[position])
        return found

    def _passed_by_method(self, call: Node) -> list[Any]:
        """Return the values that a method such as `map` or `then` passes to its callback."""
        callee = call.child_by_field_name("function")
        owner = None if callee is None else callee.child_by_field_name("object")
        name = None if callee is None else callee.child_by_field_name("property")
        if owner is None or name is None:
            return []
        method = self._tree.text(name)
        found: list[Any] = []
        for value in self._values(owner):
            if method == "then" and isinstance(value, Promised):
                found.append(value.value)
            elif method in _TAKES_ELEMENTS:
                found += elements(value)
        return found

    def _keys(self, pattern: Node, name: str) -> Iterator[str | None]:
        """Yield the keys by which a pattern takes a variable out of a value; None if the variable is the pattern."""
        if pattern.type == "identifier":
            yield None
        elif pattern.type == "object_pattern":
            for part in pattern.named_children:
                if part.type == "shorthand_property_identifier_pattern" and self._tree.is_text(part, name):
                    yield name
                elif part.type == "pair_pattern":
                    key, value = part.child_by_field_name("key"), part.child_by_field_name("value")
                    if key is not None and value is not None and self._tree.is_text(value, name):
                        yield self._tree.text(key)
        elif pattern.type == "array_pattern":
            for number, part in enumerate(pattern.named_children):
                if self._tree.is_text(part, name):
                    yield str(number)

    def _sets(self, pattern: Node, name: str) -> bool:
        if pattern.type == "identifier":
            return self._tree.is_text(pattern, name)
        return any(True for _ in self._keys(pattern, name))


def _assignment(node: Node) -> tuple[Node | None, Node | None]:
    """Return the pattern and the expression of a node that sets variables."""
    match node.type:
        case "variable_declarator":
            return node.child_by_field_name("name"), node.child_by_field_name("value")
        case "assignment_expression" | "for_in_statement":
            return node.child_by_field_name("left"), node.child_by_field_name("right")
    return None, None
