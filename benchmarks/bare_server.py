"""A server of bare JSON lines that starts fast, for benchmarks with many of them: `bare_server.py [hang]`.

With `hang` it never says anything.
"""

import json
import sys

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def result(method: str, params: dict) -> dict | None:
    match method:
        case "initialize":
            info = {"name": "bare", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [{"name": "echo", "description": "Say it again.", "inputSchema": SCHEMA}]}
        case "tools/call":
            return {"content": [{"type": "text", "text": params["arguments"]["text"]}]}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "hang" in sys.argv:
        continue
    answer = result(message["method"], message.get("params") or {})
    body = {"error": {"code": -32601, "message": "Method not found"}} if answer is None else {"result": answer}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}), flush=True)
