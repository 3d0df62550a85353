"""The findings that a person should see beside a difference: those that the accepted definition does not have. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.trust.findings import Finding, find

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from codemode_mcp.trust.comparison import ItemReport
    from codemode_mcp.trust.items import Key


def new_findings(report: ItemReport, others: Collection[str]) -> tuple[Finding, ...]:
    """Return the findings about the present definition of an item, the gravest first.

    If it differs from the accepted definition, findings that both have are left out.

    Args:
        others: the names of the tools of other servers, as `tools_of_others` returns them.
    """
    present = None if report.present is None else report.present.definition
    if present is None or report.kind == "entry":
        return ()  # a person has written the entry, and no model reads it
    found = find(report.kind, present, server=report.server, others=others)
    accepted = None if report.accepted is None else report.accepted.definition
    if accepted is None or report.status == "accepted":
        return found
    known = find(report.kind, accepted, server=report.server, others=others)
    return tuple(each for each in found if each not in known)


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
