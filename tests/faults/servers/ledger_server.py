"""A stdio server of bare JSON lines that acts once for each call: `ledger_server.py LEDGER NAME [FLAG ...]`.

Run it with `python -S -E`. `append` must not be repeated, `put` is idempotent, and `read` only reads. A call is in the
ledger when its request is read. Its answer comes after `ms`, with a text of `size` if that is given, and as `how` says:

`now`; `never`; `twice`; `wrong_id` (an unknown id, then the right one); `strangers` (only such); `junk` (noise round
the answer); `changed` (a storm of list_changed before it); `cancelled` (after the call was cancelled, not before);
`torn` (half a line, then the end); `die` (acts, then ends); `refuse` (ends, not acting); `flood` (endless progress).

Flags: `exit` ends immediately, `exit_after_hello` once it has been asked for its tools, and `unless=FILE` neither of
them while that file exists.
"""

from __future__ import annotations

import heapq
import json
import os
import select
import sys
import time
from typing import Any

from ledger import SCHEMA, Ledger

TOOLS: dict[str, dict[str, bool]] = {
    "append": {"readOnlyHint": False, "idempotentHint": False},
    "put": {"readOnlyHint": False, "idempotentHint": True},
    "read": {"readOnlyHint": True},
}
NOISE = b'Listening...\n\xff\xfe\x00\n{"half": \n[]\n42\n{"jsonrpc": "2.0"}\n{"jsonrpc": "2.0", "id": {}}\n'
FLOOD_SECONDS = 5.0

ledger, name = Ledger(sys.argv[1]), sys.argv[2]
flags = dict(flag.partition("=")[::2] for flag in sys.argv[3:])
late: list[tuple[float, int, bytes]] = []
"""Answers by the time when they are due."""
floods: dict[Any, float] = {}
"""Progress tokens, with the end of their floods."""
keys: dict[Any, str] = {}
held: set[Any] = set()
acts = 0


def broken(flag: str) -> bool:
    return flag in flags and not ("unless" in flags and os.path.exists(flags["unless"]))


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest) :]


def send(**message: Any) -> None:
    write(line(**message))


def progress(token: Any, step: float, text: str) -> bytes:
    return line(method="notifications/progress", params={"progressToken": token, "progress": step, "message": text})


def call(request: Any, params: dict[str, Any]) -> None:
    global acts
    given, token = params["arguments"], params.get("_meta", {}).get("progressToken")
    key, how = given["key"], given.get("how", "now")
    if how == "refuse":
        os._exit(1)
    acts += 1
    serial = f"{os.getpid()}-{acts}"
    ledger.write(what="act", server=name, tool=params["name"], key=key, serial=serial)
    if token is not None:
        write(progress(token, 1, key))
    text = "x" * given["size"] if "size" in given else json.dumps({"key": key, "serial": serial})
    result = {"content": [{"type": "text", "text": text}]}
    keys[request] = key
    match how:
        case "never":
            return
        case "flood":
            floods[token] = time.monotonic() + FLOOD_SECONDS
            return
        case "cancelled":
            held.add(request)
            return
        case "die":
            os._exit(1)
        case "torn":
            write(line(id=request, result=result)[:30])
            os._exit(1)
        case "twice":
            send(id=request, result=result)
        case "wrong_id" | "strangers":
            for stranger in (10**9, f"stranger-{key}", -1, None):
                send(id=stranger, result={"content": [{"type": "text", "text": "for another one"}]})
            if how == "strangers":
                return
        case "junk":
            write(NOISE)
        case "changed":
            write(line(method="notifications/tools/list_changed") * 50)
    heapq.heappush(late, (time.monotonic() + given.get("ms", 0) / 1000, acts, line(id=request, result=result)))


def handle(message: dict[str, Any]) -> None:
    request, params = message.get("id"), message.get("params") or {}
    match message.get("method"):
        case "initialize":
            server, capabilities = {"name": "ledger", "version": "1"}, {"tools": {"listChanged": True}}
            result = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": server}
            send(id=request, result=result)
        case "tools/list":
            tools = [{"name": tool, "inputSchema": SCHEMA, "annotations": hints} for tool, hints in TOOLS.items()]
            send(id=request, result={"tools": tools})
            if broken("exit_after_hello"):
                sys.exit(5)
        case "tools/call":
            call(request, params)
        case "ping":
            send(id=request, result={})
        case "notifications/cancelled":
            asked = params["requestId"]
            ledger.write(what="cancelled", server=name, key=keys.get(asked))
            if asked in held:
                held.discard(asked)
                send(id=asked, result={"content": [{"type": "text", "text": "too late"}]})
        case _ if request is not None:
            send(id=request, error={"code": -32601, "message": "Method not found"})


def serve() -> None:
    """Serve until the end of standard input."""
    rest = b""
    while True:
        timeout = 0.0 if floods else max(0.0, late[0][0] - time.monotonic()) if late else None
        if select.select([0], [], [], timeout)[0]:
            data = os.read(0, 1 << 16)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for each in lines:
                handle(json.loads(each))
        while late and late[0][0] <= time.monotonic():
            write(heapq.heappop(late)[2])
        for token, end in list(floods.items()):
            write(progress(token, time.monotonic(), "step") * 20)
            if time.monotonic() > end:
                del floods[token]


ledger.write(what="started", server=name)
if broken("exit"):
    sys.exit(5)
serve()
