"""Substrings without which a regular expression cannot match. Pure.

To search a text for a substring takes a hundredth of the time that a pattern with many alternatives takes. Most rules
find nothing in most texts, so this decides how long an examination takes. It is a shortcut only: a pattern for which
nothing is known is always searched.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_WORDS: Final = 60
"""Maximum number of substrings of one pattern. More take longer than the pattern."""

MIN_LENGTH: Final = 2


def required_words(pattern: str) -> tuple[str, ...]:
    """Return substrings of which every match of a pattern has at least one, or an empty tuple if none are known."""
    # The parser of `re` has no public name. Whatever changes in it costs the shortcut, and no finding.
    try:
        parser = importlib.import_module("re._parser")
        words = _of_sequence(parser.parse(pattern).data)
    except (ImportError, AttributeError, TypeError, ValueError):
        return ()
    return tuple(sorted(words)) if len(words) <= MAX_WORDS else ()


def _of_sequence(items: Sequence[Any]) -> frozenset[str]:
    """Return the words of that part of a sequence whose shortest word is the longest: it is the rarest."""
    best: frozenset[str] = frozenset()
    run = ""
    for operation, argument in [*items, ("end", None)]:
        if str(operation) == "LITERAL":
            run += chr(argument)
            continue
        if len(run) >= MIN_LENGTH:
            best = _rarer(best, frozenset((run,)))
        run = ""
        best = _rarer(best, _of_item(str(operation), argument))
    return best


def _of_item(operation: str, argument: Any) -> frozenset[str]:
    if operation == "BRANCH":
        branches = [_of_sequence(branch.data) for branch in argument[1]]
        return frozenset().union(*branches) if all(branches) else frozenset()
    if operation == "SUBPATTERN":
        return _of_sequence(argument[-1].data)
    if operation in ("MAX_REPEAT", "MIN_REPEAT") and argument[0] > 0:
        return _of_sequence(argument[2].data)
    return frozenset()


def _rarer(one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
    def rank(words: frozenset[str]) -> tuple[int, int]:
        return min(map(len, words), default=0), -len(words)

    return max(one, other, key=rank)
