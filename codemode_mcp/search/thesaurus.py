"""Synonyms: words of people and the words that tools use for the same things. Pure, except for reading one file once.

`thesaurus.txt` is edited by hand. Each line has one of two forms:

    phrase | phrase > word word    a request with one of the phrases asks for tools with the words on the right
    word = word = two words        each word stands for all others

Searches read `thesaurus_stems.txt`, which `scripts/compile_thesaurus.py` makes from it: finding the stems of 9,000
phrases takes 0.25 s and 5 MB.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Final

from codemode_mcp.search.words import content_words, phrase_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_PHRASE: Final = 4
"""Maximum number of words of a phrase."""
MAX_GAP: Final = 3
"""Maximum number of other words between the words of a phrase, as in "throw the old mail away"."""


@dataclass(frozen=True, slots=True)
class Match:
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
    """Add the stems of meanings to a phrase."""
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
    """Return the thesaurus of this package."""
    text = resources.files("codemode_mcp.search").joinpath("thesaurus_stems.txt").read_text("utf-8")
    return Thesaurus.of_stems(text.splitlines())
