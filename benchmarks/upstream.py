"""An upstream server without dependencies, for all benchmarks: `upstream.py [--tools N] [--slow]`.

It has `echo`, `blob` (a result of so many bytes) and N tools more, which have schemas of a common size. With `--slow`,
it also has `read` and `write`, which answer after some milliseconds, many of them concurrently.
"""

import json
import sys

DOMAINS = (
    *("issue", "pull_request", "repository", "calendar_event", "invoice", "customer"),
    *("ticket", "deployment", "file", "message", "dashboard", "metric"),
)
VERBS = (
    *("create", "list", "get", "update", "delete", "search"),
    *("archive", "export", "assign", "comment", "watch", "merge"),
)
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
SIZE = {"type": "object", "properties": {"bytes": {"type": "integer", "minimum": 0}}, "required": ["bytes"]}
MS = {"type": "object", "properties": {"ms": {"type": "integer"}}, "required": ["ms"]}
SLOW = [
    {"name": "read", "description": "Wait.", "inputSchema": MS, "annotations": {"readOnlyHint": True}},
    {"name": "write", "description": "Wait, and change something.", "inputSchema": MS},
]
EXTRA = int(sys.argv[sys.argv.index("--tools") + 1]) if "--tools" in sys.argv else 0


def synthetic(number: int) -> dict:
    rest, domain = divmod(number, len(DOMAINS))
    copy, verb = divmod(rest, len(VERBS))
    noun, suffix = DOMAINS[domain], f"_{copy}" if copy else ""
    return {
        "name": f"{VERBS[verb]}_{noun}{suffix}",
        "description": f"{VERBS[verb].capitalize()} a {noun.replace('_', ' ')} in the workspace. Returns the affected "
        f"record together with pagination and audit metadata. Requires the workspace scope.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "workspace_id": {"type": "string", "description": "Workspace identifier (UUID)."},
                f"{noun}_id": {"type": "string", "description": f"Identifier of the {noun}."},
                "title": {"type": "string", "description": "Human readable title."},
                "state": {"type": "string", "enum": ["open", "closed", "all"], "default": "open"},
                "labels": {"type": "array", "items": {"type": "string"}, "description": "Labels to apply."},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "description": "Page size."},
            },
            "required": ["workspace_id"],
        },
        "outputSchema": {
            "type": "object",
            "properties": {"id": {"type": "string"}, "title": {"type": "string"}, "state": {"type": "string"}},
            "required": ["id"],
        },
    }


def tools() -> list[dict]:
    echo = {"name": "echo", "description": "Say it again.", "inputSchema": TEXT, "outputSchema": TEXT}
    blob = {"name": "blob", "description": "Return a text of so many bytes.", "inputSchema": SIZE, "outputSchema": TEXT}
    return [echo, blob, *map(synthetic, range(EXTRA)), *(SLOW if "--slow" in sys.argv else ())]


def call(name: str, arguments: dict) -> dict:
    if name == "fail":
        return {"content": [{"type": "text", "text": "on purpose"}], "isError": True}
    if name == "blob":
        value = {"text": "x" * arguments["bytes"]}
    elif name in ("echo", "read", "write"):
        value = {"text": arguments.get("text", "waited")}
    else:
        value = {"id": "1", "title": "a title", "state": "open"}
    # The text of a large result is not sent twice, so that its size is what was asked for.
    text = json.dumps(value) if len(value.get("text", "")) < 1000 else "see structuredContent"
    return {"content": [{"type": "text", "text": text}], "structuredContent": value}


def result(method: str, params: dict) -> dict | None:
    match method:
        case "initialize":
            info = {"name": "upstream", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": tools()}
        case "tools/call":
            return call(params["name"], params.get("arguments") or {})
        case "ping":
            return {}
    return None


def answer(message: dict) -> None:
    found = result(message["method"], message.get("params") or {})
    body = {"error": {"code": -32601, "message": "Method not found"}} if found is None else {"result": found}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}, separators=(",", ":")) + "\n")
    sys.stdout.flush()


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        ms = request.get("params", {}).get("arguments", {}).get("ms")
        if ms is None:
            answer(request)
        else:
            from threading import Timer  # only here, so that others start fast

            Timer(ms / 1000, answer, [request]).start()
