"""Rank documents for a query. Pure; knows nothing of tools.

Okapi BM25 over words, with more weight on some fields; names are split at case and punctuation.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_K1 = 1.2
_B = 0.75
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
_EXACT = 100.0
"""What a query that is the document's whole name scores on top."""


def words(text: str) -> list[str]:
    """Lower-case words: `createIssue`, `create_issue` and `Create issue` give the same."""
    return [_stem(word.lower()) for word in _WORD.findall(text)]


def _stem(word: str) -> str:
    # Enough to bring plurals together; anything cleverer needs a language.
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        return word[:-1]
    return word


@dataclass(frozen=True, slots=True)
class Document:
    """What is searched.

    Attributes:
        key: what a hit gives back.
        name: matched as a whole too.
        fields: text by weight; a word in a field of weight 3 counts as three.
    """

    key: str
    name: str
    fields: Sequence[tuple[float, str]]


class Index:
    """An immutable inverted index."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._keys = [document.key for document in documents]
        self._names = ["".join(words(document.name)) for document in documents]
        postings: dict[str, list[tuple[int, float]]] = {}
        lengths: list[float] = []
        for number, document in enumerate(documents):
            counts: Counter[str] = Counter()
            for weight, text in document.fields:
                for word in words(text):
                    counts[word] += weight  # type: ignore[assignment]  # a Counter of floats works
            for word, count in counts.items():
                postings.setdefault(word, []).append((number, count))
            lengths.append(float(sum(counts.values())))
        self._postings: Mapping[str, list[tuple[int, float]]] = postings
        self._lengths = lengths
        self._average = (sum(lengths) / len(lengths)) if lengths else 1.0

    def search(self, query: str, limit: int) -> list[tuple[str, float]]:
        """The best `limit` keys with their scores, best first; ties in the order the documents came in."""
        scores: dict[int, float] = {}
        total = len(self._keys)
        asked = words(query)
        for word in set(asked):
            found = self._postings.get(word)
            if found is None:
                continue
            rarity = math.log(1 + (total - len(found) + 0.5) / (len(found) + 0.5))
            for number, count in found:
                norm = 1 - _B + _B * self._lengths[number] / self._average
                scores[number] = scores.get(number, 0.0) + rarity * count * (_K1 + 1) / (count + _K1 * norm)
        whole = "".join(asked)
        for number in scores:
            if self._names[number] == whole:
                scores[number] += _EXACT
        best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:limit]
        return [(self._keys[number], round(score, 3)) for number, score in best]
