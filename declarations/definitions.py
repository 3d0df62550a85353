"""Definitions that replace their names in types, because they are short or used once. Pure: no I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Final

from declarations.typetree import (
    UNKNOWN,
    ArrayOf,
    Definition,
    IntersectionOf,
    ObjectOf,
    Property,
    Ref,
    SchemaType,
    TupleOf,
    Type,
    UnionOf,
    alternatives,
    bounded_intersection,
    intersection,
    text_length,
    union,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_INLINE: Final = 40
"""Maximum length in characters of a definition that replaces its name wherever it is used."""
MAX_HEIGHT: Final = 20
"""Maximum number of levels of a definition that replaces its name. The limit keeps chains of definitions shallow."""


def inline_definitions(root: Type, definitions: dict[str, Definition]) -> SchemaType:
    """Return the same types. Definitions that are short or used once replace their names.

    Recursive definitions keep their names. A definition that is an alternative of itself (`A: {"anyOf": [A, ...]}`)
    becomes `unknown`: TypeScript refuses such a type, and JSON Schema gives it no meaning.
    """
    immediate = {name: refs(d.type, immediate=True) for name, d in definitions.items()}
    for name in _recursive_names(immediate):
        definitions[name] = Definition(UNKNOWN, definitions[name].doc)
    graph = {name: refs(d.type) for name, d in definitions.items()}
    recurring = _recursive_names(graph)
    uses: dict[str, int] = {}
    for names in [refs(root), *graph.values()]:
        for name in names:
            uses[name] = uses.get(name, 0) + 1

    scope = _Scope({}, {})
    # Used definitions come before their users. So each definition is expanded once, with the definitions in it in
    # place.
    acyclic = {name: set(graph[name]) - recurring for name in definitions if name not in recurring}
    kept: dict[str, Definition] = {}
    for name in (*TopologicalSorter(acyclic).static_order(), *sorted(recurring)):
        definition = Definition(_expand(definitions[name].type, scope), definitions[name].doc)
        scope.alternatives[name] = alternatives(definition.type, scope.alternatives)
        brief = text_length(definition.type, MAX_INLINE) <= MAX_INLINE
        fits = (brief or uses.get(name) == 1) and _height(definition.type) <= MAX_HEIGHT
        (scope.inline if fits and name not in recurring else kept)[name] = definition

    expanded = _expand(root, scope)
    # Only the definitions that the expanded root still names, in the order of their first use.
    reached: dict[str, Definition] = {}
    waiting = list(dict.fromkeys(refs(expanded)))
    while waiting:
        name = waiting.pop(0)
        if name not in reached:
            reached[name] = kept[name]
            waiting.extend(refs(kept[name].type))
    return SchemaType(expanded, reached)


def _recursive_names(graph: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the names that can be reached from themselves."""
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


def refs(type_: Type, *, immediate: bool = False) -> list[str]:
    """Return the names in a type, with repetitions. `immediate`: ignore names inside objects and arrays."""
    if isinstance(type_, Ref):
        return [type_.name]
    if immediate and isinstance(type_, (ArrayOf, TupleOf, ObjectOf)):
        return []
    return [name for part in _parts(type_) for name in refs(part, immediate=immediate)]


def _height(type_: Type) -> int:
    return 1 + max(map(_height, _parts(type_)), default=0)


@dataclass(frozen=True, slots=True)
class _Scope:
    """The definitions so far that replace their names, and the number of alternatives of each definition so far."""

    inline: dict[str, Definition]
    alternatives: dict[str, int]


def _expand(type_: Type, scope: _Scope) -> Type:
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
            # Computed again: members that were names could not be merged before.
            result: Type = UNKNOWN
            for member in members:
                result = intersection(result, _expand(member, scope))
            return (
                bounded_intersection(result.members, scope.alternatives)
                if isinstance(result, IntersectionOf)
                else result
            )
        case _:
            return type_


def _expand_property(member: Property, scope: _Scope) -> Property:
    doc = member.doc
    if not doc and isinstance(member.type, Ref) and member.type.name in scope.inline:
        doc = scope.inline[member.type.name].doc
    return replace(member, type=_expand(member.type, scope), doc=doc)
