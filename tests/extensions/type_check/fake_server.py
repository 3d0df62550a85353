"""An MCP server with the tools of one list, as JSON lines: `python fake_server.py issues`.

Results are values of the schema of their tool: lists of three, optional members in every second one. A call with the
word `missing` as one of its arguments ends as an error of the tool. There are two pages of everything.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.extensions.type_check.tool_lists import ListedTool, Schema, listed_tools

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_CURSORS = ("cursor", "pageToken", "startingAfter")
_TEXTS = {"date-time": "2026-03-0{n}T09:00:00Z", "date": "2026-03-0{n}", "email": "ada{n}@example.com"}


def example(schema: Schema, name: str = "value", number: int = 1, depth: int = 0, within: Schema | None = None) -> Any:
    """Return a value of the schema. `number` counts the items of the list around it, from 1."""
    definitions = schema.get("$defs", within or {})
    if "$ref" in schema:
        return example(definitions[schema["$ref"].removeprefix("#/$defs/")], name, number, depth, definitions)
    if "enum" in schema:
        return schema["enum"][(number - 1) % len(schema["enum"])]
    choices = schema.get("anyOf") or [{"type": kind} for kind in schema["type"]] if _is_union(schema) else []
    if choices:
        return example(choices[(number - 1) % len(choices)], name, number, depth, definitions)
    match schema.get("type"):
        case "object":
            required = set(schema.get("required", ()))
            found = {
                key: example(member, key, number, depth + 1, definitions)
                for key, member in schema.get("properties", {}).items()
                if key in required or (number % 2 == 1 and depth < 6)
            }
            if isinstance(values := schema.get("additionalProperties"), dict):
                found |= {f"key{n}": example(values, f"key{n}", n, depth + 1, definitions) for n in (1, 2)}
            return found
        case "array":
            items = schema["items"]
            return [example(items, name, n, depth + 1, definitions) for n in (1, 2, 3)] if depth < 6 else []
        case "integer":
            return max(number, schema.get("minimum", number))
        case "number":
            return number + 0.5
        case "boolean":
            return number % 2 == 1
        case "null":
            return None
        case "string" if schema.get("format") == "uri":
            return f"https://example.com/{name}/{number}"
        case "string":
            return _TEXTS.get(schema.get("format", ""), f"{name} {{n}}").format(n=number)
        case _:
            return {"label": f"{name} {number}", "count": number} if number % 2 else number


def _is_union(schema: Schema) -> bool:
    return "anyOf" in schema or isinstance(schema.get("type"), list)


def result_of(listed: ListedTool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a call, as MCP sends it."""
    if "missing" in arguments.values():
        return {"content": [{"type": "text", "text": f"{listed.tool.name}: there is no such thing"}], "isError": True}
    match listed.content:
        case "image":
            return {"content": [{"type": "image", "data": PICTURE, "mimeType": "image/png"}]}
        case "text":
            text = f"done: {listed.tool.name}\n2026-03-01 INFO started\n2026-03-02 ERROR failed with code 7\n"
            return {"content": [{"type": "text", "text": text}]}
        case _:
            value = example(listed.result or {})
            if any(arguments.get(name) for name in _CURSORS):
                value = _last_page(value, (listed.result or {}).get("required", ()))
            content = [{"type": "text", "text": json.dumps(value)}]
            return (
                {"content": content, "structuredContent": value} if listed.tool.output_schema else {"content": content}
            )


def _last_page(value: dict[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """Return a page without what leads to the next one. Members that must be there say so."""
    ends = {"nextPageToken": None, "cursor": None, "hasMore": False, "has_more": False, "page": {"total": 6}}
    kept = {name: member for name, member in value.items() if name in required or name not in ends}
    return {**kept, **{name: end for name, end in ends.items() if name in kept}}


def _listing(listed: ListedTool) -> dict[str, Any]:
    tool = listed.tool
    hints = {"readOnlyHint": tool.annotations.read_only, "destructiveHint": tool.annotations.destructive}
    shown: dict[str, Any] = {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
    shown["annotations"] = {key: value for key, value in hints.items() if value is not None}
    return shown if tool.output_schema is None else {**shown, "outputSchema": tool.output_schema}


def _answer(name: str, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    tools = {each.tool.name: each for each in listed_tools(name)}
    match method:
        case "initialize":
            information = {"name": name, "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": information}
        case "tools/list":
            return {"tools": [_listing(each) for each in tools.values()]}
        case "tools/call":
            return result_of(tools[params["name"]], params.get("arguments", {}))
        case "ping":
            return {}
    return None


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = _answer(sys.argv[1], message["method"], message.get("params", {}))
        error = {"code": -32601, "message": "method not found"}
        answer = {"error": error} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)


if __name__ == "__main__":
    main()
