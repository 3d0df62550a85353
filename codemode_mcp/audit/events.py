"""What happens, as events that whoever listens is told of (SPEC 9). Pure."""

from __future__ import annotations

import logging
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger("codemode_mcp.audit")

EventKind = Literal[
    "exec",
    "wait",
    "run_started",
    "call_started",
    "call_asked",
    "call_decided",
    "call_ended",
    "parked",
    "restored",
    "run_ended",
    "answered",
]
"""`exec` and `wait`: a request has come; `answered`: it has got its answer. `call_asked`, `call_decided`: a person is
asked for an approval, and has decided."""

MAX_NAME = 200
"""Characters of a name that a program or a client may have made up."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that has happened.

    Attributes:
        time: Unix seconds.
        id: of what it is about: a request, a run (its run id), or a call (`<run id>/<number>`). The events of one thing
            have the same.
        parent: the id of what it belongs to: of a call its run, of a run the request that began it.
        fields: JSON; no arguments and no text of results. Names in it may be of anybody's making.
        inputs: as they came, the source of a program or the JSON of arguments: for `redaction.Inputs` alone, which
            makes of it what may be recorded.
    """

    kind: EventKind
    time: float
    id: str
    parent: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    inputs: str | None = None


class Auditor:
    """Tells events to whoever listens. With nobody listening it costs a look at a list.

    Listeners are called in the event loop, in the task that what they are told of happens in, and must not wait; what
    they raise is logged and does not reach the caller.

    Args:
        clock: Unix seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._listeners: tuple[Callable[[Event], None], ...] = ()

    @property
    def listening(self) -> bool:
        """Whether anybody is; what costs something to find out need not be otherwise."""
        return bool(self._listeners)

    def add(self, listener: Callable[[Event], None]) -> None:
        self._listeners = (*self._listeners, listener)

    def remove(self, listener: Callable[[Event], None]) -> None:
        self._listeners = tuple(each for each in self._listeners if each != listener)

    def emit(
        self, kind: EventKind, about: str, parent: str | None = None, *, inputs: str | None = None, **fields: Any
    ) -> None:
        """Tell of something that has happened just now. Fields that are None are left out."""
        if not self._listeners:
            return
        shown = {key: value for key, value in fields.items() if value is not None}
        event = Event(kind, self._clock(), about, parent, shown, inputs)
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                log.exception("an event of kind %s could not be recorded", kind)


def request_id() -> str:
    """An id for a request that comes; what clients number is not unique."""
    return "req_" + secrets.token_hex(8)


def call_id(run_id: str, number: int) -> str:
    """The id of a nested call in events."""
    return f"{run_id}/{number}"
