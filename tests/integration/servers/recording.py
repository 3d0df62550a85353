"""An upstream of bare JSON lines that records what it is sent: `recording.py FOLDER`.

FOLDER/tools.json has the list for `tools/list`. Each call becomes a line of FOLDER/received, as JSON with the name of
the tool and its arguments, and is answered with "done". `fail` answers with an error that quotes its argument `key`.
`repeat` quotes the last such argument in its progress, its log and its result.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bare import Refused, note, progress, send, serve, text

folder = Path(sys.argv[1])
key = ""


def call(params: dict, _: object) -> dict:
    global key
    arguments = params.get("arguments") or {}
    note(folder / "received", json.dumps([params["name"], arguments]))
    key = arguments.get("key", key)
    match params["name"]:
        case "repeat":
            progress(params, 1, f"using {key}")
            send(method="notifications/message", params={"level": "warning", "data": f"logged {key}"})
            return text(f"repeated {key}", structuredContent={key: "x"})
        case "fail":
            raise Refused(-32000, f"the key {arguments['key']} was refused")
    return text("done")


def list_tools(*_: object) -> dict:
    return {"tools": json.loads((folder / "tools.json").read_text("utf-8"))}


serve("recording", {"tools/list": list_tools, "tools/call": call})
