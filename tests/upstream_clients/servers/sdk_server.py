"""A well-behaved server over stdio, made with the SDK. Speaks both eras."""

from __future__ import annotations

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool


async def list_tools(ctx, params):
    return ListToolsResult(
        tools=[
            Tool(
                name="echo",
                description="Give the text back.",
                input_schema={"type": "object", "properties": {"text": {"type": "string"}}},
            )
        ]
    )


async def call_tool(ctx, params):
    return CallToolResult(content=[TextContent(type="text", text=str((params.arguments or {}).get("text")))])


async def main() -> None:
    server = Server("echo-server", version="1.2.3", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)
