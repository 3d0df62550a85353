"""Results and tools in the form of a client's protocol revision, within bounds on their size. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
from mcp_types import methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from codemode_mcp.json_text import join_surrogates, json_text

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_PARTS: Final = 10_000
"""Most content blocks of a result."""

MAX_VALUES: Final = 100_000
"""Most JSON values in a result. The SDK validates each value several times, and blocks all clients meanwhile."""

MAX_DEPTH: Final = 200
"""Most levels of JSON within a part of a result. The SDK fails to serialize 250 levels."""

TOOL = types.Tool.model_validate


def fit_tool(tool: dict[str, Any], version: str) -> dict[str, Any] | None:
    """Return a tool in a form that is valid in a revision, without its schemas if necessary; None if there is none."""
    without_output = {key: value for key, value in tool.items() if key != "outputSchema"}
    any_object = {**without_output, "inputSchema": {"type": "object"}}
    for form in (tool, without_output, any_object):
        if _is_valid("tools/list", {"tools": [form], "ttlMs": 0, "cacheScope": "private"}, version):
            return form
    return None


def result_for(name: str, text: str, version: str) -> dict[str, Any]:
    """Return a tool's result, given as JSON, in the form of the client's protocol revision.

    A content block of an unknown type becomes text, so that nothing is lost. The work blocks the event loop, so the
    size of the result is bounded.
    """
    if (count := _count_values(text)) > MAX_VALUES:
        return failure(f"{name}: the result has {count} values, more than {MAX_VALUES}; {_ASK_FOR_LESS}", version)
    result = json.loads(join_surrogates(text))
    blocks = result.get("content", [])
    if len(blocks) > MAX_PARTS:
        return failure(f"{name}: the result has {len(blocks)} parts, more than {MAX_PARTS}; {_ASK_FOR_LESS}", version)
    content = [block if _is_known(block) else text_block(json_text(block)) for block in blocks]
    fitted: dict[str, Any] = {"content": content}
    if "isError" in result:
        fitted["isError"] = result["isError"]
    if _is_meta(result.get("_meta")):
        fitted["_meta"] = result["_meta"]
    structured = result.get("structuredContent")
    if structured is not None:
        # Until 2025-11-25, structured content is an object.
        if (isinstance(structured, dict) or version in MODERN_PROTOCOL_VERSIONS) and not _is_deep(structured):
            fitted["structuredContent"] = structured
        if not content:
            # Many clients show their model only the content.
            content.append(text_block(json_text(structured)))
    return _complete(fitted, version)


def result_of(value: str) -> str:
    """Return data as a tool's result with structured content and text. Both are JSON."""
    shown = json.loads(value)
    text = shown if isinstance(shown, str) else value
    return f'{{"content":[{{"type":"text","text":{json_text(text)}}}],"structuredContent":{value}}}'


_ASK_FOR_LESS = "ask the tool for less at a time"


def _count_values(text: str) -> int:
    """Return the number of JSON values in a text, nested ones included, or an upper bound if that is within the limit.

    Counting characters is enough: each value follows a comma or an opening bracket, except the outermost one.
    """
    at_most = 1 + sum(map(text.count, ",[{"))
    if at_most <= MAX_VALUES:
        return at_most
    # Ignore the contents of strings.
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
    """Return True if a content block is valid MCP."""
    # One model is chosen by the type. The union of all models is slow if each of them refuses a block.
    model = _BLOCKS.get(str(block.get("type"))) if isinstance(block, dict) else None
    if model is None or _is_deep(block):
        return False
    try:
        model.model_validate(block, by_name=False)
    except ValidationError:
        return False
    return True


_BLOCKS: Final[Mapping[str, type[BaseModel]]] = {
    "text": types.TextContent,
    "image": types.ImageContent,
    "audio": types.AudioContent,
    "resource_link": types.ResourceLink,
    "resource": types.EmbeddedResource,
}


def _is_meta(value: Any) -> bool:
    return isinstance(value, dict) and not _is_deep(value)


def _is_valid(method: str, result: Mapping[str, Any], version: str) -> bool:
    try:
        methods.serialize_server_result(method, version, _complete(result, version))
    except ValueError:
        return False
    return True


def _complete(result: Mapping[str, Any], version: str) -> dict[str, Any]:
    return {**result, "resultType": "complete"} if version in MODERN_PROTOCOL_VERSIONS else dict(result)


def failure(message: str, version: str) -> dict[str, Any]:
    """Return a result with `isError` and a text."""
    return _complete({"content": [text_block(join_surrogates(message))], "isError": True}, version)


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
