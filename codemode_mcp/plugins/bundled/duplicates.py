"""The guard against programs that make the same call again and again: `tools.duplicates` (SPEC 6).

It is for programs that go round in circles, not against hostile ones: of a run it remembers the latest `MAX_CALLS`
different calls.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from codemode_mcp.entries import within_line
from codemode_mcp.plugins.api import DenyCall, NoteCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.plugins.api import HookAnswer, PluginApi, ToolCallEvent
    from codemode_mcp.settings import DuplicateSettings

MAX_RUNS = 4_096
"""Remembered at once; those that have made no call for longest are forgotten first."""

MAX_CALLS = 10_000
"""Different calls of one run that are remembered."""

MAX_CALLS_OF_ALL = 200_000


@dataclass(slots=True)
class _Made:
    """What one run has called.

    Attributes:
        counts: by digest of tool and input, the one made last at the end.
        warned: the tools that its reader has been told of.
    """

    counts: OrderedDict[bytes, int] = field(default_factory=OrderedDict)
    warned: set[str] = field(default_factory=set)


class Duplicates:
    """A `before_tool_call` hook that counts the calls of each run.

    Args:
        settings: the newest.
    """

    def __init__(self, settings: Callable[[], DuplicateSettings]) -> None:
        self._settings = settings
        # The mutable state.
        self._runs: OrderedDict[str, _Made] = OrderedDict()
        self._count = 0

    def __repr__(self) -> str:
        return f"<Duplicates: {self._count} calls of {len(self._runs)} runs>"

    async def __call__(self, event: ToolCallEvent) -> HookAnswer:
        settings = self._settings()
        if settings.action == "off" or event.read_only or event.tool_kind == "code_mode_exec":
            return None
        made = self._made(event.run_id)
        call = _digest(event)
        times = made.counts.pop(call, 0) + 1
        made.counts[call] = times
        if times == 1:
            self._count += 1
            self._forget(made)
        if times <= settings.max:
            return None
        before = "once" if settings.max == 1 else f"{settings.max} times"
        if settings.action == "deny":
            return DenyCall(
                f"this program has made the very same call {before} already (tools.duplicates); use the results of "
                "these, or change the arguments"
            )
        if event.tool_id in made.warned:
            return None
        made.warned.add(event.tool_id)
        return NoteCall(
            f"{within_line(event.tool_id)} was called with the very same arguments more than {before}, and it may not "
            "be read-only: each call may have had its effect again."
        )

    def _made(self, run_id: str) -> _Made:
        made = self._runs.get(run_id)
        if made is None:
            made = self._runs[run_id] = _Made()
        else:
            self._runs.move_to_end(run_id)
        return made

    def _forget(self, made: _Made) -> None:
        """Keep to the bounds after `made`, which is the latest run's, has got one more."""
        if len(made.counts) > MAX_CALLS:
            made.counts.popitem(last=False)
            self._count -= 1
        while len(self._runs) > MAX_RUNS or (self._count > MAX_CALLS_OF_ALL and len(self._runs) > 1):
            _, oldest = self._runs.popitem(last=False)
            self._count -= len(oldest.counts)


def _digest(event: ToolCallEvent) -> bytes:
    """The same for calls that differ in the order of keys alone. Defaults are filled in already."""
    text = _NORMALISED.encode([event.tool_id, event.input])
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


_NORMALISED = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def register(api: PluginApi, settings: Callable[[], DuplicateSettings]) -> None:
    """Add the guard; it sees every call."""
    api.before_tool_call(Duplicates(settings), tools=("*",))
