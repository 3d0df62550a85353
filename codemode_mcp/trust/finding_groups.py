"""The findings about many definitions of one server, by rule. Pure.

Documents of large APIs have the same wording in hundreds of operations. So a person sees how often a rule finds
something, and its first different examples.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, get_args

from codemode_mcp.trust.finding_rules import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from codemode_mcp.trust.comparison import ItemReport
    from codemode_mcp.trust.findings import Finding

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
