"""How one `exec` or `wait` ended, and the records of its calls, before they are put into MCP's words. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.errors import ErrorCode, Exceeded
    from codemode_mcp.policy.approval import ApprovalQuestion
    from upstream_clients.tools import Question

CallStatus = Literal["queued", "executing", "completed", "failed"]

PendingStatus = Literal["queued", "executing", "needs_approval", "needs_input"]

WaitingReason = Literal["pending_tools", "yield"]


@dataclass(slots=True)
class CallRecord:
    """What is known of one nested call; never its arguments or its result.

    Attributes:
        tool: the id it named.
        path: what the program wrote, where that is a function of a namespace.
        watched: whether anybody wants to know `seen`.
        seen: how much of the result a model would have seen; see `audit.sizes`.
        exceeded: the cap for which it failed.
        began, ended: monotonic seconds; `began` is when it was made.
        size: bytes of the result's JSON.
        dispatched: whether the request may have reached the tool.
        repeatable: whether sending it twice does no harm.
        read_only: whether it may be given up once its program is over.
        why_queued: why it was not sent yet when it was looked at last, in words; empty where that is not known.
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

    def milliseconds(self, now: float) -> int:
        """How long it took, or has taken so far."""
        return round(((now if self.ended is None else self.ended) - self.began) * 1000)


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call the program waits for, or a timer (`core:timer`).

    Attributes:
        why: why a queued call is not sent yet, in words; empty where that is not known.
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
        restored: how often this process has restored the run.
        taken_over: another process suspended the run, and this one took it over.
    """

    size: int
    store: str
    restored: int = 0
    taken_over: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run has used so far, for telemetry.

    Attributes:
        catalog_size, sources: of the catalog it sees: how many tools, and how many from each kind of source.
        calls: the latest ones, oldest first.
        ms: milliseconds since it started.
        snapshot: None where the run was never suspended.
        exceeded: the latest cap that it was beyond.
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
        outputs: what was produced since the previous answer, in guest order.
        notes: lines for the reader that are neither output nor error, e.g. an unhandled rejection.
        dropped: output thrown away in the guest, characters.
        value: JSON, when completed.
        error, code: when failed.
        reason, pending: when waiting; `pending_total` counts those that are not listed too.
        yielded: what the program said when it yielded control.
        asked: when waiting for a person: what is asked, who can answer and how, a sentence each.
        unanswerable: it waits for nothing but answers that this client cannot give.
        questions: of upstream servers and of ours, by key, that this client gets as the answer to its request.
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
    questions: tuple[tuple[str, Question | ApprovalQuestion], ...] = ()
    unanswerable: bool = False
