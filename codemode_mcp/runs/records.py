"""The record of a suspended run as JSON text, and back. `call_records` has its calls. The snapshot is stored
separately.

Times are seconds since the epoch in a text, and monotonic seconds in a run. Functions that convert them take the
current time on both clocks: `now` in monotonic seconds, `wall` in seconds since the epoch. A text that does not have
the exact form is rejected with `snapshot_restore_failed`.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import msgspec

from codemode_mcp.calls.context import Counts
from codemode_mcp.policy.callers import Caller
from codemode_mcp.program.stored_positions import PositionsForm, positions_form, positions_in
from codemode_mcp.runs.call_records import CompletionForm, completion_form, completion_in
from codemode_mcp.runs.record_parts import (
    FORMAT,
    CallerKind,
    CallForm,
    call_form,
    call_record_of,
    check_outputs,
    not_restorable,
    read_stored,
    stored_text,
)
from codemode_mcp.runs.run import RECENT_CALLS, Run, SettledQueue
from codemode_mcp.runs.store import is_bearer
from codemode_mcp.sandbox.messages import Answered, RequestMessage, message_of
from codemode_mcp.strict_json import (
    Form,
    Integer,
    Number,
    ascii_json,
    convert_versioned,
    first_element,
    form_from,
    parse_json,
    rejecting_damage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from codemode_mcp.calls.context import CallContext
    from codemode_mcp.calls.outcome import CallRecord
    from codemode_mcp.runs.views import Ledger


class _Caller(Form, omit_defaults=True):
    """The caller of a run.

    The last two fields were added later. They are written only if they restrict the run: an earlier version, which does
    not know the restriction, rejects such a record.
    """

    kind: CallerKind
    principal: str | None
    groups: list[str]
    read_only: bool = False
    context: str | None = None


class _Head(Form):
    """The part of a record that is needed before the `Run` can be made."""

    run: str
    caller: _Caller
    counts: tuple[Integer, Integer, Integer, Integer]
    namespaces: list[str]
    memory_limit: Integer


class _Rest(Form):
    """The other part of a record.

    Attributes:
        printed: the number of all outputs. The outputs themselves are stored separately.
        untold: the number of outputs that no answer has contained yet.
        timers: for each timer its id, the time at which it is due, and the time at which it was set.
        notes: notes that no answer has contained yet.
        noted: all notes so far, so that none is given twice.
        programs: the calls of saved programs that have begun in the guest, if there are any.
    """

    began: Number
    positions: PositionsForm | None
    printed: Integer
    untold: Integer
    dropped: Integer
    timers: list[tuple[Integer, Number, Number]]
    timer_was_last: bool
    yields: list[Integer]
    yield_reason: str | None
    asked: list[RequestMessage]
    settled: list[CompletionForm]
    last_call: Integer
    refused: Integer
    looking_up: Number
    recent: list[CallForm]
    total: Integer
    waits: Integer
    snapshots: Integer
    notes: list[str]
    noted: list[str]
    approved: list[str]
    denied: Integer
    approval_secret: str
    questions: Integer
    turned_down: Integer
    programs: list[CallForm] | msgspec.UnsetType = msgspec.UNSET


_SAME_IN_RUN = (
    *("dropped", "timer_was_last", "yields", "yield_reason", "last_call", "refused", "looking_up", "waits"),
    "snapshots",
)
"""Fields of `_Rest` whose names and values are those of attributes of `Run`."""


def record_of(run: Run, *, now: float, wall: float, reports_output: bool = False) -> str:
    """Return everything that a later process needs of a run, except its snapshot, catalog, calls and outputs.

    For its calls, see `call_records.calls_of`; for its outputs, see `printed_of`.

    Args:
        reports_output: True if the answer to the open request contains the latest outputs and notes.
    """
    caller = run.context.caller
    approved, denied, secret = run.approvals.state
    questions, turned_down = run.questions.state
    notes, noted = run.notes
    head = _Head(
        run=run.id,
        caller=_Caller(caller.kind, caller.principal, sorted(caller.groups), caller.read_only, caller.context),
        counts=astuple(run.context.counts),
        namespaces=list(run.namespaces.ids),
        memory_limit=run.memory_limit,
    )
    rest = form_from(
        _Rest,
        run,
        began=run.began - now + wall,
        positions=None if run.positions is None else positions_form(run.positions),
        printed=len(run.history),
        untold=0 if reports_output else len(run.outputs),
        timers=[
            (timer, due - now + wall, run.timers_began.get(timer, now) - now + wall)
            for timer, due in run.timers.items()
        ],
        asked=[message_of(each) for each in run.requests],
        settled=[completion_form(each) for each in run.settled if not each.of_call],
        recent=[call_form(record, run.began) for record in run.recent],
        total=run.track.total,
        notes=[] if reports_output else list(notes),
        noted=sorted(noted),
        approved=sorted(approved),
        denied=denied,
        approval_secret=secret,
        questions=questions,
        turned_down=turned_down,
        programs=[call_form(record, run.began) for record in run.programs.records] or msgspec.UNSET,
    )
    return f"[{stored_text(head)},{ascii_json(rest)}]"


def printed_of(run: Run) -> str:
    """Return the outputs of a run that a store does not have yet, as text; empty if there are none.

    Raises:
        ProgramError: `snapshot_limit_exceeded`: an output is nested too deep.
    """
    new = run.history[run.stored_outputs :]
    return ascii_json(new) if new else ""


def caller_in(record: str, owner: str) -> Caller:
    """Return the caller of a run, as it was known when the run began.

    Args:
        owner: the owner of the run.

    Raises:
        ProgramError: `snapshot_restore_failed`.
    """
    caller = _head(record).caller
    return Caller(
        None if is_bearer(owner) else owner,
        caller.kind,
        caller.principal,
        frozenset(caller.groups),
        read_only=caller.read_only,
        context=caller.context,
    )


def counts_in(record: str) -> Counts:
    """Return the counts of a run's requests. Raises as `caller_in`."""
    return Counts(*_head(record).counts)


def programs_in(record: str, run: Run) -> list[CallRecord]:
    """Return the calls of saved programs that had begun in the guest of a restored run. Raises as `caller_in`."""
    with rejecting_damage(not_restorable):
        forms = msgspec.convert(parse_json(record)[1], _Rest).programs
        if forms is msgspec.UNSET:
            return []
        recent = {each.id: each for each in run.recent}  # which answers list, until they have ended
        return [recent.get(each.id) or call_record_of(each, run.began) for each in forms]


def memory_limit_in(record: str) -> int:
    """Return the memory limit of a run so far, in bytes. Raises as `caller_in`."""
    return _head(record).memory_limit


def _head(record: str) -> _Head:
    return read_stored(record, _Head, first_element)


def restore(
    record: str,
    *,
    printed: Iterable[str],
    context: CallContext,
    manifest: str,
    now: float,
    wall: float,
    ledger: Ledger | None = None,
    remember: Callable[[Run, Collection[str]], None] | None = None,
) -> Run:
    """Return the run of a record, suspended, without its calls, its namespaces and its guest.

    Args:
        printed: the texts of `printed_of`, in order.

    Raises:
        ProgramError: `snapshot_restore_failed`.
    """
    with rejecting_damage(not_restorable):
        first, second = parse_json(record)
        head, rest = convert_versioned(first, _Head, FORMAT, not_restorable), msgspec.convert(second, _Rest)
        if head.run != context.run_id:
            raise not_restorable("its record is that of another program")
        # The run began before now, even if the clock was set back since.
        began = min(rest.began - wall, 0.0) + now
        run = Run(context, manifest, began, ledger, remember, memory_limit=head.memory_limit)
        run.advance("suspend")
        for name in _SAME_IN_RUN:
            setattr(run, name, getattr(rest, name))
        run.positions = None if rest.positions is None else positions_in(rest.positions)
        for each in printed:
            run.history += check_outputs(msgspec.convert(parse_json(each), list[dict[str, Any]]))
        run.stored_outputs = rest.printed
        if run.stored_outputs != len(run.history):
            raise not_restorable("some of its output is missing")
        if not 0 <= rest.untold <= len(run.history):
            raise ValueError
        run.outputs = run.history[len(run.history) - rest.untold :]
        for timer, due, since in rest.timers:
            # A timer was set before now, too. If the clock was set back, its due time moves with it.
            back = max(0.0, since - wall)
            run.timers[timer], run.timers_began[timer] = due - back - wall + now, since - back - wall + now
        run.timer_heap = [(due, timer) for timer, due in run.timers.items()]
        heapq.heapify(run.timer_heap)
        run.requests = deque(map(_request, rest.asked))
        run.settled = SettledQueue(map(completion_in, rest.settled))
        recent = [call_record_of(each, run.began) for each in rest.recent]
        run.recent = deque(recent, maxlen=RECENT_CALLS)
        run.track.restore(rest.total, recent)
        run.restore_notes(rest.notes, rest.noted)
        run.approvals.restore(rest.approved, rest.denied, rest.approval_secret)
        run.questions.restore(rest.questions, rest.turned_down)
        return run


# forms


def _request(message: RequestMessage) -> Answered:
    if not isinstance(message, Answered):
        raise TypeError
    return message
