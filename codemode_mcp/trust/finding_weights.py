"""Weighed words: sentences that read like those of attacks, although no rule of its own knows their wording. Pure.

Rules name the parts of an attack, and a new attack can leave out any of them. Yet its words are rarely those of a
description that only says what a tool does. So each word and each class of words has a weight, learned from labelled
definitions: how much more often attacks have it than honest definitions. The weights of one to three sentences in a row
are added, and divided by the square root of how many there are, so that long sentences are no worse than short ones.

`scripts/finding_weights.py` learns the weights and writes `finding_weights.toml`. The sum can be checked by hand.
"""

from __future__ import annotations

import functools
import math
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .finding_words import tables

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from .definition_texts import FoldedTexts
    from .finding_words import ReadSentence

WEIGHTS_FILE: Final = Path(__file__).with_name("finding_weights.toml")

SENTENCES: Final = 3
"""Maximum number of sentences in a row that are weighed together."""

_IDENTIFIER: Final = re.compile(r"[A-Za-z]\w{1,60}(?:[.-]\w{1,60}){0,3}")
_COMPARED: Final = re.compile(
    r"\b(?:similar to|unlike|like|see also|confused with|alternative to|replaces|compared with) $"
)
"""Words before the name of a tool that is only compared."""
_PATH: Final = re.compile(r"(?:^|[\s'\"(,;:])(?:~|\.{0,2})/[\w.-]|(?:^|[\s'\"(/])\.[a-z][\w.-]{2}")
_ADDRESS: Final = re.compile(r"https?://|\b[\w.+-]{1,40}@[\w-]{1,40}\.\w")
_FOREIGN: Final = re.compile("[\u00c0-\u1fff\u3040-\uffef]")
_ENDINGS: Final = ("ingly", "ings", "ing", "edly", "ed", "ies", "es", "s", "ly")
_MIN_FOREIGN: Final = 3
_MAX_NAME: Final = 3
"""Maximum words of a sentence that is a name and nothing more."""
_LONGEST: Final = 4
_WORDS_OF_LENGTH: Final = 8


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of the file."""

    at_least: float
    """The sum from which sentences are a finding."""
    start: float
    """The sum of no words."""
    of: Mapping[str, float]


@functools.cache
def weights() -> Weights:
    """Return the weights of the file."""
    data: dict[str, Any] = tomllib.loads(WEIGHTS_FILE.read_text(encoding="utf-8"))
    of = {feature: float(weight) for weight, listed in data["weights"].items() for feature in listed.split()}
    return Weights(at_least=data["at_least"], start=data["start"], of=of)


@dataclass(frozen=True, slots=True)
class Passage:
    """One to three sentences of one text, with what is weighed in them."""

    start: int
    end: int
    text: int
    """The number of the text in the definition."""
    features: frozenset[str]

    def weight(self, by: Weights) -> float:
        """Return the sum of the weights."""
        return by.start + sum(by.of.get(each, 0.0) for each in self.features) / math.sqrt(len(self.features) or 1)


def heavy(folded: FoldedTexts, read: Sequence[ReadSentence], others: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of the heaviest passage of each text that has a heavy one."""
    by = weights()
    heaviest: dict[int, tuple[float, Passage]] = {}
    for passage in passages(folded, read, others):
        weight = passage.weight(by)
        if weight >= by.at_least and weight > heaviest.get(passage.text, (0.0, None))[0]:
            heaviest[passage.text] = weight, passage
    for _, passage in heaviest.values():
        yield passage.start, passage.end


def passages(folded: FoldedTexts, read: Sequence[ReadSentence], others: Collection[str]) -> Iterator[Passage]:
    """Yield all passages of a definition.

    Args:
        folded: the texts of the definition.
        read: its sentences.
        others: the names of the tools of other servers that are no names of the definition itself.
    """
    last: list[tuple[int, int, set[str]]] = []
    for (start, end, number), sentence in zip(folded.sentences, read, strict=True):
        if last and last[-1][1] != number:
            last = []
        last = [*last, (start, number, _features(folded, start, end, sentence, others))][-SENTENCES:]
        together: set[str] = set()
        for first, _, features in reversed(last):
            together |= features
            yield Passage(first, end, number, frozenset(together))


def _features(folded: FoldedTexts, start: int, end: int, sentence: ReadSentence, others: Collection[str]) -> set[str]:
    lower = folded.lower[start:end]
    words = [stem(word) for word in sentence.words if word[0].isalpha()]
    found = {*words, f"=words-{min(_LONGEST, len(words) // _WORDS_OF_LENGTH)}", *_names(sentence.all_classes)}
    if (
        others
        and len(words) > _MAX_NAME
        and any(
            _is_name(each[0], others)
            and not _COMPARED.search(folded.lower, max(start, each.start() - 30), each.start())
            for each in _IDENTIFIER.finditer(folded.plain, start, end)
        )
    ):
        found.add("=tool-of-another-server")
    if ("/" in lower or "." in lower[:-1]) and _PATH.search(lower):
        found.add("=path")
    if ("@" in lower or "://" in lower) and _ADDRESS.search(lower):
        found.add("=address")
    if not lower.isascii() and len(_FOREIGN.findall(lower)) >= _MIN_FOREIGN:
        found.add("=no-english")
    text = folded.text_at(start)
    if text.is_value:
        found.add("=value")
    elif text.where not in ("/description", "/instructions"):
        found.add("=inside")
    return found


def identifiers_in(text: str) -> set[str]:
    """Return all parts of a text that are weighed as a name of a tool."""
    return {found[0] for found in _IDENTIFIER.finditer(text)}


def _is_name(identifier: str, others: Collection[str]) -> bool:
    # The name of a server may stand before it. A single word is rarely meant as a name.
    last = identifier.rpartition(".")[2]
    return any(each in others and not (each.isalpha() and each.islower()) for each in (identifier, last))


@functools.lru_cache(maxsize=5_000)
def _names(classes: int) -> tuple[str, ...]:
    """Return classes of words as features: `+tell`, and `-tell` if it is negated."""
    return tuple(
        f"{sign}{name}"
        for name, bit in tables().bits.items()
        for sign, each in (("+", bit), ("-", bit << 1))
        if classes & each
    )


@functools.lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """Return a word without the endings of English inflection, roughly."""
    word = word.removesuffix("'s")
    if not word.isascii() or len(word) < 5:
        return word
    ending = next((each for each in _ENDINGS if word.endswith(each) and len(word) - len(each) >= 3), "")
    word = word.removesuffix(ending) + ("y" if ending == "ies" else "")
    if word.endswith("e") and len(word) > 4:
        word = word[:-1]
    return word[:-1] if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "ls" else word
