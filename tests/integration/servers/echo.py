"""An upstream of bare JSON lines that shows what travels: `echo.py FOLDER`.

`echo` and `send_to` answer with the exact text of the request that reached them; `give` answers with the content of
FOLDER/`name` as it is, in the place of `structuredContent`, valid JSON or not. The resource `file:///NAME` has the
content of FOLDER/`NAME` as its text, and in its `_meta`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

folder = Path(sys.argv[1])

TOOLS = [
    {"name": "echo", "description": "The request as it came.", "inputSchema": {"type": "object"}},
    {
        "name": "give",
        "description": "The JSON of a file, unread.",
        "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    },
    {
        "name": "send_to",
        "description": "Sends to a chat.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "chat_id": {"type": "integer"},
                "title": {"type": "string"},
                "at": {"type": "number"},
                "others": {"type": "array", "items": {"type": "integer"}},
            },
            "required": ["chat_id"],
        },
    },
]


def send(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass") + b"\n")
    sys.stdout.buffer.flush()


def answer(request: object, result: object) -> None:
    send(json.dumps({"jsonrpc": "2.0", "id": request, "result": result}))


for line in sys.stdin.buffer:
    text = line.decode("utf-8").rstrip("\r\n")
    message = json.loads(text)
    request, params = message.get("id"), message.get("params") or {}
    match message.get("method"):
        case "initialize":
            server = {"name": "echo", "version": "1"}
            capabilities = {"tools": {}, "resources": {}}
            answer(request, {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": server})
        case "resources/list":
            answer(request, {"resources": [{"uri": "file:///given", "name": "given"}]})
        case "resources/read":
            given = (folder / params["uri"].rpartition("/")[2]).read_bytes().decode("utf-8")
            contents = '{"uri":"file:///given","text":' + json.dumps(given) + ',"_meta":{"size":' + given + "}}"
            send('{"jsonrpc":"2.0","id":' + json.dumps(request) + ',"result":{"contents":[' + contents + "]}}")
        case "tools/list":
            answer(request, {"tools": TOOLS})
        case "tools/call" if params["name"] != "give":
            answer(request, {"content": [{"type": "text", "text": text}]})
        case "tools/call":
            given = (folder / params["arguments"]["name"]).read_bytes().decode("utf-8")
            head = '{"jsonrpc":"2.0","id":' + json.dumps(request)
            send(head + ',"result":{"content":[],"structuredContent":' + given + "}}")
        case _ if request is not None:
            error = {"code": -32601, "message": "Method not found"}
            send(json.dumps({"jsonrpc": "2.0", "id": request, "error": error}))
