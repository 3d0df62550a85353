"""An upstream of bare JSON lines that writes down what reaches it: `counting.py LOG [flag ...]`.

LOG gets one line per event: `pid N`, `call NAME`, `end NAME`, `cancelled NAME`. `hold` answers only when `release`
is called with the same name, so that tests decide how long a call takes. Flags: `wait_for=FILE` answers nothing
before that file exists; `release=FILE` releases all held calls as soon as that file exists; `tool=NAME` adds a tool;
`junk` writes noise between its messages, `noise=TEXT` a line of that; `malformed` lists one tool that is none;
`stderr=TEXT` writes that there.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

log_file = sys.argv[1]
flags = dict(flag.partition("=")[::2] for flag in sys.argv[2:])
held: dict[object, str] = {}
progress_tokens: dict[object, object] = {}

NAMED = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
NOTHING = {"type": "object", "properties": {}}
TOOLS = [
    {"name": "count", "description": "Count this call.", "inputSchema": NAMED},
    {"name": "hold", "description": "Answer when released.", "inputSchema": NAMED},
    {
        "name": "peek",
        "description": "Hold, and change nothing.",
        "inputSchema": NAMED,
        "annotations": {"readOnlyHint": True},
    },
    {"name": "release", "description": "Let a held call end.", "inputSchema": NAMED},
    {"name": "advance", "description": "Make a held call tell its progress.", "inputSchema": NAMED},
    {"name": "refuse", "description": "Fail as a tool.", "inputSchema": NOTHING},
    {"name": "reject", "description": "Fail as a server.", "inputSchema": NOTHING},
    {"name": "die", "description": "End the process in mid-call.", "inputSchema": NOTHING},
    {"name": "environment", "description": "The variable SECRET.", "inputSchema": NOTHING},
]
if "tool" in flags:
    TOOLS.append({"name": flags["tool"], "description": "Another one.", "inputSchema": NOTHING})
if "malformed" in flags:
    TOOLS.insert(1, {"name": 7, "inputSchema": "none"})


def note(text: str) -> None:
    with open(log_file, "a", encoding="utf-8") as file:
        file.write(text + "\n")


def send(**message: object) -> None:
    if "junk" in flags:
        sys.stdout.buffer.write(b'Listening...\n\xff\xfe\x00\n{"half": \n[]\n42\n')
    if "noise" in flags:
        sys.stdout.buffer.write(flags["noise"].encode() + b"\n")
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    sys.stdout.buffer.flush()


def answer(request: object, text: str, **more: object) -> None:
    send(id=request, result={"content": [{"type": "text", "text": text}], **more})


def held_as(name: str) -> list[object]:
    return [request for request, holder in held.items() if holder == name]


def release(name: str) -> None:
    for each in held_as(name):
        del held[each]
        note(f"end {name}")
        answer(each, f"{name} is done")


def release_all() -> None:
    while not os.path.exists(flags["release"]):
        time.sleep(0.02)
    for name in set(held.values()):
        release(name)


def call(request: object, tool: str, arguments: dict[str, str], token: object) -> None:
    name = arguments.get("name", tool)
    note(f"call {name}")
    match tool:
        case "hold" | "peek":
            held[request] = name
            progress_tokens[request] = token
            return
        case "release":
            release(name)
        case "advance":
            for each in held_as(name):
                params = {"progressToken": progress_tokens[each], "progress": 1, "total": 2, "message": f"{name} half"}
                send(method="notifications/progress", params=params)
        case "refuse":
            answer(request, "the tool says no", isError=True)
            return
        case "reject":
            send(id=request, error={"code": -32001, "message": "the server says no"})
            return
        case "die":
            os._exit(1)
        case "environment":
            answer(request, "set" if os.environ.get("SECRET") else "not set")
            return
    answer(request, name)


def handle(message: dict) -> None:
    request, params = message.get("id"), message.get("params") or {}
    match message.get("method"):
        case "initialize":
            capabilities = {"tools": {}}
            server = {"name": "counting", "version": "1"}
            send(
                id=request,
                result={"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": server},
            )
        case "tools/list":
            send(id=request, result={"tools": TOOLS})
        case "tools/call":
            call(
                request, params["name"], params.get("arguments") or {}, (params.get("_meta") or {}).get("progressToken")
            )
        case "notifications/cancelled":
            if (name := held.pop(params["requestId"], None)) is not None:
                note(f"cancelled {name}")
        case _ if request is not None:
            send(id=request, error={"code": -32601, "message": "Method not found"})


note(f"pid {os.getpid()}")
if "stderr" in flags:
    print(flags["stderr"], file=sys.stderr, flush=True)
if "release" in flags:
    threading.Thread(target=release_all, daemon=True).start()
while "wait_for" in flags and not os.path.exists(flags["wait_for"]):
    time.sleep(0.02)
for line in sys.stdin:
    handle(json.loads(line))
