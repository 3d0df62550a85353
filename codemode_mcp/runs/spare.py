"""A guest that is made while nothing else is to be done, so that the next program does not wait for it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from codemode_mcp.sandbox.guest import Guest

if TYPE_CHECKING:
    from codemode_mcp.sandbox.engine import Engine, Image

log = logging.getLogger("codemode_mcp.runs")

IDLE_SECONDS: Final = 0.005
"""From the end of a program to the next guest. Where programs follow each other sooner, none is made ahead."""


class SpareGuest:
    """Gives out guests, and takes back those of programs that are over.

    A program mostly has the catalog and the limit of the one before it, and so the same image.
    """

    def __init__(self) -> None:
        self._wanted: tuple[Engine, Image, int] | None = None
        self._guest: Guest | None = None
        self._timer: asyncio.TimerHandle | None = None

    def take(self, engine: Engine, image: Image, memory_limit: int) -> Guest:
        """Return a fresh guest: the spare one, if it is of this image. Raises as `Guest`."""
        self._stop_timer()
        wanted = engine, image, memory_limit
        guest, self._guest = self._guest, None
        if self._wanted == wanted and guest is not None:
            return guest
        if guest is not None:
            guest.close()
        self._wanted = wanted
        return Guest(engine, image, memory_limit=memory_limit)

    def give_back(self, guest: Guest) -> None:
        """Free a guest at once, and make the next one when there is time for it."""
        guest.close()
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._make)

    def close(self) -> None:
        """Free all guests that are held here."""
        self._stop_timer()
        self._wanted = None
        if self._guest is not None:
            self._guest.close()
            self._guest = None

    def _make(self) -> None:
        if self._wanted is not None and self._guest is None:
            engine, image, memory_limit = self._wanted
            try:
                self._guest = Guest(engine, image, memory_limit=memory_limit)
            except Exception as error:
                log.debug("no guest could be made ahead: %r", error)
                self._wanted = None  # the next program is told why

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
