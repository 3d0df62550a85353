"""An upstream of bare JSON lines whose tools are a file: `scripted.py FOLDER [tools.json]`.

The file holds the list for `tools/list` and is read each time. `give` answers with the content of FOLDER/`name` as its
whole result, `relist` says `times` times that the list has changed, `slow` tells its progress in two steps, `ask` asks
for a name and answers with what it is told. The name of every tool that is called becomes a line of FOLDER/called, and
"cancelled" where a call was.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

folder = Path(sys.argv[1])
tools = folder / (sys.argv[2] if len(sys.argv) > 2 else "tools.json")

asked: dict[str, object] = {}


def send(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(word: str) -> None:
    with (folder / "called").open("a", encoding="utf-8") as called:
        called.write(word + "\n")


def call(request: object, name: str, arguments: dict, token: object) -> None:
    note(name)
    result: dict = {"content": [{"type": "text", "text": json.dumps(arguments)}]}
    match name:
        case "give":
            result = json.loads((folder / arguments["name"]).read_text("utf-8"))
        case "relist":
            for _ in range(arguments.get("times", 1)):
                send(method="notifications/tools/list_changed")
        case "slow" if token is not None:
            for step in (1, 2):
                params = {"progressToken": token, "progress": step, "total": 2, "message": f"step {step}"}
                send(method="notifications/progress", params=params)
        case "ask":
            schema: dict = {"type": "object", "properties": {"name": {"type": "string"}}}
            for _ in range(arguments.get("deep", 0)):
                schema = {"type": "object", "properties": {"a": schema}}
            asked[f"about {request}"] = request
            params = {"message": "Your name?", "requestedSchema": schema}
            send(id=f"about {request}", method="elicitation/create", params=params)
            return
    send(id=request, result=result)


for line in sys.stdin:
    message = json.loads(line)
    request, params = message.get("id"), message.get("params") or {}
    match message.get("method"):
        case "initialize":
            capabilities = {"tools": {"listChanged": True}}
            server = {"name": "scripted", "version": "1"}
            send(
                id=request,
                result={"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": server},
            )
        case "tools/list":
            send(id=request, result={"tools": json.loads(tools.read_text("utf-8"))})
        case "tools/call":
            call(
                request, params["name"], params.get("arguments") or {}, (params.get("_meta") or {}).get("progressToken")
            )
        case "notifications/cancelled":
            note("cancelled")
        case None if request in asked:
            said = json.dumps(message.get("result") or message["error"])
            send(id=asked.pop(request), result={"content": [{"type": "text", "text": said}]})
        case _ if request is not None:
            send(id=request, error={"code": -32601, "message": "Method not found"})
