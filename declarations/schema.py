"""JSON Schema, draft-07 and 2020-12, as a small tree of types. Pure: no I/O; remote references are never fetched.

The tree says what TypeScript can say. What is unclear, contradictory or of the wrong type is left out: a type may be
wider than its schema, never narrower. Two readings are deliberate, because they are what authors mean:

* A schema without `type` but with keywords of one kind (`properties`, `items`, ...) describes that kind alone.
* An object that declares properties and says nothing of others gets no index signature. TypeScript's object types are
  open by nature, and a literal with a misspelt property should be refused. `additionalProperties: true` gets one.

A keyword counts whichever draft the schema names. Only what stands beside `$ref` does not count before draft 2019-09.

What TypeScript cannot say, or not in few words, and where a type is therefore wider:

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
from dataclasses import replace
from typing import Any, Final

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
    IntersectionOf,
    ObjectOf,
    Openness,
    Property,
    Ref,
    SchemaType,
    TupleOf,
    Type,
    UnionOf,
    intersection,
    number_literal,
    string_literal,
    union,
)

MAX_DEPTH: Final = 40
MAX_NODES: Final = 5_000
MAX_DEFINITIONS: Final = 300
MAX_CONJUNCTS: Final = 64
"""Members of `allOf` that are looked at; leaving out the others makes the type wider."""
MAX_TUPLE: Final = 64
MAX_LITERAL: Final = 500
"""Length of a string constant, or of a property's name; a longer constant is `string`, a longer name is left out."""

# Kinds: which of JSON's six kinds of values a schema speaks of, as bits.
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

_COMBINING: Final = frozenset({"$ref", "allOf", "anyOf", "oneOf"})
_CONDITIONAL: Final = frozenset({"if", "then", "else", "dependentSchemas", "dependencies"})
_NOT_PLAIN: Final = _COMBINING | _CONDITIONAL | {"const", "enum", "nullable", "$id", "$dynamicRef", "$recursiveRef"}
_NAMING: Final = (
    _COMBINING
    | _CONDITIONAL
    | {"patternProperties", "additionalProperties", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"}
)
"""What may name properties beside `properties`."""
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


_SAYS_NOTHING: Final = frozenset(
    {"$ref", "$defs", "$comment", "definitions", "title", "description", "default", "examples", "example", "deprecated"}
    | {"readOnly", "writeOnly", "nullable", "$schema", "$id", "format"}
)
"""What may stand beside a reference without a word on its type; `nullable` is dealt with elsewhere."""


def compile_schema(schema: object, name: str = "Root", text: int = MAX_PROPERTY_TEXT) -> SchemaType:
    """The type of `schema`, a JSON value of whatever shape. Never raises. A root that refers to itself is `name`.

    Args:
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
        # Definitions, found through references and compiled one after another, not inside each other.
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
            if not self._siblings_of_ref_count or _SAYS_NOTHING.issuperset(schema):
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
            return _opened(result, None)
        return _opened(result, _conditional_names(schema))

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
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH or "$id" in schema:
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
        place = self._document.resolve(reference, self._base) if isinstance(reference, str) else None
        # In another resource, references would have to be looked up there.
        if place is not None and place.base is self._base:
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
        """The type of a choice of JSON values; all values of their kinds where there are too many."""
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
        """The type of exactly this JSON value."""
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
        if isinstance(items, list):  # a tuple as draft-07 writes it
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
                    properties.append(Property(name, type_, name in required, property_doc(sub, name, self._text)))
                else:
                    openness, rest = "open", UNKNOWN
        if "patternProperties" in schema or "propertyNames" in schema:
            return self._with_patterns(schema, ObjectOf(tuple(properties), openness, rest), required, depth)
        if required and not required.issubset(declared if isinstance(declared, Mapping) else ()):
            properties.extend(self._undeclared(properties, required, rest or UNKNOWN))
        result = ObjectOf(tuple(properties), openness, rest)
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
                # Which names match cannot be said, so other properties are of any of the types that they may have.
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
    """Two statements on kinds in one. What is said beats what is only suggested; of two suggestions, that of the
    combined schemas (`other`) is the better one, as an object's `properties` may stand beside `anyOf` with null."""
    if one_hard == other_hard:
        if one_hard:
            return one & other, True
        return (other if other != _ANY else one), False
    return (one, True) if one_hard else (other, True)


def _within(context: int, bits: int, hard: bool) -> int:
    """The kinds of a schema where only those in `context` matter; what is only suggested gives way to it."""
    return bits & context if hard or context == _ANY else context


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 2**31:
        return None
    return int(value)


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


def _conditional_names(schema: Mapping[str, Any]) -> dict[str, None] | None:
    """The properties that `then` and its like declare, here and in `allOf`: no others are
    refused than those which are nowhere declared. None where that is too much to say."""
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
        if _CONDITIONAL.isdisjoint(part):
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


def _opened(type_: Type, names: dict[str, None] | None) -> Type:
    """The type with these properties allowed where nothing is said of them, or any others."""
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
            return union([_opened(member, names) for member in members])
        case IntersectionOf(members):
            return replace(type_, members=tuple(_opened(member, names) for member in members))
        case _:
            return type_


def _dependent(type_: ObjectOf, dependent: object) -> Type:
    """`type_` where some properties require others: with all of them, or without the first."""
    if not isinstance(dependent, Mapping) or len(dependent) > 2:
        return type_
    result: Type = type_
    for trigger, needed in dependent.items():
        if not isinstance(needed, list) or not needed or not all(isinstance(name, str) for name in needed):
            continue
        names = dict.fromkeys([trigger, *needed])
        choice = [ObjectOf((Property(trigger, NEVER, declared=False),))]
        if type_.openness != "closed" or names.keys() <= {p.name for p in type_.properties}:
            choice.append(ObjectOf(tuple(Property(name, UNKNOWN, True, declared=False) for name in names)))
        result = intersection(result, union(choice))
    return result
