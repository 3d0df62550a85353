"""One server of the tasks on standard streams: `serve.py NAME STATE`. It needs nothing but Python.

After each call of a tool that writes, the tables are written to the file STATE, from which a task's end is checked.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

# In place of the folder of this file, whose modules have names of the standard library.
sys.path[0] = str(Path(__file__).resolve().parents[3])

from benchmarks.agents.worlds import WORLDS  # noqa: E402 - found by the line above
from benchmarks.agents.worlds.base import ToolError, World  # noqa: E402


def text_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def save(world: World, state: Path) -> None:
    """Write the tables in one step, so that a reader never sees half of them."""
    part = state.with_suffix(".part")
    part.write_text(text_of(world.tables), "utf-8")
    os.replace(part, state)


def answer(world: World, state: Path, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return the result of a request, or None for a method that this server does not have."""
    match method:
        case "initialize":
            info = {"name": world.name, "version": "1"}
            return {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": info,
                "instructions": world.instructions,
            }
        case "tools/list":
            return {"tools": [each.listed(world.structured) for each in world.tools().values()]}
        case "tools/call":
            try:
                value = world.call(params["name"], params.get("arguments") or {})
            except ToolError as error:
                return {"content": [{"type": "text", "text": str(error)}], "isError": True}
            if world.tools()[params["name"]].writes:
                save(world, state)
            result: dict[str, Any] = {"content": [{"type": "text", "text": text_of(value)}]}
            return {**result, "structuredContent": value} if world.structured else result
        case "ping":
            return {}
    return None


def main() -> None:
    world, state = WORLDS[sys.argv[1]](), Path(sys.argv[2])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(world, state, message["method"], message.get("params") or {})
        body = {"error": {"code": -32601, "message": "Method not found"}} if result is None else {"result": result}
        sys.stdout.write(text_of({"jsonrpc": "2.0", "id": message["id"], **body}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
