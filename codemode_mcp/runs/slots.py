"""A bounded number of slots, shared out fairly between shares of the server, and within a share between owners.

A share is an owner who has shown who they are, or an address with all owners behind it. Two levels keep one address
from taking turns of others by many owners, and programs behind one address from waiting for each other.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque

import anyio


class Slots:
    """A bounded number of slots. Waiting shares take turns, and so do the owners within; each is first in, first out.

    As soon as there is more than one share, none of them gets the last slot on top of others: a share that has
    none need not wait for an endless loop of another one to be stopped. The same holds for owners.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._count = count
        self._held: Counter[str] = Counter()
        self._held_by: Counter[tuple[str, str]] = Counter()
        self._waiting: OrderedDict[str, OrderedDict[str, deque[anyio.Event]]] = OrderedDict()
        """Waiting calls by share and owner; those whose turn it is come first. No queue is empty."""
        self._first: tuple[str, str] | None = None
        self._shares = self._owners = False
        """Tell if there was more than one share, and more than one owner."""

    def __repr__(self) -> str:
        return f"<Slots: {self._free} of {self._count} free, {len(self._waiting)} shares waiting>"

    def try_acquire(self, share: str, owner: str) -> bool:
        """Take a slot if there is one now for this owner."""
        if self._first is None:
            self._first = (share, owner)
        self._shares = self._shares or share != self._first[0]
        self._owners = self._owners or owner != self._first[1]
        if owner in self._waiting.get(share, ()) or not self._admits(share, owner):
            return False
        self._take(share, owner)
        return True

    async def acquire(self, share: str, owner: str) -> None:
        """Take a slot; waits until there is one. Cancelling gives up the place in the queue."""
        if self.try_acquire(share, owner):
            return
        granted = anyio.Event()
        self._waiting.setdefault(share, OrderedDict()).setdefault(owner, deque()).append(granted)
        try:
            await granted.wait()
        except BaseException:
            if granted.is_set():
                self.release(share, owner)
            else:
                self._leave(share, owner, granted)
            raise

    def release(self, share: str, owner: str) -> None:
        """Give a slot back."""
        self._free += 1
        self._held[share] -= 1
        if not self._held[share]:
            self._held.pop(share)  # `del` of a Counter is Python
        self._held_by[share, owner] -= 1
        if not self._held_by[share, owner]:
            self._held_by.pop((share, owner))
        if self._waiting:
            self._share_out()

    def _admits(self, share: str, owner: str) -> bool:
        holds = (self._shares and self._held[share]) or (self._owners and self._held_by[share, owner])
        return self._free > (1 if holds and self._count > 1 else 0)

    def _take(self, share: str, owner: str) -> None:
        self._free -= 1
        self._held[share] += 1
        self._held_by[share, owner] += 1

    def _leave(self, share: str, owner: str, granted: anyio.Event) -> None:
        owners = self._waiting[share]
        queue = owners[owner]
        queue.remove(granted)
        if not queue:
            del owners[owner]
        if not owners:
            del self._waiting[share]

    def _share_out(self) -> None:
        while self._free:
            waiting = ((share, owner) for share, owners in self._waiting.items() for owner in owners)
            found = next((each for each in waiting if self._admits(*each)), None)
            if found is None:
                return
            share, owner = found
            granted = self._waiting[share][owner][0]
            self._leave(share, owner, granted)
            if share in self._waiting:
                self._waiting.move_to_end(share)
                if owner in self._waiting[share]:
                    self._waiting[share].move_to_end(owner)
            self._take(share, owner)
            granted.set()
