"""The syntax tree of a program: its nodes, their names, and the scopes of names. Pure.

tree-sitter serves to find things, never to judge syntax, since it rejects some valid code. Its TypeScript grammar reads
both languages. It parses UTF-16, in which JavaScript counts, so that offsets need no conversion.
"""

from __future__ import annotations

import functools
import re
import time
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, structs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from tree_sitter import Node, Parser, Point, Tree


_PARSE_SECONDS = 1.0
"""Maximum CPU time of a parse: 1 MB of real code takes 0.3 s, 1 MB of binary junk 3 s.

Wall-clock time would refuse honest programs on a busy machine.
"""
_CHUNK_BYTES = 1 << 16


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


LINE_END = re.compile("\r\n|[\n\r\u2028\u2029]")
"""Ends of lines in ECMAScript."""


def line_count(source: str) -> int:
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
    return Span(node.start_byte // 2, node.end_byte // 2)


def text_of(units: str, node: Node) -> str:
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
    own = span_of(node)
    return own.start <= span.start and span.end <= own.end


def parameters(function: Node) -> list[Node]:
    single, several = function.child_by_field_name("parameter"), function.child_by_field_name("parameters")
    if single is not None:
        return [single]
    patterns = [] if several is None else [part.child_by_field_name("pattern") for part in several.named_children]
    return [pattern for pattern in patterns if pattern is not None and pattern.type != "this"]


# Names, literals and operators of nodes in a program's syntax tree.


MEMBER_ACCESS = frozenset(("member_expression", "subscript_expression"))

_ESCAPE = re.compile(r"\\u(?:\{([0-9a-fA-F]+)\}|([0-9a-fA-F]{4}))")


def unescaped(name: str) -> str:
    return _ESCAPE.sub(_character, name) if "\\" in name else name


def _character(match: re.Match[str]) -> str:
    code = int(match[1] or match[2], 16)
    return chr(code) if code <= 0x10FFFF else match[0]


def name_of(units: str, node: Node) -> str:
    """Return the name of an identifier, without escapes."""
    return unescaped(text_of(units, node))


def member_of(units: str, access: Node) -> str | None:
    """Return the static name in `x.name`, `x["name"]` or a template without parts."""
    if access.type == "member_expression":
        name = access.child_by_field_name("property")
        return name_of(units, name) if name is not None and name.type == "property_identifier" else None
    index = access.child_by_field_name("index")
    return literal_of(units, index) if index is not None else None


def literal_of(units: str, node: Node) -> str | None:
    """Return the value of a string, or of a template without parts; None for other nodes and for escapes."""
    text = text_of(units, node)
    if node.type not in {"string", "template_string"} or "\\" in text or "${" in text:
        return None
    return text[1:-1]


def operator_of(node: Node) -> str | None:
    operator = node.child_by_field_name("operator")
    return operator.type if operator is not None else None


def outermost(path: list[Node], index: int, kinds: Collection[str]) -> int:
    """Return the index of the outermost node that wraps `path[index]` in nodes of some types only."""
    while path[index - 1].type in kinds:
        index -= 1
    return index


def is_callee(node: Node, user: Node) -> bool:
    return user.type == "call_expression" and user.start_byte == node.start_byte


def is_target(path: list[Node], index: int) -> bool:
    user = path[index - 1]
    return user.type == "assignment_expression" and user.start_byte == path[index].start_byte


# Scopes of names in a program's syntax tree.


class Scope(Struct, frozen=True):
    """The context of a node.

    Attributes:
        function: the nearest function around it; None at the top level.
        block: the span in which a `let` would be visible.
        caught: whether it is inside a `try` that has a `catch`.
        namespace: whether it is inside a TypeScript namespace, whose `export` is not module syntax.
        declares: the span in which a name that is declared here is visible; None if no name is declared.
    """

    function: Span | None
    block: Span
    caught: bool = False
    namespace: bool = False
    declares: Span | None = None


_BLOCKS = words("statement_block for_statement for_in_statement catch_clause switch_statement")


_ERASED = words(
    "type_annotation type_alias_declaration interface_declaration type_arguments type_parameters "
    "ambient_declaration type_query nested_type_identifier function_type constructor_type implements_clause "
    "index_signature"
)
"""Types and ambient declarations, which are removed before the program runs."""


_SKIPPED = _ERASED | {"comment", "html_comment", "string", "regex"}


PATTERNS = words(
    "identifier shorthand_property_identifier_pattern object_pattern array_pattern pair_pattern rest_pattern "
    "assignment_pattern object_assignment_pattern"
)


_NAMED_DECLARATIONS = words(
    "function_declaration generator_function_declaration function_signature class_declaration "
    "abstract_class_declaration enum_declaration internal_module module"
)


_NAMED_EXPRESSIONS = words("function_expression generator_function class")


def _scope_of(node: Node, field: str | None, path: list[Node], scopes: list[Scope]) -> Scope:
    scope, kind = scopes[-1], node.type
    declares = _declared_span(kind, field, path, scopes)
    if declares is not scope.declares:
        scope = structs.replace(scope, declares=declares)
    if kind in FUNCTIONS:
        return structs.replace(scope, function=span_of(node), block=span_of(node))
    if kind in _BLOCKS:
        caught = scope.caught or (
            path[-1].type == "try_statement" and field == "body" and path[-1].child_by_field_name("handler") is not None
        )
        return structs.replace(scope, block=span_of(node), caught=caught)
    if kind in {"internal_module", "module"}:
        return structs.replace(scope, namespace=True)
    return scope


def _declared_span(kind: str, field: str | None, path: list[Node], scopes: list[Scope]) -> Span | None:
    scope, parent = scopes[-1], path[-1].type
    if scope.declares is not None:
        return scope.declares if kind in PATTERNS and field != "right" else None
    match parent, field:
        case "variable_declarator", "name":
            if path[-2].type == "variable_declaration":  # `var`
                return scope.function or span_of(path[0])
            return scope.block
        case (("required_parameter" | "optional_parameter"), "pattern"):
            return scope.block
        case (("arrow_function" | "catch_clause"), "parameter"):
            return scope.block
        case "for_in_statement", "left":
            return scope.block if path[-1].child_by_field_name("kind") is not None else None
        case _, "name" if parent in _NAMED_DECLARATIONS:
            return scopes[-2].block
        case _, "name" if parent in _NAMED_EXPRESSIONS:
            return span_of(path[-1])
    return None


def leaves(root: Node, hits: list[int]) -> Iterator[tuple[list[Node], Scope]]:
    """Yield the path from the root to every leaf that contains a hit, and its scope. The lists are reused.

    Subtrees without a hit are skipped, so the cost depends on the number of hits, not on the size of the source. There
    is no recursion, since source may be nested more deeply than Python's stack.

    Args:
        hits: sorted offsets in UTF-16 units.
    """
    path, scopes = [root], [Scope(function=None, block=span_of(root))]
    cursor = root.walk()
    if not cursor.goto_first_child():
        return
    while True:
        node = cursor.node
        if node is not None and node.type not in _SKIPPED and _contains(hits, span_of(node)):
            scopes.append(_scope_of(node, cursor.field_name, path, scopes))
            path.append(node)
            if cursor.goto_first_child():
                continue
            yield path, scopes[-1]
            path.pop()
            scopes.pop()
        while not cursor.goto_next_sibling():
            path.pop()
            scopes.pop()
            if not path:
                return
            cursor.goto_parent()


def _contains(hits: list[int], span: Span) -> bool:
    first = bisect_left(hits, span.start)
    return first < len(hits) and hits[first] < span.end
