"""Breaks the product on purpose, in one process under test: what looks for broken promises has to find these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from codemode_mcp.runs import calls, persisting, records
from codemode_mcp.runs.live_call import LiveCall
from codemode_mcp.stores import runs, suspending
from codemode_mcp.stores.sqlite import ProcessLock

if TYPE_CHECKING:
    from collections.abc import Generator

    from codemode_mcp.runs.run import Run


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

    for module in (calls, persisting):
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


def apply(way: str) -> None:
    if way:
        WAYS[way]()
