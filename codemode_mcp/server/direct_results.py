"""The ends of direct calls, as results of MCP requests. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from codemode_mcp.json_text import join_surrogates
from codemode_mcp.server.protocol_fit import failure, result_for, result_of, text_block

if TYPE_CHECKING:
    from codemode_mcp.server.direct_calls import Answer


def tool_result(name: str, answer: Answer, version: str) -> dict[str, Any]:
    """Return the end of a direct call of a tool as a `CallToolResult`, in the form of a protocol revision."""
    if answer.failure is not None:
        return failure(answer.failure, version)
    result = result_for(name, result_of(answer.value) if answer.plain else answer.value, version)
    result["content"].extend(text_block(join_surrogates(note)) for note in answer.notes)
    return result
