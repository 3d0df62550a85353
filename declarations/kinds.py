"""References, definitions, conditions and kinds of JSON values in schemas. Pure: no I/O.

A kind is stated if `type`, a constant or a choice requires it. A kind is suggested if the schema only has keywords of
this kind, such as `properties`. A stated kind overrides a suggested one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any, Final
from urllib.parse import unquote, urljoin

from msgspec import Struct, structs

from declarations.names import word_set
from declarations.typetree import (
    MAX_ALTERNATIVES,
    NEVER,
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

MAX_DEPTH: Final = 40
"""Maximum number of levels of nested schemas that are read."""

NULL, BOOLEAN, NUMBER, STRING, ARRAY, OBJECT = 1, 2, 4, 8, 16, 32
ANY: Final = 63
KIND_BITS: Final = {
    "null": NULL,
    "boolean": BOOLEAN,
    "number": NUMBER,
    "integer": NUMBER,
    "string": STRING,
    "array": ARRAY,
    "object": OBJECT,
}

OBJECT_KEYWORDS: Final = word_set("""
    properties required additionalProperties patternProperties propertyNames minProperties maxProperties
    dependentRequired unevaluatedProperties
""")
ARRAY_KEYWORDS: Final = word_set("""
    items prefixItems additionalItems minItems maxItems uniqueItems contains unevaluatedItems
""")

STRUCTURAL: Final = OBJECT_KEYWORDS | ARRAY_KEYWORDS


def type_bits(declared: object) -> int:
    """Return the kinds of a `type` keyword; all kinds if it is missing or invalid."""
    if isinstance(declared, str):
        return KIND_BITS.get(declared, ANY)
    if isinstance(declared, list) and declared:
        bits = 0
        for name in declared[:20]:
            bits |= KIND_BITS.get(name, ANY) if isinstance(name, str) else ANY
        return bits
    return ANY


def value_bits(value: object) -> int:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, (int, float)):
        return NUMBER
    if isinstance(value, str):
        return STRING
    return ARRAY if isinstance(value, list) else OBJECT


def own_bits(schema: Mapping[str, Any]) -> tuple[int, bool]:
    """Return the kinds of a schema's own keywords. The flag is True if `type` states the kinds."""
    declared = schema.get("type")
    if declared is not None:
        bits = type_bits(declared)
        if bits != ANY and schema.get("nullable") is True:
            bits |= NULL
        return bits, bits != ANY
    is_object = not OBJECT_KEYWORDS.isdisjoint(schema)
    is_array = not ARRAY_KEYWORDS.isdisjoint(schema)
    if is_object or is_array:
        return is_object * OBJECT | is_array * ARRAY, False
    return ANY, False


def combine(one: int, one_stated: bool, other: int, other_stated: bool) -> tuple[int, bool]:
    """Return two statements about kinds as one. A stated kind overrides a suggested one.

    Of two suggestions, that of the combined schemas (`other`) counts: `properties` may stand beside an `anyOf` that
    also allows null.
    """
    if one_stated == other_stated:
        if one_stated:
            return one & other, True
        return (other if other != ANY else one), False
    return (one, True) if one_stated else (other, True)


def restrict(context: int, bits: int, stated: bool) -> int:
    """Return the kinds of a schema that are also in `context`. `context` overrides kinds that are only suggested."""
    return bits & context if stated or context == ANY else context


class CombinedKinds:
    """The kinds that schemas get from the schemas that they combine. Each schema of a document is read once."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._known: dict[int, tuple[int, bool]] = {}

    def combined(self, schema: Mapping[str, Any], base: Mapping[str, Any], depth: int) -> tuple[int, bool]:
        """Return the kinds of a schema by its references, constants and combined schemas.

        Args:
            base: the resource of the schema.
        """
        found: list[tuple[int, bool]] = []
        reference = schema.get("$ref")
        place = self._document.resolve(reference, base) if isinstance(reference, str) else None
        # References in another resource are relative to that one.
        if place is not None and place.base is base:
            found.append(self._of_schema(place.schema, base, depth + 1))
        if "const" in schema:
            found.append((value_bits(schema["const"]), True))
        for keyword in ("allOf", "anyOf", "oneOf", "enum"):
            branches = schema.get(keyword)
            if not isinstance(branches, list) or not branches or len(branches) > MAX_ALTERNATIVES:
                continue
            if keyword == "allOf":
                found.extend(self._of_schema(branch, base, depth + 1) for branch in branches[:MAX_CONJUNCTS])
                continue
            bits, stated = 0, True
            for branch in branches:
                one = (value_bits(branch), True) if keyword == "enum" else self._of_schema(branch, base, depth + 1)
                bits |= one[0]
                stated &= one[1]
            found.append((bits, stated))
        result = (ANY, False)
        for bits, stated in found:
            result = combine(bits, stated, *result) if bits != ANY else result
        return result

    def _of_schema(self, schema: object, base: Mapping[str, Any], depth: int) -> tuple[int, bool]:
        """Return the kinds of a schema by its own keywords and by the schemas that it combines."""
        if schema is False:
            return 0, True
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH or "$id" in schema:
            return ANY, False
        if COMBINING.isdisjoint(schema) and "const" not in schema and "enum" not in schema:
            return own_bits(schema)
        known = self._known.get(id(schema))
        if known is None:
            self._known[id(schema)] = (ANY, False)  # the answer for a schema that combines itself
            known = self._known[id(schema)] = combine(*own_bits(schema), *self.combined(schema, base, depth))
        return known


# Properties that conditional keywords add to an object: `then`, `dependentSchemas`, `dependentRequired`.


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
                return structs.replace(type_, openness="open", rest=UNKNOWN)
            more = names.keys() - {p.name for p in properties}
            return structs.replace(
                type_, properties=properties + tuple(Property(n, UNKNOWN, declared=False) for n in names if n in more)
            )
        case UnionOf(members):
            return union([add_names(member, names) for member in members])
        case IntersectionOf(members):
            return structs.replace(type_, members=tuple(add_names(member, names) for member in members))
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


# Definitions that replace their names in types, because they are short or used once.


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


class _Scope(Struct, frozen=True):
    """The definitions so far that replace their names, and the number of alternatives of each definition so far."""

    inline: dict[str, Definition]
    alternatives: dict[str, int]


def _expand(type_: Type, scope: _Scope) -> Type:
    match type_:
        case Ref(name):
            return scope.inline[name].type if name in scope.inline else type_
        case ArrayOf(items):
            return structs.replace(type_, items=_expand(items, scope))
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
    return structs.replace(member, type=_expand(member.type, scope), doc=doc)


# References inside one schema document. Pure: no I/O. Other documents are never fetched.


MAX_VISITS: Final = 100_000
"""Maximum number of values that are searched for `$id` and `$anchor`."""
MAX_POINTER: Final = 2_000


class Place(Struct, frozen=True):
    """A schema and its resource. The resource is the nearest enclosing schema with an `$id`, the base of references."""

    schema: object
    base: Mapping[str, Any]


class Document:
    """One schema document in which references are resolved."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._identified: dict[str, Place] | None = None

    def resolve(self, reference: str, base: Mapping[str, Any]) -> Place | None:
        """Return the target of a reference in the resource `base`; None if it is not in the document."""
        resource, _, fragment = reference.partition("#")
        if resource:
            place = self._by_identity(resource)
            if place is None:
                return None
            base = place.base
        if not fragment:
            return Place(base, base)
        if not fragment.startswith("/"):
            return self._by_identity(_anchor(base, fragment))
        return _follow(base, fragment)

    def _by_identity(self, identity: str) -> Place | None:
        """Return the schema with an `$id`, or with an anchor of a resource. The first call searches the document."""
        if self._identified is None:
            self._identified = _identities(self._root)
        return self._identified.get(identity)


def _follow(base: Mapping[str, Any], pointer: str) -> Place | None:
    """Return the target of a JSON pointer, which is percent-encoded as in a URI fragment."""
    if len(pointer) > MAX_POINTER:
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
    return Place(here, base)


def _identities(root: Mapping[str, Any]) -> dict[str, Place]:
    """Return the schemas of a document by `$id`, and by the anchors of resources. Of equal names, the first counts."""
    found: dict[str, Place] = {}
    root_id = root.get("$id")
    stack: list[tuple[Any, Mapping[str, Any]]] = [(root, root)]
    visits = MAX_VISITS
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
                found.setdefault(_anchor(base, identity[1:]), Place(here, base))
            elif keyword == "$id":
                base = here
                found.setdefault(identity.rstrip("#"), Place(here, here))
                if isinstance(root_id, str) and here is not root:
                    found.setdefault(_joined(root_id, identity), Place(here, here))
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = here.get(keyword)
            if isinstance(anchor, str):
                found.setdefault(_anchor(base, anchor), Place(here, base))
        stack.extend((member, base) for member in here.values() if isinstance(member, (Mapping, list)))
    return found


def _anchor(base: Mapping[str, Any], name: str) -> str:
    return f"{id(base)}#{name}"


def _joined(base: str, relative: str) -> str:
    try:
        return urljoin(base, relative)
    except ValueError:
        return relative
