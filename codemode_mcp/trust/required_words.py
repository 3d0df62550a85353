"""Substrings without which a regular expression cannot match, and which of them a text has. Pure.

To look up a substring takes a small part of the time that a pattern with many alternatives takes. Most rules find
nothing in most texts, so this decides how long an examination takes. It is a shortcut only: a pattern for which nothing
is known is always searched.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_WORDS: Final = 200
"""Maximum number of substrings of which one is required."""

MIN_LENGTH: Final = 2

_GRAM: Final = 3
"""Characters of the parts of texts and substrings that are compared first."""


def required_words(pattern: str) -> tuple[frozenset[str], ...]:
    """Return sets of substrings. Every match of the pattern has at least one substring of each set."""
    # The parser of `re` has no public name. Whatever changes in it costs the shortcut, and no finding.
    try:
        parser = importlib.import_module("re._parser")
        found = _of_sequence(parser.parse(pattern).data)
    except (ImportError, AttributeError, TypeError, ValueError):
        return ()
    return tuple(dict.fromkeys(words for words in found if len(words) <= MAX_WORDS))


def _of_sequence(items: Sequence[Any]) -> list[frozenset[str]]:
    found: list[frozenset[str]] = []
    run = ""
    for operation, argument in [*items, ("end", None)]:
        if str(operation) == "LITERAL":
            run += chr(argument)
            continue
        if len(run) >= MIN_LENGTH:
            found.append(frozenset((run,)))
        run = ""
        found += _of_item(str(operation), argument)
    return found


def _of_item(operation: str, argument: Any) -> list[frozenset[str]]:
    if operation == "BRANCH":
        branches = [_of_sequence(branch.data) for branch in argument[1]]
        return [frozenset().union(*map(_rarest, branches))] if all(branches) else []
    if operation == "SUBPATTERN":
        return _of_sequence(argument[-1].data)
    if operation in ("MAX_REPEAT", "MIN_REPEAT") and argument[0] > 0:
        return _of_sequence(argument[2].data)
    return []


def _rarest(sets: Sequence[frozenset[str]]) -> frozenset[str]:
    """Return the set whose shortest word is the longest."""
    return max(sets, key=lambda words: (min(map(len, words)), -len(words)))


class RequiredWords:
    """Substrings that are looked up in texts, all in one pass."""

    def __init__(self, words: Iterable[str]) -> None:
        self._short: list[str] = []
        self._by_gram: dict[str, list[str]] = {}
        for word in sorted(set(words)):
            if len(word) < _GRAM:
                self._short.append(word)
            else:
                # The end of a word is rarer than its beginning, which other words and forms of it share.
                self._by_gram.setdefault(word[-_GRAM:], []).append(word)

    def found_in(self, text: str) -> frozenset[str]:
        """Return the words that are in a text."""
        grams = self._by_gram.keys() & set(map("".join, zip(text, text[1:], text[2:], strict=False)))
        found = [word for gram in grams for word in self._by_gram[gram] if word in text]
        return frozenset(found).union(word for word in self._short if word in text)
