"""The form of a program, edits of its text, and the statements that become the body of a draft. Pure."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from msgspec import Struct

from codemode_mcp.program.program_form import whole_function
from codemode_mcp.program.syntax import FUNCTIONS, LINE_END, Span, name_of, parameters, span_of, text_of, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tree_sitter import Node


# Edits of a program's text, and the indentation of its lines.


_TEXTS = words("template_string string")

Edit = tuple[Span, str]
"""A part of the program, and the text that replaces it."""


def with_line(units: str, span: Span) -> Span:
    """Return a span with its line if nothing else is on it."""
    start, end = span
    while start and units[start - 1] in " \t":
        start -= 1
    after = re.compile(r"[ \t]*(?:\r\n|[\r\n]|$)").match(units, end)
    if (start == 0 or units[start - 1] in "\r\n") and after is not None:
        return Span(start, after.end())
    return span


def edited(units: str, whole: Span, edits: Iterable[Edit], root: Node) -> str:
    """Return a part of a program after edits, indented as the body of a function.

    An edit within a part that was replaced has no effect. If a string or template has several lines, nothing is
    indented, since white space is part of its value.
    """
    parts, at = [], whole.start
    for span, text in sorted(edits):
        if at <= span.start and span.end <= whole.end:
            parts += [units[at : span.start], text]
            at = span.end
    body = "".join([*parts, units[at : whole.end]])
    if any(node.type in _TEXTS and node.start_point.row < node.end_point.row for node in every_node(root)):
        return body
    return re.sub(r"^(?=.*\S)", "  ", textwrap.dedent(body), flags=re.MULTILINE)


_NO_CODE = words("comment html_comment empty_statement hash_bang_line")
_TYPES = words("type_alias_declaration interface_declaration")
_OUTER = words("internal_module module ambient_declaration")
_DIRECTIVE = re.compile(r"(['\"])use \w+\1;?")
_ARGS = "args"
"""The global with the values that `codemode-mcp run FILE -- VALUES` passes."""


class Form(Struct, frozen=True):
    """The parts of a program.

    Attributes:
        body: the part of the text that becomes the body.
        statements: the top-level statements of the body.
        removed: the comment at the beginning, and what is outside of the body.
        directives: `"use strict"` and the like.
        outside: declarations to write before the function, since a function cannot have them.
        description: the text of the comment at the beginning.
        uses_args: whether the program uses the global `args`.
    """

    body: Span
    statements: tuple[Node, ...]
    removed: tuple[Span, ...]
    directives: tuple[Span, ...]
    outside: str
    description: str
    uses_args: bool


def form_of(units: str, root: Node, block: Node | None) -> Form:
    """Return the form of a program.

    Args:
        root: the root of its tree.
        block: the block of the function that the program is; see `unwrapped`.
    """
    statements = tuple(child for child in root.children if child.type not in _NO_CODE)
    description, comments = _leading_comment(units, root)
    outer = [span_of(each) for each in statements if _is_outer(each) or (block is not None and each.type in _TYPES)]
    body = Span(0, len(units))
    if block is not None:
        start, end = span_of(block)
        body, statements = Span(start + 1, end - 1), tuple(block.named_children)
    return Form(
        body=body,
        statements=statements,
        removed=(*comments, *outer),
        directives=tuple(_directives(units, statements)),
        outside="".join(f"{units[slice(*span)]}\n\n" for span in outer),
        description=description,
        uses_args=_uses_args(units, root),
    )


def _is_outer(statement: Node) -> bool:
    """Return True for a statement that is valid outside of functions only: a namespace, `declare`."""
    inner = statement.children[0] if statement.type == "expression_statement" and statement.children else statement
    return inner.type in _OUTER


def unwrapped(units: str, root: Node) -> Node | None:
    """Return the block of the function that a program is; None if it is none, or if the function must stay.

    It stays if it uses its own name, `this` or `arguments`, has a parameter other than an object of globals, or if
    statements around it do something.
    """
    found = whole_function(units, root)
    if found is None:
        return None
    function = found.node
    body = function.child_by_field_name("body")
    if body is None or body.type != "statement_block" or "*" in [child.type for child in function.children]:
        return None
    around = [each for each in root.children if not (each.start_byte <= function.start_byte < each.end_byte)]
    if any(each.type not in _NO_CODE | _TYPES and not _is_directive(units, each) for each in around):
        return None
    name = function.child_by_field_name("name")
    own = None if name is None else text_of(units, name)
    for node in every_node(body):
        if node.type == "this" or (node.type == "identifier" and text_of(units, node) in {"arguments", own}):
            return None
    patterns = parameters(function)
    if not patterns:
        return body
    names = patterns[0].named_children
    is_globals = len(patterns) == 1 and patterns[0].type == "object_pattern"
    if not is_globals or any(each.type != "shorthand_property_identifier_pattern" for each in names):
        return None
    if any(text_of(units, each) == _ARGS for each in names):
        return None
    return body


def _uses_args(units: str, root: Node) -> bool:
    """Return True if a program uses the global `args`: it declares the name nowhere."""
    uses = False
    for node in every_node(root):
        match node.type:
            case "shorthand_property_identifier_pattern" if text_of(units, node) == _ARGS:
                return False
            case "variable_declarator" | "function_declaration" | "class_declaration":
                declared = node.child_by_field_name("name")
                if declared is not None and text_of(units, declared) == _ARGS:
                    return False
            case "identifier" | "shorthand_property_identifier":
                uses = uses or text_of(units, node) == _ARGS
            case kind if kind in FUNCTIONS and any(text_of(units, each) == _ARGS for each in parameters(node)):
                return False
    return uses


def _directives(units: str, statements: Sequence[Node]) -> list[Span]:
    """Return `"use strict"` and the like, which a function with defaults may not have."""
    found = []
    for statement in statements:
        if statement.type not in _NO_CODE:
            if not _is_directive(units, statement):
                break
            found.append(span_of(statement))
    return found


def _is_directive(units: str, statement: Node) -> bool:
    return statement.type == "expression_statement" and _DIRECTIVE.fullmatch(text_of(units, statement)) is not None


def _leading_comment(units: str, root: Node) -> tuple[str, list[Span]]:
    spans: list[Span] = []
    lines: list[str] = []
    last = -1
    for child in root.children:
        if child.type == "hash_bang_line":
            spans.append(span_of(child))
            continue
        if child.type != "comment" or (lines and child.start_point.row > last + 1):
            break
        last = child.end_point.row
        text = text_of(units, child)
        if text.startswith("//"):
            lines.append(text[2:].strip())
        else:
            inner = text.removeprefix("/*").removesuffix("*/")
            lines += [re.sub(r"^\s*\*+ ?", "", line).strip() for line in LINE_END.split(inner)]
        spans.append(span_of(child))
    text = "\n".join(lines).strip("\n* ")
    return re.split(r"^@", text, maxsplit=1, flags=re.MULTILINE)[0].strip(), spans


def identifiers(units: str, root: Node) -> frozenset[str]:
    """Return the names that a program declares or uses. Names of properties are not among them."""
    kinds = words(
        "identifier type_identifier shorthand_property_identifier shorthand_property_identifier_pattern "
        "statement_identifier"
    )
    return frozenset(name_of(units, node) for node in every_node(root) if node.type in kinds)


def every_node(root: Node) -> Iterator[Node]:
    """Yield a node and all nodes in it, in the order of the text, without recursion: source may be nested deeply."""
    cursor = root.walk()
    while True:
        if cursor.node is not None:
            yield cursor.node
        if cursor.goto_first_child() or cursor.goto_next_sibling():
            continue
        while True:
            if not cursor.goto_parent():
                return
            if cursor.goto_next_sibling():
                break
