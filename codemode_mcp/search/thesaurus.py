"""What people call things, and what tools call them. Pure, but for reading `thesaurus.txt` beside this module once.

Each line of that file is one of

    phrase | phrase > word word    a request with one of the phrases is one for tools with the words on the right
    word = word = two words        each stands for all others
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Final

from codemode_mcp.search.words import phrase_words, telling_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_PHRASE: Final = 4
"""Words of a phrase."""
MAX_GAP: Final = 3
"""Other words between them: "throw the old mail away"."""


@dataclass(frozen=True, slots=True)
class Match:
    """A phrase found in a request.

    Attributes:
        places: of its words.
        meanings: stems of the words that tools use for it, the most telling first.
    """

    places: tuple[int, ...]
    meanings: tuple[str, ...]


class Thesaurus:
    """Phrases and their meanings, both as stems."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._meanings: dict[tuple[str, ...], dict[str, None]] = {}
        for line in lines:
            if not line.strip() or line.startswith("#"):
                continue
            if ">" in line:
                left, _, right = line.partition(">")
                for phrase in left.split("|"):
                    self._add(phrase, right.split())
            else:
                group = [each.strip() for each in line.split("=")]
                for each in group:
                    self._add(each, [word for other in group if other != each for word in other.split()])

    def _add(self, phrase: str, meanings: Iterable[str]) -> None:
        key = tuple(phrase_words(phrase))
        if not 0 < len(key) <= MAX_PHRASE:
            return
        known = self._meanings.setdefault(key, {})
        for meaning in meanings:
            for stem in telling_words(meaning):
                if stem not in key:
                    known.setdefault(stem)

    def __len__(self) -> int:
        return len(self._meanings)

    def matches(self, asked: Sequence[str]) -> list[Match]:
        """Every phrase in a request, given as its `phrase_words`; up to `MAX_GAP` others may stand in between."""
        found = []
        for start, first in enumerate(asked):
            for phrase, meanings in self._by_first.get(first, ()):
                places = _places(phrase, asked, start)
                if places is not None:
                    found.append(Match(places, meanings))
        return found

    @cached_property
    def _by_first(self) -> dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]]:
        found: dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]] = {}
        for phrase, meanings in self._meanings.items():
            found.setdefault(phrase[0], []).append((phrase, tuple(meanings)))
        return found


def _places(phrase: Sequence[str], asked: Sequence[str], start: int) -> tuple[int, ...] | None:
    places = [start]
    end = start + len(phrase) + MAX_GAP
    for word in phrase[1:]:
        for place in range(places[-1] + 1, min(end, len(asked))):
            if asked[place] == word:
                places.append(place)
                break
        else:
            return None
    return tuple(places)


@lru_cache(maxsize=1)
def shipped_thesaurus() -> Thesaurus:
    """The thesaurus that comes with the product."""
    text = resources.files("codemode_mcp.search").joinpath("thesaurus.txt").read_text("utf-8")
    return Thesaurus(text.splitlines())
