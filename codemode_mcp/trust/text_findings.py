"""Findings in one text of a definition. They are computed once for each distinct text.

A server may list thousands of definitions that share schemas: the 1,014 operations of Kubernetes have 10 MB of text, of
which 0.5 MB is distinct. So each text is judged on its own, and the result is remembered for the same text. It depends
on nothing else but the kind of place, and the names in the text that are arguments of the definition, or tools of other
servers.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .definition_texts import FoldedTexts, Text, shown, words_of
from .encoded_texts import decoded_parts
from .finding_characters import CHARACTER_CHECKS
from .finding_checks import TEXT_CHECKS, ReadText, names_in
from .finding_rules import rules
from .finding_words import Meetings, read_sentences, words_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from .finding_rules import Rule, Wording
    from .finding_words import Meeting

MAX_CHARACTERS: Final = 2_000_000
"""Maximum characters of the texts whose findings are remembered. When there are more, all are forgotten."""

MAX_TEXTS: Final = 25_000
"""Maximum number of these texts."""

_SIZE_OF_MARKS: Final = 50
"""Characters that the marks of a text count as."""

_NONE: Final[frozenset[str]] = frozenset()
_DESCRIPTIONS: Final = ("/description", "/instructions")

_TextKey = tuple[str, bool]
_Context = tuple[bool, bool, frozenset[str], frozenset[str]]


@dataclass(frozen=True, slots=True)
class Mark:
    """The first part of a text that a rule finds something in.

    Attributes:
        rule: the position of the rule in the file.
        is_wording: False if only a check or a name was found, which `unless_about` of the rule may take back.
    """

    rule: int
    excerpt: str
    is_wording: bool


@dataclass(slots=True)
class _Known:
    """A remembered text: the names in it, and its marks by the context that they depend on."""

    words: frozenset[str]
    names: frozenset[str]
    marks: dict[_Context, tuple[Mark, ...]] = field(default_factory=dict)


class _Memory:
    """The texts that are remembered."""

    def __init__(self) -> None:
        self.known: dict[_TextKey, _Known] = {}
        self._room = MAX_CHARACTERS

    def marks_of(self, text: Text, arguments: Collection[str], others: frozenset[str]) -> tuple[Mark, ...]:
        """Return the marks of a text, as `marks_of` does."""
        key = text.raw, text.is_name
        known = self.known.get(key)
        if known is None:
            folded = FoldedTexts([text])
            self._spend(len(text.raw))
            known = self.known[key] = _Known(words_in(folded.lower), names_in(folded))
        meant = known.words.intersection(arguments)
        foreign = known.names & others if others else _NONE
        context = text.is_value, text.where in _DESCRIPTIONS, meant, foreign
        marks = known.marks.get(context)
        if marks is None:
            self._spend(_SIZE_OF_MARKS)
            marks = known.marks[context] = tuple(_marks(text, meant, foreign))
        return marks

    def _spend(self, characters: int) -> None:
        if self._room < 0 or len(self.known) >= MAX_TEXTS:
            self.known = {}
            self._room = MAX_CHARACTERS
        self._room -= characters


_memory: Final = _Memory()


def marks_of(text: Text, arguments: Collection[str], others: frozenset[str]) -> tuple[Mark, ...]:
    """Return the marks of a text, at most one of each rule, in the order of the rules.

    Args:
        arguments: the names of the definition's own arguments, in lower case.
        others: the names of the tools of other servers that are no names of the definition itself.
    """
    return _memory.marks_of(text, arguments, others)


def _marks(text: Text, arguments: frozenset[str], others: frozenset[str]) -> Iterator[Mark]:
    folded = FoldedTexts([text])
    read = ReadText(folded, read_sentences(folded.lower, folded.sentences, arguments), others)
    meetings = Meetings(folded.sentences, read.sentences)
    worded: dict[int, str] = {}
    for number, place in _worded(folded):
        worded.setdefault(number, folded.excerpt(*place))
    for number, wanted in _possible(meetings.classes):
        if number not in worded:
            met = next(meetings.find(wanted), None)
            if met is not None:
                worded[number] = folded.excerpt(*met)
    is_marked = False
    for number, rule in enumerate(rules()):
        excerpt = worded.get(number)
        is_wording = excerpt is not None
        if excerpt is None and (rule.check or rule.names) and not (rule.check == "heavy_passages" and is_marked):
            excerpt = _checked(rule, text, read)
        if excerpt is not None:
            is_marked = is_marked or is_wording
            yield Mark(number, excerpt, is_wording)


def _checked(rule: Rule, text: Text, read: ReadText) -> str | None:
    """Return what a check of a rule, or a pattern for names, finds in a text."""
    if rule.names and text.is_name and one_matches(rule.names, words_of(text.raw)):
        return shown(text.raw)
    if rule.check == "encoded_text":
        decoded = (each for _, each in decoded_parts(read.folded))
        return next((shown(each) for each in decoded if _says_something(each)), None)
    if rule.check in CHARACTER_CHECKS:
        return next((excerpt for _, excerpt in CHARACTER_CHECKS[rule.check]((text,))), None)
    if rule.check in TEXT_CHECKS:
        place = next(TEXT_CHECKS[rule.check](read, rule.patterns), None)
        return None if place is None else read.folded.excerpt(*place)
    return None


def _worded(folded: FoldedTexts) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the number of each rule whose patterns match, with the first place of each pattern, in their order."""
    always, by_word = _patterns()
    numbers = {number for word in folded.known_words for number in by_word.get(word, ())}
    every = _every_pattern()
    for number in sorted(numbers.union(always)):
        rule_number, patterns = every[number]
        if all(map(folded.may_match, patterns)):
            place = _first_place(rules()[rule_number], patterns, folded)
            if place is not None:
                yield rule_number, place


@functools.cache
def _every_pattern() -> Sequence[tuple[int, tuple[Wording, ...]]]:
    """Return the patterns of `any` and the lists of `together`, each with the position of its rule."""
    return [
        (number, patterns)
        for number, rule in enumerate(rules())
        for patterns in (*((each,) for each in rule.any), *rule.together)
    ]


@functools.cache
def _patterns() -> tuple[Sequence[int], Mapping[str, Sequence[int]]]:
    """Return the positions of patterns that may match any text, and of the others by the words that they need."""
    always: list[int] = []
    by_word: dict[str, list[int]] = {}
    for number, (_, patterns) in enumerate(_every_pattern()):
        needs = [words for each in patterns for words in each.needs]
        if not needs:
            always.append(number)
            continue
        for word in min(needs, key=len):
            by_word.setdefault(word, []).append(number)
    return always, by_word


@functools.lru_cache(maxsize=10_000)
def _possible(classes: int) -> tuple[tuple[int, Meeting], ...]:
    """Return the meetings of all rules that a text with these classes of words may have, with the rule's position."""
    return tuple(
        (number, wanted)
        for number, rule in enumerate(rules())
        for wanted in rule.meets
        if not wanted.classes & ~classes
    )


def _first_place(rule: Rule, patterns: tuple[Wording, ...], folded: FoldedTexts) -> tuple[int, int] | None:
    """Return the start and end of the first match, if no pattern of `unless` matches in its sentences."""
    lower = folded.lower
    first_pattern, *others = patterns
    at = 0
    while match := first_pattern.search(lower, at):
        if not others:
            first, last = folded.sentence_at(match.start())
            last = max(last, match.end())
            if not one_matches(rule.unless, lower, first, last):
                return match.span()
            # Not from the match on, so that a sentence is examined once, however many matches it has.
            at = last
            continue
        for first, last in folded.windows_at(match.start(), rule.sentences):
            all_match = all(each.search(lower, first, last) for each in others)
            if all_match and not one_matches(rule.unless, lower, first, last):
                return match.span()
        at = max(folded.sentence_at(match.start())[1], match.end())
    return None


def one_matches(patterns: Sequence[Wording], text: str, *between: int) -> bool:
    """Return True if one of the patterns matches, between two positions if they are given."""
    return any(each.search(text, *between) for each in patterns)


def _says_something(text: str) -> bool:
    """Return True if a pattern of a rule finds something in a decoded text."""
    return any(True for _ in _worded(FoldedTexts([Text("", text)])))
