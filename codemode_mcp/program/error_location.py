"""Locations of errors in a program, of which the engine reports only a part. Pure.

The engine notes the line of a syntax error but no column. At run time it notes positions at calls, operators and
statements that are expressions, so that an error of its own, such as reading a property of undefined in a declaration,
is placed at whatever it noted before, or at the start of the function. From there on, in the same function and up to
the next place it would have noted, the syntax tree shows what the message can be about.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemode_mcp.program.syntax import FUNCTIONS, LINE_END, Lines, Span, parse, span_of, utf16_units, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node

__all__ = ["Fault", "fault_column", "find_fault", "regex_offsets", "stray_await"]

_MAX_CHARACTERS = 50_000
"""Characters of programs in which an error is looked for, which takes 0.2 s then."""


# --- Syntax errors ---------------------------------------------------------------------------------------------------


def fault_column(source: str, line: int, message: str) -> int:
    """Return where on `line` a syntax error lies, of which the engine tells the line but no column. Both count from 1.

    A guess, good for pointing at: the token that the message quotes, from where the parser stumbles on.
    """
    units = utf16_units(source)
    ends = [found.end() for found in LINE_END.finditer(units)]
    start = ends[line - 2] if line > 1 else 0
    text = units[start : ends[line - 1] if line <= len(ends) else len(units)]
    stumbles = [span for span in _stumbles(units) if start <= span.start <= start + len(text)]
    first = min(stumbles, default=Span(start, start))
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


_ODD_CHARACTER = re.compile(r"[^\x00-\x7f\w]")
_QUOTED_TOKEN = re.compile(r"unexpected .*'(.+)'$", re.IGNORECASE)


def _stumbles(units: str) -> Iterator[Span]:
    """Yield what the parser could not make sense of, or missed."""
    tree = parse(units)
    left = [] if tree is None else [tree.root_node]
    while left:
        node = left.pop()
        if node.is_error or node.is_missing:
            yield span_of(node)
        elif node.has_error:
            left.extend(node.children)


def stray_await(source: str, line: int) -> int | None:
    """Return the column of an `await` on `line`, in a function that is not async; None when there is none."""
    units = utf16_units(source)
    tree = parse(units)
    lines = Lines(units)
    left = [] if tree is None else [(tree.root_node, True)]
    found = []
    while left:
        node, may_wait = left.pop()
        if node.type in FUNCTIONS:
            may_wait = any(child.type == "async" for child in node.children)
        if node.type == "await" and not may_wait:
            row, column = lines.position(span_of(node).start)
            if row == line:
                found.append(column)
        left.extend((child, may_wait) for child in node.children)
    return min(found, default=None)


def regex_offsets(source: str) -> list[int]:
    """Return where regular expressions stand, in UTF-16 units: of a mistake in one, the engine tells no place at
    all."""
    tree = parse(utf16_units(source))
    left = [] if tree is None else [tree.root_node]
    found = []
    while left:
        node = left.pop()
        if node.type == "regex":
            found.append(span_of(node).start)
        left.extend(node.named_children)
    return found


# --- Errors at run time ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fault:
    """Facts from the program's text about an error of the engine's own.

    Attributes:
        positions: where it arose, lines and columns from 1, best first, one a line; several when it may have arisen at
            each of them, none when the engine's position is the best there is.
        message: the engine's, with the names that it leaves out.
        about: the expression whose value was not what the program took it for.
    """

    positions: tuple[tuple[int, int], ...]
    message: str
    about: Span | None = None


def find_fault(code: str, line: int, column: int, function: str | None, message: str) -> Fault:
    """Look an error of the engine's own up in the program.

    Args:
        code: what the engine ran.
        line, column: the position it gives; a line before the first stands for nothing noted.
        function: the name of the function that it names; `None` for the top level, empty for one without a name.
        message: of the error.
    """
    untold = Fault((), message)
    if len(code) > _MAX_CHARACTERS:
        return untold
    units = utf16_units(code)
    tree = parse(units)
    if tree is None:
        return untold
    lines = Lines(units)
    start = lines.offset(line, column) if line >= 1 else 0
    look_for = _look_for(message)
    if look_for.kinds == _CALLS:
        return _call_fault(tree.root_node, units, lines, start, message)
    places = list(_walk(tree.root_node, units, look_for, lines.offset(line, 1) if line >= 1 else 0))
    inside = _inside(places, lines, line, start, function)
    places = sorted((place for place in places if place.function in inside), key=lambda place: (place.at, place.notes))
    made = [place for place in places if place.raises and place.at <= start < place.end]
    found: dict[int, _Place] = {}
    for place in places:
        if place.at < start or (made and place.at >= made[-1].end):
            continue
        if place.notes and place.at > start and found:
            break
        if place.suspect:
            row = lines.position(place.at)[0]
            if row not in found or (found[row].computed and not place.computed):
                found[row] = place
    about = None
    if len(found) == 1:
        place = next(iter(found.values()))
        about = place.owner
        message += _owner(place, units, message)
    if made and not found:
        # The program's own; the engine noted an operator in its arguments.
        return Fault((lines.position(made[-1].at),), message)
    return Fault(tuple(lines.position(place.at) for place in found.values()), message, about)


@dataclass(frozen=True, slots=True)
class _LookFor:
    """Nodes that a message can be about.

    Attributes:
        kinds: of nodes.
        name: what they are named; None for whatever they are.
    """

    kinds: frozenset[str]
    name: str | None = None


_MEMBERS = words("member_expression subscript_expression object_pattern")
_NAMES = words("identifier shorthand_property_identifier")
_TARGETS = words("assignment_expression augmented_assignment_expression update_expression for_in_statement")
_FIELDS = words("public_field_definition field_definition")
"""Fields whose value is a function of its own for the engine, without positions."""
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


def _look_for(message: str) -> _LookFor:
    for pattern, kinds in _MESSAGES:
        match = pattern.fullmatch(message)
        if match is not None:
            return _LookFor(kinds, match[1] if pattern.groups else None)
    return _LookFor(frozenset())


@dataclass(frozen=True, slots=True)
class _Place:
    """A node of interest.

    Attributes:
        at: where an error in it would be shown.
        function: the span of the function it is in; None at the top level.
        suspect: the message can be about it.
        notes: the engine notes its position.
        raises: it makes an error by itself.
        name: of a function.
        owner: what a property is read of.
        computed: the name of the property is only known when it runs.
    """

    at: int
    end: int
    function: Span | None
    suspect: bool = False
    notes: bool = False
    raises: bool = False
    is_function: bool = False
    name: str = ""
    owner: Span | None = None
    computed: bool = False


_ERASED = words("type_annotation type_alias_declaration interface_declaration type_arguments comment string regex")


def _walk(root: Node, units: str, look_for: _LookFor, after: int) -> Iterator[_Place]:
    """Yield what is of interest from offset `after` on. No recursion: source may be nested deeper than Python's
    stack."""
    left: list[tuple[Node, Node | None, Span | None]] = [(root, None, None)]
    while left:
        node, parent, function = left.pop()
        span = span_of(node)
        if span.end <= after or node.type in _ERASED:
            continue
        yield from _places(node, parent, span, function, units, look_for)
        inner = span if node.type in FUNCTIONS or node.type in _FIELDS else function
        left.extend((child, node, inner) for child in node.named_children)


def _places(
    node: Node, parent: Node | None, span: Span, function: Span | None, units: str, look_for: _LookFor
) -> Iterator[_Place]:
    kind = node.type
    if kind in FUNCTIONS or kind in _FIELDS:
        yield _Place(span.start, span.end, span, is_function=True, name=_function_name(node, parent, units))
    elif kind == "expression_statement":
        yield _Place(span.start, span.end, function, notes=True)
    elif kind in ("call_expression", "new_expression"):
        callee = node.child_by_field_name("function") or node.child_by_field_name("constructor")
        if callee is not None:
            last = callee.child_by_field_name("property") or callee
            raises = _text(callee, units).endswith("Error")
            # Noted once the callee is known, before the arguments are.
            at = span.start if kind == "new_expression" else span_of(last).start
            yield _Place(at, span.end, function, notes=True, raises=raises)
    if kind in look_for.kinds:
        owner = node.child_by_field_name("object") or node.child_by_field_name("right")
        if kind == "spread_element":
            owner = node.named_child(0)
        elif kind in ("array_pattern", "object_pattern") and parent is not None:
            owner = parent.child_by_field_name("value")
        for at in _suspects(node, parent, kind, units, look_for.name):
            index = node.child_by_field_name("index")
            computed = index is not None and index.type not in ("string", "number")
            yield _Place(
                at, span.end, function, suspect=True, owner=None if owner is None else span_of(owner), computed=computed
            )


def _suspects(node: Node, parent: Node | None, kind: str, units: str, name: str | None) -> Iterator[int]:
    """Yield where in this node the error would be."""
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
            if _text(node, units) == name and not _is_harmless(node, parent):
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
            elif target is not None and _text(target, units) == name:
                yield span_of(target).start
        case "private_property_identifier":
            if _text(node, units) == name:
                yield span_of(node).start
        case _:
            yield span_of(node).start


def _is_harmless(name: Node, parent: Node | None) -> bool:
    """Return True if a name is only asked about, or declared."""
    if parent is None:
        return False
    if parent.type == "unary_expression":
        return parent.children[0].type == "typeof"
    declared = parent.child_by_field_name("name")
    return declared is not None and declared == name


def _is_named(key: Node, units: str, name: str | None) -> bool:
    """Return True if a key is, or can turn out to be, this name."""
    text = _text(key, units)
    if key.type in ("string", "number"):
        return text.strip("'\"") == name
    if key.type in ("property_identifier", "shorthand_property_identifier_pattern"):
        return text == name
    return key.type != "private_property_identifier"


def _assigns(target: Node, units: str, name: str) -> bool:
    text = _text(target, units)[:1000]
    return text == name or text.endswith("." + name) or re.search(rf"[\[{{,]\s*{re.escape(name)}\b", text) is not None


def _function_name(node: Node, parent: Node | None, units: str) -> str:
    """Return what the engine calls a function: its own name, or that of what it is the value of."""
    name = node.child_by_field_name("name")
    if name is None and parent is not None:
        match parent.type:
            case "variable_declarator" | "public_field_definition" | "field_definition":
                name = parent.child_by_field_name("name")
            case "pair":
                name = parent.child_by_field_name("key")
            case "assignment_expression":
                name = parent.child_by_field_name("left")
    return "" if name is None else _text(name, units)


def _inside(places: list[_Place], lines: Lines, line: int, start: int, name: str | None) -> set[Span | None]:
    """Return which functions a frame can be of: one that starts on its line, or has its position inside."""
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


def _owner(place: _Place, units: str, message: str) -> str:
    """Return what it was that has no properties, for the end of the message."""
    what = re.search(r" of (undefined|null)$|value is (not iterable)$", message)
    text = "" if place.owner is None else _short(units, place.owner)
    if what is None or text in ("", "undefined", "null"):
        return ""
    return f" ({text} is {what[1] or what[2]}{_promised(text, units)})"


def _promised(expression: str, units: str) -> str:
    """Advice for one that starts with a call, or with a variable set to one, that was not awaited."""
    root = re.match(r"[\w$]+", expression)
    if root is None:
        return ""
    if re.match(r"(?:(?:MCP|API|tools)\.[\w$.]+|load)\(", expression):
        return "; a call gives a promise: await it"
    if re.search(rf"\b{re.escape(root[0])}\s*=\s*(?:(?:MCP|API|tools)\s*[.\[]|load\()", units):
        return f"; {root[0]} is a promise: await the call"
    return ""


def _call_fault(root: Node, units: str, lines: Lines, start: int, message: str) -> Fault:
    """Return the fault with the name of the called function. The call is unknown when one is an argument of another."""
    untold = Fault((), message)
    calls: list[Node] = []
    node: Node | None = root
    while node is not None:
        if node.type in FUNCTIONS and span_of(node).start < start:
            calls.clear()
        if node.type == "call_expression":
            calls.append(node)
        node = next((child for child in node.named_children if _contains(child, start)), None)
    if not calls or any(_contains(call.child_by_field_name("arguments"), start) for call in calls[:-1]):
        return untold
    callee = calls[-1].child_by_field_name("function")
    name = "" if callee is None else _short(units, span_of(callee))
    if callee is None or not name:
        return untold
    at = span_of(callee.child_by_field_name("property") or callee).start
    owner = callee.child_by_field_name("object")
    about = None if owner is None else span_of(owner)
    return Fault((lines.position(at),), f"{name} is {message}{_promised(name, units)}", about)


def _contains(node: Node | None, at: int) -> bool:
    return node is not None and span_of(node).start <= at < span_of(node).end


_SHORT = 60


def _short(units: str, span: Span) -> str:
    """Return a piece of code on one line; nothing when it is too long to be read in a message."""
    if span.end - span.start > 4 * _SHORT:
        return ""
    line = re.sub(r"\s*\n\s*", "", units[span.start : span.end])
    return line if len(line) <= _SHORT and "\n" not in line else ""


def _text(node: Node, units: str) -> str:
    start, end = span_of(node)
    return units[start:end]
