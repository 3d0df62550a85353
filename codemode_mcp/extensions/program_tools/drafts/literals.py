"""Literals of a program that become parameters of its draft. Pure.

These are strings, numbers, large integers, and arrays of strings and numbers, in two places:

- in the arguments of a call of `MCP`, `tools`, `programs` or a name that is declared from one of them. The literal is
  an argument, or a value in the objects and arrays of an argument. Literals in an expression stay.
- as the value of a top-level `const NAME = literal`.

Booleans and `null` stay: they mostly choose what a call does, and a program is written for one choice.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from codemode_mcp.audit.recordings.masking import PLACEHOLDER
from codemode_mcp.audit.redaction import without_tokens
from codemode_mcp.base.strict_json import MAX_SAFE_INTEGER
from codemode_mcp.extensions.program_tools.drafts.form import every_node
from codemode_mcp.program import syntax
from upstream_clients.redaction import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tree_sitter import Node

ROOTS: Final = frozenset(("MCP", "tools", "programs"))
"""Globals whose members are calls to tools or saved programs."""

UNKNOWN: Final = object()
"""The value of a literal whose text is not JSON-like, such as a string with an unusual escape."""

MAX_DIGITS: Final = 1_000
"""Maximum number of digits of a bigint that becomes a parameter."""

_NO_CALLS = frozenset(("then", "catch", "finally", "$api"))
"""Last members of expressions that call no tool: methods of promises, and declarations."""

_LOOKUPS = frozenset((("tools", "search"), ("tools", "describe")))

_Value = tuple["Node", tuple[str, ...], syntax.Span | None]
"""A node, its path, and the key before it."""

_NO_CODE = syntax.words("comment html_comment")
_TYPE_TEXT = syntax.words("predefined_type literal_type union_type array_type")
_NUMBER = re.compile(r"-?\s*(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class Literal(Struct, frozen=True):
    """A literal that becomes a parameter.

    Attributes:
        span: the part of the program that the variable of the parameter replaces.
        key: the key of the property whose whole value the literal is, as it is written; None for another place.
        text: the literal as it is written.
        value: its value; `UNKNOWN` if it cannot be read here.
        name: the property or the constant that has the literal; None for an argument without a property.
        call: the members of the called tool, such as `("MCP", "github", "listIssues")`; empty for a constant.
        path: the properties from the argument to the literal; `[]` for elements of an array.
        declared: the type that the program declares for a constant.
        statement: the declaration to remove; None for an argument.
    """

    span: syntax.Span
    text: str
    value: Any
    name: str | None
    call: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    key: syntax.Span | None = None
    declared: str | None = None
    statement: syntax.Span | None = None

    @property
    def is_constant(self) -> bool:
        """Return True if the literal is the value of a top-level constant."""
        return self.statement is not None


def find_literals(units: str, body: Sequence[Node], root: Node) -> list[Literal]:
    """Return the literals of a program in the order of its text.

    Args:
        body: the top-level statements.
        root: the root of the whole tree.
    """
    constants = [each for statement in body for each in _constants(units, statement)]
    aliases = _aliases(units, root)
    found = [each for call in _nodes(root, "call_expression") for each in _of_call(units, call, aliases)]
    # A call in an argument of another call is found by itself only, since expressions are not entered.
    return sorted([*constants, *found], key=lambda each: each.span)


def _nodes(root: Node, kind: str) -> Iterator[Node]:
    return (node for node in every_node(root) if node.type == kind)


# --- constants -------------------------------------------------------------------------------------------------------


def _constants(units: str, statement: Node) -> list[Literal]:
    """Return the literals of `const a = 1, b = "x"`; none if another kind of value is among them."""
    if statement.type != "lexical_declaration" or statement.has_error:
        return []
    kind = statement.child_by_field_name("kind")
    if kind is None or kind.type != "const":
        return []
    found = []
    for declarator in statement.named_children:
        if declarator.type in _NO_CODE:
            continue
        name, value = declarator.child_by_field_name("name"), declarator.child_by_field_name("value")
        if name is None or name.type != "identifier" or value is None:
            return []
        literal = _literal(units, value)
        if literal is None:
            return []
        span, text, read = literal
        annotation = declarator.child_by_field_name("type")
        declared = None if annotation is None else _plain_type(units, annotation.named_children[0])
        own = syntax.name_of(units, name)
        found.append(Literal(span, text, read, own, declared=declared, statement=syntax.span_of(statement)))
    return found


def _plain_type(units: str, node: Node) -> str | None:
    """Return the text of a type; None if it has names, which the body declares, or is of another kind."""
    if node.type not in _TYPE_TEXT or any(each.type == "type_identifier" for each in every_node(node)):
        return None
    return syntax.text_of(units, node)


# --- calls -----------------------------------------------------------------------------------------------------------


def _aliases(units: str, root: Node) -> dict[str, tuple[str, ...]]:
    """Return the members that names stand for, as in `const github = MCP.github` and `const { github } = MCP`."""
    known: dict[str, tuple[str, ...]] = {name: (name,) for name in ROOTS}
    for declarator in _nodes(root, "variable_declarator"):
        name, value = declarator.child_by_field_name("name"), declarator.child_by_field_name("value")
        if name is None or value is None:
            continue
        members = _members(units, value, known)
        if members is None:
            continue
        if name.type == "identifier":
            known.setdefault(syntax.name_of(units, name), members)
        elif name.type == "object_pattern":
            for part in name.named_children:
                if part.type == "shorthand_property_identifier_pattern":
                    known.setdefault(syntax.name_of(units, part), (*members, syntax.name_of(units, part)))
                elif part.type == "pair_pattern":
                    key, inner = part.child_by_field_name("key"), part.child_by_field_name("value")
                    if key is not None and inner is not None and inner.type == "identifier":
                        known.setdefault(syntax.name_of(units, inner), (*members, _key(units, key) or ""))
    return known


def _members(units: str, node: Node, known: dict[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    """Return the members that an expression such as `MCP.github.listIssues` names; None for another expression."""
    names: list[str] = []
    while node.type in syntax.MEMBER_ACCESS or node.type == "non_null_expression":
        if node.type in syntax.MEMBER_ACCESS:
            names.append(syntax.member_of(units, node) or "")
        node = node.children[0]
    base = known.get(syntax.name_of(units, node)) if node.type == "identifier" else None
    return None if base is None else (*base, *reversed(names))


def _of_call(units: str, call: Node, aliases: dict[str, tuple[str, ...]]) -> Iterator[Literal]:
    arguments = call.child_by_field_name("arguments")
    if arguments is None or arguments.type != "arguments" or not syntax.is_callee(call.children[0], call):
        return
    members = _members(units, call.children[0], aliases)
    if members is None or len(members) < 2 or members[-1] in _NO_CALLS or members[:2] in _LOOKUPS:
        return
    given = [node for node in arguments.named_children if node.type not in _NO_CODE]
    if members == ("tools", "call"):
        del given[:1]  # the id of the tool
    waiting: list[_Value] = [(node, (), None) for node in reversed(given)]
    while waiting:
        node, path, at = waiting.pop()
        literal = _literal(units, node)
        if literal is not None:
            span, text, value = literal
            name = next((each for each in reversed(path) if each != "[]"), None)
            yield Literal(span, text, value, name, call=members, path=path, key=at)
            continue
        inside: list[_Value] = []
        match node.type:
            case "object":
                for pair in node.named_children:
                    key, inner = pair.child_by_field_name("key"), pair.child_by_field_name("value")
                    name = None if key is None else _key(units, key)
                    if pair.type == "pair" and key is not None and name is not None and inner is not None:
                        inside.append((inner, (*path, name), syntax.span_of(key)))
            case "array":
                inside = [(each, (*path, "[]"), None) for each in node.named_children]
            case kind if kind in syntax.TRANSPARENT:
                inside = [(node.named_children[0], path, None)] if node.named_children else []
        waiting += reversed(inside)


def _key(units: str, node: Node) -> str | None:
    return syntax.name_of(units, node) if node.type == "property_identifier" else syntax.literal_of(units, node)


# --- values ----------------------------------------------------------------------------------------------------------


def _literal(units: str, node: Node) -> tuple[syntax.Span, str, Any] | None:
    span = syntax.span_of(node)
    if node.type == "as_expression" and node.children[-1].type == "const":
        node = node.children[0]  # `as const` is for literals only
    if node.type == "array":
        elements = [child for child in node.named_children if child.type not in _NO_CODE]
        values = [_scalar(units, child) for child in elements]
        if not elements or any(value is None for value in values) or len(elements) != len(node.named_children):
            return None
        if ",," in re.sub(r"\s", "", syntax.text_of(units, node)) and all(child.type != "string" for child in elements):
            return None  # holes
        return span, syntax.text_of(units, node), UNKNOWN if UNKNOWN in values else values
    value = _bigint(syntax.text_of(units, node)) or _scalar(units, node)
    return None if value is None else (span, syntax.text_of(units, node), value)


def _bigint(text: str) -> int | None:
    """Return the value of a bigint beyond 2^53. A smaller one would be a Number when the saved program gets it."""
    digits = text.removesuffix("n")
    if digits == text or len(digits) > MAX_DIGITS or _NUMBER.fullmatch(digits) is None:
        return None
    value = _number(digits)
    return value if isinstance(value, int) and abs(value) > MAX_SAFE_INTEGER else None


def _scalar(units: str, node: Node) -> Any:
    """Return the value of a string or number, `UNKNOWN` if it cannot be read here, or None for another expression."""
    text = syntax.text_of(units, node)
    match node.type:
        case "string":
            return _string(text[1:-1])
        case "template_string" if all(child.type != "template_substitution" for child in node.children):
            return _string(text[1:-1].replace("\r\n", "\n"))
        case "number" if not text.endswith("n"):
            return _number(text)
        case "unary_expression" if text.startswith("-") and len(node.children) == 2:
            operand = node.children[1]
            if operand.type == "number" and not text.endswith("n"):
                return _number(text)
    return None


def _string(inner: str) -> Any:
    if "\\" not in inner:
        return inner
    # Of JavaScript's escapes, those of JSON and escaped quotes are read.
    quoted = re.sub(r"\\(['`$])", r"\1", inner)
    quoted = re.sub(r'(\\.)|"', lambda match: match[1] or '\\"', quoted, flags=re.DOTALL)
    try:
        return json.loads(f'"{quoted}"', strict=False)
    except ValueError:
        return UNKNOWN


def _number(text: str) -> Any:
    if _NUMBER.fullmatch(text) is None:
        return UNKNOWN
    return json.loads(re.sub(r"\s", "", text))


def _is_secret(literal: Literal) -> bool:
    """Return True if a literal is a masked secret, has the form of a token, or is the value of a password or the like.

    Numbers are none: `max_tokens: 100` is no secret.
    """
    if literal.text[:1] not in "'\"`[":
        return False
    if is_secret_name(literal.name or "") or PLACEHOLDER.search(literal.text) is not None:
        return True
    return without_tokens(literal.text) != literal.text
