"""A server of bare JSON lines: `quick` answers, `hang` never does, `big` answers much, `flood` reports progress."""

from __future__ import annotations

import json
import sys
import threading
import time

SIZE = {"type": "object", "properties": {"size": {"type": "integer"}}}
TOOLS = [{"name": name, "inputSchema": SIZE} for name in ("quick", "hang", "big", "flood")]
FLOOD_SECONDS = 5.0

_writing = threading.Lock()


def send(**message: object) -> None:
    text = json.dumps({"jsonrpc": "2.0", **message}) + "\n"
    with _writing:
        sys.stdout.write(text)
        sys.stdout.flush()


def flood(token: object) -> None:
    """Report progress as fast as it can be written."""
    step, until = 0, time.monotonic() + FLOOD_SECONDS
    while time.monotonic() < until:
        step += 1
        send(method="notifications/progress", params={"progressToken": token, "progress": step, "message": "step"})


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        request, params = message.get("id"), message.get("params") or {}
        match message.get("method"), params.get("name"):
            case "initialize", _:
                server = {"name": "floods", "version": "1"}
                result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server}
                send(id=request, result=result)
            case "tools/list", _:
                send(id=request, result={"tools": TOOLS})
            case "tools/call", "hang":
                pass
            case "tools/call", "flood":
                token = params.get("_meta", {}).get("progressToken")
                threading.Thread(target=flood, args=(token,), daemon=True).start()
            case "tools/call", tool:
                text = "x" * int(params["arguments"].get("size", 1)) if tool == "big" else "ok"
                send(id=request, result={"content": [{"type": "text", "text": text}]})
            case _ if request is not None:
                send(id=request, error={"code": -32601, "message": "no such method"})


main()
