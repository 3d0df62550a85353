"""The MCP surface: exactly `exec` and `wait`, both protocol eras, whatever carries them.

Arguments are validated here, because the SDK does not. Every answer is a tool result: a failure is `isError`, never a
protocol error, and no exception text leaves.
"""

from __future__ import annotations

import logging
import time
from importlib import metadata
from typing import IO, TYPE_CHECKING, Any, Protocol

import mcp_types as types

from codemode_mcp import descriptions
from codemode_mcp.announce import Announcer, AnnouncingServer
from codemode_mcp.audit import sizes
from codemode_mcp.audit.events import MAX_NAME, request_id
from codemode_mcp.client import Continued, guard_state, open_client, roots_of
from codemode_mcp.errors import CodeModeError, InternalError, ProgramError
from codemode_mcp.nearest import nearest
from codemode_mcp.output import Rendered, render, render_error
from codemode_mcp.policy import Policies
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

    async def state_keys(self) -> Sequence[bytes]:
        """See `client.guard_state`."""
        ...

    def server_names(self, caller: Caller | None) -> Sequence[str]:
        """That the caller may come to see something of; None: that everybody may."""
        ...

    def configured(self) -> Sequence[str]:
        """All servers there are, whoever may see them: never to be shown."""
        ...

    def admits_nothing(self, caller: Caller) -> bool: ...

    def namespaces(self) -> Hashable:
        """All that are registered, whoever may see them: never to be shown."""
        ...

    async def namespace_prompts(self, caller: Caller) -> Sequence[tuple[str, str]]:
        """Of the namespaces that the caller sees, as far as that is known without waiting: their global names and
        prompts."""
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
            instructions=descriptions.instructions(runs.server_names(user), settings.code_mode.languages),
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        guard_state(self.server, settings.code_mode.snapshot_ttl_seconds, runs.state_keys)

    async def _list_tools(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        self._offer_roots(context)
        self._runs.touch()
        self._announcer.listed()
        caller = self._caller_of(context)
        if self._runs.admits_nothing(caller):
            return types.ListToolsResult(tools=[])
        prompts = await self._runs.namespace_prompts(caller)
        tools = tool_list(self._runs.server_names(caller), self._runs.settings(), prompts, caller)
        if [tool.name for tool in tools] != ["exec", "wait"]:
            raise RuntimeError("the tool list is not what it has to be")  # fails closed
        return types.ListToolsResult(tools=tools)

    async def _call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        self._offer_roots(context)
        self._runs.touch()
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
        async with open_client(context, rounds=continued.round, lasting=self._lasting) as client:
            try:
                outcome = await self._answer(context, params, continued, client, request)
                told["run"] = outcome.run_id
                if outcome.questions:
                    told["status"] = "asks"
                    return continued.asks_again(outcome.run_id, outcome.questions)
                rendered = await render(outcome, self._runs.settings(), self._runs.offload, time.monotonic())
            except CodeModeError as error:
                rendered = render_error(error, self._runs.settings())
            except Exception:
                log.exception("a request failed in an unexpected way")
                fault = InternalError("the request failed inside codemode-mcp; see its log")
                rendered = render_error(fault, self._runs.settings())
        told.update(status=rendered.structured["status"], code=rendered.structured.get("code"))
        if self._runs.auditor.listening:
            told.update(sizes.seen({"content": rendered.content, "structuredContent": rendered.structured}))
        return _tool_result(rendered, context.session.protocol_version)

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
                source, language = exec_arguments(arguments)
                return await self._runs.execute(source, language, caller, client, request)
            case "wait":
                run_id, cancel, from_start = wait_arguments(arguments)
                return await self._runs.observe(
                    run_id, owner, cancel=cancel, from_start=from_start, client=client, caller=caller
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
        self.server.instructions = descriptions.instructions(
            self._runs.server_names(self._user), tools.code_mode.languages
        )
        return names, tools.code_mode.languages, tools.policy, tools.contexts, self._runs.namespaces()


def tool_list(
    servers: Sequence[str],
    settings: ToolSettings,
    prompts: Sequence[tuple[str, str]] = (),
    caller: Caller | None = None,
) -> list[types.Tool]:
    """The two tools.

    They read only where policy admits only tools that are read-only by trusted annotations. Values of `store()` do not
    count as a change: they are the caller's own scratch memory in codemode-mcp.
    """
    languages = settings.code_mode.languages
    policies = Policies(settings)
    read_only = (policies.default if caller is None else policies.of(caller)).rules.read_only
    return [
        types.Tool(
            name="exec",
            title="Run a program",
            description=descriptions.exec_description(servers, languages, prompts),
            input_schema=descriptions.exec_schema(languages),
            output_schema=descriptions.OUTPUT_SCHEMA,
            annotations=types.ToolAnnotations(
                title="Run a program",
                read_only_hint=read_only,
                destructive_hint=not read_only,
                open_world_hint=True,
            ),
        ),
        types.Tool(
            name="wait",
            title="Go on with a program",
            description=descriptions.wait_description(),
            input_schema=descriptions.WAIT_SCHEMA,
            output_schema=descriptions.OUTPUT_SCHEMA,
            annotations=types.ToolAnnotations(
                title="Go on with a program",
                read_only_hint=read_only,
                destructive_hint=not read_only,
                open_world_hint=True,
            ),
        ),
    ]


# arguments


def exec_arguments(arguments: Mapping[str, Any]) -> tuple[str, Language | None]:
    """Source and language of an `exec`.

    Raises:
        ProgramError: `invalid_input` or `unsupported_language`.
    """
    _known(arguments, "exec", ("code", "command", "language"))
    code = _text(arguments, "exec", "code")
    command = _text(arguments, "exec", "command")
    if code and command and code != command:
        raise ProgramError(
            "invalid_input", "exec: code and command differ; command is an alias of code, give one of them"
        )
    source = code or command
    if not source or not source.strip():
        raise ProgramError("invalid_input", 'exec: code is empty; give a program, e.g. {"code": "return 1 + 1"}')
    language = arguments.get("language")
    match language:
        case None | "javascript" | "typescript":
            return source, language
        case str():
            raise ProgramError(
                "unsupported_language",
                f"exec: language {language[:60]!r} is not supported; use javascript or typescript",
            )
    raise ProgramError("invalid_input", f"exec: language must be a string, not {_kind(language)}")


def wait_arguments(arguments: Mapping[str, Any]) -> tuple[str, bool, bool]:
    """Run id, cancel and fromStart of a `wait`.

    Raises:
        ProgramError: `invalid_input`.
    """
    _known(arguments, "wait", ("runId", "run_id", "cancel", "fromStart"))
    run_id = _text(arguments, "wait", "runId") or _text(arguments, "wait", "run_id")
    if not run_id:
        raise ProgramError("invalid_input", 'wait: runId is missing; it is in the result of the exec that is "waiting"')
    for name in ("cancel", "fromStart"):
        if not isinstance(arguments.get(name, False), bool):
            raise ProgramError("invalid_input", f"wait: {name} must be true or false, not {_kind(arguments[name])}")
    return run_id, arguments.get("cancel", False), arguments.get("fromStart", False)


def _known(arguments: Mapping[str, Any], tool: str, names: tuple[str, ...]) -> None:
    for name in arguments:
        if name not in names:
            near = nearest(name, names, count=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it takes {', '.join(names)}"
            raise ProgramError("invalid_input", f"{tool}: unknown argument {name[:60]!r}{hint}")


def _text(arguments: Mapping[str, Any], tool: str, name: str) -> str | None:
    given = arguments.get(name)
    if given is None or isinstance(given, str):
        return given
    raise ProgramError("invalid_input", f"{tool}: {name} must be a string, not {_kind(given)}")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    return {int: "a number", float: "a number", str: "a string", list: "an array", dict: "an object"}[type(value)]


# the SDK's types


def _tool_result(rendered: Rendered, version: str | None) -> types.CallToolResult:
    content = [_content_block(block, has_audio=version != "2024-11-05") for block in rendered.content]
    return types.CallToolResult(content=content, structured_content=rendered.structured, is_error=rendered.is_error)


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
