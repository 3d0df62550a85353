"""Answers of `exec` and `wait` as results of MCP requests. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.exposure.results import MAX_LINKS, link

if TYPE_CHECKING:
    from codemode_mcp.runs.rendering import Rendered
    from codemode_mcp.server.profiles import Profile

LINKS_SINCE: Final = "2025-06-18"
"""First revision of MCP with resource links in results."""


def tool_result(rendered: Rendered, version: str, profile: Profile, *, with_links: bool = False) -> dict[str, Any]:
    """Return a `CallToolResult` as JSON.

    Args:
        with_links: True if the client can read stored results. Their links come last, if it can take them.
    """
    repeated = rendered.is_error and profile.repeats_failures
    content = [_content_block(block, has_audio=version != "2024-11-05") for block in rendered.content]
    if with_links and version >= LINKS_SINCE and not profile.mishandles_links:
        content += map(link, rendered.stored[:MAX_LINKS])
    result: dict[str, Any] = {"content": content, "isError": rendered.is_error}
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
