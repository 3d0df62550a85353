"""The context of the calls of one run, and one call with all that its maker lends to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from upstream_clients.tools import Asking

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.calls.outcome import CallRecord
    from codemode_mcp.calls.repeated_secrets import RepeatedSecrets
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.policy.approval import ApproveFn
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.sandbox.messages import ToolCall
    from codemode_mcp.settings import Via
    from upstream_clients.tools import AskFn, BeginFn, ProgressFn, Question, SentFn, TaskOptions

MAX_NEAREST = 20
"""Maximum number of errors in one run that name the ids nearest to an unknown id. The search for these takes long in a
catalog of thousands of tools."""


@dataclass(slots=True)
class Counts:
    """The numbers of a run's look-ups and calls.

    Attributes:
        by_id: the number of look-ups and calls of ids that do not exist.
    """

    search: int = 0
    describe: int = 0
    call: int = 0
    by_id: int = 0


@dataclass(frozen=True, slots=True)
class CallContext:
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
        """The entry of the run's catalog that the call names."""
        call, context = self.call, self.context
        return entry_by_id(call.target, context) if call.by_id else context.catalog.resolve(call.target)

    def progress(self, secrets: RepeatedSecrets | None) -> ProgressFn | None:
        """Return the function that takes progress. `secrets`: secret values that the server may repeat."""
        if secrets is None or self.on_progress is None:
            return self.on_progress
        return secrets.hide_in_progress(self.on_progress)

    def asking(self, secrets: RepeatedSecrets | None) -> Asking | None:
        """Return the person who can be asked. `secrets`: secret values that the server may repeat."""
        if self.ask is None:
            return None
        ask = self.ask if secrets is None else secrets.hide_in_questions(self.ask)
        context, record = self.context, self.record
        return Asking(
            context.run_id, ask, context.owner, self.can_answer, record.note_queued, context.share, record.on_start
        )
