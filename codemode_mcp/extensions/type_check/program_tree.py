"""Facts about places of a program that decide about a type error: the call around it, or a test of a value. Pure."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from codemode_mcp.program import syntax

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node

MAX_CALLS: Final = 300
"""Maximum number of statements that are looked at for a missing `await`."""

_DEPTH: Final = 400
_ASYNC_FUNCTION: Final = re.compile(r"\basync\s+function\s+([\w$]+)|\bconst\s+([\w$]+)\s*=\s*async\b")
_DECLARED: Final = re.compile(r"\b(?:function\s*\*?|const|let|var|class)\s+([\w$]+)")
_TESTS_OF_ITEMS: Final = syntax.words("filter find findIndex findLast findLastIndex some every")
_METHODS: Final = _TESTS_OF_ITEMS | {"forEach", "map"}
_CATALOG_CALL: Final = re.compile(r"MCP\.[\w$]+\.[\w$]+\(")
_OTHER_WAITS: Final = re.compile(r"\bnew Promise\b|\bwhile\b|\bsetTimeout\b|\byield_control\b|\bwithResolvers\b")
_REPORTS: Final = re.compile(r"\.message\b|\bthrow\b")
_USES_SERVERS: Final = re.compile(r"\b(?:MCP|tools|programs)\b")
_TRIES: Final = re.compile(r"\btry\b")
_NAME: Final = re.compile(r"[A-Za-z_$][\w$]*")
_ACCESS: Final = syntax.MEMBER_ACCESS
_PATTERNS: Final = syntax.words("object_assignment_pattern assignment_pattern")
_CONDITIONS: Final = syntax.words("if_statement while_statement do_statement for_statement ternary_expression")
_LOOPS: Final = syntax.words("for_statement for_in_statement while_statement do_statement")
_COMPARING: Final = frozenset(("==", "==="))
_TESTING: Final = frozenset(("||", "??", "==", "!=", "===", "!==", "in", "instanceof"))
_PRINTERS: Final = re.compile(
    r"text|json|unwrap|String|Array\.from|JSON\.stringify|Object\.(?:keys|values|entries)|console\.\w+"
)
_EXPECTING: Final = re.compile(r"(?:\.catch|\bPromise\.allSettled)$")
_WAITS: Final = re.compile(r"\bawait\b|\.then\b")
_TESTERS: Final = re.compile(r"Array\.isArray|Boolean")


@dataclass(frozen=True)
class Callback:
    """A function that is given to a method of an array, and the offset of the method's name."""

    method: str
    method_at: int
    node: Node


class ProgramTree:
    """The syntax tree of a program.

    Args:
        units: the program in UTF-16 units.
        root: the root of its tree.
    """

    def __init__(self, units: str, root: Node) -> None:
        self.units = units
        self._root = root

    def path(self, at: int) -> list[Node]:
        """Return the nodes from the root to the leaf at an offset. Deeply nested programs end them early."""
        cursor, nodes = self._root.walk(), [self._root]
        while len(nodes) < _DEPTH and cursor.goto_first_child_for_byte(2 * at) is not None:
            node = cursor.node
            if node is None or not node.start_byte <= 2 * at < max(node.end_byte, node.start_byte + 1):
                break
            nodes.append(node)
        return nodes

    def text(self, node: Node) -> str:
        return syntax.from_utf16_units(syntax.text_of(self.units, node))

    def calls_around(self, path: list[Node]) -> Iterator[tuple[Node, bool]]:
        """Yield the calls around a place of the same function, the innermost first.

        Each is given with True if the place is among its arguments, and False if it is in the called expression.
        """
        for outer, inner in zip(path[-2::-1], path[:0:-1], strict=False):
            if outer.type in syntax.FUNCTIONS:
                return
            if outer.type == "call_expression":
                yield outer, inner.type == "arguments"

    def expects_failure(self, path: list[Node]) -> bool:
        """Return True if the program handles the failure of the very call at a place: `.catch(...)`, `allSettled`."""
        return any(
            _EXPECTING.search(self.text(function)) is not None
            for call, _ in self.calls_around(path)
            if (function := call.child_by_field_name("function")) is not None
        )

    def only_reports_failure(self, path: list[Node]) -> bool:
        """Return True if the `catch` around a place shows or throws the error, and does nothing else with MCP servers.

        Any other `catch` may be the program's way to find out what exists.
        """
        for node, inner in zip(path[-2::-1], path[:0:-1], strict=False):
            if node.type == "try_statement" and inner == node.child_by_field_name("body"):
                handler = node.child_by_field_name("handler")
                text = "" if handler is None else self.text(handler)
                return _REPORTS.search(text) is not None and _USES_SERVERS.search(text) is None
        return False

    def is_repeated(self, at: int) -> bool:
        """Return True for a place in a loop or function."""
        return any(node.type in syntax.FUNCTIONS | _LOOPS for node in self.path(at))

    @cached_property
    def waits(self) -> bool:
        return _WAITS.search(self.units) is not None

    def is_tested(self, path: list[Node]) -> bool:
        """Return True if a program only tests the value of the member access, or handles its absence."""
        index = len(path) - 1
        while index > 0 and path[index].type not in _ACCESS:
            if path[index].type in _PATTERNS:
                return True
            if path[index].type in syntax.FUNCTIONS | {"statement_block"}:
                return False
            index -= 1
        while index > 0:
            node, user = path[index], path[index - 1]
            operator = syntax.operator_of(user) if user.type in ("binary_expression", "unary_expression") else None
            if user.type in syntax.TRANSPARENT or operator == "&&":
                index -= 1
                continue
            if operator in _COMPARING and _is_compared_with_literal(node, user):
                # The comparison is a use, unless another one beside it may hold.
                outer = syntax.operator_of(path[index - 2]) if path[index - 2].type == "binary_expression" else None
                return outer == "||"
            if operator in _TESTING or operator in ("!", "typeof", "void", "delete"):
                return True
            if user.type in _CONDITIONS:
                return _is_condition(node, user)
            if user.type in (*_ACCESS, "call_expression") and user.start_byte == node.start_byte:
                return any(child.type in ("optional_chain", "?.") for child in user.children)
            if user.type == "arguments":
                function = path[index - 2].child_by_field_name("function")
                return function is not None and _TESTERS.fullmatch(self.text(function)) is not None
            return False
        return False

    @cached_property
    def assigned(self) -> frozenset[str]:
        """The names of members that the program sets on any object."""
        names = set(_OBJECT_ASSIGN_KEYS.findall(self.units)) if "Object.assign" in self.units else set()
        for node in self._nodes:
            if node.type in ("assignment_expression", "augmented_assignment_expression"):
                left = node.child_by_field_name("left")
                if left is not None and left.type in _ACCESS:
                    name = syntax.member_of(self.units, left)
                    names.update([] if name is None else [name])
        return frozenset(names)

    def assigned_variable(self, path: list[Node]) -> str | None:
        """Return the variable that gets the value at a place by an assignment; None if there is no such assignment."""
        for node in reversed(path):
            if node.type in syntax.FUNCTIONS | {"call_expression"}:
                return None
            left = node.child_by_field_name("left") if node.type == "assignment_expression" else None
            if left is not None:
                return self.text(left) if left.type == "identifier" else None
        return None

    def names(self, start: int, end: int) -> set[str]:
        return set(_NAME.findall(self.units[start:end]))

    def is_only_called(self, name: str) -> bool:
        """Return True if all uses of a variable but its declaration are calls, outside of `try`."""
        calls = len(re.findall(rf"(?<![\w$.]){re.escape(name)}\s*\(", self.units))
        return calls > 0 and calls == self._count(name) - 1 and _TRIES.search(self.units) is None

    @cached_property
    def async_conditions(self) -> list[Node]:
        """The calls of async functions of the program that stand as conditions. A promise is always true."""
        found = []
        for node in self._nodes:
            condition = node.child_by_field_name("condition") if node.type in _CONDITIONS else None
            while condition is not None and condition.type in (*syntax.TRANSPARENT, "unary_expression"):
                if condition.type == "unary_expression" and syntax.operator_of(condition) != "!":
                    break
                condition = condition.named_children[0] if condition.named_children else None
            if condition is not None and self.calls_async_function(condition):
                found.append(condition)
            if len(found) == MAX_CALLS:
                break
        return found

    def async_callbacks(self) -> list[Callback]:
        """Return the async functions that are given to methods of arrays which do not wait for them."""
        found, looked_at = [], 0
        for node in self._nodes:
            function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
            if node.type != "call_expression" or function is None or function.type != "member_expression":
                continue
            name, given = function.child_by_field_name("property"), (arguments.named_children if arguments else [])
            method = "" if name is None else self.text(name)
            if name is None or not given or method not in _METHODS:
                continue
            looked_at += 1
            if looked_at > MAX_CALLS:
                break
            if method in _TESTS_OF_ITEMS:
                wrong = self._gives_promise(given[0])
            else:
                ignored = node.parent is not None and node.parent.type == "expression_statement"
                wrong = ignored and self._is_lost(given[0])
            if wrong:
                found.append(Callback(method, syntax.span_of(name).start, given[0]))
        return found

    def _gives_promise(self, function: Node) -> bool:
        body = function.child_by_field_name("body")
        if function.type == "identifier":
            return self._is_async_function(self.text(function))
        if function.type not in ("arrow_function", "function_expression") or body is None:
            return False
        return (
            _is_async(function) or self.calls_async_function(body) or _CATALOG_CALL.match(self.text(body)) is not None
        )

    def _is_lost(self, function: Node) -> bool:
        """Return True for an async function with calls of servers for whose end the program cannot wait."""
        if function.type not in ("arrow_function", "function_expression") or not _is_async(function):
            return False
        calls = _USES_SERVERS.search(self.text(function)) is not None
        return calls and not self._waits_otherwise

    def calls_async_function(self, node: Node) -> bool:
        """Return True for a call of an async function of the program, by a name that is declared once."""
        function = node.child_by_field_name("function") if node.type == "call_expression" else None
        if function is None or function.type != "identifier":
            return False
        return self._is_async_function(self.text(function))

    def _is_async_function(self, name: str) -> bool:
        return self._async_functions[name] == 1 == self._declared[name]

    @cached_property
    def _async_functions(self) -> Counter[str]:
        return Counter(match[1] or match[2] for match in _ASYNC_FUNCTION.finditer(self.units))

    @cached_property
    def _declared(self) -> Counter[str]:
        return Counter(_DECLARED.findall(self.units))

    @cached_property
    def _waits_otherwise(self) -> bool:
        return _OTHER_WAITS.search(self.units) is not None

    def ignored_calls(self) -> list[Node]:
        """Return the calls whose values the program ignores: statements, and variables that are never used."""
        found = []
        for node in self._nodes:
            call: Node | None = None
            if node.type == "expression_statement" and node.children:
                call = node.children[0]
            elif node.type == "variable_declarator":
                name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
                if name is not None and name.type == "identifier" and self._count(self.text(name)) == 1:
                    call = value
            if call is not None and call.type == "call_expression":
                found.append(call)
            if len(found) == MAX_CALLS:
                break
        return found

    def printed(self) -> list[Node]:
        """Return the names and calls whose values the program prints, or reads without waiting for them."""
        found = []
        for node in self._nodes:
            values: list[Node] = []
            if node.type == "template_substitution":
                values = node.named_children
            elif node.type == "call_expression":
                function, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
                if function is not None and arguments is not None and _PRINTERS.fullmatch(self.text(function)):
                    values = arguments.named_children
            elif node.type in ("spread_element",):
                values = node.named_children
            found += [value for value in values if value.type in ("identifier", "call_expression")]
        return found[:MAX_CALLS]

    def value_at(self, path: list[Node], start: int, end: int) -> Node | None:
        """Return the node with these offsets in a path; its value, if it is the name of a property."""
        for user, node in pairwise(path):
            if syntax.span_of(node) == (start, end):
                named = node.type == "property_identifier" and user.type == "pair"
                return user.child_by_field_name("value") if named else node
        return None

    def is_plain_object(self, node: Node) -> bool:
        """Return True for an object literal in which no further object is spread."""
        return node.type == "object" and all(child.type != "spread_element" for child in node.named_children)

    def fixed_object(self, name: Node) -> bool:
        """Return True if a name is that of a constant object literal that the program only reads or passes to calls."""
        text = re.escape(self.text(name))
        changed = rf"(?<![\w$.]){text}\s*(?:\.\s*[\w$]+|\[[^\]]*\])+\s*(?:=(?!=)|\+\+|--|[-+*/|&?]+=)"
        passed = rf"Object\.\w+\(\s*{text}\b|\.\.\.\s*{text}\b|delete\s+{text}\b"
        if re.search(f"{changed}|{passed}", self.units):
            return False
        declared = [
            node
            for node in self._nodes
            if node.type == "variable_declarator" and (own := node.child_by_field_name("name")) is not None
            if self.text(own) == self.text(name)
        ]
        if len(declared) != 1:
            return False
        value = declared[0].child_by_field_name("value")
        typed = declared[0].child_by_field_name("type") is not None
        return not typed and value is not None and self.is_plain_object(value)

    @cached_property
    def _counts(self) -> Counter[str]:
        """The number of times that each name occurs in the program, also in texts and comments."""
        return Counter(_NAME.findall(self.units))

    def _count(self, name: str) -> int:
        return self._counts[name]

    @cached_property
    def _nodes(self) -> list[Node]:
        found, cursor = [], self._root.walk()
        while True:
            node = cursor.node
            if node is not None and node.type in _OF_INTEREST:
                found.append(node)
            if cursor.goto_first_child() or cursor.goto_next_sibling():
                continue
            while cursor.goto_parent():
                if cursor.goto_next_sibling():
                    break
            else:
                return found


_OF_INTEREST: Final = syntax.words(
    "assignment_expression augmented_assignment_expression call_expression expression_statement spread_element "
    "template_substitution variable_declarator if_statement while_statement do_statement for_statement "
    "ternary_expression"
)
_OBJECT_ASSIGN_KEYS: Final = re.compile(r"([\w$]+)\s*[:,}]")


def _is_async(function: Node) -> bool:
    return any(child.type == "async" for child in function.children)


def _is_compared_with_literal(node: Node, comparison: Node) -> bool:
    sides = [comparison.child_by_field_name(side) for side in ("left", "right")]
    return any(each is not None and each != node and each.type in ("string", "number") for each in sides)


def _is_condition(node: Node, user: Node) -> bool:
    condition = user.child_by_field_name("condition")
    return condition is not None and condition.start_byte == node.start_byte and condition.end_byte == node.end_byte
