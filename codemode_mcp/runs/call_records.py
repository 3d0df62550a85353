"""The calls of a stored run as JSON text, and back: calls in flight, and completions that are not delivered yet.

Times are as in `records`. A text that does not have the exact form is rejected with `snapshot_restore_failed`.
"""

from __future__ import annotations

import hashlib
from dataclasses import astuple
from typing import TYPE_CHECKING

from codemode_mcp.errors import ProgramError
from codemode_mcp.json_text import json_text
from codemode_mcp.runs.made_calls import added, stored_outcome
from codemode_mcp.runs.open_programs import is_program
from codemode_mcp.runs.record_parts import not_restorable, read_stored, stored_text
from codemode_mcp.runs.store import StoredCall
from codemode_mcp.sandbox.messages import (
    Completion,
    GuestError,
    NamespaceCall,
    RequestMessage,
    Through,
    ToolCall,
    message_of,
    request_of,
)
from codemode_mcp.strict_json import Form, Integer, Number, parse_json, rejecting_damage
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from codemode_mcp.calls.outcome import MadeCall
    from codemode_mcp.runs.live_call import LiveCall
    from codemode_mcp.runs.namespaces import OpenNamespaces
    from codemode_mcp.runs.run import Run
    from codemode_mcp.runs.store import Executor, StoredStatus


class _PendingCall(Form):
    """The form of a call that has not ended. `request` is None if the call must not be sent again."""

    began: Number
    path: str
    digest: str
    request: RequestMessage | None


class _StoredTask(Form):
    """The form of the task of a call. `request` is the request of the program, for middleware of plugins."""

    handle: str
    request: RequestMessage


class CompletionForm(Form):
    """The form of a `Completion`. The parts of an error are its message, name, code and data."""

    id: Integer
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
    body = _PendingCall(record.began - now + wall, record.path, digest(call), None if sent else message_of(asked))
    text, task = stored_text(body), task_text(live)
    return StoredCall(call.id, record.tool, status, record.repeatable, text, executor=executor, task=task)


def task_text(live: LiveCall) -> str:
    """Return the task of a call as text; empty without one."""
    return stored_text(_StoredTask(live.task, message_of(live.call))) if live.task else ""


def task_of(stored: StoredCall) -> tuple[ToolCall, str]:
    """Return a call whose task has to be followed, and the handle of the task. Raises as `call_of`."""
    with rejecting_damage(not_restorable):
        form = read_stored(stored.task, _StoredTask)
        asked = request_of(form.request)
        if not isinstance(asked, ToolCall) or asked.id != stored.id:
            raise TypeError
        return asked, form.handle


def digest(call: ToolCall) -> str:
    """Return a digest of a call's target and arguments."""
    whole = f"{call.target}\0{call.input or ''}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(whole).hexdigest()[:32]


def call_of(stored: StoredCall, namespaces: OpenNamespaces) -> ToolCall:
    """Return the call to send. If it must not be sent, return a call that is refused.

    Raises:
        ProgramError: `snapshot_restore_failed`.
    """
    body = _body(stored)
    if body is not None and body.request is not None:
        with rejecting_damage(not_restorable):
            match asked := request_of(body.request):
                case ToolCall() if asked.id == stored.id:
                    return asked
                case NamespaceCall() if asked.id == stored.id:
                    return namespaces.tool_call(asked)
            raise TypeError
    path = "" if body is None else body.path
    why = f"{escape_line(path or stored.tool)}: the call may have been sent already, and is not sent again"
    return ToolCall(stored.id, stored.tool, count=0, through=Through(path, refusal=why))


def began_of(stored: StoredCall, *, now: float, wall: float) -> float:
    """Return the time of the call in monotonic seconds; `now` if it is unknown. Raises as `call_of`."""
    body = _body(stored)
    return now if body is None else body.began - wall + now


def _body(stored: StoredCall) -> _PendingCall | None:
    return read_stored(stored.body, _PendingCall) if stored.body else None


def unknown_outcome(stored: StoredCall) -> Completion:
    """Return the end of a call that must not be sent again and whose executor is dead."""
    message = (
        f"{escape_line(stored.tool)}: the process that sent this call ended before the answer arrived, so it is "
        "unknown whether the tool has acted. Find that out before you make the call again"
    )
    data = {"tool": stored.tool, "dispatched": True, "repeatable": stored.repeatable, "outcome": "unknown"}
    return Completion(stored.id, error=GuestError(message, name="ToolCallError", data=json_text(data)))


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


def completion_text(completion: Completion) -> str:
    """Return a completion as text."""
    return stored_text(completion_form(completion))


def completion_of(text: str) -> Completion:
    """Return the completion of a text of `completion_text`. Raises `ProgramError`, `snapshot_restore_failed`."""
    with rejecting_damage(not_restorable):
        return completion_in(read_stored(text, CompletionForm))


def completion_form(completion: Completion) -> CompletionForm:
    """Return the form of a completion."""
    error = None if completion.error is None else astuple(completion.error)
    return CompletionForm(completion.id, completion.value, error, completion.of_call)


def completion_in(form: CompletionForm) -> Completion:
    """Return the completion of a form. Raises `ValueError` if a part is not valid JSON."""
    error = None if form.error is None else GuestError(*form.error)
    for text in (form.value, *(() if error is None else (error.data,))):
        parse_json(text)  # checked here, because it becomes part of messages to the program without being parsed
    return Completion(form.id, form.value, error, form.call)
