"""Compile the JSON Schemas that upstreams send, none of which is trusted.

A schema may name remote documents, hold patterns that take exponential time, or refer to itself so often that checking
one small value never ends. Such schemas give no check at all; nothing is ever fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jsonschema_rs

    from upstream_clients.results import OutputCheck
    from upstream_clients.tools import JsonObject

MAX_EXPANDED_NODES = 50_000
"""Subschemas after following every local reference; a real schema of 77 kB has about 2,000."""

_MAX_COMPLAINT = 300


class UnusableSchema(Exception):
    """A schema that values cannot be checked against safely; the message says why, for a person."""


def compile_schema(schema: JsonObject) -> jsonschema_rs.Validator:
    """A validator that fetches nothing and takes bounded time.

    Raises:
        UnusableSchema: the schema is invalid, refers to something outside itself, has patterns that do not match in
            linear time, or refers to itself too often.
    """
    import jsonschema_rs  # costs start-up time that a server without schemas to check never needs

    if _expanded_nodes(schema) > MAX_EXPANDED_NODES:
        raise UnusableSchema(f"it expands to more than {MAX_EXPANDED_NODES} subschemas")
    try:
        return jsonschema_rs.validator_for(
            dict(schema), offline=True, pattern_options=jsonschema_rs.RegexOptions(), validate_formats=False
        )
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise UnusableSchema(str(error)[:_MAX_COMPLAINT]) from None


def compile_check(schema: JsonObject) -> OutputCheck | None:
    """A function that says what is wrong with a value, or `None` when the schema cannot be used safely."""
    import jsonschema_rs

    try:
        validator = compile_schema(schema)
    except UnusableSchema:
        return None

    def check(value: object) -> str | None:
        try:
            validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            path = "".join(f"/{part}" for part in error.instance_path)
            return f"{path or 'the value'}: {error.message}"[:_MAX_COMPLAINT]
        return None

    return check


def _expanded_nodes(schema: JsonObject) -> int:
    """How many subschemas a check may visit, references followed; a recursive reference counts once.

    Memoised per reference, so that measuring a schema that doubles at every level is itself cheap.
    """
    known: dict[str, int] = {}

    def measure(node: Any, depth: int) -> int:
        if depth > 200:
            return MAX_EXPANDED_NODES + 1
        if isinstance(node, list):
            return sum(measure(item, depth + 1) for item in node)
        if not isinstance(node, dict):
            return 0
        total = 1 + sum(measure(value, depth + 1) for key, value in node.items() if key not in ("$defs", "definitions"))
        ref = node.get("$ref")
        if isinstance(ref, str):
            if ref not in known:
                known[ref] = 1
                known[ref] = measure(_resolve(schema, ref), depth + 1)
            total += known[ref]
        return min(total, MAX_EXPANDED_NODES + 1)

    return measure(schema, 0)


def _resolve(schema: JsonObject, ref: str) -> object:
    """The target of a local JSON pointer; nothing for any other reference."""
    if not ref.startswith("#/"):
        return None
    node: object = schema
    for part in ref[2:].split("/"):
        part = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, Mapping):
            return None
        node = node.get(part)
    return node
