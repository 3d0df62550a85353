"""FastMCP's code mode in front of one stdio server, for `peers.py`; run by the Python of its own environment.

`fastmcp_server.py COMMAND [ARGUMENT ...]`. The connection to the upstream stays open, which is the fastest way that
FastMCP has: a proxy made from a configuration opens a session for each request. The limit of 50 calls of one program is
lifted.
"""

import asyncio
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.experimental.transforms.code_mode import CodeMode
from fastmcp.server import create_proxy


async def main() -> None:
    async with Client(StdioTransport(command=sys.argv[1], args=sys.argv[2:])) as client:
        server = create_proxy(client, name="peer", transforms=[CodeMode(max_tool_calls=None)])
        await server.run_async(transport="stdio", show_banner=False)


asyncio.run(main())
