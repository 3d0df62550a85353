"""An upstream of bare JSON lines whose prompts, templates and resources are a file: `items.py FOLDER`.

FOLDER/items.json has the lists `prompts`, `resourceTemplates` and `resources`. It is read each time; a list that is
missing is never answered, and a text in place of a list is the message of an error. `parts` are further URIs in the
answer to each read. The tool `announce` says that all
of them have changed. The method of each request about an item becomes a line of FOLDER/called.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

folder = Path(sys.argv[1])
LISTS = {
    "prompts/list": "prompts",
    "resources/templates/list": "resourceTemplates",
    "resources/list": "resources",
}


def send(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def note(word: str) -> None:
    with (folder / "called").open("a", encoding="utf-8") as called:
        called.write(word + "\n")


for line in sys.stdin:
    message = json.loads(line)
    request, params = message.get("id"), message.get("params") or {}
    match message.get("method"):
        case "initialize":
            capabilities: dict = {"tools": {}, "prompts": {}, "resources": {"subscribe": True}, "completions": {}}
            server = {"name": "items", "version": "1"}
            send(
                id=request,
                result={"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": server},
            )
        case "tools/list":
            send(id=request, result={"tools": [{"name": "announce", "inputSchema": {"type": "object"}}]})
        case "tools/call":
            send(method="notifications/prompts/list_changed")
            send(method="notifications/resources/list_changed")
            send(id=request, result={"content": []})
        case "prompts/list" | "resources/templates/list" | "resources/list" as method:
            items = json.loads((folder / "items.json").read_text("utf-8"))
            found = items.get(LISTS[method])
            if isinstance(found, str):
                send(id=request, error={"code": -32000, "message": found})
            elif found is not None:
                send(id=request, result={LISTS[method]: found})
        case "prompts/get":
            note("get")
            send(id=request, result={"description": f"prompt {params['name']}", "messages": []})
        case "resources/read":
            note("read")
            contents = [{"uri": params["uri"], "text": f"text of {params['uri']}"}]
            parts = json.loads((folder / "items.json").read_text("utf-8")).get("parts", ())
            send(id=request, result={"contents": contents + [{"uri": uri, "text": "a part"} for uri in parts]})
        case "resources/subscribe":
            note("subscribe")
            send(id=request, result={})
        case "completion/complete":
            note("complete")
            send(id=request, result={"completion": {"values": ["a"]}})
        case _ if request is not None:
            send(id=request, error={"code": -32601, "message": "Method not found"})
