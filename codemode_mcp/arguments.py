"""Arguments of a nested call, checked against the tool's input schema before anything is sent (SPEC 5)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from codemode_mcp.bridge import Absent, whole_characters
from codemode_mcp.errors import ProgramError
from upstream_clients.schemas import UnusableSchema, compile_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import jsonschema_rs

    from codemode_mcp.bridge import ToolCall

MAX_DEPTH = 100
"""Levels of nesting that every MCP implementation on the way can be relied on to take."""

_MAX_PROBLEMS = 20
_MAX_CACHED = 4096


class ArgumentChecker:
    """Compiles each schema once and checks arguments with it.

    A schema that does not compile, that refers to something outside itself, or whose patterns cannot be matched in
    linear time is not used: its tool checks its own arguments.
    """

    def __init__(self) -> None:
        # By identity of the schema, which is kept with its validator so that the identity stays its own.
        self._validators: dict[int, tuple[Mapping[str, Any], jsonschema_rs.Validator | None]] = {}

    def prepare(
        self, call: ToolCall, expression: str, schema: Mapping[str, Any], signature: Callable[[], str]
    ) -> dict[str, Any]:
        """The object to send for a call, top-level defaults filled in.

        Args:
            expression: what the program wrote, for messages.
            signature: asked for when something is wrong.

        Raises:
            ProgramError: `nested_tool_failed` with every problem by its path, and the signature.
        """
        if call.count > 1:
            raise _problems(expression, [f"takes one object, but was given {call.count} arguments"], signature())
        given = _read(call, expression, signature)
        if not isinstance(given, dict):
            raise _problems(expression, [f"takes one plain object, but was given {_kind(given)}"], signature())
        arguments = _with_defaults(given, schema)
        validator = self._validator(schema)
        if validator is not None:
            problems = []
            for error in validator.iter_errors(arguments):
                problems.append(f"{_path(error.instance_path)}: {_clip(error.message)}")
                if len(problems) == _MAX_PROBLEMS:
                    problems.append("… and more")
                    break
            if problems:
                raise _problems(expression, problems, signature())
        return arguments

    def _validator(self, schema: Mapping[str, Any]) -> jsonschema_rs.Validator | None:
        found = self._validators.get(id(schema))
        if found is None:
            if len(self._validators) >= _MAX_CACHED:
                self._validators.clear()
            try:
                validator = compile_schema(schema)
            except UnusableSchema:
                validator = None
            found = self._validators[id(schema)] = (schema, validator)
        return found[1]


def _read(call: ToolCall, expression: str, signature: Callable[[], str]) -> Any:
    if isinstance(call.input, Absent):
        return {}
    try:
        given = json.loads(whole_characters(call.input), parse_float=_finite)
    except ValueError:
        problem = "its input has a number that is too large"
        raise _problems(expression, [problem], signature()) from None
    except RecursionError:
        given = _TOO_DEEP
    if given is _TOO_DEEP or _deeper_than(given, MAX_DEPTH):
        raise _problems(expression, [f"its input is nested deeper than {MAX_DEPTH} levels"], signature())
    return given


def _finite(text: str) -> float:
    # A program can write any number with JSON.rawJSON.
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(text)
    return number


def _deeper_than(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


_TOO_DEEP = object()


def _with_defaults(given: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return given
    defaults = {
        name: rule["default"]
        for name, rule in properties.items()
        if name not in given and isinstance(rule, dict) and "default" in rule
    }
    return {**given, **defaults} if defaults else given


def _problems(expression: str, problems: list[str], signature: str) -> ProgramError:
    listed = "\n".join(f"- {problem}" for problem in problems)
    return ProgramError(
        "nested_tool_failed", f"{expression}: invalid arguments, nothing was sent.\n{listed}\nSignature: {signature}"
    )


def _path(parts: list[str | int]) -> str:
    text = "input"
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case list():
            return "an array"
        case bool():
            kind = "boolean"
        case str():
            kind = "string"
        case _:
            kind = "number"
    return f"the {kind} {_clip(json.dumps(value), 60)}"


def _clip(text: str, limit: int = 300) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
