"""An upstream that asks in the course of its calls, written with the SDK's server: `asking.py modern|legacy`.

`name` asks for a form, `consent` for a URL to be opened, `think` for the client's model, `folders` for its roots.
Modern clients get their questions as `input_required` results, legacy ones as requests.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ARGUMENTS = {"type": "object", "properties": {"label": {"type": "string"}}}


def question(tool: str, label: str) -> tuple[Any, type[Any]]:
    match tool:
        case "name":
            params = types.ElicitRequestFormParams(message=f"Your name for {label}?", requested_schema=FORM)
            return types.ElicitRequest(params=params), types.ElicitResult
        case "consent":
            url = types.ElicitRequestURLParams(
                message=f"Open this for {label}", url="https://example.com/consent", elicitation_id=f"id-{label}"
            )
            return types.ElicitRequest(params=url), types.ElicitResult
        case "think":
            message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=label))
            sampling = types.CreateMessageRequestParams(messages=[message], max_tokens=50)
            return types.CreateMessageRequest(params=sampling), types.CreateMessageResult
    return types.ListRootsRequest(), types.ListRootsResult


async def list_tools(context: ServerRequestContext[Any], params: Any) -> types.ListToolsResult:
    names = ("name", "consent", "think", "folders")
    return types.ListToolsResult(
        tools=[types.Tool(name=name, description=f"Ask for {name}.", input_schema=ARGUMENTS) for name in names]
    )


async def call_tool(
    context: ServerRequestContext[Any], params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    label = (params.arguments or {}).get("label", "you")
    request, result_type = question(params.name, label)
    if context.session.protocol_version in MODERN_PROTOCOL_VERSIONS:
        if not params.input_responses:
            return types.InputRequiredResult(input_requests={"it": request}, request_state=f"state of {label}")
        assert params.request_state == f"state of {label}"
        answer = params.input_responses["it"]
    else:
        answer = await context.session.send_request(request, result_type)
    said = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    text = json.dumps({"label": label, "said": said})
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


class Old:
    """A read stream of a server from before 2026-07-28: it does not know `server/discover`."""

    def __init__(self, inner: Any, write: Any) -> None:
        self._inner = inner
        self._write = write
        self.last_context = None

    def __aiter__(self) -> Old:
        return self

    async def __anext__(self) -> Any:
        while True:
            item = await anext(self._inner)
            if not isinstance(item, SessionMessage) or getattr(item.message, "method", "") != "server/discover":
                return item
            error = types.ErrorData(code=types.METHOD_NOT_FOUND, message="unknown method")
            assert isinstance(item.message, types.JSONRPCRequest)
            await self._write.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=item.message.id, error=error)))

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Old:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def main() -> None:
    server: Server[Any] = Server("asking", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        lines = Old(read, write) if sys.argv[1] == "legacy" else read
        await server.run(lines, write, server.create_initialization_options())


asyncio.run(main())
