"""The limits of the calls of one run, and the ends of calls that were refused, cancelled, or failed too late."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from codemode_mcp.calls.results import tool_call_error
from codemode_mcp.errors import Exceeded
from codemode_mcp.sandbox.messages import Completion
from codemode_mcp.settings import MIB
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from codemode_mcp.runs.live_call import LiveCall
    from codemode_mcp.runs.run import Run
    from codemode_mcp.sandbox.messages import ToolCall
    from codemode_mcp.settings import CodeModeSettings

BACKLOG_CHARACTERS = 32 * MIB
"""Characters of undelivered results above which no further calls of a program begin.

This limits how much one program keeps in memory and in a store: so much, and the results of the calls in flight."""

ARGUMENTS_CHARACTERS = 64 * MIB
"""Maximum characters of the arguments of all calls of a program that have not ended."""

SMALL_ARGUMENTS = 64 * 1024
"""Arguments with fewer characters are not counted. No program has enough calls to exceed the limit with these."""


MAX_MESSAGE = 1000
"""Maximum characters of an error message of a tool."""


def is_behind(run: Run) -> bool:
    """Return True if too many results wait to be delivered to a program that has not ended."""
    return run.state in ("running", "waiting") and run.settled.size > BACKLOG_CHARACTERS


def arguments_fit(run: Run, call: ToolCall) -> bool:
    """Return True if the arguments of one more call are not too large."""
    return _input_size(call) < SMALL_ARGUMENTS or _arguments_size(run, call) <= ARGUMENTS_CHARACTERS


def refused(run: Run, live: LiveCall, limits: CodeModeSettings, *, fits: bool) -> Completion:
    """Return the end of a call for which there is no room.

    Args:
        fits: False if its arguments are too large.
    """
    why = f"{run.executing} are in flight and {len(run.queue)} are queued"
    if run.programs:
        why += f", and {len(run.programs)} saved programs have not ended"
    if fits:
        limit = limits.max_pending_tool_calls + limits.max_queued_tool_calls
        run.exceeded = Exceeded("maxQueuedToolCalls", len(run.calls) + 1, limit)
    else:
        run.exceeded = Exceeded("argumentsCharacters", _arguments_size(run, live.call), ARGUMENTS_CHARACTERS)
        why += f", and their arguments would have more than {ARGUMENTS_CHARACTERS} characters"
    message = f"too many calls in flight: {why}; await some before making more"
    return Completion(live.call.id, error=tool_call_error(live.record, message, "too_many_pending_tool_calls"))


def _arguments_size(run: Run, call: ToolCall) -> int:
    return _input_size(call) + sum(_input_size(live.call) for live in run.calls.values())


def _input_size(call: ToolCall) -> int:
    return len(call.input) if isinstance(call.input, str) else 0


def cancelled(live: LiveCall) -> Completion:
    """Return the end of a call that was given up."""
    return Completion(live.call.id, error=tool_call_error(live.record, "the call was cancelled", "aborted"))


def late_failure(completion: Completion) -> str | None:
    """Return why a call that outlived its program has failed, after a colon; None if it has not failed."""
    error = completion.error
    return error_of(completion.value) if error is None else f": {error.message}"


def error_of(value: str) -> str | None:
    """Return the message of an MCP result with `isError`, after a colon; None for any other result."""
    try:
        result = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(result, dict) or result.get("isError") is not True:
        return None
    match result.get("content"):
        case [{"text": str(text)}, *_] if text:
            return f": {escape_line(text, MAX_MESSAGE)}"
    return ""
