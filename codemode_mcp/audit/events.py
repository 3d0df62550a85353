"""What happens, as events that whoever listens is told of (SPEC 9). Pure."""

from __future__ import annotations

import logging
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


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that has happened.

    Attributes:
        time: Unix seconds.
        id: of what it is about: a request, a run (its run id), or a call (`<run id>/<number>`). The events of one thing
            have the same.
        parent: the id of what it belongs to: of a call its run, of a run the request that began it.
        fields: JSON; no secrets, no arguments unless the operator wants them recorded.
    """

    kind: EventKind
    time: float
    id: str
    parent: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


class Auditor:
    """Tells events to whoever listens. With nobody listening it costs a look at a list.

    Listeners are called in the event loop and must not wait; what they raise is logged and does not reach the caller.
    """

    def __init__(self) -> None:
        self._listeners: list[Callable[[Event], None]] = []

    @property
    def listening(self) -> bool:
        """Whether anybody is; what costs something to find out need not be otherwise."""
        return bool(self._listeners)

    def add(self, listener: Callable[[Event], None]) -> None:
        self._listeners.append(listener)

    def remove(self, listener: Callable[[Event], None]) -> None:
        self._listeners.remove(listener)

    def emit(self, event: Event) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:
                log.exception("an event of kind %s could not be recorded", event.kind)
