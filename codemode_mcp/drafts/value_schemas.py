"""JSON Schemas of the values in the arguments of tools. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from upstream_clients.tools import JsonObject

MAX_STEPS = 100
"""Maximum number of references that are followed."""


def value_schema(schema: JsonObject, path: Sequence[str]) -> JsonObject | None:
    """Return the schema of a value in the arguments of a tool; None if it is not known.

    Args:
        schema: the input schema of the tool.
        path: the properties from the argument to the value; `[]` for elements of an array.
    """
    here = _resolved(schema, schema)
    for step in path:
        if here is None:
            return None
        here = _inside(schema, here, step)
    return here


def _inside(root: JsonObject, schema: JsonObject, step: str) -> JsonObject | None:
    """Return the schema of a member or of the elements, also in the alternatives of a schema.

    A member that chooses between alternatives has a constant in each; the first of them is returned.
    """
    parts = [schema]
    for key in ("allOf", "anyOf", "oneOf"):
        alternatives = schema.get(key)
        for each in alternatives if isinstance(alternatives, list) else []:
            resolved = _resolved(root, each)
            parts += [] if resolved is None else [resolved]
    found: list[JsonObject] = []
    for part in parts:
        resolved = _resolved(root, part.get("items") if step == "[]" else _members(part).get(step))
        found += [] if resolved is None else [resolved]
    constant = next((each for each in found if "const" in each), None)
    return constant or next(iter(found), None)


def _members(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _resolved(root: JsonObject, schema: Any) -> JsonObject | None:
    """Return a schema after its references within the same document; None if it is no object."""
    for _ in range(MAX_STEPS):
        if not isinstance(schema, dict):
            return None
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        target: Any = root
        for key in reference[2:].split("/"):
            target = target.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
        schema = target
    return None
