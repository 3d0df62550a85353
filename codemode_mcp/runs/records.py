"""The record of a suspended run, and its calls, as JSON text, and back. The snapshot is apart.

Times are seconds since the epoch in a text and monotonic seconds in a run. Functions that write or read them take the
time on both clocks: `now` on the monotonic one, `wall` on the other. No text is trusted: one that does not have the
exact form is refused with `snapshot_restore_failed`.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

from codemode_mcp.calls.context import Counts
from codemode_mcp.json_text import json_text
from codemode_mcp.policy.callers import Caller
from codemode_mcp.program.positions import Positions
from codemode_mcp.program.source_map import Author, Grown, SourceMap, are_mappings
from codemode_mcp.runs.record_parts import (
    FORMAT,
    call_record_json,
    call_record_of,
    check_format,
    not_restorable,
    output_of,
)
from codemode_mcp.runs.run import RECENT_CALLS, Run, SettledQueue
from codemode_mcp.runs.store import StoredCall, is_bearer
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
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from codemode_mcp.calls.context import CallContext
    from codemode_mcp.runs.namespaces import OpenNamespaces
    from codemode_mcp.runs.run import LiveCall
    from codemode_mcp.runs.store import Executor, StoredStatus
    from codemode_mcp.runs.views import Ledger
    from codemode_mcp.sandbox.messages import Lookup, Request
    from codemode_mcp.settings import Language

_KINDS: Final[tuple[Literal["stdio", "http"], ...]] = ("stdio", "http")
_LANGUAGES: Final[tuple[Language, ...]] = ("javascript", "typescript")
_ASKED: Final = (ApiList, ApiRead, ApiSearch, Header, ToolSearch, Describe, Store, Load)

# a run


def record_of(run: Run, *, now: float, wall: float, told: bool = False) -> str:
    """Write all that a later process needs of a run, apart from its snapshot, catalog, calls and outputs.

    `calls_of` has its calls and `printed_of` its outputs; the record has the number of outputs.

    Args:
        told: the answer to be given now contains the latest outputs and notes.
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
        "recent": [call_record_json(record, run.began) for record in run.recent],
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
    """Write the outputs of a run since `Run.written`; empty if there are none.

    Raises:
        ProgramError: `snapshot_limit_exceeded`, it is nested too deep.
    """
    new = run.history[run.written :]
    return written(new) if new else ""


def caller_in(record: str, owner: str) -> Caller:
    """Return the caller of a run as of its begin. `owner`: of the run.

    Raises:
        ProgramError: `snapshot_restore_failed`.
    """
    with strictly(not_restorable):
        caller = _head(first_of(record)).object("caller")
        kind, principal = caller.one_of("kind", _KINDS), caller.text_or_none("principal")
        groups = frozenset(caller.each("groups", text))
        caller.end()
        return Caller(None if is_bearer(owner) else owner, kind, principal, groups)


def counts_in(record: str) -> Counts:
    """Return the counts of a run's requests. Raises as `caller_in`."""
    with strictly(not_restorable):
        return Counts(*map(integer, items(_head(first_of(record)).any("counts"), 4)))


def memory_limit_in(record: str) -> int:
    """Return the bytes that the program could use so far. Raises as `caller_in`."""
    with strictly(not_restorable):
        return _head(first_of(record)).integer("memoryLimit")


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
    with strictly(not_restorable):
        first, second = items(parsed(record), 2)
        head, rest = _head(first), Fields(second)
        if head.text("run") != context.run_id:
            raise not_restorable("it is another one")
        head.any("caller"), head.any("counts"), head.any("namespaces")  # `caller_in` and `counts_in` read these
        limit = head.integer("memoryLimit")
        head.end()
        # After the clock was put back in between, nothing begins later than now.
        began = min(rest.number("began") - wall, 0.0) + now
        run = Run(context, manifest, began, ledger, remember, memory_limit=limit)
        run.advance("suspend")
        positions = rest.object_or_none("positions")
        run.positions = None if positions is None else _positions(positions)
        for each in printed:
            run.history += map(output_of, items(parsed(each)))
        run.written = rest.integer("printed")
        if run.written != len(run.history):
            raise not_restorable("some of what it has printed is missing")
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
        recent = rest.each("recent", lambda raw: call_record_of(Fields(raw), run.began))
        run.recent = deque(recent, maxlen=RECENT_CALLS)
        run.track.restore(rest.integer("total"), recent)
        run.waits = rest.integer("waits")
        run.snapshots = rest.integer("snapshots")
        run.restore_notes(rest.each("notes", text), rest.each("noted", text))
        run.approvals.restore(rest.each("approved", text), rest.integer("denied"), rest.text("approvalSecret"))
        run.questions.restore(rest.integer("questions"), rest.integer("turnedDown"))
        rest.end()
        return run


def _head(raw: Any) -> Fields:
    head = Fields(raw)
    check_format(head)
    return head


def calls_of(run: Run, *, now: float, wall: float) -> tuple[StoredCall, ...]:
    """Return every call whose end was not delivered to the program, with the ends that have come.

    What a store has of a call already, which may be large, is left out.
    """
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
    # Nothing may send it again, so its request is not kept.
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
    """Return a digest of a call's target and arguments."""
    given = "" if isinstance(call.input, Absent) else call.input
    whole = f"{call.target}\0{given}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(whole).hexdigest()[:32]


def call_of(stored: StoredCall, namespaces: OpenNamespaces) -> ToolCall:
    """Return the call to send. For a call that must not be sent, return one that is refused.

    Raises:
        ProgramError: `snapshot_restore_failed`.
    """
    _, path, raw = _body(stored, 0.0)
    if raw is not None:
        with strictly(not_restorable):
            asked = read_request(raw)
            if asked.id != stored.id:
                raise ValueError
            match asked:
                case ToolCall():
                    return asked
                case NamespaceCall():
                    return namespaces.tool_call(asked)
            raise TypeError
    why = f"{escape_line(path or stored.tool)}: the call may have been sent already, and is not sent again"
    return ToolCall(stored.id, stored.tool, ABSENT, 0, through=Through(path, refusal=why))


def began_of(stored: StoredCall, *, now: float, wall: float) -> float:
    """Return the time of the call, monotonic seconds; `now` if it was not kept. Raises as `call_of`."""
    return _body(stored, wall)[0] - wall + now


def _body(stored: StoredCall, wall: float) -> tuple[float, str, Any]:
    """Return the time at which it began, its path in a namespace, and its request, if it was kept."""
    if not stored.body:
        return wall, "", None
    with strictly(not_restorable):
        body = Fields(parsed(stored.body))
        check_format(body)
        began, path, raw = body.number("began"), body.text("path"), body.any("request")
        body.text("digest")
        body.end()
        return began, path, raw


def unknown_outcome(stored: StoredCall) -> Completion:
    """Return the end of a call that must not be sent again and whose executor is dead."""
    message = (
        f"{escape_line(stored.tool)}: the process that had sent this call ended before its answer came; whether the "
        "tool has acted is unknown. Check whether it has before making the call again"
    )
    data = {"tool": stored.tool, "dispatched": True, "repeatable": stored.repeatable, "outcome": "unknown"}
    return Completion(stored.id, error=GuestError(message, name="ToolCallError", data=json_text(data)))


def completion_text(completion: Completion) -> str:
    """Write a completion."""
    return written({"format": FORMAT, **_of_completion(completion)})


def completion_of(text: str) -> Completion:
    """Read what `completion_text` wrote. Raises `ProgramError`, `snapshot_restore_failed`."""
    with strictly(not_restorable):
        raw = parsed(text)
        check_format(Fields(raw))
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
    # Values go into messages to the program without being parsed again.
    parsed(value)
    if error is None:
        return Completion(number, value, of_call=of_call)
    made = GuestError(*map(text, items(error, 4)))
    parsed(made.data)
    return Completion(number, value, made, of_call)


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
