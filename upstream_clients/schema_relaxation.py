"""Schemas of servers without contradictions. Pure.

Servers state schemas, and many never check arguments by them. So a schema may contradict itself while the server works:
`{"type": "string", "enum": [256, 512]}`. Enforced as it stands, it would block the argument. These rules hold here:

- What some value satisfies is not changed. `false` and `{"not": {}}` are no contradictions: authors forbid a value so.
- What no value satisfies accepts more. Of keywords that contradict each other, one is enough, or none is enforced. So
  the result accepts every value that a server accepts which enforces only some of them.
- `nullable` of OpenAPI counts, as it does for the servers that state it.

Declarations, checks and search use the same result. Pins compare what the server has sent.
"""

from __future__ import annotations

import json
import math
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

from upstream_clients.schema_repair import (
    ANNOTATIONS,
    LISTS,
    MAX_REASONS,
    MAX_STEPS,
    NEGATIVE,
    POSITIVE,
    Path,
    Rewritten,
    TooComplex,
    Walk,
    is_never,
    names,
    number,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from upstream_clients.tools import JsonObject


def relax(schema: JsonObject) -> Rewritten:
    return _relaxed(schema) if _contradicts(schema) else Rewritten(schema)


def _contradicts(schema: JsonObject) -> bool:
    """Return False if a schema has no contradiction. This costs less than a walk, and is enough for nearly all."""
    probe = _Relaxing(schema)
    waiting: list[Any] = [schema]
    try:
        for node in waiting:
            if node.__class__ is list:
                waiting += node
            elif node.__class__ is dict:
                # Values and names are taken for schemas, too. Then the walk finds nothing to change.
                if _may_contradict(node) and probe.step(node, (), is_positive=True) is not node:
                    return True
                waiting += node.values()
                if len(waiting) > 20 * MAX_STEPS:
                    return False  # too large to be used
    except (TooComplex, RecursionError):
        return False
    return False


def _relaxed(schema: JsonObject) -> Rewritten:
    # Parts that accept more may contradict others then.
    reasons: list[str] = []
    for _ in range(_MAX_WALKS):
        found = _Relaxing(schema).run()
        if found.schema is schema:
            break
        schema = found.schema
        reasons += found.reasons
    return Rewritten(schema, tuple(reasons[:MAX_REASONS]))


def with_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that accepts null too. The given object may be changed."""
    alternatives = schema.get("anyOf")
    if alternatives and schema.keys() <= {"anyOf", "description", "title", "deprecated"}:
        return {**schema, "anyOf": [*alternatives, {"type": "null"}]}
    if "$ref" in schema or any(keyword in schema for keyword in ("anyOf", "allOf", "oneOf", "const", "not")):
        return {"anyOf": [schema, {"type": "null"}]}
    declared = schema.get("type")
    if isinstance(declared, str) and declared != "null":
        schema["type"] = [declared, "null"]
    elif isinstance(declared, list) and "null" not in declared:
        schema["type"] = [*declared, "null"]
    if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
        schema["enum"] = [*schema["enum"], None]
    return schema


_TYPES: Final = {"null": 1, "boolean": 2, "number": 4, "integer": 4, "string": 8, "array": 16, "object": 32}
"""The kinds of values by the names of types, as bits."""

_ANY: Final = 63
_NULLABLE: Final = '"nullable" is true, so null is accepted'
_MAX_WALKS: Final = 4

_LOWEST: Final = ("minimum", "exclusiveMinimum")
_HIGHEST: Final = ("maximum", "exclusiveMaximum")
_COUNTS: Final = (
    *(("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties")),
    ("minContains", "maxContains"),
)
_OWN: Final = ("type", "enum", "const", "pattern", "minLength", "maxLength", "multipleOf", *_LOWEST, *_HIGHEST)
"""Keywords without subschemas that decide about listed values."""

_PARTS: Final = ("enum", "const", "$ref", "anyOf", "oneOf")
_CLOSING: Final = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_EVALUATING: Final = (LISTS | POSITIVE | NEGATIVE | {"$ref", "$dynamicRef", "$recursiveRef", "dependentSchemas"}) - {
    "unevaluatedProperties",
    "propertyNames",
}
_COMBINED: Final = frozenset({"allOf", "not", "const", "nullable"})
_LEADING: Final = frozenset({"not", "$ref", "minItems"})
_COMBINING: Final = frozenset({"$ref", "anyOf", "oneOf"})
_COMBINING_ALONE: Final = _COMBINING | ANNOTATIONS
_LOW: Final = frozenset({*_LOWEST, *(low for low, _ in _COUNTS)})
_HIGH: Final = frozenset({*_HIGHEST, *(high for _, high in _COUNTS)})


def _may_contradict(node: dict[str, Any]) -> bool:
    """Return False for a subschema that certainly does not contradict itself. This takes less than a microsecond."""
    if not _COMBINED.isdisjoint(node):
        return True
    if not _COMBINING.isdisjoint(node) and not node.keys() <= _COMBINING_ALONE:
        return True
    branches = node.get("oneOf")
    if branches.__class__ is list and len(_by_rule(branches)) < len(branches):
        return True
    if "enum" in node:
        choices, declared = node["enum"], node.get("type")
        if choices.__class__ is not list or not choices or "pattern" in node or "minLength" in node:
            return True
        if declared is not None and not (declared == "string" and choices[0].__class__ is str):
            return True
    if not _HIGH.isdisjoint(node) and (not _LOW.isdisjoint(node) or "maxProperties" in node or "enum" in node):
        return True
    if "required" in node:
        members, required = node.get("properties", {}), node["required"]
        if required.__class__ is not list or members.__class__ is not dict or "propertyNames" in node:
            return True
        closes = "additionalProperties" in node or "unevaluatedProperties" in node
        for name in required:
            member = members.get(name, not closes) if name.__class__ is str else False
            if member is False or (member.__class__ is dict and not _LEADING.isdisjoint(member)):
                return True
    return node.get("items") is False and "minItems" in node


class _Relaxing(Walk):
    """The walk of `relax`."""

    def __init__(self, root: JsonObject) -> None:
        super().__init__(root)
        self._known: dict[int, tuple[Any, int]] = {}

    def step(self, node: dict[str, Any], path: Path, *, is_positive: bool) -> dict[str, Any]:
        if not is_positive or not _may_contradict(node) or is_never(node):
            return node
        is_nullable = node.get("nullable") is True
        if is_nullable:
            node = without(node, ["nullable"])
        if not (self.is_legacy and "$ref" in node):
            node = self._with_members(node, path)
            node = self._with_ranges(node, path)
            node = self._with_alternatives(node, path)
        return self.weakened(with_null({**node}), path, _NULLABLE) if is_nullable else node

    def _conjuncts(self, node: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
        """Yield the subschemas that a value has to satisfy: a schema, its `allOf`, and what it refers to."""
        self.spend()
        if not isinstance(node, dict) or depth > 8:
            return
        if not (self.is_legacy and "$ref" in node):
            yield node
            for each in node["allOf"] if isinstance(node.get("allOf"), list) else ():
                yield from self._conjuncts(each, depth + 1)
        if "$ref" in node:
            yield from self._conjuncts(self.target(node), depth + 1)

    # types and listed values

    def _with_alternatives(self, node: dict[str, Any], path: Path) -> dict[str, Any]:
        """Make each part of a schema enough if no value satisfies all of them."""
        branches = node.get("oneOf")
        if isinstance(branches, list) and len(groups := _by_rule(branches)) < len(branches):
            node = {**node, "oneOf": [each[0] if len(each) == 1 else {"anyOf": each} for each in groups]}
            self.weakened(node, path, 'alternatives of "oneOf" are equal, so a value may fit several')
        if node.get("enum") == []:
            node = self.weakened(without(node, ["enum"]), path, '"enum" lists no value and is left out')
        if "not" in node and not self._bits(node) and self._bits(rest := without(node, ["not"])):
            node = self.weakened(rest, path, '"not" excludes every value and is left out')
        reason = self._contradiction(node)
        if reason is None:
            return node
        rest = without(node, ANNOTATIONS)
        parts: list[dict[str, Any]] = [{keyword: rest.pop(keyword)} for keyword in _PARTS if keyword in rest]
        parts += rest.pop("allOf", ())
        parts[:0] = [rest] if rest else []
        telling = [each for each in parts if self._kinds(each) != _ANY]
        result = {keyword: value for keyword, value in node.items() if keyword in ANNOTATIONS}
        if not path:
            result["type"] = "object"
        result["anyOf"] = telling if len(telling) > 1 else parts
        return self.weakened(result, path, f"{reason}, so either is accepted")

    def _contradiction(self, node: dict[str, Any]) -> str | None:
        """Return the words for the parts of which no value satisfies all; None if some value may do so."""
        conjuncts = list(self._conjuncts(node))
        listed = [choices for each in conjuncts if (choices := _choices(each)) is not None]
        if not listed:
            return None if self._bits(node) else "its parts have no type in common"
        self.spend(sum(map(len, listed)) * len(conjuncts) // 20)
        if _choices(node) is not None and not any(_is_of(value, node.get("type")) for value in listed[0]):
            return "no listed value has the type"
        if len(conjuncts) == 1 and node.keys() - ANNOTATIONS <= {"type", "enum"}:
            return None
        # A part that contradicts itself is relaxed where it stands.
        rules = [self.validator({keyword: each[keyword] for keyword in _OWN if keyword in each}) for each in conjuncts]
        for each, rule in zip(conjuncts[1:], rules[1:], strict=True):
            choices = _choices(each)
            if choices is not None and not any(rule is None or rule.is_valid(value) for value in choices):
                return None
        if any(all(rule is None or rule.is_valid(value) for rule in rules) for value in listed[0]):
            return None
        return "no listed value fits the rest"

    def _kinds(self, node: Any) -> int:
        """Return the kinds of values that a schema may accept after it is relaxed, as bits.

        They are not known for a schema with which an author forbids every value: it contradicts nothing.
        """
        if not isinstance(node, dict) or is_never(node):
            return _ANY
        known = self._known.get(id(node))
        if known is None:
            self._known[id(node)] = node, _ANY  # the answer for a schema that refers to itself
            known = self._known[id(node)] = node, self._bits(node) or _ANY
        return known[1]

    def _bits(self, node: dict[str, Any]) -> int:
        """Return the kinds of values that a schema accepts as it stands; 0 if it contradicts itself."""
        self.spend()
        bits = self._kinds(self.target(node)) if "$ref" in node else _ANY
        if self.is_legacy and "$ref" in node:
            return bits
        bits &= _type_bits(node.get("type"))
        choices = _choices(node)
        if choices is not None:
            self.spend(len(choices) // 20)
            bits &= _either(map(_kind, choices))
        for keyword in ("allOf", "anyOf", "oneOf"):
            branches = node.get(keyword)
            if isinstance(branches, list) and branches:
                kinds = [self._kinds(each) for each in branches]
                for each in kinds if keyword == "allOf" else [_either(kinds)]:
                    bits &= each
        denied = node.get("not")
        if denied is True or denied == {}:
            return 0
        if isinstance(denied, dict) and denied.keys() - ANNOTATIONS == {"type"} and "integer" not in denied["type"]:
            bits &= ~_type_bits(denied["type"])
        return bits

    # bounds and numbers of items

    def _with_ranges(self, node: dict[str, Any], path: Path) -> dict[str, Any]:
        """Leave out bounds between which there is no value."""
        if _has_empty_range(node):
            rest = without(node, (*_LOWEST, *_HIGHEST))
            node = self.weakened(rest, path, "no number is within the bounds, so none is enforced")
        for low, high in _COUNTS:
            least, most = number(node.get(low)), number(node.get(high))
            if least is not None and most is not None and least > most:
                node = self.weakened(without(node, (low, high)), path, f'"{low}" exceeds "{high}", so none is enforced')
        least, prefix = number(node.get("minItems")), node.get("prefixItems", [])
        if least and is_never(node.get("items")) and isinstance(prefix, list) and least > len(prefix):
            reason = '"minItems" exceeds the number of allowed items and is left out'
            node = self.weakened(without(node, ["minItems"]), path, reason)
        return node

    # members of objects

    def _with_members(self, node: dict[str, Any], path: Path) -> dict[str, Any]:
        """Allow the members of an object that a schema both requires and forbids."""
        conjuncts = list(self._conjuncts(node))
        needs = [each["required"] for each in conjuncts if isinstance(each.get("required"), list)]
        self.spend(sum(map(len, needs)) * len(conjuncts) // 20)
        required = dict.fromkeys(name for each in needs for name in names(each))
        most = number(node.get("maxProperties"))
        if most is not None and most < len(required):
            reason = '"maxProperties" is less than the number of required members and is left out'
            node = self.weakened(without(node, ["maxProperties"]), path, reason)
        own = names(node.get("required"))
        forbidden = dict.fromkeys(self._forbidden(node, own))
        endless = [name for name in own if name not in forbidden and self._is_endless(node, name)]
        if forbidden or endless:
            left = [name for name in own if name not in forbidden and name not in endless]
            node = {**without(node, ["required"]), **({"required": left} if left else {})}
            if forbidden:
                node["properties"] = {**_members(node), **{name: {} for name in forbidden}}
                if "propertyNames" in node:
                    node["propertyNames"] = {"anyOf": [node["propertyNames"], {"enum": [*forbidden]}]}
            shown = ", ".join(f'"{name[:60]}"' for name in [*forbidden, *endless][:5])
            why = "forbidden, so allowed and" if forbidden else "contains the whole object again, so"
            self.weakened(node, path, f"{shown}: required and {why} not required")
        for each in conjuncts if len(conjuncts) > 1 else ():
            if self._forbidden(each, list(required.keys() - names(each.get("required")))):
                reason = "one part forbids a member that another one requires, so other members are allowed"
                return self.weakened(self._opened(node, required), path, reason)
        return node

    def _is_endless(self, node: dict[str, Any], name: str) -> bool:
        """Return True if a required member of an object requires the same object in it, and so on without end."""
        members = _members(node)
        waiting = [members[name]] if node.get("type") == "object" and name in members else []
        seen: set[int] = set()
        while waiting:
            for each in self._conjuncts(waiting.pop()):
                if each is node:
                    return True
                if id(each) in seen:
                    continue
                seen.add(id(each))
                if each.get("type") == "object":
                    waiting += [
                        _members(each)[needed] for needed in names(each.get("required")) if needed in _members(each)
                    ]
                elif each.get("type") == "array" and number(each.get("minItems")):
                    waiting.append(each.get("items"))
        return False

    def _forbidden(self, schema: Mapping[str, Any], required: list[str]) -> list[str]:
        rule, members = schema.get("propertyNames"), _members(schema)
        fits = None
        if required and isinstance(rule, dict):
            self.spend(len(required) * len(_choices(rule) or ()) // 1_000)
            fits = self.validator(rule) if "$ref" not in repr(rule) else None
        found = [
            name for name in required if (fits is not None and not fits.is_valid(name)) or is_never(members.get(name))
        ]
        is_closed = is_never(schema.get("additionalProperties")) or (
            is_never(schema.get("unevaluatedProperties")) and _EVALUATING.isdisjoint(schema)
        )
        others = [name for name in required if name not in members] if is_closed else []
        patterns = schema.get("patternProperties")
        if others and isinstance(patterns, dict):
            rules = [self.validator({"pattern": each}) for each in patterns]
            others = [name for name in others if not any(each is None or each.is_valid(name) for each in rules)]
        return [*found, *others]

    def _opened(self, node: Any, required: Mapping[str, None], depth: int = 0) -> Any:
        """Return a schema, with its `allOf` and what these refer to, without keywords that forbid other members.

        Members that are `required` are not forbidden either.
        """
        self.spend()
        if not isinstance(node, dict) or depth > 8:
            return node
        found = without(node, _CLOSING)
        if never := _never_members(node, required):
            found["properties"] = without(node["properties"], never)
        if isinstance(found.get("allOf"), list):
            found["allOf"] = [self._opened(each, required, depth + 1) for each in found["allOf"]]
        target = self.target(found)
        if any(
            not each.keys().isdisjoint(_CLOSING) or _never_members(each, required)
            for each in self._conjuncts(target, depth)
        ):
            found["allOf"] = [*found.get("allOf", ()), self._opened(target, required, depth + 1)]
            del found["$ref"]
        return found


def _members(schema: Mapping[str, Any]) -> dict[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _never_members(schema: Mapping[str, Any], required: Iterable[str]) -> list[str]:
    members = _members(schema)
    return [name for name in required if is_never(members.get(name))]


def _by_rule(alternatives: list[Any]) -> list[list[Any]]:
    """Return the alternatives of a schema, equal ones together."""
    groups: dict[str, list[Any]] = {}
    for each in alternatives:
        rule = without(each, ANNOTATIONS) if isinstance(each, dict) else each
        groups.setdefault(json.dumps(rule, sort_keys=True), []).append(each)
    return list(groups.values())


def _choices(schema: Mapping[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return found if isinstance(found, list) and found else None


def _is_of(value: Any, declared: Any) -> bool:
    stated = declared if isinstance(declared, list) else [declared]
    if isinstance(value, float) and not value.is_integer():
        stated = [name for name in stated if name != "integer"]
    return any(_type_bits(name) & _kind(value) for name in stated)


def _type_bits(declared: Any) -> int:
    """Return the kinds of values of a type. An unknown type is that of every value."""
    stated = declared if isinstance(declared, list) else [declared]
    return _either(_TYPES.get(name, _ANY) if isinstance(name, str) else _ANY for name in stated)


def _either(kinds: Iterable[int]) -> int:
    return reduce(or_, kinds, 0)


def _kind(value: Any) -> int:
    if isinstance(value, bool) or value is None:
        return 1 if value is None else 2
    if isinstance(value, (int, float)):
        return 4
    return 8 if isinstance(value, str) else 16 if isinstance(value, list) else 32


def _has_empty_range(node: Mapping[str, Any]) -> bool:
    least, is_above = _bound(node, _LOWEST, 1)
    most, is_below = _bound(node, _HIGHEST, -1)
    most = -most
    if least == -math.inf or most == math.inf:
        return False
    if node.get("type") == "integer" and max(abs(least), abs(most)) < 2**53:
        first = math.floor(least) + 1 if is_above else math.ceil(least)
        return first > (math.ceil(most) - 1 if is_below else math.floor(most))
    return least > most or (least == most and (is_above or is_below))


def _bound(node: Mapping[str, Any], keywords: tuple[str, str], sign: int) -> tuple[float, bool]:
    """Return the stricter one of two lower bounds, and True if it is exclusive. `sign` is -1 for upper bounds."""
    plain, strict = number(node.get(keywords[0])), number(node.get(keywords[1]))
    found = [(-math.inf, False)]
    if plain is not None:
        found.append((sign * plain, node.get(keywords[1]) is True))
    if strict is not None:
        found.append((sign * strict, True))
    return max(found)
