"""The budgets of calls: checked before a call is sent, and counted when it is sent and when it has ended."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from codemode_mcp.audit import sizes
from codemode_mcp.errors import BudgetExceeded, Exceeded
from codemode_mcp.json_text import json_text
from codemode_mcp.policy.budgets import Budgets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from codemode_mcp.calls.context import CallContext
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.policy.budgets import AccountView, Unit
    from codemode_mcp.settings import BudgetSettings

_KEYS: Final[dict[Unit, str]] = {"calls": "calls", "bytes": "bytes", "running_ms": "runningMs"}
_WORDS: Final[dict[Unit, str]] = {"calls": "calls", "bytes": "bytes of results", "running_ms": "ms of running calls"}


class CallBudgets:
    """The budgets of the configuration, applied to calls of MCP servers.

    Args:
        clock: monotonic seconds.
        wall: seconds since the epoch, for messages.
    """

    def __init__(
        self,
        settings: Sequence[BudgetSettings],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._budgets = Budgets(settings)
        self._clock = clock
        self._wall = wall

    def apply(self, settings: Sequence[BudgetSettings]) -> None:
        """Use these budgets from now on."""
        self._budgets.apply(settings)

    def limits(self, entry: Entry) -> bool:
        """Return True if budgets may apply to a tool."""
        return bool(self._budgets.settings) and entry.source == "mcp"

    def check(self, entry: Entry, context: CallContext) -> None:
        """Raise `BudgetExceeded` if the call must not be sent now."""
        found = self._budgets.used_up(context.caller, context.quota_share, entry.source_name, self._clock())
        if found is None:
            return
        opens = datetime.fromtimestamp(self._wall(), UTC) + timedelta(seconds=found.opens_in)
        key = f"tools.budgets.{found.budget.name}.{_KEYS[found.unit]}"
        raise BudgetExceeded(
            f"{entry.path} was not called: the budget {found.budget.name!r} for server {found.server!r} is used up "
            f"({found.used} of {found.limit} {_WORDS[found.unit]} in {found.budget.window_seconds} s). It opens again "
            f"at {opens:%Y-%m-%dT%H:%M:%SZ}, in {round(found.opens_in) or 1} s; do not call this server before that",
            Exceeded(key, found.used, found.limit),
        )

    def use(self, entry: Entry, context: CallContext) -> CallUse | None:
        """Return the use of the budgets by one call; None if no budget can apply to it."""
        return CallUse(self, entry, context, self._clock) if self.limits(entry) else None

    def add(self, entry: Entry, context: CallContext, unit: Unit, amount: int) -> None:
        """Count an amount."""
        self._budgets.add(context.caller, context.quota_share, entry.source_name, self._clock(), unit, amount)

    def views(self) -> list[AccountView]:
        """Return the accounts that have been used in their windows."""
        return self._budgets.views(self._clock())


class CallUse:
    """The use of budgets by one call."""

    __slots__ = ("_budgets", "_clock", "_context", "_counted", "_entry", "_since")

    def __init__(self, budgets: CallBudgets, entry: Entry, context: CallContext, clock: Callable[[], float]) -> None:
        self._budgets = budgets
        self._entry = entry
        self._context = context
        self._clock = clock
        # The mutable state.
        self._counted = False
        self._since: float | None = None
        """The time of the first request, while the call is in flight."""

    def sent(self) -> None:
        """Count the call, right before its first request. Raise `BudgetExceeded` if it must not be sent."""
        if not self._counted:
            self._budgets.check(self._entry, self._context)
            self._budgets.add(self._entry, self._context, "calls", 1)
            self._counted, self._since = True, self._clock()

    def received(self, result: object, text: str | None) -> None:
        """Count a result. `text`: the result as JSON, if the source has sent it."""
        self._budgets.add(self._entry, self._context, "bytes", sizes.size(json_text(result) if text is None else text))

    def ended(self) -> None:
        """Count the time of the call. Further calls do nothing."""
        if self._since is not None:
            milliseconds = math.ceil((self._clock() - self._since) * 1000)
            self._since = None
            self._budgets.add(self._entry, self._context, "running_ms", milliseconds)
