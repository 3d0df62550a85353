"""Findings: what a person should look at in a definition that a server lists, each with a severity.

The rules are data, in `finding_rules.toml`. They are applied to each text of a definition, folded as `definition_texts`
describes. This module and `finding_checks` have what no pattern can express.

A finding is advice beside a difference. It decides nothing: a server can always word an instruction so that no rule
matches. What protects is that a person accepts each change.

Servers may be hostile. So the time is linear in the size of a definition, and the number of findings is bounded.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, get_args
from urllib.parse import unquote

from msgspec import Struct, field

from codemode_mcp.extensions.findings import finding_rules
from codemode_mcp.extensions.findings.definition_texts import (
    FoldedTexts,
    Text,
    excerpt,
    fold,
    shown,
    shown_pointer,
    texts_of,
    words_of,
)
from codemode_mcp.extensions.findings.finding_checks import CHECKS, TEXT_CHECKS, Definition, ReadText, names_in
from codemode_mcp.rules.trust.items import Finding, Severity
from declarations.untrusted_text import HIDDEN

MAX_FINDINGS: Final = 60
"""Maximum number of findings about one definition."""

MAX_OF_RULE: Final = 10
"""Maximum number of findings of one rule about one definition. It is above what people read, because findings that an
accepted definition has, too, are left out afterwards."""


def find(kind: str, definition: Mapping[str, object], *, server: str, others: Collection[str]) -> tuple[Finding, ...]:
    """Return the findings about a definition, the gravest first, at most `MAX_FINDINGS`.

    Args:
        kind: "tool", "prompt", "template" or "server".
        definition: the JSON that the server lists: name, title, description, inputSchema and so on.
        server: the name of the server in the configuration.
        others: the names of the tools of other servers, without names that this server has, too.
    """
    texts, size = texts_of(definition)
    subject = Definition(kind, definition, server, frozenset(others), texts, size)
    arguments = {text.raw.lower() for text in texts if text.is_name and text.where != "/name"}
    foreign = subject.foreign_names
    marks: dict[int, list[tuple[str, Mark]]] = {}
    for text in texts:
        for mark in marks_of(text, arguments, foreign):
            marks.setdefault(mark.rule, []).append((text.where, mark))
    found: list[Finding] = []
    for number, rule in enumerate(finding_rules.rules()):
        places = _limited(_places(rule, subject, marks.get(number, ())))
        if rule.check == "heavy_passages":
            # Words are weighed where no rule knows the wording.
            known = {each.where for each in found}
            places = ((where, text) for where, text in places if where not in known)
        found += [Finding(rule.id, rule.severity, where, rule.message, text) for where, text in places]
    grades = get_args(Severity)
    return tuple(sorted(found, key=lambda each: grades.index(each.severity))[:MAX_FINDINGS])


def _limited(places: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the first places, one for each text."""
    seen: set[str] = set()
    for where, text in places:
        if where not in seen:
            seen.add(where)
            yield shown_pointer(where), text
        if len(seen) == MAX_OF_RULE:
            return


def _places(
    rule: finding_rules.Rule, subject: Definition, marks: Sequence[tuple[str, Mark]]
) -> Iterator[tuple[str, str]]:
    """Yield (place, excerpt) for all that a rule finds: wording first."""
    yield from ((where, mark.excerpt) for where, mark in marks if mark.is_wording)
    checked = [(where, mark.excerpt) for where, mark in marks if not mark.is_wording]
    if rule.check in CHECKS:
        checked += CHECKS[rule.check](subject, rule.patterns)
    if checked and rule.unless_about and one_matches(rule.unless_about, subject.about):
        return
    yield from checked


# Findings in one text of a definition. They are computed once for each distinct text.
#
# A server may list thousands of definitions that share schemas: the 1,014 operations of Kubernetes have 10 MB of text,
# of which 0.5 MB is distinct. So each text is judged on its own, and the result is remembered for the same text. It
# depends on nothing else but the kind of place, and the names in the text that are arguments of the definition, or
# tools of other servers.


# Characters that mislead a person who reads a definition: hidden, look-alike, styled, or far out of sight.


_EMOJI: Final = "\u00a9\u00ae\u203c-\u205f\u2070-\u27ff\u2900-\u3163\u3165-\u3299\U0001f000-\U0001faff"
_JOINED: Final = "\u0600-\u08ff\u0900-\u109f\u1780-\u180a\u1810-\u18af\u0e00-\u0fff"
"""Scripts whose letters are joined or separated by invisible characters."""

_NEEDED: Final = re.compile(
    rf"(?<=[{_EMOJI}0-9#*])[\ufe0e\ufe0f]"
    rf"|(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])"
    rf"|(?<=[{_JOINED}])[\u200c\u200d](?=[{_JOINED}\s]|$)"
    # The flags of England, Scotland and other regions.
    "|(?<=\U0001f3f4)[\U000e0030-\U000e0039\U000e0061-\U000e007a]{4,6}\U000e007f"
    r"|[\t\n\r]"
)
"""Hidden characters that scripts and emoji need, and the ends of lines."""

_RIGHT_TO_LEFT: Final = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_MARKS_OF_DIRECTION: Final = "\u200e\u200f\u061c"
_SOFT: Final = "\xad\ufeff\u2028\u2029\u200b\f\v"
_SOFT_IN_WORD: Final = re.compile("[a-zA-Z][\xad\u200b\ufeff][a-zA-Z]")

_OTHER_ALPHABET: Final = "\u0370-\u03ff\u0400-\u052f\u0531-\u058f\u13a0-\u13ff"
_MIXED: Final = re.compile(f"[a-zA-Z][{_OTHER_ALPHABET}]|[{_OTHER_ALPHABET}][a-zA-Z]")
_MAX_LETTERS: Final = 30
"""Maximum letters of a word on each side of two letters of different alphabets that are examined."""

_STYLED: Final = re.compile(
    "[\U0001d400-\U0001d7ff\uff21-\uff3a\uff41-\uff5a\u24b6-\u24e9\U0001f130-\U0001f189\u1d00-\u1d2b]{5}"
    # Marks through a letter, and piles of marks.
    "|[\u0334-\u0338]|[\u0300-\u036f\u0483-\u0489\u20d0-\u20f0]{3}"
)

_PADDING: Final = re.compile(r"\n(?:[ \t\r]{0,200}\n){9}|[ \t\u00a0\u2003\u3000]{100}")


def hidden_characters(text: str) -> str | None:
    """Find a character that hides something, but not one that a script or an emoji needs."""
    at = _hidden_at(text)
    return None if at is None else excerpt(text, at, at + 1)


def _hidden_at(text: str) -> int | None:
    """Return the position of the first character that hides something, or None."""
    if text.isascii() and text.isprintable():
        return None
    if split := _SOFT_IN_WORD.search(text):
        return split.start() + 1
    allowed = _SOFT + (_MARKS_OF_DIRECTION if _RIGHT_TO_LEFT.search(text) else "")
    at = 0
    while found := HIDDEN.search(text, at):
        at = found.start()
        if needed := _NEEDED.match(text, at):
            at = needed.end()
        elif found[0] in allowed:
            at += 1
        else:
            return at
    return None


def soft_characters(text: str) -> str | None:
    """Find a hidden character that copied text may have, outside words of the Latin alphabet."""
    if text.isascii() or _SOFT_IN_WORD.search(text):
        return None
    at = next((at for at in map(text.find, "\xad\u2028\u2029\u200b") if at >= 0), text.find("\ufeff", 1))
    return excerpt(text, at, at + 1) if at >= 0 else None


def look_alike_letters(text: str) -> str | None:
    """Find a word of two alphabets whose foreign letters all look Latin, or a word in styled letters."""
    if text.isascii():
        return None
    if styled := _STYLED.search(text):
        return excerpt(text, *styled.span())
    words = (_word_around(text, *mixed.span()) for mixed in _MIXED.finditer(text))
    return next((excerpt(text, start, end) for start, end in words if fold(text[start:end]).isascii()), None)


def _word_around(text: str, start: int, end: int) -> tuple[int, int]:
    first, last = start, end
    while first > max(0, start - _MAX_LETTERS) and text[first - 1].isalpha():
        first -= 1
    while last < min(len(text), end + _MAX_LETTERS) and text[last].isalpha():
        last += 1
    return first, last


def padding(text: str) -> str | None:
    """Find text behind many empty lines or spaces."""
    found = _PADDING.search(text)
    rest = text[found.end() :].strip() if found else ""
    return shown(rest) if rest else None


CHARACTER_CHECKS: Final[Mapping[str, Callable[[str], str | None]]] = {
    "hidden_characters": hidden_characters,
    "soft_characters": soft_characters,
    "look_alike_letters": look_alike_letters,
    "padding": padding,
}
"""The checks by their name in `finding_rules.toml`. Each returns an excerpt."""


# Encoded parts of texts, decoded: Base64, hexadecimal, escapes, substitutions, reversed text.
#
# A model decodes such a part when a description asks for it, or without being asked. Whether it is an instruction, the
# rules for wording decide.


MAX_PART: Final = 8_000
"""Maximum characters of one encoded part that are decoded, in front of the rest."""

MAX_PARTS: Final = 8
"""Maximum number of parts of one encoding that are decoded."""

_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/_-]{24,}={0,2}")
_HEXADECIMAL: Final = re.compile(r"(?:[0-9a-fA-F]{2}[ :,]?){16,}")
_ESCAPE: Final = re.compile(r"(?:\\x|\\u00)([0-9a-fA-F]{2})")
_PERCENT: Final = re.compile(r"(?:%[0-9a-fA-F]{2}[\w.-]{0,12}){6}")
_DIGITS_AS_LETTERS: Final = re.compile("[a-z][013457@$][a-z]")
_LETTERS: Final = str.maketrans("013457@$", "oieastas")
_ROT13: Final = ("vafgehpgvba", "vtaber ", "cnffjbeq", "frperg", "cerivbhf", "nffvfgnag")
_BACKWARDS: Final = ("snoitcurtsni", " erongi", "suoiverp", "drowssap", "tnatsissa", "resu eht", "noitasrevnoc")
"""Words of instructions, encoded. Text without them is not decoded."""


def decoded_parts(folded: FoldedTexts) -> Iterator[str]:
    """Yield the parts that seem to be encoded, decoded."""
    plain, lower = folded.plain, folded.lower
    for found in itertools.islice(_BASE64.finditer(plain), MAX_PARTS):
        yield _from_base64(found[0][:MAX_PART])
    for found in itertools.islice(_HEXADECIMAL.finditer(plain), MAX_PARTS):
        digits = re.sub("[ :,]", "", found[0][:MAX_PART])
        yield _readable(bytes.fromhex(digits[: len(digits) // 2 * 2]))
    for found in itertools.islice(_PERCENT.finditer(plain), MAX_PARTS):
        yield unquote(plain[found.start() : found.start() + MAX_PART])
    if escape := _ESCAPE.search(plain):
        yield _ESCAPE.sub(lambda found: chr(int(found[1], 16)), _around(plain, escape.start()))
    spelled = [found.start() for found in itertools.islice(_DIGITS_AS_LETTERS.finditer(lower), 3)]
    if len(spelled) == 3:
        yield _around(lower, spelled[0]).translate(_LETTERS)
    if (at := _first_of(_ROT13, lower)) >= 0:
        yield codecs.decode(_around(plain, at), "rot13")
    if (at := _first_of(_BACKWARDS, lower)) >= 0:
        yield _around(plain, at)[::-1]


def _around(text: str, at: int) -> str:
    return text[max(0, at - MAX_PART // 2) : at + MAX_PART // 2]


def _first_of(words: tuple[str, ...], text: str) -> int:
    return next((at for at in map(text.find, words) if at >= 0), -1)


def _from_base64(text: str) -> str:
    digits = text.rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
    # A single digit at the end has not a whole byte.
    digits = digits[:-1] if len(digits) % 4 == 1 else digits
    try:
        return _readable(base64.b64decode(digits + "=" * (-len(digits) % 4)))
    except binascii.Error:
        return ""


def _readable(data: bytes) -> str:
    """Return bytes as text if they are words, or an empty string."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ""
    return text if " " in text and text.replace("\n", " ").isprintable() else ""


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


class Mark(Struct, frozen=True):
    """The first part of a text that a rule finds something in.

    Attributes:
        rule: the position of the rule in the file.
        is_wording: False if only a check or a name was found, which `unless_about` of the rule may take back.
    """

    rule: int
    excerpt: str
    is_wording: bool


class _Known(Struct):
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
        """Return the marks of a text, at most one of each rule, in the order of the rules.

        Args:
            arguments: the names of the definition's own arguments, in lower case.
            others: the names of the tools of other servers that are no names of the definition itself.
        """
        key = text.raw, text.is_name
        known = self.known.get(key)
        if known is None:
            folded = FoldedTexts([text])
            self._spend(len(text.raw))
            known = self.known[key] = _Known(finding_rules.words_in(folded.lower), names_in(folded))
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
    """Return the marks of a text, as `_Memory.marks_of` does."""
    return _memory.marks_of(text, arguments, others)


def _marks(text: Text, arguments: frozenset[str], others: frozenset[str]) -> Iterator[Mark]:
    folded = FoldedTexts([text])
    read = ReadText(folded, finding_rules.read_sentences(folded.lower, folded.sentences, arguments), others)
    meetings = finding_rules.Meetings(folded.sentences, read.sentences)
    worded: dict[int, str] = {}
    for number, place in _worded(folded):
        worded.setdefault(number, folded.excerpt(*place))
    for number, wanted in _possible(meetings.classes):
        if number not in worded:
            met = next(meetings.find(wanted), None)
            if met is not None:
                worded[number] = folded.excerpt(*met)
    is_marked = False
    for number, rule in enumerate(finding_rules.rules()):
        excerpt = worded.get(number)
        is_wording = excerpt is not None
        if excerpt is None and (rule.check or rule.names) and not (rule.check == "heavy_passages" and is_marked):
            excerpt = _checked(rule, text, read)
        if excerpt is not None:
            is_marked = is_marked or is_wording
            yield Mark(number, excerpt, is_wording)


def _checked(rule: finding_rules.Rule, text: Text, read: ReadText) -> str | None:
    if rule.names and text.is_name and one_matches(rule.names, words_of(text.raw)):
        return shown(text.raw)
    if rule.check == "encoded_text":
        return next((shown(each) for each in decoded_parts(read.folded) if _says_something(each)), None)
    if rule.check in CHARACTER_CHECKS:
        return CHARACTER_CHECKS[rule.check](text.raw)
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
            place = _first_place(finding_rules.rules()[rule_number], patterns, folded)
            if place is not None:
                yield rule_number, place


@functools.cache
def _every_pattern() -> Sequence[tuple[int, tuple[finding_rules.Wording, ...]]]:
    """Return the patterns of `any` and the lists of `together`, each with the position of its rule."""
    return [
        (number, patterns)
        for number, rule in enumerate(finding_rules.rules())
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
def _possible(classes: int) -> tuple[tuple[int, finding_rules.Meeting], ...]:
    """Return the meetings of all rules that a text with these classes of words may have, with the rule's position."""
    return tuple(
        (number, wanted)
        for number, rule in enumerate(finding_rules.rules())
        for wanted in rule.meets
        if not wanted.classes & ~classes
    )


def _first_place(
    rule: finding_rules.Rule, patterns: tuple[finding_rules.Wording, ...], folded: FoldedTexts
) -> tuple[int, int] | None:
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


def one_matches(patterns: Sequence[finding_rules.Wording], text: str, *between: int) -> bool:
    return any(each.search(text, *between) for each in patterns)


def _says_something(text: str) -> bool:
    """Return True if a pattern of a rule finds something in a decoded text."""
    return any(True for _ in _worded(FoldedTexts([Text("", text)])))
