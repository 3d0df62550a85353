"""A legacy server that writes its pid to a file at its start, and waits in `wait` until a file exists.

Usage: `counted_server.py PIDS [FLAG ...]`. With `roots` it asks for the roots as soon as it is initialized, with
`roots_in_call` when `roots` is called. With `renews` it asks again once the roots have changed. `roots` returns
the answer to the last question.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

pids, *flags = sys.argv[1:]
roots: dict[str, object] = {}
waiting: dict[str, int] = {}
asked = 0


def send(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def say(request_id: int, value: object) -> None:
    send(id=request_id, result={"content": [{"type": "text", "text": json.dumps(value)}]})


def ask_roots() -> str:
    global asked
    asked += 1
    send(id=f"q{asked}", method="roots/list")
    return f"q{asked}"


def answer_when(request_id: int, path: str) -> None:
    while not os.path.exists(path):
        time.sleep(0.01)
    say(request_id, os.getpid())


def call(request_id: int, name: str, arguments: dict[str, str]) -> None:
    match name:
        case "pid":
            say(request_id, os.getpid())
        case "variable":
            say(request_id, os.environ.get(arguments["name"]))
        case "wait":
            threading.Thread(target=answer_when, args=(request_id, arguments["path"]), daemon=True).start()
        case "roots" if "roots_in_call" in flags:
            waiting[ask_roots()] = request_id
        case "roots":
            say(request_id, roots)
        case "log":
            send(method="notifications/message", params={"level": "warning", "logger": "l", "data": arguments["text"]})
            print(arguments["text"], file=sys.stderr, flush=True)
            say(request_id, "ok")
        case "ask_again":
            say(request_id, "ok")
            threading.Timer(0.1, ask_roots).start()  # outside any call


def answer(message: dict) -> None:
    global roots
    request_id, params = message.get("id"), message.get("params") or {}
    match message.get("method"):
        case None:
            roots = message.get("result", {"error": message.get("error")})
            if request_id in waiting:
                say(waiting.pop(request_id), roots)
        case "initialize":
            info = {"serverInfo": {"name": "counted", "version": "1"}}
            send(id=request_id, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, **info})
        case "notifications/initialized":
            if "roots" in flags:
                ask_roots()
        case "notifications/roots/list_changed" if "renews" in flags:
            ask_roots()
        case "tools/list":
            names = ["pid", "variable", "wait", "roots", "ask_again", "log"]
            send(id=request_id, result={"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]})
        case "tools/call":
            call(request_id, params["name"], params.get("arguments") or {})
        case _ if request_id is not None:
            send(id=request_id, error={"code": -32601, "message": "Method not found"})


with open(pids, "a") as file:
    print(os.getpid(), file=file)
for line in sys.stdin:
    answer(json.loads(line))
