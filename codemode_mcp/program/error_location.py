"""Locations of syntax errors and of errors at run time, which the engine reports only roughly. Pure.

The engine records positions at calls, operators and expression statements. The position of one of its own errors, such
as reading a property of undefined in a declaration, is therefore the last one that it recorded, or the start of the
function. This module searches the syntax tree from there, in the same function and up to the next recorded position,
for nodes that the message can be about.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from codemode_mcp.program.syntax import FUNCTIONS, LINE_END, Lines, Span, parse, span_of, text_of, utf16_units, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node


__all__ = ["Fault", "find_fault"]

_MAX_CHARACTERS = 50_000
"""Maximum number of characters of a program that is searched, which takes 0.2 s."""


class Fault(Struct, frozen=True):
    """Facts from the program's text about an error of the engine.

    Attributes:
        positions: 1-based lines and columns at which the error may have occurred, best first and one for each line;
            empty if the engine's position is the best.
        message: the engine's message, with names that it leaves out.
        about: the expression whose value caused the error.
    """

    positions: tuple[tuple[int, int], ...]
    message: str
    about: Span | None = None


def find_fault(code: str, line: int, column: int, function: str | None, message: str) -> Fault:
    """Search the program for the expression that an error of the engine is about.

    Args:
        code: the program that the engine ran.
        line: the engine's line; less than 1 if it recorded no position.
        column: the engine's column.
        function: the function that the engine names; None for the top level, empty for a function without a name.
        message: the engine's message.
    """
    units = utf16_units(code)
    tree = parse(units) if len(code) <= _MAX_CHARACTERS else None
    if tree is None:
        return Fault((), message)
    lines = Lines(units)
    start = lines.offset(line, column) if line >= 1 else 0
    target = _target_of(message)
    if target.kinds == _CALLS:
        return _call_fault(tree.root_node, units, lines, start, message)
    places = list(_walk(tree.root_node, units, target, lines.offset(line, 1) if line >= 1 else 0))
    functions = _functions_of_frame(places, lines, line, start, function)
    places = [place for place in places if place.function in functions]
    places.sort(key=lambda place: (place.at, place.recorded))
    thrown = [place for place in places if place.raises and place.at <= start < place.end]
    found: dict[int, _Place] = {}
    for place in places:
        if place.at < start or (thrown and place.at >= thrown[-1].end):
            continue
        if place.recorded and place.at > start and found:
            break
        if place.suspect:
            row = lines.position(place.at)[0]
            if row not in found or (found[row].computed and not place.computed):
                found[row] = place
    about = None
    if len(found) == 1:
        place = next(iter(found.values()))
        about = place.owner
        message += _describe_owner(place, units, message)
    if thrown and not found:
        # The program throws this error itself; the engine recorded an operator in its arguments.
        return Fault((lines.position(thrown[-1].at),), message)
    return Fault(tuple(lines.position(place.at) for place in found.values()), message, about)


class _Target(Struct, frozen=True):
    """The nodes that a message can be about.

    Attributes:
        kinds: their types.
        name: their name; None if the message has no name.
    """

    kinds: frozenset[str]
    name: str | None = None


_MEMBERS = words("member_expression subscript_expression object_pattern")
_NAMES = words("identifier shorthand_property_identifier")
_TARGETS = words("assignment_expression augmented_assignment_expression update_expression for_in_statement")
_FIELDS = words("public_field_definition field_definition")
"""Fields, whose value is a function without recorded positions for the engine."""
_ITERATIONS = words("for_in_statement spread_element array_pattern yield_expression")

_CALLS = frozenset(("call_expression",))

_MESSAGES = (
    (re.compile(r"not a function"), _CALLS),
    (re.compile(r"cannot (?:read|set|delete) property 'Symbol\.iterator' of (?:undefined|null)"), _ITERATIONS),
    (re.compile(r"cannot (?:read|set|delete) property '(.*)' of (?:undefined|null)", re.DOTALL), _MEMBERS),
    (re.compile(r"'?([\w$]+)'? is not (?:defined|initialized)"), _NAMES),
    (re.compile(r"'(.*)' is read-only", re.DOTALL), _TARGETS),
    (re.compile(r"value is not iterable|.* is not iterable"), _ITERATIONS),
    (re.compile(r"Cannot convert undefined or null to object"), frozenset(("object_pattern",))),
    (re.compile(r"private class field '(#[\w$]+)' (?:does not exist|.*)"), frozenset(("private_property_identifier",))),
)


def _target_of(message: str) -> _Target:
    for pattern, kinds in _MESSAGES:
        match = pattern.fullmatch(message)
        if match is not None:
            return _Target(kinds, match[1] if pattern.groups else None)
    return _Target(frozenset())


class _Place(Struct, frozen=True):
    """A node that helps to locate the error.

    Attributes:
        at: the offset of an error in the node.
        end: the end of the node.
        function: the span of the function that contains the node; None at the top level.
        suspect: whether the message can be about the node.
        recorded: whether the engine records its position.
        raises: whether it creates an error object.
        is_function: whether it is a function.
        name: the name of a function.
        owner: the expression whose property is read.
        computed: whether the name of the property is known only at run time.
    """

    at: int
    end: int
    function: Span | None
    suspect: bool = False
    recorded: bool = False
    raises: bool = False
    is_function: bool = False
    name: str = ""
    owner: Span | None = None
    computed: bool = False


_ERASED = words("type_annotation type_alias_declaration interface_declaration type_arguments comment string regex")


def _walk(root: Node, units: str, target: _Target, after: int) -> Iterator[_Place]:
    """Yield the relevant nodes after an offset. There is no recursion, since source may be nested too deeply for it."""
    left: list[tuple[Node, Node | None, Span | None]] = [(root, None, None)]
    while left:
        node, parent, function = left.pop()
        span = span_of(node)
        if span.end <= after or node.type in _ERASED:
            continue
        yield from _places(node, parent, span, function, units, target)
        inner = span if node.type in FUNCTIONS or node.type in _FIELDS else function
        left.extend((child, node, inner) for child in node.named_children)


def _places(
    node: Node, parent: Node | None, span: Span, function: Span | None, units: str, target: _Target
) -> Iterator[_Place]:
    kind = node.type
    if kind in FUNCTIONS or kind in _FIELDS:
        yield _Place(span.start, span.end, span, is_function=True, name=_function_name(node, parent, units))
    elif kind == "expression_statement":
        yield _Place(span.start, span.end, function, recorded=True)
    elif kind in ("call_expression", "new_expression"):
        callee = node.child_by_field_name("function") or node.child_by_field_name("constructor")
        if callee is not None:
            last = callee.child_by_field_name("property") or callee
            raises = text_of(units, callee).endswith("Error")
            # The position is recorded after the callee is evaluated, and before the arguments are.
            at = span.start if kind == "new_expression" else span_of(last).start
            yield _Place(at, span.end, function, recorded=True, raises=raises)
    if kind in target.kinds:
        owner = node.child_by_field_name("object") or node.child_by_field_name("right")
        if kind == "spread_element":
            owner = node.named_child(0)
        elif kind in ("array_pattern", "object_pattern") and parent is not None:
            owner = parent.child_by_field_name("value")
        for at in _suspects(node, parent, kind, units, target.name):
            index = node.child_by_field_name("index")
            computed = index is not None and index.type not in ("string", "number")
            yield _Place(
                at, span.end, function, suspect=True, owner=None if owner is None else span_of(owner), computed=computed
            )


def _suspects(node: Node, parent: Node | None, kind: str, units: str, name: str | None) -> Iterator[int]:
    """Yield the offsets at which the error can be in a node."""
    match kind:
        case "member_expression" | "subscript_expression":
            if any(child.type == "optional_chain" for child in node.children):
                return
            key = node.child_by_field_name("property" if kind == "member_expression" else "index")
            if key is not None and _is_named(key, units, name):
                yield span_of(key).start
        case "object_pattern":
            if name is None:
                yield span_of(node).start
            for part in node.named_children:
                key = part.children[0] if part.type in ("pair_pattern", "object_assignment_pattern") else part
                if name is not None and _is_named(key, units, name):
                    yield span_of(key).start
        case "identifier" | "shorthand_property_identifier":
            if text_of(units, node) == name and not _is_harmless(node, parent):
                yield span_of(node).start
        case "assignment_expression" | "augmented_assignment_expression" | "update_expression":
            target = node.child_by_field_name("left") or node.child_by_field_name("argument")
            if target is not None and name is not None and _assigns(target, units, name):
                yield span_of(node).start
        case "for_in_statement":
            target = node.child_by_field_name("left")
            if name is None:
                value = node.child_by_field_name("right")
                yield span_of(value or node).start
            elif target is not None and text_of(units, target) == name:
                yield span_of(target).start
        case "private_property_identifier":
            if text_of(units, node) == name:
                yield span_of(node).start
        case _:
            yield span_of(node).start


def _is_harmless(name: Node, parent: Node | None) -> bool:
    """Return True if a name is only an operand of `typeof`, or is declared."""
    if parent is None:
        return False
    if parent.type == "unary_expression":
        return parent.children[0].type == "typeof"
    declared = parent.child_by_field_name("name")
    return declared is not None and declared == name


def _is_named(key: Node, units: str, name: str | None) -> bool:
    """Return True if a key is, or may have been, this name."""
    text = text_of(units, key)
    if key.type in ("string", "number"):
        return text.strip("'\"") == name
    if key.type in ("property_identifier", "shorthand_property_identifier_pattern"):
        return text == name
    return key.type != "private_property_identifier"


def _assigns(target: Node, units: str, name: str) -> bool:
    text = text_of(units, target)[:1000]
    return text == name or text.endswith("." + name) or re.search(rf"[\[{{,]\s*{re.escape(name)}\b", text) is not None


def _function_name(node: Node, parent: Node | None, units: str) -> str:
    """Return the name that the engine gives to a function: its own, or that of the variable or property."""
    name = node.child_by_field_name("name")
    while parent is not None and parent.type == "parenthesized_expression":
        parent = parent.parent
    if name is None and parent is not None:
        match parent.type:
            case "variable_declarator" | "public_field_definition" | "field_definition":
                name = parent.child_by_field_name("name")
            case "pair":
                name = parent.child_by_field_name("key")
            case "assignment_expression":
                name = parent.child_by_field_name("left")
    return "" if name is None else text_of(units, name)


def _functions_of_frame(
    places: list[_Place], lines: Lines, line: int, start: int, name: str | None
) -> set[Span | None]:
    """Return the functions that a frame can belong to: those that start on its line or contain its position."""
    if name is None:
        return {None}
    if line < 1:
        return {place.function for place in places if place.is_function}
    around = [
        place
        for place in places
        if place.is_function and (lines.position(place.at)[0] == line or place.at <= start < place.end)
    ]
    plain = name.removeprefix("get ").removeprefix("set ")
    named = [place for place in around if place.name == plain]
    if named:
        return {place.function for place in named}
    inner = max((place.at for place in around if place.at <= start < place.end), default=None)
    return {place.function for place in around if place.at == inner or lines.position(place.at)[0] == line}


def _describe_owner(place: _Place, units: str, message: str) -> str:
    what = re.search(r" of (undefined|null)$|value is (not iterable)$", message)
    text = "" if place.owner is None else _short(units, place.owner)
    if what is None or text in ("", "undefined", "null"):
        return ""
    return f" ({text} is {what[1] or what[2]}{_advice(text, units)})"


def _advice(expression: str, units: str) -> str:
    """Return advice for an expression that begins with a call that was not awaited, or with a variable set to one.

    Or return advice for one that ends with a group of operations that a server does not have.
    """
    root = re.match(r"[\w$]+", expression)
    if root is None:
        return ""
    group = re.search(r"\b(?:\.|\[[\"'`])(resources|prompts)(?:[\"'`]\])?\Z|[\])]\.(resources|prompts)\Z", expression)
    if group is not None:
        return f"; a server without {group[1] or group[2]} has no such member"
    if re.match(r"(?:(?:MCP|API|tools)\.[\w$.]+|load)\(", expression):
        return "; a call returns a promise: await it"
    if re.search(rf"\b{re.escape(root[0])}\s*=\s*(?:(?:MCP|API|tools)\s*[.\[]|load\()", units):
        return f"; {root[0]} is a promise: await the call"
    return ""


def _call_fault(root: Node, units: str, lines: Lines, start: int, message: str) -> Fault:
    """Return the fault with the name of the called function. It is unknown if one call is an argument of another."""
    unknown = Fault((), message)
    calls: list[Node] = []
    node: Node | None = root
    while node is not None:
        if node.type in FUNCTIONS and span_of(node).start < start:
            calls.clear()
        if node.type == "call_expression":
            calls.append(node)
        node = next((child for child in node.named_children if _contains(child, start)), None)
    if not calls or any(_contains(call.child_by_field_name("arguments"), start) for call in calls[:-1]):
        return unknown
    callee = calls[-1].child_by_field_name("function")
    name = "" if callee is None else _short(units, span_of(callee))
    if callee is None or not name:
        return unknown
    at = span_of(callee.child_by_field_name("property") or callee).start
    owner = callee.child_by_field_name("object")
    about = None if owner is None else span_of(owner)
    return Fault((lines.position(at),), f"{name} is {message}{_advice(name, units)}", about)


def _contains(node: Node | None, at: int) -> bool:
    return node is not None and span_of(node).start <= at < span_of(node).end


_SHORT = 60


def _short(units: str, span: Span) -> str:
    """Return a piece of code on one line; empty if it is too long for a message."""
    if span.end - span.start > 4 * _SHORT:
        return ""
    line = re.sub(r"\s*\n\s*", "", units[span.start : span.end])
    return line if len(line) <= _SHORT and "\n" not in line else ""


# Locations of syntax errors, for which the engine reports a line but no column.


_ODD_CHARACTER = re.compile(r"[^\x00-\x7f\w]")
_QUOTED_TOKEN = re.compile(r"unexpected .*'(.+)'$", re.IGNORECASE)


def syntax_error_column(source: str, line: int, message: str) -> int:
    """Guess the column of a syntax error on a line. Lines and columns count from 1.

    The guess is the token that the message quotes, or else the first error of the parser.
    """
    units = utf16_units(source)
    ends = [found.end() for found in LINE_END.finditer(units)]
    start = ends[line - 2] if line > 1 else 0
    text = units[start : ends[line - 1] if line <= len(ends) else len(units)]
    errors = [span for span in _parser_errors(units) if start <= span.start <= start + len(text)]
    first = min(errors, default=Span(start, start))
    odd = _ODD_CHARACTER.search(text) if message == "unexpected character" else None
    if odd is not None:
        return odd.start() + 1
    quoted = _QUOTED_TOKEN.search(message)
    if quoted is not None:
        at = text.find(quoted[1], first.start - start)
        at = text.find(quoted[1]) if at < 0 else at
    else:
        after = max(first.end - start, 0)
        at = len(text) - len(text[after:].lstrip()) if text[after:].strip() else after
    return min(max(at, 0), len(text.rstrip("\r\n\u2028\u2029"))) + 1


def first_error_line(root: Node) -> int | None:
    """Return the 1-based line of the first error of the parser in a tree; None if it has none."""
    return min((node.start_point.row + 1 for node in _error_nodes(root)), default=None)


def _parser_errors(units: str) -> Iterator[Span]:
    tree = parse(units)
    return iter(()) if tree is None else map(span_of, _error_nodes(tree.root_node))


def _error_nodes(root: Node) -> Iterator[Node]:
    left = [root]
    while left:
        node = left.pop()
        if node.is_error or node.is_missing:
            yield node
        elif node.has_error:
            left.extend(node.children)


def stray_await(source: str, line: int) -> int | None:
    """Return the column of an `await` on `line` in a function that is not async, or None."""
    units = utf16_units(source)
    tree = parse(units)
    lines = Lines(units)
    left = [] if tree is None else [(tree.root_node, True)]
    found = []
    while left:
        node, is_async = left.pop()
        if node.type in FUNCTIONS:
            is_async = any(child.type == "async" for child in node.children)
        if node.type == "await" and not is_async:
            row, column = lines.position(span_of(node).start)
            if row == line:
                found.append(column)
        left.extend((child, is_async) for child in node.children)
    return min(found, default=None)


def regex_offsets(source: str, message: str) -> list[int]:
    """Return the offsets in UTF-16 units of the regular expressions that a message quotes, or of all if it quotes none.

    The engine reports no position of an error in one.
    """
    units = utf16_units(source)
    tree = parse(units)
    left = [] if tree is None else [tree.root_node]
    found = []
    while left:
        node = left.pop()
        if node.type == "regex":
            found.append(span_of(node))
        left.extend(node.named_children)
    quoted = [span for span in found if units[span.start : units.rfind("/", span.start, span.end) + 1] in message]
    return [span.start for span in quoted or found]
