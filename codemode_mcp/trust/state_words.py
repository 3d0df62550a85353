"""The states of items in words, for the command line and the page. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.trust.comparison import Status

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
