"""The end of a run and its view for the operator, as JSON text, and back.

A text that does not have the exact form is refused with `snapshot_restore_failed`.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Final, Literal, get_args

from codemode_mcp.calls.outcome import (
    CallRecord,
    Outcome,
    PendingCall,
    PendingStatus,
    SnapshotUse,
    Usage,
    WaitingReason,
)
from codemode_mcp.errors import ERROR_CODES, Exceeded
from codemode_mcp.runs.record_parts import (
    FORMAT,
    call_record_json,
    call_record_of,
    check_format,
    not_restorable,
    output_of,
)
from codemode_mcp.runs.state import TRANSITIONS, RunState
from codemode_mcp.runs.views import RunView
from codemode_mcp.strict_json import Fields, integer, items, parsed, strictly, text, written

_KINDS: Final[tuple[Literal["stdio", "http"], ...]] = ("stdio", "http")
_STATES: Final[tuple[RunState, ...]] = tuple(TRANSITIONS)
_STATUSES: Final[tuple[Literal["completed", "waiting", "failed"], ...]] = ("completed", "waiting", "failed")
_PENDING: Final[tuple[PendingStatus, ...]] = get_args(PendingStatus)
_REASONS: Final[tuple[WaitingReason, ...]] = get_args(WaitingReason)


def outcome_text(pair: tuple[Outcome, Outcome], *, now: float | None = None) -> str:
    """Write the outcomes of a run that has ended: the last answer, and all of it from the start.

    Args:
        now: monotonic seconds at which calls that continue are counted as ended; None to count them as ended when they
            began.
    """
    since, whole = pair
    told = len(whole.outputs) - len(since.outputs)
    # The last answer has the last outputs of the whole, so that no large text is written twice.
    same = replace(whole, outputs=since.outputs, dropped=since.dropped) == since
    short = same and told >= 0 and whole.outputs[told:] == since.outputs
    answered = {"told": told, "dropped": since.dropped} if short else {"whole": _of_outcome(since, now)}
    return written({"format": FORMAT, "whole": _of_outcome(whole, now), "answered": answered})


def outcome_of(text: str) -> tuple[Outcome, Outcome]:
    """Read what `outcome_text` wrote. Raises `ProgramError`, `snapshot_restore_failed`."""
    with strictly(not_restorable):
        fields = Fields(parsed(text))
        check_format(fields)
        whole, answered = _outcome(fields.any("whole")), fields.any("answered")
        fields.end()
        if "whole" in answered:
            return _outcome(answered["whole"]), whole
        answered = Fields(answered)
        told, dropped = answered.integer("told"), answered.integer("dropped")
        answered.end()
        if not 0 <= told <= len(whole.outputs):
            raise ValueError
        return replace(whole, outputs=whole.outputs[told:], dropped=dropped), whole


def _of_outcome(outcome: Outcome, now: float | None) -> dict[str, Any]:
    usage = outcome.usage
    return {
        "run": outcome.run_id,
        "owner": outcome.owner,
        "status": outcome.status,
        "usage": {
            "catalogSize": usage.catalog_size,
            "sources": dict(usage.sources),
            "execs": usage.execs,
            "waits": usage.waits,
            "searches": usage.searches,
            "describes": usage.describes,
            "callCount": usage.call_count,
            # Only their durations are kept: they begin at 0.
            "calls": [call_record_json(_over(record, now), record.began) for record in usage.calls],
            "snapshots": usage.snapshots,
            "ms": usage.ms,
            **({} if usage.snapshot is None else {"snapshot": asdict(usage.snapshot)}),
            **({} if usage.exceeded is None else {"exceeded": asdict(usage.exceeded)}),
        },
        "outputs": list(outcome.outputs),
        "notes": list(outcome.notes),
        "dropped": outcome.dropped,
        "value": outcome.value,
        "error": outcome.error,
        "code": outcome.code,
        "reason": outcome.reason,
        "pending": [[each.id, each.tool, each.status, each.elapsed_ms] for each in outcome.pending],
        "pendingTotal": outcome.pending_total,
        "yielded": outcome.yielded,
        "nobodyAnswers": outcome.unanswerable,
    }


def _over(record: CallRecord, now: float | None) -> CallRecord:
    """Return a record as ended: the duration of a call that continues cannot be known later."""
    return record if record.ended is not None else replace(record, ended=record.began if now is None else now)


def _snapshot_use(fields: Fields | None) -> SnapshotUse | None:
    if fields is None:
        return None
    size, store = fields.integer("size"), fields.text("store")
    use = SnapshotUse(size, store, fields.integer("restored"), fields.flag("taken_over"))
    fields.end()
    return use


def _exceeded(fields: Fields | None) -> Exceeded | None:
    if fields is None:
        return None
    exceeded = Exceeded(fields.text("cap"), fields.integer("figure"), fields.integer("limit"))
    fields.end()
    return exceeded


def _outcome(raw: Any) -> Outcome:
    fields = Fields(raw)
    used = fields.object("usage")
    sources = used.any("sources")
    usage = Usage(
        catalog_size=used.integer("catalogSize"),
        sources={text(name): integer(count) for name, count in sources.items()},
        execs=used.integer("execs"),
        waits=used.integer("waits"),
        searches=used.integer("searches"),
        describes=used.integer("describes"),
        call_count=used.integer("callCount"),
        calls=tuple(used.each("calls", lambda raw: call_record_of(Fields(raw), 0.0))),
        snapshots=used.integer("snapshots"),
        ms=used.integer("ms"),
        snapshot=_snapshot_use(used.object_if_there("snapshot")),
        exceeded=_exceeded(used.object_if_there("exceeded")),
    )
    used.end()
    outcome = Outcome(
        run_id=fields.text("run"),
        owner=fields.text("owner"),
        status=fields.one_of("status", _STATUSES),
        usage=usage,
        outputs=tuple(fields.each("outputs", output_of)),
        notes=tuple(fields.each("notes", text)),
        dropped=fields.integer("dropped"),
        value=fields.any("value"),
        error=fields.text("error"),
        code=fields.one_of("code", ERROR_CODES),
        reason=fields.one_of("reason", _REASONS),
        pending=tuple(fields.each("pending", _pending)),
        pending_total=fields.integer("pendingTotal"),
        yielded=fields.text_or_none("yielded"),
        unanswerable=fields.flag("nobodyAnswers"),
    )
    fields.end()
    return outcome


def _pending(raw: Any) -> PendingCall:
    call, tool, status, elapsed = items(raw, 4)
    known = Fields({"status": status}).one_of("status", _PENDING)
    return PendingCall(text(call), text(tool), known, integer(elapsed))


def view_text(view: RunView) -> str:
    """Write a view without its calls."""
    return written(
        {
            "format": FORMAT,
            "id": view.id,
            "state": view.state,
            "kind": view.kind,
            "principal": view.principal,
            "age": view.age_ms,
            "ended": view.ended_ms,
            "expires": view.expires_ms,
            "observed": view.observed,
            "code": view.code,
            "waits": view.waits,
            "snapshots": view.snapshots,
            "approvals": view.approvals,
            "questions": view.questions,
            "timers": view.timers,
            "calls": view.call_count,
        }
    )


def view_of(text: str) -> RunView:
    """Read what `view_text` wrote. Raises `ProgramError`, `snapshot_restore_failed`."""
    with strictly(not_restorable):
        fields = Fields(parsed(text))
        check_format(fields)
        view = RunView(
            id=fields.text("id"),
            state=fields.one_of("state", _STATES),
            kind=fields.one_of("kind", _KINDS),
            principal=fields.text_or_none("principal"),
            age_ms=fields.integer("age"),
            ended_ms=fields.integer_or_none("ended"),
            expires_ms=fields.integer_or_none("expires"),
            observed=fields.flag("observed"),
            code=fields.text_or_none("code"),
            waits=fields.integer("waits"),
            snapshots=fields.integer("snapshots"),
            approvals=fields.integer("approvals"),
            questions=fields.integer("questions"),
            timers=fields.integer("timers"),
            call_count=fields.integer("calls"),
        )
        fields.end()
        return view
