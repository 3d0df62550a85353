"""Sizes of the parts of a tool's result that a model sees. Pure; sizes only, never contents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def _json_size(value: Any) -> int:
    from codemode_mcp.json_text import json_text  # `serve` starts without it

    return size(json_text(value))


def seen(result: Any) -> dict[str, int]:
    """Fields of an event for an MCP tool's result; none for what is not one.

    `text_bytes`: of its content blocks, for clients that show these; data of pictures and sounds is no text and counts
    as nothing. `structured_bytes`: of its `structuredContent` as JSON, which some clients show instead.
    """
    if not isinstance(result, dict):
        return {}
    content, structured = result.get("content"), result.get("structuredContent")
    if not isinstance(content, list) and structured is None:
        return {}
    told = {"text_bytes": sum(map(_text, content)) if isinstance(content, list) else 0}
    if structured is not None:
        told["structured_bytes"] = _json_size(structured)
    return told


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
    """Return what a model has written to call a tool with these."""
    return _json_size(arguments)
