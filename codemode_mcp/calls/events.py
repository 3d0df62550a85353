"""The events of one nested call. Every way to make a call reports the same events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.audit.events import name_to_record
from codemode_mcp.json_text import json_text
from upstream_clients.redaction import cut

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from codemode_mcp.audit.events import Auditor, EventKind
    from codemode_mcp.calls.outcome import CallRecord
    from codemode_mcp.policy.approval import ApprovalRequest, Verdict

MAX_REASON: Final = 500
"""Maximum characters of the reason why a call was refused."""


class CallEvents:
    """A reporter of the events of one call.

    Args:
        about: id of the call in events.
        parent: id of its run in events.
    """

    def __init__(self, auditor: Auditor, about: str, parent: str | None = None) -> None:
        self._auditor = auditor
        self._about = about
        self._parent = parent

    def noticed(self, kind: EventKind) -> None:
        """Report an event for which no fields are needed; see `Auditor.notice`."""
        self._auditor.notice(kind, self._about, self._parent)

    def scope(self) -> AbstractContextManager[object]:
        """Return a context for a part of the work on the call; see `Auditor.scope`."""
        return self._auditor.scope(self._about)

    def started(self, tool: str, inputs: str | None, definition: str | None = None, **fields: Any) -> None:
        """Report that the program made the call.

        Args:
            inputs: the JSON of its arguments.
            definition: the digest of the tool's definition, as the program sees it.
        """
        self._emit("call_started", tool, inputs=inputs, definition=definition, **fields)

    def asked(self, request: ApprovalRequest) -> None:
        """Report that a person is asked to approve the call."""
        if self._auditor.listening:
            given = {name: each for name, each in request.arguments.items() if name not in request.unrecorded}
            self._emit("call_asked", request.tool, inputs=json_text(given), reason=request.reason)
        else:
            self.noticed("call_asked")

    def decided(self, request: ApprovalRequest, verdict: Verdict) -> None:
        """Report the verdict on the call."""
        self._emit(
            "call_decided",
            request.tool,
            approved=verdict.approved,
            remember=verdict.remember,
            by=verdict.by,
            why=verdict.why or None,
        )

    def ended(
        self, record: CallRecord, code: str | None, now: float, *, late: bool = False, is_error: bool = False
    ) -> None:
        """Report the end of a call.

        Args:
            code: the error code of a failed call; None for a completed one.
            now: the time on the clock of the record.
            late: True if the program had ended before the call.
            is_error: True if the call is late and its result has `isError`.
        """
        self._emit(
            "call_ended",
            record.tool,
            status="completed" if code is None else "failed",
            code=code,
            ms=record.milliseconds(now),
            bytes=record.size,
            why=cut(record.refused, MAX_REASON) or None,
            **record.seen,
            dispatched=record.dispatched,
            repeatable=record.may_be_repeated,
            task=True if record.is_task else None,
            late=True if late else None,
            is_error=True if is_error else None,
        )

    def _emit(self, kind: EventKind, tool: str, **more: Any) -> None:
        self._auditor.emit(kind, self._about, self._parent, tool=name_to_record(tool), **more)
