"""Suggestions for misspelled names of servers, tools, arguments and options. Pure.

The work is bounded: if there are many names, only the most similar ones are compared in full.
"""

from __future__ import annotations

import difflib
import heapq
import re
from collections.abc import Iterable, Sequence
from itertools import permutations, takewhile

_MAX_LENGTH = 80
"""Maximum number of characters of a name that are compared."""

_MAX_COMPARED = 100
"""Maximum number of names that are compared in full. They share the most pairs of letters with the misspelled name."""

_CUTOFF = 0.6
"""Minimum similarity, as `difflib` measures it."""

_MIN_EDITED = 5
"""Minimum length of a word in which a letter may be missing, added or swapped."""

_MIN_REPLACED = 8
"""Minimum length of a word in which a vowel may be replaced."""


def normalize_name(name: str) -> str:
    """Return the letters and digits of a name in lower case, which are equal for `max_results` and `maxResults`."""
    return re.sub(r"[\W_]+", "", name[:_MAX_LENGTH]).lower()


def nearest(wanted: str, names: Iterable[str], *, count: int = 3) -> list[str]:
    """Return the closest names, best first. Of names that differ only in case and punctuation, one is returned.

    A name that contains `wanted` is close too: the edit distance from `create` to `createIssue` is large, but the names
    obviously belong together.
    """
    by_spelling: dict[str, str] = {}
    for name in names:
        by_spelling.setdefault(normalize_name(name), name)
    spelling = normalize_name(wanted)
    if spelling in by_spelling and count == 1:
        return [by_spelling[spelling]]
    candidates = list(by_spelling)
    if len(candidates) > _MAX_COMPARED:
        candidates = _most_promising(spelling, candidates)
    close = difflib.get_close_matches(spelling, candidates, n=count, cutoff=_CUTOFF)
    longer = sorted(each for each in candidates if len(spelling) > 2 and spelling in each and each not in close)
    return [by_spelling[each] for each in (*close, *longer)][:count]


def hint(near: Sequence[str]) -> str:
    return f" Nearest: {', '.join(near)}." if near else ""


def one_hint(wanted: str, names: Iterable[str]) -> str:
    near = nearest(wanted, names, count=1)
    return f'; did you mean "{near[0]}"?' if near else ""


def _most_promising(spelling: str, candidates: list[str]) -> list[str]:
    pairs = {spelling[i : i + 2] for i in range(len(spelling) - 1)}
    shared = {each: sum(pair in each for pair in pairs) - abs(len(each) - len(spelling)) for each in candidates}
    return heapq.nlargest(_MAX_COMPARED, candidates, key=shared.__getitem__)


def misspells(given: str, declared: str) -> bool:
    """Return True if `given` is certainly a misspelling of `declared`.

    Callers act on the answer, so the result is False in a doubtful case. Both names must begin with the same
    punctuation (`_id`, `$filter` and `@type` have a meaning) and have the same numbers (`line1`, `line2`). Then `given`
    is a misspelling if

    * the names differ only in case and punctuation (`max_results`, `maxResults`), or
    * one word of at least five letters has one slip after its first letter: two neighbours are swapped, or a letter
      other than the last is missing or added. In a word of at least eight letters, one vowel may also replace another
      one. A slip does not count if the result is another common word (`country`, `county`).

    Plurals and other endings (`page`, `pages`; `create`, `created`), prefixes (`order`, `reorder`) and short words
    (`min`, `max`; `id`, `ids`; `from`, `form`) are never misspellings of each other.
    """
    if given == declared or max(len(given), len(declared)) > _MAX_LENGTH or not normalize_name(given):
        return False
    if _BEGINNING.match(given)[0] != _BEGINNING.match(declared)[0]:  # type: ignore[index]
        return False
    if re.findall(r"\d+", given) != re.findall(r"\d+", declared):
        return False
    if normalize_name(given) == normalize_name(declared):
        return True
    given_words, declared_words = _words(given), _words(declared)
    if len(given_words) != len(declared_words):
        return False
    differing = [(a, b) for a, b in zip(given_words, declared_words, strict=True) if a != b]
    return (
        len(differing) == 1
        and _is_slip(*differing[0])
        and not _is_other_word(normalize_name(given), normalize_name(declared))
    )


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[^\W\d_]?[^\W\d_A-Z]+|[^\W\d_]+|\d+", name)]


def _is_slip(a: str, b: str) -> bool:
    shorter = min(len(a), len(b))
    if shorter < _MIN_EDITED or a[0] != b[0] or not (a + b).isalpha():
        return False
    # The part between the common beginning and the common end decides.
    start = _common_prefix(a, b)
    end = _common_prefix(a[start:][::-1], b[start:][::-1])
    middle_a, middle_b = a[start : len(a) - end], b[start : len(b) - end]
    if len(middle_a) == len(middle_b) == 2:
        return middle_a == middle_b[::-1]
    if a[-1] != b[-1]:  # a plural or another ending
        return False
    if len(middle_a) == len(middle_b) == 1:
        return shorter >= _MIN_REPLACED and {middle_a, middle_b} <= _VOWELS
    return len(middle_a) + len(middle_b) == 1


def _common_prefix(one: str, other: str) -> int:
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
"""Pairs of common words that differ by one slip, in both orders."""
