"""Points at which a process can be killed, put around the product from outside; there is nothing of this in it."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

WORKS = ("suspend", "checkpoint", "claim", "dispatching", "note_task", "settle", "end", "release", "news_of")
"""The requests to a store, by their purpose."""

NAMES = (
    *(f"{when}:{work}" for work in WORKS for when in ("before", "in", "after")),
    "before:act",
    "after:act",
    "answered:act",
    "before:snapshot",
    "after:snapshot",
    "before:restore",
    "after:restore",
    "before:turn",
    "after:turn",
    "before:answer",
    "after:answer",
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
