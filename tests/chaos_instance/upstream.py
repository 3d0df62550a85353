"""An upstream server that writes each call it executes into a ledger: `upstream.py LEDGER`. Run it with `python -S`.

`append` must not be repeated, `put` is idempotent, and `read` only reads. A call is executed when its request is read.
Its answer is delayed by `ms`, and its progress is reported with the key of the call.
"""

from __future__ import annotations

import heapq
import json
import os
import select
import sys
import time
from typing import Any

SCHEMA = {
    "type": "object",
    "properties": {"key": {"type": "string"}, "ms": {"type": "integer"}},
    "required": ["key", "ms"],
}
TOOLS: dict[str, dict[str, bool]] = {
    "append": {"readOnlyHint": False, "idempotentHint": False},
    "put": {"readOnlyHint": False, "idempotentHint": True},
    "read": {"readOnlyHint": True},
}


class Server:
    """The server on the standard streams."""

    def __init__(self, ledger: str) -> None:
        self._ledger = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._late: list[tuple[float, int, dict[str, Any]]] = []
        self._executed = 0
        self._write_ledger(what="started")

    def run(self) -> None:
        """Serve until the end of standard input."""
        rest = b""
        while True:
            timeout = max(0.0, self._late[0][0] - time.monotonic()) if self._late else None
            if select.select([0], [], [], timeout)[0]:
                data = os.read(0, 1 << 16)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._handle(json.loads(line))
            while self._late and self._late[0][0] <= time.monotonic():
                _send(heapq.heappop(self._late)[2])

    def _handle(self, message: dict[str, Any]) -> None:
        number, params = message.get("id"), message.get("params") or {}
        match message.get("method"):
            case "initialize":
                server = {"name": "ledger", "version": "1"}
                result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server}
                _send({"id": number, "result": result})
            case "tools/list":
                tools = [{"name": name, "inputSchema": SCHEMA, "annotations": hints} for name, hints in TOOLS.items()]
                _send({"id": number, "result": {"tools": tools}})
            case "tools/call":
                self._execute(number, params["name"], params)
            case "ping":
                _send({"id": number, "result": {}})
            case _ if number is not None:
                _send({"id": number, "error": {"code": -32601, "message": "Method not found"}})

    def _execute(self, number: Any, tool: str, params: dict[str, Any]) -> None:
        key, ms = params["arguments"]["key"], params["arguments"]["ms"]
        self._executed += 1
        serial = f"{os.getpid()}-{self._executed}"
        self._write_ledger(what="executed", tool=tool, key=key, serial=serial)
        token = params.get("_meta", {}).get("progressToken")
        if token is not None:
            _send(
                {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1, "message": key}}
            )
        text = json.dumps({"key": key, "serial": serial})
        answer = {"id": number, "result": {"content": [{"type": "text", "text": text}]}}
        heapq.heappush(self._late, (time.monotonic() + ms / 1000, self._executed, answer))

    def _write_ledger(self, **line: Any) -> None:
        os.write(self._ledger, json.dumps({**line, "pid": os.getpid()}).encode() + b"\n")


def _send(message: dict[str, Any]) -> None:
    rest = memoryview(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    while rest:
        rest = rest[os.write(1, rest) :]


if __name__ == "__main__":
    Server(sys.argv[1]).run()
