"""The end of a run, and its view for the operator, as JSON text, and back.

A text that does not have the exact form is rejected with `snapshot_restore_failed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType, structs

from codemode_mcp.base import strict_json
from codemode_mcp.base.errors import ErrorCode, Exceeded, ProgramError
from codemode_mcp.runs.calls.outcome import (
    CallRecord,
    CallStatus,
    MadeCall,
    Outcome,
    PendingCall,
    PendingStatus,
    SnapshotUse,
    Usage,
    WaitingReason,
)
from codemode_mcp.runs.state import RunState
from codemode_mcp.runs.views import RunView

# The common parts of the stored texts of runs: the format, the errors, and shared forms.


FORMAT: Final = 1
"""The format of all stored texts of runs."""

CallerKind = Literal["stdio", "http"]


class CallForm(strict_json.Form, rename={"ended": "took", "read_only": "readOnly"}):
    """The stored form of a `CallRecord`.

    Attributes:
        began: seconds from the beginning of the run to the call.
        ended: seconds from `began`; None if the call has not ended.
    """

    id: strict_json.Integer
    tool: str
    began: strict_json.Number
    ended: strict_json.Number | None
    status: CallStatus
    size: strict_json.Integer
    dispatched: bool
    repeatable: bool
    read_only: bool
    path: str
    watched: bool
    seen: dict[str, strict_json.Integer]


def stored_text(form: strict_json.Form) -> str:
    return f'{{"format":{FORMAT},{strict_json.ascii_json(form)[1:]}'


def read_stored(
    text: str, form: type[strict_json.AnyForm], parse: Callable[[str], Any] = strict_json.parse_json
) -> strict_json.AnyForm:
    """Return the content of a stored text.

    Args:
        parse: returns the JSON object that the text contains.

    Raises:
        ProgramError: `snapshot_restore_failed`: the text is damaged, or of another version.
    """
    with strict_json.rejecting_damage(not_restorable):
        return strict_json.convert_versioned(parse(text), form, FORMAT, not_restorable)


def call_form(record: CallRecord, zero: float) -> CallForm:
    """Return the form of a record. `zero`: the time at which the run began, on the clock of the record."""
    ended = None if record.ended is None else record.ended - record.began
    return strict_json.form_from(CallForm, record, began=record.began - zero, ended=ended)


def call_record_of(form: CallForm, zero: float) -> CallRecord:
    began = zero + form.began
    ended = None if form.ended is None else began + form.ended
    return CallRecord(**msgspec.structs.asdict(form) | {"began": began, "ended": ended})


def check_outputs(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the outputs of a program unchanged. Raises `TypeError` if an output has no type."""
    if not all(isinstance(output.get("type"), str) for output in outputs):
        raise TypeError
    return outputs


def not_restorable(why: str) -> ProgramError:
    return ProgramError("snapshot_restore_failed", f"the suspended program cannot be restored: {why}")


# A field of a form has the name of the attribute from which it is filled.


class _SnapshotUse(strict_json.Form, rename=None):
    size: strict_json.Integer
    store: str
    restored: strict_json.Integer
    taken_over: bool


class _Exceeded(strict_json.Form):
    cap: str
    figure: strict_json.Integer
    limit: strict_json.Integer


class _Usage(strict_json.Form):
    catalog_size: strict_json.Integer
    sources: dict[str, strict_json.Integer]
    execs: strict_json.Integer
    waits: strict_json.Integer
    searches: strict_json.Integer
    describes: strict_json.Integer
    call_count: strict_json.Integer
    calls: list[CallForm]
    snapshots: strict_json.Integer
    ms: strict_json.Integer
    snapshot: _SnapshotUse | UnsetType = UNSET
    exceeded: _Exceeded | UnsetType = UNSET


class _PendingCall(strict_json.Form, array_like=True):
    id: str
    tool: str
    status: PendingStatus
    elapsed_ms: strict_json.Integer


class _Outcome(
    strict_json.Form,
    omit_defaults=True,
    rename={"run_id": "run", "pending_total": "pendingTotal", "unanswerable": "nobodyAnswers"},
):
    run_id: str
    owner: str
    status: Literal["completed", "waiting", "failed"]
    usage: _Usage
    outputs: list[dict[str, Any]]
    notes: tuple[str, ...]
    dropped: strict_json.Integer
    value: Any
    error: str
    code: ErrorCode
    reason: WaitingReason
    pending: list[_PendingCall]
    pending_total: strict_json.Integer
    yielded: str | None
    unanswerable: bool
    challenges: tuple[str, ...] = ()
    made: tuple[MadeCall, ...] = ()


class _Answered(strict_json.Form):
    """The last answer: either a whole outcome, or its differences from the outcome of the run.

    Attributes:
        told: the number of outputs in earlier answers.
        dropped: the characters of output that the last answer reports as discarded.
        whole: the last answer, if it differs in more than these.
    """

    told: strict_json.Integer | UnsetType = UNSET
    dropped: strict_json.Integer | UnsetType = UNSET
    whole: _Outcome | UnsetType = UNSET


class _End(strict_json.Form):
    whole: _Outcome
    answered: _Answered


class _View(
    strict_json.Form, rename={"age_ms": "age", "ended_ms": "ended", "expires_ms": "expires", "call_count": "calls"}
):
    id: str
    state: RunState
    kind: CallerKind
    principal: str | None
    age_ms: strict_json.Integer
    ended_ms: strict_json.Integer | None
    expires_ms: strict_json.Integer | None
    observed: bool
    code: str | None
    waits: strict_json.Integer
    snapshots: strict_json.Integer
    approvals: strict_json.Integer
    questions: strict_json.Integer
    timers: strict_json.Integer
    call_count: strict_json.Integer
    made: tuple[MadeCall, ...] | UnsetType = UNSET
    """Absent in views of earlier versions."""


def outcome_text(pair: tuple[Outcome, Outcome], *, now: float | None = None) -> str:
    """Return the two outcomes of an ended run as text: the last answer, and an answer with all output since the start.

    Args:
        now: monotonic seconds. Calls that continue are stored as ended at this time; None for the time at which they
            began.
    """
    since, whole = pair
    told = len(whole.outputs) - len(since.outputs)
    # The outputs of the last answer are the end of all outputs. So they are not written twice, as they may be large.
    same = structs.replace(whole, outputs=since.outputs, dropped=since.dropped) == since
    short = same and told >= 0 and whole.outputs[told:] == since.outputs
    answered = _Answered(told, since.dropped) if short else _Answered(whole=_outcome_form(since, now))
    return stored_text(_End(_outcome_form(whole, now), answered))


def outcome_of(text: str) -> tuple[Outcome, Outcome]:
    """Return the outcomes of a text of `outcome_text`. Raises `ProgramError`, `snapshot_restore_failed`."""
    end = read_stored(text, _End)
    with strict_json.rejecting_damage(not_restorable):
        whole, answered = _outcome(end.whole), end.answered
        if answered.whole is not UNSET:
            return _outcome(answered.whole), whole
        if answered.told is UNSET or answered.dropped is UNSET or not 0 <= answered.told <= len(whole.outputs):
            raise ValueError
        return structs.replace(whole, outputs=whole.outputs[answered.told :], dropped=answered.dropped), whole


def _outcome_form(outcome: Outcome, now: float | None) -> _Outcome:
    used = outcome.usage
    usage = strict_json.form_from(
        _Usage,
        used,
        # Monotonic seconds mean nothing in another process. Only the durations are kept, from the time 0.
        calls=[call_form(_ended(record, now), record.began) for record in used.calls],
        snapshot=UNSET if used.snapshot is None else strict_json.form_from(_SnapshotUse, used.snapshot),
        exceeded=UNSET if used.exceeded is None else strict_json.form_from(_Exceeded, used.exceeded),
    )
    return strict_json.form_from(
        _Outcome, outcome, usage=usage, pending=[strict_json.form_from(_PendingCall, each) for each in outcome.pending]
    )


def _ended(record: CallRecord, now: float | None) -> CallRecord:
    """Return the record of an ended call. A call that continues ends at `now`, because its end will not be recorded."""
    return record if record.ended is not None else structs.replace(record, ended=record.began if now is None else now)


def _outcome(form: _Outcome) -> Outcome:
    used = form.usage
    usage = {
        "calls": tuple(call_record_of(each, 0.0) for each in used.calls),
        "snapshot": None if used.snapshot is UNSET else SnapshotUse(**structs.asdict(used.snapshot)),
        "exceeded": None if used.exceeded is UNSET else Exceeded(**structs.asdict(used.exceeded)),
    }
    others = {
        "usage": Usage(**structs.asdict(used) | usage),
        "outputs": tuple(check_outputs(form.outputs)),
        "pending": tuple(PendingCall(**structs.asdict(each)) for each in form.pending),
    }
    return Outcome(**structs.asdict(form) | others)


def view_text(view: RunView) -> str:
    """Return a view as text, without its calls."""
    return stored_text(strict_json.form_from(_View, view, made=UNSET if view.made is None else view.made))


def view_of(text: str) -> RunView:
    """Return the view of a text of `view_text`. Raises `ProgramError`, `snapshot_restore_failed`."""
    form = read_stored(text, _View)
    return RunView(**structs.asdict(form) | {"made": None if form.made is UNSET else form.made})
