"""Findings of an inspection of a program's text, its implicit return, and maps to its source. Pure."""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from typing import TYPE_CHECKING

from msgspec import Struct

from codemode_mcp.base.strict_json import Form, Integer
from codemode_mcp.program.syntax import LINE_END, Span, span_of, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tree_sitter import Node

    from codemode_mcp.base.settings import Language


# Maps from positions in compiled code to its source, as plain data that can be stored.


_BASE64 = {c: n for n, c in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}
_AFTER_ALL = 1 << 62

_MAPPINGS = re.compile(r"[A-Za-z0-9+/,;]*")

Segment = tuple[int, int, int, int]
"""Line (1-based) and column (0-based) in the output, then those in the input."""


class Insertion(Form, array_like=True):
    """An insertion within one line of a text."""

    line: Integer
    column: Integer
    growth: Integer

    def __call__(self, line: int, column: int) -> tuple[int, int]:
        """Map a position after the insertion to the text before it."""
        if self.line == line and self.column < column:
            column = max(self.column, column - self.growth)
        return line, column


class SourceMap(Form):
    """A map from JavaScript to the TypeScript that it was made from. Raises `ValueError` for other mappings.

    Attributes:
        mappings: the `mappings` of a source map (ECMA-426, revision 3) with one source.
        lines: the number of the author's lines.
        before: the number of our lines before them.
        grown: the insertions in the order of their positions.
    """

    mappings: str
    lines: Integer
    before: Integer
    grown: tuple[Insertion, ...]

    def __post_init__(self) -> None:
        if _MAPPINGS.fullmatch(self.mappings) is None:
            raise ValueError

    def author(self, line: int, column: int) -> tuple[int, int] | None:
        """Map a 1-based position in the TypeScript to the author's; None if it is outside the author's text."""
        line -= self.before
        if not 1 <= line <= self.lines:
            return None
        for grown in self.grown:
            line, column = grown(line, column)
        return line, column

    def __call__(self, line: int, column: int) -> tuple[int, int]:
        """Map a position to the author's 1-based line and column (UTF-16 units). Columns are approximate.

        The line is 0 for code that is not the author's: the wrapper, or a helper of esbuild.
        """
        segments = decode_mappings(self.mappings)
        index = bisect_right(segments, (line, column - 1, _AFTER_ALL, 0)) - 1
        if index + 1 < len(segments) and (index < 0 or segments[index][0] < line == segments[index + 1][0]):
            index += 1  # a position before the first token of its line
        if index < 0:
            return 0, 0
        _, _, source_line, source_column = segments[index]
        return self.author(source_line, source_column + 1) or (0, 0)


@functools.lru_cache(maxsize=4)
def decode_mappings(mappings: str) -> tuple[Segment, ...]:
    """Decode the `mappings` of a source map: `;` ends a line of output, `,` a segment of relative base-64 VLQs."""
    segments: list[Segment] = []
    source_line, source_column = 1, 0
    for line, row in enumerate(mappings.split(";"), start=1):
        column = 0
        for text in row.split(",") if row else ():
            fields = _decode_vlq(text)
            if not fields:
                continue
            column += fields[0]
            if len(fields) >= 4:
                source_line += fields[2]
                source_column += fields[3]
                segments.append((line, column, source_line, source_column))
    return tuple(segments)


def _decode_vlq(text: str) -> list[int]:
    numbers: list[int] = []
    value = shift = 0
    for character in text:
        digit = _BASE64[character]
        value |= (digit & 31) << shift
        shift += 5
        if digit < 32:  # the last digit of a number; its lowest bit is the sign
            numbers.append(-(value >> 1) if value & 1 else value >> 1)
            value = shift = 0
    return numbers


CELL_FILES: dict[Language, str] = {"javascript": "cell.js", "typescript": "cell.ts"}
"""The file name of a program in positions."""


class MemberCall(Struct, frozen=True):
    """A use of `MCP.<server>`, or a call of `MCP.<server>.<member>`, whose existence the program does not test.

    Attributes:
        member: the called member; None if only the server is used.
        line: the 1-based line, as JavaScript counts lines.
        column: the 1-based column in UTF-16 units.
        operation: the called operation, if the member is `resources` or `prompts`.
    """

    server: str
    member: str | None
    line: int
    column: int
    operation: str | None = None


class ProgramCall(Struct, frozen=True):
    """A call of `programs.<name>`, whose existence the program does not test. The position is as in `MemberCall`."""

    name: str
    line: int
    column: int


class Called(Struct, frozen=True):
    """A program that is a function, with a call of the function added.

    Attributes:
        text: the program to run.
        plain: the program without the keywords of an export, to be run if `text` does not parse.
        inserted: the insertion that made `text` longer than the author's, apart from its last line.
        note: a sentence for the reader of the result.
    """

    text: str
    plain: str
    inserted: Insertion
    note: str


class Preflight(Struct, frozen=True):
    """The findings about one program.

    Attributes:
        source: the text of the program.
        returning: the source with the implicit `return` inserted on the same lines; None if there is none.
        servers: the servers used as `MCP.<x>`; None if unknown, so that any server may be used.
        member_calls: uses of servers and members that must exist.
        returned_at: the line and column in `source` at which the returned expression begins.
        broken: whether the parser found an error or gave up. The program may be valid all the same.
        program_calls: calls of saved programs that must exist.
        called: the program to run instead, if this one is a function that its reader is expected to call.
        rounded: a sentence about integers that the program writes and JavaScript rounds; empty if there are none.
        intl: whether the program needs the image with `Intl`.
    """

    source: str
    returning: str | None
    servers: frozenset[str] | None
    member_calls: tuple[MemberCall, ...]
    returned_at: tuple[int, int] | None = None
    broken: bool = False
    called: Called | None = None
    program_calls: tuple[ProgramCall, ...] = ()
    rounded: str = ""
    intl: bool = False

    @property
    def explicit(self) -> tuple[str, Insertion | None]:
        """The program with its implicit call or return written out, and the insertion that makes it longer."""
        if self.called is not None:
            return self.called.text, self.called.inserted
        return self.returning or self.source, self.inserted

    def author_position(self, line: int, column: int) -> tuple[int, int]:
        """Map a position in `returning` to `source`."""
        return (line, column) if self.inserted is None else self.inserted(line, column)

    @property
    def inserted(self) -> Insertion | None:
        """The insertion that makes `returning` longer than `source`."""
        return None if self.returned_at is None else Insertion(*self.returned_at, len(RETURN))


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
    return (child for child in reversed(node.children) if child.type not in _NO_STATEMENT and child.type != ";")
