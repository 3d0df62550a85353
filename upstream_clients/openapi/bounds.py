"""Schemas with their definitions, cut to a size. Pure: no I/O.

The schemas of large APIs refer to each other, so that those of one operation may lead to half of the document. Here
they are cut breadth-first: what is nearest to the root stays. A part that is cut allows everything that the document
allows there, and more, and says so.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from upstream_clients.openapi.schemas import Converted, Schemas, Use

CUT: Final = "Not shown here, since the schema is too large. Any value of this type is accepted."
_CUT_SIZE: Final = 120
_CHILDREN: Final = ("items", "additionalProperties", "contains", "propertyNames")
_CHILDREN_BY_NAME: Final = ("properties", "patternProperties", "dependentSchemas")
_LISTS_OF_CHILDREN: Final = ("allOf", "anyOf", "oneOf", "prefixItems")


def cut(schema: Any) -> dict[str, Any]:
    """Return a schema in place of one that is cut: only its type is kept."""
    kept = {"type": schema["type"]} if isinstance(schema, dict) and "type" in schema else {}
    return {**kept, "description": CUT}


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
        if size + length > limit:
            definitions[name] = cut(inside)
            size += _CUT_SIZE
        else:
            definitions[name] = inside
            size += length + len(name) + 6
            waiting.extend(more)
    return {**schema, "$defs": definitions} if definitions else schema


def _trimmed(schema: Mapping[str, Any], limit: int) -> tuple[dict[str, Any], int]:
    """Return a copy in which the deepest parts are cut, and its size."""
    root: dict[str, Any] = {}
    size = 0
    waiting: deque[tuple[Any, Any, Any]] = deque([(root, "root", schema)])
    while waiting:
        holder, key, node = waiting.popleft()
        if not isinstance(node, dict):
            holder[key] = node
            size += 6
            continue
        plain = {name: value for name, value in node.items() if name not in _NESTED}
        length = len(str(plain))
        if size + length > limit and node is not schema:
            holder[key] = cut(node)
            size += _CUT_SIZE
            continue
        size += length
        copy = holder[key] = plain
        for name in node.keys() & _NESTED:
            children = node[name]
            if name in _CHILDREN_BY_NAME:
                copies: Any = dict.fromkeys(children)
                waiting.extend((copies, each, child) for each, child in children.items())
                size += sum(len(each) + 6 for each in children)
            elif name in _LISTS_OF_CHILDREN:
                copies = [None] * len(children)
                waiting.extend((copies, each, child) for each, child in enumerate(children))
            else:
                copies = None
                waiting.append((copy, name, children))
            copy[name] = copies
    return root["root"], size


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
