"""JSON Schema, draft-07 and 2020-12, as a small tree of types. Pure: no I/O. Remote references are never fetched.

The tree has what TypeScript can express. Keywords that are unclear, contradictory or of the wrong type are ignored: a
type may be wider than its schema, never narrower. Two rules go beyond JSON Schema, because authors of schemas mean
them:

* A schema without `type` but with keywords of one kind (`properties`, `items`, ...) describes only that kind.
* An object with declared properties, and without a keyword about other properties, has no index signature. So
  TypeScript refuses an object literal with a misspelt property. `additionalProperties: true` adds an index signature.

Keywords of all drafts are read, whatever `$schema` is. But before draft 2019-09, keywords beside `$ref` are ignored.

A type is wider than its schema if TypeScript cannot express a keyword, or only in a long text. These keywords are
ignored, or express less:

* `not`, `if`, `dependentSchemas`, `contains`, `uniqueItems`, bounds, patterns and formats, `minProperties` and
  `maxProperties`, `$dynamicRef`; more than two `dependentRequired`. Integers may be fractions, and `oneOf` is `anyOf`.
* The number of items of an array, except for tuples and for a few short items.
* The allowed names of properties, except for a choice of names or one simple pattern. If there are several patterns, or
  a declared property matches the pattern, an undeclared property may have any of the types.
* An index signature, beside declared properties: it covers their types too. A long one is `unknown`.
* `unevaluatedProperties` and `unevaluatedItems` beside `allOf`, `anyOf`, `oneOf`, `$ref`, `if` or `dependentSchemas`.
* `additionalProperties: false` in a union or an intersection: TypeScript accepts all properties that any branch
  declares, and closed members of `allOf` are merged.
* An object without required properties, in an intersection: its type also accepts arrays and scalars.

`tests/declarations/schemas_and_values.py` holds this list in a form that is compared with a validator and a compiler.

Work is bounded for any input: nesting beyond `MAX_DEPTH` and everything after `MAX_NODES` schemas becomes `unknown`.

The module is long because one compiler has these limits and the definitions in common for all keywords.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from declarations import kinds, typetree
from declarations.jsdoc import MAX_PROPERTY_TEXT, property_doc

MAX_NODES: Final = 5_000
"""Maximum number of schemas that are read. Long constants count as more than one."""
MAX_DEFINITIONS: Final = 300
"""Maximum number of definitions that are named. Further ones become `unknown`."""
MAX_TUPLE: Final = 64
"""Maximum number of elements of a tuple. A longer one becomes an array."""

_SCALARS: Final = {"null": typetree.NULL, "boolean": typetree.BOOLEAN, "string": typetree.STRING}
_NUMBERS: Final = frozenset({"number", "integer"})
_SMALL: Final = frozenset({"int8", "int16", "int32", "uint8", "uint16", "uint32"})
_LARGE: Final = frozenset({"int64", "uint64", "int128", "uint128"})
"""Formats of integers, in OpenAPI and of generators."""
_SCALAR_BITS: Final = (
    (kinds.STRING, typetree.STRING),
    (kinds.NUMBER, typetree.NUMBER),
    (kinds.BOOLEAN, typetree.BOOLEAN),
    (kinds.NULL, typetree.NULL),
)

_NOT_PLAIN: Final = (
    kinds.COMBINING | kinds.CONDITIONAL | {"const", "enum", "nullable", "$id", "$dynamicRef", "$recursiveRef"}
)
"""Keywords without which the type follows from `type` and the keywords of the stated kinds alone."""
_NOT_TYPING: Final = frozenset(
    {"$ref", "$defs", "$comment", "definitions", "title", "description", "default", "examples", "example", "deprecated"}
    | {"readOnly", "writeOnly", "nullable", "$schema", "$id", "format"}
)
"""Keywords beside a reference that do not change the type. `_combined` handles `nullable`."""

_EVALUATING: Final = kinds.COMBINING | kinds.CONDITIONAL | {"$dynamicRef", "$recursiveRef"}
"""Keywords whose subschemas may declare members that `unevaluatedProperties` does not forbid."""


def compile_schema(
    schema: object, name: str = "Root", max_doc: int = MAX_PROPERTY_TEXT, *, of_input: bool = False
) -> typetree.SchemaType:
    """Return the type of `schema`, which may be any JSON value. This function never raises an error.

    Args:
        name: the name of the root, if it refers to itself.
        max_doc: maximum length in characters of the description of a property.
        of_input: True for values that programs give. An integer may be a bigint then, unless its bounds exclude that. A
            program gets a bigint only where the schema says that integers are large, since calculating with one needs
            care.
    """
    return _Compiler(schema, name, max_doc, of_input=of_input).compile()


class _Compiler:
    """The state of one `compile_schema`: the budget, the current base of references, and the named definitions."""

    def __init__(self, root: object, name: str, max_doc: int, *, of_input: bool) -> None:
        self._max_doc = max_doc
        self._of_input = of_input
        self._root: Mapping[str, Any] = root if isinstance(root, Mapping) else {}
        self._schema = root
        self._document = kinds.Document(self._root)
        self._root_name = name
        self._nodes = MAX_NODES
        self._base = self._root
        dialect = self._root.get("$schema")
        self._siblings_of_ref_count = not (isinstance(dialect, str) and "/draft-0" in dialect)
        # Definitions that references name. A reference only queues its target. So recursive schemas end, and a long
        # chain of definitions does not count as depth.
        self._names: dict[int, str] = {}
        self._queue: list[tuple[str, kinds.Place]] = []
        self._definitions: dict[str, typetree.Definition] = {}
        self._kinds = kinds.CombinedKinds(self._document)

    def compile(self) -> typetree.SchemaType:
        root = self._type(self._schema, kinds.ANY, 0)
        done = 0
        while done < len(self._queue):
            name, place = self._queue[done]
            done += 1
            self._base = place.base
            self._definitions[name] = typetree.Definition(
                self._type(place.schema, kinds.ANY, 0), property_doc(place.schema, name, self._max_doc)
            )
        if not self._definitions:
            return typetree.SchemaType(root)
        if id(self._root) in self._names:  # the root refers to itself, so it has a definition too
            root = typetree.Ref(self._names[id(self._root)])
        return kinds.inline_definitions(root, self._definitions)

    def _type(self, schema: object, context: int, depth: int) -> typetree.Type:
        if schema is False:
            return typetree.NEVER
        if not isinstance(schema, Mapping):
            return typetree.UNKNOWN
        self._nodes -= 1
        if depth > kinds.MAX_DEPTH or self._nodes < 0:
            return typetree.UNKNOWN
        if _NOT_PLAIN.isdisjoint(schema):  # the fast way for most schemas
            declared = schema.get("type")
            if isinstance(declared, str):
                scalar = self._number(schema) if declared in _NUMBERS else _SCALARS.get(declared)
                if scalar is not None:
                    return scalar if kinds.KIND_BITS[declared] & context else typetree.NEVER
            if declared is None and not schema:
                return typetree.UNKNOWN
            return self._of_kinds(schema, kinds.restrict(context, *kinds.own_bits(schema)), depth)
        # A schema with an `$id` is a resource of its own: references in it are relative to it.
        if isinstance(schema.get("$id"), str) and not schema["$id"].startswith("#"):
            outer, self._base = self._base, schema
            try:
                return self._combined(schema, context, depth)
            finally:
                self._base = outer
        return self._combined(schema, context, depth)

    def _combined(self, schema: Mapping[str, Any], context: int, depth: int) -> typetree.Type:
        type_ = self._without_null(schema, context, depth)
        if schema.get("nullable") is True and context & kinds.NULL:  # OpenAPI 3.0
            return typetree.union([type_, typetree.NULL])
        return type_

    def _without_null(self, schema: Mapping[str, Any], context: int, depth: int) -> typetree.Type:
        reference = schema.get("$ref")
        result: typetree.Type = typetree.UNKNOWN
        if isinstance(reference, str):
            result = self._reference(reference)
            if not self._siblings_of_ref_count or _NOT_TYPING.issuperset(schema):
                return result
        elif "$dynamicRef" in schema or "$recursiveRef" in schema:
            return typetree.UNKNOWN  # the target depends on the references that have led here
        own, own_stated = kinds.own_bits(schema)
        theirs, theirs_stated = self._kinds.combined(schema, self._base, depth)
        bits = kinds.restrict(context, *kinds.combine(own, own_stated, theirs, theirs_stated))
        # Values are narrower than all other keywords beside them, so these are not read.
        if "const" in schema:
            return typetree.intersection(result, self._values([schema["const"]], bits, depth))
        if isinstance(schema.get("enum"), list):
            return typetree.intersection(result, self._values(schema["enum"], bits, depth))
        for keyword in ("allOf", "anyOf", "oneOf"):
            branches = schema.get(keyword)
            if not isinstance(branches, list) or not branches:
                continue
            if keyword == "allOf":
                for branch in branches[: kinds.MAX_CONJUNCTS]:
                    result = typetree.intersection(result, self._type(branch, bits, depth + 1))
            elif len(branches) <= typetree.MAX_ALTERNATIVES:
                alternatives = typetree.union([self._type(branch, bits, depth + 1) for branch in branches])
                result = typetree.intersection(result, alternatives)
        # The schema's own keywords count if they describe objects or arrays. A `type` without such keywords counts only
        # if the combined schemas do not state the same kinds already.
        if not kinds.STRUCTURAL.isdisjoint(schema) or (own_stated and not (theirs_stated and theirs & own == theirs)):
            result = typetree.intersection(self._of_kinds(schema, bits, depth), result)
        # A target outside the document may declare any property.
        if isinstance(reference, str) and self._document.resolve(reference, self._base) is None:
            return kinds.add_names(result, None)
        return kinds.add_names(result, kinds.conditional_names(schema))

    def _of_kinds(self, schema: Mapping[str, Any], bits: int, depth: int) -> typetree.Type:
        if bits == kinds.OBJECT:
            return self._object(schema, depth)
        if bits == kinds.ARRAY:
            return self._array(schema, depth)
        if bits == kinds.ANY:
            return typetree.UNKNOWN
        members: list[typetree.Type] = [
            self._number(schema) if bit == kinds.NUMBER else scalar for bit, scalar in _SCALAR_BITS if bits & bit
        ]
        if bits & kinds.ARRAY:
            members.insert(0, self._array(schema, depth))
        if bits & kinds.OBJECT:
            members.insert(0, self._object(schema, depth))
        return typetree.union(members)

    def _number(self, schema: Mapping[str, Any]) -> typetree.Type:
        form, declared = schema.get("format"), schema.get("type")
        if isinstance(form, str) and form in _SMALL:
            return typetree.NUMBER
        lower, upper = (_bound(schema, *each) for each in _BOUNDS)
        if lower is not None and upper is not None and not (typetree.is_beyond(lower) or typetree.is_beyond(upper)):
            return typetree.NUMBER
        if (isinstance(form, str) and form in _LARGE) or typetree.is_beyond(lower) or typetree.is_beyond(upper):
            return typetree.INTEGER
        names = declared if isinstance(declared, list) else [declared]
        return typetree.INTEGER if self._of_input and "integer" in names and "number" not in names else typetree.NUMBER

    # References

    def _reference(self, reference: str) -> typetree.Type:
        place = self._document.resolve(reference, self._base)
        if place is None or place.schema is True:
            return typetree.UNKNOWN
        if place.schema is False:
            return typetree.NEVER
        if not isinstance(place.schema, Mapping) or not place.schema:
            return typetree.UNKNOWN
        name = self._names.get(id(place.schema))
        if name is None:
            if len(self._names) >= MAX_DEFINITIONS:
                return typetree.UNKNOWN
            name = self._root_name if place.schema is self._root else reference.rpartition("/")[2].lstrip("#")[:100]
            used = set(self._names.values())
            if place.schema is not self._root:
                used.add(self._root_name)
            base, number = name, 2
            while name in used:
                name, number = f"{base}_{number}", number + 1
            self._names[id(place.schema)] = name
            self._queue.append((name, place))
        return typetree.Ref(name)

    # Values

    def _values(self, values: Sequence[object], bits: int, depth: int) -> typetree.Type:
        """Return the type of a choice of JSON values; if there are too many, the type of their kinds."""
        few = values[: 2 * typetree.MAX_ALTERNATIVES]
        types = [self._value(value, depth) for value in few if bits & kinds.value_bits(value)]
        # Text costs nodes, so that the size of the whole declaration stays bounded.
        self._nodes -= sum(len(type_.text) for type_ in types if isinstance(type_, typetree.Constant)) // 16
        if len(few) == len(values) and self._nodes >= 0:
            return typetree.union(types)
        found = 0
        for value in values:
            found |= kinds.value_bits(value)
        largest = max((abs(value) for value in values if isinstance(value, int)), default=0)
        return self._of_kinds({"maximum": largest}, bits & found, depth)

    def _value(self, value: object, depth: int) -> typetree.Type:
        if value is None:
            return typetree.NULL
        if isinstance(value, bool):
            return typetree.Constant("boolean", "true" if value else "false")
        if isinstance(value, str):
            return (
                typetree.STRING
                if len(value) > kinds.MAX_LITERAL
                else typetree.Constant("string", typetree.string_literal(value))
            )
        if isinstance(value, (int, float)):
            return typetree.number_constant(value) or (typetree.INTEGER if isinstance(value, int) else typetree.NUMBER)
        self._nodes -= 1
        if self._nodes < 0 or depth > kinds.MAX_DEPTH:
            return typetree.UNKNOWN
        if isinstance(value, list):
            if len(value) > MAX_TUPLE:
                return typetree.ArrayOf(typetree.UNKNOWN)
            return typetree.TupleOf(tuple(self._value(element, depth + 1) for element in value), len(value), None)
        if not isinstance(value, Mapping) or len(value) > typetree.MAX_ALTERNATIVES:
            return typetree.UNKNOWN
        if any(not isinstance(key, str) or len(key) > kinds.MAX_LITERAL for key in value):
            return typetree.ANY_OBJECT
        members = [typetree.Property(key, self._value(member, depth + 1), True) for key, member in value.items()]
        return typetree.ObjectOf(tuple(members), "closed")

    # Arrays

    def _array(self, schema: Mapping[str, Any], depth: int) -> typetree.Type:
        items = schema.get("items")
        minimum = _count(schema.get("minItems")) or 0
        maximum = _count(schema.get("maxItems"))
        prefix, others = schema.get("prefixItems"), items
        if isinstance(items, list):  # a tuple of draft-07
            prefix, others = items, schema.get("additionalItems")
        if maximum is not None and minimum > maximum:
            return typetree.NEVER
        if not isinstance(prefix, list) or not prefix:
            if others is False and minimum:
                return typetree.NEVER
            if others is False or maximum == 0:
                return typetree.TupleOf((), 0, None)
            return typetree.ArrayOf(self._type(others, kinds.ANY, depth + 1), minimum, maximum)
        if len(prefix) > MAX_TUPLE:
            return typetree.ArrayOf(typetree.UNKNOWN)
        if maximum is not None and maximum <= len(prefix):
            prefix, others = prefix[:maximum], False
        if others is False and minimum > len(prefix):
            return typetree.NEVER
        rest = None if others is False else self._type(others, kinds.ANY, depth + 1)
        elements = tuple([self._type(element, kinds.ANY, depth + 1) for element in prefix])
        return typetree.TupleOf(elements, min(minimum, len(elements)), rest)

    # Objects

    def _object(self, schema: Mapping[str, Any], depth: int) -> typetree.Type:
        declared = schema.get("properties")
        listed = schema.get("required")
        required = (
            {n for n in listed if isinstance(n, str) and len(n) <= kinds.MAX_LITERAL}
            if isinstance(listed, list)
            else set()
        )
        openness: typetree.Openness = "silent"
        rest: typetree.Type | None = None
        others = schema.get("additionalProperties")
        if others is None and _EVALUATING.isdisjoint(schema):
            others = schema.get("unevaluatedProperties")
        if others is False:
            openness = "closed"
        elif others is True or isinstance(others, Mapping):
            openness, rest = "open", self._type(others, kinds.ANY, depth + 1)

        properties: list[typetree.Property] = []
        if isinstance(declared, Mapping):
            for name, sub in declared.items():
                if self._nodes < 0:
                    # The budget is used up: other properties are allowed and of any type.
                    return typetree.ObjectOf(tuple(properties), "open", typetree.UNKNOWN)
                if isinstance(name, str) and len(name) <= kinds.MAX_LITERAL:
                    type_ = self._type(sub, kinds.ANY, depth + 1)
                    properties.append(
                        typetree.Property(name, type_, name in required, property_doc(sub, name, self._max_doc))
                    )
                else:
                    openness, rest = (
                        "open",
                        typetree.UNKNOWN,
                    )  # the property is left out, so the type must allow any other
        if "patternProperties" in schema or "propertyNames" in schema:
            return self._with_patterns(schema, typetree.ObjectOf(tuple(properties), openness, rest), required, depth)
        if required and not required.issubset(declared if isinstance(declared, Mapping) else ()):
            properties.extend(self._undeclared(properties, required, rest or typetree.UNKNOWN))
        result = typetree.ObjectOf(tuple(properties), openness, rest)
        if "dependentRequired" in schema or "dependencies" in schema:
            return kinds.apply_dependent_required(result, schema.get("dependentRequired", schema.get("dependencies")))
        return result

    def _undeclared(
        self, properties: Sequence[typetree.Property], required: set[str], type_: typetree.Type
    ) -> list[typetree.Property]:
        missing = sorted(required.difference(p.name for p in properties))
        return [typetree.Property(name, type_, True, declared=False) for name in missing[: typetree.MAX_ALTERNATIVES]]

    def _with_patterns(
        self, schema: Mapping[str, Any], plain: typetree.ObjectOf, required: set[str], depth: int
    ) -> typetree.Type:
        """Return an object with types for names that match patterns, as far as TypeScript can express them."""
        openness, rest = plain.openness, plain.rest
        given = schema.get("patternProperties")
        patterned = {
            pattern: self._type(sub, kinds.ANY, depth + 1)
            for pattern, sub in list(given.items() if isinstance(given, Mapping) else ())[: typetree.MAX_ALTERNATIVES]
            if isinstance(pattern, str)
        }
        if isinstance(given, Mapping) and len(given) > len(patterned):
            openness, rest = "open", typetree.UNKNOWN
        properties = list(plain.properties)
        properties.extend(
            self._undeclared(properties, required, typetree.UNKNOWN if patterned else rest or typetree.UNKNOWN)
        )
        names = {p.name for p in properties}
        templates: tuple[tuple[str, typetree.Type], ...] = ()
        if patterned:
            template = template_of(next(iter(patterned))) if len(patterned) == 1 else None
            # TypeScript requires that a declared property which matches a template has the template's type.
            if template is not None and not any(matches(template, name) for name in names):
                templates = ((template, next(iter(patterned.values()))),)
            else:
                # The names that match cannot be expressed, so other properties may have any of these types.
                others: typetree.Type = typetree.NEVER if openness == "closed" else rest or typetree.UNKNOWN
                openness, rest = "open", typetree.union([*patterned.values(), others])
        elif openness != "closed":
            allowed = schema.get("propertyNames")
            if isinstance(allowed, Mapping) and isinstance(allowed.get("$ref"), str):
                place = self._document.resolve(allowed["$ref"], self._base)
                allowed = None if place is None else place.schema
            if isinstance(allowed, Mapping):
                choice = [allowed["const"]] if "const" in allowed else allowed.get("enum")
                pattern = allowed.get("pattern")
                template = template_of(pattern) if isinstance(pattern, str) else None
                if isinstance(choice, list) and len(choice) <= typetree.MAX_ALTERNATIVES:
                    free = dict.fromkeys(
                        name for name in choice if isinstance(name, str) and name not in required | names
                    )
                    properties.extend(typetree.Property(name, rest or typetree.UNKNOWN) for name in free)
                    openness, rest = "closed", None
                elif template is not None and not any(matches(template, name) for name in names):
                    templates = ((template, rest or typetree.UNKNOWN),)
                    openness, rest = "closed", None
        return typetree.ObjectOf(tuple(properties), openness, rest, templates)


_BOUNDS: Final = (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))


def _bound(schema: Mapping[str, Any], *keywords: str) -> float | None:
    values = (schema.get(keyword) for keyword in keywords)
    return next((each for each in values if isinstance(each, (int, float)) and not isinstance(each, bool)), None)


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 2**31:
        return None
    return int(value)


_SIMPLE_PATTERN: Final = re.compile(r"(?P<start>\^?)(?P<text>(?:[\w:@/ -]|\\[-./$])+)(?P<end>\$?)", re.ASCII)


def template_of(pattern: str) -> str | None:
    """Return the template literal type of names that match a simple pattern: `^x-` becomes `x-${string}`."""
    match = _SIMPLE_PATTERN.fullmatch(pattern)
    if match is None or (match["start"] and match["end"]):
        return None
    text = match["text"].replace("\\", "")
    return ("" if match["start"] else "${string}") + text + ("" if match["end"] else "${string}")


def matches(template: str, name: str) -> bool:
    text = template.removeprefix("${string}").removesuffix("${string}")
    if not template.startswith("${string}"):
        return name.startswith(text)
    return text in name if template.endswith("${string}") else name.endswith(text)
