"""One office as an MCP server over stdio, in nothing but standard Python, so that a dozen of them start fast.

python office.py NAME ROOMS [--closed]
"""

from __future__ import annotations

import json
import sys
from typing import Any

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}


def tool(name: str, description: str, takes: dict[str, Any], gives: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": takes, "required": [*takes]},
        "outputSchema": {"type": "object", "properties": gives, "required": [*gives]},
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }


TOOLS = [
    tool("free_rooms", "Meeting rooms that are free at an hour.", {"hour": NUMBER}, {"city": TEXT, "rooms": NUMBER}),
    tool("opening_hours", "When the office opens and closes.", {}, {"opens": NUMBER, "closes": NUMBER}),
    tool("find_person", "The desk of a person.", {"name": TEXT}, {"name": TEXT, "desk": TEXT}),
]


def answer(method: str, params: dict[str, Any], city: str, rooms: int) -> dict[str, Any] | None:
    if method == "initialize":
        about = {"name": city, "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method != "tools/call":
        return {} if method == "ping" else None
    given = params.get("arguments", {})
    if params["name"] == "free_rooms":
        found: dict[str, Any] = {"city": city, "rooms": max(0, rooms - abs(given["hour"] - 7))}
    elif params["name"] == "opening_hours":
        found = {"opens": 8, "closes": 18}
    else:
        found = {"name": given["name"], "desk": f"{city} {len(given['name'])}"}
    return {"content": [{"type": "text", "text": json.dumps(found)}], "structuredContent": found}


if __name__ == "__main__":
    _, city, rooms, *flags = sys.argv
    if flags == ["--closed"]:
        sys.exit(f"the office in {city} is closed")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = answer(message["method"], message.get("params", {}), city, int(rooms))
            said = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
