"""Results and tools as a client's protocol revision can say them, within bounds on their size. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
from mcp_types import methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from codemode_mcp.json_text import joined_halves, json_text

if TYPE_CHECKING:
    from collections.abc import Mapping


MAX_PARTS: Final = 10_000
"""Content blocks of a result."""


MAX_VALUES: Final = 100_000
"""JSON values in a result. The SDK looks at each of them several times, and blocks all clients meanwhile."""


MAX_DEPTH: Final = 200
"""Levels of JSON within a result; the SDK fails to write 250 of them."""


TOOL = types.Tool.model_validate


def fit_tool(tool: dict[str, Any], version: str) -> dict[str, Any] | None:
    without_output = {key: value for key, value in tool.items() if key != "outputSchema"}
    any_object = {**without_output, "inputSchema": {"type": "object"}}
    for form in (tool, without_output, any_object):
        if _fits("tools/list", {"tools": [form], "ttlMs": 0, "cacheScope": "private"}, version):
            return form
    return None


def result_for(name: str, text: str, version: str) -> dict[str, Any]:
    """Return a tool's result as the client's protocol revision can say it, from its JSON.

    A part that no revision knows is shown as text, so that nothing is lost. All of this blocks the event loop,
    so its size is bounded.
    """
    if (count := _values(text)) > MAX_VALUES:
        return failure(f"{name}: the result has {count} values, more than {MAX_VALUES}; {_LESS}", version)
    result = json.loads(joined_halves(text))
    blocks = result.get("content", [])
    if len(blocks) > MAX_PARTS:
        return failure(f"{name}: the result has {len(blocks)} parts, more than {MAX_PARTS}; {_LESS}", version)
    content = [block if _is_known(block) else text_block(json_text(block)) for block in blocks]
    fitted: dict[str, Any] = {"content": content}
    if "isError" in result:
        fitted["isError"] = result["isError"]
    if _is_meta(result.get("_meta")):
        fitted["_meta"] = result["_meta"]
    structured = result.get("structuredContent")
    if structured is not None:
        # Up to 2025-11-25 it is an object.
        if (isinstance(structured, dict) or version in MODERN_PROTOCOL_VERSIONS) and not _is_deep(structured):
            fitted["structuredContent"] = structured
        elif not content:
            content.append(text_block(json_text(structured)))
    return _complete(fitted, version)


def result_of(value: str) -> str:
    """Return data as a tool's result, both as JSON text: the data itself, and a text that says the same."""
    shown = json.loads(value)
    text = shown if isinstance(shown, str) else value
    return f'{{"content":[{{"type":"text","text":{json_text(text)}}}],"structuredContent":{value}}}'


_LESS = "ask the tool for less at a time"


def _values(text: str) -> int:
    """Return how many values JSON text holds, all that are in others included; where it is short, at most so many."""
    at_most = 1 + sum(map(text.count, ",[{"))
    if at_most <= MAX_VALUES:
        return at_most
    # Without what is in strings.
    outside = '"'.join(text.replace(r"\\", "").replace(r"\"", "").split('"')[::2])
    return 1 + sum(map(outside.count, ",[{")) - outside.count("[]") - outside.count("{}")


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


def _is_known(block: Any) -> bool:
    """Return True if the SDK sends a content block; it does not tell the revisions apart here. To ask the SDK itself
    takes long where it refuses."""
    match block:
        case {"type": "text", "text": str()}:
            pass
        case {"type": "image" | "audio", "data": str(), "mimeType": str()}:
            pass
        case {"type": "resource_link", "name": str(), "uri": str()}:
            if not (
                _all_are(str, block, "description", "mimeType", "title")
                and (_is_absent(block, "size") or type(block["size"]) is int)
                and (_is_absent(block, "icons") or _are_icons(block["icons"]))
            ):
                return False
        case {"type": "resource", "resource": {"uri": str()} as contents}:
            if not (
                any(isinstance(contents.get(key), str) for key in ("text", "blob"))
                and _all_are(str, contents, "mimeType")
                and (_is_absent(contents, "_meta") or _is_meta(contents["_meta"]))
            ):
                return False
        case _:
            return False
    return (_is_absent(block, "_meta") or _is_meta(block["_meta"])) and (
        _is_absent(block, "annotations") or _are_annotations(block["annotations"])
    )


def _is_absent(value: Mapping[str, Any], key: str) -> bool:
    return value.get(key) is None


def _all_are(kind: type, value: Mapping[str, Any], *keys: str) -> bool:
    return all(_is_absent(value, key) or isinstance(value[key], kind) for key in keys)


def _is_meta(value: Any) -> bool:
    return isinstance(value, dict) and not _is_deep(value)


def _are_annotations(value: Any) -> bool:
    if not isinstance(value, dict) or not _all_are(str, value, "lastModified") or not _all_are(list, value, "audience"):
        return False
    priority = value.get("priority")
    return (priority is None or (type(priority) in (int, float) and 0 <= priority <= 1)) and all(
        role in ("user", "assistant") for role in value.get("audience") or ()
    )


def _are_icons(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(icon, dict)
        and isinstance(icon.get("src"), str)
        and _all_are(str, icon, "mimeType")
        and _all_are(list, icon, "sizes")
        and all(isinstance(size, str) for size in icon.get("sizes") or ())
        and icon.get("theme") in (None, "dark", "light")
        for icon in value
    )


def _fits(method: str, result: Mapping[str, Any], version: str) -> bool:
    try:
        methods.serialize_server_result(method, version, _complete(result, version))
    except ValueError:
        return False
    return True


def _complete(result: Mapping[str, Any], version: str) -> dict[str, Any]:
    return {**result, "resultType": "complete"} if version in MODERN_PROTOCOL_VERSIONS else dict(result)


def failure(message: str, version: str) -> dict[str, Any]:
    return _complete({"content": [text_block(joined_halves(message))], "isError": True}, version)


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
