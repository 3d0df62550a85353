"""Findings: what a person should look at in a definition that a server lists, each with a severity.

The rules are data, in `finding_rules.toml`. `text_findings` applies them to each text of a definition, folded as
`definition_texts` describes. `finding_checks` and `finding_characters` have what no pattern can express.

A finding is advice beside a difference. It decides nothing: a server can always word an instruction so that no rule
matches. What protects is that a person accepts each change.

Servers may be hostile. So the time is linear in the size of a definition, and the number of findings is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

from .definition_texts import shown_pointer, texts_of
from .finding_checks import CHECKS, Definition
from .finding_rules import Rule, Severity, rules
from .text_findings import Mark, marks_of, one_matches

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
    subject = Definition(kind, definition, server, frozenset(others), texts, size)
    arguments = {text.raw.lower() for text in texts if text.is_name and text.where != "/name"}
    foreign = subject.foreign_names
    marks: dict[int, list[tuple[str, Mark]]] = {}
    for text in texts:
        for mark in marks_of(text, arguments, foreign):
            marks.setdefault(mark.rule, []).append((text.where, mark))
    found: list[Finding] = []
    for number, rule in enumerate(rules()):
        places = _limited(_places(rule, subject, marks.get(number, ())))
        if rule.check == "heavy_passages":
            # Words are weighed where no rule knows the wording.
            known = {each.where for each in found}
            places = ((where, excerpt) for where, excerpt in places if where not in known)
        found += [Finding(rule.id, rule.severity, where, rule.message, excerpt) for where, excerpt in places]
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


def _places(rule: Rule, subject: Definition, marks: Sequence[tuple[str, Mark]]) -> Iterator[tuple[str, str]]:
    """Yield (place, excerpt) for all that a rule finds: wording first."""
    yield from ((where, mark.excerpt) for where, mark in marks if mark.is_wording)
    checked = [(where, mark.excerpt) for where, mark in marks if not mark.is_wording]
    if rule.check in CHECKS:
        checked += CHECKS[rule.check](subject, rule.patterns)
    if checked and rule.unless_about and one_matches(rule.unless_about, subject.about):
        return
    yield from checked
