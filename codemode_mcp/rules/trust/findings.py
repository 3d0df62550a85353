"""Findings: parts of a definition that a person should look at, beside a difference.

An extension finds them. Without one, there are none. A finding is advice and decides nothing: what protects is
that a person accepts each change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, get_args

from msgspec import Struct, field

from codemode_mcp.extension_points import first
from codemode_mcp.rules.trust.items import Finding, Item, Key, Severity, without_request

if TYPE_CHECKING:
    from codemode_mcp.rules.trust.comparison import ItemReport

# The findings about many definitions of one server, by rule.
#
# Documents of large APIs have the same wording in hundreds of operations. So a person sees how often a rule finds
# something, and its first different examples.


MAX_EXAMPLES: Final = 3
"""Maximum number of findings of one rule that are shown in full."""


class FindingGroup(Struct, frozen=True):
    """The findings of one rule, each with its item."""

    found: Sequence[tuple[ItemReport, Finding]]

    @property
    def first(self) -> Finding:
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


class Examples(Struct):
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
    find = first(lambda each: each.find)
    if find is None:
        return ()
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
