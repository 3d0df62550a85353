"""A client that runs `clean.js`, and asks you what the server asks it.

python client.py          # the questions come here
python client.py --mute   # a client that cannot ask: a person decides in another terminal
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import ElicitResult

HERE = Path(__file__).parent
CONFIG = str(HERE / "codemode-mcp.json")
SERVE = ["-m", "codemode_mcp", "serve", "--private", "--config", CONFIG, "--log-level", "error"]


async def ask(context: Any, params: Any) -> ElicitResult:
    print(params.message)
    decision = await asyncio.to_thread(input, "approve or deny? ")
    return ElicitResult(action="accept", content={"decision": decision.strip()})


async def main(mute: bool) -> None:
    command = StdioServerParameters(command=sys.executable, args=SERVE, env=dict(os.environ))
    async with Client(command, elicitation_callback=None if mute else ask) as client:
        answer = await client.call_tool("exec", {"code": (HERE / "clean.js").read_text("utf-8")})
        told = False
        while True:
            result: dict[str, Any] = answer.structured_content or {}
            waits = result["status"] == "waiting"
            if not (told and waits) or result.get("output"):
                for block in answer.content:
                    print(getattr(block, "text", block), flush=True)
            told = waits
            if not waits:
                break
            answer = await client.call_tool("wait", {"runId": result["runId"]})


if __name__ == "__main__":
    asyncio.run(main("--mute" in sys.argv))
