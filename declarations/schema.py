"""JSON Schema, draft-07 and 2020-12, as a small tree of types. Pure: no I/O. Remote references are never fetched.

The tree has what TypeScript can express. Keywords that are unclear, contradictory or of the wrong type are ignored: a
type may be wider than its schema, never narrower. Two readings are deliberate, because authors mean them:

* A schema without `type` but with keywords of one kind (`properties`, `items`, ...) describes that kind alone.
* An object that declares properties, without a keyword on other ones, gets no index signature. TypeScript's object
  types are open by nature, and a literal with a misspelt property should be refused. `additionalProperties: true` gets
  one.

Keywords of all drafts count, whatever `$schema` is. Only keywords beside `$ref` are ignored before draft 2019-09.

A type is wider than its schema where TypeScript cannot express a keyword, or not briefly:

* `not`, `if`, `dependentSchemas`, `contains`, `uniqueItems`, bounds, patterns and formats, `minProperties` and
  `maxProperties`, `$dynamicRef`; integers are numbers, and `oneOf` is `anyOf`. More than two `dependentRequired`.
* How many items an array has, other than those of a tuple or of few short ones.
* Which property names are allowed, other than a choice of them or one simple pattern. Where several patterns or one
  that a declared property matches are given, an undeclared property is of any of the types.
* Beside declared properties, an index signature covers their types too; a long one is `unknown`.
* `unevaluatedProperties` and `unevaluatedItems` beside `allOf`, `anyOf`, `oneOf` or `$ref`.
* That an object has no other properties, within a union or an intersection: TypeScript takes whatever one of the
  branches declares, and closed members of `allOf` are joined.
* Within an intersection, an object type without required properties takes arrays and scalars.

`tests/declarations/schemas_and_values.py` holds this list in a form that is compared with a validator and a compiler.

Work is bounded for any input: nesting beyond `MAX_DEPTH` and everything after `MAX_NODES` schemas becomes `unknown`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from declarations.conditions import (
    COMBINING,
    CONDITIONAL,
    MAX_CONJUNCTS,
    MAX_LITERAL,
    conditional_names,
    dependent,
    opened,
)
from declarations.definitions import inlined
from declarations.jsdoc import MAX_PROPERTY_TEXT, property_doc
from declarations.references import Document, Place
from declarations.typetree import (
    ANY_OBJECT,
    BOOLEAN,
    MAX_ALTERNATIVES,
    NEVER,
    NULL,
    NUMBER,
    STRING,
    UNKNOWN,
    ArrayOf,
    Constant,
    Definition,
    ObjectOf,
    Openness,
    Property,
    Ref,
    SchemaType,
    TupleOf,
    Type,
    intersection,
    number_literal,
    string_literal,
    union,
)

MAX_DEPTH: Final = 40
MAX_NODES: Final = 5_000
MAX_DEFINITIONS: Final = 300
MAX_TUPLE: Final = 64

# Kinds: the kinds of JSON values, of six, that a schema describes, as bits.
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

_SIMPLE_PATTERN: Final = re.compile(r"(?P<start>\^?)(?P<text>(?:[\w:@/ -]|\\[-./$])+)(?P<end>\$?)", re.ASCII)

_NOT_PLAIN: Final = COMBINING | CONDITIONAL | {"const", "enum", "nullable", "$id", "$dynamicRef", "$recursiveRef"}
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
    """Return the kinds of a `type` keyword; all kinds if it is missing or invalid."""
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


_NOT_TYPING: Final = frozenset(
    {"$ref", "$defs", "$comment", "definitions", "title", "description", "default", "examples", "example", "deprecated"}
    | {"readOnly", "writeOnly", "nullable", "$schema", "$id", "format"}
)
"""Keywords beside a reference that do not change its type. `_combined` handles `nullable`."""


def compile_schema(schema: object, name: str = "Root", text: int = MAX_PROPERTY_TEXT) -> SchemaType:
    """Return the type of `schema`, which may be any JSON value. Raise no errors.

    Args:
        name: the name of a root that refers to itself.
        text: characters of a property's description that are kept.
    """
    return _Compiler(schema, name, text).compile()


class _Compiler:
    def __init__(self, root: object, name: str, text: int) -> None:
        self._text = text
        self._root: Mapping[str, Any] = root if isinstance(root, Mapping) else {}
        self._schema = root
        self._document = Document(self._root)
        self._root_name = name
        self._nodes = MAX_NODES
        self._base = self._root
        dialect = self._root.get("$schema")
        self._siblings_of_ref_count = not (isinstance(dialect, str) and "/draft-0" in dialect)
        # Definitions found through references. They are compiled one after another, not inside each other.
        self._names: dict[int, str] = {}
        self._queue: list[tuple[str, Place]] = []
        self._definitions: dict[str, Definition] = {}
        self._bits: dict[int, tuple[int, bool]] = {}

    def compile(self) -> SchemaType:
        root = self._type(self._schema, _ANY, 0)
        done = 0
        while done < len(self._queue):
            name, place = self._queue[done]
            done += 1
            self._base = place.base
            self._definitions[name] = Definition(
                self._type(place.schema, _ANY, 0), property_doc(place.schema, name, self._text)
            )
        if not self._definitions:
            return SchemaType(root)
        if id(self._root) in self._names:
            root = Ref(self._names[id(self._root)])
        return inlined(root, self._definitions)

    def _type(self, schema: object, context: int, depth: int) -> Type:
        """Return the type of one schema. Only the kinds in `context` matter."""
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
            return self._of_kinds(schema, _within(context, *self._own_bits(schema)), depth)
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
            if not self._siblings_of_ref_count or _NOT_TYPING.issuperset(schema):
                return result
        elif "$dynamicRef" in schema or "$recursiveRef" in schema:
            return UNKNOWN
        own_bits, own_hard = self._own_bits(schema)
        their_bits, their_hard = self._combined_kinds(schema, depth)
        bits = _within(context, *_both(own_bits, own_hard, their_bits, their_hard))
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
        if structural or (own_hard and not (their_hard and their_bits & own_bits == their_bits)):
            result = intersection(self._of_kinds(schema, bits, depth), result)
        if isinstance(reference, str) and self._document.resolve(reference, self._base) is None:
            return opened(result, None)
        return opened(result, conditional_names(schema))

    def _of_kinds(self, schema: Mapping[str, Any], bits: int, depth: int) -> Type:
        """Return the type of the schema's own keywords, for values of the kinds `bits`."""
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
        """Return the kinds of a schema's own keywords, and whether `type` states them or others only suggest them."""
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
        """Return the kinds of a schema with all that it combines. They are found once for each schema."""
        if schema is False:
            return 0, True
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH or "$id" in schema:
            return _ANY, False
        if COMBINING.isdisjoint(schema) and "const" not in schema and "enum" not in schema:
            return self._own_bits(schema)
        known = self._bits.get(id(schema))
        if known is None:
            self._bits[id(schema)] = (_ANY, False)  # the answer for a schema that combines itself
            known = _both(*self._own_bits(schema), *self._combined_kinds(schema, depth))
            self._bits[id(schema)] = known
        return known

    def _combined_kinds(self, schema: Mapping[str, Any], depth: int) -> tuple[int, bool]:
        """Return the kinds of a schema by its references, constants and combined schemas."""
        found: list[tuple[int, bool]] = []
        reference = schema.get("$ref")
        place = self._document.resolve(reference, self._base) if isinstance(reference, str) else None
        # The references of another resource are relative to that resource, not to this one.
        if place is not None and place.base is self._base:
            found.append(self._kinds(place.schema, depth + 1))
        if "const" in schema:
            found.append((_value_bits(schema["const"]), True))
        for keyword in ("allOf", "anyOf", "oneOf", "enum"):
            branches = schema.get(keyword)
            if not isinstance(branches, list) or not branches or len(branches) > MAX_ALTERNATIVES:
                continue
            if keyword == "allOf":
                found.extend(self._kinds(branch, depth + 1) for branch in branches[:MAX_CONJUNCTS])
                continue
            bits, hard = 0, True
            for branch in branches:
                one = (_value_bits(branch), True) if keyword == "enum" else self._kinds(branch, depth + 1)
                bits |= one[0]
                hard &= one[1]
            found.append((bits, hard))
        result = (_ANY, False)
        for bits, hard in found:
            result = _both(bits, hard, *result) if bits != _ANY else result
        return result

    # -- references

    def _reference(self, reference: str) -> Type:
        place = self._document.resolve(reference, self._base)
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

    # -- values

    def _values(self, values: Sequence[object], bits: int, depth: int) -> Type:
        """Return the type of a choice of JSON values; of all values of their kinds if there are too many."""
        few = values[: 2 * MAX_ALTERNATIVES]
        types = [self._value(value, depth) for value in few if bits & _value_bits(value)]
        self._nodes -= sum(len(type_.text) for type_ in types if isinstance(type_, Constant)) // 16
        if len(few) == len(values) and self._nodes >= 0:
            return union(types)
        kinds = 0
        for value in values:
            kinds |= _value_bits(value)
        return self._of_kinds({}, bits & kinds, depth)

    def _value(self, value: object, depth: int) -> Type:
        """Return the type of exactly this JSON value."""
        if value is None:
            return NULL
        if isinstance(value, bool):
            return Constant("boolean", "true" if value else "false")
        if isinstance(value, str):
            return STRING if len(value) > MAX_LITERAL else Constant("string", string_literal(value))
        if isinstance(value, (int, float)):
            text = number_literal(value)
            return NUMBER if text is None else Constant("number", text)
        self._nodes -= 1
        if self._nodes < 0 or depth > MAX_DEPTH:
            return UNKNOWN
        if isinstance(value, list):
            if len(value) > MAX_TUPLE:
                return ArrayOf(UNKNOWN)
            return TupleOf(tuple(self._value(element, depth + 1) for element in value), len(value), None)
        if not isinstance(value, Mapping) or len(value) > MAX_ALTERNATIVES:
            return UNKNOWN
        if any(not isinstance(key, str) or len(key) > MAX_LITERAL for key in value):
            return ANY_OBJECT
        members = [Property(key, self._value(member, depth + 1), True) for key, member in value.items()]
        return ObjectOf(tuple(members), "closed")

    # -- arrays

    def _array(self, schema: Mapping[str, Any], depth: int) -> Type:
        items = schema.get("items")
        minimum = _count(schema.get("minItems")) or 0
        maximum = _count(schema.get("maxItems"))
        prefix, others = schema.get("prefixItems"), items
        if isinstance(items, list):  # a tuple of draft-07
            prefix, others = items, schema.get("additionalItems")
        if maximum is not None and minimum > maximum:
            return NEVER
        if not isinstance(prefix, list) or not prefix:
            if others is False and minimum:
                return NEVER
            if others is False or maximum == 0:
                return TupleOf((), 0, None)
            return ArrayOf(self._type(others, _ANY, depth + 1), minimum, maximum)
        if len(prefix) > MAX_TUPLE:
            return ArrayOf(UNKNOWN)
        if maximum is not None and maximum <= len(prefix):
            prefix, others = prefix[:maximum], False
        if others is False and minimum > len(prefix):
            return NEVER
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
        if others is None and COMBINING.isdisjoint(schema):
            others = schema.get("unevaluatedProperties")
        if others is False:
            openness = "closed"
        elif others is True or isinstance(others, Mapping):
            openness, rest = "open", self._type(others, _ANY, depth + 1)

        properties: list[Property] = []
        if isinstance(declared, Mapping):
            for name, sub in declared.items():
                if self._nodes < 0:
                    # Out of budget: other properties are allowed, and unknown.
                    return ObjectOf(tuple(properties), "open", UNKNOWN)
                if isinstance(name, str) and len(name) <= MAX_LITERAL:
                    type_ = self._type(sub, _ANY, depth + 1)
                    properties.append(Property(name, type_, name in required, property_doc(sub, name, self._text)))
                else:
                    openness, rest = "open", UNKNOWN
        if "patternProperties" in schema or "propertyNames" in schema:
            return self._with_patterns(schema, ObjectOf(tuple(properties), openness, rest), required, depth)
        if required and not required.issubset(declared if isinstance(declared, Mapping) else ()):
            properties.extend(self._undeclared(properties, required, rest or UNKNOWN))
        result = ObjectOf(tuple(properties), openness, rest)
        if "dependentRequired" in schema or "dependencies" in schema:
            return dependent(result, schema.get("dependentRequired", schema.get("dependencies")))
        return result

    def _undeclared(self, properties: Sequence[Property], required: set[str], type_: Type) -> list[Property]:
        missing = sorted(required.difference(p.name for p in properties))
        return [Property(name, type_, True, declared=False) for name in missing[:MAX_ALTERNATIVES]]

    def _with_patterns(self, schema: Mapping[str, Any], plain: ObjectOf, required: set[str], depth: int) -> Type:
        """Return an object whose other properties depend on their names, if template literal types can express it."""
        openness, rest = plain.openness, plain.rest
        given = schema.get("patternProperties")
        patterned = {
            pattern: self._type(sub, _ANY, depth + 1)
            for pattern, sub in list(given.items() if isinstance(given, Mapping) else ())[:MAX_ALTERNATIVES]
            if isinstance(pattern, str)
        }
        if isinstance(given, Mapping) and len(given) > len(patterned):
            openness, rest = "open", UNKNOWN
        properties = list(plain.properties)
        properties.extend(self._undeclared(properties, required, UNKNOWN if patterned else rest or UNKNOWN))
        names = {p.name for p in properties}
        templates: tuple[tuple[str, Type], ...] = ()
        if patterned:
            template = _template(next(iter(patterned))) if len(patterned) == 1 else None
            if template is not None and not any(_matches(template, name) for name in names):
                templates = ((template, next(iter(patterned.values()))),)
            else:
                # TypeScript cannot express which names match, so other properties have any of the possible types.
                others: Type = NEVER if openness == "closed" else rest or UNKNOWN
                openness, rest = "open", union([*patterned.values(), others])
        elif openness != "closed":
            allowed = schema.get("propertyNames")
            if isinstance(allowed, Mapping) and isinstance(allowed.get("$ref"), str):
                place = self._document.resolve(allowed["$ref"], self._base)
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


def _both(one: int, one_hard: bool, other: int, other_hard: bool) -> tuple[int, bool]:
    """Return two statements on kinds as one. A stated kind beats a suggested one.

    Of two suggestions that of the combined schemas (`other`) counts: `properties` may stand beside `anyOf` with null.
    """
    if one_hard == other_hard:
        if one_hard:
            return one & other, True
        return (other if other != _ANY else one), False
    return (one, True) if one_hard else (other, True)


def _within(context: int, bits: int, hard: bool) -> int:
    """Return the kinds of a schema that are in `context`. It overrides kinds that are only suggested."""
    return bits & context if hard or context == _ANY else context


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 2**31:
        return None
    return int(value)


def _template(pattern: str) -> str | None:
    """Return the template literal type of names that match a simple pattern: `^x-` becomes `x-${string}`."""
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
