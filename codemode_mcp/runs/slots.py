"""A bounded number of slots, shared out fairly between owners."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque

import anyio


class Slots:
    """At most `count` at once. Owners that wait are served in turn, each of them first in, first out.

    As soon as there is more than one owner, none of them gets the last slot on top of others: whoever has none need not
    wait for somebody else's endless loop to be stopped.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._count = count
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[anyio.Event]] = OrderedDict()
        self._first: str | None = None
        self._shared = False

    def __repr__(self) -> str:
        return f"<Slots: {self._free} of {self._count} free, {len(self._waiting)} owners waiting>"

    async def acquire(self, owner: str) -> None:
        """Take a slot; waits until there is one. Cancelling gives up the place in the queue."""
        if self._first is None:
            self._first = owner
        self._shared = self._shared or owner != self._first
        if owner not in self._waiting and self._admits(owner):
            self._take(owner)
            return
        granted = anyio.Event()
        self._waiting.setdefault(owner, deque()).append(granted)
        try:
            await granted.wait()
        except BaseException:
            if granted.is_set():
                self.release(owner)
            else:
                self._leave(owner, granted)
            raise

    def release(self, owner: str) -> None:
        """Give a slot back."""
        self._free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        self._share_out()

    def _admits(self, owner: str) -> bool:
        spare = 1 if self._shared and self._held[owner] and self._count > 1 else 0
        return self._free > spare

    def _take(self, owner: str) -> None:
        self._free -= 1
        self._held[owner] += 1

    def _leave(self, owner: str, granted: anyio.Event) -> None:
        queue = self._waiting[owner]
        queue.remove(granted)
        if not queue:
            del self._waiting[owner]

    def _share_out(self) -> None:
        while self._free:
            owner = next((owner for owner in self._waiting if self._admits(owner)), None)
            if owner is None:
                return
            granted = self._waiting[owner][0]
            self._leave(owner, granted)
            if owner in self._waiting:
                self._waiting.move_to_end(owner)
            self._take(owner)
            granted.set()
