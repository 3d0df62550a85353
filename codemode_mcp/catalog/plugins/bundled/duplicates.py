"""The guard against repeated identical calls: `tools.duplicates`.

It helps models and programs that repeat themselves; it does not stop hostile ones. Calls count for their owner,
whichever program makes them, since a model that is stuck sends the same program again. Only calls of this process
count, up to `MAX_CALLS` of one owner and `MAX_CALLS_OF_ALL` together; the oldest are forgotten first.

A call counts once by its number within its run, even if a resumed program sends it again.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from codemode_mcp.catalog.plugins.api import DenyCall, HookAnswer, NoteCall, PluginApi, ToolCallEvent
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from codemode_mcp.base.settings import DuplicateSettings, ToolSettings

MAX_OWNERS = 4_096
"""Maximum number of owners. The one whose last call is oldest is forgotten first."""

MAX_CALLS = 10_000
"""Maximum number of remembered calls of one owner."""

MAX_CALLS_OF_ALL = 100_000
"""Maximum number of remembered calls of all owners."""

MAX_WARNED = 1_000
"""Maximum number of remembered warnings of one owner."""

_SHOWN_ID = 12
"""Number of characters of a run's id in a message."""


class _Call(NamedTuple):
    run: str
    number: int
    at: float
    """Monotonic seconds."""


class _Owner(Struct):
    """The calls of one owner.

    Attributes:
        calls: the calls by digest of tool and input, in the order of their last call.
        count: the number of all calls.
        warned: pairs of run and tool for which a warning was given.
    """

    calls: OrderedDict[bytes, list[_Call]] = field(default_factory=OrderedDict)
    count: int = 0
    warned: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict)


class Duplicates:
    """A `before_tool_call` hook that counts the calls of each owner.

    Args:
        settings: returns the current settings.
        clock: monotonic seconds.
    """

    def __init__(self, settings: Callable[[], DuplicateSettings], clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        # The mutable state.
        self._owners: OrderedDict[str, _Owner] = OrderedDict()
        self._count = 0

    def __repr__(self) -> str:
        return f"<Duplicates: {self._count} calls of {len(self._owners)} owners>"

    def __call__(self, event: ToolCallEvent) -> HookAnswer:
        settings = self._settings()
        if settings.action == "off" or event.read_only or event.tool_kind == "code_mode_exec":
            return None
        now, owner = self._clock(), self._owner(event.owner)
        key = _digest(event, within=None if settings.window_seconds else event.run_id)
        known = self._known(owner, key, settings, now)
        if any((each.run, each.number) == (event.run_id, event.call) for each in known):
            return None  # the same call, sent again by a resumed program
        call = _Call(event.run_id, event.call, now)
        if len(known) < settings.max:
            self._remember(owner, key, call)
            return None
        if settings.action == "deny":
            return DenyCall(
                f"{_describe(known, event.run_id, now, settings)} (tools.duplicates); use the earlier results, or "
                "change the arguments"
            )
        known = tuple(known)
        self._remember(owner, key, call)
        if (event.run_id, event.tool_id) in owner.warned:
            return None
        owner.warned[event.run_id, event.tool_id] = None
        if len(owner.warned) > MAX_WARNED:
            owner.warned.popitem(last=False)
        return NoteCall(
            f"{escape_line(event.tool_id)} was called with the same arguments more than {_often(settings.max)}"
            f"{_by_another(known, event.run_id, now, settings)}, and it may not be read-only: each call may have "
            "repeated its effect."
        )

    def _owner(self, name: str) -> _Owner:
        owner = self._owners.get(name)
        if owner is None:
            owner = self._owners[name] = _Owner()
        else:
            self._owners.move_to_end(name)
        return owner

    def _known(self, owner: _Owner, key: bytes, settings: DuplicateSettings, now: float) -> Sequence[_Call]:
        """Return the latest identical calls, at most `settings.max` of them. Forget older ones."""
        known = owner.calls.get(key, [])
        window = settings.window_seconds or math.inf
        while known and (now - known[0].at >= window or len(known) > settings.max):
            known.pop(0)
            self._forget(owner, 1)
        return known

    def _remember(self, owner: _Owner, key: bytes, call: _Call) -> None:
        owner.calls.setdefault(key, []).append(call)
        owner.calls.move_to_end(key)
        owner.count += 1
        self._count += 1
        while owner.count > MAX_CALLS:
            # One call at a time, since all of them may be the same call.
            oldest = next(iter(owner.calls))
            owner.calls[oldest].pop(0)
            if not owner.calls[oldest]:
                del owner.calls[oldest]
            self._forget(owner, 1)
        while len(self._owners) > MAX_OWNERS or (self._count > MAX_CALLS_OF_ALL and len(self._owners) > 1):
            _, forgotten = self._owners.popitem(last=False)
            self._count -= forgotten.count

    def _forget(self, owner: _Owner, calls: int) -> None:
        owner.count -= calls
        self._count -= calls


def _describe(known: Sequence[_Call], run: str, now: float, settings: DuplicateSettings) -> str:
    """Say how often a call was made before, by which program and how long ago."""
    if all(each.run == run for each in known):
        last = _ago(now - known[-1].at)
        return f"this program has made the same call {_often(len(known))} already, the last time {last}"
    return f"the same call was made {_often(len(known))} already{_by_another(known, run, now, settings)}"


def _by_another(known: Sequence[_Call], run: str, now: float, settings: DuplicateSettings) -> str:
    """Name the last other program that made a call; return an empty text if only this one did."""
    others = [each for each in known if each.run != run]
    if not others:
        return ""
    return (
        f" within {settings.window_seconds} s, also by another program of the same user "
        f"({others[-1].run[:_SHOWN_ID]}, {_ago(now - others[-1].at)})"
    )


def _often(times: int) -> str:
    return "once" if times == 1 else f"{times} times"


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s ago" if seconds < 120 else f"{seconds / 60:.0f} min ago"


def _digest(event: ToolCallEvent, *, within: str | None) -> bytes:
    """Return a digest that is equal for calls that differ only in the order of keys, or in defaults that are left out.

    Args:
        within: the run to which counting is limited; None to count calls of all runs.
    """
    text = _NORMALISED.encode([within, event.tool_id, {**event.defaults, **event.input}])
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


_NORMALISED = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def register(api: PluginApi, settings: Callable[[], ToolSettings]) -> None:
    """Register the guard for all calls."""
    api.before_tool_call(Duplicates(lambda: settings().duplicates), tools=("*",))
