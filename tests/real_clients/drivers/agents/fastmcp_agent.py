"""A program with FastMCP's client that hands on what it gets: `fastmcp_agent.py URL SERVER`."""

import asyncio
import json
import sys
import urllib.request
from typing import Any

from fastmcp import Client


def post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(f"{url}/direct", json.dumps(body).encode())
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["call"]


async def main() -> None:
    url, entry = sys.argv[1], json.loads(sys.argv[2])
    async with Client({"mcpServers": {"codemode": entry}}) as client:
        names = [tool.name for tool in await client.list_tools()]
        results: list[Any] = []
        while call := post(url, {"tools": names, "results": results}):
            result = await client.call_tool(call["name"], call["arguments"], raise_on_error=False)
            results = [block.model_dump(by_alias=True, mode="json", exclude_none=True) for block in result.content]
            if result.structured_content is not None:
                results.append(json.dumps(result.structured_content, ensure_ascii=False, separators=(",", ":")))


asyncio.run(main())
