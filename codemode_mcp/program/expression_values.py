"""The values of a failed program's expressions, for its error: `r is an object with: content`.

The engine reports that `r.map` is not a function, but not the value of `r`, and its variables are gone by then. The
host still has the latest results of the program's calls. This module finds in the syntax tree which call `r` comes
from, and follows the expressions over those results. It runs nothing of the program.

An uncertain value is not reported: the search ends at every step that is not understood, and a value that would not
have caused the error is dropped. Containers that the program creates have no known members, since it may change them.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.base.did_you_mean import normalize_name
from codemode_mcp.program.described_values import (
    MAX_CANDIDATES,
    RESULT_MEMBERS,
    UNDEFINED,
    BoundedTree,
    BudgetExceededError,
    Loose,
    Promised,
    Result,
    Unseen,
    Variables,
    can_cause_error,
    describe_value,
    elements,
    is_index,
    is_missing,
    is_there,
    kind_of,
    member,
    parsed,
    unwrap_value,
)
from codemode_mcp.program.syntax import FUNCTIONS, TRANSPARENT, Span, span_of, utf16_units, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tree_sitter import Node

_MAX_DEPTH: Final = 40
"""Maximum depth of expressions that are followed."""
_CHARACTERS_PER_NODE: Final = 100
"""Characters of JSON that are parsed, or members that are listed, in the time of one node."""

_MAX_READ: Final = 50_000
_MAX_NODES_READ: Final = 20_000
"""Maximum characters of a program whose reads of members are described, and nodes that are visited for that, in about
0.04 s."""

_SAME_ELEMENTS: Final = words("filter slice sort reverse toSorted toReversed concat")
_ONE_ELEMENT: Final = words("find findLast at pop shift")
_SAME_TEXT: Final = words("trim toString")


def advice(units: str, about: Span, message: str, results: Sequence[Result]) -> str:
    """Describe the value of an expression for the end of an error about it; empty if it is unknown.

    Args:
        units: the program, as `utf16_units` returns it.
        about: the expression in the message: the one whose method was called, or that is undefined.
        message: the engine's message.
    """
    try:
        return _advice(_Evaluator(units, results), about, message)
    except BudgetExceededError:
        return ""


def _advice(evaluator: _Evaluator, about: Span, message: str) -> str:
    tree = evaluator.tree
    node = next((node for node in reversed(tree.path(about)) if span_of(node) == about), None)
    if node is None:
        return ""
    missing = re.search(r" of (undefined|null)\b", message)
    if missing is not None:
        return _describe_owner(evaluator, node, missing[1])
    method = re.search(r"\.([\w$]+) is not a function", message)
    name = method[1] if method is not None else None
    return _unanimous(
        [describe_value(tree.text(node), value) for value in evaluator.values(node) if can_cause_error(value, name)]
    )


def _describe_owner(evaluator: _Evaluator, node: Node, kind: str) -> str:
    expected = None if kind == "null" else UNDEFINED
    texts = []
    for owner, key, value in evaluator.owners(node):
        found = member(value, key)
        if found is expected and not (found is UNDEFINED and isinstance(value, Loose)):
            texts.append(describe_value(owner, value))
    return _unanimous(texts)


def unread_results(code: str, results: Sequence[Result]) -> list[str]:
    """Describe the members that a program reads of results of calls, and that are members of their data instead.

    Such a read is undefined, and silent. Promises of results are among them.

    Args:
        code: the program that has run.
    """
    if len(code) > _MAX_READ:
        return []
    evaluator = _Evaluator(utf16_units(code), results, assumes=True)
    found: dict[str, None] = {}
    try:
        for owner, key, values in evaluator.reads():
            if text := _describe_read(evaluator, owner, key, values):
                found[text] = None
    except BudgetExceededError:
        pass
    return list(found)


def _describe_read(evaluator: _Evaluator, owner: Node, key: str, values: Sequence[Any]) -> str:
    """Describe the read of a member that no value has; empty if a value may have it, or is no result."""
    is_name = owner.type == "identifier"
    name = evaluator.tree.text(owner) if is_name else "result"
    if key in _OF_OBJECTS or (is_name and f"unwrap({name})" in evaluator.tree.units):
        return ""
    texts = []
    paths = set()
    for value in values:
        result = value.value if isinstance(value, Promised) else value
        path = evaluator.path_of(result)
        if path is None:
            return ""
        paths.add(path)
        if isinstance(value, Promised):
            promise = evaluator.tree.text(owner) or name
            instead = f"(await {promise})" if key in RESULT_MEMBERS else f"unwrap(await {promise})"
            texts.append(f"{promise} is a promise of the result of {path}, not the result; use {instead}.{key}")
        elif is_there(result, key) or (key in RESULT_MEMBERS and not _lacks_data(evaluator, result, key)):
            return ""
        else:
            unwrapped = unwrap_value(result)
            known = "" if unwrapped is UNDEFINED else f", which is {kind_of(unwrapped)}"
            instead = f"unwrap({name})" if known and not is_there(unwrapped, key) else f"unwrap({name}).{key}"
            more = known if not known or instead.endswith(")") else f". unwrap({name}) is {kind_of(unwrapped)}"
            texts.append(f".{key} is not a member of the result of {path}; use {instead}{more}")
    return texts[0] if len(paths) == 1 else ""


def _lacks_data(evaluator: _Evaluator, result: Any, key: str) -> bool:
    """Return True if a program reads the data of a result in one member, and the result has it in another one."""
    return key == "structuredContent" and isinstance(result, dict) and ".content" not in evaluator.tree.units


def _unanimous(texts: list[str]) -> str:
    """Return the text that all candidates share; empty if they differ."""
    different = list(dict.fromkeys(texts))
    return different[0] if len(different) == 1 else ""


class _Evaluator:
    """Follows the expressions of one program over the results of its calls."""

    def __init__(self, units: str, results: Sequence[Result], *, assumes: bool = False) -> None:
        """`assumes`: a call of a tool without a result in `results` has had one."""
        self.tree = BoundedTree(units, _MAX_NODES_READ) if assumes else BoundedTree(units)
        self._results = results
        self._assumes = assumes
        self._has_aliases = _ALIAS.search(units) is not None
        self._parsed_results: dict[int, Any] = {}
        self._variables = Variables(self.tree, self.values)
        self._depth = 0

    def values(self, node: Node) -> list[Any]:
        """Return the values that an expression may have had, at most `MAX_CANDIDATES`."""
        self.tree.spend(1 + node.named_child_count)
        if self._depth > _MAX_DEPTH:
            return []
        self._depth += 1
        try:
            found = self._values(node)
        finally:
            self._depth -= 1
        return found[:MAX_CANDIDATES]

    def path_of(self, value: Any) -> str | None:
        """Return the expression that calls the tool whose result a value is; None for other values."""
        if isinstance(value, Unseen):
            return value.path
        if not isinstance(value, dict) or not (isinstance(value.get("content"), list) or "structuredContent" in value):
            return None
        return next((self._results[n].path for n, each in self._parsed_results.items() if each is value), None)

    def reads(self) -> Iterator[tuple[Node, str, list[Any]]]:
        """Yield the reads of members in the program, in order: the expression of the object, the key, and the values
        that the object may have had. Members that are called, tested or assigned to are left out."""
        nodes = [] if self.tree.root is None else list(self.tree.walk(self.tree.root, into_functions=True))
        for node in sorted(nodes, key=lambda node: node.start_byte):
            parent = node.parent
            if parent is None:
                continue
            key, owner = self.tree.key(node), node.child_by_field_name("object")
            # A member of an object is no result, except for `value` of `Promise.allSettled`.
            if owner is not None and owner.type == "member_expression" and self.tree.key(owner) != "value":
                continue
            if key is not None and owner is not None and not _is_used(node, parent):
                yield owner, key, self.values(owner)
            if node.type == "object_pattern":
                values = self._taken_apart(node)
                for name in self.tree.pattern_keys(node):
                    yield node, name, values

    def _taken_apart(self, pattern: Node) -> list[Any]:
        parent = pattern.parent
        if parent is None:
            return []
        value, right = parent.child_by_field_name("value"), parent.child_by_field_name("right")
        match parent.type:
            case "variable_declarator" if value is not None:
                return self.values(value)
            case "assignment_expression" if right is not None:
                return self.values(right)
            case "for_in_statement" if right is not None:
                return [each for value in self.values(right) for each in elements(value)]
            case "array_pattern":
                number = parent.named_children.index(pattern)
                return [elements(each)[number] for each in self._taken_apart(parent) if len(elements(each)) > number]
        return self._variables.passed(pattern)

    def owners(self, node: Node) -> Iterator[tuple[str, str, Any]]:
        """Yield the objects of which an expression reads a missing member: expression, key and value."""
        while node.type in TRANSPARENT and node.named_children:
            node = node.named_children[0]
        key = self.tree.key(node)
        if key is not None:
            owner = node.child_by_field_name("object")
            assert owner is not None
            for value in self.values(owner):
                if is_missing(value, key):
                    yield self.tree.text(owner), key, value
        elif node.type == "identifier":
            for name, source, values in self._variables.bindings(node):
                for value in values:
                    if name is not None and is_missing(value, name):
                        yield self.tree.text(source), name, value

    def _values(self, node: Node) -> list[Any]:
        first = next(iter(node.named_children), None)
        match node.type:
            case "identifier":
                return [UNDEFINED] if self.tree.is_text(node, "undefined") else self._variables.values(node)
            case "await_expression" if first is not None:
                return [_settled(each) for each in self.values(first)]
            case kind if kind in TRANSPARENT and first is not None:
                return self.values(first)
            case "member_expression" | "subscript_expression":
                return self._members(node)
            case "call_expression":
                return self._call(node)
            case "string":
                return [self.tree.string(node)]
            case "number":
                text = self.tree.text(node)
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
        """Evaluate `a ?? b` and `a || b`."""
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
        key = self.tree.key(node)
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

    # calls

    def _call(self, node: Node) -> list[Any]:
        callee = node.child_by_field_name("function")
        arguments = node.child_by_field_name("arguments")
        if callee is None or arguments is None:
            return []
        given = arguments.named_children
        name = self._name(callee)
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
            case "Promise.allSettled" if given:
                return [Promised(_settlements(each.value)) for each in self._all(given[0])]
        if callee.type == "member_expression":
            return self._method(callee, given)
        if callee.type == "identifier":
            return self._returned(callee)
        return []

    def _name(self, callee: Node) -> str:
        """Return the expression of a callee. A variable that holds a server, or a tool, is replaced by the server."""
        key = self.tree.key(callee)
        variable = callee if key is None else callee.child_by_field_name("object")
        if not self._has_aliases or variable is None or variable.type != "identifier":
            return self.tree.text(callee)
        for name, source, _ in self._variables.bindings(variable):
            held = ".".join(filter(None, (self.tree.text(source), name, key)))
            if _TOOL.fullmatch(held):
                return held
        return self.tree.text(callee)

    def _objects(self, node: Node) -> Iterator[dict[str, Any]]:
        for value in self.values(node):
            if isinstance(value, dict):
                self.tree.spend(len(value))
                yield value

    def _unwrapped(self, value: Any) -> Any:
        if isinstance(value, dict) and isinstance(value.get("content"), list):
            self._spend_on(each.get("text") for each in value["content"] if isinstance(each, dict))
        return unwrap_value(value)

    def _parsed(self, value: Any) -> list[Any]:
        self._spend_on([value])
        return parsed(value)

    def _spend_on(self, texts: Iterable[Any]) -> None:
        self.tree.spend(sum(1 + len(text) // _CHARACTERS_PER_NODE for text in texts if isinstance(text, str)))

    def _result(self, name: str, given: Sequence[Node]) -> list[Any]:
        if name == "tools.call":
            if not given or given[0].type != "string":
                return []
            name = self.tree.string(given[0])
        spelling = normalize_name(name)
        found = []
        for number, result in enumerate(self._results):
            if spelling not in result.names:
                continue
            if number not in self._parsed_results:
                try:
                    self._parsed_results[number] = json.loads(result.text)
                except (ValueError, RecursionError):
                    continue
            found.append(Promised(self._parsed_results[number]))
        if not found and self._assumes and _TOOL.fullmatch(name):
            return [Promised(Unseen(name))]
        return found

    def _all(self, node: Node) -> list[Promised]:
        """Evaluate `Promise.all` of an array of calls, or of a call for each element of an array."""
        if node.type == "array":
            values = [self.values(child) for child in node.named_children]
            if not all(values):
                return [Promised(Loose(()))]
            rows = [[each[min(n, len(each) - 1)] for each in values] for n in range(max(map(len, values), default=1))]
            return [Promised([_settled(one) for one in row]) for row in rows]
        return [Promised(Loose(tuple(map(_settled, elements(each))))) for each in self.values(node)]

    def _method(self, callee: Node, given: Sequence[Node]) -> list[Any]:
        owner, name = callee.child_by_field_name("object"), callee.child_by_field_name("property")
        if owner is None or name is None:
            return []
        method = self.tree.text(name)
        found: list[Any] = []
        for value in self.values(owner):
            if method == "then" and isinstance(value, Promised) and given:
                found += map(_promised, self._returned(given[0]))
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
        if function.type == "identifier":
            return [each for found in self.tree.functions(function) for each in self._returned(found)]
        body = function.child_by_field_name("body") if function.type in FUNCTIONS else None
        if body is None:
            return []
        found: list[Any] = []
        if body.type != "statement_block":
            found += self.values(body)
        else:
            for node in self.tree.walk(body, into_functions=False):
                if node.type == "return_statement":
                    found += [each for child in node.named_children for each in self.values(child)]
        is_async = any(child.type == "async" for child in function.children)
        return list(map(_promised, found)) if is_async else found


_ALIAS: Final = re.compile(r"=\s*MCP\s*[.\[]")
"""The beginning of an assignment of a server, or of a call."""

_OF_OBJECTS: Final = words("then catch finally constructor toString valueOf hasOwnProperty")
"""Members that every object or promise has."""

_TOOL: Final = re.compile(r"MCP\.[\w$]+\.(?!\$)[\w$]+")
"""A call of a tool, not of `$api`, `resources` or `prompts`."""


def _is_used(node: Node, parent: Node) -> bool:
    """Return True if a member is called, tested or assigned to, and not only read."""
    first = parent.children[0] if parent.children else None
    if parent.type in ("call_expression", "assignment_expression", "update_expression"):
        return first == node
    return parent.type == "unary_expression" and first is not None and first.type in ("typeof", "delete")


def _settlements(values: Any) -> Any:
    """Return the elements that `Promise.allSettled` gives for those of `Promise.all`."""
    found = [{"status": "fulfilled", "value": each} for each in elements(values)]
    return found if isinstance(values, list) else Loose(tuple(found))


def _settled(value: Any) -> Any:
    return value.value if isinstance(value, Promised) else value


def _promised(value: Any) -> Promised:
    return value if isinstance(value, Promised) else Promised(value)
