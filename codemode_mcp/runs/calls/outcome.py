"""The context and outcome of one `exec` or `wait`, and the records, events and errors of its calls. Pure."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from msgspec import Struct, field

from codemode_mcp.audit.events import Auditor, EventKind, name_to_record
from codemode_mcp.base.strict_json import json_text, result_text
from upstream_clients.jsonrpc import INTERNAL_ERROR
from upstream_clients.redaction import cut
from upstream_clients.tools import AskFn, Asking, BeginFn, ProgressFn, Question, SentFn, TaskOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from codemode_mcp.base.errors import ErrorCode, Exceeded
    from codemode_mcp.base.settings import Via
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.rules.policy.approval import ApprovalQuestion, ApprovalRequest, ApproveFn, Verdict
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.runs.calls.arguments import RepeatedSecrets
    from codemode_mcp.sandbox.messages import Completion, ToolCall


CallStatus = Literal["queued", "executing", "completed", "failed"]

PendingStatus = Literal["queued", "executing", "needs_approval", "needs_input"]

WaitingReason = Literal["pending_tools", "yield"]

CallOutcome = Literal["completed", "in flight", "outcome unknown"]


class MadeCall(NamedTuple):
    """The calls of one tool with the same outcome that may have had effects."""

    tool: str
    outcome: CallOutcome
    times: int


class CallRecord(Struct):
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
        self.why_queued = why

    def milliseconds(self, now: float) -> int:
        return round(((now if self.ended is None else self.ended) - self.began) * 1000)


class PendingCall(Struct, frozen=True):
    """A call that the program waits for, or a timer (`core:timer`).

    Attributes:
        why: why a queued call is not sent yet, in words; empty if unknown.
    """

    id: str
    tool: str
    status: PendingStatus
    elapsed_ms: int
    why: str = ""


class SnapshotUse(Struct, frozen=True):
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


class Usage(Struct, frozen=True):
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


class Outcome(Struct, frozen=True):
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


# Results that are no errors for MCP, but whose text reads like one, such as "Database error: no such table".
#
# Many servers answer so instead of setting `isError`. A program takes such a text for data, so a note names it. Only a
# short text that begins like a message of an error counts, because ordinary texts have the same words: logs, headings
# and figures ("Error handling", "Mean error: 0.2", "Failed tests: 0").


MAX_TEXT: Final = 600
"""Maximum characters of a text that counts. Messages of errors are short."""

MAX_RESULT: Final = 3 * MAX_TEXT
"""Maximum characters of the JSON of a result that is read."""

_NO_FIGURE = (
    r"(?!\s*(?:[-+~<>=]?\s*\d[\d.,e+-]*\s*%?\s*(?:$|[;,\n])|(?:none|null|nil|n/a|no|ok|false|\[\])\s*(?:$|[;,.\n])|$))"
)
"""No number or empty value follows, as after "Errors:" in a summary."""

_END = r"\s*(?:$|[-\u2013\u2014:.!,(\n])"

_NO_ERROR_WORDS = (
    "mean|squared|standard|margin|last|previous|first|max|rms|relative|absolute|root|human|rounding|trial|type|fix|fixed"
    "|fixes|of|and|the|a|common|no|sampling|measurement|class|except|raise"
)
"""Words before "error" in texts about errors."""

_TOPICS = r"handling|reporting|logging|tracking|tracing|monitoring|correcting|checking"

_DOING = (
    "executing|calling|running|processing|invoking|fetching|reading|writing|parsing|loading|creating|getting|connecting"
    "|accessing|opening|querying|sending"
)
_DO = (
    "find|open|read|write|connect|load|parse|access|create|delete|remove|resolve|fetch|get|execute|complete|process"
    "|locate|retrieve|update|save|reach|convert|decode|import|list|perform|run|start|download|send|query"
)
_WHAT = (
    "tool|arguments?|parameters?|input|request|query|command|method|id|url|path|token|credentials|operation|call"
    "|authentication|authorization|login|connection|validation|execution"
)

_ERRNO = "NOENT|ACCES|PERM|EXIST|ISDIR|NOTDIR|INVAL|CONN[A-Z]+|TIMEDOUT|ADDR[A-Z]+|HOST[A-Z]+|NOTFOUND|BUSY|NOTEMPTY"


@cache
def _error() -> re.Pattern[str]:
    """Return the pattern of texts that read like errors. Compiling it takes 4 ms, and programs often need none."""
    return re.compile(
        rf"""
        [^\w\n]{{0,6}}  # a picture, a bracket, or the marks of bold text
        (?:
            (?!(?:[\w'./-]+[ ]){{0,2}}(?:{_NO_ERROR_WORDS})[ ])(?:[a-z][\w'./-]*[ ]){{0,3}}
            [\w.]*(?:error|exception)(?:[ ]?[(\[][^\n)\]]{{1,40}}[)\]]|[ ]-?\d+)?[*\]]{{0,3}}\s?[:!]{_NO_FIGURE}
          | error[ ](?:(?:{_DOING})\b | (?!{_TOPICS})(?:\w+ing|while|when|in|at|from|on)\b[^\n]{{0,200}}?[:'"])
          | (?:sorry,?[ ])?an[ ](?:\w+[ ]){{0,2}}(?:error|exception)[ ](?:has[ ])?occurred
          | (?-i:(?:(?:Internal[ ][Ss]erver|Unknown|Unexpected|Syntax|Database)[ ][Ee]rror|Error))[.!]?\s*$
          | error[\]][ ] | error[ ][-\u2013\u2014][ ] | error\[\w+\]:
          | traceback[ ]\(most[ ]recent | (?:fatal|panic|err!?):[ ] | (?-i:E(?:{_ERRNO})):[ ]
          | failed[ ]to[ ]\w | (?:could[ ]not|couldn't|cannot|can't|unable[ ]to)[ ](?:{_DO})\b
          | [a-z][\w'"`-]*(?:[ ][\w'"`-]+){{0,2}}[ ]failed(?:[ ]with[^\n:]{{0,60}})?:{_NO_FIGURE}
          | (?:{_WHAT})[ ]failed[.!]?\s*$
          | (?:(?:access|permission)[ ]denied|(?:connection|request)[ ](?:refused|timed[ ]out|reset|aborted)){_END}
          | no[ ]such[ ](?:file|table|column|tool|directory|host|key)\b
          | (?:unknown|invalid|unsupported|missing)[ ](?:\w+[ ])?(?:{_WHAT})(?:{_END}|[ ]?['"`])
          | (?:http[ ](?:status[ ]|error[ ])?)?[45]\d\d:?[ ](?:
              bad[ ]request|unauthorized|forbidden|not[ ]found|internal[ ]server[ ]error|service[ ]unavailable
              |bad[ ]gateway|gateway[ ]time-?out|too[ ]many[ ]requests
            ){_END}
          | rate[ ]limit[ ]exceeded | (?-i:Unauthorized|Forbidden|Not[ ][Ff]ound)[.!]?\s*$
        )
        | \{{\s*"(?:error|errorMessage|error_message)"\s*:\s*(?:"[^"]|\{{\s*")
        | \{{\s*"status"\s*:\s*"error"
        """,
        re.IGNORECASE | re.VERBOSE,
    )


def error_text(result: str) -> str | None:
    """Return the text of a result, as JSON, that reads like an error although `isError` is not set; None otherwise."""
    if len(result) > MAX_RESULT:
        return None
    try:
        found = json.loads(result)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("isError"):
        return None
    text = result_text(found.get("content"))
    data = found.get("structuredContent")
    if text is None or (data is not None and (not isinstance(data, dict) or list(data.values()) != [text])):
        return None
    return text if len(text) <= MAX_TEXT and _error().match(text.strip()) else None


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
        if self._auditor.listening:
            given = {name: each for name, each in request.arguments.items() if name not in request.unrecorded}
            self._emit("call_asked", request.tool, inputs=json_text(given), reason=request.reason)
        else:
            self.noticed("call_asked")

    def decided(self, request: ApprovalRequest, verdict: Verdict) -> None:
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


# The context of the calls of one run, and one call with all that its maker lends to it.


MAX_NEAREST = 20
"""Maximum number of errors in one run that name the ids nearest to an unknown id. The search for these takes long in a
catalog of thousands of tools."""


class Counts(Struct):
    """The numbers of a run's look-ups and calls.

    Attributes:
        by_id: the number of look-ups and calls of ids that do not exist.
    """

    search: int = 0
    describe: int = 0
    call: int = 0
    by_id: int = 0


class CallContext(Struct, frozen=True):
    """The run and the caller on whose behalf calls are made.

    Attributes:
        owner: the owner of the run. If the caller is unknown, the run belongs to everyone who has its id.
        approval_via: see `settings.ApprovalSettings`.
        reads_apps: True for a request of a client that shows apps. Programs cannot read their resources.
        undeclared: the ids of tools whose calls were noted, since they had undeclared arguments.
        error_texts: the ids of tools whose results were noted, since they read like errors.
    """

    run_id: str
    owner: str
    caller: Caller
    catalog: Catalog
    counts: Counts = field(default_factory=Counts)
    approval_via: Via = "auto"
    reads_apps: bool = False
    undeclared: set[str] = field(default_factory=set)
    error_texts: set[str] = field(default_factory=set)

    @property
    def share(self) -> str:
        """The share of the server's capacity that the run uses."""
        return self.caller.share or self.owner

    @property
    def quota_share(self) -> str:
        """The share in whose quotas of stored programs the run counts.

        Clients of one owner count together, because their numbers change with each process.
        """
        return self.share if self.caller.client is None else self.owner


def entry_by_id(target: str, context: CallContext) -> Entry:
    """Return the entry of an id; see `Catalog.resolve_by_id`. After `MAX_NEAREST` errors, no nearest ids are named."""
    context.counts.by_id += context.catalog.toolset.get(target) is None
    return context.catalog.resolve_by_id(target, near=context.counts.by_id <= MAX_NEAREST)


class Calling(NamedTuple):
    """One nested call, and what its maker lends to it on its way.

    Attributes:
        record: changes as the call proceeds. Until it is `dispatched`, the call waits for a connection or for other
            calls.
        on_progress: takes the progress that the tool's server reports.
        ask: puts a question of the tool's server to the client; None if no client can be asked.
        approve: waits for a person's verdict; None if no person can be asked.
        note: takes a note for the reader of the run's result.
        begin: awaited once, right before the call is first sent. If it raises, the call fails and is not sent. None for
            a call that no program makes.
        can_answer: returns whether a client of the run is able to answer a question.
        sent: called right before the call is sent, each time if that takes several requests.
        task: what to do if the server answers with a task; None if the task ends with this call.
    """

    call: ToolCall
    context: CallContext
    record: CallRecord
    on_progress: ProgressFn | None = None
    ask: AskFn | None = None
    approve: ApproveFn | None = None
    note: Callable[[str], None] = lambda _: None
    begin: BeginFn | None = None
    can_answer: Callable[[Question], bool] = lambda _: True
    sent: SentFn = lambda: None
    task: TaskOptions | None = None

    @property
    def entry(self) -> Entry:
        call, context = self.call, self.context
        return entry_by_id(call.target, context) if call.by_id else context.catalog.resolve(call.target)

    def progress(self, secrets: RepeatedSecrets | None) -> ProgressFn | None:
        if secrets is None or self.on_progress is None:
            return self.on_progress
        return secrets.hide_in_progress(self.on_progress)

    def asking(self, secrets: RepeatedSecrets | None) -> Asking | None:
        if self.ask is None:
            return None
        ask = self.ask if secrets is None else secrets.hide_in_questions(self.ask)
        context, record = self.context, self.record
        return Asking(
            context.run_id, ask, context.owner, self.can_answer, record.note_queued, context.share, record.on_start
        )


_IS_ERROR: Final = re.compile(r'"isError"\s*:\s*true')
"""JSON without this text is no result with `isError`, and need not be parsed."""


def outcome_of(record: CallRecord, completion: Completion | None) -> CallOutcome | None:
    """Return the outcome of a call that has ended; None if it does not count.

    Args:
        completion: None if the call was given up.
    """
    if not record.dispatched or record.repeatable:
        return None
    if completion is None or record.is_unknown:
        return "outcome unknown"
    if completion.error is None:
        return None if is_error(completion.value) else "completed"
    if record.server_error is None:
        return "completed"  # only its answer was refused, for example because it is too large
    return "outcome unknown" if record.server_error[0] == INTERNAL_ERROR else None


def stored_outcome(completion: Completion) -> CallOutcome | None:
    """Return the outcome of a stored call that is not repeatable, from its end; None if it does not count."""
    if completion.error is None:
        return None if is_error(completion.value) else "completed"
    data = json.loads(completion.error.data)
    return "outcome unknown" if isinstance(data, dict) and data.get("dispatched") is True else None


def is_error(value: str) -> bool:
    """Return True for the JSON text of an MCP result with `isError`."""
    if _IS_ERROR.search(value) is None:
        return False
    try:
        result = json.loads(value)
    except (ValueError, RecursionError):
        return False
    return isinstance(result, dict) and result.get("isError") is True
