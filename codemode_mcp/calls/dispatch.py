"""The dispatch path: the one way from a program to a tool, and back.

The module is long because it has both forms of the path, which must keep the same steps.

Every call takes it, whatever its form: a function of `MCP`, `tools.call`, a function of a plugin's namespace, a direct
call of pass-through mode. The steps are, in this order:

1. `resolve`: the id becomes an entry of the run's catalog. Unknown ids are refused with the nearest ones.
2. `policy`: the rules deny the call, allow it, or require the approval of a person.
3. `arguments`: options and input are checked against the tool's own schema. Nothing is added.
4. `hooks`: plugins may deny the call or replace its input, which is then checked as in step 3. Then arguments that
   the configuration sets are added, which neither programs nor plugins see.
5. `approval`: if budgets have room, a person decides, if policy requires it. They see the arguments that will be sent.
6. `send`: the source of the tool waits for a connection and its turn, and repeats step 2. If the tool is held, as its
   server lists it then, the call is refused. Budgets count the call.
7. `middleware`: plugins may replace the result. Its size is checked, and a type is learned from it.
8. `record`: the end of the call is written into its record, from which events are made.

These invariants hold:

- A refused call was never sent. Steps 1 to 5 send nothing, so their errors have `dispatched: false`.
- Policy decides before the arguments of a call are read, and again when the call is sent. Meanwhile the call may have
  waited for a connection or a person, and the rules or the annotations of the tool may have changed. Only a call that
  is sent in the same step of the event loop is decided once (`just_decided`), apart from whether the tool is held.
- A person approves exact arguments. If these change between the question and the verdict, the call is refused.
- `begin` is awaited once, right before the first request of a call, and `record.dispatched` is set only then. A call
  that was sent without a record of it could be sent again by another process.
- Failures are completions, not exceptions. An exception that is not a `CodeModeError` becomes `InternalError` and is
  logged.
- Settings are read when they are needed. `apply` changes them for runs that have begun, but never their catalogs.

There are two forms of the path. `call` is a coroutine and awaits whatever it must. `try_call` sends a call in the
step of the event loop that made it, without a task. It is for calls that wait for nothing: no approval, no function of
a namespace, no plugin that has to be awaited, and a source that can send immediately. For other calls it does nothing
and returns None, and the caller awaits `call`.

A program makes thousands of calls, so each step must stay cheap. Completed calls are logged at level debug: at level
info, these lines took a tenth of the time of such programs, and the trajectory has every call. The rules decide once
for a call that is sent in the same step, and each result is copied and searched once. In an earlier version, both were
done twice.

Look-ups in the catalog (`answer`) are not calls. They are answered immediately, because policy has already decided
which tools the catalog shows.

The parts: `rules` decides, `arguments` checks, `configured_arguments` adds arguments of the configuration, `sending`
sends, `repeated_secrets` hides secrets of these arguments in what the server sends, `results` makes the text of a
result, `hooks` applies hooks to the outer `exec`, `lookups` answers look-ups, and `tasks` follows tasks of earlier
processes. `plugins.interception` has the hooks and middleware. `saved_calls` has saved programs: their calls
take steps 1 to 5 and 8, and are answered here with what the guest needs to run them.
"""

from __future__ import annotations

import logging
import time
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from msgspec import structs

from codemode_mcp.audit import debugging, sizes
from codemode_mcp.calls.app_resources import refuse_app, without_apps
from codemode_mcp.calls.arguments import ArgumentChecker
from codemode_mcp.calls.budgets import CallBudgets
from codemode_mcp.calls.challenges import challenges_of
from codemode_mcp.calls.configured_arguments import ConfiguredArguments
from codemode_mcp.calls.context import CallContext, entry_by_id
from codemode_mcp.calls.held_items import HeldItems
from codemode_mcp.calls.hooks import admit_program, event_of
from codemode_mcp.calls.lookups import answer
from codemode_mcp.calls.results import Results, tool_call_error
from codemode_mcp.calls.rules import CallRules
from codemode_mcp.calls.saved_calls import SavedCalls, begin_text, check_chain
from codemode_mcp.calls.sending import Sender, call_error
from codemode_mcp.calls.tasks import follow_task
from codemode_mcp.errors import (
    BudgetExceeded,
    CodeModeError,
    InternalError,
    PolicyDenied,
    ProgramError,
    RuntimeUnavailable,
)
from codemode_mcp.json_text import json_text
from codemode_mcp.plugins.api import EXEC_ID
from codemode_mcp.sandbox.messages import Completion, ToolCall
from codemode_mcp.saved_programs.compiling import ProgramCompiler
from declarations.untrusted_text import escape_line
from upstream_clients.tools import Asking, Unfinished

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from codemode_mcp.calls.outcome import CallRecord
    from codemode_mcp.calls.repeated_secrets import RepeatedSecrets
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.catalog.observed_types import ObservedTypes
    from codemode_mcp.plugins.interception import Interceptors
    from codemode_mcp.policy.approval import ApproveFn
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.program.compile import Transform
    from codemode_mcp.program.typescript import Transformed
    from codemode_mcp.sandbox.messages import Lookup
    from codemode_mcp.settings import CodeModeSettings, Language, ToolSettings, Via
    from codemode_mcp.tool_override import ToolOverride
    from codemode_mcp.trust.service import Trust
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
        TaskOptions,
        ToolOutcome,
        ToolSource,
        UpstreamView,
    )

log = logging.getLogger("codemode_mcp.calls")


class Dispatcher:
    """The dispatch path of one process.

    Args:
        source: returns the source of a tool for the calls of a run. It raises `KeyError` if the source was removed.
        observed: learns the types of results; None if they are not needed.
        interception: the hooks and middleware of plugins; None if there are no plugins.
        trust: the pins of servers; None if no tool is held.
        transform: compiles saved programs in TypeScript; None if there are none.
    """

    def __init__(
        self,
        source: Callable[[Entry, CallContext], ToolSource],
        tools: ToolSettings,
        observed: ObservedTypes | None = None,
        interception: Interceptors | None = None,
        trust: Trust | None = None,
        transform: Transform | None = None,
    ) -> None:
        self._source = source
        self._rules = CallRules(tools, trust)
        self._held = held = None if trust is None else HeldItems(trust)
        self._settings: CodeModeSettings = tools.code_mode
        self._via: Via = tools.approval.via
        self._observed = observed
        self._interception = interception
        self._arguments = ArgumentChecker()
        self._configured = ConfiguredArguments(self._arguments, tools.overrides)
        self.saved = SavedCalls(ProgramCompiler(no_transform if transform is None else transform))
        """The calls of saved programs."""
        self.budgets = CallBudgets(tools.budgets)
        self._sender = Sender(source, self._rules, self.budgets, lambda: self._settings, held)
        self._results = Results(lambda: self._settings, observed, interception)

    def context(self, run_id: str, owner: str, caller: Caller, catalog: Catalog) -> CallContext:
        """Return the context of a run that begins now. Its catalog has the types observed for its owner."""
        if self._observed is not None:
            self._observed.retain(
                owner, lambda tool: (entry := catalog.get(tool)) is not None and entry.tool.output_schema is None
            )
            catalog = catalog.with_observed(self._observed.of(owner))
        return CallContext(run_id, owner, caller, catalog, approval_via=self._via)

    def apply(self, tools: ToolSettings) -> None:
        """Apply these settings from now on, also to runs that have begun."""
        self._rules.apply(tools)
        self._configured.apply(tools.overrides)
        self.budgets.apply(tools.budgets)
        self._settings, self._via = tools.code_mode, tools.approval.via

    @property
    def approval_via(self) -> Via:
        """The way in which a person is asked for approvals; see `settings.ApprovalSettings`."""
        return self._via

    # look-ups

    def answer(self, lookup: Lookup, context: CallContext, note: Callable[[str], None] = lambda _: None) -> Completion:
        """Answer a look-up from the run's catalog. `note`: called with a note for the reader of the run's result."""
        return answer(lookup, context, self._settings, note)

    # programs

    @property
    def admits_programs(self) -> bool:
        """True if a hook may apply to programs."""
        interception = self._interception
        return interception is not None and (not interception.is_ready or interception.has_hooks(EXEC_ID))

    async def admit_program(
        self, run_id: str, owner: str, caller: Caller, code: str, language: Language, note: Callable[[str], None]
    ) -> str:
        """Return the program to run for an `exec`; see `hooks.admit_program`."""
        return await admit_program(self._interception, run_id, owner, caller, code, language, note)

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
        task: TaskOptions | None = None,
    ) -> Completion:
        """Make one nested call and return its end. Failures are completions, not exceptions.

        Cancellation cancels the request upstream.

        Args:
            record: changes as the call proceeds. Until it is `dispatched`, the call waits for a connection or for
                other calls.
            ask: puts a question of the tool's server to the client; None if no client can be asked.
            approve: waits for a person's verdict; None if no person can be asked.
            note: called with a note for the reader of the run's result.
            begin: awaited once, right before the call is first sent. If it raises, the call fails and is not sent.
            can_answer: returns whether a client of the run is able to answer a question.
            sent: called right before the call is sent, each time if that takes several requests.
            task: what to do if the server answers with a task; None if the task ends with this call.
        """
        context.counts.call += 1
        try:
            result = await self._call(
                call, context, record, on_progress, ask, approve, note, begin, can_answer, sent, task
            )
        except Exception as error:
            return self._ended(context, record, self._failed(call, record, error))
        return self._ended(context, record, Completion(call.id, result))

    async def follow(
        self,
        call: ToolCall,
        context: CallContext,
        record: CallRecord,
        on_progress: ProgressFn | None,
        ask: AskFn,
        can_answer: Callable[[Question], bool],
        task: TaskOptions,
    ) -> Completion:
        """Follow the task of a call that an earlier process has sent, and return the end of the call.

        The other arguments are those of `call`.

        Args:
            task: its `known` is the handle of the task.
        """
        try:
            result = await follow_task(
                call,
                context,
                record,
                on_progress,
                lambda secrets: _asking(context, record, ask, can_answer, secrets),
                task,
                self._sender,
                self._configured,
                self._interception,
                self._results,
            )
        except Exception as error:
            return self._ended(context, record, self._failed(call, record, error))
        return self._ended(context, record, Completion(call.id, result))

    def _failed(self, call: ToolCall, record: CallRecord, error: Exception) -> Completion:
        if not isinstance(error, CodeModeError):
            log.error("call of %s failed in an unexpected way", escape_line(record.tool), exc_info=error)
            error = InternalError(f"{escape_line(record.tool)}: the call failed inside codemode-mcp; see its log")
        record.exceeded = error.exceeded
        if isinstance(error, PolicyDenied | BudgetExceeded):
            record.refused = error.message
        return Completion(call.id, error=tool_call_error(record, error.message, error.code))

    def _ended(self, context: CallContext, record: CallRecord, completion: Completion) -> Completion:
        """Write the end of a call into its record and the log."""
        record.ended = time.monotonic()
        record.size = completion.size
        if completion.error is None:
            record.status = "completed"
            if debugging.log.isEnabledFor(logging.DEBUG):
                debugging.log_result(escape_line(record.tool), completion.value)
        else:
            record.status = "failed"
            record.seen = {"text_bytes": sizes.size(completion.error.message)}
        # At level debug, because a program makes thousands of calls; see the top of the module.
        level = logging.DEBUG if completion.error is None else logging.INFO
        if log.isEnabledFor(level):
            log.log(
                level,
                "call %s of run %s: %s in %d ms, %d bytes",
                escape_line(record.tool),
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
        task: TaskOptions | None = None,
    ) -> SentCall | Completion | None:
        """Send one nested call immediately, if nothing has to be awaited before.

        The other arguments are those of `call`.

        Args:
            on_end: called with the end, from the event loop, after this method has returned.
            spawn: starts a task, for an answer that is not complete, or that a plugin has to see.

        Returns:
            The call in flight; its end if it was refused; or None if something has to be awaited. Then nothing was
            done, and `call` makes the call.
        """
        interception = self._interception
        if call.through is not None or (interception is not None and not interception.is_ready):
            return None
        try:
            catalog = context.catalog
            entry = entry_by_id(call.target, context) if call.by_id else catalog.resolve(call.target)
            if entry.source == "program":
                return self._try_program(call, entry, context, record, note, sent)
            source = self._direct_source(entry, context)
            if source is None or self._is_watched(entry):
                return None
            if self._rules.decide(entry, context) is not None:
                return None

            def signature() -> str:
                return catalog.signature(entry)

            override = self._configured.overrides.get(entry.id)
            timeout = self._arguments.timeout(call, entry.path, signature)
            undeclared = partial(_note_undeclared, entry, context, note)
            if override is None:
                schema = entry.tool.input_schema
                arguments = self._arguments.prepare(call, entry.path, schema, signature, None, undeclared)
            else:
                arguments = self._configured.prepare(call, entry, override, signature, undeclared)
            if interception is not None and interception.has_hooks(entry.id):
                event = event_of(entry, call.id, arguments, context)
                arguments = dict(
                    interception.before_now(event, entry.path, note, self._accepts(call, entry, override, signature))
                )
            complete = arguments
            if override is not None or entry.listed is not None:
                complete = self._configured.complete(entry, override, arguments, signature)

            use = self.budgets.use(entry, context)
            secrets = self._configured.secrets(entry)

            def on_sent() -> None:
                if use is not None:
                    use.sent()
                sent()
                record.status, record.dispatched = "executing", True

            def ended(end: CallEnd) -> None:
                if isinstance(end, Unfinished):
                    spawn(_finish, end, ended)
                else:
                    if use is not None:
                        use.ended(end)
                    self._end_direct(call, entry, source, arguments, secrets, context, record, end, on_end, spawn)

            made_in = copy_context()
            in_flight = source.try_call(
                entry.tool.name if entry.listed is None else entry.listed.name,
                complete,
                # The connection calls it, whose records belong to all clients.
                on_end=lambda end: made_in.run(ended, end),
                on_progress=on_progress if secrets is None else secrets.hide_in_progress(on_progress),
                timeout=timeout,
                asking=_asking(context, record, ask, can_answer, secrets),
                on_sent=on_sent,
                admit=self._rules.admission(entry, context, record, override, approved=False, just_decided=True),
                task=task,
            )
        except Exception as error:
            context.counts.call += 1
            return self._ended(context, record, self._failed(call, record, error))
        if in_flight is None:  # `call` makes the call, and counts it
            return None
        context.counts.call += 1
        return in_flight if use is None else use.of(in_flight)

    def _accepts(
        self, call: ToolCall, entry: Entry, override: ToolOverride | None, signature: Callable[[], str]
    ) -> Callable[[str], JsonObject]:
        """Return a function that checks the input, as JSON text, that a hook returns instead."""

        def accept(text: str) -> JsonObject:
            with_input = structs.replace(call, input=text, count=1)
            return self._configured.prepare(with_input, entry, override, signature)

        return accept

    def _direct_source(self, entry: Entry, context: CallContext) -> DirectSource | None:
        """Return the source of a tool if it can send a call immediately."""
        if entry.operation is not None:
            return None
        try:
            source = self._source(entry, context)
        except KeyError:
            return None
        return cast("DirectSource", source) if hasattr(source, "try_call") else None

    def _is_watched(self, entry: Entry) -> bool:
        """Return True if a plugin has to be awaited for calls or results of this tool."""
        interception = self._interception
        return interception is not None and interception.waits(entry.id)

    def _end_direct(
        self,
        call: ToolCall,
        entry: Entry,
        source: ToolSource,
        arguments: JsonObject,
        secrets: RepeatedSecrets | None,
        context: CallContext,
        record: CallRecord,
        end: ToolOutcome | Exception,
        on_end: Callable[[Completion], None],
        spawn: Callable[..., object],
    ) -> None:
        """End a call that was sent without a task."""
        try:
            if isinstance(end, Exception):
                raise call_error(entry, source, record, end, secrets)
            if secrets is not None:
                end = secrets.hide_in_outcome(end)
            record.dispatched = True
            for note in end.notes:
                log.warning("%s: %s", entry.id, note)
            record.challenges = challenges_of(end.result)
            if record.watched:
                record.seen = sizes.seen(end.result)
            if self._is_watched(entry):  # by a plugin that was loaded while the call was in flight
                spawn(self._end_watched, call, entry, arguments, context, record, end.result, on_end)
                return
            text = json_text(end.result) if end.text is None else end.text
            self._results.check_size(entry, text)
            self._results.learn(entry, context, end.result)
            completion = Completion(call.id, text)
        except Exception as error:
            completion = self._failed(call, record, error)
        on_end(self._ended(context, record, completion))

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
            text = await self._results.text(entry, call.id, arguments, context, None, result, None)
            completion = Completion(call.id, text)
        except Exception as error:
            completion = self._failed(call, record, error)
        on_end(self._ended(context, record, completion))

    async def _call(
        self,
        call: ToolCall,
        context: CallContext,
        record: CallRecord,
        on_progress: ProgressFn | None,
        ask: AskFn | None,
        approve: ApproveFn | None,
        note: Callable[[str], None],
        begin: BeginFn | None,
        can_answer: Callable[[Question], bool],
        sent: SentFn,
        task: TaskOptions | None,
    ) -> str:
        catalog = context.catalog
        if call.through is not None and call.through.refusal:
            raise ProgramError("nested_tool_failed", call.through.refusal)
        # If a program calls a function of a namespace, messages name that expression, with the signature of the tool.
        listed = entry = entry_by_id(call.target, context) if call.by_id else catalog.resolve(call.target)
        if call.through is not None:
            entry = replace(listed, path=call.through.path)
        if entry.source == "program":
            check_chain(entry, call)
        asked_for = self._rules.decide(entry, context)
        if call.through is not None and call.through.map_input is not None:
            call = structs.replace(call, input=await call.through.map_input())

        def signature() -> str:
            return catalog.signature(listed)

        override = self._configured.overrides.get(entry.id)
        timeout = self._arguments.timeout(call, entry.path, signature)
        # A client that calls a tool itself gets the answer of the server as it is.
        undeclared = None if begin is None else partial(_note_undeclared, entry, context, note)
        arguments = self._configured.prepare(call, entry, override, signature, undeclared)
        interception = self._interception
        if interception is not None and not interception.is_ready:
            await interception.ready()
        event = None
        if interception is not None and interception.has_hooks(entry.id):
            accept = self._accepts(call, entry, override, signature)
            event = event_of(entry, call.id, arguments, context)
            changed = await interception.before(event, entry.path, note, accept)
            if changed is not arguments:
                arguments, event = dict(changed), None  # the event has the earlier arguments
        complete = self._configured.complete(entry, override, arguments, signature)
        if not context.reads_apps:
            refuse_app(entry, complete)
        if self.budgets.limits(entry):
            self.budgets.check(entry, context)
        if asked_for is not None:
            await self._rules.approve(entry, call, context, complete, asked_for, approve, override)
        if entry.source == "program":
            return await self._begin_program(entry, call, context, record, complete, begin, sent, asked_for is not None)
        secrets = self._configured.secrets(entry)
        if secrets is not None and on_progress is not None:
            on_progress = secrets.hide_in_progress(on_progress)
        result, source_text = await self._sender.send(
            entry,
            complete,
            context,
            record,
            on_progress,
            None if ask is None else _asking(context, record, ask, can_answer, secrets),
            timeout,
            begin,
            sent,
            override,
            secrets,
            task,
            approved=asked_for is not None,
        )
        result = without_apps(entry, result)
        record.challenges = challenges_of(result)
        if record.watched:
            record.seen = sizes.seen(result)
        return await self._results.text(entry, call.id, arguments, context, event, result, source_text)

    def _try_program(
        self,
        call: ToolCall,
        entry: Entry,
        context: CallContext,
        record: CallRecord,
        note: Callable[[str], None],
        sent: SentFn,
    ) -> Completion | None:
        """Answer a call of a saved program, if nothing has to be awaited before. Raises as `_call`."""
        check_chain(entry, call)
        compiled = self.saved.known(entry, context)
        if compiled is None or self._is_watched(entry) or self._rules.decide(entry, context) is not None:
            return None

        def signature() -> str:
            return context.catalog.signature(entry)

        override = self._configured.overrides.get(entry.id)
        undeclared = partial(_note_undeclared, entry, context, note)
        arguments = self._configured.prepare(call, entry, override, signature, undeclared)
        interception = self._interception
        if interception is not None and interception.has_hooks(entry.id):
            event = event_of(entry, call.id, arguments, context)
            accept = self._accepts(call, entry, override, signature)
            arguments = dict(interception.before_now(event, entry.path, note, accept))
        complete = self._configured.complete(entry, override, arguments, signature)
        sent()
        record.status, record.dispatched = "executing", True
        context.counts.call += 1
        return self._ended(context, record, Completion(call.id, begin_text(call, compiled, complete)))

    async def _begin_program(
        self,
        entry: Entry,
        call: ToolCall,
        context: CallContext,
        record: CallRecord,
        arguments: JsonObject,
        begin: BeginFn | None,
        sent: SentFn,
        approved: bool,
    ) -> str:
        """Return what the guest needs to run a saved program. Nothing else is sent anywhere."""
        if begin is None:  # no program makes this call, so there is no guest that could run it
            raise ProgramError(
                "invalid_input", f"{entry.path} is a saved program, which only programs of exec can call"
            )
        compiled = await self.saved.compile(entry, context)
        await begin()
        self._rules.decide_again(entry, context, approved=approved)
        sent()
        record.status, record.dispatched = "executing", True
        return begin_text(call, compiled, arguments)

    def refuse_held(self, entry: Entry, arguments: JsonObject, view: UpstreamView, resources: Collection[str]) -> None:
        """Raise `CodeModeError` if a request is about a held item; see `HeldItems.check`."""
        if self._held is not None and self._held.may_hold(entry):
            self._held.check(entry, arguments, view, resources)

    def asks_for(self, target: str, context: CallContext) -> bool:
        """Return True if a call of this id needs a person's approval."""
        return self._rules.asks_for(target, context)


async def no_transform(source: str) -> Transformed:
    """Refuse TypeScript, in a process without a compiler."""
    raise RuntimeUnavailable("TypeScript cannot be compiled here; write the program in JavaScript")


def _note_undeclared(entry: Entry, context: CallContext, note: Callable[[str], None], undeclared: str) -> None:
    """Note arguments that a call is sent with although its tool does not declare them, once for a tool and a run."""
    if entry.id not in context.undeclared:
        context.undeclared.add(entry.id)
        note(f"{escape_line(entry.id)} got undeclared arguments: {undeclared}")


async def _finish(unfinished: Unfinished, ended: Callable[[CallEnd], None]) -> None:
    """Finish a call whose first answer was not its result."""
    try:
        end: CallEnd = await unfinished.rest()
    except Exception as error:
        end = error
    ended(end)


def _asking(
    context: CallContext,
    record: CallRecord,
    ask: AskFn,
    can_answer: Callable[[Question], bool],
    secrets: RepeatedSecrets | None,
) -> Asking:
    queued = partial(setattr, record, "why_queued")
    if secrets is not None:
        ask = secrets.hide_in_questions(ask)
    return Asking(context.run_id, ask, context.owner, can_answer, queued, context.share, record.on_start)
