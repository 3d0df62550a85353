"""The MCP surface: exactly `exec` and `wait`, both protocol eras, whatever carries them.

Arguments are validated here, because the SDK does not. Every answer is a tool result: a failure is `isError`, never a
protocol error, and no exception text leaves.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from importlib import metadata
from typing import IO, TYPE_CHECKING, Any, Final, Protocol

import mcp_types as types

from codemode_mcp import descriptions
from codemode_mcp.announce import Announcer, AnnouncingServer
from codemode_mcp.audit import debugging, sizes
from codemode_mcp.audit.events import MAX_NAME, request_id
from codemode_mcp.client import Continued, guard_state, open_client, roots_of
from codemode_mcp.entries import within_line
from codemode_mcp.errors import CodeModeError, InternalError, ProgramError
from codemode_mcp.exec_arguments import ARGUMENTS, exec_arguments, ignored_arguments, wait_arguments
from codemode_mcp.outcome import Usage
from codemode_mcp.output import VISIBLE_TOOLS, Rendered, render, render_error
from codemode_mcp.policy import Policies
from codemode_mcp.profiles import Profile, profile_of
from codemode_mcp.stdio import serve_stdio

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    import anyio
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server

    from codemode_mcp.audit import Auditor
    from codemode_mcp.callers import Caller
    from codemode_mcp.outcome import Outcome
    from codemode_mcp.runs.questions import Client
    from codemode_mcp.settings import Language, ToolSettings
    from upstream_clients.tools import RootsFn

log = logging.getLogger("codemode_mcp.server")

_ANY_CLIENT = Profile()


class Runs(Protocol):
    """What the surface needs; the run manager behind the composition root."""

    @property
    def auditor(self) -> Auditor: ...

    async def execute(
        self, source: str, language: Language | None, caller: Caller, client: Client, request: str | None = None
    ) -> Outcome:
        """`request`: its id in events."""
        ...

    async def observe(
        self,
        run_id: str,
        owner: str | None,
        *,
        cancel: bool = False,
        from_start: bool = False,
        client: Client,
        answers: Mapping[str, Any] | None = None,
        caller: Caller,
    ) -> Outcome: ...

    async def offload(self, owner: str, text: str) -> str | None:
        """See `output.Offload`."""
        ...

    def late_notes(self, owner: str | None) -> Sequence[str]:
        """Return notes about calls that failed after their run; see `RunManager.late_notes`."""
        ...

    async def catalog_counts(self, caller: Caller, client: Client) -> tuple[int, Mapping[str, int]]:
        """Return how many tools the caller's catalog has, and how many from each kind of source."""
        ...

    async def state_keys(self) -> Sequence[bytes]:
        """See `client.guard_state`."""
        ...

    def servers(self, caller: Caller | None) -> Mapping[str, str]:
        """Configured names by identifier, of the servers that the caller may see; None: that every caller may see."""
        ...

    def topics(self, caller: Caller) -> Sequence[str]:
        """Topics of the caller's servers, the most telling first."""
        ...

    def all_topics(self) -> Hashable:
        """Topics of all callers: never to be shown."""
        ...

    async def ready_to_list(self) -> None:
        """Wait, for a bounded time, for what the tool list shows."""
        ...

    def configured(self) -> Sequence[str]:
        """All servers there are, whoever may see them: never to be shown."""
        ...

    def has_nothing(self) -> bool:
        """Tell whether neither a server nor a plugin is configured."""
        ...

    def admits_nothing(self, caller: Caller) -> bool: ...

    def namespaces(self) -> Hashable:
        """All that are registered, whoever may see them: never to be shown."""
        ...

    async def namespace_texts(self, caller: Caller) -> Sequence[tuple[str, str, str]]:
        """Global name, description and prompt of each namespace that the caller sees, as far as they are known."""
        ...

    def settings(self) -> ToolSettings:
        """The newest: a changed configuration file makes others."""
        ...

    def change(self) -> anyio.Event:
        """For the next time that anything of these may be another."""
        ...

    def offer_roots(self, roots: RootsFn | None) -> None:
        """The folders of the one client there is, for servers that ask for them outside any call."""
        ...

    def touch(self) -> None:
        """A client is there: whatever was put off until then may begin."""
        ...

    def record_client(self, name: str | None, version: str | None, protocol: str | None) -> None:
        """Count a request of a client."""
        ...


class Surface:
    """Handlers for one `Server`, whatever carries it.

    Args:
        caller_of: who makes a request.
        user: who makes them all; None where they come from many.
    """

    def __init__(
        self, runs: Runs, caller_of: Callable[[ServerRequestContext[Any]], Caller], user: Caller | None = None
    ) -> None:
        self._runs = runs
        self._caller_of = caller_of
        self._user = user
        self._lasting = False
        settings = runs.settings()
        self._announcer = Announcer(self._shown, runs.change)
        self.server: Server[Any] = AnnouncingServer(
            "codemode-mcp",
            announcer=self._announcer,
            version=metadata.version("codemode-mcp"),
            title="Code mode",
            instructions=self._instructions(),
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        guard_state(self.server, settings.code_mode.snapshot_ttl_seconds, runs.state_keys)

    async def _list_tools(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        self._offer_roots(context)
        self._runs.touch()
        self._record_client(context)
        caller = self._caller_of(context)
        await self._runs.ready_to_list()
        namespaces = await self._runs.namespace_texts(caller)
        self._announcer.listed()  # nothing is awaited from here on: what is noted is what is answered
        if self._runs.has_nothing() or self._runs.admits_nothing(caller):
            return types.ListToolsResult(tools=[], cache_scope="private")
        profile = self._profile(context)
        tools = tool_list(
            self._runs.servers(caller), self._runs.settings(), namespaces, self._runs.topics(caller), profile, caller
        )
        if tuple(tool.name for tool in tools) != VISIBLE_TOOLS:
            raise RuntimeError("the tool list is not what it has to be")  # fails closed
        debugging.log_listing(tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools)
        # The list depends on the caller's policy and on the client's profile.
        return types.ListToolsResult(tools=tools, cache_scope="private")

    def _record_client(self, context: ServerRequestContext[Any]) -> None:
        params = context.session.client_params
        info = None if params is None else params.client_info
        self._runs.record_client(
            None if info is None else info.name,
            None if info is None else info.version,
            context.session.protocol_version,
        )

    def _profile(self, context: ServerRequestContext[Any]) -> Profile:
        return profile_of(client_name(context), self._runs.settings().clients)

    async def _call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        self._offer_roots(context)
        self._runs.touch()
        self._record_client(context)
        continued = Continued.of(context, params)
        request, began = request_id(), time.monotonic()
        told: dict[str, Any] = {"status": "cancelled"}
        self._tell_request(request, context, params, continued)
        try:
            return await self._carry_out(context, params, continued, request, told)
        finally:
            self._runs.auditor.emit("answered", request, ms=round((time.monotonic() - began) * 1000), **told)

    def _tell_request(
        self,
        request: str,
        context: ServerRequestContext[Any],
        params: types.CallToolRequestParams,
        continued: Continued,
    ) -> None:
        auditor, arguments = self._runs.auditor, params.arguments or {}
        if not auditor.listening or params.name not in ("exec", "wait"):
            return
        run = continued.run_id or arguments.get("runId") or arguments.get("run_id")
        source = None if continued.run_id else arguments.get("code") or arguments.get("command")
        auditor.emit(
            "exec" if params.name == "exec" else "wait",
            request,
            request=str(context.request_id)[:MAX_NAME],
            run=run[:MAX_NAME] if isinstance(run, str) else None,
            answers=len(continued.answers) or None,
            cancel=arguments.get("cancel") is True or None,
            bytes=0 if continued.run_id else sizes.of_arguments(arguments),
            inputs=source if isinstance(source, str) and params.name == "exec" else None,
        )

    async def _carry_out(
        self,
        context: ServerRequestContext[Any],
        params: types.CallToolRequestParams,
        continued: Continued,
        request: str,
        told: dict[str, Any],
    ) -> types.CallToolResult | types.InputRequiredResult:
        """`told`: what is told of the answer, to be filled in."""
        profile = self._profile(context)
        if profile.adds_arguments:
            params = params.model_copy(update={"arguments": _without_added(params, profile)})
        notes = () if continued.run_id else ignored_arguments(params.name, params.arguments or {})
        async with open_client(context, rounds=continued.round, lasting=self._lasting) as client:
            try:
                outcome = await self._answer(context, params, continued, client, request)
                told["run"] = outcome.run_id
                if outcome.questions:
                    told["status"] = "asks"
                    return continued.asks_again(outcome.run_id, outcome.questions)
                outcome = replace(outcome, notes=(*outcome.notes, *notes))
                if not outcome.usage.sources:  # its program could not be restored
                    outcome = replace(outcome, usage=await self._counted(outcome.usage, context, client))
                rendered = await render(
                    outcome, self._runs.settings(), self._runs.offload, time.monotonic(), profile.max_output_bytes
                )
            except CodeModeError as error:
                refused = Usage(execs=int(params.name == "exec"), waits=int(params.name == "wait"))
                usage = await self._counted(refused, context, client)
                notes = (*notes, *self._runs.late_notes(self._caller_of(context).owner))
                rendered = render_error(error, self._runs.settings(), profile.max_output_bytes, notes, usage)
            except Exception:
                log.exception("a request failed in an unexpected way")
                fault = InternalError("the request failed inside codemode-mcp; see its log")
                rendered = render_error(fault, self._runs.settings(), profile.max_output_bytes)
        told.update(status=rendered.structured["status"], code=rendered.structured.get("code"))
        result = _tool_result(rendered, context.session.protocol_version, profile)
        debugging.log_answer(within_line(params.name), rendered.content, result.structured_content)
        if self._runs.auditor.listening:
            told.update(sizes.seen({"content": rendered.content, "structuredContent": result.structured_content}))
        return result

    async def _counted(self, usage: Usage, context: ServerRequestContext[Any], client: Client) -> Usage:
        """Return the usage of a request whose program has not run, with the catalog that it would have seen."""
        if self._runs.settings().code_mode.telemetry == "off":
            return usage
        size, sources = await self._runs.catalog_counts(self._caller_of(context), client)
        return replace(usage, catalog_size=size, sources=sources)

    def _offer_roots(self, context: ServerRequestContext[Any]) -> None:
        if self._lasting:
            self._runs.offer_roots(roots_of(context.session))

    async def _answer(
        self,
        context: ServerRequestContext[Any],
        params: types.CallToolRequestParams,
        continued: Continued,
        client: Client,
        request: str,
    ) -> Outcome:
        caller = self._caller_of(context)
        if self._runs.admits_nothing(caller):
            raise ProgramError(
                "invalid_input", "the policy of this server allows you no tools, so there is nothing to run"
            )
        owner = caller.owner
        arguments = params.arguments or {}
        if continued.run_id:
            # The same request again, with the answers to what the last one came back with (revision 2026-07-28).
            return await self._runs.observe(
                continued.run_id, owner, client=client, answers=continued.answers, caller=caller
            )
        match params.name:
            case "exec":
                program = exec_arguments(arguments)
                return await self._runs.execute(program.source, program.language, caller, client, request)
            case "wait":
                asked = wait_arguments(arguments)
                return await self._runs.observe(
                    asked.run_id, owner, cancel=asked.cancel, from_start=asked.from_start, client=client, caller=caller
                )
        raise ProgramError(
            "invalid_input",
            f"there is no tool {params.name[:100]!r} here; the tools are exec and wait, "
            "and others are called inside exec",
        )

    async def serve_stdio(self, streams: tuple[IO[str], IO[str]] | None = None) -> None:
        """Serve on the process's standard streams, or on what `stdio.reserve` made of them, until the client closes
        its end."""
        self._lasting = True  # one client, for as long as this lasts
        await serve_stdio(self.server, streams)

    def _shown(self) -> tuple[object, ...]:
        """All that the two tools and the instructions depend on, for any caller."""
        names, tools = tuple(self._runs.configured()), self._runs.settings()
        self.server.instructions = self._instructions()
        languages, policies = tools.code_mode.languages, (tools.policy, tools.contexts)
        there = (names, self._runs.has_nothing(), self._runs.namespaces(), self._runs.all_topics())
        return there, languages, policies, tools.clients

    def _instructions(self) -> str:
        if self._runs.has_nothing():
            return descriptions.NOTHING_CONFIGURED
        return descriptions.instructions(self._runs.servers(self._user), self._runs.settings().code_mode.languages)


_META: Final = {"anthropic/alwaysLoad": True}
"""Clients of Anthropic put a tool with this into each prompt, and not behind their tool search."""


def tool_list(
    servers: Mapping[str, str],
    settings: ToolSettings,
    namespaces: Sequence[tuple[str, str, str]] = (),
    topics: Sequence[str] = (),
    profile: Profile = _ANY_CLIENT,
    caller: Caller | None = None,
) -> list[types.Tool]:
    """Return the two tools as a client of this profile gets them.

    They are read-only where policy admits only tools that are read-only by trusted annotations. Values of `store()` are
    no change in this sense: they are the caller's own scratch memory in codemode-mcp.

    Args:
        caller: decides which rules apply; None for the default rules. The other arguments are those of
            `descriptions.exec_description`.
    """
    policies = Policies(settings)
    read_only = (policies.default if caller is None else policies.of(caller)).rules.read_only
    languages = settings.code_mode.languages
    output_schema = None if profile.shows_structured else descriptions.OUTPUT_SCHEMA
    return [
        types.Tool(
            name="exec",
            title="Run a program",
            description=descriptions.exec_description(servers, languages, namespaces, topics),
            input_schema=descriptions.exec_schema(languages),
            output_schema=output_schema,
            annotations=types.ToolAnnotations(
                title="Run a program",
                read_only_hint=read_only,
                destructive_hint=not read_only,
                open_world_hint=True,
            ),
            _meta=_META,
        ),
        types.Tool(
            name="wait",
            title="Resume a suspended program",
            description=descriptions.wait_description(),
            input_schema=descriptions.WAIT_SCHEMA,
            output_schema=output_schema,
            annotations=types.ToolAnnotations(
                title="Resume a suspended program",
                read_only_hint=read_only,
                destructive_hint=not read_only,
                open_world_hint=True,
            ),
            _meta=_META,
        ),
    ]


def client_name(context: ServerRequestContext[Any]) -> str | None:
    """Return the name in the client's `clientInfo`: of `initialize`, or of the request's `_meta` (2026-07-28)."""
    params = context.session.client_params
    return None if params is None else params.client_info.name


def _without_added(params: types.CallToolRequestParams, profile: Profile) -> dict[str, Any]:
    """Return the arguments of a call without those that its client adds to every tool."""
    own = ARGUMENTS.get(params.name, ())
    given = params.arguments or {}
    return {name: value for name, value in given.items() if name in own or name not in profile.adds_arguments}


# the SDK's types


def _tool_result(rendered: Rendered, version: str | None, profile: Profile) -> types.CallToolResult:
    content = [_content_block(block, has_audio=version != "2024-11-05") for block in rendered.content]
    repeated = rendered.is_error and profile.repeats_failures
    return types.CallToolResult(
        content=content,
        structured_content=None if profile.shows_structured or repeated else rendered.structured,
        is_error=rendered.is_error,
        _meta=None if repeated else rendered.meta or None,
    )


def _content_block(block: dict[str, Any], *, has_audio: bool) -> types.ContentBlock:
    match block["type"]:
        case "text":
            return types.TextContent(type="text", text=block["text"])
        case "image":
            return types.ImageContent(type="image", data=block["data"], mime_type=block["mimeType"])
        case "audio" if has_audio:
            return types.AudioContent(type="audio", data=block["data"], mime_type=block["mimeType"])
        case "audio":
            resource = {"uri": "data:" + block["mimeType"], "mimeType": block["mimeType"], "blob": block["data"]}
        case _:
            resource = block["resource"]
    contents = types.BlobResourceContents.model_validate(resource, by_name=False)
    return types.EmbeddedResource(type="resource", resource=contents)
