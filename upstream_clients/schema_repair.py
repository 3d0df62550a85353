"""Walks through schemas of servers that rewrite what the validator cannot use. Pure.

The validator refuses a whole schema because of one keyword with a wrong value. Here, only this keyword is left out: a
value of the wrong type, a pattern that does not match in linear time, a reference that leads nowhere or outside.
Declarations ignore these anyway. Forms of older drafts are converted if the schema does not state its draft.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from upstream_clients.schema_expansion import SchemaExpansion, UnusableSchema, follow_pointer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    import jsonschema_rs

    from upstream_clients.tools import JsonObject


# Walks through schemas of servers that rewrite what cannot be used as it stands.
#
# A rewritten subschema may accept more than before. `not`, `if`, `oneOf` and `maxContains` would then accept less, and
# `unevaluatedProperties` depends on what is left out. So a second walk leaves these out where they reach such a
# subschema. The work is limited: a schema that takes more is returned unchanged.


MAX_STEPS: Final = 20_000
"""Maximum number of subschemas and listed values that are looked at for one schema."""

MAX_COMPILED: Final = 200
"""Maximum number of patterns and other small schemas that are compiled for one schema."""

MAX_REASONS: Final = 20
_MAX_REASON_CHARACTERS: Final = 300

_MAX_DEPTH: Final = 150
_MAX_PATTERN_BYTES: Final = 1024 * 1024
"""Maximum size of a compiled pattern. One of 10 MB, the default of the engine, takes 300 ms."""

Path = tuple[str | int, ...]

POSITIVE: Final = frozenset(
    {"items", "additionalProperties", "additionalItems", "unevaluatedItems", "unevaluatedProperties"}
    | {"propertyNames", "contains", "then", "else"}
)
NEGATIVE: Final = frozenset({"not", "if"})
"""Keywords with one subschema. A schema may accept less if a subschema under a negative one accepts more."""
BY_NAME: Final = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
)
LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NESTING: Final = POSITIVE | NEGATIVE | BY_NAME | LISTS
_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})

ANNOTATIONS: Final = frozenset(
    {"title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "$comment"}
    | {"$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$defs", "definitions", "format"}
)
"""Keywords that accept every value."""


class Rewritten(NamedTuple):
    """A schema as it is used.

    Attributes:
        schema: the given object if nothing was changed.
        reasons: what is not enforced, such as `properties.year: no listed value has the type, so either is accepted`.
    """

    schema: JsonObject
    reasons: tuple[str, ...] = ()


class TooComplex(Exception):
    """Error for a schema that takes too much work."""


class Walk:
    """One walk through a schema. Each subschema is rewritten before those inside it.

    Attributes:
        weak: new subschemas that accept more than the old ones, by `id`.
    """

    def __init__(self, root: JsonObject) -> None:
        self.root = root
        self.is_legacy = is_legacy(root)
        self.reasons: list[str] = []
        self.weak: dict[int, Any] = {}
        self._left = MAX_STEPS
        self._compiled_left = MAX_COMPILED

    def run(self) -> Rewritten:
        try:
            found = self.walk(self.root, (), is_positive=True)
            if self.weak:
                loosening = _Loosening(found)
                loosening.weak = self.weak
                found = loosening.walk(found, (), is_positive=True)
        except (TooComplex, RecursionError):
            return Rewritten(self.root)
        return Rewritten(found, tuple(self.reasons))

    def step(self, node: dict[str, Any], path: Path, *, is_positive: bool) -> dict[str, Any]:
        """Return the subschema that takes the place of one. The subschemas inside it follow later.

        Args:
            is_positive: True if the whole schema accepts no less when this subschema accepts more.
        """
        raise NotImplementedError

    def walk(self, node: Any, path: Path, *, is_positive: bool) -> Any:
        """Return the subschema that takes the place of one, with those inside it. Raises `TooComplex`."""
        self.spend()
        if not isinstance(node, dict):
            return node
        if len(path) > 2 * _MAX_DEPTH:
            raise TooComplex
        node = self.step(node, path, is_positive=is_positive)
        changed: dict[str, Any] = {}
        for keyword in node.keys() & _NESTING:
            value = node[keyword]
            positive = is_positive and keyword not in NEGATIVE
            parts: dict[Any, Any]
            if isinstance(value, list):
                parts = dict(enumerate(value))
            elif keyword in BY_NAME and isinstance(value, dict):
                parts = value
            else:
                new = self.walk(value, (*path, keyword), is_positive=positive)
                if new is not value:
                    changed[keyword] = new
                continue
            found = {key: self.walk(each, (*path, keyword, key), is_positive=positive) for key, each in parts.items()}
            if any(each is not parts[key] for key, each in found.items()):
                changed[keyword] = [*found.values()] if isinstance(value, list) else found
        if not changed:
            return node
        result = {keyword: changed.get(keyword, value) for keyword, value in node.items()}
        if id(node) in self.weak:
            self.weak[id(result)] = result
        return result

    def spend(self, steps: int = 1) -> None:
        """Count work. Raise `TooComplex` if it is too much."""
        self._left -= steps
        if self._left < 0:
            raise TooComplex

    def validator(self, schema: JsonObject) -> jsonschema_rs.Validator | None:
        """Return the validator of a small schema without references; None if it cannot be read."""
        self._compiled_left -= 1
        if self._compiled_left < 0:
            raise TooComplex
        if schema.keys() == {"pattern"} and isinstance(schema["pattern"], str):
            return _of_pattern(schema["pattern"])
        return _validator(schema)

    def weakened(self, node: dict[str, Any], path: Path, reason: str) -> dict[str, Any]:
        """Return a new subschema that accepts more than the old one, and keep the reason."""
        self.weak[id(node)] = node
        if len(self.reasons) < MAX_REASONS:
            where = ".".join(str(part) for part in path)
            self.reasons.append(f"{where[:200] or 'the schema'}: {reason}")
        return node

    def target(self, node: Mapping[str, Any]) -> Any:
        """Return the target of the `$ref` of a subschema; None if there is none, or if it is not certain."""
        reference = node.get("$ref")
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")) or "%" in reference:
            return None
        # With an `$id` on the way, the pointer may be relative to it.
        return next((node for node, bases in follow_pointer((self.root,), reference[1:]) if len(bases) == 1), None)


class _Loosening(Walk):
    """The second walk, which leaves out keywords that would accept less because of weak subschemas."""

    def step(self, node: dict[str, Any], path: Path, *, is_positive: bool) -> dict[str, Any]:
        dropped: set[str] = set()
        for keyword, others in (("not", ()), ("oneOf", ()), ("if", ("then", "else")), ("maxContains", ())):
            if keyword in node and self._reaches_weak(node.get("contains" if keyword == "maxContains" else keyword)):
                dropped.update((keyword, *others))
        for keyword in ("unevaluatedProperties", "unevaluatedItems"):
            if keyword in node and self._reaches_weak([*without(node, [keyword]).values()]):
                dropped.add(keyword)
        if not dropped:
            return node
        kept = without(node, dropped)
        if "oneOf" in dropped:
            if "anyOf" in kept:
                kept["allOf"] = [*kept.get("allOf", ()), {"anyOf": node["oneOf"]}]
            else:
                kept["anyOf"] = node["oneOf"]
        return kept

    def _reaches_weak(self, part: Any) -> bool:
        seen: set[int] = set()
        waiting = [part]
        while waiting:
            here = waiting.pop()
            if not isinstance(here, (dict, list)) or id(here) in seen:
                continue
            self.spend()
            seen.add(id(here))
            if id(here) in self.weak:
                return True
            if isinstance(here, dict) and not _REFERENCES.isdisjoint(here):
                target = self.target(here)
                if target is None:
                    return True
                waiting.append(target)
            waiting += here if isinstance(here, list) else here.values()
        return False


def is_legacy(schema: JsonObject) -> bool:
    """Return True if the schema is written in draft-04, -06 or -07. Without `$schema` it is in 2020-12."""
    dialect = schema.get("$schema")
    return isinstance(dialect, str) and any(draft in dialect for draft in ("draft-04", "draft-06", "draft-07"))


def is_never(schema: Any) -> bool:
    """Return True for a schema with which an author forbids every value."""
    if not isinstance(schema, dict):
        return schema is False
    return "not" in schema and schema["not"] in (True, {}) and not schema.keys() - ANNOTATIONS - {"not"}


def without(node: Mapping[str, Any], keywords: Collection[str]) -> dict[str, Any]:
    return {keyword: value for keyword, value in node.items() if keyword not in keywords}


def number(value: Any) -> int | float | None:
    return None if isinstance(value, bool) or not isinstance(value, (int, float)) else value


def names(required: Any) -> list[str]:
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


@lru_cache(maxsize=1_000)
def _of_pattern(pattern: str) -> jsonschema_rs.Validator | None:
    return _validator({"pattern": pattern})


def _validator(schema: JsonObject) -> jsonschema_rs.Validator | None:
    try:
        return compiled(schema, _MAX_PATTERN_BYTES)
    except UnusableSchema:
        return None


def compiled(
    schema: JsonObject, pattern_bytes: int | None = None, registry: jsonschema_rs.Registry | None = None
) -> jsonschema_rs.Validator:
    """Return a validator that fetches nothing and matches in linear time.

    Args:
        pattern_bytes: maximum size of a compiled pattern.

    Raises:
        UnusableSchema: the schema is invalid, or has other references or patterns.
    """
    import jsonschema_rs  # costs start-up time, and most servers have no schemas to check

    patterns = jsonschema_rs.RegexOptions(size_limit=pattern_bytes)
    try:
        return jsonschema_rs.validator_for(
            dict(schema), registry=registry, offline=True, pattern_options=patterns, validate_formats=False
        )
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        raise UnusableSchema(str(error)[:_MAX_REASON_CHARACTERS]) from None


_DIALECT: Final = re.compile(r"https?://json-schema\.org/(?:draft-0[467]/|draft/20(?:19-09|20-12)/)?schema#?")
_TYPES: Final = frozenset(("null", "boolean", "number", "integer", "string", "array", "object"))
_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")
_BOUNDS: Final = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))


def repair(schema: JsonObject) -> Rewritten:
    """Return a schema without what the validator cannot read, as far as that is known."""
    return _Repairing(schema).run()


def _is_schema(value: Any) -> bool:
    return isinstance(value, (dict, bool))


def _is_count(value: Any) -> bool:
    found = number(value)
    return found is not None and found >= 0 and (isinstance(found, int) or found.is_integer())


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_type(value: Any) -> bool:
    stated = value if isinstance(value, list) else [value]
    return bool(stated) and all(isinstance(each, str) and each in _TYPES for each in stated)


_READABLE: Final[dict[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("title", "description", "$comment", "format", "contentEncoding", "contentMediaType"), _is_text),
    **dict.fromkeys(("minimum", "maximum"), lambda each: number(each) is not None),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), lambda each: isinstance(each, int | float)),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("minContains", "maxContains"), _is_count),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _is_flag),
    **dict.fromkeys(("enum", "examples", "required"), lambda each: isinstance(each, list)),
    **dict.fromkeys(POSITIVE | NEGATIVE, _is_schema),
    **dict.fromkeys((*BY_NAME, "dependentRequired"), lambda each: isinstance(each, dict)),
    **dict.fromkeys(LISTS, lambda each: isinstance(each, list) and bool(each)),
    "multipleOf": lambda each: (number(each) or 0) > 0,
    "type": _is_type,
    "pattern": _is_text,
    "$id": lambda each: isinstance(each, str) and re.search(r"\s", each) is None,
}
"""Conditions for the values of keywords."""


class _Repairing(Walk):
    """The walk of `repair`."""

    def __init__(self, root: JsonObject) -> None:
        super().__init__(root)
        self._is_draft_04 = "draft-04" in str(root.get("$schema"))
        self._expansion = SchemaExpansion(root)

    def step(self, node: dict[str, Any], path: Path, *, is_positive: bool) -> dict[str, Any]:
        node = self._in_dialect(node, path)
        wrong = [keyword for keyword in node.keys() & _READABLE.keys() if not _READABLE[keyword](node[keyword])]
        if isinstance(node.get("pattern"), str) and self.validator({"pattern": node["pattern"]}) is None:
            wrong.append("pattern")
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if keyword in node and not self._expansion.leads_somewhere(keyword, node[keyword]):
                # In older drafts, other keywords have no effect beside a reference. In later ones, what it leads to may
                # declare members.
                beside = [each for each in node if each not in ANNOTATIONS] if self.is_legacy else _UNEVALUATED
                wrong += [keyword, *(each for each in beside if each in node)]
        if wrong:
            shown = ", ".join(f'"{keyword}"' for keyword in sorted(set(wrong)))
            node = self.weakened(without(node, wrong), path, f"{shown} cannot be read and is left out")
        return self._with_readable_members(node, path)

    def _in_dialect(self, node: dict[str, Any], path: Path) -> dict[str, Any]:
        node = dict(node)
        dialect = node.get("$schema")
        if dialect is not None and not (isinstance(dialect, str) and _DIALECT.fullmatch(dialect)):
            del node["$schema"]
            if self.is_legacy and not path:
                node["$schema"] = "http://json-schema.org/draft-07/schema#"
        items = node.get("items")
        if isinstance(items, list) and not self.is_legacy:
            del node["items"]
            if "additionalItems" in node:
                node["items"] = node.pop("additionalItems")
            if items:
                node.setdefault("prefixItems", items)
        for strict, bound in _BOUNDS:
            if self._is_draft_04 and number(node.get(strict)) is not None:
                node |= {bound: node[strict], strict: True}
            elif isinstance(node.get(strict), bool) and not self._is_draft_04 and (node.pop(strict) and bound in node):
                node[strict] = node.pop(bound)
        anchor = node.get("$id")
        if isinstance(anchor, str) and anchor.startswith("#") and not self.is_legacy:
            node["$anchor"] = node.pop("$id")[1:]
        if isinstance(node.get("required"), list):
            self.spend(len(node["required"]) // 20)
            node["required"] = list(dict.fromkeys(names(node["required"])))
            if not node["required"]:
                del node["required"]
        if isinstance(node.get("type"), list):
            node["type"] = list(dict.fromkeys(map(str, node["type"])))
        return node

    def _with_readable_members(self, node: dict[str, Any], path: Path) -> dict[str, Any]:
        """Return a schema whose subschemas are schemas. Everything is accepted in place of one that is none."""
        for keyword in node.keys() & (BY_NAME | LISTS):
            value = node[keyword]
            if isinstance(value, list):
                node[keyword] = [each if _is_schema(each) else {} for each in value]
            else:
                node[keyword] = {
                    name: each if _is_schema(each) or (keyword == "dependencies" and isinstance(each, list)) else {}
                    for name, each in value.items()
                }
        if "dependentRequired" in node:
            node["dependentRequired"] = {name: names(each) for name, each in node["dependentRequired"].items()}
        rules = node.get("patternProperties", {})
        bad = [pattern for pattern in rules if self.validator({"pattern": pattern}) is None]
        if bad:
            # Names that match are not known, so other members may have these schemas.
            others = node.get("additionalProperties", True)
            node["patternProperties"] = without(rules, bad)
            node["additionalProperties"] = others in (True, {}) or {"anyOf": [*(rules[each] for each in bad), others]}
            self.weakened(node, path, '"patternProperties" has patterns that cannot be read and are left out')
        return node
