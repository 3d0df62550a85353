"""The syntax tree of a program. Pure.

tree-sitter serves to find things, never to judge syntax, since it rejects some valid code. Its TypeScript grammar reads
both languages. It parses UTF-16, in which JavaScript counts, so that offsets need no conversion.
"""

from __future__ import annotations

import functools
import re
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tree_sitter import Node, Parser, Point, Tree

_PARSE_SECONDS = 1.0
"""Maximum CPU time of a parse: 1 MB of real code takes 0.3 s, 1 MB of binary junk 3 s.

Wall-clock time would refuse honest programs on a busy machine.
"""
_CHUNK_BYTES = 1 << 16


def words(text: str) -> frozenset[str]:
    """Split a text into a set of words."""
    return frozenset(text.split())


LINE_END = re.compile("\r\n|[\n\r\u2028\u2029]")
"""Ends of lines in ECMAScript."""


def line_count(source: str) -> int:
    """Return the number of lines of a program."""
    return len(LINE_END.findall(source)) + 1


def utf16_units(source: str) -> str:
    """Replace each character beyond U+FFFF by its surrogates, so that Python indices equal JavaScript's."""
    if source.isascii():
        return source
    return re.sub("[\U00010000-\U0010ffff]", _surrogate_pair, source)


def _surrogate_pair(match: re.Match[str]) -> str:
    above = ord(match[0]) - 0x10000
    return chr(0xD800 + (above >> 10)) + chr(0xDC00 + (above & 0x3FF))


def from_utf16_units(units: str) -> str:
    """Undo `utf16_units`."""
    if units.isascii():
        return units
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


@functools.cache
def _parser_factory() -> Callable[[], Parser]:
    # Imported at first use to keep the start of the server short; `tools/list` needs no parser.
    import tree_sitter
    import tree_sitter_typescript

    return functools.partial(tree_sitter.Parser, tree_sitter.Language(tree_sitter_typescript.language_typescript()))


def parse(units: str) -> Tree | None:
    """Parse a text that `utf16_units` has returned; return None if that takes longer than `_PARSE_SECONDS`."""
    data = units.encode("utf-16-le", "surrogatepass")
    # A new parser each time: large sources are parsed in threads, and a parser is not thread-safe.
    parser = _parser_factory()()
    if len(data) <= _CHUNK_BYTES:
        return parser.parse(data, encoding="utf16le")
    deadline = time.thread_time() + _PARSE_SECONDS
    chunks: list[memoryview] = []

    def read(offset: int, _point: Point) -> memoryview:
        chunks.append(memoryview(data)[offset : offset + _CHUNK_BYTES])
        return chunks[-1]

    def is_late(_offset: int, _has_error: bool) -> bool:
        return time.thread_time() > deadline

    try:
        return parser.parse(read, encoding="utf16le", progress_callback=is_late)
    except ValueError:  # the binding's error for a cancelled parse
        return None
    finally:
        for chunk in chunks:  # the binding keeps references to the chunks forever
            chunk.release()


class Span(NamedTuple):
    """A part of the source, in UTF-16 units."""

    start: int
    end: int


def span_of(node: Node) -> Span:
    """Return the span of a node."""
    return Span(node.start_byte // 2, node.end_byte // 2)


def text_of(units: str, node: Node) -> str:
    """Return the text of a node."""
    return units[node.start_byte // 2 : node.end_byte // 2]


class Lines:
    """Converts offsets (UTF-16 units) of a program to positions (1-based lines and columns) and back."""

    def __init__(self, units: str) -> None:
        self._starts = [0, *(match.end() for match in LINE_END.finditer(units))]
        self._end = len(units)

    def position(self, at: int) -> tuple[int, int]:
        line = bisect_right(self._starts, at)
        return line, at - self._starts[line - 1] + 1

    def offset(self, line: int, column: int) -> int:
        if line > len(self._starts):
            return self._end
        return min(self._starts[max(line, 1) - 1] + max(column, 1) - 1, self._end)


FUNCTIONS = words(
    "function_declaration function_expression arrow_function method_definition generator_function "
    "generator_function_declaration function_signature class_static_block"
)
"""Types of nodes that are functions."""

TRANSPARENT = words("parenthesized_expression as_expression non_null_expression satisfies_expression")
"""Types of nodes that have the value of the expression in them."""


def covers(node: Node, span: Span) -> bool:
    """Return True if a span lies within a node."""
    own = span_of(node)
    return own.start <= span.start and span.end <= own.end


def parameters(function: Node) -> list[Node]:
    """Return the patterns of a function's parameters."""
    single, several = function.child_by_field_name("parameter"), function.child_by_field_name("parameters")
    if single is not None:
        return [single]
    patterns = [] if several is None else [part.child_by_field_name("pattern") for part in several.named_children]
    return [pattern for pattern in patterns if pattern is not None and pattern.type != "this"]
