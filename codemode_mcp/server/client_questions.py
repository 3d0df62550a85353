"""Questions of upstream servers, and of ours, as the MCP requests that put them to a client."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import mcp_types as types

from declarations.untrusted_text import drop_hidden

if TYPE_CHECKING:
    from pydantic import BaseModel

    from codemode_mcp.policy.approval import ApprovalQuestion
    from upstream_clients.tools import JsonObject, Question

Request = types.ElicitRequest | types.CreateMessageRequest | types.ListRootsRequest

PROGRAM_ASKS = "[the program]"
"""Begin of a question that a program puts. A server's begins with the server's configured name in brackets; ours never
begins with a bracket."""

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
    """Return the MCP request that puts a question: its method and params.

    Raises:
        ValueError: its params, which are an upstream's, are not valid, or nothing to show to a person.
    """
    from codemode_mcp.policy.approval import ApprovalQuestion  # not before a question: a list of tools needs none of it

    # Progress and tasks of the upstream's are nothing to this client.
    params = {key: value for key, value in question.params.items() if key not in ("_meta", "task")}
    if question.method == "elicitation/create" and not isinstance(question, ApprovalQuestion):
        # The client shows the question as ours. Whose it is must not be left to the server's own words, which could
        # also erase or imitate it.
        words = drop_hidden(str(params.get("message", "")), keep="\n").replace("\n", "\n  ")
        params["message"] = f"{PROGRAM_ASKS} {words}" if question.by_program else f"[{question.server}] {words}"
        if params.get("mode") == "url":
            if urlsplit(str(params.get("url"))).scheme not in ("http", "https"):
                raise ValueError("only pages of http and https can be opened")
            # Obliged in 2025-11-25, gone in 2026-07-28.
            params.setdefault("elicitationId", secrets.token_hex(16))
    request = REQUESTS[question.method].model_validate({"method": question.method, "params": params}, by_name=False)
    return request.model_dump(by_alias=True, mode="json", exclude_none=True)
