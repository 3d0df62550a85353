"""Answers of `exec` and `wait` as results of MCP requests. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codemode_mcp.runs.rendering import Rendered
    from codemode_mcp.server.profiles import Profile


def tool_result(rendered: Rendered, version: str, profile: Profile) -> dict[str, Any]:
    """Return a `CallToolResult` as JSON."""
    repeated = rendered.is_error and profile.repeats_failures
    result: dict[str, Any] = {
        "content": [_content_block(block, has_audio=version != "2024-11-05") for block in rendered.content],
        "isError": rendered.is_error,
    }
    if not profile.shows_structured and not repeated:
        result["structuredContent"] = rendered.structured
    if rendered.meta and not repeated:
        result["_meta"] = rendered.meta
    return result


def _content_block(block: dict[str, Any], *, has_audio: bool) -> dict[str, Any]:
    """Return a content block as MCP has it. Audio becomes a resource for revisions without audio."""
    if block["type"] == "resource":
        resource = block["resource"]
    elif block["type"] != "audio" or has_audio:
        return {name: block[name] for name in ("type", "text", "data", "mimeType") if name in block}
    else:
        resource = {"uri": "data:" + block["mimeType"], "mimeType": block["mimeType"], "blob": block["data"]}
    contents = {name: resource[name] for name in ("uri", "mimeType", "blob", "_meta") if resource.get(name) is not None}
    return {"type": "resource", "resource": contents}
