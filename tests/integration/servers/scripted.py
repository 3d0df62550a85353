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

from bare import note, progress, send, serve, text

folder = Path(sys.argv[1])
tools = folder / (sys.argv[2] if len(sys.argv) > 2 else "tools.json")
asked: dict[str, object] = {}


def call(params: dict, request: object) -> dict | None:
    arguments = params.get("arguments") or {}
    note(folder / "called", params["name"])
    match params["name"]:
        case "give":
            return json.loads((folder / arguments["name"]).read_text("utf-8"))
        case "relist":
            for _ in range(arguments.get("times", 1)):
                send(method="notifications/tools/list_changed")
        case "slow":
            for step in (1, 2):
                progress(params, step, f"step {step}", total=2)
        case "ask":
            schema: dict = {"type": "object", "properties": {"name": {"type": "string"}}}
            for _ in range(arguments.get("deep", 0)):
                schema = {"type": "object", "properties": {"a": schema}}
            asked[f"about {request}"] = request
            question = {"message": "Your name?", "requestedSchema": schema}
            send(id=f"about {request}", method="elicitation/create", params=question)
            return None
    return text(json.dumps(arguments))


def end(response: dict, question: str) -> None:
    send(id=asked.pop(question), result=text(json.dumps(response.get("result") or response["error"])))


answers = {
    "tools/list": lambda *_: {"tools": json.loads(tools.read_text("utf-8"))},
    "tools/call": call,
    "notifications/cancelled": lambda *_: note(folder / "called", "cancelled"),
    None: end,
}
serve("scripted", answers, capabilities={"tools": {"listChanged": True}})
