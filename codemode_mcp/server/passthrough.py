"""The MCP surface of pass-through mode: the tools of all upstreams and plugins, without `exec` and `wait`.

A tool of an upstream is named `<server>__<tool>`, a tool of a plugin `<plugin>__<tool>`. Every call takes the dispatch
path. A tool that policy denies is not listed. A call of its name gets the same answer as a call of an unknown name.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from contextlib import asynccontextmanager
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import mcp_types as types

from codemode_mcp.audit import debugging
from codemode_mcp.audit.events import Auditor, call_id
from codemode_mcp.calls.context import CallContext
from codemode_mcp.calls.events import CallEvents
from codemode_mcp.calls.outcome import CallRecord
from codemode_mcp.json_text import join_surrogates, json_text
from codemode_mcp.runs.questions import WINDOW
from codemode_mcp.sandbox.messages import ToolCall
from codemode_mcp.server import descriptions
from codemode_mcp.server.caller_listings import CallerListings, Tools
from codemode_mcp.server.client import Continued, McpClient, progress_to, roots_of
from codemode_mcp.server.connected_clients import ConnectedClient
from codemode_mcp.server.forwarded_call import ForwardedCall, no_room
from codemode_mcp.server.protocol_fit import TOOL, failure, result_for, result_of, text_block
from codemode_mcp.server.sdk_server import AnnouncingServer, SdkExchange, SdkSession, guard_state
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from anyio.abc import TaskGroup
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server

    from codemode_mcp.calls.dispatch import Dispatcher
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.policy.approval import ApprovalQuestion, ApprovalRequest, RememberFn, Verdict
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.server.client import LatestProgress
    from codemode_mcp.server.passthrough_tools import Listing
    from upstream_clients.tools import Question, RootsFn


class Upstreams(Tools, Protocol):
    """The part of the composition root that the surface needs."""

    def offer_roots(self, client: str | None, list_roots: RootsFn | None) -> None: ...

    def roots_changed(self, client: str | None) -> None: ...

    def touch(self) -> None: ...

    def server_names(self, caller: Caller | None) -> Sequence[str]:
        """Return the servers of which a caller may see a tool; for None, all servers."""

    def has_nothing(self) -> bool:
        """Return True if neither a server nor a plugin is configured."""

    def remembers(self) -> RememberFn | None:
        """Return the function that keeps approvals for later calls; None if they cannot be kept."""


class Passthrough:
    """The handlers of one MCP server, over any transport.

    Args:
        caller_of: returns the caller of a request.
        user: the caller of all requests; None if there are several callers.
        lasting: one client is connected for as long as the server runs.
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
        self._calls: dict[str, ForwardedCall] = {}
        self._group: TaskGroup | None = None
        self._lasting = lasting
        self._listings = CallerListings(upstreams, self._set_instructions)
        self.client: ConnectedClient | None = None
        """The client of the latest request; None before the first one."""
        self.server = AnnouncingServer(
            "codemode-mcp",
            announcer=self._listings.announcer,
            lifespan=self._lifespan,
            version=metadata.version("codemode-mcp"),
            title="Tools of several servers",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        self.server.add_notification_handler(
            "notifications/roots/list_changed", types.NotificationParams, self._note_changed_roots
        )
        self._set_instructions()
        guard_state(self.server, upstreams.settings().code_mode.snapshot_ttl_seconds)

    @asynccontextmanager
    async def _lifespan(self, server: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        async with self._listings.announcer.running(), anyio.create_task_group() as self._group:
            yield {}
            self._group.cancel_scope.cancel()

    def _set_instructions(self) -> None:
        self.server.instructions = (
            descriptions.NOTHING_CONFIGURED
            if self._upstreams.has_nothing()
            else descriptions.passthrough_instructions(self._upstreams.server_names(self._user))
        )

    def _note_client(self, context: ServerRequestContext[Any]) -> None:
        session = SdkSession(context.session)
        self.client = ConnectedClient.of(session)
        if self._lasting:
            self._upstreams.offer_roots(self._caller_of(context).client, roots_of(session))
        self._upstreams.touch()

    async def _note_changed_roots(
        self, context: ServerRequestContext[Any], params: types.NotificationParams | None
    ) -> None:
        if self._lasting:
            self._upstreams.roots_changed(self._caller_of(context).client)

    async def _list_tools(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        self._note_client(context)
        listing = await self._listings.listed(self._caller_of(context))
        listed = listing.of_version(context.protocol_version)
        debugging.log_listing(listed)
        return types.ListToolsResult(tools=[TOOL(tool, by_name=False) for tool in listed])

    async def _call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> dict[str, Any]:
        self._note_client(context)
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
        request_seconds = self._upstreams.settings().code_mode.max_request_ms / 1000
        deadline = time.monotonic() + request_seconds
        version = context.protocol_version
        caller = exchange.caller
        continued = Continued.of(exchange.params)
        # Only the tool's own progress is passed on. The client could not distinguish it from messages of ours.
        client = McpClient(exchange, None, rounds=continued.round, lasting=False)
        if continued.run_id:
            # The client repeats its request with answers to the questions of the last result (revision 2026-07-28).
            found = self._calls.get(continued.run_id)
            if found is None or found.caller != caller or found.observed:
                return failure("this call has ended or was cancelled; call the tool again", version)
            call = found
            call.client, call.reporter = client, reporter
            call.request_seconds, call.deadline = request_seconds, deadline
            call.questions.answer(continued.answers.items())
        else:
            listing, entry = await self._listings.find(params.name, caller)
            if (reason := no_room([each.caller for each in self._calls.values()], caller)) is not None:
                return failure(reason, version)
            secret_id = "call_" + secrets.token_urlsafe(18)
            call = ForwardedCall(
                secret_id,
                _conversation(context, caller, secret_id),
                caller,
                client,
                reporter,
                request_seconds,
                deadline,
                plain=entry.source != "mcp",
                remember=self._upstreams.remembers(),
            )
            dispatcher = await self._upstreams.dispatcher()
            assert self._group is not None
            self._calls[call.id] = call
            self._group.start_soon(self._run, call, dispatcher, listing, entry, json_text(params.arguments or {}))
        questions = await self._observe(call)
        if questions:
            return continued.input_required_result(call.id, questions.items())
        if call.completion is None:
            return failure("the call was cancelled; call the tool again", version)
        if call.completion.error is not None:
            return failure(call.completion.error.message, version)
        value = call.completion.value
        result = result_for(params.name, result_of(value) if call.plain else value, version)
        result["content"].extend(text_block(join_surrogates(note)) for note in call.notes)
        debugging.log_answer(escape_line(params.name), result["content"], result.get("structuredContent"))
        return result

    async def _run(
        self, call: ForwardedCall, dispatcher: Dispatcher, listing: Listing, entry: Entry, arguments: str
    ) -> None:
        """Carry out a call. This is a task, because a call may outlive the request that began it."""
        now, effects = time.monotonic(), entry.effects
        record = CallRecord(1, entry.id, now, repeatable=entry.repeatable, read_only=effects.read_only)
        record.watched = self._auditor.listening
        events = CallEvents(self._auditor, call_id(call.id, 1))
        events.started(
            entry.id,
            arguments,
            definition=listing.catalog.definition_digest(entry.id),
            principal=call.caller.principal,
            transport=call.caller.kind,
        )

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

    async def _observe(self, call: ForwardedCall) -> dict[str, Question | ApprovalQuestion]:
        """Wait until a call has ended or has questions for its client. Return the questions by their keys.

        Cancelling this cancels the call.
        """
        call.observed, call.scope.deadline = True, math.inf
        try:
            while call.id in self._calls:
                changed = call.changed
                if call.unanswered():
                    await anyio.sleep(WINDOW)  # more questions may follow
                    questions = call.unanswered()
                    if call.id in self._calls and questions:
                        # From now on no request waits for the call. If the client does not return, the call ends then.
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


def _conversation(context: ServerRequestContext[Any], caller: Caller, call_id: str) -> str:
    """Return the conversation of a call, which is safe to log. Each call of an unknown caller is a conversation."""
    if caller.owner is None:
        return call_id
    session = context.session._connection.session_id or ""
    return "client_" + hashlib.sha256(f"{caller.owner}\0{caller.client or ''}\0{session}".encode()).hexdigest()[:16]
