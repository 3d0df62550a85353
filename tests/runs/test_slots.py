"""Slots: bounded, fair between owners, nothing lost to cancelling."""

from __future__ import annotations

import random
from collections import Counter

import anyio
import pytest

from codemode_mcp.runs.guests import Slots

pytestmark = pytest.mark.anyio


class Takers:
    """Tasks that take a slot and keep it until they are told to give it back."""

    def __init__(self, slots: Slots, group: anyio.abc.TaskGroup) -> None:
        self._slots = slots
        self._group = group
        self._back: dict[str, list[anyio.Event]] = {}
        self.order: list[str] = []

    async def start(self, owner: str, share: str = "s") -> anyio.CancelScope:
        """One more task, which has its slot or its place in the queue when this returns."""
        scope = anyio.CancelScope()
        self._group.start_soon(self._take, share, owner, scope)
        await anyio.wait_all_tasks_blocked()
        return scope

    async def give_back(self, owner: str) -> None:
        self._back[owner].pop(0).set()
        await anyio.wait_all_tasks_blocked()

    async def _take(self, share: str, owner: str, scope: anyio.CancelScope) -> None:
        with scope:
            await self._slots.acquire(share, owner)
            self.order.append(owner)
            back = anyio.Event()
            self._back.setdefault(owner, []).append(back)
            try:
                await back.wait()
            finally:
                self._slots.release(share, owner)


async def test_one_owner_may_have_all_slots() -> None:
    async with anyio.create_task_group() as group:
        takers = Takers(Slots(3), group)
        for _ in range(5):
            await takers.start("a")
        assert takers.order == ["a"] * 3
        await takers.give_back("a")
        assert takers.order == ["a"] * 4
        group.cancel_scope.cancel()


async def test_with_several_owners_the_last_slot_is_for_one_who_has_none() -> None:
    async with anyio.create_task_group() as group:
        takers = Takers(Slots(3), group)
        await takers.start("b")
        await takers.give_back("b")
        for _ in range(5):
            await takers.start("a")
        assert takers.order == ["b", "a", "a"]
        await takers.start("b")
        assert takers.order[-1] == "b"
        group.cancel_scope.cancel()


async def test_a_single_slot_goes_to_everybody_in_turn() -> None:
    async with anyio.create_task_group() as group:
        takers = Takers(Slots(1), group)
        for owner in "aaaabbc":
            await takers.start(owner)
        for _ in range(6):
            await takers.give_back(takers.order[-1])
        assert "".join(takers.order) == "aabcaba"
        group.cancel_scope.cancel()


async def test_a_cancelled_waiter_gives_up_its_place() -> None:
    async with anyio.create_task_group() as group:
        takers = Takers(Slots(1), group)
        await takers.start("a")
        waiting = await takers.start("b")
        await takers.start("c")
        waiting.cancel()
        await anyio.wait_all_tasks_blocked()
        await takers.give_back("a")
        assert takers.order == ["a", "c"]
        group.cancel_scope.cancel()


async def test_a_share_with_many_owners_takes_turns_as_one() -> None:
    async with anyio.create_task_group() as group:
        takers = Takers(Slots(1), group)
        for owner in "abcd":
            await takers.start(owner, "crowd")
        await takers.start("e", "alone")
        await takers.start("e", "alone")
        for _ in range(5):
            await takers.give_back(takers.order[-1])
        assert "".join(takers.order) == "abeced"
        group.cancel_scope.cancel()


async def test_the_last_slot_is_for_a_share_that_has_none() -> None:
    async with anyio.create_task_group() as group:
        takers = Takers(Slots(3), group)
        await takers.start("e", "alone")
        await takers.give_back("e")
        for owner in "abcd":
            await takers.start(owner, "crowd")
        await takers.start("f", "alone")
        assert "".join(takers.order) == "eabf"
        group.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(20))
async def test_no_slot_is_lost_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    slots = Slots(3)
    held: Counter[str] = Counter()

    async def take(share: str, owner: str, scope: anyio.CancelScope, patience: int) -> None:
        with scope:
            await slots.acquire(share, owner)
            held[owner] += 1
            assert held.total() <= 3
            try:
                for _ in range(patience):
                    await anyio.lowlevel.checkpoint()
            finally:
                held[owner] -= 1
                slots.release(share, owner)

    async with anyio.create_task_group() as group:
        for _ in range(100):
            scope = anyio.CancelScope()
            group.start_soon(take, chance.choice("st"), chance.choice("abc"), scope, chance.randrange(5))
            for _ in range(chance.randrange(3)):
                await anyio.lowlevel.checkpoint()
            if chance.random() < 0.3:
                scope.cancel()
    assert repr(slots) == "<Slots: 3 of 3 free, 0 shares waiting>"
