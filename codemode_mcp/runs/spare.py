"""A guest that is made while nothing else is to be done, so that the next program does not wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from codemode_mcp.sandbox.guest import Guest

if TYPE_CHECKING:
    from codemode_mcp.sandbox.engine import Engine
    from codemode_mcp.sandbox.images import Image

log = logging.getLogger("codemode_mcp.runs")

ROUNDS: Final = 6
"""Rounds of the event loop between the end of a program and the work that its guest leaves behind. By then its client
has the answer, which that work would only delay."""

MAX_OVER: Final = 2
"""Guests of programs that are over and not freed yet."""


class SpareGuest:
    """Gives out guests, and takes back those of programs that are over.

    A program mostly has the catalog and the limit of the one before it, and so the same image.
    """

    def __init__(self) -> None:
        self._wanted: tuple[Engine, Image, int] | None = None
        self._guest: Guest | None = None
        self._over: deque[Guest] = deque()
        self._makes_next = False
        self._next: asyncio.Handle | None = None

    def take(self, engine: Engine, image: Image, memory_limit: int) -> Guest:
        """Return a fresh guest: the spare one, if it is of this image. Raises as `Guest`."""
        wanted = engine, image, memory_limit
        guest, self._guest = self._guest, None
        if self._wanted == wanted and guest is not None:
            return guest
        if guest is not None:
            guest.close()
        self._free(0)
        self._wanted = wanted
        return Guest(engine, image, memory_limit=memory_limit)

    def give_back(self, guest: Guest, *, make_next: bool = True) -> None:
        """Free a guest, and make the next one, when there is time for it.

        Args:
            make_next: False for a guest whose program is suspended: it is more likely resumed than followed by another.
        """
        self._over.append(guest)
        self._makes_next = make_next
        self._free(MAX_OVER)
        if self._next is None:
            self._after(ROUNDS)

    def close(self) -> None:
        """Free all guests that are held here."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._free(0)
        self._wanted = None
        if self._guest is not None:
            self._guest.close()
            self._guest = None

    def _after(self, rounds: int) -> None:
        """Tidy up after so many rounds of the event loop."""
        loop = asyncio.get_running_loop()
        self._next = loop.call_soon(self._after, rounds - 1) if rounds else loop.call_soon(self._tidy)

    def _tidy(self) -> None:
        self._next = None
        self._free(0)
        if self._makes_next:
            self._make()

    def _free(self, most: int) -> None:
        """Free guests of programs that are over, the oldest first, until `most` are left."""
        while len(self._over) > most:
            self._over.popleft().close()

    def _make(self) -> None:
        if self._wanted is not None and self._guest is None:
            engine, image, memory_limit = self._wanted
            try:
                self._guest = Guest(engine, image, memory_limit=memory_limit)
            except Exception as error:
                log.debug("no guest could be made ahead: %r", error)
                self._wanted = None  # the next program is told why
