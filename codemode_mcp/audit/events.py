"""Events, and the auditor that reports them to its listeners. Pure."""

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
    "taken_over",
    "left",
    "run_ended",
    "answered",
]
"""`exec` and `wait`: a request has come; `answered`: it has got its answer. `call_asked`, `call_decided`: a person is
asked for an approval, and has decided. `taken_over`: this process has taken over a run that another has left; `left`:
another one has taken it over, or will."""

Figures = Literal["store_swept", "store_used"]
"""Measurements for metrics alone: the contents of a store (`suspended`, `oldest`, `size`), and a query of its database
(`seconds`, `failed`)."""

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
        fields: JSON; no arguments and no text of results. Names in it may come from anywhere.
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
    """Reports events to listeners. Without listeners it costs a look at a list.

    Listeners are called in the event loop, in the task of the event, and must not wait; what
    they raise is logged and does not reach the caller.

    Args:
        clock: Unix seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._listeners: tuple[Callable[[Event], None], ...] = ()
        self._meters: tuple[Callable[[Figures, str, Mapping[str, Any]], None], ...] = ()

    @property
    def listening(self) -> bool:
        """Return True if there is a listener; without one, costly fields need not be computed."""
        return bool(self._listeners)

    def add(self, listener: Callable[[Event], None]) -> None:
        self._listeners = (*self._listeners, listener)

    def remove(self, listener: Callable[[Event], None]) -> None:
        self._listeners = tuple(each for each in self._listeners if each != listener)

    @property
    def measuring(self) -> bool:
        """Return True if there is a listener for `Figures`."""
        return bool(self._meters)

    def add_meter(self, meter: Callable[[Figures, str, Mapping[str, Any]], None]) -> None:
        """Add a listener for measurements, called with the measurement, the kind of the store, and figures by name."""
        self._meters = (*self._meters, meter)

    def remove_meter(self, meter: Callable[[Figures, str, Mapping[str, Any]], None]) -> None:
        self._meters = tuple(each for each in self._meters if each != meter)

    def measure(self, what: Figures, kind: str, **figures: Any) -> None:
        """Tell what was measured of a store just now."""
        for meter in self._meters:
            try:
                meter(what, kind, figures)
            except Exception:
                log.exception("%s could not be measured", what)

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
    """Return an id for a request that comes; what clients number is not unique."""
    return "req_" + secrets.token_hex(8)


def call_id(run_id: str, number: int) -> str:
    """Return the id of a nested call in events."""
    return f"{run_id}/{number}"
