"""A server whose tools and apps a file lists: `apps.py FILE`.

The file is `{"tools": [...], "resources": [...], "contents": {URI: CONTENT}}`. A content with `repeat` has that many
times its text. Each call is answered with its name and its arguments, and is written to `FILE.calls`. The tool `locked`
also answers with its argument `challenge` as an authentication challenge.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def answer(request: dict[str, Any], listed: dict[str, Any], log: Path) -> dict[str, Any]:
    params = request.get("params") or {}
    match request["method"]:
        case "initialize":
            return {
                "result": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}, "resources": {}},
                    "serverInfo": {"name": "apps", "version": "1"},
                }
            }
        case "tools/list":
            return {"result": {"tools": listed["tools"]}}
        case "resources/list":
            return {"result": {"resources": listed.get("resources", [])}}
        case "resources/templates/list":
            return {"result": {"resourceTemplates": []}}
        case "resources/read":
            content = listed["contents"].get(params["uri"])
            if content is None:
                return {"error": {"code": -32002, "message": "no such resource"}}
            content = {"uri": params["uri"], **content}
            content["text"] = content["text"] * content.pop("repeat", 1)
            return {"result": {"contents": [content]}}
        case "tools/call":
            with log.open("a", encoding="utf-8") as calls:
                calls.write(json.dumps([params["name"], params.get("arguments")]) + "\n")
            called = {"called": params["name"], "with": params.get("arguments")}
            result = {"content": [{"type": "text", "text": json.dumps(called)}], "structuredContent": called}
            if params["name"] == "locked":
                result["_meta"] = {"mcp/www_authenticate": [(params.get("arguments") or {}).get("challenge")]}
            return {"result": result}
        case "ping":
            return {"result": {}}
    return {"error": {"code": -32601, "message": "Method not found"}}


def main() -> None:
    path = Path(sys.argv[1])
    listed = json.loads(path.read_text("utf-8"))
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request and "method" in request:
            message = {"jsonrpc": "2.0", "id": request["id"], **answer(request, listed, path.with_suffix(".calls"))}
            print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
