"""Result types of tools without an output schema, learned from earlier results, for each owner. Pure.

The types are kept in memory, within bounds. A type has the kinds of values, the names of properties, and the properties
that are always present. For a text that is no JSON, it has the kind, such as CSV. It has no value of a result, no part
of a text, and no key that looks like data (ids, dates, addresses, tokens); see `declarations.observed`. A run sees the
types that were known at its start. Types are not part of the manifest, so the warm image stays valid. Only files and
signatures with changed types are rendered again.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from codemode_mcp.base.strict_json import no_constant, result_text
from declarations.observed import NOTHING, Shape, Text, merge, to_schema

MAX_TEXT: Final = 256 * 1024
"""Maximum number of characters of a result's text that is read as JSON. A longer text is ignored."""
MAX_TOOLS: Final = 500
"""Maximum number of tools of one owner. The least recently called one is forgotten first."""
MAX_TOOLS_OF_ALL: Final = 2_000
"""Maximum number of tools of all owners."""
SETTLED: Final = 20
"""Number of successive results without a change after which only one result in `ONE_IN` is read."""
ONE_IN: Final = 10


class _Seen(Struct):
    """The type of one tool's results. `schema` is made from `shape` on demand."""

    shape: Shape = NOTHING
    schema: dict[str, Any] | None = None
    unchanged: int = 0
    skipped: int = 0


class ObservedTypes:
    """The observed types of all owners."""

    def __init__(self) -> None:
        self._owners: OrderedDict[str, OrderedDict[str, _Seen]] = OrderedDict()
        self._count = 0
        self._schemas: dict[str, Mapping[str, Mapping[str, Any]]] = {}

    def __repr__(self) -> str:
        return f"<ObservedTypes: {self._count} tools of {len(self._owners)} owners>"

    def learn(self, owner: str, tool: str, result: Mapping[str, Any] | str) -> None:
        """Learn from the result of a successful call.

        Args:
            tool: the id of the tool.
            result: the MCP result object, or its JSON.
        """
        tools = self._owners.get(owner)
        seen = None if tools is None else tools.get(tool)
        if seen is not None and seen.unchanged >= SETTLED:
            seen.skipped += 1
            if seen.skipped % ONE_IN:
                return
        value = _unwrapped(json.loads(result) if isinstance(result, str) else result)
        if value is _NO_VALUE:
            return
        if tools is None:
            tools = self._owners[owner] = OrderedDict()
        if seen is None:
            seen = tools[tool] = _Seen()
            self._count += 1
        tools.move_to_end(tool)
        self._owners.move_to_end(owner)
        shape = merge(seen.shape, value)
        if shape == seen.shape:
            seen.unchanged += 1
            return
        seen.shape, seen.schema, seen.unchanged = shape, None, 0
        self._schemas.pop(owner, None)
        while len(tools) > MAX_TOOLS:
            self._drop(owner, next(iter(tools)))
        while self._count > MAX_TOOLS_OF_ALL:
            oldest, its_tools = next(iter(self._owners.items()))
            self._drop(oldest, next(iter(its_tools)))

    def of(self, owner: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the observed types as immutable JSON Schemas, by tool id.

        The schema of an unchanged type is the same object as before.
        """
        schemas = self._schemas.get(owner)
        if schemas is None:
            made = {}
            for tool, seen in self._owners.get(owner, {}).items():
                if seen.schema is None:
                    seen.schema = to_schema(seen.shape)
                if seen.schema:
                    made[tool] = seen.schema
            schemas = made
            if owner in self._owners:
                self._schemas[owner] = schemas
        return schemas

    def retain(self, owner: str, wanted: Callable[[str], bool]) -> None:
        """Forget the owner's tools for which `wanted` returns False: they were removed, or declare a schema now."""
        for tool in [tool for tool in self._owners.get(owner, ()) if not wanted(tool)]:
            self._drop(owner, tool)

    def _drop(self, owner: str, tool: str) -> None:
        tools = self._owners[owner]
        del tools[tool]
        self._count -= 1
        self._schemas.pop(owner, None)
        if not tools:
            del self._owners[owner]


_NO_VALUE: Final = object()


def _unwrapped(result: Mapping[str, Any]) -> object:
    """Return the value that `unwrap` gives a program; `_NO_VALUE` for an error or a result that is too large."""
    if result.get("isError"):
        return _NO_VALUE
    structured = result.get("structuredContent")
    if structured is not None:
        return structured
    text = result_text(result.get("content"))
    if text is None or len(text) > MAX_TEXT:
        return _NO_VALUE
    try:
        return json.loads(text, parse_int=_integer, parse_float=_number, parse_constant=no_constant)
    except ValueError:
        return Text(text)
    except RecursionError:
        return _NO_VALUE


def _integer(digits: str) -> int | str:
    """Return an integer. One of thousands of digits, which Python does not convert, is a string in programs, too."""
    try:
        return int(digits)
    except ValueError:
        return digits


def _number(_: str) -> float:
    return 0.0
