"""The values of a failed program's variables, and their short descriptions. Pure."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from codemode_mcp.base.strict_json import result_text
from codemode_mcp.program.syntax import FUNCTIONS, Span, covers, parameters, parse, span_of, text_of, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tree_sitter import Node


MAX_NAMES: Final = 12
"""Maximum number of member names in a description."""

MAX_NAME: Final = 40
"""Maximum number of characters of a member name."""

MAX_TEXT: Final = 40
"""Maximum number of characters of a string in a description."""

MAX_CANDIDATES: Final = 8
"""Maximum number of values that an expression may have had."""


class Result(Struct, frozen=True):
    """The result of a call of the program.

    Attributes:
        names: the ids of the tool and the expressions that call it, spelled by `did_you_mean.normalize_name`.
        text: the result as JSON.
        path: the expression that calls the tool, for messages.
    """

    names: frozenset[str]
    text: str
    path: str = ""


class Unseen(Struct, frozen=True):
    """A result of a tool that is no longer known. `path`: the expression that calls the tool."""

    path: str


class Promised(Struct, frozen=True):
    """A promise of a value."""

    value: Any


class Loose(Struct, frozen=True):
    """An array or object that the program has created. Its members are unknown, since the program may change them.

    Attributes:
        elements: values that may be in the array; None for an object.
    """

    elements: tuple[Any, ...] | None


class _Undefined:
    """The type of `UNDEFINED`."""


UNDEFINED: Final = _Undefined()
"""JavaScript's `undefined`, which JSON lacks."""


_METHODS: Final[dict[type, frozenset[str]]] = {
    list: words(
        "at concat copyWithin entries every fill filter find findIndex findLast findLastIndex flat flatMap forEach "
        "includes indexOf join keys lastIndexOf map pop push reduce reduceRight reverse shift slice some sort splice "
        "toLocaleString toReversed toSorted toSpliced toString unshift values with"
    ),
    str: words(
        "at charAt charCodeAt codePointAt concat endsWith includes indexOf lastIndexOf localeCompare match matchAll "
        "normalize padEnd padStart repeat replace replaceAll search slice split startsWith substring toLowerCase "
        "toUpperCase toLocaleLowerCase toLocaleUpperCase toString trim trimEnd trimStart valueOf substr"
    ),
}


def can_cause_error(value: Any, method: str | None) -> bool:
    """Return True if a value lacks a method or, for None, cannot be iterated."""
    if value is UNDEFINED or value is None:
        return method is None
    kind: type = list if isinstance(value, Loose) and value.elements is not None else type(value)
    if method is None:
        return kind not in (list, str)
    return method not in _METHODS.get(kind, ())


def describe_value(name: str, value: Any) -> str:
    """Describe the value of an expression, as in `r is an object with: content`."""
    if isinstance(value, Promised):
        return f"{name} is a promise: await it"
    unwrapped = unwrap_value(value) if _is_result(value) else UNDEFINED
    unwrap = f"unwrap({name.removeprefix('await ') if name.count('(') == 0 else '...'})"
    more = "" if unwrapped is UNDEFINED else f"; {unwrap} is {kind_of(unwrapped)}"
    return f"{name or 'the object'} is {kind_of(value)}{more}"


def kind_of(value: Any) -> str:
    """Describe a value, as in `an object with: content (array)`."""
    match value:
        case _Undefined():
            return "undefined"
        case None:
            return "null"
        case bool():
            return f"the boolean {str(value).lower()}"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"a string: {json.dumps(value)}" if len(value) <= MAX_TEXT else f"a string: {_beginning(value)}"
        case Loose():
            return "an object" if value.elements is None else "an array"
        case list():
            objects = f" objects with: {_names(value[0])}" if value and isinstance(value[0], dict) else ""
            return f"an array of {len(value)}{objects}"
        case dict():
            return f"an object with: {_names(value)}" if value else "an object without members"
    return "something else"


def _beginning(text: str) -> str:
    return json.dumps(text[:MAX_TEXT])[:-1] + '..."'


def _names(value: dict[str, Any]) -> str:
    shown = []
    for name in list(value)[:MAX_NAMES]:
        short = name if len(name) <= MAX_NAME else name[:MAX_NAME] + "…"
        written = short if re.fullmatch(r"[A-Za-z_$][\w$]*", short) else json.dumps(short)
        shown.append(f"{written} (array)" if isinstance(value[name], list) else written)
    return ", ".join(shown) + (", ..." if len(value) > MAX_NAMES else "")


def member(value: Any, key: str) -> Any:
    """Return a member of a value, or UNDEFINED. Raises `LookupError` if it is unknown."""
    match value:
        case dict():
            return value.get(key, UNDEFINED)
        case list() | str() if key == "length":
            return len(value)
        case list() | str() if key.isdecimal():
            return value[int(key)] if is_index(key) and int(key) < len(value) else UNDEFINED
        case list() | str() if key in _METHODS[type(value)]:
            raise LookupError(key)
        case list() | str() | int() | float():
            return UNDEFINED
    raise LookupError(key)


def is_index(key: str) -> bool:
    """Return True if a key is an index. Python does not parse thousands of digits."""
    return key.isdecimal() and len(key) < 10


def _is_result(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("content"), list) and set(value) <= RESULT_MEMBERS


RESULT_MEMBERS: Final = words("content structuredContent isError _meta resultType")


def unwrap_value(value: Any) -> Any:
    """Return the value of `unwrap` for a result; UNDEFINED if it throws."""
    if not isinstance(value, dict) or value.get("isError") is True:
        return UNDEFINED
    if value.get("structuredContent") is not None:
        return value["structuredContent"]
    content = value.get("content")
    if not isinstance(content, list):
        return UNDEFINED
    text = result_text(content)
    if text is None:
        return content
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def elements(value: Any) -> Sequence[Any]:
    if isinstance(value, Loose):
        return value.elements or ()
    return value[:MAX_CANDIDATES] if isinstance(value, list) else ()


def is_there(value: Any, key: str) -> bool:
    return isinstance(value, dict) and key in value


def is_missing(value: Any, key: str) -> bool:
    try:
        return member(value, key) in (UNDEFINED, None)
    except LookupError:
        return False


def parsed(value: Any) -> list[Any]:
    """Return the value of `JSON.parse` in a list, which is empty if it throws."""
    try:
        return [json.loads(value)] if isinstance(value, str) else []
    except (ValueError, RecursionError):
        return []


# The values of a failed program's variables, from the expressions that set them.


_BLOCKS: Final = words("program statement_block")
_TAKES_ELEMENTS: Final = words("map flatMap filter forEach find findIndex findLast some every")


class Site(Struct, frozen=True):
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
