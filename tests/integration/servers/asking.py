"""An upstream of bare JSON lines that asks in the course of its calls: `asking.py modern|legacy`.

`name` asks for a form, `consent` for a URL to be opened, `think` for the client's model, `folders` for its roots.
A modern one puts its questions into `input_required` results, a legacy one sends them as requests.
"""

from __future__ import annotations

import json
import sys

MODERN = sys.argv[1] == "modern"
CAPABILITIES = {"tools": {"listChanged": False}}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ARGUMENTS = {"type": "object", "properties": {"label": {"type": "string"}}}
TOOLS = [
    {"name": name, "description": f"Ask for {name}.", "inputSchema": ARGUMENTS}
    for name in ("name", "consent", "think", "folders")
]

asked: dict[str, tuple[object, str]] = {}
"""The call and the label of each question that a legacy server has sent, by the id of the question."""


def send(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(request: object, result: dict) -> None:
    if MODERN:
        about = {"io.modelcontextprotocol/serverInfo": {"name": "asking", "version": "1"}}
        result = {"resultType": "complete", **result, "_meta": about}
    send(id=request, result=result)


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


def call(request: object, params: dict) -> None:
    label = params.get("arguments", {}).get("label", "you")
    if not MODERN:
        identity = f"about {request}"
        asked[identity] = request, label
        send(id=identity, **question(params["name"], label))
    elif "inputResponses" in params:
        assert params["requestState"] == f"state of {label}"
        end(request, label, params["inputResponses"]["it"])
    else:
        requests = {"it": question(params["name"], label)}
        state = f"state of {label}"
        answer(request, {"resultType": "input_required", "inputRequests": requests, "requestState": state})


def end(request: object, label: str, said: object) -> None:
    answer(request, {"content": [{"type": "text", "text": json.dumps({"label": label, "said": said})}]})


for line in sys.stdin:
    message = json.loads(line)
    request = message.get("id")
    match message.get("method"):
        case "server/discover" if MODERN:
            found = {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
            answer(request, {**found, "ttlMs": 0, "cacheScope": "private"})
        case "initialize" if not MODERN:
            server = {"name": "asking", "version": "1"}
            answer(request, {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": server})
        case "tools/list":
            answer(request, {"tools": TOOLS, **({"ttlMs": 0, "cacheScope": "private"} if MODERN else {})})
        case "tools/call":
            call(request, message["params"])
        case None:
            request, label = asked.pop(request)
            if "error" in message:
                send(id=request, error=message["error"])
            else:
                end(request, label, message["result"])
        case _ if request is not None:
            send(id=request, error={"code": -32601, "message": "Method not found"})
