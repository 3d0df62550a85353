"""The shape of JSON values from one source, merged over time. Pure: no I/O.

A shape has the kinds of values, the properties of objects, the properties that all objects have, and the items of
arrays. It never contains a value: no text, number or length, and no key that is data, such as an id or the name of a
file. A shape is bounded. Beyond the bounds, any value fits. Long arrays and large maps are only read in part.

Merging is idempotent and does not depend on the order of two shapes. The order of three shapes can matter, since an
object that was recognised as a map stays a map.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, Final

from msgspec import Struct, field

from declarations.typetree import is_beyond

MAX_VISITED: Final = 2_000
"""Maximum number of nodes of one value that are read."""
MAX_DEPTH: Final = 8
MAX_PROPERTIES: Final = 60
"""Maximum number of properties of an object. An object with more properties is taken as a map."""
MAX_READ_AT_END: Final = 30
"""Maximum number of items that are read at each end of an array or a map."""
MAX_NODES: Final = 120
"""Maximum number of nodes of one shape. A larger shape loses its deepest levels."""
MANY_ALIKE: Final = 8
"""Minimum number of members for which an object is taken as a map, if all members have the same properties."""


class Shape(Struct, frozen=True):
    """The shape of the values of one source.

    Attributes:
        scalars: kinds of values other than arrays and objects, in the words of JSON Schema, `bigint` for integers
            that are one in programs, and `text: ` with the kind of a `Text`.
        items: shape of the items of all arrays; None if there was no array.
        object: shape of all objects; None if there was no object.
        anything: True if the values may be of any kind.
    """

    scalars: frozenset[str] = frozenset()
    items: Shape | None = None
    object: Record | Map | None = None
    anything: bool = False


class Record(Struct, frozen=True):
    """The shape of objects whose keys are names.

    Attributes:
        properties: shapes by name.
        required: names that every object has.
        largest: number of properties of the largest object.
    """

    properties: Mapping[str, Shape] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    largest: int = 0


class Map(Struct, frozen=True):
    """The shape of objects whose keys are data. The keys are not stored."""

    values: Shape


class Text(str):
    """A text that is no JSON, although it is all that a result has."""


NOTHING: Final = Shape()
"""The shape before any value was seen."""
ANYTHING: Final = Shape(anything=True)
"""The shape that all values fit."""
_NULL: Final = Shape(frozenset({"null"}))
_SCALARS: Final = {
    type(None): _NULL,
    bool: Shape(frozenset({"boolean"})),
    int: Shape(frozenset({"number"})),
    float: Shape(frozenset({"number"})),
    str: Shape(frozenset({"string"})),
}
_BIGINT: Final = Shape(frozenset({"bigint"}))

# A name in the style of programmers, with at most two short numbers: not an id, a date, a path or an address.
_NAME: Final = re.compile(r"[A-Za-z_$]+(?:[0-9]{1,3}(?:[A-Za-z_$]+[0-9]{1,3})?[A-Za-z_$]*)?")
_CODE: Final = re.compile(r"(?=.*[0-9])[A-Z0-9]{6,}")
# Many letters without a break between words, or the prefix of a well-known kind of key.
_TOKEN: Final = re.compile(r"[a-z]{24}|[A-Z]{16}|^(?:gh[oprsu]_|sk_live_|sk_test_|xox[abeprs]|eyJ|AKIA)")
_MAX_NAME: Final = 40


def merge(shape: Shape, value: object) -> Shape:
    """Return the shape with one more value; `shape` itself if nothing changes."""
    merged = unite(shape, _shape_of(value, MAX_DEPTH, _Budget()))
    return merged if merged is shape else _within_bounds(merged)


def unite(one: Shape, other: Shape) -> Shape:
    """Return a shape that covers both shapes; the object `one` itself if `one` covers both."""
    if one is other or one.anything or other == NOTHING:
        return one
    if other.anything:
        return ANYTHING
    if one == NOTHING:
        return other
    scalars = one.scalars if other.scalars <= one.scalars else one.scalars | other.scalars
    items = one.items
    if other.items is not None:
        items = other.items if items is None else unite(items, other.items)
    united = one.object
    if other.object is not None:
        united = other.object if united is None else _unite_objects(united, other.object)
    if scalars is one.scalars and items is one.items and united is one.object:
        return one
    return Shape(scalars, items, united)


def to_schema(shape: Shape) -> dict[str, Any]:
    if shape.anything or shape in (NOTHING, _NULL):  # if all values were null, later ones are likely to differ
        return {}
    alternatives: list[dict[str, Any]] = []
    if shape.object is not None:
        alternatives.append(_object_schema(shape.object))
    if shape.items is not None:
        items = to_schema(shape.items)
        alternatives.append({"type": "array", "items": items} if items else {"type": "array"})
    described = {}
    if shape.scalars:
        texts = {name.removeprefix(_TEXT) for name in shape.scalars if name.startswith(_TEXT)}
        if texts:
            described = {
                "description": _text_words(texts, is_all=len(texts) == len(shape.scalars) and not alternatives)
            }
        large = {"format": "int64"} if "bigint" in shape.scalars else {}
        kinds = {_TYPES.get(name.partition(" ")[0], name) for name in shape.scalars}
        names = sorted(kinds, key=_SCALAR_ORDER.index)
        alternatives.append({"type": names[0] if len(names) == 1 else names, **large})
    return (alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}) | described


_TEXT: Final = "text: "
_TYPES: Final = {"bigint": "number", "text:": "string"}
_SCALAR_ORDER: Final = ("string", "number", "boolean", "null")


def _object_schema(seen: Record | Map) -> dict[str, Any]:
    if isinstance(seen, Map):
        return {"type": "object", "additionalProperties": to_schema(seen.values)}
    schema: dict[str, Any] = {"type": "object"}
    if seen.properties:
        schema["properties"] = {name: to_schema(shape) for name, shape in seen.properties.items()}
    if seen.required:
        schema["required"] = [name for name in seen.properties if name in seen.required]
    return schema


def _text_words(kinds: set[str], *, is_all: bool) -> str:
    """Describe texts by their kinds. Several lines of another kind include single lines."""
    named = sorted(kinds - {"one line"} or kinds)
    kind = f": {' or '.join(named)}" if len(named) <= 2 else ""
    return f"{'text' if is_all else 'or text'}, not JSON{kind}"


_READ_OF_TEXT: Final = 4_000
"""Maximum number of characters of a text that are read for its kind."""

_PYTHON: Final = re.compile(r"""'[^'\n]*'\s*[:,\])}]|\b(?:None|True|False)\b|^[\[(]\(|\w\(""")
_MARKDOWN: Final = re.compile(
    r"^ {0,3}(?:#{1,6} \S|```|\|[ :|-]*---|[-*+] \[.+\]\()|\*\*[^*\n]+\*\*|\]\(https?://", re.MULTILINE
)
_KEY_VALUE: Final = re.compile(r"\s*(?:[-*•] )?[^\W\d][\w ./()-]{0,40}(?:=|:(?:\s|$))")


def text_kind(text: str) -> str:
    text = text.strip()
    if text[:1] + text[-1:] in ("[]", "{}", "()") and _PYTHON.search(text[:_READ_OF_TEXT]):
        return "Python literal"
    lines = [line for line in text[:_READ_OF_TEXT].splitlines() if line.strip()]
    if len(text) > _READ_OF_TEXT:
        del lines[-1:]  # it may be cut
    if _MARKDOWN.search("\n".join(lines)):
        return "Markdown"
    if len(lines) < 2:
        return "one line"
    for delimiter in (",", ";", "\t"):
        widths = {len(row) for row in csv.reader(lines, delimiter=delimiter)}
        if len(widths) == 1 and widths != {1} and not re.search(r"[.!?:]\s|[.!?]$", lines[0]):
            return "CSV"
    if sum(_KEY_VALUE.match(line) is not None for line in lines) * 3 >= len(lines) * 2:
        return "key: value"
    return "lines"


# The shape of a value


class _Budget:
    """The number of nodes of a value that may still be read."""

    def __init__(self) -> None:
        self.left = MAX_VISITED


def _shape_of(value: object, depth: int, budget: _Budget) -> Shape:
    budget.left -= 1
    if isinstance(value, Text):
        return Shape(frozenset({_TEXT + text_kind(value)}))
    scalar = _SCALARS.get(type(value) if not isinstance(value, float) or isfinite(value) else type(None))
    if scalar is not None:
        return _BIGINT if isinstance(value, int) and is_beyond(value) else scalar
    if depth <= 0 or budget.left <= 0:
        return ANYTHING
    if isinstance(value, list):
        return Shape(items=_shape_of_items(value, depth, budget))
    if not isinstance(value, dict):
        return ANYTHING
    if len(value) > MAX_PROPERTIES or not all(map(_is_name, value)):
        return Shape(object=Map(_shape_of_items(list(value.values()), depth, budget)))
    properties = {name: _shape_of(member, depth - 1, budget) for name, member in value.items()}
    return Shape(object=_record_or_map(properties, frozenset(properties), len(properties)))


def _shape_of_items(values: list[Any], depth: int, budget: _Budget) -> Shape:
    seen = NOTHING
    # Half of the budget is reserved for the values that follow this array.
    reserved = budget.left // 2
    for value in values if len(values) <= 2 * MAX_READ_AT_END else values[:MAX_READ_AT_END] + values[-MAX_READ_AT_END:]:
        if budget.left <= reserved:
            break
        seen = unite(seen, _shape_of(value, depth - 1, budget))
    return seen


def _is_name(key: str) -> bool:
    if len(key) > _MAX_NAME or _NAME.fullmatch(key) is None:
        return False
    return _CODE.fullmatch(key) is None and _TOKEN.search(key) is None


# Objects


def _unite_objects(one: Record | Map, other: Record | Map) -> Record | Map:
    if isinstance(one, Map) or isinstance(other, Map):
        values = unite(_values(one), _values(other))
        return one if isinstance(one, Map) and values is one.values else Map(values)
    properties = dict(one.properties)
    changed = False
    for name, shape in other.properties.items():
        before = properties.get(name)
        after = shape if before is None else unite(before, shape)
        if after is not before:
            properties[name] = after
            changed = True
    required = one.required & other.required
    if not changed and len(required) == len(one.required) and other.largest <= one.largest:
        return one
    return _record_or_map(properties, required, max(one.largest, other.largest))


def _values(seen: Record | Map) -> Shape:
    return seen.values if isinstance(seen, Map) else _all_of(seen.properties.values())


def _all_of(shapes: Iterable[Shape]) -> Shape:
    united = NOTHING
    for shape in shapes:
        united = unite(united, shape)
    return united


def _record_or_map(properties: Mapping[str, Shape], required: frozenset[str], largest: int) -> Record | Map:
    if len(properties) > MAX_PROPERTIES or _has_other_keys_each_time(properties, required, largest):
        return Map(_all_of(properties.values()))
    if len(properties) >= MANY_ALIKE and _are_alike(properties.values()):
        return Map(_all_of(properties.values()))
    return Record(properties, required, largest)


def _has_other_keys_each_time(properties: Mapping[str, Shape], required: frozenset[str], largest: int) -> bool:
    # No key is in all objects, and all objects together have twice as many keys as the largest one.
    return not required and len(properties) >= 3 and len(properties) >= 2 * largest


def _are_alike(shapes: Iterable[Shape]) -> bool:
    first: set[str] | None = None
    for shape in shapes:
        if shape.scalars or shape.items is not None or not isinstance(shape.object, Record):
            return False
        names = set(shape.object.properties)
        if not names or (first is not None and names != first):
            return False
        first = names
    return True


# Bounds


def _within_bounds(shape: Shape) -> Shape:
    depth = MAX_DEPTH
    while _count(shape) > MAX_NODES:
        depth -= 1
        shape = _cut(shape, depth)
    return shape


def _count(shape: Shape) -> int:
    count = 1
    if shape.items is not None:
        count += _count(shape.items)
    if isinstance(shape.object, Map):
        count += _count(shape.object.values)
    elif shape.object is not None:
        count += sum(map(_count, shape.object.properties.values()))
    return count


def _cut(shape: Shape, depth: int) -> Shape:
    if shape.items is None and shape.object is None:
        return shape
    if depth <= 0:
        return ANYTHING
    items = None if shape.items is None else _cut(shape.items, depth - 1)
    seen = shape.object
    if isinstance(seen, Map):
        seen = Map(_cut(seen.values, depth - 1))
    elif seen is not None:
        properties = {name: _cut(member, depth - 1) for name, member in seen.properties.items()}
        seen = Record(properties, seen.required, seen.largest)
    return Shape(shape.scalars, items, seen)
