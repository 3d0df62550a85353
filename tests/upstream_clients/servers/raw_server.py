"""A legacy server of bare JSON lines that misbehaves as its flags say, e.g. `raw_server.py junk stubborn`.

Further arguments of a flag follow an equals sign: `pid=/tmp/file`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

flags = dict(flag.partition("=")[::2] for flag in sys.argv[1:])
tools = [
    {"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "die", "invalid", "grow", "ask", "hang")
]
tools.append(
    {
        "name": "wrong_structure",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object", "properties": {"count": {"type": "integer"}}},
    }
)
capabilities = {"tools": {}, "resources": {}}
if "items" in flags:
    capabilities["prompts"] = {}
if "announced" in flags:
    capabilities["resources"] = {"listChanged": True, "subscribe": True}
if "tools" in flags:
    with open(flags["tools"]) as file:
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in file.read().split()]
ITEM_LISTS = {"prompts/list": ("prompts", "name"), "resources/templates/list": ("resourceTemplates", "uriTemplate")}
items = {"prompts/list": ["greet"], "resources/templates/list": ["note:///{name}"]}
resources = [{"uri": "a://b", "name": "b"}]
hints = {"ttlMs": 60_000, "cacheScope": "public"} if "hints" in flags else {}
if "logging" in flags:
    capabilities["logging"] = {}
levels = []
whole = {}
if "lists" in flags:
    with open(flags["lists"]) as file:
        whole = json.load(file)
LIST_KEYS = {"tools/list": "tools", "resources/list": "resources", **{key: of[0] for key, of in ITEM_LISTS.items()}}
waiting = []
subscribed = []
cancelled = []
listings = []


def send(**message) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def junk() -> None:
    if "junk" in flags:
        sys.stdout.buffer.write(b'Starting server...\n\xff\xfe\x00 binary\n{"half": \n[]\n42\n\n')
        sys.stdout.flush()


def list_page(params) -> dict:
    if "endless" in flags:
        number = int(params.get("cursor", 0))
        return {"tools": [{"name": f"tool_{number}"}], "nextCursor": str(number + 1)}
    if "same_cursor" in flags:
        return {"tools": tools, "nextCursor": "again"}
    if "malformed" in flags:
        return {"tools": [tools[0], {"name": 7}, "nonsense", {"name": "late", "description": 3}, tools[0]]}
    if "paged" in flags:
        start = int(params.get("cursor", 0))
        page = {"tools": tools[start : start + 2]}
        return {**page, "nextCursor": str(start + 2)} if start + 2 < len(tools) else page
    return {"tools": tools}


def list_items(request_id, method, params) -> None:
    """Answer `prompts/list` or `resources/templates/list` as the flags say."""
    key, identifier = ITEM_LISTS[method]
    listings.append(method)
    if "items_silent" in flags:
        waiting.append(request_id)
    elif "items_fail" in flags and not os.path.exists(flags["items_fail"]):
        send(id=request_id, error={"code": -32603, "message": "the disk is full"})
    elif "items_malformed" in flags:
        listed = [
            {identifier: "a", "description": 3, "_meta": {"key": "x"}, "icons": []},
            "nonsense",
            {identifier: ""},
        ]
        listed += [{identifier: "a"}, {identifier: "x" * 5000}, {identifier: "b", "arguments": [{"name": "q"}, {}]}]
        send(id=request_id, result={key: listed})
    elif "items_endless" in flags:
        number = int(params.get("cursor", 0))
        send(id=request_id, result={key: [{identifier: f"item_{number}"}], "nextCursor": str(number + 1)})
    elif "items_paged" in flags and "cursor" not in params:
        send(id=request_id, result={key: [{identifier: "first"}], "nextCursor": "2"})
    else:
        send(id=request_id, result={key: [{identifier: each} for each in items[method]]})


def call(request_id, name, arguments) -> None:
    if "lost" in flags and not os.path.exists(flags["lost"]):
        with open(flags["lost"], "a") as file:
            file.write("lost\n")
        send(id=request_id, error={"code": -32001, "message": "Session not found"})
        return
    result = {"content": [{"type": "text", "text": str(arguments.get("text", "done"))}]}
    match name:
        case "die":
            print("fatal: out of cheese", file=sys.stderr, flush=True)
            os._exit(1)
        case "hang":
            return
        case "invalid":
            send(id=request_id, result=None)
            return
        case "mismatch":
            tools.append({"name": f"replaced_{len(tools)}", "inputSchema": {"type": "object"}})
            send(id=request_id, error={"code": -32020, "message": "header mismatch"})
            return
        case "grow":
            tools.append({"name": f"grown_{len(tools)}", "inputSchema": {"type": "object"}})
            send(method="notifications/tools/list_changed")
        case "grow_prompts":
            items["prompts/list"].append(f"grown_{len(items['prompts/list'])}")
            send(method="notifications/prompts/list_changed")
        case "grow_silently":
            items["prompts/list"].append("silent")
            items["resources/templates/list"].append("silent:///{x}")
        case "grow_templates":
            items["resources/templates/list"].append(f"grown:///{len(items['resources/templates/list'])}/{{x}}")
            send(method="notifications/resources/list_changed")
        case "touch" if arguments["uri"] in subscribed or "always" in arguments:
            send(method="notifications/resources/updated", params={"uri": arguments["uri"]})
        case "log":
            send(method="notifications/message", params=arguments)
        case "levels":
            result["content"][0]["text"] = json.dumps(levels)
        case "subscribed":
            result["content"][0]["text"] = json.dumps(subscribed)
        case "grow_resources":
            resources.append({"uri": f"grown://{len(resources)}", "name": "grown"})
            if "announced" in flags:
                send(method="notifications/resources/list_changed")
        case "ask":
            result = {"resultType": "input_required", "inputRequests": {"a": {"method": "elicitation/create"}}}
        case "wrong_structure":
            result["structuredContent"] = {"count": "many"}
        case "cancelled":
            result["content"][0]["text"] = json.dumps(cancelled)
        case "listings":
            result["content"][0]["text"] = str(listings.count(arguments.get("method", "tools/list")))
        case "environment":
            result["content"][0]["text"] = json.dumps(dict(os.environ))
    send(id=request_id, result=result)


def answer(message) -> None:
    request_id, params = message.get("id"), message.get("params") or {}
    match message.get("method"):
        case "notifications/cancelled":
            cancelled.append(params["requestId"])
        case "server/discover" if "modern" in flags:
            result = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "instructions": "Be gentle."}
            meta = {"io.modelcontextprotocol/serverInfo": whole.get("info")}
            send(id=request_id, result={**result, "resultType": "complete", "_meta": meta})
        case "server/discover":
            if "probe_silent" not in flags:
                send(id=request_id, error={"code": -32601, "message": "Method not found"})
        case "initialize":
            if "silent" in flags:
                return
            send(
                id=request_id,
                result={
                    "protocolVersion": flags.get("version", "2025-06-18"),
                    "capabilities": {} if "no_tools" in flags else capabilities,
                    "serverInfo": whole.get("info", {"name": "raw", "version": "0.1"}),
                },
            )
            junk()
        case "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" as method if whole:
            send(id=request_id, result={LIST_KEYS[method]: whole[method]})
        case "tools/list":
            listings.append("tools/list")
            if "no_tools" in flags:
                send(id=request_id, error={"code": -32601, "message": "Method not found"})
            else:
                send(id=request_id, result=list_page(params))
        case "tools/call":
            call(request_id, params["name"], params.get("arguments") or {})
            junk()
        case "prompts/list" | "resources/templates/list" if "items" in flags:
            list_items(request_id, message["method"], params)
        case "prompts/get" if "items" in flags:
            send(id=request_id, result={"messages": [], "description": params["name"]})
        case "resources/read" if params.get("uri") == "gone:":
            send(id=request_id, error={"code": -32002, "message": "Resource not found", "data": {"uri": "gone:"}})
        case "resources/read" if "items" in flags:
            token = params.get("_meta", {}).get("progressToken")
            if token is not None:
                send(method="notifications/progress", params={"progressToken": token, "progress": 1, "total": 2})
            send(id=request_id, result={"contents": [{"uri": params["uri"], "text": "read"}], **hints})
        case "logging/setLevel":
            levels.append(params["level"])
            send(id=request_id, result={})
        case "resources/subscribe" if "refuses" in flags:
            send(id=request_id, error={"code": -32002, "message": "no such resource"})
        case "resources/subscribe":
            subscribed.append(params["uri"])
            send(id=request_id, result={})
        case "resources/unsubscribe":
            subscribed.remove(params["uri"])
            send(id=request_id, result={})
        case "resources/list":
            listings.append("resources/list")
            if "resources_fail" in flags:
                send(id=request_id, error={"code": -32603, "message": "the disk is full"})
                return
            send(id=request_id, result={"resources": resources, **hints})
        case _ if request_id is not None:
            send(id=request_id, error={"code": -32601, "message": "Method not found"})


if "exit" in flags:
    print(f"cannot start: bad token {os.environ.get('TOKEN')}", file=sys.stderr)
    sys.exit(3)
if "pid" in flags:
    with open(flags["pid"], "a") as file:
        print(os.getpid(), file=file)
if "missing" in flags and not os.path.exists(flags["missing"]):
    print("the disk is not there yet", file=sys.stderr)
    sys.exit(4)
if "stubborn" in flags:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
junk()
for line in sys.stdin:
    answer(json.loads(line))
while "stubborn" in flags:
    time.sleep(60)
