"""Words as vectors: how near in meaning two texts are that share no word. Pure, but for one file of its own.

`word_vectors.bin` holds one small vector per stem, fitted by `scripts/fit_word_vectors.py` so that the sum of a text's
word vectors is near what a sentence model makes of the whole text.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from importlib import resources
from operator import add, mul
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAGIC: Final = b"codemode-mcp word vectors 1\n"


class WordVectors:
    """Vectors of stems.

    Args:
        data: `MAGIC`, a line with the number of dimensions, the stems separated by blanks and ended by a line feed,
            and for each stem its vector as signed bytes.

    Raises:
        ValueError: the data is not of that form.
    """

    def __init__(self, data: bytes) -> None:
        if not data.startswith(MAGIC):
            raise ValueError("not a file of word vectors")
        dimensions, words, matrix = data[len(MAGIC) :].split(b"\n", 2)
        self._dimensions = int(dimensions)
        self._rows = {word: number for number, word in enumerate(words.decode().split(" "))}
        self._matrix = memoryview(matrix).cast("b")
        if len(matrix) != self._dimensions * len(self._rows):
            raise ValueError(f"{len(self._rows)} words of {self._dimensions} dimensions are not {len(matrix)} bytes")

    def __contains__(self, stem: object) -> bool:
        return stem in self._rows

    def of(self, stems: Iterable[str]) -> list[float] | None:
        """The direction of a text, as a vector of length 1; None if none of its words is known."""
        total: list[int] | None = None
        for stem in stems:
            row = self._rows.get(stem)
            if row is not None:
                vector = self._matrix[row * self._dimensions : (row + 1) * self._dimensions]
                total = list(vector) if total is None else list(map(add, total, vector))
        if total is None:
            return None
        length = math.sqrt(sum(map(mul, total, total)))
        return [each / length for each in total] if length else None

    @cached_property
    def _lengths(self) -> list[float]:
        width = self._dimensions
        rows = (self._matrix[start : start + width] for start in range(0, len(self._matrix), width))
        return [math.sqrt(sum(map(mul, row, row))) or 1.0 for row in rows]

    def near(self, vector: Sequence[float], stems: Iterable[str], least: float) -> dict[str, float]:
        """Those of the stems whose similarity to a vector of length 1 is at least so much, each with it."""
        found = {}
        for stem in stems:
            row = self._rows.get(stem)
            if row is not None:
                values = self._matrix[row * self._dimensions : (row + 1) * self._dimensions]
                alike = similarity(vector, values) / self._lengths[row]
                if alike >= least:
                    found[stem] = alike
        return found


def similarity(one: Iterable[float], other: Iterable[float]) -> float:
    """The cosine of two vectors of length 1."""
    cosine: float = sum(map(mul, one, other))
    return cosine


@lru_cache(maxsize=1)
def shipped_vectors() -> WordVectors:
    """The vectors that come with the product."""
    return WordVectors(resources.files("codemode_mcp.search").joinpath("word_vectors.bin").read_bytes())
