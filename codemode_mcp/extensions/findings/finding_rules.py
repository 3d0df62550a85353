"""Rules of `finding_rules.toml`, compiled. The file says what each field means."""

from __future__ import annotations

import bisect
import functools
import importlib
import re
import sys
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from codemode_mcp.rules.trust.items import Severity


# Classes of words in a text: what a sentence speaks of, in whichever words and in several languages.
#
# Attacks are worded in endless ways, but they have few parts: an order, data that the tool has no business with, a way
# out for it, silence, a claim of authority. `finding_words.toml` has the words of each part, a class. A rule of
# `finding_rules.toml` says which classes have to meet.
#
# A word is looked up in tables, so the time is linear in the text, with a small factor.


WORDS_FILE: Final = Path(__file__).with_name("finding_words.toml")

MAX_WORD: Final = 40
"""Maximum characters of a word that are looked at."""

NEGATED_AFTER: Final = 5
"""Maximum words from a negation to what it negates."""

NEGATED_CHARACTERS: Final = 12
"""Maximum characters from a negation to what it negates, in scripts without spaces."""

_WORD: Final = re.compile(r"[^\W_]+(?:'[a-z]{1,2}\b)?|[,:;()\u3001\uff0c]")
_UNSPACED: Final = re.compile("[\u0900-\u097f\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_MIN_STEM: Final = 3
_VOWELS: Final = "aeiou"
_QUOTED: Final = re.compile(r"\b(\w{2,40})\b")
_MEETING: Final = re.compile(r"(.+) within (\d+) (character|sentence)s?")

CHARACTERS: Final = (45, 90)
"""Distances in characters within which rules want classes to meet."""


class Meeting(Struct, frozen=True):
    """Classes that have to meet."""

    classes: int
    unit: Literal["character", "sentence"]
    within: int


def meeting(text: str) -> Meeting:
    """Read `read + secret within 90 characters`. Raise `KeyError` for an unknown class or distance."""
    found = _MEETING.fullmatch(text)
    if found is None:
        raise KeyError(text)
    unit: Literal["character", "sentence"] = "character" if found[3] == "character" else "sentence"
    within = int(found[2])
    if within not in (CHARACTERS if unit == "character" else (1, 2)):
        raise KeyError(text)
    bits = tables().bits
    classes = 0
    for name in found[1].split(" + "):
        classes |= bits[name[1:]] << 1 if name.startswith("!") else bits[name]
    return Meeting(classes, unit, within)


class _Tables(Struct, frozen=True):
    bits: Mapping[str, int]
    """The bit of each class. The next bit is that of the class negated."""
    words: Mapping[str, int]
    stems: Mapping[str, int]
    longest_stem: int
    phrases: Mapping[str, Sequence[tuple[tuple[str, ...], int]]]
    """The words behind the first word, and their classes."""
    neutral: Mapping[str, Sequence[tuple[str, ...]]]
    """The words behind a first word that has no class before them."""
    unspaced: re.Pattern[str]
    unspaced_words: Mapping[str, int]
    shapes: Sequence[tuple[tuple[str, ...], re.Pattern[str], int]]
    negatable: int


@functools.cache
def tables() -> _Tables:
    data: dict[str, Any] = tomllib.loads(WORDS_FILE.read_text(encoding="utf-8"))
    names = [*data["classes"], *(name for name in data["shapes"] if name not in data["classes"]), "argument"]
    bits = {name: 1 << 2 * number for number, name in enumerate(names)}
    words: dict[str, int] = {}
    stems: dict[str, int] = {}
    phrases: dict[str, list[tuple[tuple[str, ...], int]]] = {}
    neutral: dict[str, list[tuple[str, ...]]] = {}
    for entry in data["neutral"]["phrases"].split():
        for term in _inflected(entry):
            first, *rest = term.split("_")
            neutral.setdefault(first, []).append(tuple(rest))
    unspaced: dict[str, int] = {}
    for name, listed in data["classes"].items():
        for entry in listed.split():
            for term in _inflected(entry):
                if _UNSPACED.search(term):
                    unspaced[term] = unspaced.get(term, 0) | bits[name]
                elif "_" in term:
                    first, *rest = term.split("_")
                    phrases.setdefault(first, []).append((tuple(rest), bits[name]))
                elif term.endswith("*"):
                    stems[term[:-1]] = stems.get(term[:-1], 0) | bits[name]
                else:
                    words[term] = words.get(term, 0) | bits[name]
    return _Tables(
        bits=bits,
        words=words,
        stems=stems,
        longest_stem=max(map(len, stems)),
        phrases=phrases,
        neutral=neutral,
        unspaced=re.compile("|".join(map(re.escape, sorted(unspaced, key=len, reverse=True)))),
        unspaced_words=unspaced,
        shapes=[
            (tuple(shape["needs"]), re.compile(shape["pattern"]), bits[name])
            for name, listed in data["shapes"].items()
            for shape in listed
        ],
        negatable=sum(bits[name] for name in data["negatable"]["classes"].split()),
    )


def _inflected(entry: str) -> Iterator[str]:
    """Yield a word, and for an entry like `send+` the forms of an English verb."""
    if not entry.endswith("+"):
        yield entry
        return
    verb, _, rest = entry[:-1].partition("_")
    tail = f"_{rest}" if rest else ""
    stem = verb[:-1] if verb.endswith("e") else verb
    forms = {verb, f"{verb}s", f"{stem}ed", f"{stem}ing"}
    if verb.endswith("y") and verb[-2] not in _VOWELS:
        forms = {verb, f"{verb[:-1]}ies", f"{verb[:-1]}ied", f"{verb}ing"}
    elif verb.endswith(("s", "sh", "ch", "x")):
        forms = {verb, f"{verb}es", f"{verb}ed", f"{verb}ing"}
    if len(verb) > 2 and verb[-1] not in "aeiouwxy" and verb[-2] in _VOWELS and verb[-3] not in _VOWELS:
        forms |= {f"{verb}{verb[-1]}ed", f"{verb}{verb[-1]}ing"}
    for form in forms:
        yield form + tail


@functools.lru_cache(maxsize=20_000)
def _classes_of_word(word: str) -> int:
    known = tables()
    if word.endswith("'s"):
        word = word[:-2]
    found = known.words.get(word, 0)
    for length in range(_MIN_STEM, min(len(word), known.longest_stem) + 1):
        found |= known.stems.get(word[:length], 0)
    return found


def words_in(text: str) -> frozenset[str]:
    """Return all words of a lower-case text that may be the name of an argument."""
    return frozenset(_QUOTED.findall(text))


class ReadSentence(Struct, frozen=True):
    """One sentence, by its words."""

    classes: Sequence[tuple[int, int]]
    """The positions of words of a class, with their classes as bits."""
    words: Sequence[str]
    """All words, and some punctuation."""

    @property
    def all_classes(self) -> int:
        """The classes of all words as bits."""
        return functools.reduce(int.__or__, (classes for _, classes in self.classes), 0)


def read_sentences(
    text: str, sentences: Sequence[tuple[int, int, int]], arguments: Collection[str]
) -> list[ReadSentence]:
    """Return the words of each sentence of a lower-case text.

    Args:
        text: the texts of a definition, folded, in lower case.
        sentences: their sentences as (start, end, number of the text).
        arguments: the names of the definition's own arguments, in lower case.
    """
    known = tables()
    events: list[tuple[int, int, int]] = []
    found_words = [(found.start(), found[0]) for found in _WORD.finditer(text)]
    words = [word[:MAX_WORD] for _, word in found_words]
    for number, word in enumerate(words):
        classes = _classes_of_word(word)
        if word in known.neutral and any(_follow(words, number, rest) for rest in known.neutral[word]):
            classes = 0
        for rest, mask in known.phrases.get(word, ()):
            if _follow(words, number, rest):
                classes |= mask
        if classes:
            events.append((found_words[number][0], number, classes))
    if arguments:
        has_argument = known.bits["argument"]
        events.extend((found.start(), -1, has_argument) for found in _QUOTED.finditer(text) if found[1] in arguments)
    if not text.isascii() and _UNSPACED.search(text):
        events.extend((found.start(), -1, known.unspaced_words[found[0]]) for found in known.unspaced.finditer(text))
    for needs, pattern, mask in known.shapes:
        if not needs or any(need in text for need in needs):
            events.extend((found.start(), -1, mask) for found in pattern.finditer(text))
    events.sort()
    starts = [at for at, _ in found_words]
    return [
        ReadSentence(classes, words[bisect.bisect_left(starts, start) : bisect.bisect_left(starts, end)])
        for (start, end, _), classes in zip(sentences, _by_sentence(events, sentences, words), strict=True)
    ]


def _follow(words: Sequence[str], number: int, rest: tuple[str, ...]) -> bool:
    following = words[number + 1 : number + 1 + len(rest)]
    return len(following) == len(rest) and all(map(_fits, following, rest))


def _fits(word: str, wanted: str) -> bool:
    return word.startswith(wanted[:-1]) if wanted.endswith("*") else word == wanted


def _by_sentence(
    events: Sequence[tuple[int, int, int]], sentences: Sequence[tuple[int, int, int]], words: Sequence[str]
) -> Iterator[list[tuple[int, int]]]:
    known = tables()
    before, around = known.bits["not"], known.bits["not_around"]
    index = 0
    for _, end, _ in sentences:
        first = index
        while index < len(events) and events[index][0] < end:
            index += 1
        inside = events[first:index]
        negations = [(at, number, classes) for at, number, classes in inside if classes & (before | around)]
        found = []
        for at, number, classes in inside:
            negatable = classes & known.negatable
            if negatable and any(_negates(each, at, number, words, around) for each in negations[:20]):
                classes = classes & ~negatable | negatable << 1
            found.append((at, classes))
        yield found


def _negates(negation: tuple[int, int, int], at: int, number: int, words: Sequence[str], around: int) -> bool:
    where, index, classes = negation
    if index < 0 or number < 0:
        return abs(at - where) <= NEGATED_CHARACTERS
    distance = number - index
    if classes & around and -6 <= distance < 0:
        return True
    return 0 < distance <= NEGATED_AFTER and not any(word in ",:;()" for word in words[index:number])


class Meetings:
    """The sets of classes that meet somewhere in the texts of a definition, each with its first place in each text.

    Attributes:
        classes: the classes of all words as bits.
    """

    def __init__(self, sentences: Sequence[tuple[int, int, int]], read: Sequence[ReadSentence]) -> None:
        self.classes = 0
        self._places: dict[tuple[str, int], dict[int, dict[int, tuple[int, int]]]] = {}
        previous, before = 0, (-1, 0)
        for (start, end, number), sentence in zip(sentences, read, strict=True):
            found, whole = sentence.classes, sentence.all_classes
            for distance in CHARACTERS:
                for index, (at, classes) in enumerate(found):
                    met, last = classes, at
                    for other, others in found[index + 1 : index + 1 + distance]:
                        if other > at + distance:
                            break
                        met, last = met | others, other
                    self._add("character", distance, met, number, (at, last))
            self._add("sentence", 1, whole, number, (start, end))
            self._add("sentence", 2, whole, number, (start, end))
            if before[0] == number:
                self._add("sentence", 2, previous | whole, number, (before[1], end))
            previous, before = whole, (number, start)
            self.classes |= whole

    def _add(self, unit: str, within: int, classes: int, number: int, place: tuple[int, int]) -> None:
        if classes & (classes - 1):
            self._places.setdefault((unit, within), {}).setdefault(classes, {}).setdefault(number, place)

    def find(self, wanted: Meeting) -> Iterator[tuple[int, int]]:
        """Yield the start and end of places where classes meet, in each text once for each set of classes."""
        need = wanted.classes
        if need & ~self.classes:
            return
        for classes, places in self._places.get((wanted.unit, wanted.within), {}).items():
            if classes & need == need:
                yield from places.values()


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


class Rule(Struct, frozen=True, kw_only=True):
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
