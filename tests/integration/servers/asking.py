"""An upstream of bare JSON lines that asks in the course of its calls: `asking.py modern|legacy`.

`name` asks for a form, `consent` for a URL to be opened, `think` for the client's model, `folders` for its roots.
A modern one puts its questions into `input_required` results, a legacy one sends them as requests.
"""

from __future__ import annotations

import json
import sys

from bare import send, serve, text

MODERN = sys.argv[1] == "modern"
CAPABILITIES = {"tools": {"listChanged": False}}
PRIVATE = {"ttlMs": 0, "cacheScope": "private"} if MODERN else {}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ARGUMENTS = {"type": "object", "properties": {"label": {"type": "string"}}}
TOOLS = [
    {"name": name, "description": f"Ask for {name}.", "inputSchema": ARGUMENTS}
    for name in ("name", "consent", "think", "folders")
]

asked: dict[str, tuple[object, str]] = {}
"""The call and the label of each question that a legacy server has sent, by the id of the question."""


def complete(result: dict) -> dict:
    """Return a result with what those of its era have."""
    about = {"io.modelcontextprotocol/serverInfo": {"name": "asking", "version": "1"}}
    return {"resultType": "complete", **result, "_meta": about} if MODERN else result


def question(tool: str, label: str) -> dict:
    match tool:
        case "name":
            params = {"mode": "form", "message": f"Your name for {label}?", "requestedSchema": FORM}
            return {"method": "elicitation/create", "params": params}
        case "consent":
            params = {"mode": "url", "message": f"Open this for {label}", "url": "https://example.com/consent"}
            return {"method": "elicitation/create", "params": params | ({} if MODERN else {"elicitationId": label})}
        case "think":
            messages = [{"role": "user", "content": {"type": "text", "text": label}}]
            return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 50}}
    return {"method": "roots/list"}


def call(params: dict, request: object) -> dict | None:
    label = params.get("arguments", {}).get("label", "you")
    if not MODERN:
        identity = f"about {request}"
        asked[identity] = request, label
        send(id=identity, **question(params["name"], label))
        return None
    if "inputResponses" in params:
        assert params["requestState"] == f"state of {label}"
        return told(label, params["inputResponses"]["it"])
    requests = {"it": question(params["name"], label)}
    return complete({"resultType": "input_required", "inputRequests": requests, "requestState": f"state of {label}"})


def told(label: str, said: object) -> dict:
    return complete(text(json.dumps({"label": label, "said": said})))


def end(response: dict, identity: str) -> None:
    request, label = asked.pop(identity)
    if "error" in response:
        send(id=request, error=response["error"])
    else:
        send(id=request, result=told(label, response["result"]))


answers: dict = {
    "tools/list": lambda *_: complete({"tools": TOOLS, **PRIVATE}),
    "tools/call": call,
    None: end,
}
if MODERN:
    discovered = {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES, **PRIVATE}
    answers |= {"server/discover": lambda *_: complete(discovered), "initialize": None}
serve("asking", answers, capabilities=CAPABILITIES, version="2025-11-25")
