"""The comparison of a server's listing with what a person has accepted. Pure.

The entry of the server in the configuration is one of the items. If it differs from the accepted one, the server may be
another program, so nothing of it is accepted without a person. In the modes `strict` and `ask`, everything of the
server is then held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, get_args

from msgspec import Struct, field, structs

from codemode_mcp.rules.trust.items import ENTRY_KEY, Item, Key, Kind
from declarations.names import identifiers

Mode = Literal["pin", "strict", "ask", "follow"]
"""The rule for what is held. `pin`: changes and new items. If only texts change, the item is usable under the accepted
texts. `strict`: changes of texts, too. `ask`: as `pin`, and a person accepts the first listing. `follow`: nothing.
"""

MODES: Final[tuple[Mode, ...]] = get_args(Mode)

Status = Literal["accepted", "text_changed", "changed", "new", "removed", "rejected"]


class Acceptance(Struct, frozen=True):
    """One accepted item.

    Attributes:
        by: who has accepted it, in words; empty if it was part of the first listing.
        at: Unix seconds.
    """

    item: Item
    by: str = ""
    at: float = 0.0


class Listing(Struct, frozen=True):
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


class ServerPins(Struct, frozen=True):
    """The pins of one server.

    Attributes:
        logged_in: True if the first listing was seen with a login.
        rejected: digests of definitions that a person has rejected, and who has rejected them, in words.
        baseline: the kinds whose first listing was accepted, or refused by the server.
        names: the identifiers of tools in programs, by original name, as the tools got them when they were accepted. A
            tool that is no longer listed keeps its identifier until a person accepts that.
        since: the times since when templates are accepted, whatever their definition was, in Unix seconds. Under the
            empty name is that of the first listing. A template that is no longer listed keeps its time, as above.
    """

    server: str
    accepted: Mapping[Key, Acceptance] = field(default_factory=dict)
    rejected: Mapping[str, str] = field(default_factory=dict)
    present: Listing = field(default_factory=Listing)
    logged_in: bool = False
    baseline: frozenset[Kind] = frozenset()
    names: Mapping[str, str] = field(default_factory=dict)
    since: Mapping[str, float] = field(default_factory=dict)


class Stale(Exception):
    """Error for a decision about a definition that is no longer the present one. Nothing was decided."""

    def __init__(self, server: str, key: Key) -> None:
        super().__init__(
            f"{' '.join(key).strip()} of server {server!r} has changed since it was shown; look at it again"
        )
        self.server = server
        self.key = key


class ItemReport(Struct, frozen=True):
    """The comparison of one item.

    Attributes:
        name: the name of the tool or prompt, the URI template, or empty for the server's own texts.
        status: `removed`: accepted, and no longer listed. `rejected`: a person has rejected the present definition.
        held: True if programs cannot use the present definition. If only texts differ, they use the accepted one.
        accepted: the accepted definition; None if there is none.
        present: the definition as the server lists it; None if it does not list the item.
        by_entry: True if the item is held because everything of its server is.
    """

    server: str
    kind: Kind
    name: str
    status: Status
    held: bool
    accepted: Item | None
    present: Item | None
    by_entry: bool = False

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
    pins = structs.replace(pins, present=present)
    reports = [compare_item(pins, item, mode) for item in present.items.values()]
    reports += [
        ItemReport(pins.server, *key, "removed", False, acceptance.item, None)
        for key, acceptance in pins.accepted.items()
        if key not in present.items and key[0] in present.complete
    ]
    return tuple(reports)


def compare_item(pins: ServerPins, item: Item, mode: Mode) -> ItemReport:
    acceptance = pins.accepted.get(item.key)
    accepted = None if acceptance is None else acceptance.item
    status, held = _status(accepted, item, mode)
    is_entry = item.key == ENTRY_KEY
    if is_entry:
        held = _is_entry_held(pins, mode)
    if item.digest in pins.rejected:
        status = "rejected"
    if mode == "follow":
        held = False
    elif status == "rejected" and accepted is not None and accepted.digest == item.digest:
        held = True
    elif not is_entry and _is_entry_held(pins, mode):
        return ItemReport(pins.server, *item.key, status, True, accepted, item, by_entry=True)
    return ItemReport(pins.server, *item.key, status, held, accepted, item)


def is_other_entry(pins: ServerPins) -> bool:
    entry = pins.present.items.get(ENTRY_KEY)
    if entry is None or ENTRY_KEY[0] not in pins.baseline:
        return entry is not None and entry.digest in pins.rejected
    accepted = pins.accepted.get(ENTRY_KEY)
    return accepted is None or accepted.item.digest != entry.digest


def with_entry(pins: ServerPins, entry: Item | None) -> ServerPins:
    """Return the pins with the present entry in the configuration, which may be newer than the listing."""
    if entry is None or pins.present.items.get(ENTRY_KEY) is entry:
        return pins
    items = {**pins.present.items, ENTRY_KEY: entry}
    return structs.replace(
        pins, present=structs.replace(pins.present, items=items, complete=pins.present.complete | {ENTRY_KEY[0]})
    )


def _is_entry_held(pins: ServerPins, mode: Mode) -> bool:
    if mode == "follow" or not is_other_entry(pins):
        return False
    return mode != "pin" or pins.present.items[ENTRY_KEY].digest in pins.rejected


def baseline_of(
    pins: ServerPins | None,
    server: str,
    present: Listing,
    mode: Mode,
    *,
    logged_in: bool,
    refused: frozenset[Kind] = frozenset(),
) -> ServerPins:
    """Return the pins after a listing was seen: the first list of each kind is accepted, except in mode `ask`.

    A list that the server refuses counts as an empty first list. Otherwise, a server could refuse it for months, and
    then list what no person has seen. The first list with a login replaces what was accepted without one, except for
    what a person has accepted. The first entry of the configuration is accepted in each mode, because a person has
    written it. With another entry, nothing is accepted.
    """
    pins = with_since(structs.replace(pins or ServerPins(server), present=present))
    if is_other_entry(pins):
        return structs.replace(pins, logged_in=pins.logged_in or logged_in)
    accepted = dict(pins.accepted)
    if logged_in and not pins.logged_in:
        # Also for kinds that are not listed with the login yet: their first list comes later.
        accepted = {key: each for key, each in accepted.items() if each.by or key == ENTRY_KEY}
        pins = structs.replace(pins, baseline=pins.baseline & {ENTRY_KEY[0]})
    first = present.complete - pins.baseline
    for key, item in present.items.items():
        is_first = key[0] in first and (mode in ("pin", "strict") or key == ENTRY_KEY)
        if is_first and item.is_comparable and item.digest not in pins.rejected:
            accepted.setdefault(key, Acceptance(item, at=present.at))
    baseline = pins.baseline | first | refused
    pins = structs.replace(
        pins, accepted=accepted, logged_in=pins.logged_in or logged_in, baseline=baseline, present=present
    )
    return with_since(with_names(pins))


def with_since(pins: ServerPins) -> ServerPins:
    """Return pins with the time of each accepted template. Those of the first listing have the time of the listing."""
    ages = [each.at for key, each in pins.accepted.items() if key != ENTRY_KEY]
    new = [name for kind, name in pins.accepted if kind == "template" and name not in pins.since]
    if not ages or (not new and "" in pins.since):
        return pins
    first = pins.since.get("", min(ages))
    found = {name: pins.accepted["template", name] for name in new}
    times = {name: each.at if each.by else first for name, each in found.items()}
    return structs.replace(pins, since={"": first, **pins.since, **times})


def with_names(pins: ServerPins) -> ServerPins:
    """Return pins in which each accepted tool has an identifier. Those that are new get what others do not have."""
    tools = [name for kind, name in pins.accepted if kind == "tool"]
    if all(name in pins.names for name in tools):
        return pins
    return structs.replace(pins, names={**pins.names, **identifiers(tools, kept=pins.names)})


def with_listed_names(pins: ServerPins, tools: Iterable[str]) -> ServerPins:
    """Return the pins of a server with `follow`: each listed tool has an identifier, and no other one has."""
    listed = tuple(tools)
    names = identifiers(listed, kept={name: pins.names[name] for name in listed if name in pins.names})
    return pins if names == pins.names else structs.replace(pins, names=names)


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
    pins = with_since(pins)
    accepted, names, since = dict(pins.accepted), dict(with_names(pins).names), dict(pins.since)
    for key, digest in choices.items():
        item = _chosen(pins, key, digest)
        if key in pins.present.items:
            accepted[key] = Acceptance(item, by, at)
        else:
            del accepted[key]
            if key[0] == "tool":
                names.pop(key[1], None)
            elif key[0] == "template":
                since.pop(key[1], None)
    rejected = {digest: who for digest, who in pins.rejected.items() if digest not in choices.values()}
    return with_since(with_names(structs.replace(pins, accepted=accepted, rejected=rejected, names=names, since=since)))


def reject(pins: ServerPins, choices: Mapping[Key, str], by: str) -> ServerPins:
    """Return the pins after a person has rejected items: their present definitions, even if these were accepted.

    Args and errors are those of `accept`.
    """
    for key, digest in choices.items():
        _chosen(pins, key, digest)
    accepted = {key: each for key, each in pins.accepted.items() if each.item.digest != choices.get(key)}
    return structs.replace(pins, accepted=accepted, rejected={**pins.rejected, **dict.fromkeys(choices.values(), by)})


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
