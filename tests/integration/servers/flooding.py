"""A server of bare JSON lines whose tool `flood` reports progress as fast as it can, and never answers."""

from __future__ import annotations

import json
import sys

SCHEMA = {"type": "object", "properties": {}}
TOOLS = [{"name": name, "inputSchema": SCHEMA} for name in ("flood", "echo")]


def send(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def flood(token: object) -> None:
    step = 0
    while True:
        step += 1
        params = {"progressToken": token, "progress": step, "message": f"step {step}"}
        send(method="notifications/progress", params=params)


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        request, params = message.get("id"), message.get("params") or {}
        match message.get("method"):
            case "initialize":
                server = {"name": "flooding", "version": "1"}
                result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server}
                send(id=request, result=result)
            case "tools/list":
                send(id=request, result={"tools": TOOLS})
            case "tools/call" if params["name"] == "flood":
                flood(params["_meta"]["progressToken"])
            case "tools/call":
                send(id=request, result={"content": [{"type": "text", "text": "echo"}]})
            case _ if request is not None:
                send(id=request, error={"code": -32601, "message": "no such method"})


main()
