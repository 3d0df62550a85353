"""The comparison of a server's listing with what a person has accepted. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.trust.items import Item, Key, Kind

Mode = Literal["pin", "strict", "ask", "follow"]
"""The rule for what is held. `pin`: changes and new items. If only texts change, the item is usable under the accepted
texts. `strict`: changes of texts, too. `ask`: as `pin`, and a person accepts the first listing. `follow`: nothing.
"""

MODES: Final[tuple[Mode, ...]] = get_args(Mode)

Status = Literal["accepted", "text_changed", "changed", "new", "removed", "rejected"]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """One accepted item.

    Attributes:
        by: who has accepted it, in words; empty if it was part of the first listing.
        at: Unix seconds.
    """

    item: Item
    by: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Listing:
    """The latest listing of a server that was seen.

    Attributes:
        complete: the kinds whose lists are known. Items of other kinds are not reported as removed.
        at: Unix seconds.
    """

    items: Mapping[Key, Item] = field(default_factory=dict)
    complete: frozenset[Kind] = frozenset()
    at: float = 0.0

    def has_same_items(self, other: Listing) -> bool:
        """Return True if another listing has the same definitions, whenever it was seen."""
        return self.complete == other.complete and self._digests() == other._digests()

    def _digests(self) -> Mapping[Key, str]:
        return {key: item.digest for key, item in self.items.items()}


@dataclass(frozen=True, slots=True)
class ServerPins:
    """The pins of one server.

    Attributes:
        logged_in: True if the first listing was seen with a login.
        rejected: digests of definitions that a person has rejected, and who has rejected them, in words.
        baseline: the kinds whose first listing was accepted.
    """

    server: str
    accepted: Mapping[Key, Acceptance] = field(default_factory=dict)
    rejected: Mapping[str, str] = field(default_factory=dict)
    present: Listing = field(default_factory=Listing)
    logged_in: bool = False
    baseline: frozenset[Kind] = frozenset()


class Stale(Exception):
    """Error for a decision about a definition that is no longer the present one. Nothing was decided."""

    def __init__(self, server: str, key: Key) -> None:
        super().__init__(
            f"{' '.join(key).strip()} of server {server!r} has changed since it was shown; look at it again"
        )
        self.server = server
        self.key = key


@dataclass(frozen=True, slots=True)
class ItemReport:
    """The comparison of one item.

    Attributes:
        name: the name of the tool or prompt, the URI template, or empty for the server's own texts.
        status: `removed`: accepted, and no longer listed. `rejected`: a person has rejected the present definition.
        held: True if programs cannot use the present definition. If only texts differ, they use the accepted one.
        accepted: the accepted definition; None if there is none.
        present: the definition as the server lists it; None if it does not list the item.
    """

    server: str
    kind: Kind
    name: str
    status: Status
    held: bool
    accepted: Item | None
    present: Item | None

    @property
    def is_comparable(self) -> bool:
        """True if the present definition, if there is one, has a digest. Other ones cannot be accepted."""
        return self.present is None or self.present.is_comparable

    @property
    def usable(self) -> Item | None:
        """The definition that programs use; None if they cannot use the item."""
        if self.held or self.present is None:
            return None
        return self.accepted if self.status in ("text_changed", "rejected") else self.present


def compare(pins: ServerPins, present: Listing, mode: Mode) -> tuple[ItemReport, ...]:
    """Return a report for each item, present ones first, in the order of the listing."""
    reports = [compare_item(pins, item, mode) for item in present.items.values()]
    reports += [
        ItemReport(pins.server, *key, "removed", False, acceptance.item, None)
        for key, acceptance in pins.accepted.items()
        if key not in present.items and key[0] in present.complete
    ]
    return tuple(reports)


def compare_item(pins: ServerPins, item: Item, mode: Mode) -> ItemReport:
    """Return the report for an item of the present listing."""
    acceptance = pins.accepted.get(item.key)
    accepted = None if acceptance is None else acceptance.item
    status, held = _status(accepted, item, mode)
    if item.digest in pins.rejected:
        status = "rejected"
    if mode == "follow":
        held = False
    elif status == "rejected" and accepted is not None and accepted.digest == item.digest:
        held = True
    return ItemReport(pins.server, *item.key, status, held, accepted, item)


def baseline_of(pins: ServerPins | None, server: str, present: Listing, mode: Mode, *, logged_in: bool) -> ServerPins:
    """Return the pins after a listing was seen: the first list of each kind is accepted, except in mode `ask`.

    The first list with a login replaces what was accepted without one, except for what a person has accepted.
    """
    pins = pins or ServerPins(server)
    accepted = dict(pins.accepted)
    if logged_in and not pins.logged_in:
        # Also for kinds that are not listed with the login yet: their first list comes later.
        accepted = {key: each for key, each in accepted.items() if each.by}
        pins = replace(pins, baseline=frozenset())
    first = present.complete - pins.baseline
    if mode in ("pin", "strict"):
        for key, item in present.items.items():
            if key[0] in first and item.is_comparable and item.digest not in pins.rejected:
                accepted.setdefault(key, Acceptance(item, at=present.at))
    return ServerPins(server, accepted, pins.rejected, present, pins.logged_in or logged_in, pins.baseline | first)


def accept(pins: ServerPins, choices: Mapping[Key, str], by: str, at: float) -> ServerPins:
    """Return the pins after a person has accepted items.

    Args:
        choices: the digest that the person has seen, by item: of the present definition, or of the accepted one if the
            server no longer lists the item, which then ends its pin.
        by: who has accepted them, in words.
        at: Unix seconds.

    Raises:
        Stale: an item has another definition by now. Nothing was accepted.
    """
    accepted = dict(pins.accepted)
    for key, digest in choices.items():
        item = _chosen(pins, key, digest)
        if key in pins.present.items:
            accepted[key] = Acceptance(item, by, at)
        else:
            del accepted[key]
    rejected = {digest: who for digest, who in pins.rejected.items() if digest not in choices.values()}
    return replace(pins, accepted=accepted, rejected=rejected)


def reject(pins: ServerPins, choices: Mapping[Key, str], by: str) -> ServerPins:
    """Return the pins after a person has rejected items: their present definitions, even if these were accepted.

    Args and errors are those of `accept`.
    """
    for key, digest in choices.items():
        _chosen(pins, key, digest)
    accepted = {key: each for key, each in pins.accepted.items() if each.item.digest != choices.get(key)}
    return replace(pins, accepted=accepted, rejected={**pins.rejected, **dict.fromkeys(choices.values(), by)})


def _chosen(pins: ServerPins, key: Key, digest: str) -> Item:
    acceptance = pins.accepted.get(key)
    item = pins.present.items.get(key) or (None if acceptance is None else acceptance.item)
    if item is None or not item.is_comparable or item.digest != digest:
        raise Stale(pins.server, key)
    return item


def _status(accepted: Item | None, present: Item, mode: Mode) -> tuple[Status, bool]:
    """Return the status, and whether the item is held."""
    if accepted is None:
        return "new", True
    if accepted.digest == present.digest and present.is_comparable:
        return "accepted", False
    if present.is_comparable and accepted.shape_digest == present.shape_digest:
        return "text_changed", mode == "strict" or accepted.definition is None
    return "changed", True
