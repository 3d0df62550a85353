"""Rules of `finding_rules.toml`, compiled. The file says what each field means."""

from __future__ import annotations

import functools
import importlib
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.extensions.findings.finding_words import Meeting, meeting

if TYPE_CHECKING:
    from codemode_mcp.rules.trust.items import Severity

# Substrings without which a regular expression cannot match, and which of them a text has.
#
# To look up a substring takes a small part of the time that a pattern with many alternatives takes. Most rules find
# nothing in most texts, so this decides how long an examination takes. It is a shortcut only: a pattern for which
# nothing is known is always searched.


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
        grams = self._by_gram.keys() & set(map("".join, zip(text, text[1:], text[2:], strict=False)))
        found = [word for gram in grams for word in self._by_gram[gram] if word in text]
        return frozenset(found).union(word for word in self._short if word in text)


RULES_FILE: Final = Path(__file__).with_name("finding_rules.toml")

_TERM: Final = re.compile(r"\{([a-z_]+)\}")


class Wording:
    """A pattern, compiled when it is first searched, and the substrings that every match has."""

    def __init__(self, pattern: str) -> None:
        self.source = pattern
        self.needs = required_words(pattern)
        """Sets of substrings. Every match has at least one of each set."""
        self._pattern: re.Pattern[str] | None = None

    @property
    def pattern(self) -> re.Pattern[str]:
        if self._pattern is None:
            self._pattern = re.compile(self.source)
        return self._pattern

    def search(self, text: str, start: int = 0, end: int = sys.maxsize) -> re.Match[str] | None:
        return self.pattern.search(text, start, end)

    def may_match(self, words: frozenset[str]) -> bool:
        """Return False if a text cannot match that has only these of the required words of all rules."""
        return not any(map(words.isdisjoint, self.needs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of the file."""

    id: str
    severity: Severity
    looks_for: str
    message: str
    any: tuple[Wording, ...]
    together: tuple[tuple[Wording, ...], ...]
    sentences: int
    meets: tuple[Meeting, ...]
    names: tuple[Wording, ...]
    check: str
    patterns: Mapping[str, re.Pattern[str]]
    unless: tuple[Wording, ...]
    unless_about: tuple[Wording, ...]


@functools.cache
def rules() -> tuple[Rule, ...]:
    terms: dict[str, str] = _data()["terms"]

    def expanded(pattern: str) -> str:
        while _TERM.search(pattern):
            pattern = _TERM.sub(lambda found: terms[found[1]], pattern)
        return pattern

    @functools.cache
    def wording(pattern: str) -> Wording:
        return Wording(expanded(pattern))

    def wordings(patterns: Sequence[str]) -> tuple[Wording, ...]:
        return tuple(map(wording, patterns))

    return tuple(
        Rule(
            id=entry["id"],
            severity=entry["severity"],
            looks_for=entry["looks_for"],
            message=entry["message"],
            any=wordings(entry.get("any", ())),
            together=tuple(wordings(each) for each in entry.get("together", ())),
            sentences=entry.get("sentences", 1),
            meets=tuple(map(meeting, entry.get("meets", ()))),
            names=wordings(entry.get("names", ())),
            check=entry.get("check", ""),
            patterns={name: re.compile(expanded(each)) for name, each in entry.get("patterns", {}).items()},
            unless=wordings(entry.get("unless", ())),
            unless_about=wordings(entry.get("unless_about", ())),
        )
        for entry in _data()["rule"]
    )


@functools.cache
def known_words() -> RequiredWords:
    """Return the required words of the patterns of `any` and `together`."""
    found = (each for rule in rules() for each in (*rule.any, *(each for group in rule.together for each in group)))
    return RequiredWords(word for wording in found for words in wording.needs for word in words)


@functools.cache
def _data() -> dict[str, Any]:
    return tomllib.loads(RULES_FILE.read_text(encoding="utf-8"))
