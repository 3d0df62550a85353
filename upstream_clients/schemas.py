"""Compile the JSON Schemas that upstreams send, none of which is trusted.

A schema may name remote documents, hold patterns that take exponential time, or refer to itself so often that checking
one small value never ends. Such schemas give no check at all; nothing is ever fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    import jsonschema_rs

    from upstream_clients.results import OutputCheck
    from upstream_clients.tools import JsonObject

MAX_EXPANDED_NODES = 50_000
"""Subschemas after following every local reference; a real schema of 77 kB has about 2,000."""

_MAX_COMPLAINT = 300


class UnusableSchema(Exception):
    """A schema that values cannot be checked against safely; the message says why, for a person."""


def is_legacy(schema: JsonObject) -> bool:
    """Whether the schema is written in draft-07 or an older one; without `$schema` it is in 2020-12."""
    dialect = schema.get("$schema")
    return isinstance(dialect, str) and any(draft in dialect for draft in ("draft-04", "draft-06", "draft-07"))


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


_ROOT = "urn:codemode-mcp:schema"
_MAX_PARTS = 64


class SchemaParts:
    """Validators for the parts of a schema that compiles, each made when it is first asked for; a bounded number."""

    def __init__(self, schema: JsonObject) -> None:
        self._schema = schema
        self._registry: jsonschema_rs.Registry | None = None
        self._parts: dict[str, jsonschema_rs.Validator | None] = {}

    def is_valid(self, pointer: str, value: object) -> bool | None:
        """Whether the value fits the part at a JSON pointer (`/properties/a`); None where that cannot be told."""
        if pointer not in self._parts:
            self._parts[pointer] = self._compile(pointer) if len(self._parts) < _MAX_PARTS else None
        validator = self._parts[pointer]
        return None if validator is None else validator.is_valid(value)

    def _compile(self, pointer: str) -> jsonschema_rs.Validator | None:
        import jsonschema_rs

        part: dict[str, Any] = {"$ref": f"{_ROOT}#{quote(pointer)}"}
        if "$schema" in self._schema:
            part["$schema"] = self._schema["$schema"]
        options = jsonschema_rs.RegexOptions()
        try:
            if self._registry is None:
                draft = jsonschema_rs.Draft7 if is_legacy(self._schema) else jsonschema_rs.Draft202012
                self._registry = jsonschema_rs.Registry([(_ROOT, dict(self._schema))], draft=draft)
            return jsonschema_rs.validator_for(
                part, registry=self._registry, offline=True, pattern_options=options, validate_formats=False
            )
        except (ValueError, jsonschema_rs.ReferencingError):
            return None


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
