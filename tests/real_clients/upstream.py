"""An upstream of bare JSON lines for the cases: `upstream.py FOLDER`.

`slow` answers once FOLDER/released exists. `ask` asks its user for a name first. `fail` fails, `erase` erases nothing.
"""

from __future__ import annotations

import base64
import json
import struct
import sys
import time
import zlib
from pathlib import Path

folder = Path(sys.argv[1])
POLL_SECONDS = 0.02
GIVE_UP_SECONDS = 60.0


def chunk(kind: bytes, data: bytes) -> bytes:
    """Return one chunk of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def red_square(side: int = 16) -> str:
    """Return a picture that every image library can read, as base64."""
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\xff\0\0" * side) * side)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + data).decode()


def tool(name: str, description: str, *, read_only: bool = True, **properties: object) -> dict:
    """Return the entry of a tool whose arguments are all optional."""
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties},
        "annotations": {"readOnlyHint": read_only, "destructiveHint": not read_only},
    }


TEXT = {"type": "string"}
TOOLS = [
    tool("echo", "Echo a text.", text=TEXT),
    tool("slow", "Answer late."),
    tool("picture", "Draw a red square.", side={"type": "integer"}),
    tool("fail", "Fail."),
    tool("erase", "Erase a path.", read_only=False, path=TEXT),
    tool("ask", "Ask the user for a name.", read_only=False),
]
FORM = {"type": "object", "properties": {"name": TEXT}, "required": ["name"]}
QUESTION = {"message": "What is your name?", "requestedSchema": FORM}

asked: dict[str, object] = {}


def send(**message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(value: str, **more: object) -> dict:
    return {"content": [{"type": "text", "text": value}], **more}


def wait_for_release() -> None:
    """Return once the tests have released `slow`, or after a minute."""
    give_up = time.monotonic() + GIVE_UP_SECONDS
    while not (folder / "released").exists() and time.monotonic() < give_up:
        time.sleep(POLL_SECONDS)


def call(request: object, name: str, arguments: dict) -> None:
    match name:
        case "echo":
            send(id=request, result=text(arguments.get("text", "")))
        case "slow":
            wait_for_release()
            send(id=request, result=text("the late answer"))
        case "picture":
            data = red_square(arguments.get("side", 16))
            send(id=request, result={"content": [{"type": "image", "mimeType": "image/png", "data": data}]})
        case "fail":
            send(id=request, result=text("the disk is full of marbles", isError=True))
        case "ask":
            asked[f"about {request}"] = request
            send(id=f"about {request}", method="elicitation/create", params=QUESTION)
        case _:
            send(id=request, result=text("erased"))


for line in sys.stdin:
    message = json.loads(line)
    request, params = message.get("id"), message.get("params") or {}
    match message.get("method"):
        case "initialize":
            server = {"name": "upstream", "version": "1"}
            capabilities = {"tools": {}}
            result = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": server}
            send(id=request, result=result)
        case "tools/list":
            send(id=request, result={"tools": TOOLS})
        case "tools/call":
            call(request, params["name"], params.get("arguments") or {})
        case None if request in asked:
            answer = message.get("result") or message["error"]
            send(id=asked.pop(request), result=text("the answer was " + json.dumps(answer)))
        case _ if request is not None:
            send(id=request, error={"code": -32601, "message": "Method not found"})
