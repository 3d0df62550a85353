"""What to say to programs that reach for what is not there. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from codemode_mcp.bridge import Thrown

_NETWORK = 'there is no network here; call a tool, API.search("...") finds one'
_HOST = "this is neither a browser nor Node.js; call a tool instead"
_PRINT = "print with text(value) or console.log(value)"

_HINTS = {
    **dict.fromkeys(("fetch", "XMLHttpRequest", "WebSocket", "EventSource", "axios", "Request", "Headers"), _NETWORK),
    **dict.fromkeys(("process", "Buffer", "window", "document", "localStorage", "sessionStorage", "fs", "Deno"), _HOST),
    **dict.fromkeys(("print", "alert", "log", "output"), _PRINT),
    "sleep": "wait with await new Promise((r) => setTimeout(r, milliseconds))",
    "mcp": "the servers are in MCP, in capitals",
    "Mcp": "the servers are in MCP, in capitals",
    "api": "the declaration files are in API, in capitals",
}

_UNDEFINED = re.compile(r"'?(\w+)'? is not defined")


def hint(thrown: Thrown) -> str:
    """What to write instead, for a name that is not there; empty when nothing is known."""
    match = _UNDEFINED.match(thrown.message) if thrown.name == "ReferenceError" else None
    found = None if match is None else _HINTS.get(match[1])
    return "" if found is None else f" ({found})"


def fenced(source: str) -> str | None:
    """Guidance for a program that is still wrapped in a Markdown fence."""
    if not source.lstrip().startswith("```"):
        return None
    return "The program is wrapped in a Markdown fence; send the code alone, without the lines of ```."
