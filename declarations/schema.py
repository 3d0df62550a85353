"""JSON Schema, draft-07 and 2020-12, as a small tree of types. Pure: no I/O; remote references are never fetched.

The tree says what TypeScript can say. What it cannot say (`not`, `if`, `pattern`, bounds of numbers, ...) is left out,
and what is unclear, contradictory or of the wrong type is left out too: a type may be wider than its schema, never
narrower. Two readings are deliberate, because they are what authors mean:

* A schema without `type` but with keywords of one kind (`properties`, `items`, ...) describes that kind alone.
* An object that declares properties and says nothing of others gets no index signature. TypeScript's object types are
  open by nature, and a literal with a misspelt property should be refused. `additionalProperties: true` gets one.

Work is bounded for any input: nesting beyond `MAX_DEPTH` and everything after `MAX_NODES` schemas becomes `unknown`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from math import prod
from typing import Any, Final, Literal
from urllib.parse import unquote, urljoin

from declarations.jsdoc import property_doc

MAX_DEPTH: Final = 40
MAX_NODES: Final = 5_000
MAX_DEFINITIONS: Final = 300
MAX_ALTERNATIVES: Final = 512
MAX_LITERAL: Final = 500
"""Length of a string constant, or of a property's name; a longer constant is `string`, a longer name is left out."""
MAX_INLINE: Final = 40
"""Length of the text of a definition that is written in place of its name, however often it is used."""
MAX_PRODUCT: Final = 10_000
"""Alternatives of an intersection of unions, multiplied out; TypeScript's own bound is ten times that."""
MAX_REPEATED: Final = 400
"""Length of text that may be written again to say `A & (B | C)` as `A & B | A & C`."""

# ---------------------------------------------------------------------------------------------------------------------
# The tree


@dataclass(frozen=True, slots=True)
class Unknown:
    """Anything at all."""


@dataclass(frozen=True, slots=True)
class Never:
    """Nothing: the schema `false`, or a contradiction."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """All values of one kind."""

    name: Literal["null", "boolean", "number", "string"]


@dataclass(frozen=True, slots=True)
class Constant:
    """One value, as the text of a TypeScript literal type. The text tells `1` from `true`, which Python does not."""

    kind: Literal["boolean", "number", "string"]
    text: str


@dataclass(frozen=True, slots=True)
class ArrayOf:
    items: Type
    min_items: int = 0
    max_items: int | None = None


@dataclass(frozen=True, slots=True)
class TupleOf:
    """Fixed elements, the first `required` of them mandatory; `rest` is the type of further ones, if there may be."""

    elements: tuple[Type, ...]
    required: int
    rest: Type | None


@dataclass(frozen=True, slots=True)
class Property:
    """One property; not `declared` when only `required` mentions it."""

    name: str
    type: Type
    required: bool = False
    doc: str = ""
    declared: bool = True


Openness = Literal["closed", "silent", "open"]
"""What an object says of properties that it does not name: none, nothing, or `rest`."""


@dataclass(frozen=True, slots=True)
class ObjectOf:
    """Attributes:
    properties: in the order of the schema.
    openness: what the schema says of other properties.
    rest: the type of other properties, if `open`.
    patterns: template literal types of names, such as `x-${string}`, and the types under them.
    """

    properties: tuple[Property, ...] = ()
    openness: Openness = "silent"
    rest: Type | None = None
    patterns: tuple[tuple[str, Type], ...] = ()


@dataclass(frozen=True, slots=True)
class UnionOf:
    members: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class IntersectionOf:
    members: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class Ref:
    """A definition of the same `SchemaType`, by name."""

    name: str


Type = (
    Unknown | Never | Scalar | Constant | ArrayOf | TupleOf | ObjectOf | UnionOf | IntersectionOf | Ref
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Definition:
    type: Type
    doc: str = ""


@dataclass(frozen=True, slots=True)
class SchemaType:
    """A schema's type and the named types that it refers to: those which recur, or are long and used repeatedly."""

    root: Type
    definitions: Mapping[str, Definition] = field(default_factory=dict)


UNKNOWN: Final = Unknown()
NEVER: Final = Never()
NULL: Final = Scalar("null")
BOOLEAN: Final = Scalar("boolean")
NUMBER: Final = Scalar("number")
STRING: Final = Scalar("string")
ANY_OBJECT: Final = ObjectOf((), "open", UNKNOWN)

# ---------------------------------------------------------------------------------------------------------------------
# Kinds: which of JSON's six kinds of values a schema speaks of, as bits

_NULL, _BOOLEAN, _NUMBER, _STRING, _ARRAY, _OBJECT = 1, 2, 4, 8, 16, 32
_ANY: Final = 63
_KIND_BITS: Final = {
    "null": _NULL,
    "boolean": _BOOLEAN,
    "number": _NUMBER,
    "integer": _NUMBER,
    "string": _STRING,
    "array": _ARRAY,
    "object": _OBJECT,
}
_SCALARS: Final = {"null": NULL, "boolean": BOOLEAN, "number": NUMBER, "integer": NUMBER, "string": STRING}
_SCALAR_BITS: Final = ((_STRING, STRING), (_NUMBER, NUMBER), (_BOOLEAN, BOOLEAN), (_NULL, NULL))

_HIDDEN: Final = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
_SIMPLE_PATTERN: Final = re.compile(r"(?P<start>\^?)(?P<text>(?:[\w:@/ -]|\\[-./$])+)(?P<end>\$?)", re.ASCII)

_COMBINING: Final = frozenset({"$ref", "allOf", "anyOf", "oneOf"})
_NOT_PLAIN: Final = _COMBINING | {"const", "enum", "nullable", "$id", "$dynamicRef", "$recursiveRef"}
_OBJECT_KEYWORDS: Final = frozenset(
    {
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
        "dependentRequired",
        "unevaluatedProperties",
    }
)
_ARRAY_KEYWORDS: Final = frozenset(
    {"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains", "unevaluatedItems"}
)


def _type_bits(declared: object) -> int:
    """The kinds of a `type` keyword; all of them if it is missing or makes no sense."""
    if isinstance(declared, str):
        return _KIND_BITS.get(declared, _ANY)
    if isinstance(declared, list) and declared:
        bits = 0
        for name in declared[:20]:
            bits |= _KIND_BITS.get(name, _ANY) if isinstance(name, str) else _ANY
        return bits
    return _ANY


def _value_bits(value: object) -> int:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return _BOOLEAN
    if isinstance(value, (int, float)):
        return _NUMBER
    if isinstance(value, str):
        return _STRING
    return _ARRAY if isinstance(value, list) else _OBJECT


def _kind_of(type_: Type) -> int:
    """The kinds of a type other than a union; all of them where it cannot be told."""
    match type_:
        case Scalar(name):
            return _KIND_BITS[name]
        case Constant(kind):
            return _KIND_BITS[kind]
        case ArrayOf() | TupleOf():
            return _ARRAY
        case ObjectOf():
            return _OBJECT
        case _:
            return _ANY


# ---------------------------------------------------------------------------------------------------------------------
# Algebra: unions and intersections of types


def union(types: Iterable[Type]) -> Type:
    """The union, flat and without what another member says already."""
    members: dict[Type, None] = {}
    for type_ in types:
        for member in type_.members if isinstance(type_, UnionOf) else (type_,):
            if isinstance(member, Unknown):
                return UNKNOWN
            if not isinstance(member, Never):
                members[member] = None
    kept = [
        member for member in members if not (isinstance(member, Constant) and Scalar(member.kind) in members)
    ]  # fmt: skip
    both = [Constant("boolean", "true"), Constant("boolean", "false")]
    if all(value in members for value in both) and BOOLEAN not in members:
        return union([BOOLEAN if member == both[0] else member for member in kept if member != both[1]])
    if _is_anything(kept):
        return UNKNOWN
    if len(kept) > MAX_ALTERNATIVES:
        return (
            union(dict.fromkeys(Scalar(m.kind) if isinstance(m, Constant) else m for m in kept))
            if any(isinstance(m, Constant) for m in kept)
            else UNKNOWN
        )
    if len(kept) <= 1:
        return kept[0] if kept else NEVER
    return UnionOf(tuple(kept))


def _is_anything(members: Sequence[Type]) -> bool:
    """Whether the members are all values of all six kinds: generators write `unknown` so."""
    return (
        len(members) >= 6
        and all(scalar in members for scalar in (NULL, BOOLEAN, NUMBER, STRING))
        and ArrayOf(UNKNOWN) in members
        and any(m in members for m in (ANY_OBJECT, ObjectOf()))
    )


def intersection(first: Type, second: Type) -> Type:
    """What both types accept; members that cannot be merged stay side by side."""
    if first == second or isinstance(second, Unknown) or isinstance(first, Never):
        return first
    if isinstance(first, Unknown) or isinstance(second, Never):
        return second
    if isinstance(first, UnionOf) or isinstance(second, UnionOf):
        return _distribute(first, second)
    if isinstance(first, (Ref, IntersectionOf)) or isinstance(second, (Ref, IntersectionOf)):
        return _side_by_side(first, second)
    if not _kind_of(first) & _kind_of(second):
        return NEVER
    match first, second:
        case (Scalar(), _):
            return second
        case (_, Scalar()):
            return first
        case (Constant(), Constant()):
            return NEVER
        case (ObjectOf() as one, ObjectOf() as other) if not (one.patterns or other.patterns):
            return _merge(one, other)
        case (ArrayOf() as one, ArrayOf() as other):
            maxima = [m for m in (one.max_items, other.max_items) if m is not None]
            items = intersection(one.items, other.items)
            return ArrayOf(items, max(one.min_items, other.min_items), min(maxima, default=None))
        case (ArrayOf(items=Unknown(), min_items=0, max_items=None), TupleOf()):
            return second
        case (TupleOf(), ArrayOf(items=Unknown(), min_items=0, max_items=None)):
            return first
        case _:
            return _side_by_side(first, second)


def _distribute(first: Type, second: Type) -> Type:
    """An intersection with unions in it: member by member where that stays short, side by side otherwise."""
    ones = first.members if isinstance(first, UnionOf) else (first,)
    others = second.members if isinstance(second, UnionOf) else (second,)
    if all(isinstance(member, (Scalar, Constant)) for member in (*ones, *others)):
        small = len(ones) * len(others) <= 4 * MAX_ALTERNATIVES
    else:
        # Every alternative of one side is written once for every alternative of the other. Measuring the text, not the
        # number of members, keeps nested repetitions from multiplying.
        small = _length(first, MAX_REPEATED) * len(others) + _length(second, MAX_REPEATED) * len(ones) <= MAX_REPEATED
    if not small:
        return _side_by_side(first, second)
    return union([intersection(one, other) for one in ones for other in others])


def _length(type_: Type, limit: int) -> int:
    """About how long the text of a type is; counting ends soon after `limit`."""
    match type_:
        case Constant(text=text):
            return len(text) + 3
        case Ref(name):
            return len(name)
        case ArrayOf(items):
            return 2 + _length(items, limit)
        case ObjectOf():
            length = 4
            for member in type_.properties:
                length += len(member.name) + 4 + len(member.doc) + _length(member.type, limit - length)
                if length > limit:
                    return length
            others = [type_.rest] if type_.rest is not None else []
            return length + sum(18 + _length(t, limit - length) for t in [*others, *(t for _, t in type_.patterns)])
        case UnionOf(members) | IntersectionOf(members):
            length = 0
            for part in members:
                length += 3 + _length(part, limit - length)
                if length > limit:
                    return length
            return length
        case TupleOf(elements, _, rest):
            length = 2 if rest is None else 5 + _length(rest, limit)
            for element in elements:
                length += 2 + _length(element, limit - length)
                if length > limit:
                    return length
            return length
        case _:
            return 7


def _side_by_side(first: Type, second: Type) -> Type:
    """Both types as an intersection, objects in it as one object."""
    members: list[Type] = list(first.members) if isinstance(first, IntersectionOf) else [first]
    for addition in second.members if isinstance(second, IntersectionOf) else (second,):
        for position, member in enumerate(members):
            if member == addition:
                break
            if (
                isinstance(member, ObjectOf)
                and isinstance(addition, ObjectOf)
                and not member.patterns + addition.patterns
            ):
                members[position] = _merge(member, addition)
                break
        else:
            members.append(addition)
    return _bounded(members, {})


def _bounded(members: Sequence[Type], alternatives: Mapping[str, int]) -> Type:
    """An intersection without those members that would make TypeScript give up: it multiplies out every union."""
    product = 1
    kept = []
    for member in members:
        count = _alternatives(member, alternatives)
        if product * count <= MAX_PRODUCT:
            product *= count
            kept.append(member)
    if len(kept) <= 1:
        return kept[0] if kept else UNKNOWN
    return IntersectionOf(tuple(kept))


def _alternatives(type_: Type, known: Mapping[str, int]) -> int:
    """How many alternatives a type has at its top, with `known` ones of definitions."""
    match type_:
        case Ref(name):
            return known.get(name, 1)
        case UnionOf(members):
            return sum(_alternatives(member, known) for member in members)
        case IntersectionOf(members):
            return prod(_alternatives(member, known) for member in members)
        case _:
            return 1


def _merge(one: ObjectOf, other: ObjectOf) -> ObjectOf:
    """Two objects without patterns as one. A closed one forbids the other's properties; that is passed over, as the
    authors of `allOf` with closed members never mean it."""
    properties = {p.name: p for p in one.properties}
    theirs = {p.name: p for p in other.properties}
    for name, mine in properties.items():
        both = theirs.get(name)
        if both is None:
            if other.rest is not None:
                properties[name] = replace(mine, type=intersection(mine.type, other.rest))
            continue
        properties[name] = Property(
            name,
            intersection(mine.type, both.type),
            mine.required or both.required,
            mine.doc or both.doc,
            mine.declared or both.declared,
        )
    for name, added in theirs.items():
        if name not in properties:
            rest = one.rest
            properties[name] = added if rest is None else replace(added, type=intersection(added.type, rest))
    if "closed" in (one.openness, other.openness):
        return ObjectOf(tuple(properties.values()), "closed")
    rests = [rest for rest in (one.rest, other.rest) if rest is not None]
    if not rests:
        return ObjectOf(tuple(properties.values()), "silent")
    rest = rests[0] if len(rests) == 1 else intersection(rests[0], rests[1])
    return ObjectOf(tuple(properties.values()), "open", rest)


# ---------------------------------------------------------------------------------------------------------------------
# Schemas to types


def compile_schema(schema: object, name: str = "Root") -> SchemaType:
    """The type of `schema`, a JSON value of whatever shape. Never raises. A root that refers to itself is `name`."""
    return _Compiler(schema, name).compile()


@dataclass(frozen=True, slots=True)
class _Place:
    """A schema and the resource, the nearest enclosing schema with an `$id`, that its references are relative to."""

    schema: object
    base: Mapping[str, Any]


class _Compiler:
    def __init__(self, root: object, name: str) -> None:
        self._root: Mapping[str, Any] = root if isinstance(root, Mapping) else {}
        self._schema = root
        self._root_name = name
        self._nodes = MAX_NODES
        self._base = self._root
        dialect = self._root.get("$schema")
        self._siblings_of_ref_count = not (isinstance(dialect, str) and "/draft-0" in dialect)
        # Definitions, found through references and compiled one after another, not inside each other.
        self._names: dict[int, str] = {}
        self._queue: list[tuple[str, _Place]] = []
        self._definitions: dict[str, Definition] = {}
        self._bits: dict[int, tuple[int, bool]] = {}
        self._identified: dict[str, _Place] | None = None

    def compile(self) -> SchemaType:
        root = self._type(self._schema, _ANY, 0)
        if id(self._root) in self._names:
            root = Ref(self._names[id(self._root)])
        done = 0
        while done < len(self._queue):
            name, place = self._queue[done]
            done += 1
            self._base = place.base
            self._definitions[name] = Definition(self._type(place.schema, _ANY, 0), property_doc(place.schema, name))
        if not self._definitions:
            return SchemaType(root)
        return _inlined(root, self._definitions)

    def _type(self, schema: object, context: int, depth: int) -> Type:
        """The type of one schema, of which only the kinds in `context` matter."""
        if schema is False:
            return NEVER
        if not isinstance(schema, Mapping):
            return UNKNOWN
        self._nodes -= 1
        if depth > MAX_DEPTH or self._nodes < 0:
            return UNKNOWN
        if _NOT_PLAIN.isdisjoint(schema):
            declared = schema.get("type")
            if isinstance(declared, str):
                scalar = _SCALARS.get(declared)
                if scalar is not None:
                    return scalar if _KIND_BITS[declared] & context else NEVER
            if declared is None and not schema:
                return UNKNOWN
            bits, hard = self._own_bits(schema)
            if hard:
                bits &= context
            elif context != _ANY:
                bits = context
            return self._of_kinds(schema, bits, depth)
        if isinstance(schema.get("$id"), str) and not schema["$id"].startswith("#"):
            outer, self._base = self._base, schema
            try:
                return self._combined(schema, context, depth)
            finally:
                self._base = outer
        return self._combined(schema, context, depth)

    def _combined(self, schema: Mapping[str, Any], context: int, depth: int) -> Type:
        type_ = self._without_null(schema, context, depth)
        if schema.get("nullable") is True and context & _NULL:  # OpenAPI 3.0
            return union([type_, NULL])
        return type_

    def _without_null(self, schema: Mapping[str, Any], context: int, depth: int) -> Type:
        reference = schema.get("$ref")
        result: Type = UNKNOWN
        if isinstance(reference, str):
            result = self._reference(reference)
            if not self._siblings_of_ref_count or _SAYS_NOTHING.issuperset(schema):
                return result
        elif "$dynamicRef" in schema or "$recursiveRef" in schema:
            return UNKNOWN
        own_bits, own_hard = self._own_bits(schema)
        their_bits, their_hard = self._combined_kinds(schema, depth)
        bits, hard = _both(own_bits, own_hard, their_bits, their_hard)
        if hard:
            bits &= context
        elif context != _ANY:
            bits = context

        if "const" in schema:
            return intersection(result, self._values([schema["const"]], bits, depth))
        if isinstance(schema.get("enum"), list):
            return intersection(result, self._values(schema["enum"], bits, depth))
        for keyword in ("allOf", "anyOf", "oneOf"):
            branches = schema.get(keyword)
            if not isinstance(branches, list) or not branches:
                continue
            if keyword == "allOf":
                for branch in branches[:MAX_CONJUNCTS]:
                    result = intersection(result, self._type(branch, bits, depth + 1))
            elif len(branches) <= MAX_ALTERNATIVES:
                alternatives = union([self._type(branch, bits, depth + 1) for branch in branches])
                result = intersection(result, alternatives)
        structural = not (_OBJECT_KEYWORDS.isdisjoint(schema) and _ARRAY_KEYWORDS.isdisjoint(schema))
        if not structural and (not own_hard or (their_hard and their_bits & own_bits == their_bits)):
            return result
        return intersection(self._of_kinds(schema, bits, depth), result)

    def _of_kinds(self, schema: Mapping[str, Any], bits: int, depth: int) -> Type:
        """What the schema's own keywords say, for values of the kinds `bits`."""
        if bits == _OBJECT:
            return self._object(schema, depth)
        if bits == _ARRAY:
            return self._array(schema, depth)
        if bits == _ANY:
            return UNKNOWN
        members: list[Type] = [scalar for bit, scalar in _SCALAR_BITS if bits & bit]
        if bits & _ARRAY:
            members.insert(0, self._array(schema, depth))
        if bits & _OBJECT:
            members.insert(0, self._object(schema, depth))
        return union(members)

    # -- kinds

    def _own_bits(self, schema: Mapping[str, Any]) -> tuple[int, bool]:
        """The kinds that a schema's own keywords speak of, and whether they say so (`type`) or only suggest it."""
        declared = schema.get("type")
        if declared is not None:
            bits = _type_bits(declared)
            if bits != _ANY and schema.get("nullable") is True:
                bits |= _NULL
            return bits, bits != _ANY
        is_object = not _OBJECT_KEYWORDS.isdisjoint(schema)
        is_array = not _ARRAY_KEYWORDS.isdisjoint(schema)
        if is_object or is_array:
            return is_object * _OBJECT | is_array * _ARRAY, False
        return _ANY, False

    def _kinds(self, schema: object, depth: int) -> tuple[int, bool]:
        """The kinds of a schema with all that it combines. Asked once per schema, whatever refers to it."""
        if schema is False:
            return 0, True
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            return _ANY, False
        if _COMBINING.isdisjoint(schema) and "const" not in schema and "enum" not in schema:
            return self._own_bits(schema)
        known = self._bits.get(id(schema))
        if known is None:
            self._bits[id(schema)] = (_ANY, False)  # the answer while it is being found: the schema combines itself
            known = _both(*self._own_bits(schema), *self._combined_kinds(schema, depth))
            self._bits[id(schema)] = known
        return known

    def _combined_kinds(self, schema: Mapping[str, Any], depth: int) -> tuple[int, bool]:
        """What references, constants and combined schemas say of a schema's kinds."""
        said: list[tuple[int, bool]] = []
        reference = schema.get("$ref")
        if isinstance(reference, str) and (place := self._resolve(reference)) is not None:
            said.append(self._kinds(place.schema, depth + 1))
        if "const" in schema:
            said.append((_value_bits(schema["const"]), True))
        for keyword in ("allOf", "anyOf", "oneOf", "enum"):
            branches = schema.get(keyword)
            if not isinstance(branches, list) or not branches or len(branches) > MAX_ALTERNATIVES:
                continue
            if keyword == "allOf":
                said.extend(self._kinds(branch, depth + 1) for branch in branches[:MAX_CONJUNCTS])
                continue
            bits, hard = 0, True
            for branch in branches:
                one = (_value_bits(branch), True) if keyword == "enum" else self._kinds(branch, depth + 1)
                bits |= one[0]
                hard &= one[1]
            said.append((bits, hard))
        result = (_ANY, False)
        for bits, hard in said:
            result = _both(bits, hard, *result) if bits != _ANY else result
        return result

    # -- references

    def _reference(self, reference: str) -> Type:
        place = self._resolve(reference)
        if place is None or place.schema is True:
            return UNKNOWN
        if place.schema is False:
            return NEVER
        if not isinstance(place.schema, Mapping) or not place.schema:
            return UNKNOWN
        name = self._names.get(id(place.schema))
        if name is None:
            if len(self._names) >= MAX_DEFINITIONS:
                return UNKNOWN
            name = self._root_name if place.schema is self._root else reference.rpartition("/")[2].lstrip("#")[:100]
            used = set(self._names.values())
            if place.schema is not self._root:
                used.add(self._root_name)
            base, number = name, 2
            while name in used:
                name, number = f"{base}_{number}", number + 1
            self._names[id(place.schema)] = name
            self._queue.append((name, place))
        return Ref(name)

    def _resolve(self, reference: str) -> _Place | None:
        """What a reference points to inside this document; None if it is elsewhere or nowhere."""
        resource, _, fragment = reference.partition("#")
        base: Mapping[str, Any] | None = self._base
        if resource:
            place = self._by_identity(resource)
            base = place.schema if place is not None and isinstance(place.schema, Mapping) else None
        if base is None:
            return None
        if not fragment:
            return _Place(base, base)
        if not fragment.startswith("/"):
            return self._by_identity("#" + fragment)
        return _follow(base, fragment)

    def _by_identity(self, identity: str) -> _Place | None:
        """The schema with this `$id` or, after `#`, this `$anchor`. The document is searched at the first question."""
        if self._identified is None:
            self._identified = _identities(self._root)
        return self._identified.get(identity)

    # -- values

    def _values(self, values: Sequence[object], bits: int, depth: int) -> Type:
        """The type of a choice of JSON values; all values of their kinds where there are too many."""
        few = values[: 2 * MAX_ALTERNATIVES]
        types = [self._value(value, depth) for value in few if bits & _value_bits(value)]
        self._nodes -= sum(len(type_.text) for type_ in types if isinstance(type_, Constant)) // 16
        if len(few) == len(values) and self._nodes >= 0:
            return union(types)
        return self._of_kinds({}, bits, depth)

    def _value(self, value: object, depth: int) -> Type:
        """The type of exactly this JSON value."""
        if value is None:
            return NULL
        if isinstance(value, bool):
            return Constant("boolean", "true" if value else "false")
        if isinstance(value, str):
            return STRING if len(value) > MAX_LITERAL else Constant("string", string_literal(value))
        if isinstance(value, (int, float)):
            text = _number_literal(value)
            return NUMBER if text is None else Constant("number", text)
        self._nodes -= 1
        if self._nodes < 0 or depth > MAX_DEPTH:
            return UNKNOWN
        if isinstance(value, list):
            if len(value) > MAX_TUPLE:
                return ArrayOf(UNKNOWN)
            return TupleOf(tuple(self._value(element, depth + 1) for element in value), len(value), None)
        if isinstance(value, Mapping) and len(value) <= MAX_ALTERNATIVES:
            members = [(k, v) for k, v in value.items() if isinstance(k, str)]
            return ObjectOf(tuple(Property(k, self._value(v, depth + 1), True) for k, v in members), "closed")
        return UNKNOWN

    # -- arrays

    def _array(self, schema: Mapping[str, Any], depth: int) -> Type:
        items = schema.get("items")
        minimum = _count(schema.get("minItems")) or 0
        maximum = _count(schema.get("maxItems"))
        prefix, others = schema.get("prefixItems"), items
        if isinstance(items, list):  # a tuple as draft-07 writes it
            prefix, others = items, schema.get("additionalItems")
        if not isinstance(prefix, list) or not prefix:
            if others is False or maximum == 0:
                return TupleOf((), 0, None)
            return ArrayOf(self._type(others, _ANY, depth + 1), minimum, maximum)
        if len(prefix) > MAX_TUPLE:
            return ArrayOf(UNKNOWN)
        if maximum is not None and maximum <= len(prefix):
            prefix, others = prefix[:maximum], False
        rest = None if others is False else self._type(others, _ANY, depth + 1)
        elements = tuple([self._type(element, _ANY, depth + 1) for element in prefix])
        return TupleOf(elements, min(minimum, len(elements)), rest)

    # -- objects

    def _object(self, schema: Mapping[str, Any], depth: int) -> Type:
        declared = schema.get("properties")
        listed = schema.get("required")
        required = (
            {n for n in listed if isinstance(n, str) and len(n) <= MAX_LITERAL} if isinstance(listed, list) else set()
        )
        openness: Openness = "silent"
        rest: Type | None = None
        others = schema.get("additionalProperties")
        if others is None and _COMBINING.isdisjoint(schema):
            others = schema.get("unevaluatedProperties")
        if others is False:
            openness = "closed"
        elif others is True or isinstance(others, Mapping):
            openness, rest = "open", self._type(others, _ANY, depth + 1)

        properties: list[Property] = []
        if isinstance(declared, Mapping):
            for name, sub in declared.items():
                if self._nodes < 0:
                    # Out of budget: what follows is allowed, and unknown.
                    return ObjectOf(tuple(properties), "open", UNKNOWN)
                if isinstance(name, str) and len(name) <= MAX_LITERAL:
                    type_ = self._type(sub, _ANY, depth + 1)
                    properties.append(Property(name, type_, name in required, property_doc(sub, name)))
        patterns: tuple[tuple[str, Type], ...] = ()
        if "patternProperties" in schema or "propertyNames" in schema:
            return self._with_patterns(schema, ObjectOf(tuple(properties), openness, rest), required, depth)
        if len(properties) < len(required):
            properties.extend(self._undeclared(properties, required, rest or UNKNOWN))
        result = ObjectOf(tuple(properties), openness, rest, patterns)
        if "dependentRequired" in schema or "dependencies" in schema:
            return _dependent(result, schema.get("dependentRequired", schema.get("dependencies")))
        return result

    def _undeclared(self, properties: Sequence[Property], required: set[str], type_: Type) -> list[Property]:
        missing = sorted(required.difference(p.name for p in properties))
        return [Property(name, type_, True, declared=False) for name in missing[:MAX_ALTERNATIVES]]

    def _with_patterns(self, schema: Mapping[str, Any], plain: ObjectOf, required: set[str], depth: int) -> Type:
        """An object whose other properties depend on their names, as far as template literal types can say it."""
        openness, rest = plain.openness, plain.rest
        given = schema.get("patternProperties")
        patterned = {
            pattern: self._type(sub, _ANY, depth + 1)
            for pattern, sub in list(given.items() if isinstance(given, Mapping) else ())[:MAX_ALTERNATIVES]
            if isinstance(pattern, str)
        }
        properties = list(plain.properties)
        properties.extend(self._undeclared(properties, required, UNKNOWN if patterned else rest or UNKNOWN))
        names = {p.name for p in properties}
        templates: tuple[tuple[str, Type], ...] = ()
        if patterned:
            template = _template(next(iter(patterned))) if len(patterned) == 1 else None
            if template is not None and not any(_matches(template, name) for name in names):
                templates = ((template, next(iter(patterned.values()))),)
            else:
                # Which names match cannot be said, so other properties are of any of the types that they may have.
                others: Type = NEVER if openness == "closed" else rest or UNKNOWN
                openness, rest = "open", union([*patterned.values(), others])
        elif openness != "closed":
            allowed = schema.get("propertyNames")
            if isinstance(allowed, Mapping) and isinstance(allowed.get("$ref"), str):
                place = self._resolve(allowed["$ref"])
                allowed = None if place is None else place.schema
            if isinstance(allowed, Mapping):
                choice = [allowed["const"]] if "const" in allowed else allowed.get("enum")
                pattern = allowed.get("pattern")
                template = _template(pattern) if isinstance(pattern, str) else None
                if isinstance(choice, list) and len(choice) <= MAX_ALTERNATIVES:
                    free = dict.fromkeys(
                        name for name in choice if isinstance(name, str) and name not in required | names
                    )
                    properties.extend(Property(name, rest or UNKNOWN) for name in free)
                    openness, rest = "closed", None
                elif template is not None and not any(_matches(template, name) for name in names):
                    templates = ((template, rest or UNKNOWN),)
                    openness, rest = "closed", None
        return ObjectOf(tuple(properties), openness, rest, templates)


MAX_CONJUNCTS: Final = 64
MAX_TUPLE: Final = 64

_SAYS_NOTHING: Final = frozenset(
    {"$ref", "$defs", "$comment", "definitions", "title", "description", "default", "examples", "example", "deprecated"}
    | {"readOnly", "writeOnly", "nullable", "$schema", "$id", "format"}
)
"""What may stand beside a reference without a word on its type; `nullable` is dealt with elsewhere."""


def _both(one: int, one_hard: bool, other: int, other_hard: bool) -> tuple[int, bool]:
    """Two statements on kinds in one. What is said beats what is only suggested; of two suggestions, that of the
    combined schemas (`other`) is the better one, as an object's `properties` may stand beside `anyOf` with null."""
    if one_hard == other_hard:
        if one_hard:
            return one & other, True
        return (other if other != _ANY else one), False
    return (one, True) if one_hard else (other, True)


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 2**31:
        return None
    return int(value)


def string_literal(text: str) -> str:
    """A string literal of TypeScript and JavaScript, on one line, without what hides or reverses text."""
    literal = json.dumps(text, ensure_ascii=False)
    if not literal.isascii() or "\x7f" in literal:
        literal = _HIDDEN.sub(lambda match: "".join(f"\\u{unit:04x}" for unit in _utf16(match[0])), literal)
    return literal


def _utf16(character: str) -> list[int]:
    code = ord(character)
    return [code] if code < 0x10000 else [0xD800 + (code - 0x10000 >> 10), 0xDC00 + (code - 0x10000 & 0x3FF)]


def _number_literal(value: int | float) -> str | None:
    """A number as TypeScript writes it; None for what it has no literal for."""
    if isinstance(value, int):
        return str(value) if value.bit_length() <= 1023 else None
    if value != value or value in (float("inf"), float("-inf")):
        return None
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


def _template(pattern: str) -> str | None:
    """The template literal type of exactly the names that match a simple pattern: `^x-` is `x-${string}`."""
    match = _SIMPLE_PATTERN.fullmatch(pattern)
    if match is None or (match["start"] and match["end"]):
        return None
    text = match["text"].replace("\\", "")
    return ("" if match["start"] else "${string}") + text + ("" if match["end"] else "${string}")


def _matches(template: str, name: str) -> bool:
    text = template.removeprefix("${string}").removesuffix("${string}")
    if not template.startswith("${string}"):
        return name.startswith(text)
    return text in name if template.endswith("${string}") else name.endswith(text)


def _dependent(type_: ObjectOf, dependent: object) -> Type:
    """`type_` where some properties require others: with all of them, or without the first."""
    if not isinstance(dependent, Mapping) or len(dependent) > 2:
        return type_
    result: Type = type_
    for trigger, needed in dependent.items():
        if not isinstance(needed, list) or not needed or not all(isinstance(name, str) for name in needed):
            continue
        names = dict.fromkeys([trigger, *needed])
        having = ObjectOf(tuple(Property(name, UNKNOWN, True, declared=False) for name in names))
        lacking = ObjectOf((Property(trigger, NEVER, declared=False),))
        result = intersection(result, UnionOf((lacking, having)))
    return result


def _follow(base: Mapping[str, Any], pointer: str) -> _Place | None:
    """A JSON pointer, percent-encoded as in a URI fragment."""
    if len(pointer) > 2_000:
        return None
    here: Any = base
    for segment in unquote(pointer).split("/")[1:]:
        key = segment.replace("~1", "/").replace("~0", "~")
        if isinstance(here, Mapping):
            if key not in here:
                return None
            here = here[key]
        elif isinstance(here, list):
            if not key.isdecimal() or len(key) > 6 or int(key) >= len(here):
                return None
            here = here[int(key)]
        else:
            return None
        if isinstance(here, Mapping) and isinstance(here.get("$id"), str) and not here["$id"].startswith("#"):
            base = here
    return _Place(here, base)


def _identities(root: Mapping[str, Any]) -> dict[str, _Place]:
    """Every `$id` and, after `#`, every `$anchor` of a document; the first of equal ones."""
    found: dict[str, _Place] = {}
    root_id = root.get("$id")
    stack: list[tuple[Any, Mapping[str, Any]]] = [(root, root)]
    visits = 20 * MAX_NODES
    while stack and visits:
        visits -= 1
        here, base = stack.pop()
        if isinstance(here, list):
            stack.extend((member, base) for member in reversed(here[:visits]) if isinstance(member, (dict, list)))
            continue
        if not isinstance(here, Mapping):
            continue
        for keyword in ("$id", "id"):
            identity = here.get(keyword)
            if not isinstance(identity, str) or not identity:
                continue
            if identity.startswith("#"):
                found.setdefault(identity, _Place(here, base))
            elif keyword == "$id":
                base = here
                found.setdefault(identity.rstrip("#"), _Place(here, here))
                if isinstance(root_id, str) and here is not root:
                    found.setdefault(_joined(root_id, identity), _Place(here, here))
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = here.get(keyword)
            if isinstance(anchor, str):
                found.setdefault("#" + anchor, _Place(here, base))
        stack.extend((member, base) for member in here.values() if isinstance(member, (Mapping, list)))
    return found


def _joined(base: str, relative: str) -> str:
    try:
        return urljoin(base, relative)
    except ValueError:
        return relative


# ---------------------------------------------------------------------------------------------------------------------
# Which definitions keep a name


def _inlined(root: Type, definitions: dict[str, Definition]) -> SchemaType:
    """The same types with a definition in place of its name where that reads better: used once, or short.

    Definitions that contain themselves keep their names. One that is nothing but itself (`A: {"anyOf": [A, ...]}`) is
    `unknown`: TypeScript refuses such a type, and JSON Schema does not say what it means.
    """
    immediate = {name: _refs(d.type, immediate=True) for name, d in definitions.items()}
    for name in _recurring(immediate):
        definitions[name] = Definition(UNKNOWN, definitions[name].doc)
    graph = {name: _refs(d.type) for name, d in definitions.items()}
    recurring = _recurring(graph)
    uses: dict[str, int] = {}
    for refs in [_refs(root), *graph.values()]:
        for name in refs:
            uses[name] = uses.get(name, 0) + 1

    scope = _Scope({}, {})
    acyclic = {name: set(graph[name]) - recurring for name in definitions if name not in recurring}
    kept: dict[str, Definition] = {}
    for name in (*TopologicalSorter(acyclic).static_order(), *sorted(recurring)):
        definition = Definition(_expand(definitions[name].type, scope), definitions[name].doc)
        scope.alternatives[name] = _alternatives(definition.type, scope.alternatives)
        brief = _length(definition.type, MAX_INLINE) <= MAX_INLINE
        fits = (brief or uses.get(name) == 1) and _height(definition.type) <= MAX_DEPTH // 2
        (scope.inline if fits and name not in recurring else kept)[name] = definition

    expanded = _expand(root, scope)
    reached: dict[str, Definition] = {}
    waiting = list(dict.fromkeys(_refs(expanded)))
    while waiting:
        name = waiting.pop(0)
        if name not in reached:
            reached[name] = kept[name]
            waiting.extend(_refs(kept[name].type))
    return SchemaType(expanded, reached)


def _recurring(graph: Mapping[str, Sequence[str]]) -> set[str]:
    """The nodes that can be reached from themselves."""
    result = set()
    for start in graph:
        seen: set[str] = set()
        stack = list(graph[start])
        while stack and start not in seen:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                stack.extend(graph[node])
        if start in seen:
            result.add(start)
    return result


def _parts(type_: Type) -> Iterable[Type]:
    match type_:
        case ArrayOf(items):
            return (items,)
        case TupleOf(elements, _, rest):
            return elements if rest is None else (*elements, rest)
        case ObjectOf(properties, _, rest, patterns):
            parts = [p.type for p in properties] + [t for _, t in patterns]
            return parts if rest is None else [*parts, rest]
        case UnionOf(members) | IntersectionOf(members):
            return members
        case _:
            return ()


def _refs(type_: Type, *, immediate: bool = False) -> list[str]:
    """The names that a type refers to, repeated ones too; `immediate`: not those inside an object or array."""
    if isinstance(type_, Ref):
        return [type_.name]
    if immediate and isinstance(type_, (ArrayOf, TupleOf, ObjectOf)):
        return []
    return [name for part in _parts(type_) for name in _refs(part, immediate=immediate)]


def _height(type_: Type) -> int:
    return 1 + max(map(_height, _parts(type_)), default=0)


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is known of the definitions that were dealt with: those to write in place, and how many alternatives each
    has."""

    inline: dict[str, Definition]
    alternatives: dict[str, int]


def _expand(type_: Type, scope: _Scope) -> Type:
    """The type with definitions in place of the names that are not kept."""
    match type_:
        case Ref(name):
            return scope.inline[name].type if name in scope.inline else type_
        case ArrayOf(items):
            return replace(type_, items=_expand(items, scope))
        case TupleOf(elements, required, rest):
            expanded = tuple(_expand(element, scope) for element in elements)
            return TupleOf(expanded, required, None if rest is None else _expand(rest, scope))
        case ObjectOf(properties, openness, rest, patterns):
            return ObjectOf(
                tuple(_expand_property(p, scope) for p in properties),
                openness,
                None if rest is None else _expand(rest, scope),
                tuple((template, _expand(t, scope)) for template, t in patterns),
            )
        case UnionOf(members):
            return union([_expand(member, scope) for member in members])
        case IntersectionOf(members):
            result: Type = UNKNOWN
            for member in members:
                result = intersection(result, _expand(member, scope))
            return _bounded(result.members, scope.alternatives) if isinstance(result, IntersectionOf) else result
        case _:
            return type_


def _expand_property(member: Property, scope: _Scope) -> Property:
    doc = member.doc
    if not doc and isinstance(member.type, Ref) and member.type.name in scope.inline:
        doc = scope.inline[member.type.name].doc
    return replace(member, type=_expand(member.type, scope), doc=doc)
