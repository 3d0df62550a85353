"""Budgets: how much each caller may use each server in a window of time. Pure: the time is an argument.

Each budget has an account for each pair of a caller and a server. An account counts calls, bytes of results, and
milliseconds in which calls were in flight. A call is counted when it is sent. Bytes and time are known only at its end,
so the calls in flight may exceed these two.

The window is divided into slots, and an account has one sum for each. It counts the current slot and the `SLOTS` slots
before it, so that no interval of the length of the window can have more than the budget. In return, a budget may open
again up to one slot late.

Accounts are in the memory of one process. They begin at zero with each process, and processes do not share them.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from codemode_mcp.rules.policy.policy import Caller, is_among
from codemode_mcp.rules.policy.rule_patterns import glob_pattern

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from codemode_mcp.base.settings import BudgetSettings

Unit = Literal["calls", "bytes", "running_ms"]

SLOTS: Final = 60
"""Number of slots in a window."""

MAX_ACCOUNTS: Final = 10_000
"""Maximum number of accounts of one budget. The one that was used longest ago is forgotten first."""

MIN_SECONDS: Final = 0.001
"""Shortest time until a budget that is used up opens again."""

_UNITS: Final[tuple[Unit, ...]] = ("calls", "bytes", "running_ms")


class UsedUp(Struct, frozen=True):
    """The reason why a call does not fit into a budget.

    Attributes:
        used: the amount in the window, in the unit of the limit.
        opens_in: seconds until the amount is below the limit, if nothing else is used.
    """

    budget: BudgetSettings
    server: str
    unit: Unit
    used: int
    limit: int
    opens_in: float


class AccountView(Struct, frozen=True):
    """The amounts of one account in the window, for people."""

    budget: BudgetSettings
    caller: str
    server: str
    used: dict[Unit, int]


class _Account:
    """The use of one server by one caller."""

    __slots__ = ("_slots", "_totals")

    def __init__(self) -> None:
        self._slots: deque[tuple[int, dict[Unit, int]]] = deque()
        self._totals: dict[Unit, int] = dict.fromkeys(_UNITS, 0)

    def totals(self, slot: int) -> dict[Unit, int]:
        """Return the sums of the window that ends with this slot."""
        while self._slots and self._slots[0][0] < slot - SLOTS:
            _, amounts = self._slots.popleft()
            for unit, amount in amounts.items():
                self._totals[unit] -= amount
        return self._totals

    def add(self, slot: int, unit: Unit, amount: int) -> None:
        self.totals(slot)
        # The clock is monotonic, so no slot is older than the last one.
        if not self._slots or self._slots[-1][0] != slot:
            self._slots.append((slot, {}))
        amounts = self._slots[-1][1]
        amounts[unit] = amounts.get(unit, 0) + amount
        self._totals[unit] += amount

    def opening_slot(self, unit: Unit, limit: int) -> int:
        left = self._totals[unit]
        for slot, amounts in self._slots:
            left -= amounts.get(unit, 0)
            if left < limit:
                return slot + SLOTS + 1
        raise AssertionError("an empty window has less than any limit")


class Budgets:
    """The accounts of all budgets."""

    def __init__(self, settings: Sequence[BudgetSettings] = ()) -> None:
        self.settings = tuple(settings)
        self._accounts: dict[BudgetSettings, OrderedDict[tuple[str, str], _Account]] = {
            each: OrderedDict() for each in self.settings
        }

    def apply(self, settings: Sequence[BudgetSettings]) -> None:
        """Use these budgets from now on. A budget with the same name and window keeps its accounts."""
        before = {(each.name, each.window_seconds): accounts for each, accounts in self._accounts.items()}
        self.settings = tuple(settings)
        self._accounts = {each: before.get((each.name, each.window_seconds)) or OrderedDict() for each in self.settings}

    def used_up(self, caller: Caller, share: str, server: str, now: float) -> UsedUp | None:
        """Return why a call does not fit; None if it may be sent. The budget that opens last is named.

        Args:
            share: the holder of the accounts: the owner, or the address of an unknown caller.
            now: monotonic seconds.
        """
        found: UsedUp | None = None
        for budget in self._applicable(caller, server):
            account = self._accounts[budget].get((share, server))
            if account is None:
                continue
            totals = account.totals(_slot(budget, now))
            for unit in _UNITS:
                limit: int | None = getattr(budget, unit)
                if limit is None or totals[unit] < limit:
                    continue
                opens_in = account.opening_slot(unit, limit) * budget.window_seconds / SLOTS - now
                # A time right before the slot may be rounded to its beginning.
                opens_in = max(opens_in, MIN_SECONDS)
                if found is None or opens_in > found.opens_in:
                    found = UsedUp(budget, server, unit, totals[unit], limit, opens_in)
        return found

    def add(self, caller: Caller, share: str, server: str, now: float, unit: Unit, amount: int) -> None:
        for budget in self._applicable(caller, server):
            accounts = self._accounts[budget]
            account = accounts.setdefault((share, server), _Account())
            accounts.move_to_end((share, server))
            if len(accounts) > MAX_ACCOUNTS:
                accounts.popitem(last=False)
            account.add(_slot(budget, now), unit, amount)

    def views(self, now: float) -> list[AccountView]:
        """Return the accounts that have been used in their windows."""
        return [
            AccountView(budget, share, server, dict(totals))
            for budget, accounts in self._accounts.items()
            for (share, server), account in accounts.items()
            if any((totals := account.totals(_slot(budget, now))).values())
        ]

    def _applicable(self, caller: Caller, server: str) -> Iterator[BudgetSettings]:
        for budget in self.settings:
            if glob_pattern(budget.server).fullmatch(server) is not None and (
                not budget.callers or is_among(caller, budget.callers)
            ):
                yield budget


def _slot(budget: BudgetSettings, now: float) -> int:
    """Return the number of the slot at a time. Multiplied first, so that whole seconds are exact."""
    return math.floor(now * SLOTS / budget.window_seconds)
