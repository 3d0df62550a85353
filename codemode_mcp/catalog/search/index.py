"""A ranking of documents for a request: words, a thesaurus and BM25F. Pure, and independent of tools.

Every word of a request is a concept. A document matches a concept by the word itself or, with less weight, by a synonym
from the thesaurus. Of several matching words the best one counts most. Phrases of the thesaurus are concepts too. A
word that neither the documents nor the thesaurus have is replaced by words with a similar spelling.
"""

from __future__ import annotations

import difflib
import math
import re
import threading
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Final

from msgspec import Struct

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


class Field(Struct, frozen=True):
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


# Texts as comparable words.
#
# Names are split at case and punctuation, and words are reduced to their stems by Snowball's English stemmer, so that
# `createIssue`, `create_issue` and "creating issues" are equal. Accents are removed. Scripts without spaces are split
# into pairs of characters.


MAX_WORD: Final = 40
"""Maximum number of letters of a word that are compared."""
MAX_TOKEN: Final = 128
"""Maximum number of characters of a token that are compared."""

_TOKEN: Final = re.compile(r"[^\W_]+")
_BETWEEN: Final = dict.fromkeys((code for code in range(128) if not chr(code).isalnum()), " ")
_PART: Final = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^a-zA-Z0-9]+")
_WEB: Final = re.compile(r"https?://.*|www\..*|[\w-]+\.(?:com|org|net|io|dev)(?:/.*)?", re.DOTALL)
_MAIL: Final = re.compile(r"[^@]+@[^@.]+\.[^@]+")
_FILE: Final = re.compile(r"[\w/.~-]*[\w/~-]\.[a-z]{2,4}")
_KINDS: Final = {
    **dict.fromkeys(("xls", "xlsx", "xlsm"), "excel workbook"),
    **dict.fromkeys(("doc", "docx"), "word document"),
    **dict.fromkeys(("ppt", "pptx"), "presentation"),
    **dict.fromkeys(("png", "jpg", "jpeg", "gif", "webp"), "image"),
    **dict.fromkeys(("mp4", "mov"), "video"),
    **dict.fromkeys(("db", "sqlite"), "database"),
    **{kind: kind for kind in ("csv", "html", "pdf", "zip")},
}
"""Words for the kinds of files that tools often name, by extension."""
_NUMBER: Final = re.compile(r"[^\w]*[0-9][0-9.,:%-]*[^\w]*")
_CODE_NAME: Final = re.compile(r"[A-Za-z]{1,3}[0-9]+[A-Za-z]?|[0-9][A-Za-z]{1,2}")
"""`s3`, `k8s`, `sha256`, `2fa`: single words, although letters and digits alternate."""
_ACRONYMS: Final = re.compile(r"[A-Z]{2,}s")
_UNSPACED: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]{3,}")

# The file has two paragraphs: filler words and vague words.
_FILLERS, _VAGUE_WORDS = Path(__file__).with_name("stop_words.txt").read_text("utf-8").split("\n\n")
FILLERS: Final = frozenset(_FILLERS.split())
"""Words without meaning in a request."""
STOP_WORDS: Final = FILLERS | frozenset(_VAGUE_WORDS.split())
"""Words that do not distinguish tools, except within a phrase such as "log in" or "who is"."""


def words(text: str) -> list[str]:
    """Return the stems of a text, in order, stop words included."""
    return [stem for token in tokens(text) for stem in stems(token)]


def content_words(text: str) -> list[str]:
    """Return the stems of a request without stop words, unless it has only stop words."""
    return _without(STOP_WORDS, text)


def phrase_words(text: str) -> list[str]:
    """Return the stems of a request or a phrase without fillers, unless it has only fillers."""
    return _without(FILLERS, text)


def _without(unwanted: frozenset[str], text: str) -> list[str]:
    found = tokens(" ".join(map(_generalize, text.split()))) or tokens(text)
    kept = [token for token in found if token.lower() not in unwanted]
    return [stem for token in kept or found for stem in stems(token) if len(stem) > 1 or not stem.isalpha()]


def _generalize(word: str) -> str:
    """Replace an example by its kind: `url`, `email address` or `file`. Numbers are removed; other words stay."""
    if "." not in word and not word[:1].isdigit() and not word[-1:].isdigit():
        return word
    if len(word) > MAX_TOKEN:
        return word
    bare = word.strip(".,;:!?\"'()[]<>`")
    if _WEB.fullmatch(bare):
        return "url"
    if _MAIL.fullmatch(bare):
        return "email address"
    if _FILE.fullmatch(bare):
        return f"file {_KINDS.get(bare.rpartition('.')[2].lower(), '')}"
    return "" if _NUMBER.fullmatch(bare) else word


def tokens(text: str) -> list[str]:
    """Return the parts of a text between spaces and punctuation. A token can have several words; see `stems`."""
    if text.isascii():
        found = text.translate(_BETWEEN).split()
    else:
        # The stemmer knows letters without accents, and people type them. Marks are removed first, because
        # normalizing a long row of them takes quadratic time.
        plain = _without_marks(unicodedata.normalize("NFKD", _without_marks(text)))
        found = _TOKEN.findall(unicodedata.normalize("NFC", plain))
    return [token[:MAX_TOKEN] for token in found] if max(map(len, found), default=0) > MAX_TOKEN else found


def _without_marks(text: str) -> str:
    return "".join(c for c in text if not unicodedata.combining(c))


@lru_cache(maxsize=32_768)
def stems(token: str) -> tuple[str, ...]:
    """Return the stems of the words in one token: `create` and `issu` for `createIssues`."""
    if _CODE_NAME.fullmatch(token):
        return (token.lower(),)
    found: list[str] = []
    for part in _PART.findall(token):
        if _ACRONYMS.fullmatch(part):
            part = part[:-1]
        word = part.lower()
        if _UNSPACED.fullmatch(word):
            found.extend(word[i : i + 2] for i in range(len(word) - 1))
        else:
            found.append(_stemmer()(word[:MAX_WORD]))
    return tuple(found)


def _stemmer() -> Callable[[str], str]:
    """Return the stemmer of the current thread. Stemmers have mutable state."""
    stem: Callable[[str], str] | None = getattr(_thread_state, "stem", None)
    if stem is None:
        # Imported on demand, because many servers never search.
        import snowballstemmer  # type: ignore[import-untyped]  # it carries no types

        stem = _thread_state.stem = snowballstemmer.stemmer("english").stemWord
    return stem


_thread_state = threading.local()


# Synonyms: words of people and the words that tools use for the same things.
#
# `thesaurus.txt` is edited by hand. Each line has one of two forms:
#
#     phrase | phrase > word word    a request with one of the phrases asks for tools with the words on the right
#     word = word = two words        each word stands for all others
#
# Searches read `thesaurus_stems.txt`, which `scripts/compile_thesaurus.py` makes from it: finding the stems of 9,000
# phrases takes 0.25 s and 5 MB.


MAX_PHRASE: Final = 4
"""Maximum number of words of a phrase."""
MAX_GAP: Final = 3
"""Maximum number of other words between the words of a phrase, as in "throw the old mail away"."""


class Match(Struct, frozen=True):
    """A phrase found in a request.

    Attributes:
        places: indices of its words in the request.
        meanings: stems of the words that tools use for it, the most specific ones first.
    """

    places: tuple[int, ...]
    meanings: tuple[str, ...]


class Thesaurus:
    """Phrases and their meanings, both as stems.

    Args:
        lines: lines in the two forms of `thesaurus.txt`.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._add_entries(compiled(lines))

    @classmethod
    def of_stems(cls, entries: Iterable[str]) -> Thesaurus:
        """Return the thesaurus with these entries, which `compiled` has made."""
        made = cls(())
        made._add_entries(entries)
        return made

    def _add_entries(self, entries: Iterable[str]) -> None:
        self._count = 0
        # Entries stay texts, because tuples of stems take five times the memory.
        self._by_first: dict[str, str] = {}
        for entry in entries:
            self._count += 1
            first = entry[: entry.index("\t")].partition(" ")[0]
            known = self._by_first.get(first)
            self._by_first[first] = entry if known is None else f"{known}\n{entry}"

    def __len__(self) -> int:
        return self._count

    def matches(self, request: Sequence[str]) -> list[Match]:
        """Return all phrases in a request, given as its `phrase_words`, with up to `MAX_GAP` other words in between."""
        found = []
        for start, first in enumerate(request):
            for line in self._by_first.get(first, "").splitlines():
                phrase, _, meanings = line.partition("\t")
                places = _places(phrase.split(), request, start)
                if places is not None:
                    found.append(Match(places, tuple(meanings.split())))
        return found


def compiled(lines: Iterable[str]) -> list[str]:
    """Return entries for `Thesaurus.of_stems`: the stems of a phrase, a tab, and the stems of its meanings."""
    meanings: dict[tuple[str, ...], dict[str, None]] = {}
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        if ">" in line:
            left, _, right = line.partition(">")
            for phrase in left.split("|"):
                _add(meanings, phrase, right.split())
        else:
            group = [each.strip() for each in line.split("=")]
            for each in group:
                _add(meanings, each, [word for other in group if other != each for word in other.split()])
    return [f"{' '.join(phrase)}\t{' '.join(meant)}" for phrase, meant in meanings.items()]


def _add(known: dict[tuple[str, ...], dict[str, None]], phrase: str, meanings: Iterable[str]) -> None:
    key = tuple(phrase_words(phrase))
    if not 0 < len(key) <= MAX_PHRASE:
        return
    found = known.setdefault(key, {})
    for meaning in meanings:
        for stem in content_words(meaning):
            if stem not in key:
                found.setdefault(stem)


def _places(phrase: Sequence[str], request: Sequence[str], start: int) -> tuple[int, ...] | None:
    places = [start]
    end = start + len(phrase) + MAX_GAP
    for word in phrase[1:]:
        for place in range(places[-1] + 1, min(end, len(request))):
            if request[place] == word:
                places.append(place)
                break
        else:
            return None
    return tuple(places)


@lru_cache(maxsize=1)
def shipped_thesaurus() -> Thesaurus:
    text = Path(__file__).with_name("thesaurus_stems.txt").read_text("utf-8")
    return Thesaurus.of_stems(text.splitlines())
