"""A client that runs `report.js` and shows every answer, and the progress in between.

python client.py            # to the end
python client.py --cancel   # gives it up after the first answer
python client.py --restart  # ends the server after the first answer, and resumes with another one
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

HERE = Path(__file__).parent
CONFIG = str(HERE / "codemode-mcp.json")
SERVE = ["-m", "codemode_mcp", "serve", "--private", "--config", CONFIG, "--log-level", "error"]


async def on_progress(progress: float, total: float | None, message: str | None) -> None:
    print(f"  progress: {message}", flush=True)


async def main(cancel: bool, restart: bool) -> None:
    command = StdioServerParameters(command=sys.executable, args=SERVE, env=dict(os.environ))
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(command))

        async def call(tool: str, **arguments: Any) -> dict[str, Any]:
            print(f"→ {tool}")
            answer = await client.call_tool(tool, arguments, progress_callback=on_progress)
            result: dict[str, Any] = answer.structured_content or {}
            for item in result.get("output", []):
                print(f"  text: {item['text']}")
            print(f"← {result['status']}: {result.get('reason', result.get('error', result.get('value')))}")
            return result

        result = await call("exec", code=(HERE / "report.js").read_text("utf-8"))
        if restart:
            await stack.aclose()
            print("  the server has ended; another one begins")
            client = await stack.enter_async_context(Client(command))
        while result["status"] == "waiting":
            give_up = {"cancel": True} if cancel else {}
            result = await call("wait", runId=result["runId"], **give_up)


if __name__ == "__main__":
    asyncio.run(main("--cancel" in sys.argv, "--restart" in sys.argv))
