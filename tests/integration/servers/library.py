"""An upstream of bare JSON lines with books: resources in pages, templates, prompts, completions.

`library.py [FLAG...]`: `bare` leaves out prompts and completions, `endless` never ends its list of resources.
"""

from __future__ import annotations

import base64
import sys

from bare import Refused, serve

PAGE = 20
BOOKS = 50
PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4).decode()
NAMES = ["Ada", "Alan", "Annie", "Grace"]


def list_resources(params: dict, _: object) -> dict:
    start = int(params.get("cursor") or 0)
    endless = "endless" in sys.argv
    shown = range(start, start + 1 if endless else min(start + PAGE, BOOKS))
    resources = [{"uri": f"book:///{number}", "name": f"Book {number}"} for number in shown]
    more = {"nextCursor": str(shown.stop)} if endless or shown.stop < BOOKS else {}
    return {"resources": resources, **more}


def read_resource(params: dict, _: object) -> dict:
    uri = params["uri"]
    match uri.split(":///"):
        case "book", number if number.isdigit() and int(number) < BOOKS:
            return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": f"Text of book {number}."}]}
        case "author", name if name in NAMES:
            portrait = {"uri": uri + "/portrait", "mimeType": "image/png", "blob": PICTURE}
            return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": f"{name} wrote books."}, portrait]}
    raise Refused(-32602, f"no such resource: {uri}")


def list_prompts(params: dict, _: object) -> dict:
    start = int(params.get("cursor") or 0)
    arguments = [{"name": "author", "required": True}]
    more = {"nextCursor": str(start + 1)} if start < 2 else {}
    return {"prompts": [{"name": f"review-{start}", "description": "Review.", "arguments": arguments}], **more}


def get_prompt(params: dict, _: object) -> dict:
    author = (params.get("arguments") or {}).get("author", "no one")
    contents = [
        {"type": "text", "text": f"Review {author}."},
        {"type": "image", "data": PICTURE, "mimeType": "image/png"},
    ]
    return {"description": "A review", "messages": [{"role": "user", "content": content} for content in contents]}


def complete(params: dict, _: object) -> dict:
    kind, argument = params["ref"]["type"], params["argument"]
    given = sorted((params.get("context") or {}).get("arguments") or {})
    values = [name for name in NAMES if name.startswith(argument["value"])]
    return {"completion": {"values": [f"{kind} {argument['name']} {given}", *values], "total": len(values)}}


answers = {
    "resources/list": list_resources,
    "resources/templates/list": lambda *_: {
        "resourceTemplates": [{"uriTemplate": "author:///{name}", "name": "An author"}]
    },
    "resources/read": read_resource,
}
capabilities: dict = {"resources": {}}
if "bare" not in sys.argv:
    capabilities |= {"prompts": {}, "completions": {}}
    answers |= {"prompts/list": list_prompts, "prompts/get": get_prompt, "completion/complete": complete}
serve("library", answers, capabilities=capabilities)
