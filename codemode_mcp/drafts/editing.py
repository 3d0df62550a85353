"""Edits of a program's text, and the indentation of its lines. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemode_mcp.drafts.syntax_nodes import every_node
from codemode_mcp.program.syntax import LINE_END, Span, span_of, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tree_sitter import Node

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
