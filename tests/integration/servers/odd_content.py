"""A legacy upstream of bare JSON lines whose results hold every kind of content, some that no MCP client knows."""

from __future__ import annotations

import base64
import hashlib
import time

from bare import serve

INTEGER = {"type": "integer"}


def tool(name: str, **properties: object) -> dict:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "inputSchema": schema, "annotations": {"readOnlyHint": True}}


TOOLS = [
    tool("picture", bytes=INTEGER),
    tool("gallery", count=INTEGER),
    tool("mixed"),
    tool("sloppy_base64"),
    tool("many_blocks", count=INTEGER),
    tool("sleep", seconds={"type": "number"}),
]


def noise(size: int) -> str:
    """Return bytes that do not compress, as base64."""
    blocks = (hashlib.sha256(str(number).encode()).digest() for number in range(size // 32 + 1))
    return base64.b64encode(b"".join(blocks)[:size]).decode()


def image(size: int) -> dict:
    return {"type": "image", "mimeType": "image/png", "data": noise(size)}


def call(params: dict, _: object) -> dict:
    given = params.get("arguments") or {}
    match params["name"]:
        case "picture":
            return {"content": [{"type": "text", "text": "a picture"}, image(given["bytes"])]}
        case "gallery":
            return {"content": [image(300) for _ in range(given["count"])]}
        case "mixed":
            pdf = {"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": noise(3000)}
            return {
                "content": [
                    {"type": "text", "text": "t", "annotations": {"audience": ["user"], "priority": 1}},
                    {"type": "hologram", "beams": [1, 2], "data": "A" * 300, "_meta": {"odd": True}},
                    {"type": "resource_link", "uri": "file:///a.pdf", "name": "A", "size": 3, "icons": []},
                    {"type": "audio", "mimeType": "audio/wav", "data": noise(2000)},
                    {"type": "resource", "resource": pdf, "annotations": {"priority": 0.5}},
                    {**image(1000), "_meta": {"page": 1}},
                ],
                "_meta": {"trace": "abc"},
                "extension": {"anything": [None]},
            }
        case "sloppy_base64":
            text = noise(1000)
            lines = "\n".join(text[at : at + 76] for at in range(0, len(text), 76)).rstrip("=")
            return {
                "content": [
                    {"type": "image", "mimeType": "image/png", "data": lines.replace("+", "-").replace("/", "_")},
                    {"type": "image", "mimeType": "image/png", "data": "not base64 at all!"},
                ]
            }
        case "many_blocks":
            return {"content": [{"type": "text", "text": str(number)} for number in range(given["count"])]}
        case _:
            time.sleep(given["seconds"])
            return {"content": []}


serve("odd", {"tools/list": lambda *_: {"tools": TOOLS}, "tools/call": call})
