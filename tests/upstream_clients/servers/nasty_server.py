"""A legacy server of bare JSON lines whose tools are traps: `nasty_server.py [slow_pages|stuck_page|linger=FILE]`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

flags = dict(flag.partition("=")[::2] for flag in sys.argv[1:])


def tool(name: str) -> dict:
    return {"name": name, "inputSchema": {"type": "object"}}


TOOLS = [tool(name) for name in ("echo", "hang", "freeze", "stop", "large", "rows", "endless", "digits", "pings")]
pings = 0


def write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def send(**message) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}))


def text(value: str) -> dict:
    return {"content": [{"type": "text", "text": value}]}


def call(request_id, name, arguments) -> None:
    match name:
        case "hang":
            return
        case "freeze":
            time.sleep(arguments["seconds"])
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "large":
            send(id=request_id, result=text("x" * arguments["bytes"]))
            return
        case "rows":
            rows = [{"id": number, "name": f"row {number}", "value": 0.5} for number in range(arguments["rows"])]
            send(id=request_id, result={"content": [], "structuredContent": {"rows": rows}})
            return
        case "endless":
            write('{"jsonrpc": "2.0", "id": ' + str(request_id) + ', "result": "' + "x" * arguments["bytes"])
            return
        case "digits":
            write(
                '{"jsonrpc": "2.0", "id": ' + str(request_id) + ', "result": {"content": [], "structuredContent": '
                '{"large": ' + "9" * params["arguments"]["count"] + ', "nan": NaN}}}'
            )
            return
        case "pings":
            send(id=request_id, result=text(str(pings)))
            return
    send(id=request_id, result=text(str(arguments.get("text", "done"))))


def list_page(request_id, params) -> None:
    number = int(params.get("cursor", 0))
    if "slow_pages" in flags or "stuck_page" in flags:
        if number and "stuck_page" in flags:
            return
        time.sleep(0.05)
        send(id=request_id, result={"tools": [tool(f"tool_{number}")], "nextCursor": str(number + 1)})
    else:
        send(id=request_id, result={"tools": TOOLS})


if "linger" in flags:
    # A child that outlives its parent, keeps its pipes open and ignores SIGTERM.
    program = """if True:
        import os, signal, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with open(sys.argv[1] + ".part", "w") as file:
            print(os.getpid(), file=file)
        os.rename(sys.argv[1] + ".part", sys.argv[1])
        time.sleep(600)
    """
    child = subprocess.Popen([sys.executable, "-c", program, flags["linger"]])
    while not os.path.exists(flags["linger"]):
        time.sleep(0.01)
for line in sys.stdin:
    message = json.loads(line)
    request_id, params = message.get("id"), message.get("params") or {}
    match message.get("method"):
        case "initialize":
            send(
                id=request_id,
                result={
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "nasty", "version": str(os.getpid())},
                },
            )
        case "ping":
            pings += 1
            send(id=request_id, result={})
        case "tools/list":
            list_page(request_id, params)
        case "tools/call":
            call(request_id, params["name"], params.get("arguments") or {})
        case _ if request_id is not None:
            send(id=request_id, error={"code": -32601, "message": "Method not found"})
