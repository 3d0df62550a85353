"""The states of items in words, and the messages about held items. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final, Literal

from codemode_mcp.base.text import listed
from codemode_mcp.rules.trust.items import ENTRY_KEY, MAX_DEPTH, reference
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from codemode_mcp.rules.trust.comparison import ItemReport, Status


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


# The messages about held items, for models and for the log.


MAX_NAMED: Final = 5
"""Maximum number of items that one line of the log names."""

_WHY: Final = {
    "new": "no person has accepted this new item",
    "changed": "its server has changed it since it was accepted",
    "text_changed": "its server has changed its description since it was accepted",
}


UNLISTED: Final = (
    "is held: its server no longer lists it, and no person has accepted it. Do not call it again unless the user asks "
    "for it"
)
"""The reason why a tool is held that is neither listed nor accepted."""


def why_held(report: ItemReport, pins: Literal["file", "lock", "unreadable"], option: str = "") -> str:
    """Return the end of a sentence that begins with the name of a held item. It says how a person accepts the item.

    Args:
        pins: the origin of the pins: their file, the lock file, or nothing, since their file cannot be read.
        option: the end of commands, such as ` --config PATH`; empty if they find the configuration themselves.
    """
    target = shlex.quote(reference(report.server, report.kind, escape_line(report.name)))
    if pins == "unreadable":
        return (
            "is held: the record of what was accepted of its server cannot be read. Ask the user to run: codemode-mcp "
            f"trust status {shlex.quote(report.server)}{option}"
        )
    if pins == "lock":
        return (
            "is held: it is not as the user's lock file has it. Ask the user to compare them with: codemode-mcp trust "
            f"check{option}"
        )
    if not report.is_comparable:
        return f"is held: {NOT_COMPARABLE}"
    if report.by_entry or report.kind == "entry":
        entry = shlex.quote(reference(report.server, *ENTRY_KEY))
        return (
            "is held: the configuration has another command or URL for its server than the accepted one. Ask the user "
            f"to look at it with: codemode-mcp trust diff {entry}{option}, and to accept it with: codemode-mcp trust "
            f"accept {entry}{option}"
        )
    if report.status == "rejected":
        return "is held: the user has rejected it. Do not try again unless the user asks for it"
    return (
        f"is held: {_WHY[report.status]}. Ask the user to look at it with: codemode-mcp trust diff {target}{option}, "
        f"and to accept it with: codemode-mcp trust accept {target}{option}"
    )


def reason_of(why: str) -> str:
    """Return the reason in a result of `why_held`, without what to do."""
    return why.removeprefix("is held: ").partition(". ")[0]


def held_line(server: str, reports: Sequence[ItemReport], *, locked: bool, option: str = "") -> str:
    """Return the line for the log about items that are held.

    Args:
        locked: True if the lock file decides.
        option: see `why_held`.
    """
    if locked:
        return (
            f"server {server!r}: {_items(len(reports))} held, since the lock file does not have what the server lists "
            f"({named(reports)}); compare them with: codemode-mcp trust check{option}"
        )
    return (
        f"server {server!r}: {_items(len(reports))} held until a person accepts {_them(reports)} ({named(reports)}); "
        f"look at {_them(reports)} with: codemode-mcp trust diff {shlex.quote(server)}{option}"
    )


def entry_line(report: ItemReport, option: str = "") -> str:
    """Return the line for the log about a changed entry in the configuration. `option`: see `why_held`."""
    entry = shlex.quote(reference(report.server, *ENTRY_KEY))
    effect = "everything of it is held" if report.held else "it may be another server"
    return (
        f"server {report.server!r}: the configuration has another command or URL for it than the accepted one, so "
        f"{effect}; look at it with: codemode-mcp trust diff {entry}{option}"
    )


def texts_line(server: str, reports: Sequence[ItemReport], option: str = "") -> str:
    """Return the line for the log about items whose texts have changed. `option`: see `why_held`."""
    return (
        f"server {server!r}: {_items(len(reports))} used with the accepted texts, since the server has changed them "
        f"({named(reports)}); look at them with: codemode-mcp trust diff {shlex.quote(server)}{option}"
    )


def _them(reports: Sequence[ItemReport]) -> str:
    return "it" if len(reports) == 1 else "them"


def _items(count: int) -> str:
    return "1 item is" if count == 1 else f"{count} items are"


def named(reports: Sequence[ItemReport]) -> str:
    """Return the names of at most `MAX_NAMED` items, and the number of the others."""
    return listed([escape_line(reference(each.server, each.kind, each.name), 80) for each in reports], MAX_NAMED)
