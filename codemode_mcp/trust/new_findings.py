"""The findings that a person should see beside a difference: those that the accepted definition does not have. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from codemode_mcp.trust.findings import Finding, find
from codemode_mcp.trust.operation_lines import without_request

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from codemode_mcp.trust.comparison import ItemReport
    from codemode_mcp.trust.items import Item, Key

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
