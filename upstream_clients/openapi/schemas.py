"""Schemas of OpenAPI 3.0 and 3.1 as JSON Schema 2020-12 with `$defs`. Pure: no I/O.

Keywords of the wrong type are dropped, since one of them makes a validator refuse the whole schema. A result never
allows less than the document, with two exceptions: a member that is only for answers (`readOnly`) is no argument, and
one that is only for requests (`writeOnly`) is not in an answer. `oneOf` becomes `anyOf`: documents with a
`discriminator` have alternatives that overlap. `not`, `if` and `unevaluatedProperties` are dropped: beside a part that
allows more than the document, they would allow less.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct

from upstream_clients.openapi import document as documents
from upstream_clients.schema_relaxation import with_null

Use = Literal["input", "output"]

MAX_DEPTH: Final = 60
"""Maximum number of nested schemas that are converted. Deeper ones become "anything"."""
_CHILDREN: Final = ("items", "additionalProperties", "contains", "propertyNames")
_CHILDREN_BY_NAME: Final = ("properties", "patternProperties", "dependentSchemas")
_LISTS_OF_CHILDREN: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_NESTED: Final = frozenset((*_CHILDREN, *_CHILDREN_BY_NAME, *_LISTS_OF_CHILDREN))

_ONLY_IN_REQUESTS: Final = frozenset(
    {"default", "example", "examples", "pattern", "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum"}
    | {"exclusiveMaximum", "multipleOf", "minItems", "maxItems", "minProperties", "maxProperties", "uniqueItems"}
    | {"readOnly", "writeOnly", "contains", "propertyNames"}
)
"""Keywords that say nothing to a program that reads an answer. Without them, more members fit into a schema."""


class Converted(Struct, frozen=True):
    """A schema of JSON Schema.

    Attributes:
        schema: the schema. Its references are `#/$defs/NAME`.
        names: the names in `$defs` that it refers to, in their order.
        size: about its length as JSON.
    """

    schema: Any
    names: tuple[str, ...]
    size: int


class Schemas:
    """The schemas of a document. Each named one is converted once for requests and once for answers."""

    def __init__(self, document: documents.Document) -> None:
        self._document = document
        self._converted: dict[tuple[Use, int], tuple[Any, Converted]] = {}
        """Results by the identities of schemas, which may be shared by thousands of operations. The schemas are kept
        with them, since another object may get the identity of one that is gone."""
        self._references: dict[str, str] = {}
        """References by the name in `$defs`."""
        self._named: dict[tuple[Use, str], Converted] = {}
        self.patterns = documents.Patterns()

    def convert(self, schema: Any, use: Use) -> Converted:
        """Return one schema of the document. Raises `BudgetError` if the document has taken too much work."""
        known = self._converted.get((use, id(schema)))
        if known is None:
            known = self._converted[use, id(schema)] = schema, _Conversion(self, use).run(schema)
        return known[1]

    def named(self, name: str, use: Use) -> Converted:
        found = self._named.get((use, name))
        if found is None:
            try:
                target = self._document.target(self._references[name])
            except documents.UnsupportedError:
                target = {}
            found = self._named[use, name] = self.convert(target, use)
        return found

    def target(self, name: str) -> Any:
        return self._document.target(self._references[name])

    def name(self, reference: str) -> str:
        """Return the name of a reference in `$defs`. It depends on the reference alone.

        Raises:
            UnsupportedError: the reference leads nowhere or outside the document.
        """
        known = _defined_name(reference)
        if known not in self._references:
            self._document.target(reference)
            self._references[known] = reference
        return known

    @property
    def budget(self) -> documents.Budget:
        return self._document.budget

    @property
    def is_legacy(self) -> bool:
        return self._document.is_legacy


@lru_cache(maxsize=10_000)
def _defined_name(reference: str) -> str:
    found = re.fullmatch(r"#/(?:components/schemas|definitions)/([A-Za-z0-9_.-]{1,100})", reference)
    if found:
        return found[1]
    words = re.sub(r"[^A-Za-z0-9]+", "_", reference.rpartition("/")[2][:60]).strip("_") or "Schema"
    return f"{words}_{hashlib.sha256(reference.encode('utf-8', 'replace')).hexdigest()[:6]}"


class _Conversion:
    """The conversion of one schema, with all schemas inside it."""

    def __init__(self, schemas: Schemas, use: Use) -> None:
        self._schemas = schemas
        self._budget = schemas.budget
        self._hidden = "readOnly" if use == "input" else "writeOnly"
        self._ignored: frozenset[str] = frozenset() if use == "input" else _ONLY_IN_REQUESTS
        self._max_text = documents.MAX_TEXT if use == "input" else documents.MAX_OUTPUT_TEXT
        self._names: dict[str, None] = {}
        self._size = 0

    def run(self, schema: Any) -> Converted:
        converted = self._convert(schema, 0)
        return Converted(converted, tuple(self._names), self._size)

    def _convert(self, schema: Any, depth: int) -> Any:
        if schema is False:
            return False
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return {}
        self._budget.spend(documents.PER_SCHEMA)
        reference = schema.get("$ref")
        result: dict[str, Any] = {}
        if isinstance(reference, str):
            try:
                name = self._schemas.name(reference)
                self._names[name] = None
                result["$ref"] = f"#/$defs/{name}"
                self._size += len(name) + 20
            except documents.UnsupportedError as error:
                result["description"] = f"Anything: {error}."
                self._size += 80
            if self._schemas.is_legacy:  # keywords beside it do not count, except in the minds of many authors
                if type(schema.get("description")) is str:
                    self._plain("description", schema["description"], result, self._text)
                return {"anyOf": [result, {"type": "null"}]} if schema.get("nullable") is True else result
        self._keywords(schema, result, depth)
        # Documents of 3.1 still have the word, which then counts as it did in 3.0.
        return with_null(result) if schema.get("nullable") is True else result

    def _keywords(self, schema: Mapping[str, Any], result: dict[str, Any], depth: int) -> None:
        for keyword, value in schema.items():
            if keyword in self._ignored:
                continue
            read = documents.KEYWORDS.get(keyword)
            if keyword == "pattern":
                if self._schemas.patterns.is_usable(value):
                    result[keyword] = value
                    self._size += len(value) + 20
            elif keyword == "description":
                self._plain(keyword, value, result, self._text)
            elif read is not None:
                self._plain(keyword, value, result, read)
            elif keyword in _CHILDREN:
                if isinstance(value, (dict, bool)):
                    result[keyword] = self._convert(value, depth + 1)
                    self._size += len(keyword) + 6
            elif keyword in _CHILDREN_BY_NAME:
                self._by_name(keyword, value, result, depth)
            elif keyword in _LISTS_OF_CHILDREN and isinstance(value, list) and 0 < len(value) <= documents.MAX_CHOICES:
                self._size += len(keyword) + 6
                branches = [self._convert(each, depth + 1) for each in value]
                if keyword == "oneOf" and "anyOf" not in schema:
                    keyword = "anyOf"
                result[keyword] = branches
        self._repair(schema, result)

    def _text(self, value: Any) -> str | None:
        return documents.plain_text(value, self._max_text)

    def _plain(self, keyword: str, value: Any, result: dict[str, Any], read: Callable[[Any], Any]) -> None:
        if isinstance(value, str):
            self._budget.spend(1, min(len(value), 4 * self._max_text))
        else:
            self._budget.spend(
                1 + (2 * min(len(value), documents.MAX_CHOICES) if isinstance(value, (list, dict)) else 0)
            )
        found = read(value)
        if found is not None:
            result[keyword] = found
            self._size += len(keyword) + 6 + (len(found) if type(found) is str else len(str(found)))

    def _is_hidden(self, member: Any) -> bool:
        return isinstance(member, dict) and member.get(self._hidden) is True

    def _by_name(self, keyword: str, value: Any, result: dict[str, Any], depth: int) -> None:
        if not isinstance(value, dict):
            return
        self._size += len(keyword) + 6
        if keyword == "patternProperties":
            value = {name: member for name, member in value.items() if self._schemas.patterns.is_usable(name)}
        elif keyword == "properties":
            value = {name: member for name, member in value.items() if not self._is_hidden(member)}
            self._size += sum(len(name) + 6 for name in value) - 1
        result[keyword] = {name: self._convert(member, depth + 1) for name, member in value.items()}

    def _repair(self, schema: Mapping[str, Any], result: dict[str, Any]) -> None:
        patterns = schema.get("patternProperties")
        if isinstance(patterns, dict) and len(patterns) > len(result["patternProperties"]):
            result.pop("additionalProperties", None)
        required = result.get("required")
        members = schema.get("properties")
        if required and isinstance(members, dict):
            shown = [name for name in required if not self._is_hidden(members.get(name))]
            if shown:
                result["required"] = shown
            else:
                del result["required"]
        if "type" in result:
            if "enum" in result:
                result["enum"] = _in_type(result["enum"], result["type"])
            if "const" in result:
                result["const"] = _in_type([result["const"]], result["type"])[0]
        for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if schema.get(exclusive) is True and bound in result:
                result[exclusive] = result.pop(bound)
        example = schema.get("example")
        if (
            example is not None
            and not self._ignored
            and "examples" not in result
            and documents.small(example) is not None
        ):
            result["examples"] = [example]
            self._size += 20 + len(str(example))


_READINGS: Final = {"true": True, "false": False}
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?")


def _in_type(choices: list[Any], declared: Any) -> list[Any]:
    """Return listed values as values of the declared type. In YAML, a text without quotes may be of another type.

    A value that has no such form stays as it is.
    """
    names = declared if isinstance(declared, list) else [declared]
    found = [_read_as(each, names) for each in choices]
    if all(new is old for new, old in zip(found, choices, strict=True)):
        return choices
    return list({json.dumps(each): each for each in found}.values())


def _read_as(value: Any, names: list[str]) -> Any:
    is_numeric = not {"integer", "number"}.isdisjoint(names)
    if isinstance(value, str) and "string" not in names:
        if "boolean" in names and value.lower() in _READINGS:
            return _READINGS[value.lower()]
        if is_numeric and _NUMBER.fullmatch(value):
            return float(value) if "." in value else int(value)
    has_type = "boolean" in names if isinstance(value, bool) else is_numeric
    if isinstance(value, (bool, int, float)) and "string" in names and not has_type:
        return json.dumps(value)
    return value


# Schemas with their definitions, cut to a size.
#
# The schemas of large APIs refer to each other, so that those of one operation may lead to half of the document. Here
# they are cut breadth-first: what is nearest to the root stays, and the definitions of one level share the room. If a
# schema does not fit, it first loses most of each description, then all descriptions inside it, then its deepest parts.
# A part that is cut allows everything that the document allows there, and more, and says so.


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
            raise documents.UnsupportedError(f"its schema has more than {_MOST_TIMES * limit} bytes without its parts")
        while level:
            budget.spend(documents.PER_DEFINITION * len(level))
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
        schema = _with_short_texts(schema, text, top, top)
        size = len(str(schema))
        if size <= limit:
            return schema, size
    return _trimmed(schema, limit)


def _with_short_texts(schema: Any, limit: int, top: int, members: int) -> Any:
    """Return a copy whose descriptions are cut; without a limit of 0, also without examples.

    Args:
        limit: the limit for the descriptions of the schemas inside it.
        top: the limit for its own description.
        members: the limit for its members.
    """
    if not isinstance(schema, dict):
        return schema
    shown = dict(schema) if limit else {name: value for name, value in schema.items() if name not in _EXTRAS}
    if top and "description" in schema:
        shown["description"] = _short(schema["description"], top)
    if _NESTED.isdisjoint(shown):
        return shown

    def shorten(keyword: str, _holder: Any, _key: Any, child: Any) -> Any:
        return _with_short_texts(child, limit, members if keyword == "properties" else limit, limit)

    return _with_children(shown, shorten)


def _with_children(schema: Mapping[str, Any], replace: Callable[[str, Any, Any, Any], Any]) -> dict[str, Any]:
    """Return a copy with other schemas inside it.

    Args:
        replace: called with the keyword, the object or list of the copy that will hold a schema, its key there, and the
            schema. Returns the schema that takes its place.
    """
    copy: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword not in _NESTED:
            copy[keyword] = value
        elif keyword in _CHILDREN_BY_NAME:
            members: dict[str, Any] = {}
            copy[keyword] = members
            for name, child in value.items():
                members[name] = replace(keyword, members, name, child)
        elif keyword in _LISTS_OF_CHILDREN:
            parts: list[Any] = []
            copy[keyword] = parts
            for child in value:
                parts.append(replace(keyword, parts, len(parts), child))
        else:
            copy[keyword] = replace(keyword, copy, keyword, value)
    return copy


def _short(text: str, limit: int) -> str:
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

    def place(_keyword: str, holder: Any, key: Any, child: Any) -> Any:
        if isinstance(child, dict) and not _NESTED.isdisjoint(child):
            inner.append((holder, key, child))
            return None
        if is_short and isinstance(child, dict):
            return {name: value for name, value in child.items() if name not in _EXTRAS}
        return child

    copy = _with_children(node, place)
    return copy, inner, len(str(copy))


def _references(schema: Any) -> Iterable[str]:
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
