"""An upstream of bare JSON lines that records what it is sent: `recording.py FOLDER`.

FOLDER/tools.json has the list for `tools/list`. Each call becomes a line of FOLDER/received, as JSON with the name of
the tool and its arguments, and is answered with "done". `fail` answers with an error that quotes its argument `key`.
`repeat` quotes the last such argument in its progress, its log and its result.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

folder = Path(sys.argv[1])
key = ""


def send(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


for line in sys.stdin:
    message = json.loads(line)
    request, params = message.get("id"), message.get("params") or {}
    match message.get("method"):
        case "initialize":
            server = {"name": "recording", "version": "1"}
            send(
                id=request,
                result={"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server},
            )
        case "tools/list":
            send(id=request, result={"tools": json.loads((folder / "tools.json").read_text("utf-8"))})
        case "tools/call":
            arguments = params.get("arguments") or {}
            with (folder / "received").open("a", encoding="utf-8") as received:
                received.write(json.dumps([params["name"], arguments]) + "\n")
            key = arguments.get("key", key)
            if params["name"] == "repeat":
                token = (params.get("_meta") or {}).get("progressToken")
                progress = {"progressToken": token, "progress": 1, "message": f"using {key}"}
                send(method="notifications/progress", params=progress)
                send(method="notifications/message", params={"level": "warning", "data": f"logged {key}"})
                content = [{"type": "text", "text": f"repeated {key}"}]
                send(id=request, result={"content": content, "structuredContent": {key: "x"}})
            elif params["name"] == "fail":
                send(id=request, error={"code": -32000, "message": f"the key {arguments['key']} was refused"})
            else:
                send(id=request, result={"content": [{"type": "text", "text": "done"}]})
        case _ if request is not None:
            send(id=request, error={"code": -32601, "message": "Method not found"})
