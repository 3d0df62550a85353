"""An agent of openai-agents: `openai_agents_agent.py URL SERVER`."""

import asyncio
import json
import sys

from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio
from openai import AsyncOpenAI


async def main() -> None:
    url, entry = sys.argv[1], json.loads(sys.argv[2])
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
    model = OpenAIResponsesModel("scripted", openai_client=client)
    async with MCPServerStdio(params=entry, name="codemode", client_session_timeout_seconds=60) as server:
        agent = Agent(
            name="scripted", model=model, mcp_servers=[server], mcp_config={"convert_schemas_to_strict": True}
        )
        await Runner.run(agent, "Follow the script.", max_turns=60)


asyncio.run(main())
