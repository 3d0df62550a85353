"""The sizes of the parts of a tool's result that a model sees. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def _json_size(value: Any) -> int:
    from codemode_mcp.json_text import json_text  # `serve` starts without it

    return size(json_text(value))


def seen(result: Any) -> dict[str, int]:
    """Return the fields of an event for the result of an MCP tool; an empty dict for other results.

    `text_bytes` is the size of the content blocks, which some clients show. Data of images and audio counts as nothing.
    `structured_bytes` is the size of `structuredContent` as JSON, which other clients show.
    """
    if not isinstance(result, dict):
        return {}
    content, structured = result.get("content"), result.get("structuredContent")
    if not isinstance(content, list) and structured is None:
        return {}
    sizes = {"text_bytes": sum(map(_text, content)) if isinstance(content, list) else 0}
    if structured is not None:
        sizes["structured_bytes"] = _json_size(structured)
    return sizes


def size(text: str) -> int:
    """Return the size of a text in bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _text(block: Any) -> int:
    match block:
        case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
            return size(text)
        case {"type": "image" | "audio"} | {"type": "resource", "resource": {"blob": str()}}:
            return 0
    return _json_size(block)


def of_arguments(arguments: Mapping[str, Any]) -> int:
    """Return the size of arguments as a model has written them."""
    return _json_size(arguments)
