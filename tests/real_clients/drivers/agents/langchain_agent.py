"""An agent of LangChain with the adapter for MCP: `langchain_agent.py URL SERVER`."""

import asyncio
import json
import sys

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from langchain_openai import ChatOpenAI


async def main() -> None:
    url, entry = sys.argv[1], json.loads(sys.argv[2])
    client = MultiServerMCPClient({"codemode": {"transport": "stdio", **entry}})
    model = ChatOpenAI(model="scripted", base_url=f"{url}/v1", api_key="none")
    async with client.session("codemode") as session:
        agent = create_agent(model, await load_mcp_tools(session))
        await agent.ainvoke({"messages": [("user", "Follow the script.")]}, {"recursion_limit": 200})


asyncio.run(main())
