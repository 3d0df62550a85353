"""MCP result objects to outcomes: the only place where a `tools/call` result is unwrapped. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from upstream_clients.large_results import text_of
from upstream_clients.tools import JsonObject, ToolOutcome

OutputCheck = Callable[[object], str | None]
"""Says what is wrong with a `structuredContent`, or nothing."""


def read_outcome(raw: object, check_output: OutputCheck | None = None) -> ToolOutcome:
    """Return the outcome of one raw `tools/call` result; odd parts are repaired and noted, never refused.

    `structuredContent` is passed on even when `check_output` objects to it. A result that needs no repair is passed on
    as the object that it is; a large one keeps its text.
    """
    if not isinstance(raw, dict):
        return ToolOutcome({"content": [_text_block(raw)]}, ("the result was no object; it is shown as text",))
    notes: list[str] = []
    result: dict[str, Any] = raw
    if not is_plain(raw):
        result = without_plumbing(raw)
        _repair_content(result, notes)
        if not isinstance(result.get("isError", False), bool):
            notes.append("isError was neither true nor false; taken as an error")
            result["isError"] = True
    structured = result.get("structuredContent")
    if check_output is not None and not result.get("isError"):
        if structured is None:
            notes.append("the tool declares an output schema, but its result has no structuredContent")
        elif (complaint := check_output(structured)) is not None:
            notes.append(f"structuredContent does not match the tool's own output schema: {complaint}")
    return ToolOutcome(result, tuple(notes), text_of(result))


def is_plain(raw: JsonObject) -> bool:
    """Tell whether `read_outcome` gives a result as it is, without any repair."""
    content, meta = raw.get("content"), raw.get("_meta")
    return (
        _PLUMBING.isdisjoint(raw)
        and isinstance(content, list)
        and all(isinstance(block, dict) for block in content)
        and isinstance(raw.get("isError", False), bool)
        and not (isinstance(meta, dict) and _IDENTITY in meta)
    )


def without_plumbing(raw: JsonObject) -> dict[str, Any]:
    """Return a result without what the modern revision (2026-07-28) adds for the client alone: the kind of result, how
    long it may be cached, and the server's identity stamp."""
    result = {key: value for key, value in raw.items() if key not in _PLUMBING}
    meta = result.get("_meta")
    if isinstance(meta, dict) and _IDENTITY in meta:
        rest = {key: value for key, value in meta.items() if key != _IDENTITY}
        if rest:
            result["_meta"] = rest
        else:
            del result["_meta"]
    return result


_PLUMBING = frozenset({"resultType", "ttlMs", "cacheScope"})
_IDENTITY = "io.modelcontextprotocol/serverInfo"


def needs_input(raw: JsonObject) -> bool:
    """Return True if a modern server asks the client for something instead of giving its result."""
    return raw.get("resultType") == "input_required"


class InputRequired(NamedTuple):
    """Input that a modern server needs before it continues a call.

    Attributes:
        requests: method and params of each question, by the server's own keys.
        state: what belongs into the params of the repeated request besides the answers, unread.
    """

    requests: Mapping[str, tuple[str, JsonObject]]
    state: Mapping[str, object]


def read_input_required(raw: JsonObject, methods: Collection[str]) -> InputRequired:
    """Raises `ValueError`, with a text that says what is wrong, for what is malformed or asks by another method."""
    state = {key: raw[key] for key in ("requestState",) if raw.get(key) is not None}
    asked = raw.get("inputRequests")
    if asked is None:
        asked = {}
    if not isinstance(asked, dict):
        raise ValueError("inputRequests is no object")
    if not asked and not state:
        raise ValueError("it holds neither inputRequests nor requestState")
    requests: dict[str, tuple[str, JsonObject]] = {}
    for key, item in asked.items():
        match item:
            case {"method": str() as method} if method in methods:
                params = {} if item.get("params") is None else item["params"]
            case {"method": str() as method}:
                raise ValueError(f"{method[:100]!r} is none of {', '.join(sorted(methods))}")
            case _:
                raise ValueError(f"inputRequests.{key[:100]} names no method")
        if not isinstance(params, dict):
            raise ValueError(f"params of inputRequests.{key[:100]} is no object")
        requests[key] = (method, params)
    return InputRequired(requests, state)


def _repair_content(result: dict[str, Any], notes: list[str]) -> None:
    content = result.get("content")
    match content:
        case list():
            blocks = [block if isinstance(block, dict) else _text_block(block) for block in content]
            if any(not isinstance(block, dict) for block in content):
                notes.append("some content blocks were no objects; they are shown as text")
                result["content"] = blocks
        case None:
            if "structuredContent" not in result:
                notes.append("the result had neither content nor structuredContent")
            result["content"] = []
        case dict():
            notes.append("content was one block, not a list; wrapped")
            result["content"] = [content]
        case _:
            notes.append("content was no list; it is shown as text")
            result["content"] = [_text_block(content)]


def _text_block(value: object) -> dict[str, str]:
    return {"type": "text", "text": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}
