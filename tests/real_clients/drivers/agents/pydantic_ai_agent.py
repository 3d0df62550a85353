"""An agent of pydantic-ai: `pydantic_ai_agent.py URL SERVER`."""

import asyncio
import json
import sys

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits


async def main() -> None:
    url, entry = sys.argv[1], json.loads(sys.argv[2])
    server = MCPToolset(
        StdioTransport(entry["command"], entry["args"], env=entry["env"]), max_retries=20, init_timeout=60
    )
    model = OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
    async with Agent(model, toolsets=[server]) as agent:
        await agent.run("Follow the script.", usage_limits=UsageLimits(request_limit=None))


asyncio.run(main())
