"""Maps from positions in compiled code to its source, as plain data that can be stored. Pure."""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TypeGuard

_BASE64 = {c: n for n, c in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}
_AFTER_ALL = 1 << 62

_MAPPINGS = re.compile(r"[A-Za-z0-9+/,;]*")

Segment = tuple[int, int, int, int]
"""Line (1-based) and column (0-based) in the output, then those in the input."""


@dataclass(frozen=True, slots=True)
class Insertion:
    """An insertion within one line of a text."""

    line: int
    column: int
    growth: int

    def __call__(self, line: int, column: int) -> tuple[int, int]:
        """Map a position after the insertion to the text before it."""
        if self.line == line and self.column < column:
            column = max(self.column, column - self.growth)
        return line, column


@dataclass(frozen=True, slots=True)
class Author:
    """The author's part of a text.

    Attributes:
        lines: the number of the author's lines.
        before: the number of our lines before them.
        grown: the insertions in the order of their positions.
    """

    lines: int
    before: int = 0
    grown: tuple[Insertion, ...] = ()

    def __call__(self, line: int, column: int) -> tuple[int, int] | None:
        """Map a 1-based position to the author's; None if it is outside the author's text."""
        line -= self.before
        if not 1 <= line <= self.lines:
            return None
        for grown in self.grown:
            line, column = grown(line, column)
        return line, column


@dataclass(frozen=True, slots=True)
class SourceMap:
    """A map from JavaScript to the TypeScript that it was made from.

    Attributes:
        mappings: the `mappings` of a source map (ECMA-426, revision 3) with one source.
    """

    mappings: str = field(repr=False)
    author: Author

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


def are_mappings(text: object) -> TypeGuard[str]:
    """Return True if `decode_mappings` can decode a value."""
    return isinstance(text, str) and _MAPPINGS.fullmatch(text) is not None


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
