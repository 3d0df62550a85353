"""The content of a file with the pins of a server, as JSON."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import msgspec

from codemode_mcp.strict_json import Form
from codemode_mcp.trust.comparison import Acceptance, Listing, ServerPins
from codemode_mcp.trust.items import Item, Kind

FORMAT: Final = 3

_READABLE: Final = (1, 2, FORMAT)
"""Formats that this version reads. Format 1 has no entries of the configuration, and format 2 has no identifiers."""

_Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]

_DigestIfAny = Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{64})?$")]
"""Empty for a definition that is nested too deeply to be compared."""


class _StoredItem(Form, omit_defaults=True):
    """An item. `definition` is not set if the definition is not stored, or if it is that of the accepted item."""

    kind: Kind
    name: str
    digest: _DigestIfAny
    shape: _DigestIfAny
    definition: dict[str, Any] | None = None
    by: str = ""
    at: float = 0.0


class _StoredPins(Form):
    """The content of a file, without its format."""

    server: str
    logged_in: bool
    baseline: list[Kind]
    accepted: list[_StoredItem]
    rejected: dict[_Digest, str]
    present: list[_StoredItem]
    complete: list[Kind]
    seen_at: float
    names: dict[str, str] | None = None
    """None in formats before 3."""
    since: dict[str, float] | None = None
    """None in formats before 3."""


def decode(data: bytes) -> ServerPins | None:
    """Return the pins in a file; None if they have another format.

    Raises:
        Exception: the content is damaged.
    """
    raw = json.loads(data)
    if raw.pop("format") not in _READABLE:
        return None
    return _from_stored(msgspec.convert(raw, _StoredPins))


def encode(pins: ServerPins, limit: int) -> bytes:
    """Return the content of a file, in at most `limit` bytes. Raises `OSError` if the digests alone need more."""
    for with_definitions in (True, False):
        accepted = [_stored(each.item, with_definitions, by=each.by, at=each.at) for each in pins.accepted.values()]
        digests = {key: each.item.digest for key, each in pins.accepted.items()}
        present = [
            _stored(item, with_definitions and item.is_comparable and digests.get(key) != item.digest)
            for key, item in pins.present.items.items()
        ]
        stored = _StoredPins(
            server=pins.server,
            logged_in=pins.logged_in,
            baseline=sorted(pins.baseline),
            accepted=accepted,
            rejected=dict(sorted(pins.rejected.items())),
            present=present,
            complete=sorted(pins.present.complete),
            seen_at=pins.present.at,
            names=dict(pins.names),
            since=dict(pins.since),
        )
        # Not by msgspec, which refuses integers of more than 64 bits.
        data = json.dumps({"format": FORMAT, **msgspec.to_builtins(stored)}).encode()
        if len(data) <= limit:
            return data
    raise OSError("the list of the server is too large")


def _from_stored(stored: _StoredPins) -> ServerPins:
    accepted = {}
    for each in stored.accepted:
        item = _item(each)
        accepted[item.key] = Acceptance(item, each.by, each.at)
    present = {}
    for each in stored.present:
        known = accepted.get((each.kind, each.name))
        item = _item(each) if known is None or known.item.digest != each.digest else known.item
        present[item.key] = item
    listing = Listing(present, frozenset(stored.complete), stored.seen_at)
    baseline = frozenset(stored.baseline)
    names, since = stored.names or {}, stored.since or {}
    return ServerPins(stored.server, accepted, stored.rejected, listing, stored.logged_in, baseline, names, since)


def _item(stored: _StoredItem) -> Item:
    return Item(stored.kind, stored.name, stored.definition, stored.digest, stored.shape)


def _stored(item: Item, with_definition: bool, *, by: str = "", at: float = 0.0) -> _StoredItem:
    definition = dict(item.definition) if with_definition and item.definition is not None else None
    return _StoredItem(item.kind, item.name, item.digest, item.shape_digest, definition, by, at)
