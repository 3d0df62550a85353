"""Rules of `finding_rules.toml`, compiled. The file says what each field means."""

from __future__ import annotations

import functools
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from .finding_words import Meeting, meeting
from .required_words import RequiredWords, required_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Severity = Literal["high", "medium", "low"]

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
        """The pattern, compiled."""
        if self._pattern is None:
            self._pattern = re.compile(self.source)
        return self._pattern

    def search(self, text: str, start: int = 0, end: int = sys.maxsize) -> re.Match[str] | None:
        """Return the first match between two positions."""
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
    """Return the rules in the order of the file."""
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
def look_alikes() -> Mapping[int, str]:
    """Return letters that look like Latin ones, and those, for `str.translate`."""
    table: dict[str, str] = _data()["look_alikes"]
    return {ord(letter): latin for latin, letters in table.items() for letter in letters}


@functools.cache
def _data() -> dict[str, Any]:
    return tomllib.loads(RULES_FILE.read_text(encoding="utf-8"))
