"""The answer to an `exec` or `wait` that an earlier process of this server has left unanswered. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from codemode_mcp.errors import ProgramError
from codemode_mcp.json_text import compact_json

if TYPE_CHECKING:
    from codemode_mcp.runs.state import RunState

MAX_RUN_ID = 80
"""Maximum characters of a run id in a message. A client may have sent any text as one."""


class Interrupted(NamedTuple):
    """A request that an earlier process has left unanswered.

    Attributes:
        run_id: the run of the request; None if it had none yet.
        dispatched: True if a call of the run may have been sent, in this request or an earlier one.
    """

    run_id: str | None
    dispatched: bool


def interruption(
    request: Interrupted, run_id: str | None, state: RunState | None, failure: str, *, waited: bool
) -> ProgramError:
    """Return the error with which to answer the request.

    Args:
        run_id: the run of the request, or the one that the client has named.
        state: the state of the run in the store; None if the run is not in the store.
        failure: the message of a store that does not answer; empty otherwise.
        waited: True for a request that resumes a run, False for one that begins a run.
    """
    ended = "The server process ended before it had answered."
    if run_id is None:
        return ProgramError("aborted", f"{ended} None of the program's calls was sent. Call exec again.")
    shown = compact_json(run_id[:MAX_RUN_ID])
    again = " again" if waited else ""
    # A `wait` without a note had not reached its run, whose earlier calls are unknown here.
    sent = request.dispatched or request.run_id is None
    if sent:
        lost = (
            "Some of its calls may have been sent and may have had effects, and their results are unknown. Check what "
            "they have changed before you repeat them."
        )
    else:
        lost = "None of its calls was sent. Call exec again."
    if failure:
        text = (
            f"{ended} It is unknown whether the program is still stored: {failure}. Call wait{again} with runId "
            f"{shown}. If there is no such run, the program has ended. {lost}"
        )
    elif state == "waiting":
        text = f"{ended} The program is stored. To resume it, call wait{again} with runId {shown}. Do not call exec."
        if sent:
            text += " Calls that were in flight may have had effects; the program gets their results, or an error."
    elif state is not None:
        text = f"{ended} The program itself has ended. For its result, call wait{again} with runId {shown}."
    else:
        text = f"{ended} The program was not stored, so it cannot be resumed. {lost}"
    return ProgramError("aborted", text)
