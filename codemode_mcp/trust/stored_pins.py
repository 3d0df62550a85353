"""Pins in files, as an application uses them: files that fail, and other processes that write them too."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from codemode_mcp.trust.comparison import ServerPins, baseline_of
from codemode_mcp.trust.pins_file import KINDS, PinsDamaged, PinsUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.trust.comparison import Mode
    from codemode_mcp.trust.pins_file import PinsFolder
    from upstream_clients.state_files import Stamp

log = logging.getLogger("codemode_mcp.trust")


class LoadedPins(NamedTuple):
    """The content of a file.

    Attributes:
        problem: the reason why the file cannot be used. Everything is held then.
        is_damaged: True if the file may be replaced.
    """

    pins: ServerPins | None
    stamp: Stamp
    problem: str | None = None
    is_damaged: bool = False


def load_pins(folder: PinsFolder, server: str) -> LoadedPins:
    """Return the content of a file. If it cannot be used, everything is held. Blocks."""
    # The stamp is taken first, so that a change during the reading is noticed.
    stamp = folder.stamp(server)
    try:
        return LoadedPins(folder.load(server), stamp)
    except PinsUnavailable as error:
        log.warning("%s; all tools of server %r are held until a person accepts them", error, server)
        is_damaged = isinstance(error, PinsDamaged)
        held = ServerPins(server, baseline=KINDS)
        return LoadedPins(held, stamp, None if is_damaged else str(error), is_damaged)


def store_pins(folder: PinsFolder, pins: ServerPins, mode: Mode) -> tuple[ServerPins, Stamp]:
    """Write pins, together with what other processes have stored. Blocks."""
    try:
        after = folder.update(pins.server, lambda stored: merge_pins(stored, pins, mode))
    except PinsDamaged:
        folder.replace_damaged(pins.server, pins)
        after = pins
    return after, folder.stamp(pins.server)


def load_changed_pins(folder: PinsFolder, known: Mapping[str, Stamp]) -> dict[str, LoadedPins]:
    """Return the content of the files that are no longer in a known version, by server. Blocks."""
    return {name: load_pins(folder, name) for name, stamp in known.items() if folder.stamp(name) != stamp}


def merge_pins(stored: ServerPins | None, own: ServerPins, mode: Mode) -> ServerPins:
    """Return the stored pins together with the listing that this process has seen."""
    if stored is None:
        return own
    if mode == "follow":
        return replace(stored, names=own.names)
    refused = own.baseline - own.present.complete
    merged = baseline_of(stored, own.server, own.present, mode, logged_in=own.logged_in, refused=refused)
    return replace(merged, present=stored.present) if stored.present.has_same_items(own.present) else merged
