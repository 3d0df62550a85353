"""Word vectors, which compare the meaning of texts that share no word. Pure, except for reading one file.

`word_vectors.bin` has one small vector for each stem. `scripts/fit_word_vectors.py` fits them so that the sum of a
text's word vectors is near the vector of the whole text by a sentence model.
"""

from __future__ import annotations

import math
import mmap
from array import array
from bisect import bisect_left
from functools import lru_cache
from importlib import resources
from operator import add, mul
from pathlib import Path
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
        ValueError: the data does not have this form.
    """

    def __init__(self, data: bytes | mmap.mmap) -> None:
        if data[: len(MAGIC)] != MAGIC:
            raise ValueError("not a file of word vectors")
        after_width = data.find(b"\n", len(MAGIC)) + 1
        start = data.find(b"\n", after_width) + 1
        self._dimensions = width = int(data[len(MAGIC) : after_width])
        # Two arrays with a number for each word take a tenth of the memory of a dictionary.
        hashed = sorted((hash(word), row) for row, word in enumerate(data[after_width : start - 1].decode().split(" ")))
        self._hashes = array("q", [each for each, _ in hashed])
        self._rows = array("I", [row for _, row in hashed])
        self._lengths = array("d", bytes(8 * len(hashed)))
        self._matrix = memoryview(data)[start:].cast("b")
        if len(self._matrix) != width * len(hashed):
            raise ValueError(f"{len(hashed)} words of {width} dimensions are not {len(self._matrix)} bytes")

    def __contains__(self, stem: object) -> bool:
        return self._row(stem) is not None

    def _row(self, stem: object) -> int | None:
        """Return the row of a stem; None if it is unknown.

        Two words with the same hash are practically impossible: hashes have 64 bits and a random key.
        """
        wanted = hash(stem)
        place = bisect_left(self._hashes, wanted)
        if place == len(self._hashes) or self._hashes[place] != wanted:
            return None
        return self._rows[place]

    def _values(self, row: int) -> memoryview:
        return self._matrix[row * self._dimensions : (row + 1) * self._dimensions]

    def _length(self, row: int) -> float:
        length = self._lengths[row]
        if not length:
            values = self._values(row)
            length = self._lengths[row] = math.sqrt(sum(map(mul, values, values))) or 1.0
        return length

    def of(self, stems: Iterable[str]) -> list[float] | None:
        """Return the direction of a text as a vector of length 1; None if all of its words are unknown."""
        total: list[int] | None = None
        for stem in stems:
            row = self._row(stem)
            if row is not None:
                vector = self._values(row)
                total = list(vector) if total is None else list(map(add, total, vector))
        if total is None:
            return None
        length = math.sqrt(sum(map(mul, total, total)))
        return [each / length for each in total] if length else None

    def near(self, vector: Sequence[float], stems: Iterable[str], minimum: float) -> dict[str, float]:
        """Return the stems whose similarity to a vector of length 1 is at least `minimum`, with the similarity."""
        found = {}
        for stem in stems:
            row = self._row(stem)
            if row is not None:
                alike = similarity(vector, self._values(row)) / self._length(row)
                if alike >= minimum:
                    found[stem] = alike
        return found


def similarity(one: Iterable[float], other: Iterable[float]) -> float:
    """Return the cosine of two vectors of length 1."""
    cosine: float = sum(map(mul, one, other))
    return cosine


@lru_cache(maxsize=1)
def shipped_vectors() -> WordVectors:
    """Return the vectors of this package."""
    file = resources.files("codemode_mcp.search").joinpath("word_vectors.bin")
    if not isinstance(file, Path):
        return WordVectors(file.read_bytes())
    with file.open("rb") as opened:  # mapped, so that only needed pages are read, and processes share them
        return WordVectors(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
