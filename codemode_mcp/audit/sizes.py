"""The shapes and sizes of results, for events and for the log. Pure."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from codemode_mcp.base.text import utf8_size
from upstream_clients.redaction import cut


def _json_size(value: Any) -> int:
    from codemode_mcp.base.strict_json import json_text  # `serve` starts without it

    return utf8_size(json_text(value))


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
    sizes = {"text_bytes": sum(map(_text_size, content)) if isinstance(content, list) else 0}
    if structured is not None:
        sizes["structured_bytes"] = _json_size(structured)
    return sizes


def _text_size(block: Any) -> int:
    match block:
        case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
            return utf8_size(text)
        case {"type": "image" | "audio"} | {"type": "resource", "resource": {"blob": str()}}:
            return 0
    return _json_size(block)


def of_arguments(arguments: Mapping[str, Any]) -> int:
    """Return the size of arguments as a model has written them."""
    return _json_size(arguments)


# The shape and size of answers and results, for the log at level `debug`.
#
# A line has counts, bytes, names of fields, and types. It never has a value, because users send logs to others when
# something fails. Callers call these functions at this level only.


log = logging.getLogger("codemode_mcp.debug")

MAX_SHAPE = 2_000
"""Maximum characters of a shape."""

MAX_LOOKED_AT = 1024 * 1024
"""Maximum characters of a value whose shape is logged."""


def log_listing(tools: Iterable[Mapping[str, Any]]) -> None:
    listed = list(tools)
    text = _text(listed)
    log.debug("answer to tools/list: %d tools, %d bytes, %s", len(listed), utf8_size(text), _shape(listed, text))


def log_answer(tool: str, content: Sequence[Mapping[str, Any]], structured: Any) -> None:
    """Log the answer to a `tools/call`. `tool`: its name, escaped for one line."""
    blocks, text = _text(list(content)), _text(structured)
    log.debug(
        "answer to %s: %d blocks of content, %d bytes, %s; structured content, %d bytes, %s",
        tool,
        len(content),
        utf8_size(blocks),
        _shape(list(content), blocks),
        0 if structured is None else utf8_size(text),
        _shape(structured, text),
    )


def log_result(tool: str, text: str) -> None:
    """Log the result of a nested call, given as JSON. `tool`: its id, escaped for one line."""
    try:
        value = json.loads(text) if len(text) <= MAX_LOOKED_AT else None
    except (ValueError, RecursionError):  # ValueError: a number of thousands of digits
        value = None
    log.debug("result of %s: %d bytes, %s", tool, utf8_size(text), _shape(value, text))


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _shape(value: Any, text: str) -> str:
    from codemode_mcp.audit.redaction import shape, without_tokens  # `serve` starts without it

    if len(text) > MAX_LOOKED_AT:
        return "too large to look at"
    shown = _text(shape(value, without_tokens))
    return shown if len(shown) <= MAX_SHAPE else cut(shown, MAX_SHAPE) + "…"
