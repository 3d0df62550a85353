"""A guest that is made in advance, while the process is idle, so that the next program does not wait for one."""

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
"""Rounds of the event loop between the end of a program and the freeing of its guest. The client has the answer by
then. Earlier, this work would delay the answer."""

MAX_OVER: Final = 2
"""Maximum number of guests of ended programs that are not freed yet."""


class SpareGuest:
    """A provider of guests, which takes back the guests of ended programs.

    It makes the next guest for the catalog and the memory limit of the previous program, because most programs have the
    same.
    """

    def __init__(self) -> None:
        self._next_form: tuple[Engine, Image, int] | None = None
        self._guest: Guest | None = None
        self._over: deque[Guest] = deque()
        self._makes_next = False
        self._next: asyncio.Handle | None = None

    def take(self, engine: Engine, image: Image, memory_limit: int) -> Guest:
        """Return a fresh guest. It is the spare one if that has this image. Raises the errors of `Guest`."""
        form = engine, image, memory_limit
        guest, self._guest = self._guest, None
        if self._next_form == form and guest is not None:
            return guest
        if guest is not None:
            guest.close()
        self._free(0)
        self._next_form = form
        return Guest(engine, image, memory_limit=memory_limit)

    def give_back(self, guest: Guest, *, make_next: bool = True) -> None:
        """Free a guest and make the next one, later, when the process is idle.

        Args:
            make_next: False to make no next guest, for a program that is suspended. It is most likely resumed next.
        """
        self._over.append(guest)
        self._makes_next = make_next
        self._free(MAX_OVER)
        if self._next is None:
            self._after(ROUNDS)

    def close(self) -> None:
        """Free all guests."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._free(0)
        self._next_form = None
        if self._guest is not None:
            self._guest.close()
            self._guest = None

    def _after(self, rounds: int) -> None:
        """Call `_tidy` after some rounds of the event loop."""
        loop = asyncio.get_running_loop()
        self._next = loop.call_soon(self._after, rounds - 1) if rounds else loop.call_soon(self._tidy)

    def _tidy(self) -> None:
        self._next = None
        self._free(0)
        if self._makes_next:
            self._make()

    def _free(self, max_left: int) -> None:
        """Free guests of ended programs, the oldest first, until at most `max_left` are left."""
        while len(self._over) > max_left:
            self._over.popleft().close()

    def _make(self) -> None:
        if self._next_form is not None and self._guest is None:
            engine, image, memory_limit = self._next_form
            try:
                self._guest = Guest(engine, image, memory_limit=memory_limit)
            except Exception as error:
                log.debug("no guest could be made in advance: %r", error)
                self._next_form = None  # the next program gets the error
