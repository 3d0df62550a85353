"""A server of bare JSON lines whose tool `flood` reports progress as fast as it can, and never answers."""

from __future__ import annotations

from itertools import count

from bare import progress, serve, text

SCHEMA = {"type": "object", "properties": {}}
TOOLS = [{"name": name, "inputSchema": SCHEMA} for name in ("flood", "echo")]


def call(params: dict, _: object) -> dict:
    if params["name"] == "flood":
        for step in count(1):
            progress(params, step, f"step {step}")
    return text("echo")


serve("flooding", {"tools/list": lambda *_: {"tools": TOOLS}, "tools/call": call})
