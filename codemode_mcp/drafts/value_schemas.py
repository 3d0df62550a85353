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
        inner: Any = here.get("items") if step == "[]" else _members(here).get(step)
        here = _resolved(schema, inner)
    return here


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
