"""The record of a suspended run as JSON text, and back. `records` has its calls. The snapshot is stored
separately.

Times are seconds since the epoch in a text, and monotonic seconds in a run. Functions that convert them take the
current time on both clocks: `now` in monotonic seconds, `wall` in seconds since the epoch. A text that does not have
the exact form is rejected with `snapshot_restore_failed`.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import astuple

from codemode_mcp.base import strict_json
from codemode_mcp.base.errors import ProgramError
from codemode_mcp.program.positions import Positions
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.runs import end_records
from codemode_mcp.runs.calls.outcome import CallContext, CallRecord, Counts, MadeCall, stored_outcome
from codemode_mcp.runs.live_call import LiveCall, is_program
from codemode_mcp.runs.run import RECENT_CALLS, Run, SettledQueue
from codemode_mcp.runs.store import Executor, StoredCall, StoredStatus, is_bearer
from codemode_mcp.runs.views import Ledger, added
from codemode_mcp.sandbox import messages
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from codemode_mcp.runs.namespaces import OpenNamespaces


# The calls of a stored run as JSON text, and back: calls in flight, and completions that are not delivered yet.
#
# Times are as in `records`. A text that does not have the exact form is rejected with `snapshot_restore_failed`.


class _PendingCall(strict_json.Form):
    """The form of a call that has not ended. `request` is None if the call must not be sent again."""

    began: strict_json.Number
    path: str
    digest: str
    request: messages.RequestMessage | None


class _StoredTask(strict_json.Form):
    """The form of the task of a call. `request` is the request of the program, for middleware of plugins."""

    handle: str
    request: messages.RequestMessage


class CompletionForm(strict_json.Form):
    """The form of a `Completion`. The parts of an error are its message, name, code and data."""

    id: strict_json.Integer
    value: str
    error: tuple[str, str, str, str] | None
    call: bool


def calls_of(run: Run, *, now: float, wall: float) -> tuple[StoredCall, ...]:
    """Return every call whose end is not delivered to the program yet, with its end if it has ended.

    Texts that the store already has are left out, because they may be large.
    """
    ended = [
        StoredCall(
            each.id,
            run.track.tool(each.id),
            "settled",
            repeatable=not run.made.has_undelivered(each.id),
            result=None if each.id in run.stored_ends else completion_text(each),
        )
        for each in run.settled
        if each.of_call
    ]
    return (*ended, *(_stored(live, now, wall) for live in run.calls.values()))


def _stored(live: LiveCall, now: float, wall: float) -> StoredCall:
    call, record = live.call, live.record
    status: StoredStatus = "dispatched" if record.dispatched else "queued"
    executor: Executor = live.executor
    if live.recorded:
        return StoredCall(call.id, record.tool, status, record.repeatable, executor=executor)
    # A call that must not be sent again is stored without its request.
    sent = record.dispatched and not record.repeatable
    asked = call if call.through is None or call.through.request is None else call.through.request
    body = _PendingCall(
        record.began - now + wall, record.path, digest(call), None if sent else messages.message_of(asked)
    )
    text, task = end_records.stored_text(body), task_text(live)
    return StoredCall(call.id, record.tool, status, record.repeatable, text, executor=executor, task=task)


def task_text(live: LiveCall) -> str:
    return end_records.stored_text(_StoredTask(live.task, messages.message_of(live.call))) if live.task else ""


def task_of(stored: StoredCall) -> tuple[messages.ToolCall, str]:
    """Return a call whose task has to be followed, and the handle of the task. Raises as `call_of`."""
    with strict_json.rejecting_damage(end_records.not_restorable):
        form = end_records.read_stored(stored.task, _StoredTask)
        asked = messages.request_of(form.request)
        if not isinstance(asked, messages.ToolCall) or asked.id != stored.id:
            raise TypeError
        return asked, form.handle


def digest(call: messages.ToolCall) -> str:
    whole = f"{call.target}\0{call.input or ''}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(whole).hexdigest()[:32]


def call_of(stored: StoredCall, namespaces: OpenNamespaces) -> messages.ToolCall:
    """Return the call to send. If it must not be sent, return a call that is refused.

    Raises:
        ProgramError: `snapshot_restore_failed`.
    """
    body = _body(stored)
    if body is not None and body.request is not None:
        with strict_json.rejecting_damage(end_records.not_restorable):
            match asked := messages.request_of(body.request):
                case messages.ToolCall() if asked.id == stored.id:
                    return asked
                case messages.NamespaceCall() if asked.id == stored.id:
                    return namespaces.tool_call(asked)
            raise TypeError
    path = "" if body is None else body.path
    why = f"{escape_line(path or stored.tool)}: the call may have been sent already, and is not sent again"
    return messages.ToolCall(stored.id, stored.tool, count=0, through=messages.Through(path, refusal=why))


def began_of(stored: StoredCall, *, now: float, wall: float) -> float:
    """Return the time of the call in monotonic seconds; `now` if it is unknown. Raises as `call_of`."""
    body = _body(stored)
    return now if body is None else body.began - wall + now


def _body(stored: StoredCall) -> _PendingCall | None:
    return end_records.read_stored(stored.body, _PendingCall) if stored.body else None


def unknown_outcome(stored: StoredCall) -> messages.Completion:
    """Return the end of a call that must not be sent again and whose executor is dead."""
    message = (
        f"{escape_line(stored.tool)}: the process that sent this call ended before the answer arrived, so it is "
        "unknown whether the tool has acted. Find that out before you make the call again"
    )
    data = {"tool": stored.tool, "dispatched": True, "repeatable": stored.repeatable, "outcome": "unknown"}
    return messages.Completion(
        stored.id, error=messages.GuestError(message, name="ToolCallError", data=strict_json.json_text(data))
    )


def made_of_stored(made: tuple[MadeCall, ...] | None, calls: Iterable[StoredCall]) -> tuple[MadeCall, ...] | None:
    """Return the calls of a stored run that may have had effects; None if they are not known.

    Args:
        made: those whose ends the program has received; None if they are not known.
        calls: the other calls.
    """
    sent = [each for each in calls if not each.repeatable and each.status != "queued" and not is_program(each.tool)]
    try:
        outcomes = [
            "outcome unknown" if each.result is None else stored_outcome(completion_of(each.result)) for each in sent
        ]
    except ProgramError:
        return None
    return None if made is None else added(made, zip((each.tool for each in sent), outcomes, strict=True))


def completion_text(completion: messages.Completion) -> str:
    return end_records.stored_text(completion_form(completion))


def completion_of(text: str) -> messages.Completion:
    """Return the completion of a text of `completion_text`. Raises `ProgramError`, `snapshot_restore_failed`."""
    with strict_json.rejecting_damage(end_records.not_restorable):
        return completion_in(end_records.read_stored(text, CompletionForm))


def completion_form(completion: messages.Completion) -> CompletionForm:
    error = None if completion.error is None else astuple(completion.error)
    return CompletionForm(completion.id, completion.value, error, completion.of_call)


def completion_in(form: CompletionForm) -> messages.Completion:
    """Return the completion of a form. Raises `ValueError` if a part is not valid JSON."""
    error = None if form.error is None else messages.GuestError(*form.error)
    for text in (form.value, *(() if error is None else (error.data,))):
        strict_json.parse_json(
            text
        )  # checked here, because it becomes part of messages to the program without being parsed
    return messages.Completion(form.id, form.value, error, form.call)


class _Caller(strict_json.Form, omit_defaults=True):
    """The caller of a run.

    The last two fields were added later. They are written only if they restrict the run: an earlier version, which does
    not know the restriction, rejects such a record.
    """

    kind: end_records.CallerKind
    principal: str | None
    groups: list[str]
    read_only: bool = False
    context: str | None = None


class _Head(strict_json.Form):
    """The part of a record that is needed before the `Run` can be made."""

    run: str
    caller: _Caller
    counts: tuple[strict_json.Integer, strict_json.Integer, strict_json.Integer, strict_json.Integer]
    namespaces: list[str]
    memory_limit: strict_json.Integer


class _Rest(strict_json.Form):
    """The other part of a record.

    Attributes:
        printed: the number of all outputs. The outputs themselves are stored separately.
        untold: the number of outputs that no answer has contained yet.
        timers: for each timer its id, the time at which it is due, and the time at which it was set.
        notes: notes that no answer has contained yet.
        noted: all notes so far, so that none is given twice.
        programs: the calls of saved programs that have begun in the guest, if there are any.
    """

    began: strict_json.Number
    positions: Positions | None
    printed: strict_json.Integer
    untold: strict_json.Integer
    dropped: strict_json.Integer
    timers: list[tuple[strict_json.Integer, strict_json.Number, strict_json.Number]]
    timer_was_last: bool
    yields: list[strict_json.Integer]
    yield_reason: str | None
    asked: list[messages.RequestMessage]
    settled: list[CompletionForm]
    last_call: strict_json.Integer
    refused: strict_json.Integer
    looking_up: strict_json.Number
    recent: list[end_records.CallForm]
    total: strict_json.Integer
    waits: strict_json.Integer
    snapshots: strict_json.Integer
    notes: list[str]
    noted: list[str]
    approved: list[str]
    denied: strict_json.Integer
    approval_secret: str
    questions: strict_json.Integer
    turned_down: strict_json.Integer
    programs: list[end_records.CallForm] | msgspec.UnsetType = msgspec.UNSET


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
    rest = strict_json.form_from(
        _Rest,
        run,
        began=run.began - now + wall,
        printed=len(run.history),
        untold=0 if reports_output else len(run.outputs),
        timers=[
            (timer, due - now + wall, run.timers_began.get(timer, now) - now + wall)
            for timer, due in run.timers.items()
        ],
        asked=[messages.message_of(each) for each in run.requests],
        settled=[completion_form(each) for each in run.settled if not each.of_call],
        recent=[end_records.call_form(record, run.began) for record in run.recent],
        total=run.track.total,
        notes=[] if reports_output else list(notes),
        noted=sorted(noted),
        approved=sorted(approved),
        denied=denied,
        approval_secret=secret,
        questions=questions,
        turned_down=turned_down,
        programs=[end_records.call_form(record, run.began) for record in run.programs.records] or msgspec.UNSET,
    )
    return f"[{end_records.stored_text(head)},{strict_json.ascii_json(rest)}]"


def printed_of(run: Run) -> str:
    """Return the outputs of a run that a store does not have yet, as text; empty if there are none.

    Raises:
        ProgramError: `snapshot_limit_exceeded`: an output is nested too deep.
    """
    new = run.history[run.stored_outputs :]
    return strict_json.ascii_json(new) if new else ""


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
    with strict_json.rejecting_damage(end_records.not_restorable):
        forms = msgspec.convert(strict_json.parse_json(record)[1], _Rest).programs
        if forms is msgspec.UNSET:
            return []
        recent = {each.id: each for each in run.recent}  # which answers list, until they have ended
        return [recent.get(each.id) or end_records.call_record_of(each, run.began) for each in forms]


def memory_limit_in(record: str) -> int:
    """Return the memory limit of a run so far, in bytes. Raises as `caller_in`."""
    return _head(record).memory_limit


def _head(record: str) -> _Head:
    return end_records.read_stored(record, _Head, strict_json.first_element)


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
    with strict_json.rejecting_damage(end_records.not_restorable):
        first, second = strict_json.parse_json(record)
        head, rest = (
            strict_json.convert_versioned(first, _Head, end_records.FORMAT, end_records.not_restorable),
            msgspec.convert(second, _Rest),
        )
        if head.run != context.run_id:
            raise end_records.not_restorable("its record is that of another program")
        # The run began before now, even if the clock was set back since.
        began = min(rest.began - wall, 0.0) + now
        run = Run(context, manifest, began, ledger, remember, memory_limit=head.memory_limit)
        run.advance("suspend")
        for name in _SAME_IN_RUN:
            setattr(run, name, getattr(rest, name))
        run.positions = rest.positions
        for each in printed:
            run.history += end_records.check_outputs(
                msgspec.convert(strict_json.parse_json(each), list[dict[str, Any]])
            )
        run.stored_outputs = rest.printed
        if run.stored_outputs != len(run.history):
            raise end_records.not_restorable("some of its output is missing")
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
        recent = [end_records.call_record_of(each, run.began) for each in rest.recent]
        run.recent = deque(recent, maxlen=RECENT_CALLS)
        run.track.restore(rest.total, recent)
        run.restore_notes(rest.notes, rest.noted)
        run.approvals.restore(rest.approved, rest.denied, rest.approval_secret)
        run.questions.restore(rest.questions, rest.turned_down)
        return run


# forms


def _request(message: messages.RequestMessage) -> messages.Answered:
    if not isinstance(message, messages.Answered):
        raise TypeError
    return message
