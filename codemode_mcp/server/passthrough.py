"""The MCP surface of pass-through mode: the tools of all upstreams as `<server>__<tool>`, those of plugins as
`<plugin>__<tool>`, without `exec` and `wait`.

Every call takes the one road of `dispatch`. What policy denies is not listed, and a guess at its name is answered as
any unknown name is.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import secrets
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakKeyDictionary

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError

from codemode_mcp.audit import debugging
from codemode_mcp.audit.events import Auditor, call_id
from codemode_mcp.calls.context import CallContext
from codemode_mcp.calls.events import CallEvents
from codemode_mcp.calls.outcome import CallRecord
from codemode_mcp.did_you_mean import nearest
from codemode_mcp.json_text import joined_halves, json_text
from codemode_mcp.policy.approval import Verdict, ask_for, can_be_remembered, remember_approval, verdict_of
from codemode_mcp.runs.questions import WINDOW, Questions
from codemode_mcp.sandbox.messages import ToolCall
from codemode_mcp.server import descriptions
from codemode_mcp.server.client import MAX_ROUNDS, Continued, McpClient, progress_to, roots_of
from codemode_mcp.server.exposed_tools import Listing
from codemode_mcp.server.list_changed import Announcer
from codemode_mcp.server.protocol_fit import TOOL, failure, result_for, result_of, text_block
from codemode_mcp.server.sdk_server import AnnouncingServer, SdkExchange, SdkSession, guard_state
from declarations.untrusted_text import escape_line
from upstream_clients.errors import QuestionRefused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Hashable, Sequence

    from anyio.abc import TaskGroup
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server

    from codemode_mcp.calls.dispatch import Dispatcher
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.policy.approval import ApprovalQuestion, ApprovalRequest, Remember, RememberFn
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.sandbox.messages import Completion
    from codemode_mcp.server.client import LatestProgress
    from codemode_mcp.settings import ToolSettings
    from upstream_clients.tools import JsonObject, Question, RootsFn

log = logging.getLogger("codemode_mcp.server")


MAX_CALLS: Final = 4096
"""Calls in flight, those included whose clients think about a question."""

MAX_OWN_CALLS: Final = 1024
"""Calls in flight of one of several callers."""


_ASKED: Final = {
    "elicitation/create": ("the user a question", "elicitation"),
    "sampling/createMessage": ("the client's model for an answer", "sampling"),
    "roots/list": ("for the client's folders", "roots"),
}


class Upstreams(Protocol):
    """The part of the composition root that the surface needs."""

    def offer_roots(self, roots: RootsFn | None) -> None: ...

    def touch(self) -> None: ...

    def settings(self) -> ToolSettings: ...

    def server_names(self, caller: Caller | None) -> Sequence[str]:
        """Return the servers that the caller may see a part of; None: all servers."""
        ...

    def catalog_of(self, caller: Caller) -> Catalog:
        """Return the caller's MCP tools."""
        ...

    async def catalog_for(self, caller: Caller, client: None) -> Catalog:
        """Return the listing with the tools of plugins, once these are loaded."""
        ...

    async def plugins_loaded(self) -> bool:
        """Wait, for a bounded time, for plugins to load; False: some are still loading."""
        ...

    def plugin_tools(self) -> Hashable:
        """Return what plugins have registered; equal while none is loaded, changed or removed."""
        ...

    def has_nothing(self) -> bool:
        """Tell whether neither a server nor a plugin is configured."""
        ...

    def change(self) -> anyio.Event:
        """Return an event for the next change of the catalog."""
        ...

    def remembers(self) -> RememberFn | None:
        """Return how an approval is kept for ever; None: it cannot be."""
        ...

    async def dispatcher(self) -> Dispatcher:
        """Once everything is open."""
        ...

    async def wait_settled(self, names: Collection[str] | None, seconds: float) -> None: ...


class _CannotBeAsked(Exception):
    """The client does not take such questions, or no more of them."""


class _NotInTime(QuestionRefused):
    """The client has not answered before its own request had to be answered."""


@dataclass(eq=False)
class _Call:
    """One call in flight. It may outlive the request that began it, whose client comes back with answers.

    Attributes:
        id: unguessable.
        conversation: the same for all calls of one client. A server of the older revisions that asks does not say in
            the course of which call; its question may go to any of these.
        client, reporter: of the latest request. The reporter takes the tool's progress.
        patience: seconds after which a request is answered, whatever its client was asked and has not answered.
        ends: when that is for the latest one, monotonic seconds.
        plain: the tool's result is data, not an MCP result: it is a plugin's.
        changed: replaced when it was set.
        observed: whether a request waits for it.
        notes: of hooks, that the client is told beside the result.
        remember: see `App.remembers`.
    """

    id: str
    conversation: str
    caller: Caller
    client: McpClient
    reporter: LatestProgress | None
    patience: float
    ends: float
    plain: bool = False
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    changed: anyio.Event = field(default_factory=anyio.Event)
    completion: Completion | None = None
    observed: bool = False
    notes: list[str] = field(default_factory=list)
    remember: RememberFn | None = None
    questions: Questions = field(init=False)

    def __post_init__(self) -> None:
        self.questions = Questions(self.change)

    def change(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    async def ask(self, question: Question) -> JsonObject:
        """Put a question of the tool's server to the client, in the way of its protocol revision.

        Raises:
            QuestionRefused: it does not answer.
        """
        try:
            return await self._put(question)
        except _CannotBeAsked:
            pass
        except QuestionRefused:
            raise
        except Exception as error:
            log.exception("a question of server %r could not be put", question.server)
            raise QuestionRefused("the question could not be put to the client") from error
        asked, capability = _ASKED[question.method]
        but = f"this client does not support {capability}"
        if self.client.supports(question):
            but = f"it has asked in {MAX_ROUNDS} rounds already"
        raise QuestionRefused(f"server {question.server!r} asked {asked}, but {but}")

    async def approve(self, request: ApprovalRequest) -> Verdict:
        """Have the client's user decide about the call. A user who cannot be asked has not approved."""
        remember: tuple[Remember, ...] = ()
        if self.remember is not None and self.caller.operates and can_be_remembered(request.tool):
            remember = ("always",)
        question, _ = ask_for([request], remember=remember, who="the client")
        try:
            verdict = verdict_of(await self._put(question), remember)
        except _CannotBeAsked:
            why = "this client does not support elicitation, so its user cannot be asked"
            return Verdict(approved=False, why=why, by="nobody")
        except _NotInTime:
            why = (
                f"the user has not answered within {self.patience:g} s (maxRequestMs), and nothing was sent; call "
                "again when the user is there, or have the operator name the tool in tools.approved"
            )
            return Verdict(approved=False, why=why, by="nobody")
        except QuestionRefused as refusal:
            return Verdict(approved=False, why=str(refusal))
        if verdict.approved and verdict.remember == "always" and self.remember is not None:
            note = await remember_approval(self.remember, (request.tool,), self.caller, log, otherwise="this call")
            self.notes += filter(None, (note,))
        return verdict

    async def _put(self, question: Question | ApprovalQuestion) -> JsonObject:
        match self.client.way(question):
            case "ask":
                with anyio.move_on_after(max(0.0, self.ends - time.monotonic())):
                    return await self.client.ask(question)
                raise _NotInTime(f"the client did not answer within {self.patience:g} s (maxRequestMs)")
            case "return":
                return await self.questions.put(1, question, time.monotonic())
        raise _CannotBeAsked

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        if self.reporter is not None:
            self.reporter.put(self.id, (progress, total, message))

    def unanswered(self) -> dict[str, Question | ApprovalQuestion]:
        return {opened.key: opened.question for opened in self.questions.open if opened.answer is None}


class Passthrough:
    """Handlers for one `Server`, whatever carries it.

    Args:
        caller_of: who makes a request.
        user: who makes them all; None where they come from many.
        lasting: one client makes them all, on one connection for as long as this lasts.
    """

    def __init__(
        self,
        upstreams: Upstreams,
        caller_of: Callable[[ServerRequestContext[Any]], Caller],
        auditor: Auditor | None = None,
        user: Caller | None = None,
        *,
        lasting: bool = False,
    ) -> None:
        self._upstreams = upstreams
        self._user = user
        self._auditor = auditor or Auditor()
        self._caller_of = caller_of
        # What was listed last, by catalog, and for whom: the same for all callers of the same rules.
        self._listings: dict[Catalog, tuple[Caller, Listing]] = {}
        # The same with the tools of plugins, where there are some.
        self._with_plugins: WeakKeyDictionary[Catalog, Listing] = WeakKeyDictionary()
        self._incomplete = False
        self._deadline: float | None = None
        self._calls: dict[str, _Call] = {}
        self._group: TaskGroup | None = None
        self._lasting = lasting
        self._announcer = Announcer(self._fingerprint, upstreams.change)
        self.server = AnnouncingServer(
            "codemode-mcp",
            announcer=self._announcer,
            lifespan=self._lifespan,
            version=metadata.version("codemode-mcp"),
            title="Tools of several servers",
            instructions=self._instructions(),
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        guard_state(self.server, upstreams.settings().code_mode.snapshot_ttl_seconds)

    @asynccontextmanager
    async def _lifespan(self, server: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        async with self._announcer.running(), anyio.create_task_group() as self._group:
            yield {}
            self._group.cancel_scope.cancel()

    def _greet(self, context: ServerRequestContext[Any]) -> None:
        if self._lasting:
            self._upstreams.offer_roots(roots_of(SdkSession(context.session)))
        self._upstreams.touch()

    async def _list_tools(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        self._greet(context)
        await self._settled()
        caller = self._caller_of(context)
        loaded = await self._upstreams.plugins_loaded()
        listing = await self._whole(caller) if loaded else self._current(caller)
        self._incomplete = not loaded
        self._announcer.listed()  # nothing is awaited from here on: what is noted is what is answered
        self._incomplete = False
        listed = listing.of_version(context.protocol_version)
        debugging.log_listing(listed)
        tools = [TOOL(tool, by_name=False) for tool in listed]
        return types.ListToolsResult(tools=tools)

    async def _call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> dict[str, Any]:
        self._greet(context)
        exchange = SdkExchange(context, self._caller_of(context))
        reporter = progress_to(exchange)
        if reporter is None:
            return await self._answer_call(context, exchange, params, None)
        assert self._group is not None
        self._group.start_soon(reporter.run)
        try:
            return await self._answer_call(context, exchange, params, reporter)
        finally:
            reporter.close()

    async def _answer_call(
        self,
        context: ServerRequestContext[Any],
        exchange: SdkExchange,
        params: types.CallToolRequestParams,
        reporter: LatestProgress | None,
    ) -> dict[str, Any]:
        patience = self._upstreams.settings().code_mode.max_request_ms / 1000
        ends = time.monotonic() + patience
        version = context.protocol_version
        caller = exchange.caller
        owner = caller.owner
        continued = Continued.of(exchange.params)
        # Only the tool's own progress is passed on. Signs of life of ours could not be told from it.
        client = McpClient(exchange, None, rounds=continued.round, lasting=False)
        if continued.run_id:
            # The same request again, with the answers to what the last one came back with (revision 2026-07-28).
            found = self._calls.get(continued.run_id)
            if found is None or found.caller != caller or found.observed:
                return failure("this call is over, or was given up meanwhile; make it again", version)
            call = found
            call.client, call.reporter = client, reporter
            call.patience, call.ends = patience, ends
            call.questions.answer(continued.answers.items())
        else:
            listing, entry = await self._resolve(params.name, caller)
            if (full := no_room([each.caller for each in self._calls.values()], caller)) is not None:
                return failure(full, version)
            call_id = "call_" + secrets.token_urlsafe(18)
            call = _Call(
                call_id,
                _conversation(context, owner, call_id),
                caller,
                client,
                reporter,
                patience,
                ends,
                plain=entry.source != "mcp",
                remember=self._upstreams.remembers(),
            )
            dispatcher = await self._upstreams.dispatcher()
            assert self._group is not None
            self._calls[call.id] = call
            self._group.start_soon(self._run, call, dispatcher, listing, entry, json_text(params.arguments or {}))
        questions = await self._observe(call)
        if questions:
            return continued.asks_again(call.id, questions.items())
        if call.completion is None:
            return failure("the call was given up", version)
        if call.completion.error is not None:
            return failure(call.completion.error.message, version)
        value = call.completion.value
        result = result_for(params.name, result_of(value) if call.plain else value, version)
        result["content"].extend(text_block(joined_halves(note)) for note in call.notes)
        debugging.log_answer(escape_line(params.name), result["content"], result.get("structuredContent"))
        return result

    async def _resolve(self, name: str, caller: Caller) -> tuple[Listing, Entry]:
        await self._upstreams.dispatcher()
        listing = self._current(caller)
        if name not in listing.entries:
            await self._upstreams.plugins_loaded()
            listing = await self._whole(caller)
        if name not in listing.entries:
            await self._settled()
            listing = await self._whole(caller)
        entry = listing.entries.get(name)
        if entry is None:
            near = nearest(name, listing.entries)
            hint = f" Nearest: {', '.join(near)}." if near else ""
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {json.dumps(name[:100])}.{hint}")
        return listing, entry

    async def _run(self, call: _Call, dispatcher: Dispatcher, listing: Listing, entry: Entry, arguments: str) -> None:
        """The task of one call."""
        now, effects = time.monotonic(), entry.effects
        record = CallRecord(1, entry.id, now, repeatable=entry.repeatable, read_only=effects.read_only)
        record.watched = self._auditor.listening
        events = CallEvents(self._auditor, call_id(call.id, 1))
        events.started(entry.id, arguments, principal=call.caller.principal, transport=call.caller.kind)

        async def approve(request: ApprovalRequest) -> Verdict:
            events.asked(request)
            verdict = await call.approve(request)
            events.decided(request, verdict)
            return verdict

        try:
            with call.scope:
                call.completion = await dispatcher.call(
                    ToolCall(1, entry.id, arguments),
                    CallContext(call.conversation, call.caller.owner or call.id, call.caller, listing.catalog),
                    record,
                    None if call.reporter is None else call.progress,
                    call.ask,
                    approve,
                    note=call.notes.append,
                )
        finally:
            completion = call.completion
            code = "aborted" if completion is None else None if completion.error is None else completion.error.code
            events.ended(record, code, time.monotonic())
            del self._calls[call.id]
            call.change()

    async def _observe(self, call: _Call) -> dict[str, Question | ApprovalQuestion]:
        """Wait until a call is over, or its client has to answer something. Cancelling this cancels the call."""
        call.observed, call.scope.deadline = True, math.inf
        try:
            while call.id in self._calls:
                changed = call.changed
                if call.unanswered():
                    await anyio.sleep(WINDOW)  # there may be more
                    questions = call.unanswered()
                    if call.id in self._calls and questions:
                        ttl = self._upstreams.settings().code_mode.snapshot_ttl_seconds
                        call.scope.deadline = anyio.current_time() + ttl
                        return questions
                else:
                    await changed.wait()
        except anyio.get_cancelled_exc_class():
            call.scope.cancel()
            raise
        finally:
            call.observed = False
        return {}

    async def _settled(self) -> None:
        """Wait for servers with unknown tools; all requests together no longer than `connectWaitMs`."""
        await self._upstreams.dispatcher()
        if self._deadline is None:
            self._deadline = time.monotonic() + self._upstreams.settings().code_mode.connect_wait_ms / 1000
        await self._upstreams.wait_settled(None, max(0.0, self._deadline - time.monotonic()))

    def _current(self, caller: Caller) -> Listing:
        catalog = self._upstreams.catalog_of(caller)
        if catalog not in self._listings:
            before = self._fingerprint()
            if catalog not in self._listings:
                self._listings[catalog] = caller, self._made(catalog)
                if len(self._listings) > 1:
                    # One list more, and none of those before has changed by that.
                    self._announcer.describe_again(before, self._fingerprint())
            self.server.instructions = self._instructions()
        return self._listings[catalog][1]

    async def _whole(self, caller: Caller) -> Listing:
        """Return what the caller is shown, the tools of plugins included."""
        catalog = await self._upstreams.catalog_for(caller, None)
        if not any(entry.source == "plugin" for entry in catalog.toolset.entries):
            return self._current(caller)
        self._current(caller)  # what is announced is compared by this one
        found = self._with_plugins.get(catalog)
        if found is None:
            found = self._with_plugins[catalog] = self._made(catalog)
        return found

    def _instructions(self) -> str:
        if self._upstreams.has_nothing():
            return descriptions.NOTHING_CONFIGURED
        return descriptions.passthrough_instructions(self._upstreams.server_names(self._user))

    def _made(self, catalog: Catalog) -> Listing:
        return Listing(catalog, self._upstreams.settings().policy)

    def _fingerprint(self) -> Hashable:
        """Return the fingerprint of all lists that clients have got, as they are now; empty before the first."""
        current: dict[Catalog, tuple[Caller, Listing]] = {}
        for before, (caller, listing) in self._listings.items():
            catalog = self._upstreams.catalog_of(caller)
            if catalog not in current:
                current[catalog] = caller, listing if catalog is before else self._made(catalog)
        self._listings = current
        tools = self._upstreams.settings()
        # With other rules callers may have got another of these lists each.
        rules = (tools.policy, tools.contexts) if tools.contexts else ()
        plugins = None if self._incomplete else self._upstreams.plugin_tools()
        self.server.instructions = self._instructions()
        return rules, frozenset(listing.fingerprint for _, listing in current.values()), plugins


def no_room(callers: Sequence[Caller], caller: Caller) -> str | None:
    """Return why a caller may not begin another call while `callers` have theirs in flight; None: it may."""
    if len(callers) >= MAX_CALLS:
        return f"{MAX_CALLS} calls are in flight already; try again when one has ended"
    share = caller.share or caller.owner
    if caller.kind == "stdio" or share is None or len(callers) < MAX_OWN_CALLS:
        return None
    # Those whose clients were asked something and do not come back are kept for long.
    if sum((each.share or each.owner) == share for each in callers) < MAX_OWN_CALLS:
        return None
    whose = "of yours" if caller.share is None else "from your address"
    return f"{MAX_OWN_CALLS} calls {whose} are in flight already; try again when one has ended"


def _conversation(context: ServerRequestContext[Any], owner: str | None, call_id: str) -> str:
    """Return the conversation of a `_Call`, fit for the log; a call of an unknown caller has its own."""
    if owner is None:
        return call_id
    session = context.session._connection.session_id or ""
    return "client_" + hashlib.sha256(f"{owner}\0{session}".encode()).hexdigest()[:16]


# what the SDK lets through
