"""An upstream with large answers: `bulky.py LOG`. `get` answers with `bytes` characters; LOG gets one line per call."""

from __future__ import annotations

import json
import sys

log_file = sys.argv[1]
SCHEMA = {"type": "object", "properties": {"bytes": {"type": "integer"}}, "required": ["bytes"]}


def answer(message: dict) -> dict:
    params = message.get("params") or {}
    match message["method"]:
        case "initialize":
            server = {"name": "bulky", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server}
        case "tools/list":
            return {"tools": [{"name": "get", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}]}
        case _:
            with open(log_file, "a", encoding="utf-8") as file:
                file.write("call\n")
            return {"content": [{"type": "text", "text": "x" * params["arguments"]["bytes"]}]}


for line in sys.stdin:
    received = json.loads(line)
    if "id" in received:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": received["id"], "result": answer(received)}) + "\n")
        sys.stdout.flush()
