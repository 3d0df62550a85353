"""All that is known of a suspended run but its snapshot, as JSON text, and back.

Times are seconds since the epoch in a text and monotonic seconds in a run: whoever writes or reads one says what both
clocks show (`now` the monotonic one, `wall` the other). Nothing in a text is relied on: what does not have the exact
form ends as `snapshot_restore_failed`.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import deque
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from codemode_mcp.calls.context import Counts
from codemode_mcp.calls.outcome import (
    CallRecord,
    CallStatus,
    Outcome,
    PendingCall,
    PendingStatus,
    SnapshotUse,
    Usage,
    WaitingReason,
)
from codemode_mcp.catalog.entries import within_line
from codemode_mcp.errors import ERROR_CODES, Exceeded, ProgramError
from codemode_mcp.json_text import json_text
from codemode_mcp.policy.callers import Caller
from codemode_mcp.program.positions import Positions
from codemode_mcp.program.source_map import Author, Grown, SourceMap, are_mappings
from codemode_mcp.runs.run import RECENT_CALLS, Run, SettledQueue
from codemode_mcp.runs.state import TRANSITIONS
from codemode_mcp.runs.store import StoredCall, is_bearer
from codemode_mcp.runs.views import RunView
from codemode_mcp.sandbox.messages import (
    ABSENT,
    Absent,
    ApiList,
    ApiRead,
    ApiSearch,
    Completion,
    Describe,
    GuestError,
    Header,
    Load,
    NamespaceCall,
    Store,
    Through,
    ToolCall,
    ToolSearch,
    read_request,
    write_request,
)
from codemode_mcp.strict_json import Fields, first_of, integer, items, number, parsed, strictly, text, written

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from codemode_mcp.calls.context import CallContext
    from codemode_mcp.runs.namespaces import OpenNamespaces
    from codemode_mcp.runs.run import LiveCall
    from codemode_mcp.runs.state import RunState
    from codemode_mcp.runs.store import Executor, StoredStatus
    from codemode_mcp.runs.views import Ledger
    from codemode_mcp.sandbox.messages import Lookup, Request
    from codemode_mcp.settings import Language

FORMAT: Final = 1
"""Of all texts here."""

_KINDS: Final[tuple[Literal["stdio", "http"], ...]] = ("stdio", "http")
_LANGUAGES: Final[tuple[Language, ...]] = ("javascript", "typescript")
_STATES: Final[tuple[RunState, ...]] = tuple(TRANSITIONS)
_STATUSES: Final[tuple[Literal["completed", "waiting", "failed"], ...]] = ("completed", "waiting", "failed")
_CALL: Final[tuple[CallStatus, ...]] = get_args(CallStatus)
_PENDING: Final[tuple[PendingStatus, ...]] = get_args(PendingStatus)
_REASONS: Final[tuple[WaitingReason, ...]] = get_args(WaitingReason)
_ASKED: Final = (ApiList, ApiRead, ApiSearch, Header, ToolSearch, Describe, Store, Load)

# a run


def record_of(run: Run, *, now: float, wall: float, told: bool = False) -> str:
    """All that a later process needs of a run, apart from its snapshot, its catalog, its calls (see `calls_of`), and
    what it has printed (see `printed_of`), of which there is only how much it is.

    Args:
        told: what was printed and noted goes out with the answer that is to be given now.
    """
    caller, counts = run.context.caller, run.context.counts
    approved, denied, secret = run.approvals.state
    questions, turned_down = run.questions.state
    notes, noted = run.notes
    head = {
        "format": FORMAT,
        "run": run.id,
        "caller": {"kind": caller.kind, "principal": caller.principal, "groups": sorted(caller.groups)},
        "counts": [counts.search, counts.describe, counts.call, counts.by_id],
        "namespaces": list(run.namespaces.ids),
        "memoryLimit": run.memory_limit,
    }
    rest = {
        "began": run.began - now + wall,
        "positions": None if run.positions is None else _of_positions(run.positions),
        "printed": len(run.history),
        "untold": 0 if told else len(run.outputs),
        "dropped": run.dropped,
        "timers": [
            [timer, due - now + wall, run.timers_began.get(timer, now) - now + wall]
            for timer, due in run.timers.items()
        ],
        "timerWasLast": run.timer_was_last,
        "yields": run.yields,
        "yieldReason": run.yield_reason,
        "asked": [write_request(asked) for asked in run.asked],
        "settled": [_of_completion(each) for each in run.settled if not each.of_call],
        "lastCall": run.last_call,
        "refused": run.refused,
        "lookingUp": run.looking_up,
        "recent": [_of_call_record(record, run.began) for record in run.recent],
        "total": run.track.total,
        "waits": run.waits,
        "snapshots": run.snapshots,
        "notes": [] if told else list(notes),
        "noted": sorted(noted),
        "approved": sorted(approved),
        "denied": denied,
        "approvalSecret": secret,
        "questions": questions,
        "turnedDown": turned_down,
    }
    return written([head, rest])


def printed_of(run: Run) -> str:
    """What it has printed since `Run.written`; empty where that is nothing.

    Raises:
        ProgramError: `snapshot_limit_exceeded`, it is nested too deep.
    """
    new = run.history[run.written :]
    return written(new) if new else ""


def caller_in(record: str, owner: str) -> Caller:
    """Whom the run was begun for. `owner`: of the run.

    Raises:
        ProgramError: `snapshot_restore_failed`.
    """
    with strictly(_refused):
        caller = _head(first_of(record)).object("caller")
        kind, principal = caller.one_of("kind", _KINDS), caller.text_or_none("principal")
        groups = frozenset(caller.each("groups", text))
        caller.end()
        return Caller(None if is_bearer(owner) else owner, kind, principal, groups)


def counts_in(record: str) -> Counts:
    """Raises as `caller_in`."""
    with strictly(_refused):
        return Counts(*map(integer, items(_head(first_of(record)).any("counts"), 4)))


def memory_limit_in(record: str) -> int:
    """Return the bytes that the program could use so far. Raises as `caller_in`."""
    with strictly(_refused):
        return _head(first_of(record)).integer("memoryLimit")


def namespaces_in(record: str) -> tuple[str, ...]:
    """The ids of the namespaces that the run has opened. Raises as `caller_in`."""
    with strictly(_refused):
        return tuple(_head(first_of(record)).each("namespaces", text))


def restore(
    record: str,
    *,
    printed: Iterable[str],
    context: CallContext,
    manifest: str,
    now: float,
    wall: float,
    ledger: Ledger | None = None,
    keep: Callable[[Run, Collection[str]], None] | None = None,
) -> Run:
    """The run of `record_of`, suspended as it was, without its calls, its namespaces and its guest.

    Args:
        printed: the texts of `printed_of`, in order.

    Raises:
        ProgramError: `snapshot_restore_failed`.
    """
    with strictly(_refused):
        first, second = items(parsed(record), 2)
        head, rest = _head(first), Fields(second)
        if head.text("run") != context.run_id:
            raise _refused("it is another one")
        head.any("caller"), head.any("counts"), head.any("namespaces")  # see above
        limit = head.integer("memoryLimit")
        head.end()
        # A clock that was put back in between makes nothing begin later than now.
        began = min(rest.number("began") - wall, 0.0) + now
        run = Run(context, manifest, began, ledger, keep, memory_limit=limit)
        run.advance("suspend")
        positions = rest.object_or_none("positions")
        run.positions = None if positions is None else _positions(positions)
        for each in printed:
            run.history += map(_output, items(parsed(each)))
        run.written = rest.integer("printed")
        if run.written != len(run.history):
            raise _refused("some of what it has printed is missing")
        untold = rest.integer("untold")
        if not 0 <= untold <= len(run.history):
            raise ValueError
        run.outputs = run.history[len(run.history) - untold :]
        run.dropped = rest.integer("dropped")
        for raw in rest.each("timers", partial(items, count=3)):
            timer, due, since = integer(raw[0]), number(raw[1]), number(raw[2])
            back = max(0.0, since - wall)
            run.timers[timer], run.timers_began[timer] = due - back - wall + now, since - back - wall + now
        run.timer_heap = [(due, timer) for timer, due in run.timers.items()]
        heapq.heapify(run.timer_heap)
        run.timer_was_last = rest.flag("timerWasLast")
        run.yields = rest.each("yields", integer)
        run.yield_reason = rest.text_or_none("yieldReason")
        run.asked = deque(rest.each("asked", _asked))
        run.settled = SettledQueue(rest.each("settled", _completion))
        run.last_call = rest.integer("lastCall")
        run.refused = rest.integer("refused")
        run.looking_up = rest.number("lookingUp")
        recent = rest.each("recent", lambda raw: _call_record(Fields(raw), run.began))
        run.recent = deque(recent, maxlen=RECENT_CALLS)
        run.track.go_on(rest.integer("total"), recent)
        run.waits = rest.integer("waits")
        run.snapshots = rest.integer("snapshots")
        run.go_on_noting(rest.each("notes", text), rest.each("noted", text))
        run.approvals.go_on(rest.each("approved", text), rest.integer("denied"), rest.text("approvalSecret"))
        run.questions.go_on(rest.integer("questions"), rest.integer("turnedDown"))
        rest.end()
        return run


def _head(raw: Any) -> Fields:
    head = Fields(raw)
    _check_format(head)
    return head


def _check_format(fields: Fields) -> None:
    """First of all: whatever else another version writes is not ours to judge."""
    found = fields.any("format")
    if found != FORMAT or isinstance(found, bool):
        if isinstance(found, int) and not isinstance(found, bool):
            raise _refused(f"it was written by another version of codemode-mcp (format {str(found)[:20]})")
        raise TypeError


# its calls


def calls_of(run: Run, *, now: float, wall: float) -> tuple[StoredCall, ...]:
    """Every call whose end the program has not got, ends that have come included. What a store has of a call already,
    which may be large, is left out."""
    ended = [
        StoredCall(
            each.id,
            run.track.tool(each.id),
            "settled",
            repeatable=False,
            result=None if each.id in run.ends_kept else completion_text(each),
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
    # Nothing may send it again, so that nothing keeps what it takes to.
    sent = record.dispatched and not record.repeatable
    asked: Request = call if call.through is None or call.through.asked is None else call.through.asked
    body = {
        "format": FORMAT,
        "began": record.began - now + wall,
        "path": record.path,
        "digest": digest(call),
        "request": None if sent else write_request(asked),
    }
    return StoredCall(call.id, record.tool, status, record.repeatable, written(body), executor=executor)


def digest(call: ToolCall) -> str:
    """Of what is called and with what arguments."""
    given = "" if isinstance(call.input, Absent) else call.input
    whole = f"{call.target}\0{given}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(whole).hexdigest()[:32]


def call_of(stored: StoredCall, namespaces: OpenNamespaces) -> ToolCall:
    """What to send. Of a call that must not be sent, one that stands for it and that nothing would send.

    Raises:
        ProgramError: `snapshot_restore_failed`.
    """
    _, path, raw = _body(stored, 0.0)
    if raw is not None:
        with strictly(_refused):
            asked = read_request(raw)
            if asked.id != stored.id:
                raise ValueError
            match asked:
                case ToolCall():
                    return asked
                case NamespaceCall():
                    return namespaces.tool_call(asked)
            raise TypeError
    why = f"{within_line(path or stored.tool)}: the call may have been sent already, and is not sent again"
    return ToolCall(stored.id, stored.tool, ABSENT, 0, through=Through(path, refusal=why))


def began_of(stored: StoredCall, *, now: float, wall: float) -> float:
    """When the program made the call, monotonic seconds; `now` where that is not kept. Raises as `call_of`."""
    return _body(stored, wall)[0] - wall + now


def _body(stored: StoredCall, wall: float) -> tuple[float, str, Any]:
    """When it began, the path of a namespace that it came by, and the request, where it is kept."""
    if not stored.body:
        return wall, "", None
    with strictly(_refused):
        body = Fields(parsed(stored.body))
        _check_format(body)
        began, path, raw = body.number("began"), body.text("path"), body.any("request")
        body.text("digest")
        body.end()
        return began, path, raw


def unknown_outcome(stored: StoredCall) -> Completion:
    """The end of a call that a process had sent which is gone, and that may not be sent again."""
    message = (
        f"{within_line(stored.tool)}: the process that had sent this call ended before its answer came; whether the "
        "tool has acted is unknown. Look whether it has before making the call again"
    )
    data = {"tool": stored.tool, "dispatched": True, "repeatable": stored.repeatable, "outcome": "unknown"}
    return Completion(stored.id, error=GuestError(message, name="ToolCallError", data=json_text(data)))


def completion_text(completion: Completion) -> str:
    return written({"format": FORMAT, **_of_completion(completion)})


def completion_of(text: str) -> Completion:
    """Raises `ProgramError`, `snapshot_restore_failed`."""
    with strictly(_refused):
        raw = parsed(text)
        _check_format(Fields(raw))
        return _completion({name: value for name, value in raw.items() if name != "format"})


def _of_completion(completion: Completion) -> dict[str, Any]:
    error = completion.error
    return {
        "id": completion.id,
        "value": completion.value,
        "error": None if error is None else [error.message, error.name, error.code, error.data],
        "call": completion.of_call,
    }


def _completion(raw: Any) -> Completion:
    fields = Fields(raw)
    number, value, error = fields.integer("id"), fields.text("value"), fields.any("error")
    of_call = fields.flag("call")
    fields.end()
    # They are put into messages to the program as they are.
    parsed(value)
    if error is None:
        return Completion(number, value, of_call=of_call)
    made = GuestError(*map(text, items(error, 4)))
    parsed(made.data)
    return Completion(number, value, made, of_call)


# the end of a run


def outcome_text(pair: tuple[Outcome, Outcome], *, now: float | None = None) -> str:
    """Of a run that has ended: what was answered, and all of it from the start.

    Args:
        now: monotonic seconds, up to which calls that go on are said to have taken; None: nothing.
    """
    since, whole = pair
    told = len(whole.outputs) - len(since.outputs)
    # What was answered is the end of all that there was; no large text is written twice.
    same = replace(whole, outputs=since.outputs, dropped=since.dropped) == since
    short = same and told >= 0 and whole.outputs[told:] == since.outputs
    answered = {"told": told, "dropped": since.dropped} if short else {"whole": _of_outcome(since, now)}
    return written({"format": FORMAT, "whole": _of_outcome(whole, now), "answered": answered})


def outcome_of(text: str) -> tuple[Outcome, Outcome]:
    """Raises `ProgramError`, `snapshot_restore_failed`."""
    with strictly(_refused):
        fields = Fields(parsed(text))
        _check_format(fields)
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
            # Only how long they took is told: they begin at 0.
            "calls": [_of_call_record(_over(record, now), record.began) for record in usage.calls],
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
    """Nobody can tell later how long a call has taken that goes on."""
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
        calls=tuple(used.each("calls", lambda raw: _call_record(Fields(raw), 0.0))),
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
        outputs=tuple(fields.each("outputs", _output)),
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


# what is told of a run


def view_text(view: RunView) -> str:
    """Without its calls."""
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
    """Raises `ProgramError`, `snapshot_restore_failed`."""
    with strictly(_refused):
        fields = Fields(parsed(text))
        _check_format(fields)
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


# parts


def _of_positions(positions: Positions) -> dict[str, Any]:
    transformed, rewritten = positions.transformed, positions.rewritten
    return {
        "language": positions.language,
        "lines": positions.lines,
        "code": positions.code,
        "transformed": None
        if transformed is None
        else {
            "mappings": transformed.mappings,
            "lines": transformed.author.lines,
            "before": transformed.author.before,
            "grown": [_of_grown(each) for each in transformed.author.grown],
        },
        "rewritten": None if rewritten is None else _of_grown(rewritten),
    }


def _positions(fields: Fields) -> Positions:
    rewritten, transformed = fields.any("rewritten"), fields.object_or_none("transformed")
    positions = Positions(
        fields.one_of("language", _LANGUAGES),
        fields.integer("lines"),
        fields.text("code"),
        None if transformed is None else _source_map(transformed),
        None if rewritten is None else _grown(rewritten),
    )
    fields.end()
    return positions


def _source_map(fields: Fields) -> SourceMap:
    mappings, lines, before = fields.text("mappings"), fields.integer("lines"), fields.integer("before")
    if not are_mappings(mappings):
        raise ValueError
    grown = tuple(fields.each("grown", _grown))
    fields.end()
    return SourceMap(mappings, Author(lines, before, grown))


def _of_grown(grown: Grown) -> list[int]:
    return [grown.line, grown.column, grown.growth]


def _grown(raw: Any) -> Grown:
    return Grown(*map(integer, items(raw, 3)))


def _asked(raw: Any) -> Lookup | Store | Load:
    asked = read_request(raw)
    if not isinstance(asked, _ASKED):
        raise TypeError
    return asked


def _output(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str):
        raise TypeError
    return raw


def _of_call_record(record: CallRecord, zero: float) -> dict[str, Any]:
    return {
        "id": record.id,
        "tool": record.tool,
        "began": record.began - zero,
        "took": None if record.ended is None else record.ended - record.began,
        "status": record.status,
        "size": record.size,
        "dispatched": record.dispatched,
        "repeatable": record.repeatable,
        "readOnly": record.read_only,
        "path": record.path,
        "watched": record.watched,
        "seen": dict(record.seen),
    }


def _call_record(fields: Fields, zero: float) -> CallRecord:
    began, took = zero + fields.number("began"), fields.number_or_none("took")
    seen = fields.any("seen")
    record = CallRecord(
        id=fields.integer("id"),
        tool=fields.text("tool"),
        began=began,
        status=fields.one_of("status", _CALL),
        ended=None if took is None else began + took,
        size=fields.integer("size"),
        dispatched=fields.flag("dispatched"),
        repeatable=fields.flag("repeatable"),
        read_only=fields.flag("readOnly"),
        path=fields.text("path"),
        watched=fields.flag("watched"),
        seen={text(name): integer(size) for name, size in seen.items()},
    )
    fields.end()
    return record


def _refused(why: str) -> ProgramError:
    return ProgramError("snapshot_restore_failed", f"the suspended program cannot be restored: {why}; start it again")
