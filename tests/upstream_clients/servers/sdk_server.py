"""The SDK server over stdio."""

import anyio
from mcp.server.stdio import stdio_server
from sdk_app import make_server


async def main() -> None:
    server = make_server()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


anyio.run(main)
