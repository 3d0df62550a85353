"""The types that a schema can have in TypeScript, as a tree, and their unions and intersections. Pure: no I/O.

Unions and intersections are simplified while they are built, for two reasons. A model reads the text, so it must be
short. And TypeScript multiplies out intersections of unions, so a small schema could exceed its limits. Where a type
would become too large, it becomes wider instead: `unknown`, or an intersection with fewer members.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Final, Literal

from msgspec import Struct, field, structs

from declarations.untrusted_text import HIDDEN, json_escape

MAX_ALTERNATIVES: Final = 512
"""Maximum number of members of a union. A union with more members becomes wider."""
MAX_PRODUCT: Final = 10_000
"""Maximum number of alternatives of an intersection of unions, multiplied out. TypeScript allows ten times as many."""
MAX_SAFE_INTEGER: Final = 2**53 - 1
"""The largest integer that a Number of JavaScript holds exactly (`Number.MAX_SAFE_INTEGER`)."""
MAX_LITERAL_BITS: Final = 1023
MAX_REPEATED: Final = 400
"""Maximum number of characters that are repeated to write `A & (B | C)` as `A & B | A & C`."""


class Unknown(Struct, frozen=True):
    """Any value."""


class Never(Struct, frozen=True):
    """No value: the schema `false`, or a contradiction."""


class Scalar(Struct, frozen=True):
    """All values of one kind."""

    name: Literal["null", "boolean", "number", "bigint", "string"]


class Constant(Struct, frozen=True):
    """One value as a TypeScript literal type. The value is stored as text, since `1 == True` in Python."""

    kind: Literal["boolean", "number", "bigint", "string"]
    text: str


class ArrayOf(Struct, frozen=True):
    items: Type
    min_items: int = 0
    max_items: int | None = None


class TupleOf(Struct, frozen=True):
    """Fixed elements, the first `required` of them mandatory. `rest` is the type of further elements, if any."""

    elements: tuple[Type, ...]
    required: int
    rest: Type | None


class Property(Struct, frozen=True):
    """One property. `declared` is False if the schema only requires or forbids it, and gives it no type."""

    name: str
    type: Type
    required: bool = False
    doc: str = ""
    declared: bool = True


Openness = Literal["closed", "silent", "open"]
"""Rule for other properties: `closed` forbids them, `open` gives them the type `rest`, `silent` says nothing."""


class ObjectOf(Struct, frozen=True):
    """An object.

    Attributes:
        properties: in the order of the schema.
        openness: rule for other properties.
        rest: type of other properties, if `open`.
        patterns: template literal types of names, such as `x-${string}`, with the types of their properties.
    """

    properties: tuple[Property, ...] = ()
    openness: Openness = "silent"
    rest: Type | None = None
    patterns: tuple[tuple[str, Type], ...] = ()


class UnionOf(Struct, frozen=True):
    members: tuple[Type, ...]


class IntersectionOf(Struct, frozen=True):
    members: tuple[Type, ...]


class Ref(Struct, frozen=True):
    """A reference to a definition of the same `SchemaType`."""

    name: str


Type = Unknown | Never | Scalar | Constant | ArrayOf | TupleOf | ObjectOf | UnionOf | IntersectionOf | Ref


class Definition(Struct, frozen=True):
    type: Type
    doc: str = ""


class SchemaType(Struct, frozen=True):
    """A schema's type, and its named types. A type is named if it is recursive, or long and used repeatedly."""

    root: Type
    definitions: Mapping[str, Definition] = field(default_factory=dict)


UNKNOWN: Final = Unknown()
NEVER: Final = Never()
NULL: Final = Scalar("null")
BOOLEAN: Final = Scalar("boolean")
NUMBER: Final = Scalar("number")
BIGINT: Final = Scalar("bigint")
STRING: Final = Scalar("string")
INTEGER: Final = UnionOf((NUMBER, BIGINT))
"""Integers that may be beyond 2^53, where a program has a bigint."""
ANY_OBJECT: Final = ObjectOf((), "open", UNKNOWN)
_TRUE: Final = Constant("boolean", "true")
_FALSE: Final = Constant("boolean", "false")


# Constants


def string_literal(text: str) -> str:
    """Return a string literal of TypeScript and JavaScript, with invisible and bidirectional characters escaped."""
    literal = json.dumps(text, ensure_ascii=False)
    if not literal.isascii() or "\x7f" in literal:
        literal = HIDDEN.sub(lambda match: json_escape(match[0]), literal)
    return literal


def is_beyond(value: object) -> bool:
    """Return True for a number that a program can have only rounded, or as a bigint."""
    return isinstance(value, (int, float)) and abs(value) > MAX_SAFE_INTEGER


def number_constant(value: int | float) -> Constant | None:
    """Return the type of a number; None if there is no literal for it."""
    if isinstance(value, int) and is_beyond(value):
        return Constant("bigint", f"{value}n") if value.bit_length() <= MAX_LITERAL_BITS else None
    text = _number_text(value)
    return None if text is None else Constant("number", text)


def _number_text(value: int | float) -> str | None:
    if isinstance(value, int):
        return str(value)
    if value != value or value in (float("inf"), float("-inf")):
        return None
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


# Unions and intersections


def union(types: Iterable[Type]) -> Type:
    """Return the union, flat and without members that another member covers."""
    members: dict[Type, None] = {}
    for type_ in types:
        for member in type_.members if isinstance(type_, UnionOf) else (type_,):
            if isinstance(member, Unknown):
                return UNKNOWN
            if not isinstance(member, Never):
                members[member] = None
    kept = [m for m in members if not (isinstance(m, Constant) and Scalar(m.kind) in members)]
    if _TRUE in members and _FALSE in members and BOOLEAN not in members:
        return union([BOOLEAN if member == _TRUE else member for member in kept if member != _FALSE])
    if _is_anything(kept):
        return UNKNOWN
    if len(kept) > MAX_ALTERNATIVES:
        # Constants become the scalar of their kind. If that does not help, any value is allowed.
        wider = dict.fromkeys(Scalar(m.kind) if isinstance(m, Constant) else m for m in kept)
        return union(wider) if len(wider) < len(kept) else UNKNOWN
    if len(kept) <= 1:
        return kept[0] if kept else NEVER
    return UnionOf(tuple(kept))


def _is_anything(members: Sequence[Type]) -> bool:
    """Return True if the members are all six kinds without restriction. Generators write `unknown` like this."""
    return (
        len(members) >= 6
        and all(scalar in members for scalar in (NULL, BOOLEAN, NUMBER, STRING))
        and ArrayOf(UNKNOWN) in members
        and any(m in members for m in (ANY_OBJECT, ObjectOf()))
    )


def intersection(first: Type, second: Type) -> Type:
    """Return the type of the values that both types accept. Types that cannot be merged stay side by side."""
    if first == second or isinstance(second, Unknown) or isinstance(first, Never):
        return first
    if isinstance(first, Unknown) or isinstance(second, Never):
        return second
    if isinstance(first, UnionOf) or isinstance(second, UnionOf):
        return _distribute(first, second)
    if isinstance(first, (Ref, IntersectionOf)) or isinstance(second, (Ref, IntersectionOf)):
        return _side_by_side(first, second)
    if _kind(first) != _kind(second):
        return NEVER
    match first, second:
        # Both have one kind, so the other side of a scalar is the narrower one.
        case (Scalar(), _):
            return second
        case (_, Scalar()):
            return first
        case (Constant(), Constant()):
            return NEVER
        case (ObjectOf() as one, ObjectOf() as other) if not (one.patterns or other.patterns):
            merged = _merge(one, other)
            return NEVER if any(p.required and isinstance(p.type, Never) for p in merged.properties) else merged
        case (ArrayOf() as one, ArrayOf() as other):
            maxima = [m for m in (one.max_items, other.max_items) if m is not None]
            items = intersection(one.items, other.items)
            return ArrayOf(items, max(one.min_items, other.min_items), min(maxima, default=None))
        # An array without restrictions adds nothing to a tuple.
        case (ArrayOf(items=Unknown(), min_items=0, max_items=None), TupleOf()):
            return second
        case (TupleOf(), ArrayOf(items=Unknown(), min_items=0, max_items=None)):
            return first
        case _:
            return _side_by_side(first, second)


def _kind(type_: Type) -> str:
    """Return the kind of JSON value of a type other than a union, an intersection or a name."""
    match type_:
        case Scalar(kind) | Constant(kind):
            return "number" if kind == "bigint" else kind
        case ArrayOf() | TupleOf():
            return "array"
        case _:
            return "object"


def _distribute(first: Type, second: Type) -> Type:
    """Return an intersection of unions: multiplied out if the text is short, else side by side.

    Multiplied out, contradictory alternatives disappear, and objects are merged.
    """
    ones = first.members if isinstance(first, UnionOf) else (first,)
    others = second.members if isinstance(second, UnionOf) else (second,)
    if all(isinstance(member, (Scalar, Constant)) for member in (*ones, *others)):
        small = len(ones) * len(others) <= 4 * MAX_ALTERNATIVES
    else:
        # Every alternative of one side is repeated for every alternative of the other. The limit is on the text, not on
        # the number of members, so that nested repetitions do not multiply.
        small = (
            text_length(first, MAX_REPEATED) * len(others) + text_length(second, MAX_REPEATED) * len(ones)
            <= MAX_REPEATED
        )
    if not small:
        return _side_by_side(first, second)
    return union([intersection(one, other) for one in ones for other in others])


def text_length(type_: Type, limit: int) -> int:
    """Return roughly the length of a type as text. Counting stops soon after `limit`."""
    match type_:
        case Constant(text=text):
            return len(text) + 3
        case Ref(name):
            return len(name)
        case ArrayOf(items):
            return 2 + text_length(items, limit)
        case ObjectOf():
            length = 4
            for member in type_.properties:
                length += len(member.name) + 4 + len(member.doc) + text_length(member.type, limit - length)
                if length > limit:
                    return length
            others = [t for _, t in type_.patterns]
            if type_.rest is not None:
                # The index signature repeats the types of the properties.
                others.append(type_.rest)
                length *= 2
            return length + sum(18 + text_length(t, limit - length) for t in others)
        case UnionOf(members) | IntersectionOf(members):
            return _total_length(members, 3, 0, limit)
        case TupleOf(elements, _, rest):
            return _total_length(elements, 2, 2 if rest is None else 5 + text_length(rest, limit), limit)
        case _:
            return 7


def _total_length(parts: Iterable[Type], separator: int, length: int, limit: int) -> int:
    for part in parts:
        length += separator + text_length(part, limit - length)
        if length > limit:
            break
    return length


def _side_by_side(first: Type, second: Type) -> Type:
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
    return bounded_intersection(members, {})


def bounded_intersection(members: Sequence[Type], known: Mapping[str, int]) -> Type:
    """Return an intersection without the members that would exceed `MAX_PRODUCT`: TypeScript multiplies out unions.

    `known` has the number of alternatives of definitions. The result is wider without a member, which is allowed.
    """
    product = 1
    kept = []
    for member in members:
        count = alternatives(member, known)
        if product * count <= MAX_PRODUCT:
            product *= count
            kept.append(member)
    if len(kept) <= 1:
        return kept[0] if kept else UNKNOWN
    return IntersectionOf(tuple(kept))


def alternatives(type_: Type, known: Mapping[str, int]) -> int:
    """Return the number of alternatives of a type. `known`: the number of alternatives of definitions."""
    match type_:
        case Ref(name):
            return known.get(name, 1)
        case UnionOf(members):
            return sum(alternatives(member, known) for member in members)
        case IntersectionOf(members):
            return prod(alternatives(member, known) for member in members)
        case _:
            return 1


def _merge(one: ObjectOf, other: ObjectOf) -> ObjectOf:
    """Return two objects without patterns as one object.

    By JSON Schema, a closed object forbids the properties of the other one. Authors of `allOf` do not mean that, so the
    merged object has the properties of both.
    """
    properties = {p.name: p for p in one.properties}
    theirs = {p.name: p for p in other.properties}
    for name, mine in properties.items():
        both = theirs.get(name)
        if both is None:
            if other.rest is not None:
                properties[name] = structs.replace(mine, type=intersection(mine.type, other.rest))
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
            properties[name] = added if rest is None else structs.replace(added, type=intersection(added.type, rest))
    if "closed" in (one.openness, other.openness):
        return ObjectOf(tuple(properties.values()), "closed")
    rests = [rest for rest in (one.rest, other.rest) if rest is not None]
    if not rests:
        return ObjectOf(tuple(properties.values()), "silent")
    rest = rests[0] if len(rests) == 1 else intersection(rests[0], rests[1])
    return ObjectOf(tuple(properties.values()), "open", rest)
