"""Slots: bounded, fair between owners, nothing lost to cancelling."""

from __future__ import annotations

import random
from collections import Counter

import anyio
import pytest

from codemode_mcp.runs.guests import Slots


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


TURNS = {
    "one owner may have all slots": (3, "a a a a a -a", "aaaa"),
    "with several owners the last slot is for one who has none": (3, "b -b a a a a a b", "baab"),
    "a single slot goes to everybody in turn": (1, "a a a a b b c - - - - - -", "aabcaba"),
    "a cancelled waiter gives up its place": (1, "a b c !b -a", "ac"),
    "a share with many owners takes turns as one": (1, "a@crowd b@crowd c@crowd d@crowd e@x e@x - - - - -", "abeced"),
    "the last slot is for a share that has none": (3, "e@x -e a@crowd b@crowd c@crowd d@crowd f@x", "eabf"),
}


@pytest.mark.parametrize(("number", "steps", "order"), TURNS.values(), ids=TURNS)
async def test_slots_are_taken_in_a_fair_order(number: int, steps: str, order: str) -> None:
    """Steps: an owner, with its share, wants a slot; `-` gives one back, of the latest by default; `!` cancels one."""
    async with anyio.create_task_group() as group:
        takers, scopes = Takers(Slots(number), group), {}
        for step in steps.split():
            owner, _, share = step.lstrip("-!").partition("@")
            if step.startswith("-"):
                await takers.give_back(owner or takers.order[-1])
            elif step.startswith("!"):
                scopes[owner].cancel()
                await anyio.wait_all_tasks_blocked()
            else:
                scopes[owner] = await takers.start(owner, share or "s")
        assert "".join(takers.order) == order
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
