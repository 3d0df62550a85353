"""Suggestions for misspelled names of servers, tools, arguments and options. Pure.

The work is bounded: of many names, only the most promising are compared in full.
"""

from __future__ import annotations

import difflib
import heapq
import re
from itertools import permutations, takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_LENGTH = 80
"""Characters of a name that are compared."""

_MAX_COMPARED = 100
"""Names that are compared in full: those that share most pairs of letters with the misspelled name."""

_CUTOFF = 0.6
"""Least similarity, as `difflib` measures it."""

_MIN_EDITED = 5
"""Least letters of a word in which a letter may be missing, added or swapped."""

_MIN_REPLACED = 8
"""Least letters of a word in which a vowel may be replaced."""


def plain(name: str) -> str:
    """Return the letters and digits of a name in lower case, which are equal for `max_results` and `maxResults`."""
    return re.sub(r"[\W_]+", "", name[:_MAX_LENGTH]).lower()


def nearest(wanted: str, names: Iterable[str], *, count: int = 3) -> list[str]:
    """Return the closest names, best first. Of names that differ in case and punctuation only, the first is returned.

    A name that contains the wanted one is close too: the edit distance from `create` to `createIssue` is large, but a
    reader sees that they belong together.
    """
    by_spelling: dict[str, str] = {}
    for name in names:
        by_spelling.setdefault(plain(name), name)
    spelling = plain(wanted)
    if spelling in by_spelling and count == 1:
        return [by_spelling[spelling]]
    candidates = list(by_spelling)
    if len(candidates) > _MAX_COMPARED:
        candidates = _most_promising(spelling, candidates)
    close = difflib.get_close_matches(spelling, candidates, n=count, cutoff=_CUTOFF)
    longer = sorted(each for each in candidates if len(spelling) > 2 and spelling in each and each not in close)
    return [by_spelling[each] for each in (*close, *longer)][:count]


def _most_promising(spelling: str, candidates: list[str]) -> list[str]:
    pairs = {spelling[i : i + 2] for i in range(len(spelling) - 1)}
    shared = {each: sum(pair in each for pair in pairs) - abs(len(each) - len(spelling)) for each in candidates}
    return heapq.nlargest(_MAX_COMPARED, candidates, key=shared.__getitem__)


def misspells(given: str, declared: str) -> bool:
    """Return True if `given` is certainly a misspelling of `declared`.

    Callers act on the answer, so a doubtful case is False. The names have to begin with the same punctuation (`_id`,
    `$filter` and `@type` have a meaning) and to have the same numbers (`line1`, `line2`). Then it is a misspelling if

    * they differ in case and punctuation only (`max_results`, `maxResults`), or
    * one word of at least five letters has one slip after its first letter: two neighbours are swapped, or a letter
      other than the last is missing or added. In a word of at least eight letters, one vowel may also replace another.
      A slip that makes another common word does not count (`country`, `county`).

    Plurals and other endings (`page`, `pages`; `create`, `created`), prefixes (`order`, `reorder`) and short words
    (`min`, `max`; `id`, `ids`; `from`, `form`) are never misspellings of each other.
    """
    if given == declared or max(len(given), len(declared)) > _MAX_LENGTH or not plain(given):
        return False
    if _BEGINNING.match(given)[0] != _BEGINNING.match(declared)[0]:  # type: ignore[index]
        return False
    if re.findall(r"\d+", given) != re.findall(r"\d+", declared):
        return False
    if plain(given) == plain(declared):
        return True
    here, there = _words(given), _words(declared)
    if len(here) != len(there):
        return False
    differing = [(a, b) for a, b in zip(here, there, strict=True) if a != b]
    return len(differing) == 1 and _is_slip(*differing[0]) and not _is_other_word(plain(given), plain(declared))


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[^\W\d_]?[^\W\d_A-Z]+|[^\W\d_]+|\d+", name)]


def _is_slip(a: str, b: str) -> bool:
    shorter = min(len(a), len(b))
    if shorter < _MIN_EDITED or a[0] != b[0] or not (a + b).isalpha():
        return False
    start = _common_prefix(a, b)
    end = _common_prefix(a[start:][::-1], b[start:][::-1])
    here, there = a[start : len(a) - end], b[start : len(b) - end]
    if len(here) == len(there) == 2:
        return here == there[::-1]
    if a[-1] != b[-1]:
        return False
    if len(here) == len(there) == 1:
        return shorter >= _MIN_REPLACED and {here, there} <= _VOWELS
    return len(here) + len(there) == 1


def _common_prefix(one: str, other: str) -> int:
    """Return the length of the common prefix of two texts."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _is_other_word(given: str, declared: str) -> bool:
    return any(given.replace(one, other, 1) == declared for one, other in _WORDS)


_BEGINNING = re.compile(r"[\W_]*")
_VOWELS = frozenset("aeiou")
_WORDS = tuple(
    order
    for pair in (
        "adapter adaptor", "adoption adaption", "angel angle", "board broad", "breadth breath", "casual causal",
        "cloud could", "closet closest", "complement compliment", "contact contract", "county country",
        "dairy diary", "desert dessert", "diner dinner", "discreet discrete", "field filed", "fired fried",
        "friend fiend", "hoping hopping", "later latter", "layer lawyer", "manger manager", "marital martial",
        "mediation medication", "mediation meditation", "minster minister", "patent patient", "perfect prefect",
        "planing planning", "portion potion", "quiet quite", "reserve reverse", "reserved reversed", "sever server",
        "sever severe", "signed singed", "silver sliver", "staring starring", "stationary stationery", "super supper",
        "through thorough", "tired tried", "trail trial", "unison union", "united untied", "window widow",
    )
    for order in permutations(pair.split())
)  # fmt: skip
"""Common words that differ by one slip, in both orders."""
