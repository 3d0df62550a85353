"""The pins of a server that a person accepts before it is in the configuration, and of one that is removed."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, get_args

from codemode_mcp.cli.messages import stop_line
from codemode_mcp.cli.pinned_items import PERSON, pins_folder, recorded
from codemode_mcp.config.written_entry import written_entry
from codemode_mcp.trust.comparison import Acceptance, ServerPins, baseline_of
from codemode_mcp.trust.finding_rules import Severity
from codemode_mcp.trust.items import entry_item
from codemode_mcp.trust.new_findings import new_findings, tools_of_others
from codemode_mcp.trust.operation_lines import is_api
from codemode_mcp.trust.pins_file import PinsFolder, PinsUnavailable
from codemode_mcp.trust.service import record_decisions
from codemode_mcp.trust.views import listing_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from codemode_mcp.trust.comparison import ItemReport
    from codemode_mcp.trust.findings import Finding
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import UpstreamView

FINDING_SECONDS: Final = 30.0
"""Time for the search for findings. The operations of a large API take 5 s, and hostile texts take longer."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The listing of a server, for a person to accept.

    Attributes:
        pins: the pins as they are stored if the person accepts.
        findings: parts of its definitions that the person should look at, the gravest first, with their item.
        unread: the number of definitions that were not searched for findings, since that took too long.
    """

    pins: ServerPins
    findings: Sequence[tuple[ItemReport, Finding]]
    unread: int = 0


def read_listing(
    view: UpstreamView,
    spec: UpstreamSpec,
    entry: Mapping[str, Any],
    path: Path,
    servers: Iterable[str],
    *,
    long: bool = False,
) -> Shown:
    """Return what a server has listed.

    Args:
        entry: its entry, as it will be written.
        path: the configuration file.
        servers: the names of the other servers of the configuration.
        long: search all definitions, however long that takes.
    """
    from codemode_mcp.trust.comparison import compare

    at = time.time()
    listing = listing_of(view, spec.secret_values, None, at, entry_item(written_entry(entry)))
    pins = baseline_of(None, view.name, listing, "pin", logged_in=view.logged_in)
    pins = replace(pins, accepted={key: Acceptance(each.item, PERSON, at) for key, each in pins.accepted.items()})
    folder = PinsFolder(pins_folder(), path)
    listed = [(view.name, tuple(listing.items))]
    for name in servers:
        try:
            other = folder.load(name)
        except PinsUnavailable:
            continue
        listed.append((name, tuple(other.present.items) if other is not None else ()))
    others = tools_of_others(view.name, listed)
    reports = compare(ServerPins(view.name), listing, "pin")
    of_api = is_api(reports)
    found: list[tuple[ItemReport, Finding]] = []
    until = math.inf if long else time.monotonic() + FINDING_SECONDS
    unread = 0
    for report in reports:
        if time.monotonic() > until:
            unread += 1
            continue
        found += [(report, finding) for finding in new_findings(report, others, is_api=of_api)]
    order = get_args(Severity)
    return Shown(pins, sorted(found, key=lambda each: order.index(each[1].severity)), unread)


def store_pins(pins: ServerPins, path: Path) -> None:
    """Store the pins of a new server. Pins of an earlier server of this name are replaced. End the command if not."""
    folder = PinsFolder(pins_folder(), path)
    try:
        try:
            folder.update(pins.server, lambda _: pins)
        except PinsUnavailable:
            folder.replace_damaged(pins.server, pins)
    except PinsUnavailable as error:
        stop_line(1, f"nothing was added: {error}")


def record_acceptance(pins: ServerPins, path: Path) -> None:
    """Write the decision of the person to the trajectory of the configuration, if it has one."""
    with recorded(path) as auditor:
        if auditor is not None:
            record_decisions(auditor, ServerPins(pins.server), pins)


def forget_pins(server: str, path: Path) -> bool:
    """Delete the pins of a server. Return False if they could not be deleted."""
    try:
        PinsFolder(pins_folder(), path).forget(server)
    except PinsUnavailable:
        return False
    return True
