"""The only road from a guest to any tool: resolve → policy → arguments → hooks → approval → call → middleware → audit
(SPEC 6).

Whatever form a nested call has, it comes through `Dispatcher.call`. Look-ups in the run's catalog are answered at once
by `Dispatcher.answer`: they are no tool calls.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import anyio

from codemode_mcp.audit import debugging, sizes
from codemode_mcp.calls.arguments import ArgumentChecker
from codemode_mcp.catalog.entries import within_line
from codemode_mcp.catalog.operations import perform
from codemode_mcp.catalog.servers import login_advice
from codemode_mcp.errors import (
    CodeModeError,
    Exceeded,
    InternalError,
    PluginError,
    PolicyDenied,
    ProgramError,
    UpstreamError,
)
from codemode_mcp.json_text import json_text
from codemode_mcp.plugins.api import EXEC_ID, ToolCallEvent
from codemode_mcp.plugins.running import removed
from codemode_mcp.policy.approval import ApprovalRequest
from codemode_mcp.policy.policy import Ask, Deny, Effects, Policies
from codemode_mcp.sandbox import messages
from codemode_mcp.sandbox.messages import Completion, GuestError, ToolCall
from upstream_clients.errors import UpstreamCallError, UpstreamClientError
from upstream_clients.tools import Admission, Asking, Unfinished

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from codemode_mcp.calls.outcome import CallRecord
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.catalog.observed_types import Shapes
    from codemode_mcp.policy.approval import ApproveFn
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.policy.policy import Policy
    from codemode_mcp.sandbox.messages import Lookup
    from codemode_mcp.settings import CodeModeSettings, Language, ToolSettings, Via
    from declarations.operations import Operation
    from upstream_clients.tools import (
        AskFn,
        BeginFn,
        CallEnd,
        DirectSource,
        JsonObject,
        ProgressFn,
        Question,
        SentCall,
        SentFn,
        Tool,
        ToolSource,
    )

log = logging.getLogger("codemode_mcp.calls")

MAX_NEAREST = 20
"""Unknown ids of one run for which those that are nearest are named."""

LARGE_RESULT = 100_000
"""Characters of a result that middleware has made, from which on its shape is not looked at: it is text by then."""


@dataclass(slots=True)
class Counts:
    """How often a run used each way of asking.

    Attributes:
        by_id: for tools by an id that there is not.
    """

    search: int = 0
    describe: int = 0
    call: int = 0
    by_id: int = 0


@dataclass(frozen=True, slots=True)
class CallContext:
    """On whose behalf calls are made.

    Attributes:
        owner: the caller's; of somebody unknown, whoever holds the run's id.
        approval_via: see `settings.ApprovalSettings`.
    """

    run_id: str
    owner: str
    caller: Caller
    catalog: Catalog
    counts: Counts = field(default_factory=Counts)
    approval_via: Via = "auto"

    @property
    def share(self) -> str:
        """Return whose share of the server the run uses."""
        return self.caller.share or self.owner


class Interception(Protocol):
    """What plugins do to calls on the way: `before` asks the hooks, `after` the middleware.

    Attributes:
        is_ready: whether it is known by now who wants to see calls.
    """

    is_ready: bool

    async def ready(self) -> None:
        """Return once it is."""
        ...

    def hooks(self, tool_id: str) -> bool:
        """Whether any hook wants to see calls of this tool."""
        ...

    async def before(
        self,
        event: ToolCallEvent,
        called: str,
        note: Callable[[str], None],
        accept: Callable[[str], JsonObject],
    ) -> JsonObject:
        """The input to call with.

        Args:
            called: what the program calls the tool, for messages.
            note: takes what the reader of the run's result is told.
            accept: makes an input of JSON that a hook wants to call with instead; raises `ProgramError` for what does
                not fit.

        Raises:
            PolicyDenied: a hook does not let the call pass.
            PluginError: a hook has failed.
        """
        ...

    def before_now(
        self,
        event: ToolCallEvent,
        called: str,
        note: Callable[[str], None],
        accept: Callable[[str], JsonObject],
    ) -> JsonObject:
        """Return what `before` returns, for a tool for which `waits` is False."""
        ...

    def waits(self, tool_id: str) -> bool:
        """Tell whether anything is awaited before a call of this tool, or after it."""
        ...

    def middleware(self, tool_id: str) -> bool:
        """Whether any middleware wants to see results of this tool."""
        ...

    async def after(self, event: ToolCallEvent, called: str, result: Any, limit: int) -> str:
        """The result for the program, as JSON of at most `limit` bytes where a middleware has made it.

        Raises:
            PluginError: a middleware has failed.
        """
        ...


class Dispatcher:
    """See the module.

    Args:
        source: what offers the tool of an entry, for the calls of a run; KeyError when there is none any more.
        shapes: told of results; None where nobody asks for them.
        interception: None where there are no plugins.
    """

    def __init__(
        self,
        source: Callable[[Entry, CallContext], ToolSource],
        tools: ToolSettings,
        shapes: Shapes | None = None,
        interception: Interception | None = None,
    ) -> None:
        self._source = source
        self._policies = Policies(tools)
        self._settings: CodeModeSettings = tools.code_mode
        self._via: Via = tools.approval.via
        self._shapes = shapes
        self._interception = interception
        self._arguments = ArgumentChecker()

    def context(self, run_id: str, owner: str, caller: Caller, catalog: Catalog) -> CallContext:
        """What goes with the calls of a run that begins now. Its catalog knows what its owner's results looked like."""
        if self._shapes is not None:
            self._shapes.keep(
                owner, lambda tool: (entry := catalog.get(tool)) is not None and entry.tool.output_schema is None
            )
            catalog = catalog.observed(self._shapes.of(owner))
        return CallContext(run_id, owner, caller, catalog, approval_via=self._via)

    def apply(self, tools: ToolSettings) -> None:
        """Decide by these from now on, also for runs that have begun."""
        self._policies, self._settings, self._via = Policies(tools), tools.code_mode, tools.approval.via

    # look-ups

    def answer(self, lookup: Lookup, context: CallContext) -> Completion:
        """Answer a look-up from the run's catalog."""
        try:
            return Completion(lookup.id, json_text(self._look_up(lookup, context)))
        except CodeModeError as error:
            return Completion(lookup.id, error=GuestError.of(error))

    def _look_up(self, lookup: Lookup, context: CallContext) -> Any:
        catalog = context.catalog
        match lookup:
            case messages.ApiList(prefix=prefix):
                return {"files": catalog.files.listed(prefix)}
            case messages.ApiRead(path=path):
                return catalog.files.read(path)
            case messages.ApiSearch(query=query, limit=limit, server=server):
                context.counts.search += 1
                return catalog.search(query, self._limit(limit), server)
            case messages.Header(server=server, tool=tool, schema=schema):
                return catalog.header(server, tool, schema=schema)
            case messages.ToolSearch(query=query, limit=limit):
                context.counts.search += 1
                return catalog.toolset.search(query, self._limit(limit))
            case messages.Describe(target=target):
                context.counts.describe += 1
                return catalog.toolset.describe(_by_id(target, context))

    def _limit(self, asked: int | None) -> int:
        return min(self._settings.search_default_limit if asked is None else asked, self._settings.max_search_limit)

    # programs

    @property
    def admits_programs(self) -> bool:
        """Tell whether any hook may judge programs."""
        interception = self._interception
        return interception is not None and (not interception.is_ready or bool(interception.hooks(EXEC_ID)))

    async def admit_program(
        self,
        run_id: str,
        owner: str,
        caller: Caller,
        code: str,
        language: Language,
        note: Callable[[str], None],
    ) -> str:
        """What to run for the outer `exec`: this code, or what a hook has made of it. `note` as for `call`.

        Raises:
            ProgramError: `invalid_input`, a hook does not let it pass.
            InternalError: a hook has failed.
        """
        interception = self._interception
        if interception is None:
            return code
        if not interception.is_ready:
            await interception.ready()
        if not interception.hooks(EXEC_ID):
            return code
        event = ToolCallEvent(
            tool_id=EXEC_ID,
            tool_kind="code_mode_exec",
            tool_input_kind=language,
            input={"code": code},
            run_id=run_id,
            owner=owner,
            principal=caller.principal,
        )
        try:
            admitted: str = (await interception.before(event, "exec", note, _program))["code"]
        except PolicyDenied as error:
            raise ProgramError("invalid_input", error.message) from None
        except PluginError as error:
            raise InternalError(error.message) from None
        return admitted

    # calls

    async def call(
        self,
        call: ToolCall,
        context: CallContext,
        record: CallRecord,
        on_progress: ProgressFn | None,
        ask: AskFn | None = None,
        approve: ApproveFn | None = None,
        note: Callable[[str], None] = lambda _: None,
        begin: BeginFn | None = None,
        can_answer: Callable[[Question], bool] = lambda _: True,
        sent: SentFn = lambda: None,
    ) -> Completion:
        """Carry one nested call to its tool and back. Failures are completions, not exceptions.

        Cancelling it cancels the request upstream. `ask` puts what the tool's server wants to know, `approve` waits for
        a person where policy wants one; None: nobody can be asked. `note` takes what the reader of the run's result is
        told. The record says when the request was sent: before, it waits for a connection, or behind other calls.
        `begin` is awaited once, right before that, and what it raises is the end of the call: nothing was sent.
        `can_answer` tells if a client of the run is able to answer a question. `sent` is called right before each time
        that the call is sent.
        """
        context.counts.call += 1
        try:
            asking = None
            if ask is not None:
                asking = _asking(context, record, ask, can_answer)
            result = await self._call(call, context, record, on_progress, asking, approve, note, begin, sent)
        except Exception as error:
            return self._ended(context, record, self._failed(call, record, error))
        return self._ended(context, record, Completion(call.id, result))

    def _failed(self, call: ToolCall, record: CallRecord, error: Exception) -> Completion:
        if not isinstance(error, CodeModeError):
            log.error("call of %s failed in an unexpected way", within_line(record.tool), exc_info=error)
            error = InternalError(f"{within_line(record.tool)}: the call failed inside codemode-mcp; see its log")
        record.exceeded = error.exceeded
        return Completion(call.id, error=_guest_error(error, record))

    def _ended(self, context: CallContext, record: CallRecord, completion: Completion) -> Completion:
        """Put the end of a call into its record and the log."""
        record.ended = time.monotonic()
        record.size = completion.size
        if completion.error is None:
            record.status = "completed"
            if debugging.log.isEnabledFor(logging.DEBUG):
                debugging.log_result(within_line(record.tool), completion.value)
        else:
            record.status = "failed"
            record.seen = {"text_bytes": sizes.size(completion.error.message)}
        # Not a line for each call of a program that makes thousands: the trajectory has them all.
        level = logging.DEBUG if completion.error is None else logging.INFO
        if log.isEnabledFor(level):
            log.log(
                level,
                "call %s of run %s: %s in %d ms, %d bytes",
                within_line(record.tool),
                context.run_id[:8],
                record.status,
                record.milliseconds(record.ended),
                record.size,
            )
        return completion

    def try_call(
        self,
        call: ToolCall,
        context: CallContext,
        record: CallRecord,
        on_progress: ProgressFn,
        ask: AskFn,
        can_answer: Callable[[Question], bool],
        note: Callable[[str], None],
        sent: SentFn,
        on_end: Callable[[Completion], None],
        spawn: Callable[..., object],
    ) -> SentCall | Completion | None:
        """Carry one nested call to its tool at once, where nothing has to be awaited before it is sent.

        The arguments mean what they mean in `call`.

        Args:
            on_end: takes the end, from the event loop, after this has returned.
            spawn: starts a task, for a result that a plugin wants to see by then.

        Returns:
            The call in flight; or its end, where it was refused; or None where anything has to be awaited: nothing was
            done, and `call` does the same.
        """
        interception = self._interception
        if call.through is not None or (interception is not None and not interception.is_ready):
            return None
        try:
            catalog = context.catalog
            entry = _by_id(call.target, context) if call.by_id else catalog.resolve(call.target)
            source = self._direct(entry, context)
            if source is None or self._is_watched(entry) or self._admit(entry, context, entry.effects) is not None:
                return None

            def signature() -> str:
                return catalog.signature(entry)

            timeout = self._arguments.timeout(call, entry.path, signature)
            arguments = self._arguments.prepare(call, entry.path, entry.tool.input_schema, signature)
            if interception is not None and interception.hooks(entry.id):
                event = _event(entry, call.id, arguments, context)
                arguments = dict(
                    interception.before_now(event, entry.path, note, self._accepts(call, entry, signature))
                )

            def on_sent() -> None:
                sent()
                record.status, record.dispatched = "executing", True

            def ended(end: CallEnd) -> None:
                self._end_direct(call, entry, source, arguments, context, record, end, on_end, spawn)

            in_flight = source.try_call(
                entry.tool.name,
                arguments,
                on_end=ended,
                on_progress=on_progress,
                timeout=timeout,
                asking=_asking(context, record, ask, can_answer),
                on_sent=on_sent,
                admit=self._admission(entry, context, record, approved=False, just_decided=True),
            )
        except Exception as error:
            context.counts.call += 1
            return self._ended(context, record, self._failed(call, record, error))
        if in_flight is not None:
            context.counts.call += 1
        return in_flight

    def _accepts(self, call: ToolCall, entry: Entry, signature: Callable[[], str]) -> Callable[[str], JsonObject]:
        """Return what makes the input of JSON text that a hook wants to call with instead."""

        def accept(text: str) -> JsonObject:
            with_input = replace(call, input=text, count=1)
            return self._arguments.prepare(with_input, entry.path, entry.tool.input_schema, signature)

        return accept

    def _direct(self, entry: Entry, context: CallContext) -> DirectSource | None:
        """Return the source of a tool that can send a call at once, if it is one."""
        if entry.operation is not None:
            return None
        try:
            source = self._source(entry, context)
        except KeyError:
            return None
        return cast("DirectSource", source) if hasattr(source, "try_call") else None

    def _is_watched(self, entry: Entry) -> bool:
        """Tell whether a plugin has to be awaited for calls or results of this tool."""
        interception = self._interception
        return interception is not None and interception.waits(entry.id)

    def _end_direct(
        self,
        call: ToolCall,
        entry: Entry,
        source: ToolSource,
        arguments: JsonObject,
        context: CallContext,
        record: CallRecord,
        end: CallEnd,
        on_end: Callable[[Completion], None],
        spawn: Callable[..., object],
    ) -> None:
        try:
            if isinstance(end, Unfinished):
                spawn(self._finish, call, entry, source, arguments, context, record, end, on_end, spawn)
                return
            if isinstance(end, Exception):
                raise self._call_error(entry, source, record, end)
            record.dispatched = True
            for note in end.notes:
                log.warning("%s: %s", entry.id, note)
            if record.watched:
                record.seen = sizes.seen(end.result)
            if self._is_watched(entry):  # by a plugin that was loaded meanwhile
                spawn(self._end_watched, call, entry, arguments, context, record, end.result, on_end)
                return
            text = json_text(end.result) if end.text is None else end.text
            self._check_size(entry, text)
            self._note_shape(entry, context, end.result)
            completion = Completion(call.id, text)
        except Exception as error:
            completion = self._failed(call, record, error)
        on_end(self._ended(context, record, completion))

    async def _finish(
        self,
        call: ToolCall,
        entry: Entry,
        source: ToolSource,
        arguments: JsonObject,
        context: CallContext,
        record: CallRecord,
        unfinished: Unfinished,
        on_end: Callable[[Completion], None],
        spawn: Callable[..., object],
    ) -> None:
        """Finish a call whose first answer was no result."""
        end: CallEnd
        try:
            end = await unfinished.rest()
        except Exception as error:
            end = error
        self._end_direct(call, entry, source, arguments, context, record, end, on_end, spawn)

    async def _end_watched(
        self,
        call: ToolCall,
        entry: Entry,
        arguments: JsonObject,
        context: CallContext,
        record: CallRecord,
        result: Any,
        on_end: Callable[[Completion], None],
    ) -> None:
        try:
            text = await self._result_text(entry, call.id, arguments, context, None, result, None)
            completion = Completion(call.id, text)
        except Exception as error:
            completion = self._failed(call, record, error)
        on_end(self._ended(context, record, completion))

    async def _result_text(
        self,
        entry: Entry,
        number: int,
        arguments: JsonObject,
        context: CallContext,
        event: ToolCallEvent | None,
        result: Any,
        printed: str | None,
    ) -> str:
        """Return a result as JSON text, as middleware wants it where there is any; `printed`: that of the server."""
        interception = self._interception
        replaced = interception is not None and interception.middleware(entry.id)
        if interception is not None and replaced:
            event = event or _event(entry, number, arguments, context)
            text = await interception.after(event, entry.path, result, self._settings.max_tool_result_bytes)
        else:
            text = json_text(result) if printed is None else printed
        self._check_size(entry, text)
        if not replaced:
            self._note_shape(entry, context, result)
        elif len(text) <= LARGE_RESULT:
            self._note_shape(entry, context, text)
        return text

    def _check_size(self, entry: Entry, text: str) -> None:
        size, most = sizes.size(text), self._settings.max_tool_result_bytes
        if size > most:
            raise UpstreamError(
                f"{entry.path}: the result has {size} bytes, more than maxToolResultBytes "
                f"({most}); ask the tool for less at a time",
                dispatched=True,
                exceeded=Exceeded("maxToolResultBytes", size, most),
            )

    def _note_shape(self, entry: Entry, context: CallContext, result: Any) -> None:
        """Remember the form of a result of a tool that declares none."""
        of_mcp_tool = entry.source == "mcp" and entry.method == "tools/call"
        if self._shapes is not None and of_mcp_tool and entry.tool.output_schema is None:
            self._shapes.note(context.owner, entry.id, result)

    async def _call(
        self,
        call: ToolCall,
        context: CallContext,
        record: CallRecord,
        on_progress: ProgressFn | None,
        asking: Asking | None,
        approve: ApproveFn | None,
        note: Callable[[str], None],
        begin: BeginFn | None,
        sent: SentFn,
    ) -> str:
        catalog = context.catalog
        if call.through is not None and call.through.refusal:
            raise ProgramError("nested_tool_failed", call.through.refusal)
        listed = entry = _by_id(call.target, context) if call.by_id else catalog.resolve(call.target)
        if call.through is not None:
            entry = replace(listed, path=call.through.path)
        asked_for = self._admit(entry, context, entry.effects)
        if call.through is not None and call.through.map_input is not None:
            call = replace(call, input=await call.through.map_input())

        def signature() -> str:
            return catalog.signature(listed)

        timeout = self._arguments.timeout(call, entry.path, signature)
        arguments = self._arguments.prepare(call, entry.path, entry.tool.input_schema, signature)
        interception = self._interception
        if interception is not None and not interception.is_ready:
            await interception.ready()
        event = None
        if interception is not None and interception.hooks(entry.id):
            accept = self._accepts(call, entry, signature)
            event = _event(entry, call.id, arguments, context)
            changed = await interception.before(event, entry.path, note, accept)
            if changed is not arguments:
                arguments, event = dict(changed), None
        if asked_for is not None:
            await self._approved(entry, call, context, arguments, asked_for, approve)
        result, printed = await self._send(
            entry, arguments, context, record, on_progress, asking, timeout, begin, sent, approved=asked_for is not None
        )
        if record.watched:
            record.seen = sizes.seen(result)
        return await self._result_text(entry, call.id, arguments, context, event, result, printed)

    def asks_for(self, target: str, context: CallContext) -> bool:
        """Whether a call of this id waits for a person's approval."""
        entry = context.catalog.get(target)
        try:
            return entry is not None and self._admit(entry, context, entry.effects) is not None
        except PolicyDenied:
            return False

    def _admit(self, entry: Entry, context: CallContext, declared: Effects, why: str = "") -> str | None:
        """Why a person has to approve the call; None when it may be made as it is. Raises `PolicyDenied`."""
        # The rules may be newer than the run's catalog, and the server distrusted since then.
        policy = self._policies.of(context.caller)
        match policy.decide(entry.id, declared if _trusts(policy, entry) else Effects.of(None)):
            case Deny(reason=reason):
                raise PolicyDenied(f"{entry.path} may not be called: {reason}{why}")
            case Ask(reason=reason):
                return reason
        return None

    async def _approved(
        self,
        entry: Entry,
        call: ToolCall,
        context: CallContext,
        arguments: JsonObject,
        reason: str,
        approve: ApproveFn | None,
    ) -> None:
        if approve is None:
            raise PolicyDenied(f"{entry.path} needs a person's approval ({reason}), and nobody can be asked here")
        effects = entry.effects if _trusts(self._policies.of(context.caller), entry) else Effects.of(None)
        shown = json_text(arguments)
        verdict = await approve(ApprovalRequest(call.id, entry.id, entry.path, arguments, effects, reason))
        if not verdict.approved:
            raise PolicyDenied(
                f"{entry.path} was not approved: {verdict.why}; do not try again unless the user asks for it"
            )
        if json_text(arguments) != shown:
            raise PolicyDenied(f"{entry.path}: its arguments were changed after a person had approved others")
        # The rules may be others by now.
        self._admit(entry, context, entry.effects)

    def _admit_present(
        self, entry: Entry, context: CallContext, present: Tool | None, record: CallRecord, *, approved: bool
    ) -> None:
        """Decide again when the call is about to be sent, also by what its server says of the tool now.

        The catalog may be from before the server was connected, and the rules from before the call waited for that or
        for a person.
        """
        self._admit_again(entry, context, approved=approved)
        policy = self._policies.of(context.caller)
        if _trusts(policy, entry) and policy.by_annotations:
            if present is None:
                raise UpstreamError(
                    f"{entry.path}: server {entry.source_name!r} has no tool {entry.tool.name!r} any more",
                    dispatched=record.dispatched,
                )
            changed = "; its server has changed the tool since it was listed"
            asked_for = self._admit(entry, context, Effects.of(present.annotations), changed)
            if asked_for is not None and not approved:
                raise PolicyDenied(
                    f"{entry.path} needs a person's approval ({asked_for}), run the program again{changed}"
                )
        if not approved or present is None or not _trusts(policy, entry):
            return
        if Effects.of(present.annotations) != entry.effects:
            raise PolicyDenied(
                f"{entry.path} was not called: its server has changed what the tool says it does since a person was "
                "asked; run the program again"
            )

    def _admit_again(self, entry: Entry, context: CallContext, *, approved: bool) -> None:
        """Decide by what the rules are now."""
        asked_for = self._admit(entry, context, entry.effects)
        if asked_for is not None and not approved:
            raise PolicyDenied(f"{entry.path} needs a person's approval now ({asked_for}); run the program again")

    async def _send(
        self,
        entry: Entry,
        arguments: dict[str, Any],
        context: CallContext,
        record: CallRecord,
        on_progress: ProgressFn | None,
        asking: Asking | None,
        timeout: float | None,
        begin: BeginFn | None,
        sent: SentFn,
        *,
        approved: bool,
    ) -> tuple[Any, str | None]:
        """Return the result, and its JSON text where the source has one."""
        printed: str | None = None
        try:
            source = self._source(entry, context)
        except KeyError:
            why = f"server {entry.source_name!r} is no longer configured"
            if entry.source != "mcp":
                why = f"{entry.path}: {removed(entry.source_name)}"
            raise UpstreamError(why, dispatched=False) from None

        def on_sent() -> None:
            if entry.operation is not None:
                # Nobody has looked at the rules since the call waited for a connection.
                self._admit_again(entry, context, approved=approved)
            sent()
            record.status, record.dispatched = "executing", True

        try:
            if entry.operation is None:
                outcome = await source.call_tool(
                    entry.tool.name,
                    arguments,
                    on_progress=on_progress,
                    timeout=timeout,
                    asking=asking,
                    on_sent=on_sent,
                    admit=self._admission(entry, context, record, approved=approved),
                    begin=begin,
                )
                for note in outcome.notes:
                    log.warning("%s: %s", entry.id, note)
                result: Any = outcome.result
                printed = outcome.text
            else:
                result = await self._perform(
                    source, entry, entry.operation, arguments, asking, timeout, record, on_sent, begin
                )
        except UpstreamClientError as error:
            raise self._call_error(entry, source, record, error) from error
        record.dispatched = True  # whatever the source has told
        return result, printed

    def _admission(
        self, entry: Entry, context: CallContext, record: CallRecord, *, approved: bool, just_decided: bool = False
    ) -> Admission:
        def decide(present: Tool | None) -> None:
            self._admit_present(entry, context, present, record, approved=approved)

        return Admission(decide, self._policies.of(context.caller).by_annotations, just_decided)

    @staticmethod
    def _call_error(entry: Entry, source: ToolSource, record: CallRecord, error: Exception) -> Exception:
        """Return what a program is told of an error of a source, and note whether the call was sent."""
        if isinstance(error, UpstreamCallError):
            record.dispatched = error.dispatched
            return UpstreamError(f"{entry.path}: {error.message}", dispatched=error.dispatched)
        if isinstance(error, UpstreamClientError):
            why = error.message
            if source.view().login_required:
                why = f"server {entry.source_name!r} {login_advice(entry.source_name)}"
            # Of several requests for one call the earlier ones may have been sent.
            return UpstreamError(f"{entry.path}: {why}", dispatched=record.dispatched)
        return error

    async def _perform(
        self,
        source: ToolSource,
        entry: Entry,
        operation: Operation,
        arguments: dict[str, Any],
        asking: Asking | None,
        timeout: float | None,
        record: CallRecord,
        on_sent: SentFn,
        begin: BeginFn | None,
    ) -> Mapping[str, Any]:
        """An operation on resources or prompts, all its pages within `timeout` seconds."""
        room = self._settings.max_tool_result_bytes

        def has_room(page: Mapping[str, Any]) -> bool:
            nonlocal room
            room -= len(json_text(page).encode("utf-8", "surrogatepass"))
            return room >= 0

        def request(method: str, params: JsonObject) -> Awaitable[JsonObject]:
            nonlocal begin
            first, begin = begin, None
            return source.request(method, params, asking=asking, on_sent=on_sent, begin=first)

        with anyio.move_on_after(timeout):
            return await perform(operation, arguments, request, has_room)
        unsent = "" if record.dispatched else "; nothing was sent"
        raise UpstreamError(f"{entry.path} timed out after {timeout:g} s{unsent}", dispatched=record.dispatched)


def _asking(context: CallContext, record: CallRecord, ask: AskFn, can_answer: Callable[[Question], bool]) -> Asking:
    return Asking(context.run_id, ask, context.owner, can_answer, partial(setattr, record, "why_queued"))


def _by_id(target: str, context: CallContext) -> Entry:
    """See `Catalog.resolve_by_id`. To find what is nearest takes long among thousands of tools, so that it is not done
    for a program that only guesses."""
    context.counts.by_id += context.catalog.toolset.get(target) is None
    return context.catalog.resolve_by_id(target, near=context.counts.by_id <= MAX_NEAREST)


def _trusts(policy: Policy, entry: Entry) -> bool:
    """Whether what a tool says of itself is believed: only of a server may it be that it is not."""
    return entry.source != "mcp" or policy.trusts(entry.source_name)


def _event(entry: Entry, number: int, arguments: JsonObject, context: CallContext) -> ToolCallEvent:
    effects = entry.effects
    return ToolCallEvent(
        tool_id=entry.id,
        tool_kind=entry.source,
        tool_input_kind="json",
        input=arguments,
        run_id=context.run_id,
        owner=context.owner,
        principal=context.caller.principal,
        read_only=effects.read_only,
        destructive=effects.destructive,
        idempotent=effects.idempotent,
        open_world=effects.open_world,
        call=number,
    )


def _program(text: str) -> JsonObject:
    """What a hook wants to run instead of a program, from its JSON."""
    changed = json.loads(text)
    if changed.keys() != {"code"} or not isinstance(changed["code"], str):
        raise ProgramError("invalid_input", "expected {code}, a string")
    code: str = changed["code"]
    if not code.strip():
        raise ProgramError("invalid_input", "the code is empty")
    return {"code": code}


def _guest_error(error: CodeModeError, record: CallRecord) -> GuestError:
    data = {"tool": record.tool, "dispatched": record.dispatched, "repeatable": record.repeatable}
    return GuestError(error.message, name="ToolCallError", code=error.code, data=json_text(data))
