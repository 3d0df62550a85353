"""A server of bare JSON lines whose tools answer after a time that the caller gives, many concurrently."""

import heapq
import json
import os
import select
import sys
import time

SCHEMA = {"type": "object", "properties": {"ms": {"type": "integer"}}, "required": ["ms"]}
TOOLS = [
    {"name": "read", "description": "Wait.", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}},
    {"name": "write", "description": "Wait, and change something.", "inputSchema": SCHEMA},
]


def say(number: object, body: dict) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": number, **body}), flush=True)


def main() -> None:
    due: list[tuple[float, int, object]] = []
    text, count = b"", 0
    while True:
        left = None if not due else max(0.0, due[0][0] - time.monotonic())
        if select.select([sys.stdin], [], [], left)[0]:
            data = os.read(0, 1 << 16)
            if not data:
                return
            *lines, text = (text + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                match message.get("method") if "id" in message else None:
                    case None:
                        pass
                    case "initialize":
                        info = {"name": "slow", "version": "1"}
                        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
                        say(message["id"], {"result": result})
                    case "tools/list":
                        say(message["id"], {"result": {"tools": TOOLS}})
                    case "tools/call":
                        count += 1
                        seconds = message["params"]["arguments"]["ms"] / 1000
                        heapq.heappush(due, (time.monotonic() + seconds, count, message["id"]))
                    case _:
                        say(message["id"], {"error": {"code": -32601, "message": "Method not found"}})
        while due and due[0][0] <= time.monotonic():
            say(heapq.heappop(due)[2], {"result": {"content": [{"type": "text", "text": "waited"}]}})


if __name__ == "__main__":
    main()
