"""The pending calls of a suspended program, and the step that resumes it, as its answer shows them. Pure."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from codemode_mcp.json_text import compact_json
from codemode_mcp.runs.truncation import escaped_size, fit_texts, shorten, size
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from codemode_mcp.calls.outcome import Outcome, PendingCall

NEXT_BYTES = 4 * 1024
"""Maximum bytes of the next step of a suspended program."""

PENDING_BYTES = 4 * 1024
"""Maximum bytes of the list of pending calls, the oldest first. `next` has the number of the calls left out."""

MAX_REASON = 300
"""Maximum characters that are shown of a program's reason for yielding."""


def pending_json(calls: Iterable[PendingCall]) -> list[dict[str, Any]]:
    """Return the pending calls as JSON, as many as fit into `PENDING_BYTES`."""
    room = PENDING_BYTES
    fitted: list[dict[str, Any]] = []
    for call in calls:
        tool = shorten(call.tool, PENDING_BYTES // 8)
        shown = {"id": call.id, "tool": tool, "status": call.status, "elapsedMs": call.elapsed_ms}
        room -= size(compact_json(shown)) + 1
        if room < 0:
            break
        fitted.append(shown)
    return fitted


def why_waiting(waiting: Outcome) -> str:
    """Say why a program is suspended, in words that follow "because" or a colon."""
    if waiting.reason == "yield":
        said = "" if waiting.yielded is None else f" ({escape_line(waiting.yielded, MAX_REASON)})"
        why = f"it yielded control{said}"
    else:
        shown = shorten(", ".join(map(_pending_text, waiting.pending[:5])), NEXT_BYTES // 4)
        more = waiting.pending_total - min(5, len(waiting.pending))
        why = f"it waits for {shown}{f' and {more} more' if more > 0 else ''}" if shown else "its time was over"
    return shorten(why, NEXT_BYTES // 2)


def next_step(waiting: Outcome) -> str:
    """Say why a program is suspended, who has to act, and which call of `wait` resumes it."""
    resume, cancel = _wait_call(runId=waiting.run_id), _wait_call(runId=waiting.run_id, cancel=True)
    if not waiting.unanswerable:
        step = f"Resume it with {resume}."
    elif any(call.status == "needs_approval" for call in waiting.pending):
        step = f"Tell the user. After the decision, resume it with {resume}; to give up, call {cancel}."
    else:
        step = (
            f"Tell the user what is asked. A client that can show the question resumes the program with {resume}; "
            f"to give up, call {cancel}."
        )
    if waiting.deadline is not None:
        until = datetime.fromtimestamp(waiting.deadline, UTC)
        step += f" The program is kept until {until:%Y-%m-%d %H:%M} UTC; a decision prolongs this."
    suspended = f"The program is suspended: {why_waiting(waiting)}."
    # One byte for the space between two sentences. Long sentences are cut in the middle, because their end says what to
    # do.
    room = NEXT_BYTES - escaped_size(suspended) - escaped_size(step) - len(waiting.asked) - 1
    return " ".join([suspended, *fit_texts(waiting.asked, room, end=2), step])


def _wait_call(**arguments: object) -> str:
    return f"wait {json.dumps(arguments)}"


def _pending_text(call: PendingCall) -> str:
    state = f"{call.status}: {escape_line(call.why)}" if call.why else call.status
    return f"{escape_line(call.tool)} ({state}, {call.elapsed_ms / 1000:.1f} s)"
