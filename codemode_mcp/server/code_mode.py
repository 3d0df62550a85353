"""The MCP surface: `exec` and `wait`, or the tools of servers and plugins, for both protocol eras and any transport.

Arguments are validated here, because the SDK does not validate them. Every answer is a tool result. A failure is a
result with `isError`, never a protocol error. The text of an unexpected exception goes only to the log.
"""

from __future__ import annotations

import logging
import time
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
from msgspec.structs import replace

from codemode_mcp import __version__
from codemode_mcp.audit import Auditor, sizes
from codemode_mcp.audit.events import EventKind, name_to_record, request_id
from codemode_mcp.base.errors import CodeModeError, InternalError, ProgramError, ShuttingDown, StoreUnavailable
from codemode_mcp.base.strict_json import compact_json
from codemode_mcp.runs.calls.outcome import Outcome, Usage
from codemode_mcp.runs.rendering import VISIBLE_TOOLS, Rendered, render, render_error
from codemode_mcp.server import descriptions, search_tools
from codemode_mcp.server.client import Continued, knows_tasks, open_client, roots_of
from codemode_mcp.server.client_tasks import ClientTasks
from codemode_mcp.server.descriptions import tool_list
from codemode_mcp.server.direct_calls import DirectCalls
from codemode_mcp.server.exchange import TASK_METHODS, Client, Exchange
from codemode_mcp.server.exec_arguments import drop_added_arguments, exec_arguments, ignored_arguments, wait_arguments
from codemode_mcp.server.exposed_apps import ExposedApps
from codemode_mcp.server.exposure.apps import MAX_LINKS, link
from codemode_mcp.server.exposure.selection import ALL_TOOLS, Exposure
from codemode_mcp.server.forwarded_logs import ForwardedLogs
from codemode_mcp.server.notifications import Announcer, ListKind
from codemode_mcp.server.profiles import ClientExposure, ConnectedClient, Profile, profile_of
from codemode_mcp.server.resource_updates import ResourceUpdates
from codemode_mcp.server.resources import ReadableResources, ResourceRequests, ResultResources
from declarations.untrusted_text import escape_line
from upstream_clients.jsonrpc import METHOD_NOT_FOUND, JsonRpcError, RequestId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from codemode_mcp.base.settings import ExposeMode
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.runs.questions import Client as RunClient
    from codemode_mcp.runs.questions import RunNotes
    from codemode_mcp.runs.state import RunState
    from codemode_mcp.server.exposed_items import ExposedItems
    from codemode_mcp.server.exposed_tools import ExposedTools
    from codemode_mcp.server.services import App

    StoredState = Callable[[str, str | None], Awaitable[RunState | None]]
    """Returns the state of a run of an owner in the store. Raises `StoreUnavailable`."""


log = logging.getLogger("codemode_mcp.server")

_OUTCOME_UNKNOWN: Final = (
    "outcome_unknown: the server process ended while this call was open. The tool may have run. Look at what it has "
    "done before you call it again."
)
"""The answer to a direct call that an earlier process has left unanswered."""


class Surface:
    """Answers to `tools/list` and `tools/call`, for any transport.

    Args:
        user: the caller of all requests; None if there are several callers.
        lasting: one client is connected for as long as the server runs.

    Attributes:
        updates: the subscriptions of clients to resources.
        notes_of: returns the notes about the run of a request, for a client with a relay.
        client: the client of the latest request; None before the first one.
    """

    name: Final = "codemode-mcp"

    def __init__(self, runs: App, user: Caller | None = None, *, lasting: bool = False) -> None:
        self._runs = runs
        self._user = user
        self._lasting = lasting
        self._code_mode = runs.code_mode
        self.title = "Code mode" if self._code_mode else "Tools of several servers"
        self.version = __version__
        self.state_keys = runs.state_keys
        settings = runs.settings().code_mode
        self.state_seconds = max(settings.snapshot_ttl_seconds, settings.approval_ttl_seconds)
        self.notes_of: Callable[[RequestId], RunNotes] | None = None
        self.client: ConnectedClient | None = None
        self._interrupted: dict[RequestId, Interrupted] = {}
        self.announcer = Announcer(self._describe_list, runs.change)
        self._direct = DirectCalls(runs, runs.auditor)
        self._exposures = ClientExposure(runs.settings, code_mode=self._code_mode)
        self.updates = ResourceUpdates(runs, ReadableResources(runs, self._exposures, lambda: self._items))
        self._apps = ExposedApps(runs, self._direct, self._exposure, self.announcer)
        self._logs = ForwardedLogs(runs)
        self._results = ResultResources(runs, self._exposures)
        self._resources = ResourceRequests(
            lambda: self._items, self._apps, self.updates, self._results, self._sees_resources, self._sees_results
        )
        self.tasks = ClientTasks(runs, self._exposure, self._task_result, lambda: self.notes_of is not None)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Announce changes, pass on messages, and make direct calls, for the duration of the context."""
        async with self._logs.running(), self.announcer.running(), self._direct.running(), self.updates.running():
            yield

    def capabilities(self, client: Client, path: ExposeMode | None, caller: Caller | None = None) -> dict[str, Any]:
        if not self._code_mode:
            return {"tools": {"listChanged": True}}
        exposure = self._exposures.of(caller or self._user, client.client_name, path)
        items = self._exposures.capabilities(exposure, self._runs.configured())
        items |= self._logs.capabilities(client, caller or self._user)
        found: dict[str, Any] = {"tools": {"listChanged": True}, **self._apps.capabilities(client), **items}
        if self._results.shown(exposure, caller or self._user):
            found.setdefault("resources", {})
        return self.tasks.declared(found, client, exposure)

    def sees(self, client: Client, path: ExposeMode | None, caller: Caller, kind: ListKind) -> bool:
        exposure = self._exposures.of(caller, client.client_name, path)
        return kind == "tools" or self._exposures.shows(exposure, kind, self._runs.configured())

    async def answer(self, exchange: Exchange, method: str) -> dict[str, Any]:
        """Return the result of a request, as JSON.

        Args:
            method: one of `exchange.METHODS` or `exchange.TASK_METHODS`.

        Raises:
            JsonRpcError: the client does not see what it asks for.
        """
        if not self._code_mode:
            return await self._pass_through(exchange, method)
        if method in TASK_METHODS:  # there are no messages about tasks
            self._note_request(exchange)
            return await self.tasks.answer(exchange, method)
        if exchange.log_level is None:
            return await self._result(exchange, method)
        async with self._logs.open(exchange, exchange.log_level):
            return await self._result(exchange, method)

    async def _pass_through(self, exchange: Exchange, method: str) -> dict[str, Any]:
        if method not in ("tools/list", "tools/call"):
            raise JsonRpcError(METHOD_NOT_FOUND, "Method not found", method)
        self._note_request(exchange)
        if method == "tools/call":
            return await self._call_directly(exchange) or {}
        tools = await self._exposed.listed(exchange, ALL_TOOLS)
        if sizes.log.isEnabledFor(logging.DEBUG):
            sizes.log_listing(tools)
        return {"tools": tools}

    async def _result(self, exchange: Exchange, method: str) -> dict[str, Any]:
        match method:
            case "tools/list":
                return {"tools": await self.list_tools(exchange)}
            case "tools/call":
                return await self.call_tool(exchange)
            case "logging/setLevel":
                self._note_request(exchange)
                return await self._logs.set_level(exchange)
        self._note_request(exchange)
        if method.startswith("resources/"):
            return await self._resources.answer(exchange, method)
        return await self._items.answer(exchange, method)

    async def list_tools(self, exchange: Exchange) -> list[dict[str, Any]]:
        self._note_request(exchange)
        caller = exchange.caller
        await self._runs.ready_to_list()
        exposure = self._exposure(exchange)
        exposed: list[dict[str, Any]] = []
        if exposure.mode == "auto" or exposure.direct:
            exposure = await self._exposed.decided(caller, exposure)
            exposed = await self._exposed.listed(exchange, exposure.direct)
        namespaces = await self._runs.namespace_texts(caller)
        await self._apps.ready(exchange)
        self.announcer.listed()  # nothing is awaited after this, so the recorded list is the one that is sent
        if self._runs.has_nothing() or self._runs.admits_nothing(caller):
            return []
        policy = self._exposures.policy_of(caller)
        if exposure.mode == "search":
            own = search_tools.search_tool_list(
                list(self._runs.servers(caller).values()), read_only=policy.rules.read_only
            )
        else:
            own = tool_list(
                self._runs.servers(caller),
                self._runs.settings(),
                namespaces,
                self._runs.topics(caller),
                self._profile(exchange),
                caller,
                self._runs.saved_programs(caller),
                any(self._runs.plugin_tools()) and policy.may_admit("plugin:"),
            )
        names = search_tools.NAMES if exposure.mode == "search" else VISIBLE_TOOLS
        if tuple(tool["name"] for tool in own) != names:
            raise RuntimeError(f"the tool list does not begin with {names}")  # fails closed: no other tool is shown
        tools = self._apps.added(exchange, own, exposed)
        if sizes.log.isEnabledFor(logging.DEBUG):
            sizes.log_listing(tools)
        return tools

    @cached_property
    def _exposed(self) -> ExposedTools:
        """The tools of clients that see more than `exec` and `wait`. Most clients need none of the imports."""
        from codemode_mcp.server.exposed_tools import ExposedTools

        return ExposedTools(self._runs, self._direct, self.announcer)

    @cached_property
    def _items(self) -> ExposedItems:
        from codemode_mcp.server.exposed_items import ExposedItems

        return ExposedItems(self._runs, self._direct, self._exposures, self.announcer)

    def _note_request(self, exchange: Exchange) -> None:
        """Note the client of a request, and start the servers if this is the first request."""
        self._offer_roots(exchange)
        self._runs.touch()
        session = exchange.session
        self.client = ConnectedClient.of(session)
        self._runs.record_client(session.client_name, session.client_version, session.protocol_version)

    def _exposure(self, exchange: Exchange) -> Exposure:
        return self._exposures.of(exchange.caller, exchange.session.client_name, exchange.path_mode)

    def _sees_resources(self, exchange: Exchange) -> bool:
        return self.sees(exchange.session, exchange.path_mode, exchange.caller, "resources")

    def _sees_results(self, exchange: Exchange) -> bool:
        return self._results.shown(self._exposure(exchange), exchange.caller)

    def _profile(self, exchange: Exchange) -> Profile:
        return profile_of(exchange.session.client_name, self._runs.settings().clients)

    def note_interrupted(self, request_id: RequestId, run_id: str | None, *, dispatched: bool) -> None:
        """Answer the next request with this id as a request that an earlier process has left unanswered.

        Args:
            run_id: the run of the request, if it had one.
            dispatched: True if a call of the run may have been sent.
        """
        self._interrupted[request_id] = Interrupted(run_id, dispatched)

    async def call_tool(self, exchange: Exchange) -> dict[str, Any]:
        """Return a `CallToolResult`, or an `InputRequiredResult` for revisions that have it, as JSON."""
        self._note_request(exchange)
        name = exchange.params["name"]
        is_direct = name not in VISIBLE_TOOLS and not self._runs.admits_nothing(exchange.caller)
        if is_direct and (called := await self._call_directly(exchange)) is not None:
            return called
        continued = Continued.of(exchange.params)
        request, began = request_id(), time.monotonic()
        fields: dict[str, Any] = {"status": "cancelled"}
        report_request(self._runs.auditor, request, exchange, continued)
        try:
            return await self._call_result(exchange, continued, request, fields)
        finally:
            self._runs.auditor.emit("answered", request, ms=round((time.monotonic() - began) * 1000), **fields)

    async def _call_directly(self, exchange: Exchange) -> dict[str, Any] | None:
        """Return the result of a call that is no program; None if the client sees no tools but `exec` and `wait`."""
        name, exposure = exchange.params["name"], self._exposure(exchange)
        if self._interrupted.pop(exchange.request_id, None) is not None:
            return {"content": [{"type": "text", "text": _OUTCOME_UNKNOWN}], "isError": True}
        if self.notes_of is not None and name != "search":
            notes = self.notes_of(exchange.request_id)
            if not notes.write(None, dispatched=True):
                await notes.written()
        if (called := await self._apps.call(exchange)) is not None:
            return called
        if name in search_tools.NAMES and exposure.mode in ("search", "auto"):
            return await self._exposed.call_searching(exchange, name)
        if exposure.direct or exposure.mode == "auto":
            return await self._exposed.call_listed(exchange, exposure.direct or ALL_TOOLS, name)
        return None

    async def _call_result(
        self, exchange: Exchange, continued: Continued, request: str, fields: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the result of a call. `fields`: the fields of the event about the answer, which this completes."""
        profile = self._profile(exchange)
        name, arguments = called(exchange)
        if profile.adds_arguments:
            arguments = drop_added_arguments(name, arguments, profile.adds_arguments)
        notes = () if continued.run_id else ignored_arguments(name, arguments)
        run_notes = None if self.notes_of is None else self.notes_of(exchange.request_id)
        interrupted = self._interrupted.pop(exchange.request_id, None) if self._interrupted else None
        polls = name == "exec" and knows_tasks(exchange.session)
        async with open_client(
            exchange, rounds=continued.round, lasting=self._lasting, notes=run_notes, polls=polls
        ) as client:
            try:
                if interrupted is not None and name in ("exec", "wait"):
                    waits_for = continued.run_id or (named_run(arguments) if name == "wait" else None)
                    stored_state, owner = self._runs.stored_state, exchange.caller.owner
                    raise await find_interruption(stored_state, interrupted, waits_for, owner)
                outcome = await self._answer(exchange, name, arguments, continued, client, request)
                fields["run"] = outcome.run_id
                if outcome.questions:
                    fields["status"] = "asks"
                    return continued.input_required_result(outcome.run_id, outcome.questions)
                if polls and outcome.status == "waiting":
                    fields["status"] = "waiting"
                    return self.tasks.created(outcome)
                rendered = await self._rendered(outcome, exchange, client, notes)
            except CodeModeError as error:
                if isinstance(error, ShuttingDown) and self.notes_of is not None:
                    await anyio.sleep_forever()  # until the session ends: the relay asks the next process
                refused = Usage(execs=int(name == "exec"), waits=int(name == "wait"))
                usage = await self._counted(refused, exchange, client)
                notes = (*notes, *self._runs.late_notes(exchange.caller))
                rendered = render_error(error, self._runs.settings(), profile.max_output_bytes, notes, usage)
            except Exception:
                log.exception("a request failed in an unexpected way")
                fault = InternalError("the request failed inside codemode-mcp; see its log")
                rendered = render_error(fault, self._runs.settings(), profile.max_output_bytes)
        fields.update(status=rendered.structured["status"], code=rendered.structured.get("code"))
        result = tool_result(
            rendered, exchange.session.protocol_version, profile, with_links=self._sees_results(exchange)
        )
        structured = result.get("structuredContent")
        if sizes.log.isEnabledFor(logging.DEBUG):
            sizes.log_answer(escape_line(name), rendered.content, structured)
        if self._runs.auditor.listening:
            fields.update(sizes.seen({"content": result["content"], "structuredContent": structured}))
        return result

    async def _rendered(
        self, outcome: Outcome, exchange: Exchange, client: RunClient, notes: tuple[str, ...] = ()
    ) -> Rendered:
        app_meta: dict[str, Any] = {}
        if any(item["type"] == "app" for item in outcome.outputs):
            outcome, app_meta = self._apps.attach(outcome, exchange)
        if notes:
            outcome = replace(outcome, notes=(*outcome.notes, *notes))
        if not outcome.usage.sources:  # the program could not be restored, so its catalog is unknown
            outcome = replace(outcome, usage=await self._counted(outcome.usage, exchange, client))
        max_bytes = self._profile(exchange).max_output_bytes
        rendered = await render(outcome, self._runs.settings(), self._runs.offload, time.monotonic(), max_bytes)
        rendered.meta.update(app_meta)
        return rendered

    async def _task_result(self, outcome: Outcome, exchange: Exchange, client: RunClient) -> dict[str, Any]:
        rendered = await self._rendered(outcome, exchange, client)
        version, profile = exchange.session.protocol_version, self._profile(exchange)
        return tool_result(rendered, version, profile, with_links=self._sees_results(exchange))

    async def _counted(self, usage: Usage, exchange: Exchange, client: RunClient) -> Usage:
        """Return the usage of a request whose program did not run, with the catalog it would have seen."""
        if self._runs.settings().code_mode.telemetry == "off":
            return usage
        size, sources = await self._runs.catalog_counts(exchange.caller, client)
        return replace(usage, catalog_size=size, sources=sources)

    def roots_changed(self, caller: Caller) -> None:
        if self._lasting:
            self._runs.roots_changed(caller.client)

    def _offer_roots(self, exchange: Exchange) -> None:
        if self._lasting:
            self._runs.offer_roots(exchange.caller.client, roots_of(exchange.session))

    async def _answer(
        self,
        exchange: Exchange,
        name: str,
        arguments: Mapping[str, Any],
        continued: Continued,
        client: RunClient,
        request: str,
    ) -> Outcome:
        caller = exchange.caller
        if self._runs.admits_nothing(caller):
            raise ProgramError(
                "invalid_input",
                "the policy of this server allows you no tools, so no program can run; its operator can change that",
            )
        owner = caller.owner
        if continued.run_id:
            # The client repeats its request with answers to the questions of the last result (revision 2026-07-28).
            manager = await self._runs.manager()
            return await manager.observe(
                continued.run_id, owner, client=client, answers=continued.answers, caller=caller
            )
        if self._exposure(exchange).mode == "search":
            raise ProgramError("invalid_input", f"there is no tool {name[:100]!r}; this server has search and call")
        match name:
            case "exec":
                program = exec_arguments(arguments)
                manager = await self._runs.manager()
                from codemode_mcp.program.prepare import Cell  # imported by the manager, and not needed before it

                return await manager.execute(Cell(program.source, program.language, caller, request), client)
            case "wait":
                asked = wait_arguments(arguments)
                manager = await self._runs.manager()
                return await manager.observe(
                    asked.run_id, owner, cancel=asked.cancel, from_start=asked.from_start, client=client, caller=caller
                )
        raise ProgramError(
            "invalid_input",
            f"there is no tool {name[:100]!r}; this server has exec and wait. Call other tools in a program of exec",
        )

    def _describe_list(self) -> tuple[object, ...]:
        """Return everything on which the two tools and the instructions depend, for the user or for all callers."""
        exposed = self._exposed.fingerprint() if "_exposed" in self.__dict__ else ()
        if not self._code_mode:
            return (exposed,)
        names, tools = tuple(self._runs.configured()), self._runs.settings()
        topics = self._runs.all_topics() if self._user is None else self._runs.topics(self._user)
        programs = self._runs.saved_programs(self._user)
        offered = (names, self._runs.has_nothing(), self._runs.namespaces(), topics, programs)
        shown = exposed, self._apps.fingerprint()
        return offered, shown, tools.code_mode.languages, tools.policy, tools.contexts, tools.clients, tools.expose

    def instructions(self, client: Client | None = None, path: ExposeMode | None = None) -> str:
        """Return the instructions for a client that connects; without `client`, for any client."""
        if self._runs.has_nothing():
            return descriptions.NOTHING_CONFIGURED
        if not self._code_mode:
            return descriptions.passthrough_instructions(list(self._runs.servers(self._user).values()))
        name = None if client is None else client.client_name
        if self._exposures.of(self._user, name, path).mode == "search":
            return search_tools.search_instructions(list(self._runs.servers(self._user).values()))
        return descriptions.instructions(self._runs.servers(self._user), self._runs.settings().code_mode.languages)


# The answer to an `exec` or `wait` that an earlier process of this server has left unanswered.


MAX_RUN_ID = 80
"""Maximum characters of a run id in a message. A client may have sent any text as one."""


class Interrupted(NamedTuple):
    """A request that an earlier process has left unanswered.

    Attributes:
        run_id: the run of the request; None if it had none yet.
        dispatched: True if a call of the run may have been sent, in this request or an earlier one.
    """

    run_id: str | None
    dispatched: bool


async def find_interruption(
    stored_state: StoredState, request: Interrupted, waits_for: object, owner: str | None
) -> ProgramError:
    """Return the error with which to answer the request, from what the store has of its run.

    Args:
        waits_for: the id of the run, if the client has named one.
    """
    run_id = waits_for if isinstance(waits_for, str) else request.run_id
    state: RunState | None = None
    failure = ""
    if run_id is not None:
        try:
            state = await stored_state(run_id, owner)
        except StoreUnavailable as error:
            failure = error.message
    return interruption(request, run_id, state, failure, waited=waits_for is not None)


def interruption(
    request: Interrupted, run_id: str | None, state: RunState | None, failure: str, *, waited: bool
) -> ProgramError:
    """Return the error with which to answer the request.

    Args:
        run_id: the run of the request, or the one that the client has named.
        state: the state of the run in the store; None if the run is not in the store.
        failure: the message of a store that does not answer; empty otherwise.
        waited: True for a request that resumes a run, False for one that begins a run.
    """
    ended = "The server process ended before it had answered."
    if run_id is None:
        return ProgramError("aborted", f"{ended} None of the program's calls was sent. Call exec again.")
    shown = compact_json(run_id[:MAX_RUN_ID])
    again = " again" if waited else ""
    # A `wait` without a note had not reached its run, whose earlier calls are unknown here.
    sent = request.dispatched or request.run_id is None
    if sent:
        lost = (
            "Some of its calls may have been sent and may have had effects, and their results are unknown. Check what "
            "they have changed before you repeat them."
        )
    else:
        lost = "None of its calls was sent. Call exec again."
    if failure:
        text = (
            f"{ended} It is unknown whether the program is still stored: {failure}. Call wait{again} with runId "
            f"{shown}. If there is no such run, the program has ended. {lost}"
        )
    elif state == "waiting":
        text = f"{ended} The program is stored. To resume it, call wait{again} with runId {shown}. Do not call exec."
        if sent:
            text += " Calls that were in flight may have had effects; the program gets their results, or an error."
    elif state is not None:
        text = f"{ended} The program itself has ended. For its result, call wait{again} with runId {shown}."
    else:
        text = f"{ended} The program was not stored, so it cannot be resumed. {lost}"
    return ProgramError("aborted", text)


# Events about calls of `exec` and `wait`, and the parts of a call that they need.


def called(exchange: Exchange) -> tuple[str, Mapping[str, Any]]:
    return exchange.params["name"], exchange.params.get("arguments") or {}


def named_run(arguments: Mapping[str, Any]) -> object:
    return arguments.get("runId") or arguments.get("run_id")


def report_request(auditor: Auditor, request: str, exchange: Exchange, continued: Continued) -> None:
    """Report that an `exec` or `wait` has arrived. `request`: its id in events."""
    name, arguments = called(exchange)
    if name not in ("exec", "wait"):
        return
    kind: EventKind = "exec" if name == "exec" else "wait"
    if not auditor.listening:
        auditor.notice(kind, request)
        return
    run = continued.run_id or named_run(arguments)
    source = None if continued.run_id else arguments.get("code") or arguments.get("command")
    auditor.emit(
        kind,
        request,
        request=name_to_record(str(exchange.request_id)),
        run=name_to_record(run) if isinstance(run, str) else None,
        answers=len(continued.answers) or None,
        cancel=arguments.get("cancel") is True or None,
        bytes=0 if continued.run_id else sizes.of_arguments(arguments),
        inputs=source if isinstance(source, str) and name == "exec" else None,
    )


LINKS_SINCE: Final = "2025-06-18"
"""First revision of MCP with resource links in results."""


def tool_result(rendered: Rendered, version: str, profile: Profile, *, with_links: bool = False) -> dict[str, Any]:
    """Return a `CallToolResult` as JSON.

    Args:
        with_links: True if the client can read stored results. Their links come last, if it can take them.
    """
    repeated = rendered.is_error and profile.repeats_failures
    content = [_content_block(block, has_audio=version != "2024-11-05") for block in rendered.content]
    if with_links and version >= LINKS_SINCE and not profile.mishandles_links:
        content += map(link, rendered.stored[:MAX_LINKS])
    result: dict[str, Any] = {"content": content, "isError": rendered.is_error}
    if not profile.shows_structured and not repeated:
        result["structuredContent"] = rendered.structured
    if rendered.meta and not repeated:
        result["_meta"] = rendered.meta
    return result


def _content_block(block: dict[str, Any], *, has_audio: bool) -> dict[str, Any]:
    """Return a content block as MCP has it. Audio becomes a resource for revisions without audio."""
    if block["type"] == "resource":
        resource = block["resource"]
    elif block["type"] != "audio" or has_audio:
        return {name: block[name] for name in ("type", "text", "data", "mimeType") if name in block}
    else:
        resource = {"uri": "data:" + block["mimeType"], "mimeType": block["mimeType"], "blob": block["data"]}
    contents = {name: resource[name] for name in ("uri", "mimeType", "blob", "_meta") if resource.get(name) is not None}
    return {"type": "resource", "resource": contents}
