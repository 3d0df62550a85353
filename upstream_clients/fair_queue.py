"""A queue of waiters in two levels: groups take turns, and so do the members of a group.

The waiters of one member are first in, first out. The queue knows no capacity: its user decides when a waiter gets its
turn. To wait and to give a turn take the same time for one waiter as for thousands.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class FairQueue:
    """Waiters by group and member.

    Attributes:
        groups: the next group comes first, and in it the next member. No group and no member is empty.
    """

    def __init__(self) -> None:
        self.groups: OrderedDict[str, OrderedDict[str, deque[anyio.Event]]] = OrderedDict()

    def members(self) -> Iterator[tuple[str, str]]:
        """Yield each group with each of its members, the next ones first."""
        return ((group, member) for group, members in self.groups.items() for member in members)

    async def wait(self, group: str, member: str, give_back: Callable[[], None]) -> None:
        """Wait for a turn. Cancelling leaves the queue.

        Args:
            give_back: called if the waiter is cancelled when it has its turn already. Otherwise the turn would be lost.
        """
        turn = anyio.Event()
        self.groups.setdefault(group, OrderedDict()).setdefault(member, deque()).append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                give_back()
            else:
                self._remove(group, member, turn)
            raise

    def give_turn(self, group: str, member: str) -> None:
        """Give a turn to the first waiter of a member. The member and its group move to the end."""
        turn = self.groups[group][member][0]
        self._remove(group, member, turn)
        if group in self.groups:
            self.groups.move_to_end(group)
            if member in self.groups[group]:
                self.groups[group].move_to_end(member)
        turn.set()

    def _remove(self, group: str, member: str, turn: anyio.Event) -> None:
        members = self.groups[group]
        members[member].remove(turn)
        if not members[member]:
            del members[member]
        if not members:
            del self.groups[group]
