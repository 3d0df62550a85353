"""A bounded number of slots, given fairly to shares of the server, and within a share to owners.

A share is an authenticated owner, or an address with all owners behind it. Because of the two levels, an address cannot
take the turns of others by using many owners, and owners behind one address take turns, too.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from upstream_clients.fair_queue import FairQueue


class Slots:
    """A bounded number of slots. Waiting shares take turns, and so do the owners of a share.

    If there was ever more than one share, the last free slot is only for a share that has none. Otherwise a share whose
    programs loop endlessly could have all slots, and others would have to wait until these programs are stopped. The
    same holds for owners.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._count = count
        self._held: Counter[str] = Counter()
        self._held_by: Counter[tuple[str, str]] = Counter()
        self._queue = FairQueue()
        self._first: tuple[str, str] | None = None
        self._many_shares = self._many_owners = False
        """True if there was ever more than one share, or owner. Until then, one user can have all slots."""

    def __repr__(self) -> str:
        return f"<Slots: {self._free} of {self._count} free, {len(self._queue.groups)} shares waiting>"

    def try_acquire(self, share: str, owner: str) -> bool:
        """Take a slot if one is free now for this owner. Return False otherwise."""
        if self._first is None:
            self._first = (share, owner)
        self._many_shares = self._many_shares or share != self._first[0]
        self._many_owners = self._many_owners or owner != self._first[1]
        if owner in self._queue.groups.get(share, ()) or not self._admits(share, owner):
            return False
        self._take(share, owner)
        return True

    async def acquire(self, share: str, owner: str) -> None:
        """Wait for a slot and take it. Cancelling leaves the queue."""
        if not self.try_acquire(share, owner):
            await self._queue.wait(share, owner, partial(self.release, share, owner))

    def release(self, share: str, owner: str) -> None:
        """Give a slot back, and pass it on to the next one in the queue."""
        self._free += 1
        self._held[share] -= 1
        if not self._held[share]:
            self._held.pop(share)  # faster than `del` of a Counter
        self._held_by[share, owner] -= 1
        if not self._held_by[share, owner]:
            self._held_by.pop((share, owner))
        while self._free and self._queue.groups:
            found = next((each for each in self._queue.members() if self._admits(*each)), None)
            if found is None:
                return
            self._take(*found)
            self._queue.give_turn(*found)

    def _admits(self, share: str, owner: str) -> bool:
        holds = (self._many_shares and self._held[share]) or (self._many_owners and self._held_by[share, owner])
        return self._free > (1 if holds and self._count > 1 else 0)

    def _take(self, share: str, owner: str) -> None:
        self._free -= 1
        self._held[share] += 1
        self._held_by[share, owner] += 1
