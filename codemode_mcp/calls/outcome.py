"""The outcome of one `exec` or `wait` and the records of its calls, before they become an MCP result. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from codemode_mcp.errors import ErrorCode, Exceeded
    from codemode_mcp.policy.approval import ApprovalQuestion
    from upstream_clients.tools import Question

CallStatus = Literal["queued", "executing", "completed", "failed"]

PendingStatus = Literal["queued", "executing", "needs_approval", "needs_input"]

WaitingReason = Literal["pending_tools", "yield"]

CallOutcome = Literal["completed", "in flight", "outcome unknown"]


class MadeCall(NamedTuple):
    """The calls of one tool with the same outcome that may have had effects."""

    tool: str
    outcome: CallOutcome
    times: int


@dataclass(slots=True)
class CallRecord:
    """The record of one nested call, without its arguments and its result.

    Attributes:
        tool: the id that the program called.
        path: the expression that the program called, if it is a function of a namespace.
        watched: True if an event will report `seen`.
        seen: the size of the result as a model would have read it; see `audit.sizes`.
        exceeded: the limit that failed the call.
        is_task: True if the server has answered with a task (see `upstream_clients.tasks`).
        is_unknown: True if it cannot be found out whether the tool has acted.
        refused: why policy, a person or a budget refused the call; empty if they did not.
        challenges: authentication challenges in its result; see `challenges_of`.
        server_error: the code, the message and the data of the JSON-RPC error with which the server has answered. For a
            server that did not answer: the code of an internal error, and the reason.
        began, ended: monotonic seconds. `began` is when the program made the call.
        size: bytes of the result as JSON.
        dispatched: True if the request may have reached the tool.
        repeatable: True if its tool may be called twice without harm.
        read_only: True if it may be cancelled when its program ends.
        why_queued: why it is not sent yet, in words; empty if unknown.
        on_start: see `Asking`.
    """

    id: int
    tool: str
    began: float
    status: CallStatus = "queued"
    ended: float | None = None
    size: int = 0
    dispatched: bool = False
    repeatable: bool = False
    read_only: bool = False
    path: str = ""
    why_queued: str = ""
    watched: bool = False
    seen: Mapping[str, int] = field(default_factory=dict)
    exceeded: Exceeded | None = None
    refused: str = ""
    is_task: bool = False
    is_unknown: bool = False
    challenges: tuple[str, ...] = ()
    server_error: tuple[int, str, Any] | None = None
    on_start: Callable[[bool], None] = lambda _: None

    @property
    def may_be_repeated(self) -> bool:
        """True if making the call again does no harm, for its tool or because it was not sent."""
        return self.repeatable or not self.dispatched

    def note_queued(self, why: str) -> None:
        """Note why the call is not sent yet, in words."""
        self.why_queued = why

    def milliseconds(self, now: float) -> int:
        """Return the duration of the call, so far if it has not ended."""
        return round(((now if self.ended is None else self.ended) - self.began) * 1000)


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that the program waits for, or a timer (`core:timer`).

    Attributes:
        why: why a queued call is not sent yet, in words; empty if unknown.
    """

    id: str
    tool: str
    status: PendingStatus
    elapsed_ms: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotUse:
    """The latest snapshot of a run.

    Attributes:
        size: bytes of its stored form.
        store: the kind of the store that has it.
        restored: the number of times that this process has restored the run.
        taken_over: True if another process had suspended the run, and this one took it over.
    """

    size: int
    store: str
    restored: int = 0
    taken_over: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of a run so far, for telemetry.

    Attributes:
        catalog_size, sources: the number of tools in its catalog, in all and by kind of source.
        calls: the latest calls, oldest first.
        ms: milliseconds since it began.
        snapshot: None if the run was never suspended.
        exceeded: the latest limit that it exceeded.
    """

    catalog_size: int = 0
    sources: Mapping[str, int] = field(default_factory=dict)
    execs: int = 1
    waits: int = 0
    searches: int = 0
    describes: int = 0
    call_count: int = 0
    calls: tuple[CallRecord, ...] = ()
    snapshots: int = 0
    ms: int = 0
    snapshot: SnapshotUse | None = None
    exceeded: Exceeded | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to one `exec` or `wait`.

    Attributes:
        outputs: output since the previous answer, in the order of the program.
        notes: lines for the reader that are neither output nor error, such as an unhandled rejection.
        dropped: characters of output that the guest discarded.
        value: the result as JSON data, if completed.
        error, code: the message and the error code, if failed.
        reason, pending: the reason and the pending calls, if waiting.
        pending_total: the number of pending calls, including those that are not listed.
        yielded: the message with which the program yielded control.
        asked: if waiting for a person: sentences about the questions, and who can answer them.
        deadline: if waiting for a person: the time until which the run is kept, in Unix seconds.
        unanswerable: True if the run waits only for answers that this client cannot give.
        questions: the questions that this client gets as its answer, by key.
        challenges: authentication challenges in results of calls since the previous answer.
        made: if completed, and if too much output fails a program: its calls that may have had effects.
    """

    run_id: str
    owner: str
    status: Literal["completed", "waiting", "failed"]
    usage: Usage
    outputs: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    dropped: int = 0
    value: Any = None
    error: str = ""
    code: ErrorCode = "internal_error"
    reason: WaitingReason = "pending_tools"
    pending: tuple[PendingCall, ...] = ()
    pending_total: int = 0
    yielded: str | None = None
    asked: tuple[str, ...] = ()
    deadline: float | None = None
    questions: tuple[tuple[str, Question | ApprovalQuestion], ...] = ()
    unanswerable: bool = False
    challenges: tuple[str, ...] = ()
    made: tuple[MadeCall, ...] = ()


# A tool that needs a login of the user may answer with `_meta["mcp/www_authenticate"]`: values of the HTTP header
# `WWW-Authenticate` (RFC 9110, section 11.6.1). Clients that know this key then let the user log in. The result of a
# nested call ends in a program, so the challenges are passed on with the answer to its request.

CHALLENGES_KEY: Final = "mcp/www_authenticate"
"""Key in the `_meta` of a tool result."""

MAX_CHALLENGES: Final = 8
"""Maximum number of challenges of one result, and of one answer."""

MAX_LENGTH: Final = 2_000
"""Maximum length of one challenge in characters."""

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VALUE = rf'(?:{_TOKEN}|"(?:[\t !\x23-\x5b\x5d-\x7e]|\\[\t\x20-\x7e])*")'
_PARAMETER = rf"{_TOKEN}[ \t]*=[ \t]*{_VALUE}"
_CHALLENGE: Final = re.compile(rf"{_TOKEN} +{_PARAMETER}(?:[ \t]*,[ \t]*{_PARAMETER})*")
"""A scheme with parameters."""


def challenges_of(result: Any) -> tuple[str, ...]:
    """Return the challenges in the result of a tool. Malformed ones are left out."""
    meta = result.get("_meta") if isinstance(result, dict) else None
    found = meta.get(CHALLENGES_KEY) if isinstance(meta, dict) else None
    if found is None:
        return ()
    listed = found if isinstance(found, list) else [found]
    return tuple(filter(_is_challenge, listed[:MAX_CHALLENGES]))


def _is_challenge(value: object) -> bool:
    return isinstance(value, str) and len(value) <= MAX_LENGTH and _CHALLENGE.fullmatch(value) is not None
