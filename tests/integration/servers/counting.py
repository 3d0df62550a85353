"""An upstream of bare JSON lines that writes down what reaches it: `counting.py LOG [flag ...]`.

LOG gets one line per event: `pid N`, `call NAME`, `end NAME`, `cancelled NAME`. `hold` answers only when `release`
is called with the same name, so that tests decide how long a call takes. Flags: `wait_for=FILE` answers nothing
before that file exists; `release=FILE` releases all held calls as soon as that file exists; `tool=NAME` adds a tool;
`junk` writes noise between its messages, `noise=TEXT` a line of that; `malformed` lists one tool that is none;
`stderr=TEXT` writes that there.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import bare
from bare import Refused, note, progress, send, serve, text

log_file = sys.argv[1]
flags = dict(flag.partition("=")[::2] for flag in sys.argv[2:])
held: dict[object, dict] = {}
"""Parameters of the calls that are held, by the ids of their requests."""

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
if "junk" in flags:
    bare.before += b'Listening...\n\xff\xfe\x00\n{"half": \n[]\n42\n'
if "noise" in flags:
    bare.before += flags["noise"].encode() + b"\n"


def name_of(params: dict) -> str:
    return (params.get("arguments") or {}).get("name", params["name"])


def held_as(name: str) -> list[object]:
    return [request for request, params in held.items() if name_of(params) == name]


def release(name: str) -> None:
    for each in held_as(name):
        del held[each]
        note(log_file, f"end {name}")
        send(id=each, result=text(f"{name} is done"))


def release_all() -> None:
    while not os.path.exists(flags["release"]):
        time.sleep(0.02)
    for name in {name_of(params) for params in held.values()}:
        release(name)


def call(params: dict, request: object) -> dict | None:
    name = name_of(params)
    note(log_file, f"call {name}")
    match params["name"]:
        case "hold" | "peek":
            held[request] = params
            return None
        case "release":
            release(name)
        case "advance":
            for each in held_as(name):
                progress(held[each], 1, f"{name} half", total=2)
        case "refuse":
            return text("the tool says no", isError=True)
        case "reject":
            raise Refused(-32001, "the server says no")
        case "die":
            os._exit(1)
        case "environment":
            return text("set" if os.environ.get("SECRET") else "not set")
    return text(name)


def cancel(params: dict, _: object) -> None:
    if (of_call := held.pop(params["requestId"], None)) is not None:
        note(log_file, f"cancelled {name_of(of_call)}")


note(log_file, f"pid {os.getpid()}")
if "stderr" in flags:
    print(flags["stderr"], file=sys.stderr, flush=True)
if "release" in flags:
    threading.Thread(target=release_all, daemon=True).start()
while "wait_for" in flags and not os.path.exists(flags["wait_for"]):
    time.sleep(0.02)
answers = {"tools/list": lambda *_: {"tools": TOOLS}, "tools/call": call, "notifications/cancelled": cancel}
serve("counting", answers)
