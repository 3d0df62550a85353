"""Schemas with their definitions, cut to a size. Pure: no I/O.

The schemas of large APIs refer to each other, so that those of one operation may lead to half of the document. Here
they are cut breadth-first: what is nearest to the root stays, and the definitions of one level share the room. If a
schema does not fit, it first loses most of each description, then all descriptions inside it, then its deepest parts. A
part that is cut allows everything that the document allows there, and more, and says so.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from upstream_clients.openapi.budget import PER_DEFINITION
from upstream_clients.openapi.document import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from upstream_clients.openapi.schemas import Converted, Schemas, Use

CUT: Final = "Not shown in full, since the schema is too large."
_CUT_SIZE: Final = 90
_SMALL: Final = 2 * _CUT_SIZE
"""Length of a part that is never cut."""
_SHORT_TEXT: Final = 100
_SHORT_TOP_TEXT: Final = 240
_BARE_TOP_TEXT: Final = 100
"""Maximum lengths of descriptions in short forms of a schema. Those of the members of the root are longer."""
_LEVEL_SHARE: Final = 0.65
"""Share of the room that one level may use, if it has definitions below it."""
_MOST_TIMES: Final = 4
_STEP: Final = 400
"""Sizes are rounded down to multiples of this, so that the same cut is used again."""

_CHILDREN: Final = ("items", "additionalProperties", "contains", "propertyNames")
_CHILDREN_BY_NAME: Final = ("properties", "patternProperties", "dependentSchemas")
_LISTS_OF_CHILDREN: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_NESTED: Final = frozenset((*_CHILDREN, *_CHILDREN_BY_NAME, *_LISTS_OF_CHILDREN))
_EXTRAS: Final = frozenset({"description", "examples", "default", "title"})


class Bounds:
    """The cutter of the schemas of one document. Forms of a definition are made once."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._forms: dict[tuple[Use, str, int], _Form] = {}

    def bounded(self, root: Converted, use: Use, limit: int) -> tuple[dict[str, Any], int]:
        """Return a schema with `$defs`, of about `limit` bytes as JSON, and its size.

        It is larger if the root has many members, which are never cut.

        Args:
            root: its `schema` is an object.

        Raises:
            UnsupportedError: the members alone are several times larger than the limit.
            BudgetError: the document has taken too much work.
        """
        budget = self._schemas.budget
        room = int(limit * _LEVEL_SHARE) if root.names else limit
        if root.size > room:
            budget.spend(1, 2 * root.size)
        schema, size = _fitting(root.schema, root.size, room)
        if schema is not root.schema:
            budget.spend(1, 2 * size)
        level = list(root.names if schema is root.schema else _references(schema))
        definitions: dict[str, Any] = {}
        size += _CUT_SIZE * len(level)
        if size > _MOST_TIMES * limit:
            raise UnsupportedError(f"its schema has more than {_MOST_TIMES * limit} bytes without its parts")
        while level:
            budget.spend(PER_DEFINITION * len(level))
            found = {name: self._schemas.named(name, use) for name in level}
            has_more = any(each.names for each in found.values())
            room = int((limit - size) * (_LEVEL_SHARE if has_more else 1)) + _CUT_SIZE * len(level)
            below: dict[str, None] = {}
            ordered = sorted(level, key=lambda name: found[name].size)
            for position, name in enumerate(ordered):
                share = room // (len(ordered) - position)
                form = self._form(name, found[name], use, share)
                definitions[name] = form.schema
                room -= form.size
                size += form.size - _CUT_SIZE
                new = [
                    each for each in form.names if each not in found and each not in definitions and each not in below
                ]
                below.update(dict.fromkeys(new))
                size += _CUT_SIZE * len(new)
                room -= _CUT_SIZE * len(new)
            level = list(below)
        if not definitions:
            return dict(schema), size
        # In an order that does not depend on sizes.
        return {**schema, "$defs": dict(sorted(definitions.items()))}, size

    def _form(self, name: str, found: Converted, use: Use, share: int) -> _Form:
        """Return a definition in a form that fits."""
        if found.size <= max(share, _SMALL) or not isinstance(found.schema, dict):
            return _Form(found.schema, found.size, found.names)
        rounded = max(share - share % _STEP, 0)
        form = self._forms.get((use, name, rounded))
        if form is None:
            self._schemas.budget.spend(1, found.size)
            schema, size = _fitting(found.schema, found.size, rounded) if rounded else (None, 0)
            if schema is None or size > 2 * rounded:
                form = _Form(cut(found.schema), _CUT_SIZE, ())
            else:
                form = _Form(schema, size, tuple(_references(schema)))
            self._forms[use, name, rounded] = form
        return form


class _Form(NamedTuple):
    """A definition, whole or cut: its schema, its size, and the names that it refers to."""

    schema: Any
    size: int
    names: tuple[str, ...]


def cut(schema: Any) -> dict[str, Any]:
    """Return a schema in place of one that is cut: only its types are kept."""
    types = sorted(_types(schema))
    found: dict[str, Any] = {"type": types[0] if len(types) == 1 else types} if types else {}
    if not found and isinstance(schema, dict) and "properties" in schema:
        found = {"additionalProperties": True}  # a schema that only describes objects, without saying so
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


def _fitting(schema: dict[str, Any], size: int, limit: int) -> tuple[dict[str, Any], int]:
    """Return the richest form of a schema that fits, and its size. The shortest form has no part that can be cut."""
    if size <= limit:
        return schema, size
    for top, text in ((_SHORT_TOP_TEXT, _SHORT_TEXT), (_BARE_TOP_TEXT, 0)):
        schema = _with_short_texts(schema, text, top)
        size = len(str(schema))
        if size <= limit:
            return schema, size
    return _trimmed(schema, limit)


def _with_short_texts(schema: Any, limit: int, top: int | None = None) -> Any:
    """Return a copy whose descriptions are cut to a limit; without a limit of 0, also without examples.

    Args:
        top: the limit for the members of the schema itself, if it is another one.
    """
    if not isinstance(schema, dict):
        return schema
    copy: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "description":
            if limit or top:
                copy[name] = _short(value, top or limit)
        elif name in _EXTRAS:
            if limit:
                copy[name] = value
        elif name == "properties" and top:
            copy[name] = {each: _with_member_text(child, limit, top) for each, child in value.items()}
        elif name in _CHILDREN_BY_NAME:
            copy[name] = {each: _with_short_texts(child, limit) for each, child in value.items()}
        elif name in _LISTS_OF_CHILDREN:
            copy[name] = [_with_short_texts(child, limit) for child in value]
        elif name in _CHILDREN:
            copy[name] = _with_short_texts(value, limit)
        else:
            copy[name] = value
    return copy


def _with_member_text(schema: Any, limit: int, top: int) -> Any:
    copy = _with_short_texts(schema, limit)
    if isinstance(schema, dict) and "description" in schema:
        copy = {**copy, "description": _short(schema["description"], top)}
    return copy


def _short(text: str, limit: int) -> str:
    """Return a text cut at the end of a sentence or of a word."""
    if len(text) <= limit:
        return text
    head = text[:limit]
    sentence = head.rfind(". ")
    return head[: sentence + 1] if sentence > limit // 3 else head[: head.rfind(" ")].rstrip() + "…"


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
            return {name: value for name, value in child.items() if name not in _EXTRAS}
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


def _references(schema: Any) -> Iterable[str]:
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
            for name in node.keys() & _NESTED:
                value = node[name]
                waiting.append(list(value.values()) if name in _CHILDREN_BY_NAME else value)
    return found
