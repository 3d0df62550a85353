"""A client of the MCP SDK that calls one stdio server without a gateway, for `peers.py`.

`direct_client.py COMMAND [ARGUMENT ...]`. It reads requests as a server does, so that the same benchmark starts it and
asks it: `tools/list` lists the tools of the upstream, and the tool `run` makes the calls that its `code` names.
"""

import asyncio
import json
import sys
from typing import Any

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters


async def run(client: Client, kind: str, count: int) -> None:
    if kind == "concurrent":
        await asyncio.gather(*(client.call_tool("echo", {"text": str(number)}) for number in range(count)))
        return
    for number in range(count):
        if kind == "large":
            await client.call_tool("blob", {"bytes": 20_000})
        else:
            await client.call_tool("echo", {"text": str(number)})


async def answer(client: Client, method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "tools/list":
        return {"tools": [tool.name for tool in (await client.list_tools()).tools]}
    if method == "tools/call":
        kind, count = params["arguments"]["code"].split()
        await run(client, kind, int(count))
        return {"content": []}
    return {}


async def main() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with Client(StdioServerParameters(command=sys.argv[1], args=sys.argv[2:])) as client:
        while line := await reader.readline():
            message = json.loads(line)
            if "id" in message:
                result = await answer(client, message["method"], message.get("params") or {})
                print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
