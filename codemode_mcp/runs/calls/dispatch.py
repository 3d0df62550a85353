"""The dispatch path: the one way from a program to a tool, and back.

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
  waited for a connection or a person, and the rules or the annotations of the tool may have changed.
- A person approves exact arguments. If these change between the question and the verdict, the call is refused.
- `begin` is awaited once, right before the first request of a call, and `record.dispatched` is set only then. A call
  that was sent without a record of it could be sent again by another process.
- Failures are completions, not exceptions. An exception that is not a `CodeModeError` becomes `InternalError` and is
  logged.
- Settings are read when they are needed. `apply` changes them for runs that have begun, but never their catalogs.

The path is a coroutine, which awaits whatever it must. Usually that is only the answer of the server: the rules have
decided, no person has to be asked, no plugin has to be awaited, and the source can send the call now. A call that is
made as an eager coroutine (`upstream_clients.eager`) is then sent in the step of the event loop that made it, and needs
no task. No step of the path may rely on that: any of them may wait.

A program makes thousands of calls, so each step must stay cheap. Completed calls are logged at level debug: at level
info, these lines took a tenth of the time of such programs, and the trajectory has every call. The rules decide again
only if they have changed, and each result is copied and searched once. In an earlier version, both were done twice.

Look-ups in the catalog (`answer`) are not calls. They are answered immediately, because policy has already decided
which tools the catalog shows.

The parts: `rules` decides. `arguments` checks arguments, adds those of the configuration, and hides their secrets in
what the server sends. `sending` sends a call, makes the text of its result, and follows tasks of earlier processes.
`catalog.plugins.interception` has the hooks and middleware. `host_calls` answers look-ups and calls of saved programs.
The latter take steps 1 to 5 and 8, and are answered with what the guest needs to run them.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
from msgspec import structs

from codemode_mcp.audit import sizes
from codemode_mcp.base import errors
from codemode_mcp.base.strict_json import json_text
from codemode_mcp.base.text import utf8_size
from codemode_mcp.catalog.entries import RESOURCE_LIST, Entry, perform
from codemode_mcp.catalog.plugins.api import EXEC_ID
from codemode_mcp.catalog.plugins.running import removal_message
from codemode_mcp.catalog.saved_programs.compiling import ProgramCompiler
from codemode_mcp.catalog.servers import login_advice
from codemode_mcp.runs.calls.arguments import ArgumentChecker, ConfiguredArguments, RepeatedSecrets
from codemode_mcp.runs.calls.host_calls import SavedCalls, answer, begin_text, check_chain
from codemode_mcp.runs.calls.outcome import CallContext, Calling, CallRecord
from codemode_mcp.runs.calls.rules import CallBudgets, CallRules, Decision, HeldItems, HeldResource
from codemode_mcp.runs.calls.sending import Results, admit_program, event_of, refuse_app, tool_call_error, without_apps
from codemode_mcp.sandbox.messages import Completion, Lookup
from declarations.untrusted_text import escape_line
from upstream_clients.errors import TaskLost, UpstreamCallError, UpstreamClientError
from upstream_clients.jsonrpc import INTERNAL_ERROR

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from codemode_mcp.base.settings import CodeModeSettings, Language, ToolOverride, ToolSettings, Via
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.observed_types import ObservedTypes
    from codemode_mcp.catalog.plugins.interception import Interceptors
    from codemode_mcp.program.prepare import Transform
    from codemode_mcp.program.typescript import Transformed
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.rules.trust.service import Trust
    from declarations.operations import Operation
    from upstream_clients.tools import JsonObject, SentFn, TaskOptions, ToolSource, UpstreamView

log = logging.getLogger("codemode_mcp.runs.calls")


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
        return answer(lookup, context, self._settings, note)

    # programs

    @property
    def admits_programs(self) -> bool:
        interception = self._interception
        return interception is not None and (not interception.is_ready or interception.has_hooks(EXEC_ID))

    async def admit_program(
        self, run_id: str, owner: str, caller: Caller, code: str, language: Language, note: Callable[[str], None]
    ) -> str:
        """Return the program to run for an `exec`; see `hooks.admit_program`."""
        return await admit_program(self._interception, run_id, owner, caller, code, language, note)

    # calls

    async def call(self, calling: Calling) -> Completion:
        """Make one nested call and return its end. Failures are completions, not exceptions.

        Cancellation cancels the request upstream.
        """
        calling.context.counts.call += 1
        return await self._completion(calling, self._call(calling))

    async def follow(self, calling: Calling, task: TaskOptions) -> Completion:
        """Follow the task of a call that an earlier process has sent, and return the end of the call.

        Args:
            task: its `known` is the handle of the task.
        """
        return await self._completion(calling, self._follow(calling, task))

    async def _completion(self, calling: Calling, result: Awaitable[str]) -> Completion:
        """Return the end of a call, after writing it into the record and the log."""
        record = calling.record
        try:
            completion = Completion(calling.call.id, await result)
        except Exception as error:
            completion = _failed(calling, error)
        record.ended = time.monotonic()
        record.size = completion.size
        if completion.error is None:
            record.status = "completed"
            if sizes.log.isEnabledFor(logging.DEBUG):
                sizes.log_result(escape_line(record.tool), completion.value)
        else:
            record.status = "failed"
            record.seen = {"text_bytes": utf8_size(completion.error.message)}
        # At level debug, because a program makes thousands of calls; see the top of the module.
        level = logging.DEBUG if completion.error is None else logging.INFO
        if log.isEnabledFor(level):
            log.log(
                level,
                "call %s of run %s: %s in %d ms, %d bytes",
                escape_line(record.tool),
                calling.context.run_id[:8],
                record.status,
                record.milliseconds(record.ended),
                record.size,
            )
        return completion

    async def _call(self, calling: Calling) -> str:
        call, context, _, _, _, approve, note, begin, *_ = calling
        through = call.through
        if through is not None and through.refusal:
            raise errors.ProgramError("nested_tool_failed", through.refusal)
        listed = entry = calling.entry
        if through is not None:
            # Messages name the function of the namespace that the program calls, with the signature of the tool.
            entry = structs.replace(listed, path=through.path)
        if entry.source == "program":
            check_chain(entry, call)
        decision = self._rules.decide_first(entry, context)
        if through is not None and through.map_input is not None:
            call = structs.replace(call, input=await through.map_input())

        def signature() -> str:
            return context.catalog.signature(listed)

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

            def accept(text: str) -> JsonObject:
                """Check the input, as JSON text, that a hook returns instead."""
                with_input = structs.replace(call, input=text, count=1)
                return self._configured.prepare(with_input, entry, override, signature)

            event = event_of(entry, call.id, arguments, context)
            changed = await interception.before(event, entry.path, note, accept)
            if changed is not arguments:
                arguments, event = dict(changed), None  # the event has the earlier arguments
        complete = self._configured.complete(entry, override, arguments, signature)
        if entry.operation is not None and not context.reads_apps:
            refuse_app(entry, complete)
        if self.budgets.limits(entry):
            self.budgets.check(entry, context)
        if decision.asked_for is not None:
            await self._rules.approve(entry, call, context, complete, decision.asked_for, approve, override)
        if entry.source == "program":
            return await self._begin_program(entry, calling, complete, decision)
        admitted = Admitted(entry, complete, decision, override, self._configured.secrets(entry), timeout)
        result, source_text = await self._sender.send(calling, admitted)
        if entry.operation is not None:
            result = without_apps(entry, result)
        self._results.note(calling.record, result)
        return await self._results.text(entry, call.id, arguments, context, event, result, source_text)

    async def _follow(self, calling: Calling, task: TaskOptions) -> str:
        """Follow a task to its end. The rules do not decide again: the call was sent when they allowed it."""
        call, context, entry = calling.call, calling.context, calling.entry
        result = await self._sender.follow(calling, entry, self._configured.secrets(entry), task)
        self._results.note(calling.record, result)
        interception = self._interception
        if interception is not None and not interception.is_ready:
            await interception.ready()
        arguments: JsonObject = {}
        if interception is not None and interception.has_middleware(entry.id):
            # As the program gave them. Changes of hooks are not known any more.
            with suppress(errors.CodeModeError):
                override = self._configured.overrides.get(entry.id)
                arguments = self._configured.prepare(call, entry, override, lambda: context.catalog.signature(entry))
        return await self._results.text(entry, call.id, arguments, context, None, result, None)

    async def _begin_program(self, entry: Entry, calling: Calling, arguments: JsonObject, decision: Decision) -> str:
        """Return what the guest needs to run a saved program. Nothing else is sent anywhere."""
        if calling.begin is None:  # no program makes this call, so there is no guest that could run it
            raise errors.ProgramError(
                "invalid_input", f"{entry.path} is a saved program, which only programs of exec can call"
            )
        compiled = await self.saved.compile(entry, calling.context)
        await calling.begin()
        self._rules.decide_again(entry, calling.context, decision)
        calling.sent()
        calling.record.status, calling.record.dispatched = "executing", True
        return begin_text(calling.call, compiled, arguments)

    def refuse_held(self, entry: Entry, arguments: JsonObject, view: UpstreamView, resources: Collection[str]) -> None:
        if self._held is not None and self._held.may_hold(entry):
            self._held.check(entry, arguments, view, resources)

    def asks_for(self, target: str, context: CallContext) -> bool:
        return self._rules.asks_for(target, context)


async def no_transform(source: str) -> Transformed:
    """Refuse TypeScript, in a process without a compiler."""
    raise errors.RuntimeUnavailable("TypeScript cannot be compiled here; write the program in JavaScript")


def _note_undeclared(entry: Entry, context: CallContext, note: Callable[[str], None], undeclared: str) -> None:
    """Note arguments that a call is sent with although its tool does not declare them, once for a tool and a run."""
    if entry.id not in context.undeclared:
        context.undeclared.add(entry.id)
        note(f"{escape_line(entry.id)} got undeclared arguments: {undeclared}")


def _failed(calling: Calling, error: Exception) -> Completion:
    record = calling.record
    if not isinstance(error, errors.CodeModeError):
        log.error("call of %s failed in an unexpected way", escape_line(record.tool), exc_info=error)
        error = errors.InternalError(f"{escape_line(record.tool)}: the call failed inside codemode-mcp; see its log")
    record.exceeded = error.exceeded
    if isinstance(error, errors.PolicyDenied | errors.BudgetExceeded):
        record.refused = error.message
    return Completion(calling.call.id, error=tool_call_error(record, error.message, error.code))


class Admitted(NamedTuple):
    """A call that may be sent.

    Attributes:
        arguments: those to send.
        decision: the decision of the rules about the call.
        override: the override that has set some of the arguments.
        secrets: the secret values that the server may repeat.
        timeout: limit in seconds; None for the limit of the source.
    """

    entry: Entry
    arguments: JsonObject
    decision: Decision
    override: ToolOverride | None
    secrets: RepeatedSecrets | None
    timeout: float | None


class Sender:
    """The sender of calls to the sources of their tools."""

    def __init__(
        self,
        source: Callable[[Entry, CallContext], ToolSource],
        rules: CallRules,
        budgets: CallBudgets,
        settings: Callable[[], CodeModeSettings],
        held: HeldItems | None = None,
    ) -> None:
        """`held`: the pins of prompts and resource templates; None if none is held."""
        self._source = source
        self._rules = rules
        self._budgets = budgets
        self._settings = settings
        self._held = held

    async def send(self, calling: Calling, admitted: Admitted) -> tuple[Any, str | None]:
        """Send a call. Return its result, and the JSON text of the result if the source provides it."""
        entry, arguments, decision, override, secrets, timeout = admitted
        context, record = calling.context, calling.record
        source_text: str | None = None
        from_cache = False
        source = self._source_of(entry, context, dispatched=False)
        use = self._budgets.use(entry, context)

        def on_sent() -> None:
            if entry.operation is not None:
                # The rules may have changed while the call waited for a connection.
                self._rules.decide_again(entry, context, decision)
            if use is not None:
                use.sent()
            calling.sent()
            record.status, record.dispatched = "executing", True

        def on_cached() -> None:
            nonlocal from_cache
            self._rules.decide_again(entry, context, decision)
            if use is not None:
                use.sent()
            from_cache = True

        try:
            if entry.operation is None:
                outcome = await source.call_tool(
                    entry.original.name,
                    arguments,
                    on_progress=calling.progress(secrets),
                    timeout=timeout,
                    asking=calling.asking(secrets),
                    on_sent=on_sent,
                    admit=self._rules.admission(entry, context, record, override, decision),
                    begin=calling.begin,
                    task=calling.task,
                )
                if secrets is not None:
                    outcome = secrets.hide_in_outcome(outcome)
                for note in outcome.notes:
                    log.warning("%s: %s", entry.id, note)
                result: Any = outcome.result
                source_text = outcome.text
            else:
                result = await self._perform(source, entry.operation, calling, admitted, on_sent, on_cached)
                if secrets is not None:
                    result = secrets.hide(result)
            if use is not None:
                use.received(result, source_text)
        except UpstreamClientError as error:
            raise _call_error(entry, source, record, error, secrets) from error
        finally:
            if use is not None:
                use.ended()
        if not from_cache:
            record.dispatched = True  # even if the source did not report it
        return result, source_text

    async def follow(self, calling: Calling, entry: Entry, secrets: RepeatedSecrets | None, task: TaskOptions) -> Any:
        """Follow the task of a call that an earlier process has sent. Return the result of the call."""
        context, record = calling.context, calling.record
        try:
            source = self._source_of(entry, context, dispatched=True)
        except errors.UpstreamError:
            record.is_unknown = True
            raise
        try:
            outcome = await source.call_tool(
                entry.original.name,
                {},
                on_progress=calling.progress(secrets),
                asking=calling.asking(secrets),
                task=task,
            )
        except UpstreamClientError as error:
            raise _call_error(entry, source, record, error, secrets) from error
        if secrets is not None:
            outcome = secrets.hide_in_outcome(outcome)
        for note in outcome.notes:
            log.warning("%s: %s", entry.id, note)
        use = self._budgets.use(entry, context)
        if use is not None:
            use.received(outcome.result, None)
        return outcome.result

    def _source_of(self, entry: Entry, context: CallContext, *, dispatched: bool) -> ToolSource:
        try:
            return self._source(entry, context)
        except KeyError:
            why = f"server {entry.source_name!r} is no longer configured"
            if entry.source != "mcp":
                why = f"{entry.path}: {removal_message(entry.source_name)}"
            raise errors.UpstreamError(why, dispatched=dispatched) from None

    async def _perform(
        self,
        source: ToolSource,
        operation: Operation,
        calling: Calling,
        admitted: Admitted,
        on_sent: SentFn,
        on_cached: SentFn,
    ) -> Mapping[str, Any]:
        """Perform an operation on resources or prompts. All its pages together may take `timeout` seconds."""
        entry, arguments, _, _, secrets, timeout = admitted
        record, begin = calling.record, calling.begin
        limit = self._settings().max_tool_result_bytes
        held = self._held if self._held is not None and self._held.may_hold(entry) else None
        resources: set[str] = set()

        def admit(view: UpstreamView) -> None:
            if held is not None:
                held.check(entry, arguments, view, resources)

        async def begin_once() -> None:
            nonlocal begin
            first, begin = begin, None
            if first is not None:
                await first()

        def request(method: str, params: JsonObject) -> Awaitable[JsonObject]:
            admit_view = admit if held is not None and method == operation.method else None
            return source.request(
                method,
                params,
                asking=calling.asking(secrets),
                on_progress=calling.progress(secrets),
                on_sent=on_sent,
                begin=begin_once,
                on_cached=on_cached,
                admit_view=admit_view,
            )

        with anyio.move_on_after(timeout):
            try:
                result = await perform(operation, arguments, request, _room(limit))
            except HeldResource:
                listed = await perform(RESOURCE_LIST, {}, request, _room(limit))
                resources.update(each["uri"] for each in listed["resources"] if isinstance(each.get("uri"), str))
                result = await perform(operation, arguments, request, _room(limit))
            return result if held is None else held.without_held(entry, result)
        unsent = "" if record.dispatched else "; nothing was sent"
        raise errors.UpstreamError(f"{entry.path} timed out after {timeout:g} s{unsent}", dispatched=record.dispatched)


def _room(limit: int) -> Callable[[Mapping[str, Any]], bool]:
    """Return a function that returns True as long as the pages that it has got have at most `limit` bytes together."""
    room = limit

    def has_room(page: Mapping[str, Any]) -> bool:
        nonlocal room
        room -= len(json_text(page).encode("utf-8", "surrogatepass"))
        return room >= 0

    return has_room


def _call_error(
    entry: Entry, source: ToolSource, record: CallRecord, error: UpstreamClientError, secrets: RepeatedSecrets | None
) -> errors.UpstreamError:
    """Return the error for a program from an error of a source, and record whether the call was sent."""
    why = error.message if secrets is None else secrets.hide(error.message)
    record.server_error = INTERNAL_ERROR, why, None
    if isinstance(error, UpstreamCallError):
        record.dispatched = error.dispatched
        if error.code is not None:
            said, data = error.server_message or error.message, error.server_data
            record.server_error = (
                (error.code, said, data) if secrets is None else (error.code, secrets.hide(said), secrets.hide(data))
            )
        record.is_unknown = isinstance(error, TaskLost)
        return errors.UpstreamError(f"{entry.path}: {why}", dispatched=error.dispatched)
    if source.view().login_required:
        why = f"server {entry.source_name!r} {login_advice(entry.source_name)}"
        record.server_error = INTERNAL_ERROR, why, None
    # A call may take several requests. If this one was not sent, an earlier one may have been.
    return errors.UpstreamError(f"{entry.path}: {why}", dispatched=record.dispatched)
