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
_MIN_EDITED_TWICE = 10


def plain(name: str) -> str:
    """The letters and digits of a name in lower case: `max_results`, `maxResults` and `max-results` are one."""
    return re.sub(r"[\W_]+", "", name[:_MAX_LENGTH]).lower()


def nearest(wanted: str, names: Iterable[str], *, count: int = 3) -> list[str]:
    """The closest of `names`, best first; of names that differ in case and punctuation alone only the first.

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
    """Whether `given` can hardly be anything but a slip in writing `declared`.

    For deciding, not for hints, so it errs on the side of two names being two. They are one when

    * they differ in case and punctuation alone (`max_results`, `maxResults`), or
    * one word of five letters or more differs by one slip: two neighbours swapped, or inside it, its first and last
      letter aside, a letter too many or too few. In a word of eight letters or more, another letter inside it is one
      as well, and in one of ten or more, two slips inside it.

    So plurals and other endings (`page`, `pages`; `create`, `created`), prefixes (`order`, `reorder`), short words
    (`min`, `max`; `id`, `ids`; `from`, `form`), other digits (`line1`, `line2`) and other words are never one.
    """
    if given == declared or max(len(given), len(declared)) > _MAX_LENGTH:
        return False
    if plain(given) == plain(declared) != "":
        return True
    here, there = _words(given), _words(declared)
    if len(here) != len(there):
        return False
    differing = [(a, b) for a, b in zip(here, there, strict=True) if a != b]
    return len(differing) == 1 and _slip(*differing[0])


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[^\W\d_]?[^\W\d_A-Z]+|[^\W\d_]+|\d+", name)]


def _slip(a: str, b: str) -> bool:
    shorter = min(len(a), len(b))
    if shorter < _MIN_EDITED or a[0] != b[0] or abs(len(a) - len(b)) > 2 or not (a + b).isalpha():
        return False
    edits = _edits(a, b)
    if edits == 1 and sorted(a) == sorted(b):
        return True
    if a[-1] != b[-1]:
        return False
    if edits == 1:
        return len(a) != len(b) or shorter >= _MIN_REPLACED
    return edits == 2 and shorter >= _MIN_EDITED_TWICE


def _edits(a: str, b: str) -> int:
    """Letters inserted, left out, replaced, or swapped with their neighbour."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        above, row = row, [i]
        for j, other in enumerate(b, 1):
            best = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (letter != other))
            if before and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                best = min(best, before[j - 2] + 1)
            row.append(best)
        before = above
    return row[-1]
