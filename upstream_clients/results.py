"""The outcome of a raw `tools/call` result, with repairs, and the text of large results. Pure."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from upstream_clients.jsonrpc import SERVER_INFO
from upstream_clients.tools import JsonObject, ToolOutcome

OutputCheck = Callable[[object], str | None]
"""A function that returns the problem of a `structuredContent`, or None."""


def read_outcome(raw: object, check_output: OutputCheck | None = None) -> ToolOutcome:
    """Return the outcome of one raw `tools/call` result. Malformed parts are repaired and noted, never refused.

    `structuredContent` is passed on even if `check_output` finds a problem. A result that needs no repair is passed on
    as the same object; a large one keeps its text.
    """
    if not isinstance(raw, dict):
        return ToolOutcome({"content": [_text_block(raw)]}, ("the result was not an object; it is shown as text",))
    notes: list[str] = []
    result: dict[str, Any] = raw
    if not _is_plain(raw):
        result = without_client_fields(raw)
        _repair_content(result, notes)
        if not isinstance(result.get("isError", False), bool):
            notes.append("isError was neither true nor false; taken as an error")
            result["isError"] = True
    structured = result.get("structuredContent")
    if check_output is not None and not result.get("isError"):
        if "structuredContent" not in result:
            notes.append("the tool declares an output schema, but its result has no structuredContent")
        elif (problem := check_output(structured)) is not None:
            notes.append(f"structuredContent does not match the tool's own output schema: {problem}")
    return ToolOutcome(result, tuple(notes), text_of(result))


def _is_plain(raw: JsonObject) -> bool:
    content, meta = raw.get("content"), raw.get("_meta")
    return (
        _CLIENT_FIELDS.isdisjoint(raw)
        and isinstance(content, list)
        and all(isinstance(block, dict) for block in content)
        and isinstance(raw.get("isError", False), bool)
        and not (isinstance(meta, dict) and SERVER_INFO in meta)
    )


def without_client_fields(raw: JsonObject) -> dict[str, Any]:
    """Return a result without the fields that MCP 2026-07-28 adds for the client alone.

    These are the kind of result, the time for which it may be cached, and the server's name and version.
    """
    result = {key: value for key, value in raw.items() if key not in _CLIENT_FIELDS}
    meta = result.get("_meta")
    if isinstance(meta, dict) and SERVER_INFO in meta:
        rest = {key: value for key, value in meta.items() if key != SERVER_INFO}
        if rest:
            result["_meta"] = rest
        else:
            del result["_meta"]
    return result


_CLIENT_FIELDS = frozenset({"resultType", "ttlMs", "cacheScope"})


def needs_input(raw: JsonObject) -> bool:
    return raw.get("resultType") == "input_required"


def is_task(raw: JsonObject) -> bool:
    return raw.get("resultType") == "task"


def is_unfinished(raw: JsonObject) -> bool:
    return raw.get("resultType") in ("input_required", "task")


def _repair_content(result: dict[str, Any], notes: list[str]) -> None:
    content = result.get("content")
    match content:
        case list():
            blocks = [block if isinstance(block, dict) else _text_block(block) for block in content]
            if any(not isinstance(block, dict) for block in content):
                notes.append("some content blocks were not objects; they are shown as text")
                result["content"] = blocks
        case None:
            if "structuredContent" not in result:
                notes.append("the result had neither content nor structuredContent")
            result["content"] = []
        case dict():
            notes.append("content was one block, not a list; wrapped")
            result["content"] = [content]
        case _:
            notes.append("content was not a list; it is shown as text")
            result["content"] = [_text_block(content)]


def _text_block(value: object) -> dict[str, str]:
    return {"type": "text", "text": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}


# Large results, which keep their text, and whose memory is freed in steps if they are very large.
#
# Freeing a million objects takes a tenth of a second, in which no other thread can run. So when a very large result is
# dropped, a thread frees it piece by piece.


FREE_IN_STEPS_CHARACTERS = 8 * 1024 * 1024
"""Size in characters from which a result is freed in steps. Freeing a smaller one takes a few milliseconds at most."""

_STEP = 1000
"""Members of a container that are freed in one step, with their contents if they are small."""

_SMALL = 100
"""Maximum number of members of a small container. A small container has no containers in it."""

_CONTAINERS = (dict, list)


class LargeResult(dict[str, Any]):
    """A result that is too large to be encoded again.

    Attributes:
        text: the result as JSON text, as the server has sent it.
    """

    __slots__ = ("text",)

    def __init__(self, result: dict[str, Any], text: str) -> None:
        super().__init__(result)
        self.text = text

    def __del__(self) -> None:
        if len(self.text) >= FREE_IN_STEPS_CHARACTERS:
            # Cleared, so that only `parts` refers to the contents when the thread looks.
            parts = list(self.values())
            self.clear()
            with suppress(RuntimeError):  # the interpreter is shutting down, or there are too many threads
                threading.Thread(target=free_in_steps, args=(parts,), daemon=True, name="large-result").start()


def text_of(result: object) -> str | None:
    """Return the server's own JSON text of a result, if it was kept."""
    return result.text if isinstance(result, LargeResult) else None


def free_in_steps(parts: list[Any]) -> None:
    """Free in steps all objects that only this list refers to. Objects with other references stay unchanged."""
    while parts:
        part = parts.pop()
        # Two references: the variable, and the argument of `getrefcount`.
        if type(part) not in _CONTAINERS or sys.getrefcount(part) > 2:
            continue
        while part:
            if type(part) is list:
                some = part[-_STEP:]
                del part[-_STEP:]
            else:
                some = [part.popitem()[1] for _ in range(min(_STEP, len(part)))]
            # Large containers are freed later, in steps of their own. Everything else is freed here, with `some`.
            parts.extend([each for each in some if type(each) in _CONTAINERS and not _is_small(each)])
            del some


def _is_small(container: Any) -> bool:
    members = container.values() if type(container) is dict else container
    return len(container) <= _SMALL and not any(type(each) in _CONTAINERS for each in members)
