"""Questions as MCP requests to a client."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import mcp_types as types

from declarations.untrusted_text import drop_hidden

if TYPE_CHECKING:
    from pydantic import BaseModel

    from codemode_mcp.rules.policy.approval import ApprovalQuestion
    from upstream_clients.tools import JsonObject, Question

Request = types.ElicitRequest | types.CreateMessageRequest | types.ListRootsRequest

PROGRAM_ASKS = "[the program]"
"""First words of a program's question.

A server's question begins with the configured name of the server in brackets. Our own questions never begin with a
bracket.
"""

REQUESTS: dict[str, type[Request]] = {
    "elicitation/create": types.ElicitRequest,
    "sampling/createMessage": types.CreateMessageRequest,
    "roots/list": types.ListRootsRequest,
}
RESULTS: dict[str, type[BaseModel]] = {
    "elicitation/create": types.ElicitResult,
    "sampling/createMessage": types.CreateMessageResultWithTools,
    "roots/list": types.ListRootsResult,
}


def as_request(question: Question | ApprovalQuestion) -> JsonObject:
    """Return a question as an MCP request with method and params.

    Raises:
        ValueError: the params, which come from an upstream, are invalid or cannot be shown to a person.
    """
    from codemode_mcp.rules.policy.approval import ApprovalQuestion  # imported for the first question

    # The upstream's progress tokens and tasks mean nothing to this client.
    params = {key: value for key, value in question.params.items() if key not in ("_meta", "task")}
    if question.method == "elicitation/create" and not isinstance(question, ApprovalQuestion):
        # The client shows this question as ours, so we name its author. The text of the author could contain another
        # name, or characters that hide our words.
        words = drop_hidden(str(params.get("message", "")), keep="\n").replace("\n", "\n  ")
        params["message"] = f"{PROGRAM_ASKS} {words}" if question.by_program else f"[{question.server}] {words}"
        if params.get("mode") == "url":
            if urlsplit(str(params.get("url"))).scheme not in ("http", "https"):
                raise ValueError("only pages of http and https can be opened")
            # The id is required in revision 2025-11-25 and removed in 2026-07-28.
            params.setdefault("elicitationId", secrets.token_hex(16))
    request = REQUESTS[question.method].model_validate({"method": question.method, "params": params}, by_name=False)
    return request.model_dump(by_alias=True, mode="json", exclude_none=True)
