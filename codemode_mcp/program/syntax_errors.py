"""Locations of syntax errors, for which the engine reports a line but no column. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from codemode_mcp.program.syntax import FUNCTIONS, LINE_END, Lines, Span, parse, span_of, utf16_units

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node

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
    """Yield the spans that the parser could not parse, or where it missed a token."""
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
