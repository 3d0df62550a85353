"""A server that answers calls with tasks: `task_server.py FOLDER modern|legacy [PORT]`, over HTTP with a port.

Tasks are files in the folder, so they outlive the process. `requests.jsonl` has all requests so far. The argument
`script` of the tool `work` says how a task goes:

- `polls`: number of answers with the status `working`; with `until`, tasks work until a file of that name exists.
- `end`: `completed` (default), `tool_error`, `failed`, `cancelled`, or `plain` for a result without a task.
- `ask`: the task first asks for a name. `twice`: it asks again under another key. `refuse`: it forgets the task then.
- `create`, `state`: members that replace those of the created task and of each later state (null removes one).
- `lose`: the server ends at the first `tasks/get`. `forget`: it does not know the task.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event

FOLDER = Path(sys.argv[1])
MODERN = sys.argv[2] == "modern"
EXTENSION = "io.modelcontextprotocol/tasks"
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ANY = {"type": "object", "properties": {"script": {"type": "object"}, "label": {"type": "string"}}}
TOOLS = [
    {"name": "work", "inputSchema": ANY, **({} if MODERN else {"execution": {"taskSupport": "required"}})},
    {"name": "read", "inputSchema": ANY, "annotations": {"readOnlyHint": True, "idempotentHint": True}},
    {
        "name": "strict",
        "inputSchema": ANY,
        "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        **({} if MODERN else {"execution": {"taskSupport": "required"}}),
    },
]


class Refusal(Exception):
    def __init__(self, code: int, message: str, data: object = None) -> None:
        self.error = {"code": code, "message": message, **({} if data is None else {"data": data})}


def note(message: dict, headers: dict) -> None:
    with (FOLDER / "requests.jsonl").open("a") as file:
        file.write(json.dumps({"method": message.get("method"), "params": message.get("params"), "headers": headers}))
        file.write("\n")


def task_path(identity: str) -> Path:
    return FOLDER / f"{identity}.task"


def load(params: dict) -> dict:
    path = task_path(str(params.get("taskId")))
    if not path.exists():
        raise Refusal(-32602, "Failed to retrieve task: Task not found")
    return json.loads(path.read_text())


def save(task: dict) -> None:
    path = task_path(task["id"])
    part = path.with_suffix(".part")
    part.write_text(json.dumps(task))
    os.replace(part, path)


def capabilities(params: dict) -> dict:
    return params.get("_meta", {}).get("io.modelcontextprotocol/clientCapabilities", {})


def require_extension(params: dict) -> None:
    if MODERN and EXTENSION not in capabilities(params).get("extensions", {}):
        needed = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise Refusal(-32021, "Missing required client capability", needed)


def changed(task: dict, changes: dict) -> dict:
    return {key: value for key, value in {**task, **changes}.items() if value is not None or key in ("ttlMs", "ttl")}


def state_of(task: dict, status: str, **more: object) -> dict:
    now = datetime.now(UTC).isoformat()
    times = {"createdAt": now, "lastUpdatedAt": now}
    limits = {"ttlMs": 60_000, "pollIntervalMs": 100} if MODERN else {"ttl": 60_000, "pollInterval": 100}
    return {"taskId": task["id"], "status": status, **times, **limits, **more}


def outcome(task: dict) -> dict:
    name, script = task["name"], task["script"]
    said = {"label": task.get("label"), "answers": task["answers"]}
    result: dict = {"content": [{"type": "text", "text": json.dumps(said)}]}
    if name == "strict":
        result["structuredContent"] = {"n": script.get("n", 1)}
    if script.get("end") == "tool_error":
        result["isError"] = True
    return result


def call(params: dict) -> dict:
    arguments = params.get("arguments", {})
    script = arguments.get("script", {})
    if params["name"] == "read" and not MODERN:
        script = {"end": "plain"}
    task = {"id": secrets.token_hex(16), "name": params["name"], "script": script, "label": arguments.get("label")}
    task |= {"polls": 0, "answers": {}, "cancelled": False}
    if script.get("end") == "plain":
        return outcome(task)
    if not MODERN and "task" not in params:
        raise Refusal(-32601, "this tool needs a task")
    require_extension(params)
    if not script.get("forget"):
        save(task)
    created = changed(state_of(task, "working", statusMessage="begun"), script.get("create", {}))
    return {**created, "resultType": "task"} if MODERN else {"task": created}


def wants(task: dict) -> dict:
    """Return the questions that a task waits for."""
    script = task["script"]
    keys = ["first", "second"] if script.get("twice") else ["first"] if script.get("ask") else []
    for key in keys:
        if key not in task["answers"]:
            params = {"mode": "form", "message": f"Your {key} name?", "requestedSchema": FORM}
            return {key: {"method": "elicitation/create", "params": params}}
    return {}


def get(params: dict) -> dict:
    require_extension(params)
    task = load(params)
    script = task["script"]
    task["polls"] += 1
    save(task)
    if script.get("lose") and task["polls"] == 1:
        os._exit(3)
    polls = task["polls"]
    if task["cancelled"]:
        found = state_of(task, "cancelled", statusMessage="as you wish")
    elif questions := wants(task):
        found = state_of(task, "input_required", **({"inputRequests": questions} if MODERN else {}))
    elif polls <= script.get("polls", 0) or ("until" in script and not (FOLDER / script["until"]).exists()):
        found = state_of(task, "working", statusMessage=f"step {polls}")
    else:
        match script.get("end", "completed"):
            case "failed":
                error = {"code": -32603, "message": "API rate limit exceeded"}
                found = state_of(task, "failed", statusMessage="it failed", **({"error": error} if MODERN else {}))
            case "cancelled":
                found = state_of(task, "cancelled", statusMessage="the operator stopped it")
            case _:
                found = state_of(task, "completed", **({"result": outcome(task)} if MODERN else {}))
    return changed(found, script.get("state", {}))


def answer(message: dict, ask) -> dict:
    """Return the result of a request. `ask` sends a request to the client of a legacy server."""
    params = message.get("params") or {}
    match message["method"]:
        case "server/discover" if MODERN:
            own = {"tools": {}, "extensions": {EXTENSION: {}}}
            return {"supportedVersions": ["2026-07-28"], "capabilities": own, "ttlMs": 0, "cacheScope": "private"}
        case "initialize" if not MODERN:
            own = {"tools": {}, "tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}
            info = {"name": "tasks", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": own, "serverInfo": info}
        case "ping":
            return {}
        case "tools/list":
            return {"tools": TOOLS, **({"ttlMs": 0, "cacheScope": "private"} if MODERN else {})}
        case "tools/call":
            return call(params)
        case "resources/read":
            return {"resultType": "task", "taskId": "x", "status": "working"}
        case "tasks/get":
            return get(params)
        case "tasks/update" if MODERN:
            require_extension(params)
            task = load(params)
            if task["script"].get("refuse"):
                task_path(task["id"]).unlink()
                raise Refusal(-32602, "Task has expired")
            task["answers"].update(params["inputResponses"])
            save(task)
            return {}
        case "tasks/cancel":
            require_extension(params)
            task = load(params)
            task["cancelled"] = True
            save(task)
            return {} if MODERN else state_of(task, "cancelled")
        case "tasks/result" if not MODERN:
            task = load(params)
            while questions := wants(task):
                for key, question in questions.items():
                    task["answers"][key] = ask(question)
                save(task)
            if task["script"].get("end") == "failed":
                raise Refusal(-32603, "API rate limit exceeded")
            return {**outcome(task), "_meta": {"io.modelcontextprotocol/related-task": {"taskId": task["id"]}}}
    raise Refusal(-32601, "Method not found")


def reply(message: dict, ask) -> dict:
    try:
        result = answer(message, ask)
        if MODERN:
            result = {"resultType": "complete", **result}
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}
    except Refusal as refusal:
        return {"jsonrpc": "2.0", "id": message["id"], "error": refusal.error}


def serve_stdio() -> None:
    def write(message: dict) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    def ask(question: dict) -> object:
        write({"jsonrpc": "2.0", "id": "question", **question})
        for line in sys.stdin:
            message = json.loads(line)
            if message.get("id") == "question":
                return message.get("result", message.get("error"))
        raise Refusal(-32603, "gone")

    for line in sys.stdin:
        message = json.loads(line)
        note(message, {})
        if "id" in message and "method" in message:
            write(reply(message, ask))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        note(message, {key.lower(): value for key, value in self.headers.items()})
        if "id" not in message:
            self.respond(202, b"")
            return
        body = json.dumps(reply(message, lambda _: {"action": "decline"})).encode()
        self.respond(200, body)

    def do_GET(self) -> None:
        self.respond(405, b"")

    do_DELETE = do_GET  # noqa: N815 - the name that the base class looks for

    def respond(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


if len(sys.argv) > 3:
    with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[3])), Handler) as server:
        print("serving", flush=True)
        server.serve_forever()
        Event().wait()
else:
    serve_stdio()
