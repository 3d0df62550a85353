"""Findings: what a person should look at in a definition that a server lists, each with a severity.

The rules are data, in `finding_rules.toml`. This module reads a definition once, folded as `definition_texts`
describes, and applies them. `finding_checks` and `finding_characters` have what no pattern can express.

A finding is advice beside a difference. It decides nothing: a server can always word an instruction so that no rule
matches. What protects is that a person accepts each change.

Servers may be hostile. So the time is linear in the size of a definition, and the number of findings is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

from .definition_texts import FoldedTexts, Text, shown, shown_pointer, texts_of, words_of
from .encoded_texts import decoded_parts
from .finding_characters import CHARACTER_CHECKS
from .finding_checks import CHECKS, Definition
from .finding_rules import Rule, Severity, Wording, rules
from .finding_words import Meetings, read_sentences

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

MAX_FINDINGS: Final = 60
"""Maximum number of findings about one definition."""

MAX_OF_RULE: Final = 10
"""Maximum number of findings of one rule about one definition. It is above what people read, because findings that an
accepted definition has, too, are left out afterwards."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One part of a definition that a person should look at."""

    rule: str
    """The id of the rule in `finding_rules.toml`."""
    severity: Severity
    where: str
    """The place in the definition, as a JSON pointer (RFC 6901), escaped for people."""
    message: str
    excerpt: str
    """The text at this place, escaped for people."""


def find(kind: str, definition: Mapping[str, object], *, server: str, others: Collection[str]) -> tuple[Finding, ...]:
    """Return the findings about a definition, the gravest first, at most `MAX_FINDINGS`.

    Args:
        kind: "tool", "prompt", "template" or "server".
        definition: the JSON that the server lists: name, title, description, inputSchema and so on.
        server: the name of the server in the configuration.
        others: the names of the tools of other servers, without names that this server has, too.
    """
    texts, size = texts_of(definition)
    folded = FoldedTexts(texts)
    arguments = {text.raw.lower() for text in texts if text.is_name and text.where != "/name"}
    read = read_sentences(folded.lower, folded.sentences, arguments)
    meetings = Meetings(folded.sentences, read)
    subject = Definition(kind, definition, server, frozenset(others), texts, size, folded, read, meetings)
    found: list[Finding] = []
    for rule in rules():
        # Words are weighed where no rule knows the wording.
        known = {each.where for each in found} if rule.check == "heavy_passages" else ()
        found += [
            Finding(rule.id, rule.severity, where, rule.message, excerpt)
            for where, excerpt in _limited(_places(rule, subject))
            if where not in known
        ]
    grades = get_args(Severity)
    return tuple(sorted(found, key=lambda each: grades.index(each.severity))[:MAX_FINDINGS])


def _limited(places: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the first places, one for each text."""
    seen: set[str] = set()
    for where, excerpt in places:
        if where not in seen:
            seen.add(where)
            yield shown_pointer(where), excerpt
        if len(seen) == MAX_OF_RULE:
            return


def _places(rule: Rule, subject: Definition) -> Iterator[tuple[str, str]]:
    """Yield (place, excerpt) for all that a rule finds."""
    yield from _wording(rule, subject.folded)
    for wanted in rule.meets:
        for start, end in subject.meetings.find(wanted):
            yield subject.folded.text_at(start).where, subject.folded.excerpt(start, end)
    if rule.unless_about and _one_matches(rule.unless_about, subject.about):
        return
    for text in subject.texts if rule.names else ():
        if text.is_name and _one_matches(rule.names, words_of(text.raw)):
            yield text.where, shown(text.raw)
    if rule.check == "encoded_text":
        for at, decoded in decoded_parts(subject.folded):
            if _says_something(decoded):
                yield subject.folded.text_at(at).where, shown(decoded)
    elif rule.check in CHARACTER_CHECKS:
        yield from CHARACTER_CHECKS[rule.check](subject.texts)
    elif rule.check:
        yield from CHECKS[rule.check](subject, rule.patterns)


def _wording(rule: Rule, folded: FoldedTexts) -> Iterator[tuple[str, str]]:
    """Yield (place, excerpt) for the patterns of a rule in folded texts."""
    lower = folded.lower
    for pattern in rule.any:
        if not folded.may_match(pattern):
            continue
        at = 0
        while match := pattern.search(lower, at):
            first, last = folded.sentence_at(match.start())
            last = max(last, match.end())
            if not _one_matches(rule.unless, lower, first, last):
                yield folded.text_at(match.start()).where, folded.excerpt(*match.span())
            # Not from the match on, so that a sentence is examined once, however many matches it has.
            at = last
    for first_pattern, *others in rule.together:
        # Nearly always, one of the patterns is nowhere. Then no sentence is examined.
        if not all(map(folded.may_match, (first_pattern, *others))):
            continue
        at = 0
        while match := first_pattern.search(lower, at):
            for first, last in folded.windows_at(match.start(), rule.sentences):
                all_match = all(each.search(lower, first, last) for each in others)
                if all_match and not _one_matches(rule.unless, lower, first, last):
                    yield folded.text_at(match.start()).where, folded.excerpt(*match.span())
                    break
            at = max(folded.sentence_at(match.start())[1], match.end())


def _one_matches(patterns: Sequence[Wording], text: str, *between: int) -> bool:
    return any(each.search(text, *between) for each in patterns)


def _says_something(text: str) -> bool:
    """Return True if a rule for wording finds something in a decoded text."""
    folded = FoldedTexts([Text("", text)])
    return any(True for rule in rules() for _ in _wording(rule, folded))
