"""The end of a call that was cancelled, and notes on calls that failed after their program had ended."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from codemode_mcp.calls.results import tool_call_error
from codemode_mcp.sandbox.messages import Completion
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from codemode_mcp.runs.live_call import LiveCall

MAX_MESSAGE = 1000
"""Characters of an error message of a tool."""


def cancelled(live: LiveCall) -> Completion:
    """Return the end of a call that was given up."""
    return Completion(live.call.id, error=tool_call_error(live.record, "the call was cancelled", "aborted"))


def late_failure(completion: Completion) -> str | None:
    """Return why a call failed that its program did not await, after a colon; None if it did not fail."""
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
