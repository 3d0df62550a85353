"""A legacy server of bare JSON lines that acts once for each call, and answers as that says: `stdio_server.py LEDGER`.

`how` of a call: `now`; `never`; `twice`; `wrong_id` (an unknown id, then the right one); `strangers` (only
such); `junk` (noise round the answer); `changed` (a storm of list_changed before it); `cancelled` (answers after the
call was cancelled, and not before); `torn` (half a line, then the end); `die` (acts, then ends); `refuse` (ends, not
acting).
Flags: `exit` ends immediately, `exit_after_hello` once it has been asked for its tools, `unless=FILE` neither of them
while that file exists, and `silent` never says anything.
"""

from __future__ import annotations

import json
import os
import sys

from ledger import SCHEMA, Ledger

ledger = Ledger(sys.argv[1])
flags = dict(flag.partition("=")[::2] for flag in sys.argv[2:])
held: set[object] = set()


def broken(flag: str) -> bool:
    return flag in flags and not ("unless" in flags and os.path.exists(flags["unless"]))


def write(text: str) -> None:
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()


def send(**message: object) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def act(request: object, name: str, how: str) -> None:
    if how == "refuse":
        os._exit(1)
    ledger.note(f"act {name}")
    result = {"content": [{"type": "text", "text": name}]}
    match how:
        case "never":
            return
        case "cancelled":
            held.add(request)
            return
        case "die":
            os._exit(1)
        case "torn":
            write(json.dumps({"jsonrpc": "2.0", "id": request, "result": result})[:30])
            os._exit(1)
        case "twice":
            send(id=request, result=result)
        case "wrong_id" | "strangers":
            for stranger in (10**9, f"stranger-{name}", -1, None):
                send(id=stranger, result={"content": [{"type": "text", "text": "for another one"}]})
            if how == "strangers":
                return
        case "junk":
            write(
                'Listening...\n\udcff\udcfe\x00\n{"half": \n[]\n42\n{"jsonrpc": "2.0"}\n{"jsonrpc": "2.0", "id": {}}\n'
            )
        case "changed":
            for _ in range(50):
                send(method="notifications/tools/list_changed")
    send(id=request, result=result)


def handle(message: dict) -> None:
    request, params = message.get("id"), message.get("params") or {}
    match message.get("method"):
        case "initialize":
            server = {"name": "ledger", "version": "1"}
            capabilities = {"tools": {"listChanged": True}}
            result = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": server}
            send(id=request, result=result)
        case "tools/list":
            send(id=request, result={"tools": [{"name": "act", "inputSchema": SCHEMA}]})
            if broken("exit_after_hello"):
                sys.exit(5)
        case "tools/call":
            arguments = params["arguments"]
            act(request, arguments["id"], arguments.get("how", "now"))
        case "notifications/cancelled":
            asked = params["requestId"]
            ledger.note(f"cancelled {asked}")
            if asked in held:
                held.discard(asked)
                send(id=asked, result={"content": [{"type": "text", "text": "too late"}]})
        case _ if request is not None:
            send(id=request, error={"code": -32601, "message": "Method not found"})


if broken("exit"):
    sys.exit(5)
for line in sys.stdin:
    if "silent" not in flags:
        handle(json.loads(line))
