"""The MCP surface: exactly `exec` and `wait`, both protocol eras, over stdio.

Arguments are validated here, because the SDK does not. Every answer is a tool result: a failure is `isError`, never a
protocol error, and no exception text leaves.
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import asynccontextmanager, suppress
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from codemode_mcp import descriptions
from codemode_mcp.errors import CodeModeError, InternalError, ProgramError
from codemode_mcp.nearest import nearest
from codemode_mcp.output import Rendered, render, render_error

if TYPE_CHECKING:
    import contextvars
    from collections.abc import AsyncIterator, Mapping, Sequence

    from mcp.server.context import ServerRequestContext
    from mcp.shared._context_streams import ContextReceiveStream

    from codemode_mcp.outcome import Outcome
    from codemode_mcp.settings import Language, ToolSettings

log = logging.getLogger("codemode_mcp.server")

PROGRESS_SECONDS = 2.0
"""How often an open request tells its client that it goes on."""


class ProgressFn(Protocol):
    async def __call__(self, message: str) -> None: ...


class Runs(Protocol):
    """What the surface needs; the run manager behind the composition root."""

    async def execute(self, source: str, language: Language | None, progress: ProgressFn) -> Outcome: ...

    async def observe(self, run_id: str, *, cancel: bool, from_start: bool, progress: ProgressFn) -> Outcome: ...

    def offload(self, owner: str, text: str) -> str | None: ...

    def server_names(self) -> Sequence[str]: ...

    def admits_nothing(self) -> bool: ...

    def touch(self) -> None:
        """A client is there: whatever was put off until then may begin."""
        ...


class Surface:
    """Handlers for one `Server`, whatever carries it."""

    def __init__(self, runs: Runs, settings: ToolSettings) -> None:
        self._runs = runs
        self._settings = settings
        languages = settings.code_mode.languages
        self.server: Server[Any] = Server(
            "codemode-mcp",
            version=metadata.version("codemode-mcp"),
            title="Code mode",
            instructions=descriptions.instructions(runs.server_names(), languages),
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    async def _list_tools(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        self._runs.touch()
        if self._runs.admits_nothing():
            return types.ListToolsResult(tools=[])
        tools = tool_list(self._runs.server_names(), self._settings)
        if [tool.name for tool in tools] != ["exec", "wait"]:
            raise RuntimeError("the tool list is not what it has to be")  # fails closed
        return types.ListToolsResult(tools=tools)

    async def _call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        self._runs.touch()
        async with _progress(context) as progress:
            rendered = await self._rendered(params.name, params.arguments or {}, progress)
        return _tool_result(rendered)

    async def _rendered(self, tool: str, arguments: Mapping[str, Any], progress: ProgressFn) -> Rendered:
        try:
            outcome = await self._answer(tool, arguments, progress)
            return render(outcome, self._settings, self._runs.offload, time.monotonic())
        except CodeModeError as error:
            return render_error(error, self._settings)
        except Exception:
            log.exception("a request failed in an unexpected way")
            fault = InternalError("the request failed inside codemode-mcp; see its log")
            return render_error(fault, self._settings)

    async def _answer(self, tool: str, arguments: Mapping[str, Any], progress: ProgressFn) -> Outcome:
        if self._runs.admits_nothing():
            raise ProgramError("invalid_input", "the policy of this server allows no tools, so there is nothing to run")
        match tool:
            case "exec":
                source, language = exec_arguments(arguments)
                return await self._runs.execute(source, language, progress)
            case "wait":
                run_id, cancel, from_start = wait_arguments(arguments)
                return await self._runs.observe(run_id, cancel=cancel, from_start=from_start, progress=progress)
        raise ProgramError(
            "invalid_input",
            f"there is no tool {tool[:100]!r} here; the tools are exec and wait, and others are called inside exec",
        )

    async def serve_stdio(self) -> None:
        """Serve on the process's standard streams until the client closes its end."""
        async with stdio_server() as (read, write):
            await self.server.run(_Lines(read), write, self.server.create_initialization_options())


def tool_list(servers: Sequence[str], settings: ToolSettings) -> list[types.Tool]:
    """The two tools."""
    languages = settings.code_mode.languages
    return [
        types.Tool(
            name="exec",
            title="Run a program",
            description=descriptions.exec_description(servers, languages),
            input_schema=descriptions.exec_schema(languages),
            output_schema=descriptions.OUTPUT_SCHEMA,
            annotations=types.ToolAnnotations(
                title="Run a program", read_only_hint=False, destructive_hint=True, open_world_hint=True
            ),
        ),
        types.Tool(
            name="wait",
            title="Go on with a program",
            description=descriptions.wait_description(),
            input_schema=descriptions.WAIT_SCHEMA,
            output_schema=descriptions.OUTPUT_SCHEMA,
            annotations=types.ToolAnnotations(
                title="Go on with a program", read_only_hint=False, destructive_hint=True, open_world_hint=True
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


class _Lines:
    """The messages of a stdio client. JSON may hold half of a surrogate pair as an escape, which the SDK's parser
    refuses: its request would never be answered. Such a line is read again, with U+FFFD in the place of that half.
    """

    def __init__(self, inner: ContextReceiveStream[SessionMessage | Exception]) -> None:
        self._inner = inner

    @property
    def last_context(self) -> contextvars.Context | None:
        return self._inner.last_context

    async def receive(self) -> SessionMessage | Exception:
        item = await self._inner.receive()
        return _read_again(item) if isinstance(item, ValidationError) else item

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        item = await anext(self._inner)
        return _read_again(item) if isinstance(item, ValidationError) else item

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> _Lines:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _read_again(error: ValidationError) -> SessionMessage | Exception:
    line = error.errors(include_url=False, include_context=False)[0]["input"]
    try:
        text = json.dumps(json.loads(line), ensure_ascii=False)
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return (
            error
            if whole == text
            else SessionMessage(types.jsonrpc_message_adapter.validate_json(whole, by_name=False))
        )
    except (TypeError, ValueError, RecursionError):
        return error


def _tool_result(rendered: Rendered) -> types.CallToolResult:
    content: list[types.ContentBlock] = [
        types.TextContent(type="text", text=block["text"])
        if block["type"] == "text"
        else types.ImageContent(type="image", data=block["data"], mime_type=block["mimeType"])
        for block in rendered.content
    ]
    return types.CallToolResult(content=content, structured_content=rendered.structured, is_error=rendered.is_error)


@asynccontextmanager
async def _progress(context: ServerRequestContext[Any]) -> AsyncIterator[ProgressFn]:
    """Progress of an open request: at once for every message, and a sign of life in between."""
    began = time.monotonic()
    step = 0

    async def report(message: str) -> None:
        nonlocal step
        step += 1
        # When the client has gone, its request is about to be cancelled.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await context.session.report_progress(float(step), None, message)

    async def tick() -> None:
        while True:
            await anyio.sleep(PROGRESS_SECONDS)
            await report(f"running for {time.monotonic() - began:.0f} s")

    if (context.meta or {}).get("progressToken", (context.meta or {}).get("progress_token")) is None:
        yield _silent
        return
    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        yield report
        group.cancel_scope.cancel()


async def _silent(message: str) -> None:
    """For a client that did not ask."""
