"""Properties that conditional keywords add to an object: `then`, `dependentSchemas`, `dependentRequired`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from declarations.typetree import (
    MAX_ALTERNATIVES,
    NEVER,
    UNKNOWN,
    IntersectionOf,
    ObjectOf,
    Property,
    Type,
    UnionOf,
    intersection,
    union,
)

MAX_CONJUNCTS: Final = 64
"""Maximum number of members of `allOf` that are read. The type is wider if there are more."""
MAX_LITERAL: Final = 500
"""Maximum number of characters of a constant or a name. A longer constant becomes `string`. A property with a longer
name is left out."""

COMBINING: Final = frozenset({"$ref", "allOf", "anyOf", "oneOf"})
CONDITIONAL: Final = frozenset({"if", "then", "else", "dependentSchemas", "dependencies"})
_NAMING: Final = (
    COMBINING
    | CONDITIONAL
    | {"patternProperties", "additionalProperties", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"}
)
"""Keywords besides `properties` that may name properties."""


def conditional_names(schema: Mapping[str, Any]) -> dict[str, None] | None:
    """Return the names of properties that conditional keywords declare, in the schema and its `allOf`.

    Return None if the names are unknown.
    """
    names: dict[str, None] = {}
    parts = [schema]
    for keyword in ("allOf", "anyOf", "oneOf"):
        branches = schema.get(keyword)
        if isinstance(branches, list):
            if len(branches) > (MAX_CONJUNCTS if keyword == "allOf" else MAX_ALTERNATIVES):
                return None
            if keyword == "allOf":
                parts.extend(branch for branch in branches if isinstance(branch, Mapping))
    for part in parts:
        if CONDITIONAL.isdisjoint(part):
            continue
        conditional = [part[keyword] for keyword in ("if", "then", "else") if keyword in part]
        for keyword in ("dependentSchemas", "dependencies"):
            dependent = part.get(keyword)
            if isinstance(dependent, Mapping):
                conditional.extend(dependent.values())
        for sub in conditional:
            if not isinstance(sub, Mapping):
                continue
            declared = sub.get("properties", {})
            if not (isinstance(declared, Mapping) and _NAMING.isdisjoint(sub) and len(declared) <= MAX_ALTERNATIVES):
                return None
            names.update((name, None) for name in declared if isinstance(name, str) and len(name) <= MAX_LITERAL)
    return names


def add_names(type_: Type, names: dict[str, None] | None) -> Type:
    """Return the type with further properties of any type. None for `names` allows all other properties.

    An object that forbids or describes other properties is not changed.
    """
    if names is not None and not names:
        return type_
    match type_:
        case ObjectOf(properties, "silent"):
            if names is None:
                return replace(type_, openness="open", rest=UNKNOWN)
            more = names.keys() - {p.name for p in properties}
            return replace(
                type_, properties=properties + tuple(Property(n, UNKNOWN, declared=False) for n in names if n in more)
            )
        case UnionOf(members):
            return union([add_names(member, names) for member in members])
        case IntersectionOf(members):
            return replace(type_, members=tuple(add_names(member, names) for member in members))
        case _:
            return type_


def apply_dependent_required(type_: ObjectOf, needs: object) -> Type:
    """Return a type in which a property requires others: an object has all of them, or not the first."""
    # Each rule doubles the alternatives of the type. Without the rules, the type is only wider.
    if not isinstance(needs, Mapping) or len(needs) > 2:
        return type_
    result: Type = type_
    for trigger, needed in needs.items():
        if not isinstance(needed, list) or not needed or not all(isinstance(name, str) for name in needed):
            continue
        names = dict.fromkeys([trigger, *needed])
        choice = [ObjectOf((Property(trigger, NEVER, declared=False),))]
        if type_.openness != "closed" or names.keys() <= {p.name for p in type_.properties}:
            choice.append(ObjectOf(tuple(Property(name, UNKNOWN, True, declared=False) for name in names)))
        result = intersection(result, union(choice))
    return result
