"""The states of items in words, for the command line and the page. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from codemode_mcp.trust.items import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.trust.comparison import ItemReport, Status

STATES: Final[Mapping[tuple[Status, bool], str]] = {
    ("accepted", False): "accepted",
    ("text_changed", False): "only its texts have changed; programs see the accepted ones",
    ("text_changed", True): "only its texts have changed; held",
    ("changed", True): "changed; held",
    ("changed", False): "changed",
    ("new", True): "new; held",
    ("new", False): "new",
    ("removed", False): "no longer listed by its server",
    ("rejected", True): "rejected; held",
    ("rejected", False): "its new texts were rejected; programs see the accepted ones",
}
"""The state of an item, by its status and whether it is held."""

_ENTRY_STATES: Final[Mapping[tuple[Status, bool], str]] = {
    ("new", False): "the command or URL in the configuration is new; it may be another server",
    ("new", True): "the command or URL in the configuration is new; everything of the server is held",
    ("changed", False): "the configuration has another command or URL; it may be another server",
    ("changed", True): "the configuration has another command or URL; everything of the server is held",
    ("rejected", True): "the command or URL in the configuration was rejected; everything of the server is held",
}

NOT_COMPARABLE: Final = (
    f"its definition is nested deeper than {MAX_DEPTH} levels, or has a number of thousands of digits, so it cannot be "
    "compared or accepted; its server must change it"
)
"""The reason why an item without a digest is held."""


def state_of(report: ItemReport) -> str:
    """Return the state of an item in words."""
    if report.held and not report.is_comparable:
        return f"held: {NOT_COMPARABLE}"
    if report.by_entry:
        return "held, since the configuration has another command or URL for the server"
    if report.kind == "entry":
        return _ENTRY_STATES.get((report.status, report.held)) or STATES[report.status, report.held]
    return STATES[report.status, report.held]
