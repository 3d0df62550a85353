"""The kinds of JSON values that a schema describes, as bits. Pure: no I/O.

A kind is stated if `type`, a constant or a choice requires it. A kind is suggested if the schema only has keywords of
this kind, such as `properties`. A stated kind overrides a suggested one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from declarations.conditions import COMBINING, MAX_CONJUNCTS
from declarations.names import word_set
from declarations.typetree import MAX_ALTERNATIVES

if TYPE_CHECKING:
    from declarations.references import Document

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
    """Return the kind of a JSON value."""
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
