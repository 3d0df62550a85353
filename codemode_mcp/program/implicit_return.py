"""The implicit return, by which the last expression of a program is its value. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from codemode_mcp.program.syntax import LINE_END, Span, span_of, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node


RETURN = "return ("


_NO_STATEMENT = words("comment html_comment empty_statement")


_NO_EXPRESSION = re.compile(r"\{|(?:async\s+)?function(?![\w$])|class(?![\w$])|let\s*\[")
"""Beginnings of blocks and declarations, which the tolerant parser may take for expressions."""


_DIRECTIVE = re.compile(r"['\"]use \w+['\"]")


_KEYWORD_AS_NAME = re.compile(r"using|interface|abstract")
"""Valid names that the tolerant parser rejects as a statement."""


def returned_span(units: str, root: Node) -> Span | None:
    """Return the span of the last top-level statement if it is an expression."""
    children = [child for child in root.children if child.type not in _NO_STATEMENT] if root.type == "program" else []
    if not children or (len(children) > 1 and _is_unfinished(units, children[-2])):
        return None
    statement = children[-1]
    if statement.type == "ERROR":
        span = span_of(statement)
        return span if _KEYWORD_AS_NAME.fullmatch(units, *span) else None
    if statement.has_error:
        return None
    after_function = _after_arrow_function(units, statement)
    if after_function is not None:
        return after_function
    if statement.type != "expression_statement":
        return None
    expression = statement.children[0]
    span = Span(expression.start_byte // 2, _end_of_code(expression))
    if not expression.is_named or expression.type in {"internal_module", "comment"}:
        return None
    if _DIRECTIVE.fullmatch(units, *span) and all(_is_string(child) for child in children):
        return None
    if span.start and re.match(r"[\w$]", units[span.start - 1]):
        return None  # f"text": `return` would join the two tokens
    return None if _NO_EXPRESSION.match(units, *span) else span


def _is_unfinished(units: str, statement: Node) -> bool:
    """Return True if the next statement belongs to this one, as the names after a line with only `let` do."""
    return statement.type == "ERROR" or units[slice(*span_of(statement))] == "let"


def _is_string(statement: Node) -> bool:
    return statement.type == "expression_statement" and statement.children[0].type == "string"


def _after_arrow_function(units: str, statement: Node) -> Span | None:
    """Return the expression on a new line after `f = () => {...}` without a semicolon.

    The tolerant parser takes `(` or `[` there for a call or an index. JavaScript ends the statement before it, since an
    arrow function with a block can have neither.
    """
    last = next(_code_backwards(statement), None)
    while last is not None:
        node, parent = last, None
        while node.type != "arrow_function" and node.child_count:
            node, parent = node.children[0], node
        if parent is not None and node.type == "arrow_function" and node.children[-1].type == "statement_block":
            rest = list(_code_backwards(parent))[-2]
            start, between = rest.start_byte // 2, units[node.end_byte // 2 : rest.start_byte // 2]
            is_start = units[start] in "([`+-" and LINE_END.search(between) is not None
            return Span(start, _end_of_code(statement)) if is_start else None
        last = next(_code_backwards(last), None)
    return None


def _end_of_code(node: Node) -> int:
    """Return the end of a node without trailing comments, which the parser includes in functions."""
    last: Node | None = node
    while last is not None:
        node, last = last, next(_code_backwards(last), None)
    return node.end_byte // 2


def _code_backwards(node: Node) -> Iterator[Node]:
    """Yield the children of a node, the last one first."""
    return (child for child in reversed(node.children) if child.type not in _NO_STATEMENT and child.type != ";")
