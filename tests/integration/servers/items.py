"""An upstream of bare JSON lines whose prompts, templates and resources are a file: `items.py FOLDER`.

FOLDER/items.json has the lists `prompts`, `resourceTemplates` and `resources`. It is read each time; a list that is
missing is never answered, and a text in place of a list is the message of an error. `parts` are further URIs in the
answer to each read. The tool `announce` says that all of them have changed. The method of each request about an item
becomes a line of FOLDER/called.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bare import Refused, note, send, serve

folder = Path(sys.argv[1])
CAPABILITIES: dict = {"tools": {}, "prompts": {}, "resources": {"subscribe": True}, "completions": {}}


def items() -> dict:
    return json.loads((folder / "items.json").read_text("utf-8"))


def announce(*_: object) -> dict:
    send(method="notifications/prompts/list_changed")
    send(method="notifications/resources/list_changed")
    return {"content": []}


def lists(key: str) -> dict | None:
    found = items().get(key)
    if isinstance(found, str):
        raise Refused(-32000, found)
    return None if found is None else {key: found}


def noted(word: str, result: dict) -> dict:
    note(folder / "called", word)
    return result


def read(params: dict, _: object) -> dict:
    contents = [{"uri": params["uri"], "text": f"text of {params['uri']}"}]
    parts = [{"uri": uri, "text": "a part"} for uri in items().get("parts", ())]
    return noted("read", {"contents": contents + parts})


answers = {
    "tools/list": lambda *_: {"tools": [{"name": "announce", "inputSchema": {"type": "object"}}]},
    "tools/call": announce,
    "prompts/list": lambda *_: lists("prompts"),
    "resources/templates/list": lambda *_: lists("resourceTemplates"),
    "resources/list": lambda *_: lists("resources"),
    "prompts/get": lambda params, _: noted("get", {"description": f"prompt {params['name']}", "messages": []}),
    "resources/read": read,
    "resources/subscribe": lambda *_: noted("subscribe", {}),
    "completion/complete": lambda *_: noted("complete", {"completion": {"values": ["a"]}}),
}
serve("items", answers, capabilities=CAPABILITIES)
