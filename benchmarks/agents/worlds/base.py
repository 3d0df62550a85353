"""The base of the servers of the tasks: tables in memory, and tools that read and change them. Pure.

The data of a server is the same in every process. So the right answer to a task is computed from the same tables.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

Row = dict[str, Any]
Tables = dict[str, list[Row]]
Schema = dict[str, Any]


class ToolError(Exception):
    """A call that a tool refuses; its text is what the caller reads."""


@dataclass(frozen=True)
class Tool:
    """One tool of a server.

    Attributes:
        sought: words by which a model looks for this tool in a search.
        writes: True if the tool changes a table.
    """

    name: str
    description: str
    sought: str
    parameters: dict[str, Schema]
    required: tuple[str, ...]
    output: Schema | None
    writes: bool
    function: Callable[..., Any]

    @property
    def input_schema(self) -> Schema:
        schema: Schema = {"type": "object", "properties": self.parameters, "additionalProperties": False}
        return {**schema, "required": list(self.required)} if self.required else schema

    def listed(self, structured: bool) -> Schema:
        """Return the tool as in `tools/list`."""
        entry: Schema = {"name": self.name, "description": self.description, "inputSchema": self.input_schema}
        if structured and self.output is not None:
            entry["outputSchema"] = self.output
        return {**entry, "annotations": {"readOnlyHint": not self.writes, "openWorldHint": False}}


def text(description: str, *, one_of: tuple[str, ...] = ()) -> Schema:
    return {"type": "string", "description": description, **({"enum": list(one_of)} if one_of else {})}


def number(description: str, minimum: int = 0, maximum: int | None = None) -> Schema:
    limits = {"minimum": minimum} if maximum is None else {"minimum": minimum, "maximum": maximum}
    return {"type": "integer", "description": description, **limits}


def texts(description: str) -> Schema:
    return {"type": "array", "items": {"type": "string"}, "description": description}


def optional(schema: Schema) -> Schema:
    return {**schema, "optional": True}


def record(**fields: str | Schema) -> Schema:
    """Return the schema of an object; a type with a question mark can be null."""
    properties = {name: _field(kind) for name, kind in fields.items()}
    return {"type": "object", "properties": properties, "required": list(fields)}


def rows(**fields: str | Schema) -> Schema:
    return {"type": "array", "items": record(**fields)}


def _field(kind: str | Schema) -> Schema:
    if isinstance(kind, dict):
        return kind
    return {"type": [kind[:-1], "null"]} if kind.endswith("?") else {"type": kind}


def tool(
    sought: str, *, output: Schema | None = None, writes: bool = False, **parameters: Schema
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a method a tool; its docstring is the description."""

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        required = tuple(name for name, schema in parameters.items() if not schema.get("optional"))
        plain = {name: {k: v for k, v in schema.items() if k != "optional"} for name, schema in parameters.items()}
        description = " ".join((function.__doc__ or "").split())
        made = Tool(function.__name__, description, sought, plain, required, output, writes, function)
        function.tool = made  # type: ignore[attr-defined]
        return function

    return mark


class World:
    """One server with its data.

    Attributes:
        structured: results have `structuredContent`, and tools have output schemas; otherwise results are JSON in text.
    """

    name: ClassVar[str]
    instructions: ClassVar[str]
    structured: ClassVar[bool] = True

    def __init__(self, tables: Tables | None = None) -> None:
        self.tables = copy.deepcopy(self.make() if tables is None else tables)

    @classmethod
    def make(cls) -> Tables:
        """Return the data that the server begins with."""
        raise NotImplementedError

    @classmethod
    def tools(cls) -> dict[str, Tool]:
        found = (getattr(value, "tool", None) for value in vars(cls).values())
        return {each.name: each for each in found if each is not None}

    def call(self, name: str, arguments: Row) -> Any:
        """Return the value that a tool gives.

        Raises:
            ToolError: the tool is unknown, an argument is wrong, or the tool refuses the call.
        """
        made = self.tools().get(name)
        if made is None:
            raise ToolError(f"There is no tool {name}.")
        _check(made, arguments)
        return made.function(self, **arguments)

    def find(self, table: str, key: str, value: Any) -> Row:
        """Return the row with a value, or refuse."""
        found = next((row for row in self.tables[table] if row[key] == value), None)
        if found is None:
            raise ToolError(f"There is nothing with {key} {value} in {table}.")
        return found


def _check(made: Tool, arguments: Row) -> None:
    if unknown := sorted(set(arguments) - set(made.parameters)):
        raise ToolError(f"{made.name} has no argument {unknown[0]}; it has {', '.join(made.parameters)}.")
    if missing := [name for name in made.required if name not in arguments]:
        raise ToolError(f"{made.name} needs the argument {missing[0]}.")
    kinds: dict[str, type] = {"string": str, "integer": int, "array": list}
    for name, value in arguments.items():
        schema = made.parameters[name]
        if not isinstance(value, kinds[schema["type"]]) or isinstance(value, bool):
            raise ToolError(f"{name} must be of type {schema['type']}.")
        if "enum" in schema and value not in schema["enum"]:
            raise ToolError(f"{name} must be one of {', '.join(schema['enum'])}.")
        if "maximum" in schema and value > schema["maximum"]:
            raise ToolError(f"{name} must be at most {schema['maximum']}.")
        if "minimum" in schema and value < schema["minimum"]:
            raise ToolError(f"{name} must be at least {schema['minimum']}.")


def page(items: list[Row], cursor: str | None, size: int, key: str) -> Row:
    """Return one page of items and the cursor of the next page, which is null at the end."""
    if cursor is not None and not cursor.removeprefix("after-").isdecimal():
        raise ToolError(f"{cursor} is no cursor; pass on next_cursor of the page before.")
    start = 0 if cursor is None else int(cursor.removeprefix("after-"))
    end = start + size
    return {key: items[start:end], "next_cursor": f"after-{end}" if end < len(items) else None}


def only(row: Row, *keys: str) -> Row:
    return {key: row[key] for key in keys}
