"""The answer to an `exec` or `wait` that an earlier process of this server has left unanswered."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from codemode_mcp.errors import ProgramError, StoreUnavailable
from codemode_mcp.json_text import compact_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from codemode_mcp.runs.state import RunState

    StoredState = Callable[[str, str | None], Awaitable[RunState | None]]
    """Returns the state of a run of an owner in the store. Raises `StoreUnavailable`."""

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


async def find_interruption(
    stored_state: StoredState, request: Interrupted, waits_for: object, owner: str | None
) -> ProgramError:
    """Return the error with which to answer the request, from what the store has of its run.

    Args:
        waits_for: the id of the run, if the client has named one.
    """
    run_id = waits_for if isinstance(waits_for, str) else request.run_id
    state: RunState | None = None
    failure = ""
    if run_id is not None:
        try:
            state = await stored_state(run_id, owner)
        except StoreUnavailable as error:
            failure = error.message
    return interruption(request, run_id, state, failure, waited=waits_for is not None)


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
