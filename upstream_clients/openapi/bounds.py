"""Schemas with their definitions, cut to a size. Pure: no I/O.

The schemas of large APIs refer to each other, so that those of one operation may lead to half of the document. Here
they are cut breadth-first: what is nearest to the root stays. A part that is cut allows everything that the document
allows there, and more, and says so.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from upstream_clients.openapi.schemas import Converted, Schemas, Use

CUT: Final = "Not shown in full, since the schema is too large."
_CUT_SIZE: Final = 90
_SMALL: Final = 2 * _CUT_SIZE
"""Length of a part that is never cut."""
_CHILDREN: Final = ("items", "additionalProperties", "contains", "propertyNames")
_CHILDREN_BY_NAME: Final = ("properties", "patternProperties", "dependentSchemas")
_LISTS_OF_CHILDREN: Final = ("allOf", "anyOf", "oneOf", "prefixItems")


def cut(schema: Any) -> dict[str, Any]:
    """Return a schema in place of one that is cut: only its types are kept."""
    types = sorted(_types(schema))
    found: dict[str, Any] = {"type": types[0] if len(types) == 1 else types} if types else {}
    return {**found, "description": CUT}


def _types(schema: Any) -> set[str]:
    """Return all types of a schema, as far as they are known without references; none if it may have any."""
    if not isinstance(schema, dict):
        return set()
    declared = schema.get("type")
    if declared is not None:
        return {declared} if isinstance(declared, str) else set(declared)
    found = [_types(each) for each in schema.get("anyOf", ())]
    return set().union(*found) if found and all(found) else set()


def bounded(root: Converted, schemas: Schemas, use: Use, limit: int) -> dict[str, Any]:
    """Return a schema with `$defs`, of about `limit` bytes as JSON at most.

    Args:
        root: its `schema` is an object.
    """
    schema, names, size = dict(root.schema), root.names, root.size
    if size > limit:
        schema, size = _trimmed(schema, limit)
        names = tuple(_references(schema))
    definitions: dict[str, Any] = {}
    waiting = deque(names)
    while waiting:
        name = waiting.popleft()
        if name in definitions:
            continue
        found = schemas.named(name, use)
        inside, more, length = found.schema, found.names, found.size
        if length > limit // 2 and isinstance(inside, dict):
            inside, length = _trimmed(inside, limit // 2)
            more = tuple(_references(inside))
        if size + length > limit and length > _SMALL:
            definitions[name] = cut(inside)
            size += _CUT_SIZE
        else:
            definitions[name] = inside
            size += length + len(name) + 6
            waiting.extend(more)
    return {**schema, "$defs": definitions} if definitions else schema


def _trimmed(schema: dict[str, Any], limit: int) -> tuple[dict[str, Any], int]:
    """Return a copy in which the deepest parts are cut, and its size.

    A part is cut as a whole. The root is not cut, but its members lose their descriptions.
    """
    root: dict[str, Any] = {}
    size = 0
    waiting: deque[tuple[Any, Any, dict[str, Any]]] = deque([(root, "root", schema)])
    while waiting:
        holder, key, node = waiting.popleft()
        copy, inner, length = _shallow(node)
        if size + length > limit:
            if node is not schema:
                is_small = len(str(node)) <= _SMALL
                holder[key] = node if is_small else cut(node)
                size += _SMALL if is_small else _CUT_SIZE
                continue
            copy, inner, length = _shallow(node, is_short=True)
        holder[key] = copy
        size += length
        waiting.extend(inner)
    return root["root"], size


def _shallow(
    node: dict[str, Any], *, is_short: bool = False
) -> tuple[dict[str, Any], list[tuple[Any, Any, dict[str, Any]]], int]:
    """Return a copy of a schema, places for the schemas with parts of their own inside it, and the size of the copy.

    Args:
        is_short: True to leave out the descriptions of members.
    """
    inner: list[tuple[Any, Any, dict[str, Any]]] = []

    def place(holder: Any, key: Any, child: Any) -> Any:
        if isinstance(child, dict) and not _NESTED.isdisjoint(child):
            inner.append((holder, key, child))
            return None
        if is_short and isinstance(child, dict):
            return {name: value for name, value in child.items() if name in ("type", "$ref", "enum", "const", "format")}
        return child

    copy: dict[str, Any] = {}
    for name, value in node.items():
        if name in _CHILDREN_BY_NAME:
            members: dict[str, Any] = {}
            for each, child in value.items():
                members[each] = place(members, each, child)
            copy[name] = members
        elif name in _LISTS_OF_CHILDREN:
            parts: list[Any] = []
            for child in value:
                parts.append(place(parts, len(parts), child))
            copy[name] = parts
        elif name in _CHILDREN:
            copy[name] = place(copy, name, value)
        else:
            copy[name] = value
    return copy, inner, len(str(copy))


_NESTED: Final = frozenset((*_CHILDREN, *_CHILDREN_BY_NAME, *_LISTS_OF_CHILDREN))


def _references(schema: Any) -> dict[str, None]:
    """Return the names in `$defs` that a schema refers to, in their order."""
    found: dict[str, None] = {}
    waiting = deque([schema])
    while waiting:
        node = waiting.popleft()
        if isinstance(node, list):
            waiting.extend(node)
        elif isinstance(node, dict):
            reference = node.get("$ref")
            if isinstance(reference, str):
                found[reference.removeprefix("#/$defs/")] = None
            for name in _CHILDREN:
                if name in node:
                    waiting.append(node[name])
            for name in _CHILDREN_BY_NAME:
                if isinstance(node.get(name), dict):
                    waiting.extend(node[name].values())
            for name in _LISTS_OF_CHILDREN:
                if name in node:
                    waiting.append(node[name])
    return found
