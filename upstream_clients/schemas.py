"""Validators for the JSON Schemas that upstreams send, which are not trusted.

A schema may name remote documents, have patterns that take exponential time, or refer to itself so often that checking
one small value never ends (`schema_expansion`). Such a schema is not used. No document is ever fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from upstream_clients.json_values import pointer_part
from upstream_clients.schema_expansion import MAX_EXPANDED_NODES, SchemaExpansion, UnusableSchema, follow_pointer
from upstream_clients.schema_relaxation import relax
from upstream_clients.schema_repair import compiled, is_legacy, names, repair

if TYPE_CHECKING:
    import jsonschema_rs

    from upstream_clients.results import OutputCheck
    from upstream_clients.tools import JsonObject

__all__ = [
    "SchemaParts",
    "UnusableSchema",
    "UsableSchema",
    "compile_check",
    "compile_schema",
    "is_legacy",
    "usable",
    "with_optional_defaults",
]


def with_optional_defaults(schema: JsonObject) -> JsonObject:
    """Return a schema of arguments that does not require those with a default, which the server assumes for them."""
    properties = schema.get("properties")
    if "required" not in schema or not isinstance(properties, dict):
        return schema
    listed = names(schema["required"])
    needed = [name for name in listed if not (isinstance(each := properties.get(name), dict) and "default" in each)]
    if len(needed) == len(listed):
        return schema
    rest = {key: value for key, value in schema.items() if key != "required"}
    return {**rest, "required": needed} if needed else rest


def compile_schema(schema: JsonObject) -> jsonschema_rs.Validator:
    """Return a validator that fetches nothing and takes bounded time.

    Raises:
        UnusableSchema: the schema is invalid, refers to something outside itself, has patterns that do not match in
            linear time, or refers to itself too often.
    """
    SchemaExpansion(schema).measure()
    return compiled(schema)


class UsableSchema(NamedTuple):
    """A schema of a server in the form by which values are checked.

    Attributes:
        schema: the given object, unless parts of it are not enforced.
        validator: None if no value is checked.
        reasons: the parts that are not enforced, each with its path.
        problem: the reason why no value is checked.
    """

    schema: JsonObject
    validator: jsonschema_rs.Validator | None
    reasons: tuple[str, ...] = ()
    problem: str = ""


def usable(schema: JsonObject) -> UsableSchema:
    """Return the part of a schema that can be enforced; see `schema_relaxation`."""
    found, reasons = relax(schema)
    try:
        return UsableSchema(found, compile_schema(found), reasons)
    except UnusableSchema as error:
        problem = str(error)
    repaired = repair(found)
    if repaired.schema is found:
        return UsableSchema(found, None, reasons, problem)
    again = relax(repaired.schema)
    reasons += repaired.reasons + again.reasons
    try:
        return UsableSchema(again.schema, compile_schema(again.schema), reasons)
    except UnusableSchema as error:
        return UsableSchema(found, None, (), str(error))


_ROOT = "urn:codemode-mcp:schema"
_MAX_PARTS = 64


class SchemaParts:
    """Validators for parts of a schema that compiles. Each is made when it is first needed.

    Their number is bounded. The total work to compile them is bounded like that of one schema.
    """

    def __init__(self, schema: JsonObject) -> None:
        self._schema = schema
        self._registry: jsonschema_rs.Registry | None = None
        self._parts: dict[str, jsonschema_rs.Validator | None] = {}
        self._expansion = SchemaExpansion(schema)
        self._nodes_left = MAX_EXPANDED_NODES

    def is_valid(self, pointer: str, value: object) -> bool | None:
        """Return True if the value fits the part at a JSON pointer (`/properties/a`).

        Return None if the part cannot be compiled.
        """
        if pointer not in self._parts:
            self._parts[pointer] = self._compile(pointer) if len(self._parts) < _MAX_PARTS else None
        validator = self._parts[pointer]
        return None if validator is None else validator.is_valid(value)

    def _compile(self, pointer: str) -> jsonschema_rs.Validator | None:
        import jsonschema_rs

        dialect = {key: self._schema[key] for key in ("$schema",) if key in self._schema}
        try:
            self._nodes_left -= self._expansion.measure_part(pointer)
            if self._nodes_left < 0:
                return None
            if self._registry is None:
                draft = jsonschema_rs.Draft7 if is_legacy(self._schema) else jsonschema_rs.Draft202012
                self._registry = jsonschema_rs.Registry([(_ROOT, dict(self._schema))], draft=draft)
            return compiled({"$ref": f"{_ROOT}#{quote(pointer)}", **dialect}, registry=self._registry)
        except (UnusableSchema, ValueError, jsonschema_rs.ReferencingError):
            return None


def compile_check(schema: JsonObject) -> OutputCheck | None:
    """Return a function that says what is wrong with a value. Return None if the schema cannot be used safely."""
    try:
        validator = compile_schema(schema)
    except UnusableSchema:
        return None

    parts = SchemaParts(schema)

    def check(value: object) -> str | None:
        # `validate` would build every error of every alternative, each with copies, and caches nothing on the way.
        try:
            return None if validator.is_valid(value) else _describe_mismatch(schema, parts, value)
        except ValueError:
            return "the value: cannot be checked"  # nested too deeply, or with half of a surrogate pair

    return check


_MAX_DESCENT = 20
_REPORTED_KEYWORDS = (
    "type", "enum", "const", "required", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
)  # fmt: skip


def _describe_mismatch(schema: JsonObject, parts: SchemaParts, value: Any) -> str:
    """Return the path and the keyword of a mismatch, as exactly as is cheap. The text quotes nothing of the value."""
    here: Any = schema
    pointer = path = ""
    for _ in range(_MAX_DESCENT):
        if isinstance(reference := here.get("$ref"), str) and reference.startswith("#/") and "%" not in reference:
            found = next((node for node, _ in follow_pointer((schema,), reference[1:])), None)
            if not isinstance(found, Mapping):
                break
            here, pointer = found, reference[1:]
            continue
        mismatch = _first_mismatch(here, pointer, parts, value)
        if mismatch is None:
            break
        key, pointer, here = mismatch
        path += f"/{key}"
        value = value[key]
    where = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in path[:200])
    broken = (each for each in _REPORTED_KEYWORDS if each in here and not _fits(each, here[each], value))
    return f"{where or 'the value'}: does not fit {next(broken, 'its schema')}"


def _first_mismatch(
    here: Mapping[str, Any], pointer: str, parts: SchemaParts, value: Any
) -> tuple[str | int, str, Mapping[str, Any]] | None:
    properties, items = here.get("properties"), here.get("items")
    if isinstance(value, dict) and isinstance(properties, Mapping):
        for name, schema in properties.items():
            if name in value and isinstance(schema, Mapping):
                inside = f"{pointer}/properties/{pointer_part(name)}"
                if parts.is_valid(inside, value[name]) is False:
                    return name, inside, schema
    if isinstance(value, list) and isinstance(items, Mapping):
        for index, item in enumerate(value):
            if parts.is_valid(f"{pointer}/items", item) is False:
                return index, f"{pointer}/items", items
    return None


def _fits(keyword: str, argument: Any, value: Any) -> bool:
    try:
        return bool(compile_schema({keyword: argument}).is_valid(value))
    except UnusableSchema:
        return True
