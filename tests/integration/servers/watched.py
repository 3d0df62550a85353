"""An upstream of bare JSON lines with resources that change: `watched.py FOLDER`.

It lists `note:///a` and `note:///b`. The tool `touch` reports an update of a resource to a client that has subscribed.
Each request about a subscription becomes a line of FOLDER/asked.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bare import note, send, serve

asked = Path(sys.argv[1]) / "asked"
subscribed: set[str] = set()
TOUCH = {"name": "touch", "inputSchema": {"type": "object", "properties": {"uri": {"type": "string"}}}}


def subscribe(params: dict, _: object) -> dict:
    note(asked, f"subscribe {params['uri']}")
    subscribed.add(params["uri"])
    return {}


def unsubscribe(params: dict, _: object) -> dict:
    note(asked, f"unsubscribe {params['uri']}")
    subscribed.discard(params["uri"])
    return {}


def touch(params: dict, _: object) -> dict:
    if params["arguments"]["uri"] in subscribed:
        send(method="notifications/resources/updated", params={"uri": params["arguments"]["uri"]})
    return {"content": []}


answers = {
    "tools/list": lambda *_: {"tools": [TOUCH]},
    "tools/call": touch,
    "resources/list": lambda *_: {"resources": [{"uri": f"note:///{name}", "name": name} for name in "ab"]},
    "resources/templates/list": lambda *_: {"resourceTemplates": []},
    "resources/read": lambda params, _: {"contents": [{"uri": params["uri"], "text": "x"}]},
    "resources/subscribe": subscribe,
    "resources/unsubscribe": unsubscribe,
}
capabilities = {"tools": {}, "resources": {"subscribe": True}}
serve("watched", answers, capabilities=capabilities, version="2025-11-25")
