"""An upstream of bare JSON lines with resources that change: `watched.py FOLDER`.

It lists `note:///a` and `note:///b`. The tool `touch` reports an update of a resource to a client that has subscribed.
Each request about a subscription becomes a line of FOLDER/asked.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

folder = Path(sys.argv[1])
subscribed: set[str] = set()
TOUCH = {"name": "touch", "inputSchema": {"type": "object", "properties": {"uri": {"type": "string"}}}}


def send(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


for line in sys.stdin:
    message = json.loads(line)
    request, params = message.get("id"), message.get("params") or {}
    result: dict = {}
    match message.get("method"):
        case "initialize":
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}, "resources": {"subscribe": True}},
                "serverInfo": {"name": "watched", "version": "1"},
            }
        case "tools/list":
            result = {"tools": [TOUCH]}
        case "resources/list":
            result = {"resources": [{"uri": f"note:///{name}", "name": name} for name in "ab"]}
        case "resources/templates/list":
            result = {"resourceTemplates": []}
        case "resources/read":
            result = {"contents": [{"uri": params["uri"], "text": "x"}]}
        case "resources/subscribe" | "resources/unsubscribe" as method:
            with (folder / "asked").open("a", encoding="utf-8") as asked:
                asked.write(f"{method.removeprefix('resources/')} {params['uri']}\n")
            (subscribed.add if method.endswith("/subscribe") else subscribed.discard)(params["uri"])
        case "tools/call":
            if params["arguments"]["uri"] in subscribed:
                send(method="notifications/resources/updated", params={"uri": params["arguments"]["uri"]})
            result = {"content": []}
    if request is not None:
        send(id=request, result=result)
