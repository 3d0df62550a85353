"""The names that a mistaken one most likely stands for: one idea of likeness for servers, tools, arguments, options.

Pure. Work is bounded for any names: of many only the most promising are compared in full.
"""

from __future__ import annotations

import difflib
import heapq
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_LENGTH = 80
"""Letters of a name that are looked at."""

_COMPARED = 100
"""Names that are compared in full; of more, those that share most pairs of letters with what was written."""

_CUTOFF = 0.6

_MIN_EDITED = 5
_MIN_REPLACED = 8


def plain(name: str) -> str:
    """Return the letters and digits of a name in lower case: `max_results`, `maxResults` and `max-results` are one."""
    return re.sub(r"[\W_]+", "", name[:_MAX_LENGTH]).lower()


def nearest(wanted: str, names: Iterable[str], *, count: int = 3) -> list[str]:
    """Return the closest of `names`, best first; of names that differ in case and punctuation alone only the first.

    A name that contains what was written is near as well: `create` is far from `createIssue` by edit distance, but
    not to a reader.
    """
    by_spelling: dict[str, str] = {}
    for name in names:
        by_spelling.setdefault(plain(name), name)
    spelling = plain(wanted)
    if spelling in by_spelling and count == 1:
        return [by_spelling[spelling]]
    candidates = list(by_spelling)
    if len(candidates) > _COMPARED:
        candidates = _most_promising(spelling, candidates)
    close = difflib.get_close_matches(spelling, candidates, n=count, cutoff=_CUTOFF)
    longer = sorted(each for each in candidates if len(spelling) > 2 and spelling in each and each not in close)
    return [by_spelling[each] for each in (*close, *longer)][:count]


def _most_promising(spelling: str, candidates: list[str]) -> list[str]:
    pairs = {spelling[i : i + 2] for i in range(len(spelling) - 1)}
    shared = {each: sum(pair in each for pair in pairs) - abs(len(each) - len(spelling)) for each in candidates}
    return heapq.nlargest(_COMPARED, candidates, key=shared.__getitem__)


def misspells(given: str, declared: str) -> bool:
    """Return True if `given` can hardly be anything but a slip in writing `declared`.

    For deciding, not for hints, so it errs on the side of two names being two. They are one when they begin with the
    same punctuation (`_id`, `$filter`, `@type` have a meaning), have the same numbers (`line1`, `line2`), and

    * differ in case and punctuation alone (`max_results`, `maxResults`), or
    * one word of five letters or more differs by one slip after its first letter: two neighbours swapped, or, its last
      letter aside, a letter too many or too few. In a word of eight letters or more, one vowel for another is one as
      well. None is one that makes another common word (`country`, `county`).

    So plurals and other endings (`page`, `pages`; `create`, `created`), prefixes (`order`, `reorder`), short words
    (`min`, `max`; `id`, `ids`; `from`, `form`) and other words are never one.
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
    start = _alike(a, b)
    end = _alike(a[start:][::-1], b[start:][::-1])
    here, there = a[start : len(a) - end], b[start : len(b) - end]
    if len(here) == len(there) == 2:
        return here == there[::-1]
    if a[-1] != b[-1]:
        return False
    if len(here) == len(there) == 1:
        return shorter >= _MIN_REPLACED and {here, there} <= _VOWELS
    return len(here) + len(there) == 1


def _alike(one: str, other: str) -> int:
    """Letters that two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def _is_other_word(given: str, declared: str) -> bool:
    return any(
        given.replace(one, other, 1) == declared for pair in _WORDS for one in pair for other in pair if one != other
    )


_BEGINNING = re.compile(r"[\W_]*")
_VOWELS = frozenset("aeiou")
_WORDS = tuple(
    frozenset(pair.split())
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
)  # fmt: skip
