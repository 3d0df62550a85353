"""Writes each state to the ledger that a run, a call or a custody is given, from outside; see `histories`.

Attributes are watched, not the functions that change them: a state that something assigns past the tables is seen too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from codemode_mcp.runs import calls
from codemode_mcp.runs.live_call import LiveCall
from codemode_mcp.runs.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.sandbox.messages import ToolCall
    from tests.crashes.ledger import Ledger


class Watched:
    """An attribute that tells what it is given, before it has it.

    Args:
        tell: takes the object, the value, and whether it is the first one.
    """

    def __init__(self, owner: type, name: str, tell: Callable[[Any, str, bool], None]) -> None:
        self._name = name
        self._slot = owner.__dict__.get(name)
        self._tell = tell

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if self._slot is not None:
            return self._slot.__get__(instance)
        try:
            return instance.__dict__[self._name]
        except KeyError:
            raise AttributeError(self._name) from None

    def __set__(self, instance: Any, value: str) -> None:
        self._tell(instance, value, not hasattr(instance, self._name))
        if self._slot is not None:
            self._slot.__set__(instance, value)
        else:
            instance.__dict__[self._name] = value


def watch_states(ledger: Ledger) -> None:
    """Write every state down from now on, in this process."""
    calls_of: Run | None = None
    inner = calls._live_call

    def live_call(run: Run, *arguments: Any) -> LiveCall:
        nonlocal calls_of
        calls_of = run
        return inner(run, *arguments)

    def tell_run(run: Run, value: str, new: bool) -> None:
        ledger.write(what="run", life=id(run), run=run.id, state=value, new=new)

    def tell_custody(run: Run, value: str, new: bool) -> None:
        ledger.write(what="custody", life=id(run), run=run.id, state=value, new=new)

    def tell_call(live: LiveCall, value: str, new: bool) -> None:
        line: dict[str, Any] = {"what": "call", "life": id(live), "state": value, "new": new}
        if new:
            assert calls_of is not None
            line |= {"of": id(calls_of), "call": live.call.id, "key": _key(live.call)}
            line |= {"repeatable": live.record.repeatable}
        else:
            line |= {"recorded": live.recorded, "executor": live.executor}
        ledger.write(**line)

    calls._live_call = live_call
    for owner, name, tell in (
        (Run, "custody", tell_custody),
        (Run, "state", tell_run),
        (LiveCall, "state", tell_call),
    ):
        setattr(owner, name, Watched(owner, name, tell))


def _key(call: ToolCall) -> str:
    """Return the key that a program has given to a call; empty where nothing is known of its arguments."""
    if not isinstance(call.input, str):
        return ""
    key: str = json.loads(call.input).get("key", "")
    return key
