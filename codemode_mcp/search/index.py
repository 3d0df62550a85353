"""A ranking of documents for a request: BM25F with a thesaurus. Pure, and independent of tools.

Every word of a request is a concept. A document matches a concept by the word itself or, with less weight, by a synonym
from the thesaurus. Of several matching words the best one counts most. Phrases of the thesaurus are concepts too. A
word that neither the documents nor the thesaurus have is replaced by words with a similar spelling.
"""

from __future__ import annotations

import difflib
import math
from array import array
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final

from codemode_mcp.search.words import content_words, phrase_words, stems, tokens

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from codemode_mcp.search.thesaurus import Thesaurus

MAX_REQUEST_WORDS: Final = 40
"""Maximum number of words of a request that are ranked."""
K1: Final = 0.9
"""Saturation of repeated words in a document (BM25's `k1`)."""
SYNONYM: Final = 0.5
"""Weight of a word of the thesaurus, relative to 1 for a word of the request."""
MAX_MEANINGS: Final = 12
"""Words of the thesaurus that are used for one phrase. The most specific ones come first."""
MAX_RARE_SHARE: Final = 0.1
"""Maximum share of documents with a word of the thesaurus. A more common word is not used."""
MAX_RARE_COUNT: Final = 50
"""Number of documents up to which no word is too common, in a small index."""
FURTHER_SYNONYM: Final = 0.5
"""Weight of further words for one concept, relative to 1 for the first word."""
COVERAGE_EXPONENT: Final = 0.5
"""Exponent of the share of a request's concepts that a document has."""
MISSPELT: Final = 0.7
"""Weight of a word that is spelled like a word of the request, and the minimum similarity of the two spellings."""
MIN_MISSPELT: Final = 4
"""Minimum length of a word that is corrected."""
MAX_MISSPELT: Final = 5
"""Maximum number of words of a request that are corrected."""
MAX_WITH_PAIR: Final = 1_000
"""Maximum number of stems with the same pair of letters that are candidates for a correction."""


@dataclass(frozen=True, slots=True)
class Field:
    """Weight of a field of the documents.

    Attributes:
        weight: value of one word here, relative to a field of weight 1.
        length: influence of the length of a text from 0 to 1 (BM25's `b`). In a longer text each word counts less.
    """

    weight: float
    length: float = 0.75


class Index:
    """An immutable inverted index of documents, which are identified by their numbers.

    Args:
        documents: the texts of each document, one for each field.
        vocabulary: stems that are spelt correctly even if no document has them.
        base: another index, whose documents come before these. It is not changed, and its words are as rare as in it
            alone. So scores of all documents are on one scale.
    """

    def __init__(
        self,
        documents: Sequence[Sequence[str]],
        fields: Sequence[Field],
        thesaurus: Thesaurus,
        vocabulary: Container[str] = (),
        base: Index | None = None,
    ) -> None:
        self._thesaurus = thesaurus
        self._vocabulary = vocabulary
        self._base: Index | None = base if base is not None and base._count else None
        first = 0 if self._base is None else self._base._count
        # Lengths are in characters, because these are known before texts are split into words.
        averages = [sum(map(len, texts)) / len(texts) or 1.0 for texts in zip(*documents, strict=True)]
        self._averages: list[float] = averages if self._base is None else self._base._averages
        numbers: dict[str, array[int]] = {}
        weights: dict[str, array[float]] = {}
        for number, document in enumerate(documents, first):
            counts: dict[str, float] = {}
            for field, average, text in zip(fields, self._averages, document, strict=True):
                worth = field.weight / (1 - field.length + field.length * len(text) / average)
                for token in tokens(text):
                    for stem in stems(token):
                        counts[stem] = counts.get(stem, 0.0) + worth
            for stem, count in counts.items():
                if stem in numbers:
                    numbers[stem].append(number)
                    weights[stem].append(count)
                else:
                    numbers[stem] = array("I", (number,))
                    weights[stem] = array("f", (count,))
        self._count: int = first + len(documents)
        for stem, entry in weights.items():
            among, having = self._count, len(entry)
            if self._base is not None and stem in self._base._numbers:
                among, having = first, len(self._base._numbers[stem])
            rarity = math.log(1 + (among - having + 0.5) / (having + 0.5))
            weights[stem] = array("f", [rarity * count * (K1 + 1) / (count + K1) for count in entry])
        self._numbers: dict[str, array[int]] = numbers
        self._weights = weights

    @property
    def stems(self) -> Iterable[str]:
        """All stems of the documents."""
        return self._numbers.keys() if self._base is None else {*self._base.stems, *self._numbers}

    def scores(self, request: str) -> dict[int, float]:
        """Return the score of each document that matches, by its number."""
        concepts: dict[tuple[str, ...], dict[str, float]] = {
            (stem,): {stem: 1.0} for stem in content_words(request)[:MAX_REQUEST_WORDS]
        }
        phrased = tuple(phrase_words(request)[:MAX_REQUEST_WORDS])
        for match in self._thesaurus.matches(phrased):
            meanings = [stem for stem in match.meanings[:MAX_MEANINGS] if not self._is_common(stem)]
            concept = concepts.setdefault(tuple(phrased[place] for place in match.places), {})
            for stem in meanings:
                concept.setdefault(stem, SYNONYM)
        found = []
        corrected = 0
        for phrase, concept in concepts.items():
            if len(concept) == 1 and len(phrase) == 1 and not self._has(phrase[0]) and corrected < MAX_MISSPELT:
                corrected += 1
                concept = dict.fromkeys(self._spelt_like(phrase[0]), MISSPELT)
            found.append(self.concept_scores(concept))
        if not found:
            return {}
        # The concept with the most documents comes first: reusing its dictionary is faster than adding to another.
        found.sort(key=len, reverse=True)
        scores = found[0]
        covered = dict.fromkeys(scores, 1)
        for each in found[1:]:
            for number, score in each.items():
                scores[number] = scores.get(number, 0.0) + score
                covered[number] = covered.get(number, 0) + 1
        shares = [(count / len(concepts)) ** COVERAGE_EXPONENT for count in range(1, len(concepts) + 1)]
        return {number: score * shares[covered[number] - 1] for number, score in scores.items()}

    def concept_scores(self, words: Mapping[str, float]) -> dict[int, float]:
        """Return the scores of documents for one concept.

        Args:
            words: the stems that stand for the concept, with their weights.
        """
        if len(words) == 1:
            ((stem, weight),) = words.items()
            return {number: weight * score for number, score in self._documents(stem)}
        found: dict[int, float] = {}
        for stem, weight in words.items():
            for number, score in self._documents(stem):
                known = found.get(number)
                found[number] = weight * score if known is None else known + FURTHER_SYNONYM * weight * score
        return found

    def _has(self, stem: str) -> bool:
        return stem in self._numbers or (self._base is not None and self._base._has(stem))

    def _is_common(self, stem: str) -> bool:
        if self._base is not None:
            return self._base._is_common(stem)
        return len(self._numbers.get(stem, ())) > max(MAX_RARE_COUNT, MAX_RARE_SHARE * self._count)

    def _documents(self, stem: str) -> Iterable[tuple[int, float]]:
        own = zip(self._numbers.get(stem, ()), self._weights.get(stem, ()), strict=True)
        return own if self._base is None else chain(self._base._documents(stem), own)

    def _spelt_like(self, stem: str) -> list[str]:
        """Return stems of the documents with a similar spelling that have a pair of letters in common."""
        if len(stem) < MIN_MISSPELT or not stem.isalpha() or stem in self._vocabulary:
            return []
        indexes = (self,) if self._base is None else (self, self._base)
        shared = Counter(
            known
            for pair in _pairs(stem)
            for known in {known for each in indexes for known in each._by_pair.get(pair, ())}
            if abs(len(known) - len(stem)) <= 2
        )
        likely = [known for known, _ in shared.most_common(100)]
        return difflib.get_close_matches(stem, likely, n=3, cutoff=MISSPELT)

    @cached_property
    def _by_pair(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for stem in self._numbers:
            if len(stem) >= MIN_MISSPELT - 1 and stem.isalpha():
                for pair in _pairs(stem):
                    known = found.setdefault(pair, [])
                    if len(known) < MAX_WITH_PAIR:
                        known.append(stem)
        return found


def _pairs(stem: str) -> set[str]:
    return {stem[i : i + 2] for i in range(len(stem) - 1)}
