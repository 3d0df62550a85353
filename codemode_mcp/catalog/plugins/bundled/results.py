"""Tools for values that are kept between programs: `core:results:list` and `core:results:load`.

`load(ref)` in a program returns a whole value. These tools list values, and return parts of large ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import anyio.to_thread

from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.catalog.plugins.api import PluginApi, PluginTool, ToolContext, ToolError
from upstream_clients.tools import Annotations

MAX_LISTED = 200
"""Maximum number of entries in one list."""

LARGE = 100_000
"""Characters above which JSON is parsed in a thread."""

_READ_ONLY = Annotations(read_only=True, destructive=False, idempotent=True, open_world=False)


class Listed(Protocol):
    """An entry, such as `values.Listed`."""

    @property
    def key(self) -> str: ...

    @property
    def characters(self) -> int:
        """Number of characters of its JSON."""
        ...

    @property
    def preview(self) -> str: ...


class Page(Protocol):
    """Some entries of an owner and the number of all, such as `values.Page`."""

    @property
    def total(self) -> int: ...

    @property
    def entries(self) -> Sequence[Listed]: ...


class ValueStore(Protocol):
    """A store of values, such as `values.Values`."""

    async def listed(self, owner: str, offset: int, limit: int) -> Page:
        """Return some entries of an owner."""
        ...

    async def load(self, owner: str, key: str) -> str | None:
        """Return the JSON text under a key, or None."""
        ...


_LIST_INPUT = {
    "type": "object",
    "properties": {
        "offset": {"type": "integer", "minimum": 0, "default": 0},
        "limit": {"type": "integer", "minimum": 1, "maximum": MAX_LISTED, "default": 50},
    },
    "additionalProperties": False,
}
_LIST_OUTPUT = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "key": {"type": "string", "description": "for load()"},
                    "kind": {"enum": ["result", "stored"]},
                    "characters": {"type": "integer", "description": "of its JSON"},
                    "preview": {"type": "string"},
                },
                "required": ["key", "kind", "characters", "preview"],
            },
        },
        "total": {"type": "integer"},
    },
    "required": ["items", "total"],
}
_LOAD_INPUT = {
    "type": "object",
    "properties": {
        "key": {"type": "string", "description": "the ref of a truncated result, or a key given to store()"},
        "offset": {"type": "integer", "minimum": 0, "default": 0},
        "limit": {"type": "integer", "minimum": 1, "description": "items, entries or characters; default: all"},
    },
    "required": ["key"],
    "additionalProperties": False,
}
_LOAD_OUTPUT = {
    "type": "object",
    "properties": {
        "key": {"type": "string"},
        "type": {"enum": ["array", "object", "string", "number", "boolean", "null"]},
        "total": {"type": "integer", "description": "items, entries or characters of the whole; 1 for other values"},
        "offset": {"type": "integer"},
        "value": {"description": "the part: of an array an array, of an object an object, of a string a string"},
    },
    "required": ["key", "type", "total", "offset", "value"],
}


def register(api: PluginApi, values: Callable[[], ValueStore]) -> None:
    """Register the tools, for callers whose values are kept."""

    def create(context: ToolContext) -> list[PluginTool] | None:
        return _tools(values, context.owner) if context.owner else None

    api.tools(("list", "load"), create)


def _tools(values: Callable[[], ValueStore], owner: str) -> list[PluginTool]:
    async def list_(given: Any) -> dict[str, Any]:
        try:
            page = await values().listed(owner, given.get("offset", 0), given.get("limit", 50))
        except CodeModeError as error:
            raise ToolError(error.message) from None
        return {
            "items": [
                {
                    "key": each.key,
                    "kind": "result" if each.key.startswith("result:") else "stored",
                    "characters": each.characters,
                    "preview": each.preview,
                }
                for each in page.entries
            ],
            "total": page.total,
        }

    async def load(given: Any) -> dict[str, Any]:
        key: str = given["key"]
        try:
            text = await values().load(owner, key)
        except CodeModeError as error:
            raise ToolError(error.message) from None
        if text is None:
            raise ToolError(f"no value is stored under {key[:100]!r}; core:results:list lists the stored ones")
        if len(text) > LARGE:
            value = await anyio.to_thread.run_sync(json.loads, text)
        else:
            value = json.loads(text)
        return {"key": key, **_part(value, given.get("offset", 0), given.get("limit"))}

    return [
        PluginTool(
            name="list",
            description="List the kept values: results that were too large to show, and values given to store().",
            run=list_,
            input=_LIST_INPUT,
            output=_LIST_OUTPUT,
            label="List kept results",
            annotations=_READ_ONLY,
        ),
        PluginTool(
            name="load",
            description="Return a kept value or a part of it. offset and limit count items, entries or characters.",
            run=load,
            input=_LOAD_INPUT,
            output=_LOAD_OUTPUT,
            label="Load a kept result",
            annotations=_READ_ONLY,
        ),
    ]


def _part(value: Any, offset: int, limit: int | None) -> dict[str, Any]:
    end = None if limit is None else offset + limit
    match value:
        case list():
            return {"type": "array", "total": len(value), "offset": offset, "value": value[offset:end]}
        case dict():
            entries = list(value.items())[offset:end]
            return {"type": "object", "total": len(value), "offset": offset, "value": dict(entries)}
        case str():
            return {"type": "string", "total": len(value), "offset": offset, "value": value[offset:end]}
        case None:
            kind = "null"
        case bool():
            kind = "boolean"
        case _:
            kind = "number"
    return {"type": kind, "total": 1, "offset": 0, "value": value}
