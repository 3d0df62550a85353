"""Instruments put around the product from outside, in a process under test; there is nothing of this in it.

- Points at which a process can be killed.
- States: each state that a run, a call or a custody is given is written to the ledger; see `histories`. Attributes are
  watched, not the functions that change them: a state that something assigns past the tables is seen too.
- Ways in which the product is broken on purpose: what looks for broken promises has to find these."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from codemode_mcp.runs import persisting, records, run_calls
from codemode_mcp.runs.live_call import LiveCall
from codemode_mcp.runs.run import Run
from codemode_mcp.sandbox.messages import ToolCall
from codemode_mcp.stores import runs, suspending
from codemode_mcp.stores.sqlite import ProcessLock
from tests.faults.servers.ledger import Ledger

WORKS = ("suspend", "checkpoint", "claim", "dispatching", "note_task", "settle", "end", "release", "news_of")
"""The requests to a store, by their purpose."""

NAMES = (
    *(*(f"{when}:{work}" for work in WORKS for when in ("before", "in", "after")), "before:act", "after:act"),
    *("answered:act", "before:snapshot", "after:snapshot", "before:restore", "after:restore", "before:turn"),
    *("after:turn", "before:answer", "after:answer"),
)

_NAMES = {"write_run": "suspend"}


class Points:
    """Counts how often each point is passed, and kills this process at one of them.

    Args:
        name: of the point to be killed at; empty for none.
        count: at which passing.
    """

    def __init__(self, name: str = "", count: int = 1) -> None:
        self._name = name
        self._count = count
        self._lock = threading.Lock()
        self.passed: Counter[str] = Counter()

    def pass_by(self, name: str) -> None:
        with self._lock:
            self.passed[name] += 1
            if name == self._name and self.passed[name] >= self._count:
                os.kill(os.getpid(), signal.SIGKILL)

    async def around_execute(
        self, execute: Callable[[Any], Awaitable[Any]], work: Callable[[], Generator[Any, Any, Any]]
    ) -> Any:
        """A piece of work with points before it, between the things it asks for, and when it is done."""
        kind = ""

        def watched() -> Generator[Any, Any, Any]:
            nonlocal kind
            going = work()
            kind = kind_of(going)
            self.pass_by(f"before:{kind}")
            answer: Any = None
            while True:
                try:
                    asked = going.send(answer)
                except StopIteration as end:
                    return end.value
                answer = yield asked
                self.pass_by(f"in:{kind}")

        result = await execute(watched)
        self.pass_by(f"after:{kind}")
        return result


def kind_of(work: Any) -> str:
    """Return the name of a generator in `WORKS`, or its own name."""
    name: str = work.gi_code.co_name.strip("_")
    if name == "write_run" and not work.gi_frame.f_locals["write"].releases:
        return "checkpoint"
    return _NAMES.get(name, name)


def wrap(owner: Any, name: str, points: Points, what: str) -> None:
    """Points before and after a function of a class, that does not wait."""
    inner = getattr(owner, name)

    def outer(*args: Any, **kwargs: Any) -> Any:
        points.pass_by(f"before:{what}")
        result = inner(*args, **kwargs)
        points.pass_by(f"after:{what}")
        return result

    setattr(owner, name, outer)


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
    inner = run_calls._live_call

    def live_call(run: Run, *arguments: Any) -> LiveCall:
        live = inner(run, *arguments)  # a struct, whose first members are set without its attributes
        made = {"of": id(run), "call": live.call.id, "key": _key(live.call), "repeatable": live.record.repeatable}
        ledger.write(what="call", life=id(live), state=live.state, new=True, **made)
        return live

    def tell_run(run: Run, value: str, new: bool) -> None:
        ledger.write(what="run", life=id(run), run=run.id, state=value, new=new)

    def tell_custody(run: Run, value: str, new: bool) -> None:
        ledger.write(what="custody", life=id(run), run=run.id, state=value, new=new)

    def tell_call(live: LiveCall, value: str, _: bool) -> None:
        about = {"recorded": live.recorded, "executor": live.executor}
        ledger.write(what="call", life=id(live), state=value, new=False, **about)

    run_calls._live_call = live_call
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


def _dispatching() -> None:
    """Send a call without recording it."""

    async def dispatching(self: runs.DurableStore, run_id: str, call: int) -> bool:
        return True

    runs.DurableStore.dispatching = dispatching  # type: ignore[method-assign]


def _checkpoint() -> None:
    """Calls are sent of which the store has no trace."""
    _dispatching()

    async def checkpoint(self: runs.DurableStore, run: Any) -> None:
        pass

    runs.DurableStore.checkpoint = checkpoint  # type: ignore[method-assign]


def _claims() -> None:
    """Give a run to every process that claims it, and let its holder continue."""
    ProcessLock.alive = lambda self, processes: frozenset((self.process,)) & processes  # type: ignore[method-assign]
    for module, name in ((suspending, "write_run"), (suspending, "end")):
        inner = getattr(module, name)

        def unfenced(*args: Any, inner: Any = inner) -> Generator[Any, Any, Any]:
            going = inner(*args)
            answer: Any = None
            while True:
                try:
                    asked = going.send(answer)
                except StopIteration as end:
                    return end.value
                answer = yield asked
                if getattr(asked, "sql", "").startswith("SELECT state, token FROM runs"):
                    own = args[0].token if inner.__name__ == "write_run" else args[2]
                    answer = [("waiting", 1 if own is None else own) for _ in answer]

        unfenced.__name__ = name
        setattr(module, name, unfenced)


def _told() -> None:
    """Repeat the outputs of an answer in the next one, if another process gives that."""

    def untold(run: Run, *, now: float, wall: float, told: bool = False) -> str:
        return records.record_of(run, now=now, wall=wall, reports_output=False)

    setattr(persisting, "record_of", untold)  # noqa: B010 - it is imported there, and not of its own


def _end() -> None:
    """The end of a run is not kept."""

    async def end(self: runs.DurableStore, run: Any) -> None:
        await self.release(run.id, run.owner)

    runs.DurableStore.end = end  # type: ignore[method-assign]


def _permission() -> None:
    """A call may always be sent."""

    def may_send(*_: object, **__: object) -> str:
        return "send"

    for module in (run_calls, persisting):
        setattr(module, "may_send", may_send)  # noqa: B010 - it is imported there, and not of its own


def _states() -> None:
    """A call that is decided is taken for claimed, past the table."""

    def admit(self: LiveCall) -> None:
        if self.state == "queued":
            self.state = "sending"

    LiveCall.admit = admit  # type: ignore[method-assign]


def _task() -> None:
    """The task of a call is not recorded."""

    async def note_task(self: runs.DurableStore, run_id: str, call: int, task: str) -> bool:
        return True

    runs.DurableStore.note_task = note_task  # type: ignore[method-assign]


WAYS = {
    "dispatching": _dispatching,
    "checkpoint": _checkpoint,
    "claims": _claims,
    "told": _told,
    "end": _end,
    "permission": _permission,
    "states": _states,
    "task": _task,
}


def sabotage(way: str) -> None:
    """Break the product in one way; none if it is empty."""
    if way:
        WAYS[way]()
