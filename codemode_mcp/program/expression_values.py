"""The values of a failed program's expressions, for its error: `r is an object with: content`.

The engine says that `r.map` is not a function and not what `r` is, and its variables are gone by then. The host still
has the latest results of the program's calls. This module reads in the syntax tree where `r` comes from, and follows
that over those results. Nothing of the program runs.

A value that cannot be told is not told: every step that is not understood ends the search, and a value that would not
have caused the error is dropped. Containers that the program itself makes have no members here, as it may change them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.did_you_mean import plain
from codemode_mcp.program.described_values import (
    MAX_CANDIDATES,
    UNDEFINED,
    Loose,
    Promised,
    Result,
    described,
    elements,
    fits,
    is_index,
    is_missing,
    member,
    parsed,
    unwrap_value,
)
from codemode_mcp.program.syntax import FUNCTIONS, Span, covers, parse, span_of, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tree_sitter import Node

    _Site = tuple[Node, Node, Callable[[], list[Any]]]
    """A pattern that a variable is set by, the expression that it is set to, and how to read its values."""


MAX_EXPRESSION: Final = 60
_MAX_NODES: Final = 50_000
"""Nodes of the syntax tree that are looked at for one error, some 0.1 s."""
_MAX_DEPTH: Final = 40
_MAX_WRITTEN: Final = 1_000
"""Characters of an expression as it is written, with the line ends and margins in it."""
_CHARACTERS_PER_NODE: Final = 100
"""Characters of JSON that are read, or members that are listed, in the time of a node."""


class _GivenUpError(Exception):
    """Following an expression takes too long."""


# --- Text -------------------------------------------------------------------------------------------------------------


def advice(units: str, about: Span, message: str, results: Sequence[Result]) -> str:
    """Return what an expression was, for the end of an error about it; empty where that cannot be told.

    Args:
        units: the program, as `utf16_units` gives it.
        about: the expression that is named in the message: whose method was called, or which is undefined.
        message: the engine's.
    """
    try:
        return _advice(_Reader(units, results), about, message)
    except _GivenUpError:
        return ""


def _advice(reader: _Reader, about: Span, message: str) -> str:
    node = reader.expression(about)
    if node is None:
        return ""
    missing = re.search(r" of (undefined|null)\b", message)
    if missing is not None:
        return _about_missing(reader, node, missing[1])
    method = re.search(r"\.([\w$]+) is not a function", message)
    missed = method[1] if method is not None else None
    return _one([described(reader.text(node), value) for value in reader.values(node) if fits(value, missed)])


def _about_missing(reader: _Reader, node: Node, kind: str) -> str:
    """Describe the object that an undefined or null value was read of."""
    wanted = None if kind == "null" else UNDEFINED
    told = []
    for owner, key, value in reader.owners(node):
        found = member(value, key)
        if found is wanted and not (found is UNDEFINED and isinstance(value, Loose)):
            told.append(described(owner, value))
    return _one(told)


def _one(told: list[str]) -> str:
    """Return what all candidates agree on."""
    different = list(dict.fromkeys(told))
    return different[0] if len(different) == 1 else ""


# --- Values -----------------------------------------------------------------------------------------------------------


# --- Expressions ------------------------------------------------------------------------------------------------------

_TRANSPARENT: Final = words("parenthesized_expression as_expression non_null_expression satisfies_expression")
_SAME_ELEMENTS: Final = words("filter slice sort reverse toSorted toReversed concat")
_ONE_ELEMENT: Final = words("find findLast at pop shift")
_SAME_TEXT: Final = words("trim toString")
_BLOCKS: Final = words("program statement_block")
_TAKES_ELEMENTS: Final = words("map flatMap filter forEach find findIndex findLast some every")


@dataclass(slots=True)
class _Reader:
    """Follows expressions of one program."""

    units: str
    results: Sequence[Result]
    _left: int = _MAX_NODES
    _depth: int = 0
    _root: Node | None = field(init=False)
    _read: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tree = parse(self.units)
        self._root = None if tree is None else tree.root_node

    def text(self, node: Node) -> str:
        span = span_of(node)
        if span.end - span.start > _MAX_WRITTEN:
            return ""
        text = "".join(line.strip() for line in self.units[span.start : span.end].split("\n"))
        return text if len(text) <= MAX_EXPRESSION else ""

    def expression(self, span: Span) -> Node | None:
        """Return the expression that stands exactly there."""
        return next((node for node in reversed(self._path(span)) if span_of(node) == span), None)

    def values(self, node: Node) -> list[Any]:
        """Return the values that an expression may have had, no more than a few."""
        self._spend(1 + node.named_child_count)
        if self._depth > _MAX_DEPTH:
            return []
        self._depth += 1
        try:
            found = self._values(node)
        finally:
            self._depth -= 1
        return found[:MAX_CANDIDATES]

    def owners(self, node: Node) -> Iterator[tuple[str, str, Any]]:
        """Yield the objects that an expression is read of: name, the key and a value."""
        while node.type in _TRANSPARENT and node.named_children:
            node = node.named_children[0]
        key = self._key(node)
        if key is not None:
            owner = node.child_by_field_name("object")
            assert owner is not None
            for value in self.values(owner):
                if not is_missing(value, key):
                    continue
                yield self.text(owner), key, value
        elif node.type == "identifier":
            for name, source, values in self._bindings(node):
                for value in values:
                    if name is not None and is_missing(value, name):
                        yield self.text(source), name, value

    def _values(self, node: Node) -> list[Any]:
        first = next(iter(node.named_children), None)
        match node.type:
            case "identifier":
                if self._is(node, "undefined"):
                    return [UNDEFINED]
                return self._variable(node)
            case "await_expression" if first is not None:
                return [each.value if isinstance(each, Promised) else each for each in self.values(first)]
            case kind if kind in _TRANSPARENT and first is not None:
                return self.values(first)
            case "member_expression" | "subscript_expression":
                return self._members(node)
            case "call_expression":
                return self._called(node)
            case "string":
                return [self._string(node)]
            case "number":
                text = self.text(node)
                return [int(text)] if text.isdecimal() else []
            case "null":
                return [None]
            case "array":
                return [Loose(tuple(each for child in node.named_children for each in self._single(child)))]
            case "object":
                return [Loose(None)]
            case "binary_expression":
                return self._either(node)
            case "ternary_expression":
                branches = (node.child_by_field_name("consequence"), node.child_by_field_name("alternative"))
                return [each for branch in branches if branch is not None for each in self.values(branch)]
        return []

    def _single(self, node: Node) -> list[Any]:
        found = self.values(node)
        return found if len(found) == 1 else []

    def _either(self, node: Node) -> list[Any]:
        """Read `a ?? b` and `a || b`."""
        operator = node.child_by_field_name("operator")
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if operator is None or operator.type not in ("??", "||") or left is None or right is None:
            return []
        found: list[Any] = []
        for value in self.values(left):
            empty = value is UNDEFINED or value is None or (operator.type == "||" and not value)
            found += self.values(right) if empty else [value]
        return found

    def _members(self, node: Node) -> list[Any]:
        owner = node.child_by_field_name("object")
        if owner is None:
            return []
        key = self._key(node)
        found: list[Any] = []
        for value in self.values(owner):
            if key is None:
                found += elements(value)
                continue
            try:
                found.append(member(value, key))
            except LookupError:
                if isinstance(value, Loose) and is_index(key) and int(key) < len(elements(value)):
                    found.append(elements(value)[int(key)])
        return found

    def _key(self, node: Node) -> str | None:
        """Return the name of the member that an expression reads; None where only the program knows it."""
        if node.type == "member_expression":
            name = node.child_by_field_name("property")
            return None if name is None or name.type != "property_identifier" else self.text(name)
        index = node.child_by_field_name("index") if node.type == "subscript_expression" else None
        if index is None or index.type not in ("string", "number"):
            return None
        return self._string(index) if index.type == "string" else self.text(index)

    def _string(self, node: Node) -> str:
        span = span_of(node)
        return self.units[span.start + 1 : span.end - 1]

    # calls

    def _called(self, node: Node) -> list[Any]:
        callee = node.child_by_field_name("function")
        arguments = node.child_by_field_name("arguments")
        if callee is None or arguments is None:
            return []
        given = arguments.named_children
        name = self.text(callee)
        if re.match(r"(?:MCP|API|tools)[.\[]", name):
            return self._result(name, given)
        match name:
            case "unwrap" if given:
                values = self.values(given[0])
                return [found for each in values if (found := self._unwrapped(each)) is not UNDEFINED]
            case "JSON.parse" if given:
                return [found for each in self.values(given[0]) for found in self._parsed(each)]
            case "Object.keys" if given:
                return [list(each) for each in self._objects(given[0])]
            case "Object.values" if given:
                return [list(each.values()) for each in self._objects(given[0])]
            case "Object.entries" if given:
                return [[list(pair) for pair in each.items()] for each in self._objects(given[0])]
            case "Promise.all" if given:
                return self._all(given[0])
        if callee.type == "member_expression":
            return self._method(callee, given)
        if callee.type == "identifier":
            return [each for function in self._functions(callee) for each in self._returned(function)]
        return []

    def _objects(self, node: Node) -> Iterator[dict[str, Any]]:
        """Yield the objects that an expression may have been, to list their members."""
        for value in self.values(node):
            if isinstance(value, dict):
                self._spend(len(value))
                yield value

    def _unwrapped(self, value: Any) -> Any:
        """Return `unwrapped` of a value, as often as there is time."""
        if isinstance(value, dict) and isinstance(value.get("content"), list):
            self._spend_on(each.get("text") for each in value["content"] if isinstance(each, dict))
        return unwrap_value(value)

    def _parsed(self, value: Any) -> list[Any]:
        self._spend_on([value])
        return parsed(value)

    def _spend_on(self, texts: Iterable[Any]) -> None:
        self._spend(sum(1 + len(text) // _CHARACTERS_PER_NODE for text in texts if isinstance(text, str)))

    def _result(self, name: str, given: Sequence[Node]) -> list[Any]:
        if name == "tools.call":
            if not given or given[0].type != "string":
                return []
            name = self._string(given[0])
        wanted = plain(name)
        found = []
        for number, result in enumerate(self.results):
            if wanted not in result.names:
                continue
            if number not in self._read:
                try:
                    self._read[number] = json.loads(result.text)
                except (ValueError, RecursionError):
                    continue
            found.append(Promised(self._read[number]))
        return found

    def _all(self, node: Node) -> list[Any]:
        """Read `Promise.all` of an array of calls, or of calls for each element of one."""
        if node.type == "array":
            values = [self.values(child) for child in node.named_children]
            if not all(values):
                return [Promised(Loose(()))]
            rows = [[each[min(n, len(each) - 1)] for each in values] for n in range(max(map(len, values), default=1))]
            return [Promised([one.value if isinstance(one, Promised) else one for one in row]) for row in rows]
        found = []
        for each in self.values(node):
            inside = tuple(one.value if isinstance(one, Promised) else one for one in elements(each))
            found.append(Promised(Loose(inside)))
        return found

    def _method(self, callee: Node, given: Sequence[Node]) -> list[Any]:
        owner, name = callee.child_by_field_name("object"), callee.child_by_field_name("property")
        if owner is None or name is None:
            return []
        method = self.text(name)
        found: list[Any] = []
        for value in self.values(owner):
            if method == "then" and isinstance(value, Promised) and given:
                returned = self._returned(given[0])
                found += [each if isinstance(each, Promised) else Promised(each) for each in returned]
            elif isinstance(value, str) and method in _SAME_TEXT:
                found.append(value)
            elif isinstance(value, str) and method == "split":
                found.append(Loose(("",)))
            elif not isinstance(value, list | Loose) or (isinstance(value, Loose) and value.elements is None):
                continue
            elif method in _SAME_ELEMENTS:
                found.append(Loose(tuple(elements(value))))
            elif method in _ONE_ELEMENT:
                found += elements(value)
            elif method == "map" and given:
                found.append(Loose(tuple(self._returned(given[0]))))
        return found

    def _returned(self, function: Node) -> list[Any]:
        """Return what a function of the program may give."""
        if function.type == "identifier":
            return [each for found in self._functions(function) for each in self._returned(found)]
        body = function.child_by_field_name("body") if function.type in FUNCTIONS else None
        if body is None:
            return []
        found: list[Any] = []
        if body.type != "statement_block":
            found += self.values(body)
        else:
            for node in self._inside(body):
                if node.type == "return_statement":
                    found += [each for child in node.named_children for each in self.values(child)]
        if not any(child.type == "async" for child in function.children):
            return found
        return [each if isinstance(each, Promised) else Promised(each) for each in found]

    def _functions(self, name: Node) -> Iterator[Node]:
        """Yield the functions that a name may stand for."""
        for scope in reversed(self._path(span_of(name))):
            if scope.type not in FUNCTIONS and scope is not self._root:
                continue
            found = []
            for node in self._inside(scope):
                if node.type == "variable_declarator" or node.type in FUNCTIONS:
                    declared = node.child_by_field_name("name")
                    if declared is not None and self.text(declared) == self.text(name):
                        function = node.child_by_field_name("value") if node.type == "variable_declarator" else node
                        if function is not None and function.type in FUNCTIONS:
                            found.append(function)
            if found:
                yield from found
                return

    # variables

    def _variable(self, node: Node) -> list[Any]:
        found: list[Any] = []
        for name, _, values in self._bindings(node):
            for value in values:
                if name is None:
                    found.append(value)
                    continue
                try:
                    found.append(member(value, name))
                except LookupError:
                    continue
        return found

    def _bindings(self, node: Node) -> Iterator[tuple[str | None, Node, list[Any]]]:
        """Yield where a variable is set, in the innermost function that declares it.

        Each is the key by which it is taken out of a value, or None where it is all of it, the expression of that
        value, and what this may have been.
        """
        name = self.text(node)
        path = self._path(span_of(node))
        for number in range(len(path) - 1, -1, -1):
            scope = path[number]
            if scope.type not in FUNCTIONS and number > 0:
                continue
            sites = self._current(list(self._sites(scope, name, path[:number])), node)
            if sites:
                for pattern, source, evaluate in sites:
                    values = evaluate()
                    yield from ((key, source, values) for key in self._keys(pattern, name))
                return

    def _current(self, sites: list[_Site], use: Node) -> list[_Site]:
        """Leave out what a later site has replaced before a variable is used, and the site that the use is part of."""
        span = span_of(use)
        kept = [site for site in sites if not covers(site[1], span)]
        passed = [site for site in kept if span_of(site[1]).end <= span.start]
        for site in sorted(passed, key=lambda site: span_of(site[1]).start, reverse=True):
            block = next((each for each in reversed(self._path(span_of(site[1]))) if each.type in _BLOCKS), self._root)
            if block is not None and covers(block, span):
                start = span_of(site[1]).start
                return [each for each in kept if span_of(each[1]).start >= start]
        return kept

    def _sites(self, scope: Node, name: str, outside: Sequence[Node]) -> Iterator[_Site]:
        """Yield the patterns with a name in a function, with the expression that they are set to and its values."""
        if scope.type in FUNCTIONS:
            parameters = self._parameters(scope)
            for position, pattern in enumerate(parameters):
                if self._has(pattern, name):
                    yield pattern, pattern, partial(self._passed, scope, outside, position)
        declared = False
        for node in self._inside(scope):
            left, right = _set(node)
            if left is None or right is None or not self._has(left, name):
                continue
            declared = True
            if node.type == "for_in_statement":
                yield left, right, partial(self._each, node, right)
            else:
                yield left, right, partial(self.values, right)
        if declared:
            # Set again by a function inside: which comes last cannot be told.
            for node in self._deep(scope):
                if node.type == "assignment_expression":
                    left, right = _set(node)
                    if left is not None and right is not None and self._has(left, name):
                        yield left, right, partial(self.values, right)

    def _each(self, loop: Node, source: Node) -> list[Any]:
        operator = loop.child_by_field_name("operator")
        if operator is None or operator.type != "of":
            return []
        return [each for value in self.values(source) for each in elements(value)]

    def _parameters(self, function: Node) -> list[Node]:
        alone = function.child_by_field_name("parameter")
        if alone is not None:
            return [alone]
        parameters = function.child_by_field_name("parameters")
        if parameters is None:
            return []
        found = []
        for each in parameters.named_children:
            pattern = each.child_by_field_name("pattern")
            found.append(each if pattern is None else pattern)
        return found

    def _passed(self, function: Node, outside: Sequence[Node], position: int) -> list[Any]:
        """Return what the calls of a function pass to one of its parameters."""
        call = next((each for each in reversed(outside) if each.type == "call_expression"), None)
        arguments = None if call is None else call.child_by_field_name("arguments")
        if call is not None and arguments is not None and _holds(arguments, function):
            return self._passed_by_method(call) if position == 0 else []
        parent = outside[-1] if outside else None
        named = parent if parent is not None and parent.type == "variable_declarator" else function
        name = named.child_by_field_name("name")
        found: list[Any] = []
        if name is None or self._root is None:
            return found
        for node in self._walk(self._root, into_functions=True):
            callee = node.child_by_field_name("function") if node.type == "call_expression" else None
            given = node.child_by_field_name("arguments") if callee is not None else None
            if callee is None or given is None or self.text(callee) != self.text(name):
                continue
            if position < len(given.named_children):
                found += self.values(given.named_children[position])
        return found

    def _passed_by_method(self, call: Node) -> list[Any]:
        """Return what a method such as `map` or `then` passes to the function that it is given."""
        callee = call.child_by_field_name("function")
        owner = None if callee is None else callee.child_by_field_name("object")
        name = None if callee is None else callee.child_by_field_name("property")
        if owner is None or name is None:
            return []
        method = self.text(name)
        found: list[Any] = []
        for value in self.values(owner):
            if method == "then" and isinstance(value, Promised):
                found.append(value.value)
            elif method in _TAKES_ELEMENTS:
                found += elements(value)
        return found

    def _keys(self, pattern: Node, name: str) -> Iterator[str | None]:
        """Yield the key by which a pattern takes a name out of a value; None where the name is the pattern."""
        if pattern.type in ("identifier", "required_parameter"):
            yield None
        elif pattern.type == "object_pattern":
            for part in pattern.named_children:
                if part.type == "shorthand_property_identifier_pattern" and self._is(part, name):
                    yield name
                elif part.type == "pair_pattern":
                    key, value = part.child_by_field_name("key"), part.child_by_field_name("value")
                    if key is not None and value is not None and self._is(value, name):
                        yield self.text(key)
        elif pattern.type == "array_pattern":
            for number, part in enumerate(pattern.named_children):
                if self._is(part, name):
                    yield str(number)

    def _has(self, pattern: Node, name: str) -> bool:
        found = any(True for _ in self._keys(pattern, name))
        return found and (pattern.type != "identifier" or self._is(pattern, name))

    def _is(self, node: Node, name: str) -> bool:
        span = span_of(node)
        return self.units[span.start : span.end] == name

    def _path(self, span: Span) -> list[Node]:
        """Return the nodes that a place is in, outermost first."""
        path: list[Node] = []
        node = self._root
        while node is not None:
            path.append(node)
            self._spend(node.named_child_count)
            node = next((child for child in node.named_children if covers(child, span)), None)
        return path

    def _inside(self, scope: Node) -> Iterator[Node]:
        """Yield the nodes of a function that are in no function inside it; those functions themselves too."""
        yield from self._walk(scope, into_functions=False)

    def _deep(self, scope: Node) -> Iterator[Node]:
        """Yield the nodes of the functions inside a function."""
        for function in self._inside(scope):
            if function.type in FUNCTIONS:
                yield from self._walk(function, into_functions=True)

    def _walk(self, scope: Node, *, into_functions: bool) -> Iterator[Node]:
        left = list(scope.named_children)
        self._spend(len(left))
        while left:
            node = left.pop()
            yield node
            if into_functions or node.type not in FUNCTIONS:
                children = node.named_children
                self._spend(len(children))
                left.extend(children)

    def _spend(self, nodes: int) -> None:
        self._left -= nodes
        if self._left < 0:
            raise _GivenUpError


def _holds(arguments: Node, function: Node) -> bool:
    return any(span_of(each) == span_of(function) for each in arguments.named_children)


def _set(node: Node) -> tuple[Node | None, Node | None]:
    """Return the pattern and the expression of a node that sets variables."""
    match node.type:
        case "variable_declarator":
            return node.child_by_field_name("name"), node.child_by_field_name("value")
        case "assignment_expression" | "for_in_statement":
            return node.child_by_field_name("left"), node.child_by_field_name("right")
    return None, None
