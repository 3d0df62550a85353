"""The form of a program, its edits, and the statements that become the body of a draft. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemode_mcp.program.inspection import returned_span
from codemode_mcp.program.program_form import whole_function
from codemode_mcp.program.syntax import FUNCTIONS, LINE_END, Span, name_of, parameters, span_of, text_of, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tree_sitter import Node

    from codemode_mcp.program.program_form import WholeFunction


# Edits of a program's text, and the indentation of its lines.


_TEXTS = words("template_string string")

INDENT = "  "


@dataclass(frozen=True, slots=True)
class Edit:
    """A part of the program with the text that replaces it."""

    span: Span
    text: str


class _Covered:
    """The places that spans cover. A look-up takes logarithmic time: a program may have 50,000 lines and edits."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(spans):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def __contains__(self, at: int) -> bool:
        index = bisect_right(self._starts, at) - 1
        return index >= 0 and at < self._ends[index]


def with_line(units: str, span: Span) -> Span:
    """Return a span with its line if nothing else is on it."""
    start, end = span
    while start and units[start - 1] in " \t":
        start -= 1
    after = re.compile(r"[ \t]*(?:\r\n|[\r\n]|$)").match(units, end)
    if (start == 0 or units[start - 1] in "\r\n") and after is not None:
        return Span(start, after.end())
    return span


def edited(units: str, whole: Span, edits: Sequence[Edit], root: Node) -> str:
    """Return a part of a program after edits, indented as the body of a function.

    Lines in a string or template keep their white space, since it is part of the value.
    """
    inside = [edit for edit in edits if whole.start <= edit.span.start and edit.span.end <= whole.end]
    removed = (edit.span for edit in inside if not edit.text)
    texts = (span_of(node) for node in every_node(root) if node.type in _TEXTS)
    # A line that begins where a text begins is code, so the first place of a text is left out.
    fixed = _Covered([*removed, *(Span(start + 1, end) for start, end in texts)])
    indents = [edit for edit in _indents(units, whole) if edit.span.start not in fixed]
    parts, at = [], whole.start
    # Of two edits at one place, the indent is first, since sorting keeps their order.
    for edit in sorted([*indents, *inside], key=lambda each: each.span.start):
        if edit.span.start >= at:  # else in a part that was replaced
            parts += [units[at : edit.span.start], edit.text]
        at = max(at, edit.span.end)
    parts.append(units[at : whole.end])
    return "".join(parts)


def _indents(units: str, whole: Span) -> list[Edit]:
    """Return the edits that replace the common indent of all lines."""
    starts = [whole.start, *(match.end() for match in LINE_END.finditer(units, *whole))]
    spaces = [Span(start, _end_of_spaces(units, start, whole.end)) for start in starts]
    filled = [span.end - span.start for span in spaces if not _is_line_end(units, span.end, whole.end)]
    if units[: whole.start].rstrip(" \t")[-1:] not in ("", "\n", "\r"):
        filled = filled[1:] or filled  # the first line begins in the middle of a line
    common = min(filled, default=0)
    return [
        Edit(
            Span(span.start, min(span.end, span.start + common)),
            "" if _is_line_end(units, span.end, whole.end) else INDENT,
        )
        for span in spaces
    ]


def _end_of_spaces(units: str, at: int, end: int) -> int:
    while at < end and units[at] in " \t":
        at += 1
    return at


def _is_line_end(units: str, at: int, end: int) -> bool:
    return at >= end or LINE_END.match(units, at) is not None


_NO_CODE = words("comment html_comment empty_statement hash_bang_line")
_TYPES = words("type_alias_declaration interface_declaration")
_OUTER = words("internal_module module ambient_declaration")
_DIRECTIVE = re.compile(r"(['\"])use \w+\1;?")
_ARGS = "args"
"""The global with the values that `codemode-mcp run FILE -- VALUES` passes."""


@dataclass(frozen=True, slots=True)
class Form:
    """The parts of a program.

    Attributes:
        body: the part of the text that becomes the body.
        statements: the top-level statements of the body.
        edits: what makes the result of the program explicit.
        removed: the comment at the beginning, and what is outside of the body.
        directives: `"use strict"` and the like.
        outside: declarations to write before the function, since a function cannot have them.
        description: the text of the comment at the beginning.
        uses_args: whether the program uses the global `args`.
    """

    body: Span
    statements: tuple[Node, ...]
    edits: tuple[Edit, ...]
    removed: tuple[Span, ...]
    directives: tuple[Span, ...]
    outside: str
    description: str
    uses_args: bool


def form_of(units: str, root: Node, *, is_function: bool) -> Form:
    """Return the form of a program.

    Args:
        root: the root of its tree.
        is_function: whether the program is a function that was called when it ran.
    """
    statements = tuple(child for child in root.children if child.type not in _NO_CODE)
    description, comments = _leading_comment(units, root)
    outer = [span_of(each) for each in statements if _is_outer(each)]
    body, edits = Span(0, len(units)), list[Edit]()
    function = whole_function(units, root) if is_function else None
    block = None if function is None else _block_of(units, statements, function.node)
    if block is not None:
        start, end = span_of(block)
        body = Span(start + 1, end - 1)
        outer = [span_of(each) for each in statements if _is_outer(each) or each.type in _TYPES]
        statements = tuple(block.named_children)
    elif function is not None:
        edits = _call_edits(units, function)
    elif not _returns(root):
        returned = returned_span(units, root)
        edits = [] if returned is None else [Edit(Span(returned.start, returned.start), "return ")]
    return Form(
        body=body,
        statements=statements,
        edits=tuple(edits),
        removed=(*comments, *outer),
        directives=tuple(_directives(units, statements)),
        outside="".join(f"{units[slice(*span)]}\n\n" for span in outer),
        description=description,
        uses_args=_uses_global(units, root, _ARGS),
    )


def _is_outer(statement: Node) -> bool:
    """Return True for a statement that is valid outside of functions only: a namespace, `declare`."""
    inner = statement.children[0] if statement.type == "expression_statement" and statement.children else statement
    return inner.type in _OUTER


def _call_edits(units: str, function: WholeFunction) -> list[Edit]:
    """Return the edits that call the function that a program is, as it was called when the program ran."""
    argument = "globalThis" if parameters(function.node) else ""
    return [
        Edit(Span(function.statement, function.value.start), "return ("),
        Edit(Span(function.value.end, len(units)), f")({argument});"),
    ]


def _returns(root: Node) -> bool:
    """Return True if a program has a `return` at its top level."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type == "return_statement":
            return True
        waiting += [child for child in node.named_children if child.type not in FUNCTIONS | {"class_body"}]
    return False


def _block_of(units: str, statements: Sequence[Node], function: Node) -> Node | None:
    """Return the block of the function that a program is; None if the function must stay.

    It stays if it uses its own name, `this` or `arguments`, has a parameter other than an object of globals, or if
    statements around it do something.
    """
    body = function.child_by_field_name("body")
    if body is None or body.type != "statement_block" or "*" in [child.type for child in function.children]:
        return None
    around = [each for each in statements if not (each.start_byte <= function.start_byte < each.end_byte)]
    if any(each.type not in _TYPES and not _is_directive(units, each) for each in around):
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


def _uses_global(units: str, root: Node, name: str) -> bool:
    """Return True if a program uses a name and declares it nowhere."""
    uses = False
    for node in every_node(root):
        match node.type:
            case "shorthand_property_identifier_pattern" if text_of(units, node) == name:
                return False
            case "variable_declarator" | "function_declaration" | "class_declaration":
                declared = node.child_by_field_name("name")
                if declared is not None and text_of(units, declared) == name:
                    return False
            case "identifier" | "shorthand_property_identifier":
                uses = uses or text_of(units, node) == name
            case kind if kind in FUNCTIONS and any(text_of(units, each) == name for each in parameters(node)):
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
    """Return the text of the comment that a program begins with, and its parts."""
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
