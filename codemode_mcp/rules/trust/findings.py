"""Findings: what a person should look at in a definition that a server lists, each with a severity.

The rules are data, in `finding_rules.toml`. `text_findings` applies them to each text of a definition, folded as
`definition_texts` describes. `finding_checks` and `text_findings` have what no pattern can express.

A finding is advice beside a difference. It decides nothing: a server can always word an instruction so that no rule
matches. What protects is that a person accepts each change.

Servers may be hostile. So the time is linear in the size of a definition, and the number of findings is bounded.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, get_args

from codemode_mcp.rules.trust.definition_texts import shown_pointer, texts_of
from codemode_mcp.rules.trust.finding_checks import CHECKS, Definition
from codemode_mcp.rules.trust.finding_rules import Rule, Severity, rules
from codemode_mcp.rules.trust.items import Item, Key, without_request
from codemode_mcp.rules.trust.text_findings import Mark, marks_of, one_matches

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from codemode_mcp.rules.trust.comparison import ItemReport


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


# The findings about many definitions of one server, by rule.
#
# Documents of large APIs have the same wording in hundreds of operations. So a person sees how often a rule finds
# something, and its first different examples.


MAX_EXAMPLES: Final = 3
"""Maximum number of findings of one rule that are shown in full."""


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """The findings of one rule, each with its item."""

    found: Sequence[tuple[ItemReport, Finding]]

    @property
    def first(self) -> Finding:
        """The first finding."""
        return self.found[0][1]

    @property
    def examples(self) -> Sequence[tuple[ItemReport, Finding]]:
        """The first findings about different texts."""
        different: dict[str, tuple[ItemReport, Finding]] = {}
        for report, finding in self.found:
            different.setdefault(finding.excerpt, (report, finding))
        return [*different.values()][:MAX_EXAMPLES]


def grouped(found: Iterable[tuple[ItemReport, Finding]]) -> list[FindingGroup]:
    """Return a group for each rule: the gravest first, then in the order of the findings."""
    groups: dict[str, list[tuple[ItemReport, Finding]]] = {}
    for each in found:
        groups.setdefault(each[1].rule, []).append(each)
    order = get_args(Severity)
    return sorted(map(FindingGroup, groups.values()), key=lambda group: order.index(group.first.severity))


@dataclass(slots=True)
class Examples:
    """The findings that are shown in full, while the items of a server are shown one after the other."""

    every: list[tuple[ItemReport, Finding]] = field(default_factory=list)
    """All findings so far."""
    is_cut: bool = False
    """True if some of them were not shown."""
    _shown: dict[str, set[str]] = field(default_factory=dict)

    def split(self, report: ItemReport, findings: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
        """Return the findings of the next item that are to be shown in full, and the others."""
        shown: list[Finding] = []
        others: list[Finding] = []
        for finding in findings:
            self.every.append((report, finding))
            texts = self._shown.setdefault(finding.rule, set())
            is_example = len(texts) < MAX_EXAMPLES and finding.excerpt not in texts
            (shown if is_example else others).append(finding)
            if is_example:
                texts.add(finding.excerpt)
        self.is_cut = self.is_cut or bool(others)
        return shown, others


# The findings that a person should see beside a difference: those that the accepted definition does not have.


MAX_REMEMBERED: Final = 2000
"""Maximum number of definitions whose findings are remembered. When there are more, all are forgotten."""

_remembered: dict[tuple[str, bytes, str, frozenset[str]], tuple[Finding, ...]] = {}
"""The findings by all that they depend on: the kind, the digest of the listed JSON, the server, and the other tools."""


def new_findings(report: ItemReport, others: Collection[str], *, is_api: bool = False) -> tuple[Finding, ...]:
    """Return the findings about the present definition of an item, the gravest first.

    If it differs from the accepted definition, findings that both have are left out.

    Args:
        others: the names of the tools of other servers, as `tools_of_others` returns them.
        is_api: True if `operation_lines.is_api` is true of the reports of the server.
    """
    present, accepted = report.present, report.accepted
    if present is None or present.definition is None or report.kind == "entry":
        return ()  # a person has written the entry, and no model reads it
    found = _findings(present, report.server, frozenset(others), is_api=is_api)
    if accepted is None or accepted.definition is None or report.status == "accepted":
        return found
    known = _findings(accepted, report.server, frozenset(others), is_api=is_api)
    return tuple(each for each in found if each not in known)


def _findings(item: Item, server: str, others: frozenset[str], *, is_api: bool) -> tuple[Finding, ...]:
    """Return the findings about an item. An open page asks for the same ones again and again, and they take 3 ms."""
    item = without_request(item) if is_api else item
    assert item.definition is not None
    if not item.is_comparable:
        return find(item.kind, item.definition, server=server, others=others)
    # Not the digest of the item: it is the same for another order of names, and findings name places.
    digest = hashlib.sha256(json.dumps(item.definition).encode()).digest()
    key = item.kind, digest, server, others
    found = _remembered.get(key)
    if found is None:
        if len(_remembered) >= MAX_REMEMBERED:
            _remembered.clear()
        found = _remembered[key] = find(item.kind, item.definition, server=server, others=others)
    return found


def tools_of_others(server: str, listed: Iterable[tuple[str, Iterable[Key]]]) -> frozenset[str]:
    """Return the names of the tools of other servers, without names that this server has, too.

    Args:
        listed: the names of servers, each with the keys of the items that it lists.
    """
    own: set[str] = set()
    others: set[str] = set()
    for name, keys in listed:
        (own if name == server else others).update(tool for kind, tool in keys if kind == "tool")
    return frozenset(others - own)
