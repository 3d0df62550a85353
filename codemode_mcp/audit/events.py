"""Events, their fields, and the auditor that reports them to its listeners. Pure."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct, field

from upstream_clients.redaction import MAX_SECRET

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
    "result_read",
    "tool_switched",
    "server_restarted",
    "item_held",
    "item_accepted",
    "item_rejected",
    "program_proposed",
    "program_accepted",
    "program_rejected",
    "program_removed",
]
"""`exec`, `wait`: a request has arrived. `answered`: a request was answered. `result_read`: a client has asked for a
stored result of its owner as a resource; the id is that of the request. `call_asked`: a person is asked for an
approval. `call_decided`: the approval was decided. `taken_over`: this process has taken over a run from another one.
`left`: another process has taken over a run of this one, or will. `tool_switched`: a person has switched a tool on or
off in the configuration; the id is that of the tool. `server_restarted`: a person has restarted a server; the id is its
name. `item_held`: a tool, or another item that a server lists, is held until a person accepts it. `item_accepted`,
`item_rejected`: a person has decided about an item. The id of these three events is the item, such as
`github.create_issue`. `program_proposed`: a program has proposed to be saved; the parent is its run.
`program_accepted`, `program_rejected`, `program_removed`: a person has decided about a proposal, about changed
definitions of the tools of a saved program, or about its file. The id of these four events is `programs.<name>`."""

ITEM_EVENTS: Final[frozenset[EventKind]] = frozenset({"item_held", "item_accepted", "item_rejected"})
"""Events whose id has a name that a server has chosen."""

Figures = Literal["store_swept", "store_used"]
"""Measurements for metrics: the contents of a store (`suspended`, `oldest`, `size`), or a query of its database
(`seconds`, `failed`)."""

Watcher: TypeAlias = "Callable[[EventKind, str, str | None], None]"
"""A function that gets the kind, the id and the parent of an event."""

Scope: TypeAlias = "Callable[[str], AbstractContextManager[object]]"
"""A function that gets the id of a run or call, as in events, and returns a context for a part of the work on it."""

MAX_NAME = 200
"""Maximum characters of a recorded name that a program, a client or a server has chosen."""

_MAX_UNREDACTED = MAX_NAME + MAX_SECRET

_NO_SCOPE: Final = nullcontext()


def name_to_record(name: str) -> str:
    """Return a name for an event. A recorder replaces secrets in it before it cuts the name to `MAX_NAME`."""
    return name[:_MAX_UNREDACTED]


class Event(Struct, frozen=True):
    """One event.

    Attributes:
        time: Unix seconds.
        id: the id of the request, the run (its run id) or the call (`<run id>/<number>`) that it is about.
        parent: the id of the run, for a call; the id of the request that began the run, for a run.
        fields: JSON, without arguments and without text of results. Names in it are untrusted.
        inputs: the source of a program, or the JSON of arguments. Only `redaction.Inputs` may use it, which returns the
            parts that may be recorded.
    """

    kind: EventKind
    time: float
    id: str
    parent: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    inputs: str | None = None


class Auditor:
    """The reporter of events to listeners and watchers. Without both, an event costs almost nothing.

    Listeners get events with all fields. Watchers only learn that an event happened, so that no fields are computed for
    them. Both are called in the event loop, in the task of the event, and must not wait. Their exceptions are logged.

    Args:
        clock: Unix seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._listeners: tuple[Callable[[Event], None], ...] = ()
        self._scopes: dict[Callable[[Event], None], Scope] = {}
        self._watchers: tuple[Watcher, ...] = ()
        self._meters: tuple[Callable[[Figures, str, Mapping[str, Any]], None], ...] = ()

    @property
    def listening(self) -> bool:
        """True if there is a listener. Without one, costly fields need not be computed."""
        return bool(self._listeners)

    def add(self, listener: Callable[[Event], None], scope: Scope | None = None) -> None:
        """Add a listener. `scope`: returns the contexts that `Auditor.scope` opens for this listener."""
        self._listeners = (*self._listeners, listener)
        if scope is not None:
            self._scopes[listener] = scope

    def remove(self, listener: Callable[[Event], None]) -> None:
        self._listeners = tuple(each for each in self._listeners if each != listener)
        self._scopes.pop(listener, None)

    def scope(self, about: str) -> AbstractContextManager[object]:
        """Return a context for a part of the work on a run or call. In it, the span of the run or call is current.

        It is for one `with` statement, which may contain `await`. Such a statement is left in the task that has entered
        it, and after all inner ones. The events of a call cannot enter and leave a context, because the calls of a task
        overlap and end in any order.
        """
        return _together(tuple(self._scopes.values()), about) if self._scopes else _NO_SCOPE

    def watch(self, watcher: Watcher) -> None:
        self._watchers = (*self._watchers, watcher)

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers = tuple(each for each in self._watchers if each != watcher)

    @property
    def measuring(self) -> bool:
        return bool(self._meters)

    def add_meter(self, meter: Callable[[Figures, str, Mapping[str, Any]], None]) -> None:
        """Add a listener for measurements, called with the measurement, the kind of the store, and figures by name."""
        self._meters = (*self._meters, meter)

    def remove_meter(self, meter: Callable[[Figures, str, Mapping[str, Any]], None]) -> None:
        self._meters = tuple(each for each in self._meters if each != meter)

    def measure(self, what: Figures, kind: str, **figures: Any) -> None:
        for meter in self._meters:
            try:
                meter(what, kind, figures)
            except Exception:
                log.exception("%s could not be measured", what)

    def emit(
        self, kind: EventKind, about: str, parent: str | None = None, *, inputs: str | None = None, **fields: Any
    ) -> None:
        """Report an event that has just happened. Fields that are None are left out."""
        self.notice(kind, about, parent)
        if not self._listeners:
            return
        shown = {key: value for key, value in fields.items() if value is not None}
        event = Event(kind, self._clock(), about, parent, shown, inputs)
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                log.exception("an event of kind %s could not be recorded", kind)

    def notice(self, kind: EventKind, about: str, parent: str | None = None) -> None:
        """Report an event to watchers only. Its caller has seen that no listener needs the fields."""
        for watcher in self._watchers:
            try:
                watcher(kind, about, parent)
            except Exception:
                log.exception("an event of kind %s could not be noticed", kind)


@contextmanager
def _together(scopes: tuple[Scope, ...], about: str) -> Iterator[None]:
    with ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(scope(about))
        yield


def request_id() -> str:
    """Return a new id for a request. The ids of clients are not unique."""
    return "req_" + secrets.token_hex(8)


def call_id(run_id: str, number: int) -> str:
    return f"{run_id}/{number}"


# Typed values of the fields of events. The fields may have any type, because any file may be read.


_END_OF_DATES: Final = 253_402_300_800
"""The first second of the year 10000, in Unix seconds. Python has no dates after the year 9999."""


def number(value: Any) -> float | None:
    """Return a number that is a valid time in Unix seconds, or None for any other value."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _END_OF_DATES
    return float(value) if is_number else None


def text(event: Mapping[str, Any], key: str) -> str:
    """Return the string in a field, or an empty string if the field has no string."""
    value = event.get(key)
    return value if isinstance(value, str) else ""


def mapping(event: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the JSON object in a field, or an empty dictionary if the field has no object."""
    value = event.get(key)
    return value if isinstance(value, dict) else {}
