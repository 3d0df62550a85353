"""An upstream with large answers: `bulky.py LOG`. `get` answers with `bytes` characters; LOG gets one line per call."""

from __future__ import annotations

import sys

from bare import note, serve, text

SCHEMA = {"type": "object", "properties": {"bytes": {"type": "integer"}}, "required": ["bytes"]}
TOOLS = [{"name": "get", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}]


def get(params: dict, _: object) -> dict:
    note(sys.argv[1], "call")
    return text("x" * params["arguments"]["bytes"])


serve("bulky", {"tools/list": lambda *_: {"tools": TOOLS}, "tools/call": get})
