"""In what a value does not fit a JSON Schema, in words for the one who wrote the value.

The verdict is jsonschema-rs's alone; this module looks for the reasons once that has said no. It reads schema and
value itself instead of asking the library for its errors, because those are all made before the first can be read, each
with copies of what was expected and seen: seconds for a hostile schema. Here the work is counted, and parts that are
large and right are skipped with a compiled validator.

Neither schema nor value is trusted: what is shown of them is short, on one line and without control characters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from codemode_mcp.did_you_mean import misspells, nearest
from declarations.references import Document
from upstream_clients.schemas import SchemaParts, UnusableSchema, compile_schema, is_legacy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import jsonschema_rs

Path = tuple[str | int, ...]

MAX_STEPS = 1_500
"""Pairs of a subschema and a value that are looked at, and other work of that size; a few milliseconds."""

_DEFAULT_STEPS = 8 * MAX_STEPS
"""For all defaults of a schema together."""

_OPENING = ("additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames")
"""Keywords by which a schema speaks of properties that it does not name."""

_MAX_DECLARED = 2_000
_MAX_APPLIED = 8
_MAX_TOGETHER = 200
"""Subschemas that are looked at for the names they have."""
_MAX_DEPTH = 120
_MAX_KEPT = 1_000
_MAX_PROBLEMS = 500
_MAX_BRANCHES = 40
_MAX_ALIKE = 3
_MAX_COMPARED = 2_000
"""Names, and as many more for each hint, that may be compared for hints."""
_LARGE = 40
"""Values inside a value from which on it is worth a compiled validator."""

_MAX_SEEN = 60
_MAX_EXPECTED = 100
_MAX_OPTIONS = 160
_MAX_NAMES = 360
_MAX_NAME = 60
_MAX_PATH = 240
_MAX_NOTE = 80
_IDENTIFIER = re.compile(r"[^\W\d][\w$]*")

_TYPES: dict[str, type | tuple[type, ...]] = {
    "null": type(None),
    "boolean": bool,
    "string": str,
    "array": list,
    "object": dict,
}
_NUMBERS: dict[str, tuple[str, str]] = {
    "minimum": ("at least", "<"),
    "exclusiveMinimum": ("more than", "<="),
    "maximum": ("at most", ">"),
    "exclusiveMaximum": ("less than", ">="),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong at a path.

    Attributes:
        kind: "missing" and "unknown" end their path with the name in question; "kind" is a value of the wrong type,
            "choice" one that is none of those listed.
        expected: what would be right, in a few words, where that is known.
        near: for "unknown", the name that was probably meant.
    """

    path: Path
    text: str
    kind: Literal["missing", "unknown", "kind", "choice", "other"] = "other"
    expected: str = ""
    near: str | None = None


@dataclass(frozen=True, slots=True)
class _Rule:
    """A subschema, the resource its references are relative to, and its JSON pointer where that is known."""

    schema: Any
    base: Mapping[str, Any]
    pointer: str | None


class Mismatch:
    """The reasons of one schema, which compiles. Keeps what it compiled, a bounded amount."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self._document = Document(schema)
        self.parts = SchemaParts(schema)
        self.legacy = is_legacy(schema)
        self._expected: dict[tuple[int, int], str] = {}
        self._single: dict[tuple[str, Any], jsonschema_rs.Validator | None] = {}

    def problems(self, value: Any, given: Iterable[str] | None = None) -> tuple[list[Problem], bool]:
        """What is wrong with a value, in the order of the schema, and whether that is all.

        Args:
            given: the members of the value that somebody wrote, where others are there by default: only those are not
                what an unknown one was meant to be.
        """
        search = _Search(self, given=given)
        found = search.visit(self._root, value, (), 0)
        return _merged(found), not search.exhausted

    def fitting(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the properties' defaults that fit, as far as can be seen within a bounded amount of work for all."""
        left = _DEFAULT_STEPS
        found = {}
        for name, value in defaults.items():
            search = _Search(self, min(left, MAX_STEPS))
            if left <= 0 or not search.visit(self.under(self._root, "properties", name), value, (), 0):
                found[name] = value
            left -= search.spent + 1
        return found

    @property
    def _root(self) -> _Rule:
        return _Rule(self.schema, self.schema, "")

    # schemas

    def declared(self, rule: _Rule | None = None) -> list[str]:
        """Properties that a schema, by default the whole one, declares itself or through what it is combined of."""
        names: dict[str, None] = {}
        for each in self._together(self._root if rule is None else rule):
            names.update(dict.fromkeys(islice(_dict(each.schema, "properties"), _MAX_DECLARED)))
            if len(names) >= _MAX_DECLARED:
                break
        return list(names)[:_MAX_DECLARED]

    def mentioned(self) -> set[str]:
        """Properties that the schema speaks of in any other way than by declaring them."""
        names: set[str] = set()
        for each in self._together(self._root):
            lists = [_list(each.schema, "required")]
            if "not" in each.schema:
                refused = self.under(each, "not").schema
                lists += [_list(refused, "required"), list(islice(_dict(refused, "properties"), _MAX_DECLARED))]
            for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
                for name, needs in islice(_dict(each.schema, keyword).items(), _MAX_DECLARED):
                    lists.append([name, *needs] if isinstance(needs, list) else [name])
            for found in lists:
                names.update(name for name in found[:_MAX_DECLARED] if isinstance(name, str))
        return names

    @property
    def is_closed(self) -> bool:
        """Whether the schema itself refuses properties it does not declare."""
        return any(self.schema.get(keyword) is False for keyword in ("additionalProperties", "unevaluatedProperties"))

    def admits_others(self) -> bool:
        """Whether the schema says, rather than leaves open, that there may be properties it does not declare."""
        looked_at = list(self._together(self._root))
        return len(looked_at) == _MAX_TOGETHER or any(map(self._opens, looked_at))

    def _opens(self, rule: _Rule) -> bool:
        """`admits_others` of one subschema by itself; also where that cannot be told."""
        schema = rule.schema
        if any(keyword in schema for keyword in ("$dynamicRef", "$recursiveRef")):
            return True
        if isinstance(schema.get("$ref"), str) and self.target(rule) is None:
            return True
        if any(schema.get(keyword, False) is not False for keyword in _OPENING):
            return True
        several = ("allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies", "dependentRequired")
        return any(
            len(schema[keyword]) > _MAX_APPLIED for keyword in several if isinstance(schema.get(keyword), list | dict)
        )

    def _together(self, rule: _Rule) -> Iterator[_Rule]:
        """A subschema and all that speak of the same value through it, each once; a bounded number."""
        known = {id(rule.schema)}
        waiting = [rule]
        for count in range(_MAX_TOGETHER):
            if count == len(waiting):
                return
            if isinstance(waiting[count].schema, Mapping):
                yield waiting[count]
                for each in self._applied(waiting[count]):
                    if id(each.schema) not in known and isinstance(each.schema, Mapping):
                        known.add(id(each.schema))
                        waiting.append(each)

    def _applied(self, rule: _Rule) -> Iterator[_Rule]:
        """Subschemas that speak of the same value; a bounded number."""
        target = self.target(rule)
        if target is not None:
            yield target
        for keyword in ("allOf", "anyOf", "oneOf"):
            for n in range(len(_list(rule.schema, keyword)[:_MAX_APPLIED])):
                yield self.under(rule, keyword, n)
        for keyword in ("if", "then", "else"):
            if keyword in rule.schema:
                yield self.under(rule, keyword)
        for keyword in ("dependentSchemas", "dependencies"):
            dependent = rule.schema.get(keyword)
            for name in list(dependent)[:_MAX_APPLIED] if isinstance(dependent, dict) else ():
                yield self.under(rule, keyword, name)

    def under(self, rule: _Rule, *keys: str | int) -> _Rule:
        """The subschema at these keys, which must be there."""
        schema, base, pointer = rule.schema, rule.base, rule.pointer
        for key in keys:
            schema = schema[key]
            if pointer is not None:
                pointer += "/" + str(key).replace("~", "~0").replace("/", "~1")
        if isinstance(schema, Mapping) and isinstance(schema.get("$id"), str) and not schema["$id"].startswith("#"):
            base, pointer = schema, None
        return _Rule(schema, base, pointer)

    def target(self, rule: _Rule) -> _Rule | None:
        """What a subschema's `$ref` points to; None where it has none, or where that cannot be told."""
        reference = rule.schema.get("$ref") if isinstance(rule.schema, Mapping) else None
        if not isinstance(reference, str):
            return None
        place = self._document.resolve(reference, rule.base)
        if place is None:
            return None
        local = reference == "#" or reference.startswith("#/")
        pointer = reference[1:] if local and rule.base is self.schema and "%" not in reference else None
        return _Rule(place.schema, place.base, pointer)

    def described(self, rule: _Rule) -> str:
        """The description, or else the title, of a subschema or what it refers to, on one line."""
        for _ in range(5):
            if not isinstance(rule.schema, Mapping):
                return ""
            for keyword in ("description", "title"):
                text = rule.schema.get(keyword)
                if isinstance(text, str) and text.strip():
                    return one_line(text, _MAX_NOTE)
            found = self.target(rule)
            if found is None:
                return ""
            rule = found
        return ""

    def expected(self, rule: _Rule, depth: int = 0) -> str:
        """What a subschema takes, in a few words: `string`, `"open" | "closed"`, `array of integer`."""
        key = (id(rule.schema), depth)  # what is part of the schema lives as long as this
        if key not in self._expected:
            if len(self._expected) >= _MAX_KEPT:
                self._expected.clear()
            self._expected[key] = self._in_words(rule, depth)
        return self._expected[key]

    def _in_words(self, rule: _Rule, depth: int) -> str:
        schema = rule.schema
        if schema is False:
            return "nothing"
        if not isinstance(schema, Mapping) or depth > 4:
            return "any value"
        if "const" in schema:
            return literal(schema["const"])
        if isinstance(schema.get("enum"), list):
            return options(schema["enum"])
        names = schema.get("type")
        if isinstance(names, str):
            return clip(self._kind(names, rule, depth), _MAX_EXPECTED)
        if isinstance(names, list):
            return clip(_either(self._kind(str(name), rule, depth) for name in names[:7]), _MAX_EXPECTED)
        found = self.target(rule)
        if found is not None:
            return self.expected(found, depth + 1)
        for keyword in ("anyOf", "oneOf"):
            branches = schema.get(keyword)
            if isinstance(branches, list) and branches:
                shown = [self.expected(self.under(rule, keyword, n), depth + 1) for n in range(len(branches[:8]))]
                more = [f"{len(branches) - 8} more"] if len(branches) > 8 else []
                return clip(_either([*shown, *more]), _MAX_EXPECTED)
        for n in range(len(schema["allOf"][:8]) if isinstance(schema.get("allOf"), list) else 0):
            text = self.expected(self.under(rule, "allOf", n), depth + 1)
            if text != "any value":
                return text
        if "properties" in schema or "required" in schema:
            return self._kind("object", rule, depth)
        return self._kind("array", rule, depth) if "items" in schema else "any value"

    def _kind(self, name: str, rule: _Rule, depth: int) -> str:
        schema = rule.schema
        if name == "array" and isinstance(schema.get("items"), Mapping):
            items = self.expected(self.under(rule, "items"), depth + 1)
            return "array" if items == "any value" else f"array of {f'({items})' if ' | ' in items else items}"
        if name == "object":
            names, required = list(islice(_dict(schema, "properties"), 5)), _list(schema, "required")[:5]
            named = [str(each) for each in required] or names
            if not named:
                return "object"
            more = ", …" if len(names) > len(named[:4]) else ""
            return f"object {{ {', '.join(map(shown_name, named[:4]))}{more} }}"
        if name == "string" and isinstance(schema.get("format"), str):
            return f"string ({one_line(schema['format'], 30)})"
        return one_line(name, 20)

    def obeys(self, keyword: str, argument: Any, value: Any) -> bool:
        """What jsonschema-rs says of one keyword whose argument is a string or a number."""
        key = (keyword, argument)
        if key not in self._single:
            if len(self._single) >= _MAX_KEPT:
                self._single.clear()
            try:
                self._single[key] = compile_schema({keyword: argument})
            except UnusableSchema:
                self._single[key] = None
        validator = self._single[key]
        return validator is None or validator.is_valid(value)


class _Search:
    """One search for reasons, with its share of work."""

    def __init__(self, mismatch: Mismatch, steps: int = MAX_STEPS, *, given: Iterable[str] | None = None) -> None:
        self._mismatch = mismatch
        self._under = mismatch.under
        self._given = None if given is None else frozenset(given)
        self._allowed = self._steps = steps
        self._compared = _MAX_COMPARED
        self._known: dict[tuple[int, Path], list[Problem]] = {}
        self.exhausted = False

    def _spend(self, steps: int = 1) -> bool:
        self._steps -= steps
        if self._steps < 0:
            self.exhausted = True
        return not self.exhausted

    @property
    def spent(self) -> int:
        return self._allowed - self._steps

    def _may_hint(self, names: int) -> bool:
        """Whether there is work left for finding the nearest among so many names."""
        self._compared -= names + 80
        return self._compared >= 0

    def visit(self, rule: _Rule, value: Any, path: Path, depth: int) -> list[Problem]:
        """The problems of a value with a subschema; none as well where work ran out, see `exhausted`."""
        schema = rule.schema
        if schema is False:
            return [Problem(path, f"not allowed, got {seen(value)}")]
        if not isinstance(schema, Mapping) or not schema:
            return []
        key = (id(schema), path)
        known = self._known.get(key)
        if known is not None:
            return known
        if depth > _MAX_DEPTH or not self._spend():
            self.exhausted = True
            return []
        self._known[key] = []  # what a reference that leads back to itself adds
        found = self._known[key] = self._reasons(rule, value, path, depth + 1)
        return found

    def _part(self, rule: _Rule, value: Any, path: Path, depth: int, *, many: bool = False) -> list[Problem]:
        """`visit`, for a value inside the one looked at; what is large and right is not read."""
        if rule.pointer is not None and (many or _is_large(value)):
            fits = self._mismatch.parts.is_valid(rule.pointer, value)
            if fits:
                return []
            found = self.visit(rule, value, path, depth)
            if fits is False and not found:
                return [self._unlike(rule, value, path)]
            return found
        return self.visit(rule, value, path, depth)

    def _unlike(self, rule: _Rule, value: Any, path: Path) -> Problem:
        expected = self._mismatch.expected(rule)
        return Problem(path, f"does not fit its schema: expected {expected}, got {seen(value)}", "other", expected)

    def _reasons(self, rule: _Rule, value: Any, path: Path, depth: int) -> list[Problem]:
        schema = rule.schema
        found: list[Problem] = []
        target = self._mismatch.target(rule)
        if target is not None:
            found += self.visit(target, value, path, depth)
            if self._mismatch.legacy:
                return found
        chosen = self._choice(schema, value, path)
        if chosen is not None:
            return [chosen]
        if "type" in schema and not _is_of(schema["type"], value):
            expected = self._mismatch.expected(rule)
            return [Problem(path, f"expected {expected}, got {seen(value)}", "kind", expected)]
        match value:
            case bool() | None:
                pass
            case int() | float():
                found += self._number(schema, value, path)
            case str():
                found += self._string(schema, value, path)
            case list():
                found += self._array(rule, value, path, depth)
            case dict():
                found += self._object(rule, value, path, depth)
        found += self._combined(rule, value, path, depth)
        if schema.get("unevaluatedProperties") is False and isinstance(value, dict) and not self._mismatch.legacy:
            evaluated = self._evaluated(rule, value, path, depth)
            names = self._mismatch.declared(rule)
            found += [self._unknown(names, name, path, value) for name in value if name not in evaluated]
        if schema.get("unevaluatedItems") is False and isinstance(value, list) and not self._mismatch.legacy:
            evaluated = self._evaluated(rule, value, path, depth)
            found += [
                Problem((*path, n), f"one item too many, got {seen(item)}")
                for n, item in enumerate(value[:_MAX_PROBLEMS])
                if n not in evaluated
            ]
        if len(found) > _MAX_PROBLEMS:
            self.exhausted = True
        return found[:_MAX_PROBLEMS]

    # what a value is by itself

    def _choice(self, schema: Mapping[str, Any], value: Any, path: Path) -> Problem | None:
        if "const" in schema and not same(schema["const"], value):
            expected = literal(schema["const"])
            return Problem(path, f"expected {expected}, got {_bare(value)}", "choice", expected)
        choices = schema.get("enum")
        if not isinstance(choices, list):
            return None
        self._spend(len(choices) // 50)
        if value in choices and any(same(each, value) for each in choices):
            return None
        return self._not_among(choices, value, path)

    def _number(self, schema: Mapping[str, Any], value: float, path: Path) -> Iterator[Problem]:
        for keyword, (words, wrong) in _NUMBERS.items():
            limit = schema.get(keyword)
            if limit is True or limit is False or not isinstance(limit, int | float):
                continue
            stricter = "exclusive" + keyword.capitalize()
            if schema.get(stricter) is True:  # as draft-04 says it
                words, wrong = _NUMBERS[stricter]
            if {"<": value < limit, "<=": value <= limit, ">": value > limit, ">=": value >= limit}[wrong]:
                yield Problem(path, f"expected {words} {literal(limit)}, got {_bare(value)}")
        step = schema.get("multipleOf")
        if isinstance(step, int | float) and not self._mismatch.obeys("multipleOf", step, value):
            yield Problem(path, f"expected a multiple of {literal(step)}, got {_bare(value)}")

    def _string(self, schema: Mapping[str, Any], value: str, path: Path) -> Iterator[Problem]:
        got = f"got {len(value)}: {_bare(value)}" if value else "got none"
        least, most, pattern = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern")
        if isinstance(least, int | float) and len(value) < least:
            yield Problem(path, f"expected at least {_counted(least, 'character')}, {got}")
        if isinstance(most, int | float) and len(value) > most:
            yield Problem(path, f"expected at most {_counted(most, 'character')}, {got}")
        if isinstance(pattern, str) and not self._mismatch.obeys("pattern", pattern, value):
            yield Problem(path, f"expected a match of /{_pattern(pattern)}/, got {_bare(value)}")

    def _not_among(self, choices: Sequence[Any], value: Any, path: Path) -> Problem:
        expected = options(choices)
        text = f"expected {expected}, got {_bare(value)}"
        comparable = isinstance(value, str | int | float) and not isinstance(value, bool)
        if comparable and self._may_hint(len(choices)):
            spelled = {str(each): each for each in choices if isinstance(each, str | int | float)}
            near = [str(value)] if str(value) in spelled else nearest(str(value), spelled, count=1)
            if near:
                text += f"; nearest: {literal(spelled[near[0]])}"
        return Problem(path, text, "choice", expected)

    # arrays

    def _array(self, rule: _Rule, value: list[Any], path: Path, depth: int) -> list[Problem]:
        schema = rule.schema
        found: list[Problem] = []
        least, most = schema.get("minItems"), schema.get("maxItems")
        if isinstance(least, int | float) and len(value) < least:
            found.append(Problem(path, f"expected at least {_counted(least, 'item')}, got {len(value)}"))
        if isinstance(most, int | float) and len(value) > most:
            found.append(Problem(path, f"expected at most {_counted(most, 'item')}, got {len(value)}"))
        if schema.get("uniqueItems") is True and not self._mismatch.obeys("uniqueItems", True, value):
            found.append(Problem(path, f"expected no two equal items, but {self._equal(value)}"))
        tuple_key, rest_key = "prefixItems", "items"
        if isinstance(schema.get("items"), list):
            tuple_key, rest_key = "items", "additionalItems"
        first = schema.get(tuple_key)
        first = first if isinstance(first, list) and (tuple_key == "items" or not self._mismatch.legacy) else []
        for n, item in enumerate(value[: len(first)]):
            found += self._part(self._under(rule, tuple_key, n), item, (*path, n), depth)
        if rest_key in schema and len(value) > len(first):
            rest = self._under(rule, rest_key)
            many = len(value) > _LARGE
            for n, item in enumerate(value[len(first) :], len(first)):
                if self.exhausted or len(found) > _MAX_PROBLEMS:
                    break
                if rest.schema is False:
                    found.append(Problem((*path, n), f"expected no more than {_counted(len(first), 'item')}"))
                else:
                    found += self._part(rest, item, (*path, n), depth, many=many)
                    self._steps -= many and n % 10 == 0
        return found + self._contains(rule, value, path, depth)

    def _contains(self, rule: _Rule, value: list[Any], path: Path, depth: int) -> list[Problem]:
        if "contains" not in rule.schema:
            return []
        item_rule = self._under(rule, "contains")
        least: Any = 1
        most: Any = None
        if not self._mismatch.legacy:
            least, most = rule.schema.get("minContains", 1), rule.schema.get("maxContains")
        fitting = 0
        for n, item in enumerate(value):
            if not self._part(item_rule, item, (*path, n), depth):
                fitting += 1
            if self.exhausted:
                return []
        expected = self._mismatch.expected(item_rule)
        expected = "what its schema asks for" if expected == "any value" else expected
        if isinstance(least, int | float) and fitting < least:
            return [Problem(path, f"expected at least {_counted(least, 'item')} that is {expected}, got {fitting}")]
        if isinstance(most, int | float) and fitting > most:
            return [Problem(path, f"expected at most {_counted(most, 'item')} that is {expected}, got {fitting}")]
        return []

    def _equal(self, value: list[Any]) -> str:
        first: dict[Any, int] = {}
        for n, item in enumerate(value):
            if not self._spend() or _is_large(item):
                break
            key = _hashable(item)
            if key in first:
                return f"items {first[key]} and {n} are both {_bare(item)}"
            first[key] = n
        return "two are"

    # objects

    def _object(self, rule: _Rule, value: dict[str, Any], path: Path, depth: int) -> list[Problem]:
        schema = rule.schema
        found: list[Problem] = []
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = schema.get("required")
        required = required if isinstance(required, list) else []
        missing = list(islice((name for name in required if name not in value), _MAX_PROBLEMS + 1))
        self._spend(len(properties) // 50 + len(required) // 50)
        absent = set(missing)
        for name in properties:
            if name in absent:
                found.append(self._missing(rule, name, path))
            elif name in value:
                found += self._part(self._under(rule, "properties", name), value[name], (*path, name), depth)
        found += [self._missing(rule, name, path) for name in missing if name not in properties]
        if missing and "additionalProperties" not in schema and schema.get("unevaluatedProperties") is not False:
            found = self._misspelt(found, properties, value, path)
        found += self._dependent(rule, value, path, depth)
        found += self._others(rule, value, path, depth, properties)
        least, most = schema.get("minProperties"), schema.get("maxProperties")
        if isinstance(least, int | float) and len(value) < least:
            found.append(Problem(path, f"expected at least {_counted(least, 'member')}, got {len(value)}"))
        if isinstance(most, int | float) and len(value) > most:
            found.append(Problem(path, f"expected at most {_counted(most, 'member')}, got {len(value)}"))
        return found

    def _misspelt(
        self, found: list[Problem], properties: Mapping[str, Any], value: Mapping[str, Any], path: Path
    ) -> list[Problem]:
        """Undeclared members of an open object, as what a missing one was probably meant to be."""
        missing = {str(p.path[-1]): p for p in found if p.kind == "missing" and len(p.path) == len(path) + 1}
        for name in value:
            if name not in properties and missing and self._compared > 0:
                near = self._near(list(missing), name, path, value)
                if near is not None:
                    del missing[near]
                    found.append(Problem((*path, name), _meant(path, near), "unknown", near=near))
        return found

    def _others(
        self, rule: _Rule, value: dict[str, Any], path: Path, depth: int, properties: dict[str, Any]
    ) -> Iterator[Problem]:
        """What `propertyNames`, `patternProperties` and `additionalProperties` have against members."""
        schema = rule.schema
        patterns = schema.get("patternProperties")
        patterns = patterns if isinstance(patterns, dict) else {}
        names = self._under(rule, "propertyNames") if "propertyNames" in schema else None
        rest = self._under(rule, "additionalProperties") if "additionalProperties" in schema else None
        if not patterns and names is None and rest is None:
            return
        count = 0
        for name, member in value.items():
            if self.exhausted or count > _MAX_PROBLEMS or not self._spend(len(patterns)):
                return
            here = (*path, name)
            if names is not None:
                problems = self.visit(names, name, (*here, "name"), depth)
                if problems:
                    yield Problem(here, f"a name that is not allowed: {problems[0].text}")
                    count += 1
            matching = [pattern for pattern in patterns if self._mismatch.obeys("pattern", pattern, name)]
            for pattern in matching:
                yield from self._part(self._under(rule, "patternProperties", pattern), member, here, depth)
            if rest is None or name in properties or matching:
                continue
            problems = (
                [self._unknown(list(properties), name, path, value)]
                if rest.schema is False
                else self._part(rest, member, here, depth)
            )
            count += len(problems)
            yield from problems

    def _dependent(self, rule: _Rule, value: dict[str, Any], path: Path, depth: int) -> Iterator[Problem]:
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            dependent = rule.schema.get(keyword)
            if not isinstance(dependent, dict) or (keyword != "dependencies" and self._mismatch.legacy):
                continue
            for name, needs in dependent.items():
                if name not in value or not self._spend():
                    continue
                if isinstance(needs, list):
                    self._spend(len(needs) // 50)
                    for needed in islice((each for each in needs if each not in value), _MAX_PROBLEMS + 1):
                        yield self._missing(rule, needed, path, f"; needed because {shown_name(name)} is given")
                else:
                    yield from self.visit(self._under(rule, keyword, name), value, path, depth)

    def _missing(self, rule: _Rule, name: str, path: Path, why: str = "") -> Problem:
        declared = self._property(rule, name)
        expected = note = ""
        if declared is not None:
            expected, note = self._mismatch.expected(declared), self._mismatch.described(declared)
        about = ": ".join(filter(None, (expected, note)))
        return Problem((*path, name), f"missing{f' ({about})' if about else ''}{why}", "missing", expected)

    def _property(self, rule: _Rule, name: str) -> _Rule | None:
        properties = rule.schema.get("properties")
        return self._under(rule, "properties", name) if isinstance(properties, dict) and name in properties else None

    def _unknown(self, names: Sequence[str], name: str, path: Path, value: Mapping[str, Any]) -> Problem:
        if not names:
            return Problem((*path, name), f"{_no_such(path)}; there are none", "unknown")
        near = self._near(names, name, path, value)
        if near is not None and (len(names) == 1 or misspells(name, near)):
            return Problem((*path, name), _meant(path, near), "unknown", near=near)
        text = _no_such(path) + (f"; nearest: {shown_name(near)}" if near is not None else "")
        return Problem((*path, name), f"{text}{_THERE_ARE}{listed_names(names)}", "unknown", near=near)

    def _near(self, names: Sequence[str], name: str, path: Path, value: Mapping[str, Any]) -> str | None:
        """The nearest of the names that are not given, while there is work left for that."""
        if not self._may_hint(len(names)):
            return None
        given = value if path or self._given is None else self._given
        return next(iter(nearest(name, [each for each in names if each not in given], count=1)), None)

    # combinations

    def _combined(self, rule: _Rule, value: Any, path: Path, depth: int) -> list[Problem]:
        schema = rule.schema
        found: list[Problem] = []
        for n in range(len(_list(schema, "allOf"))):
            found += self.visit(self._under(rule, "allOf", n), value, path, depth)
        for keyword in ("anyOf", "oneOf"):
            if _list(schema, keyword):
                found += self._alternatives(rule, keyword, value, path, depth)
        if "not" in schema:
            found += self._not(rule, value, path, depth)
        if "if" in schema:
            branch = "else" if self.visit(self._under(rule, "if"), value, path, depth) else "then"
            if branch in schema:
                found += self.visit(self._under(rule, branch), value, path, depth)
        return found

    def _not(self, rule: _Rule, value: Any, path: Path, depth: int) -> list[Problem]:
        refused = self._under(rule, "not")
        if self.visit(refused, value, path, depth) or self.exhausted:
            return []
        schema = refused.schema
        if isinstance(schema, Mapping) and schema.keys() <= {"required", "type"} and _list(schema, "required"):
            names = " and ".join(shown_name(str(name)) for name in schema["required"][:5])
            together = " together" if len(schema["required"]) > 1 else ""
            return [Problem(path, f"{names} must not be given{together}")]
        expected = self._mismatch.expected(refused)
        if expected == "any value":
            return [Problem(path, f"is what its schema excludes, got {seen(value)}")]
        return [Problem(path, f"expected anything but {expected}, got {seen(value)}")]

    def _alternatives(self, rule: _Rule, keyword: str, value: Any, path: Path, depth: int) -> list[Problem]:
        branches = [self._under(rule, keyword, n) for n in range(len(rule.schema[keyword]))]
        looked_at = branches[:_MAX_BRANCHES]
        tried = [(branch, self.visit(branch, value, path, depth)) for branch in looked_at]
        fitting = [n for n, (_, problems) in enumerate(tried) if not problems]
        if self.exhausted or (not fitting and len(branches) > len(looked_at)):
            return self._unsearched(rule, value, path)
        if fitting:
            if keyword == "anyOf" or len(fitting) == 1:
                return []
            fit = " and ".join(f"{self._mismatch.expected(looked_at[n])} (number {n + 1})" for n in fitting[:3])
            more = f" and {len(fitting) - 3} more" if len(fitting) > 3 else ""
            return [Problem(path, f"fits {fit}{more}, but must fit exactly one of {len(branches)} alternatives")]
        tagged = self._by_tag(looked_at, tried, value, path)
        if tagged is not None:
            return tagged
        if all(p.path == path and p.kind in ("kind", "choice") for _, problems in tried for p in problems):
            return [self._none_of(rule, keyword, tried, value, path)]
        if all(p.kind == "missing" and p.path[:-1] == path for _, problems in tried for p in problems):
            return [_lacks([[str(p.path[-1]) for p in problems] for _, problems in tried], path)]
        best = min(range(len(tried)), key=lambda n: _distance(tried[n][1], path))
        others = [self._mismatch.expected(branch) for n, branch in enumerate(looked_at) if n != best]
        return _with_others(tried[best][1], others, path)

    def _unsearched(self, rule: _Rule, value: Any, path: Path) -> list[Problem]:
        """Work ran out, or there are too many branches: only the verdict, where it can be had."""
        if rule.pointer is None or self._mismatch.parts.is_valid(rule.pointer, value) is not False:
            return []
        return [self._unlike(rule, value, path)]

    def _none_of(
        self,
        rule: _Rule,
        keyword: str,
        tried: Sequence[tuple[_Rule, list[Problem]]],
        value: Any,
        path: Path,
    ) -> Problem:
        """No branch takes a value of this kind, or this very value."""
        choices: list[Any] = []
        for branch, _ in tried:
            found = self._choices(branch)
            if found is None:
                expected = clip(_either(p.expected for _, problems in tried for p in problems), _MAX_OPTIONS)
                return Problem(path, f"expected {expected}, got {seen(value)}", "kind", expected)
            choices += found
        return self._not_among(choices, value, path)

    def _choices(self, branch: _Rule) -> list[Any] | None:
        """The few values that an alternative takes, null by its type among them, if it says them."""
        followed: _Rule | None = branch
        for _ in range(5):
            if followed is None or not isinstance(followed.schema, Mapping):
                return None
            found = [None] if followed.schema.get("type") == "null" else _choices_of(followed.schema)
            if found is not None:
                return found
            followed = self._mismatch.target(followed)
        return None

    def _by_tag(
        self, branches: Sequence[_Rule], tried: Sequence[tuple[_Rule, list[Problem]]], value: Any, path: Path
    ) -> list[Problem] | None:
        """The problems by the one property whose constants tell the branches apart; None if there is none."""
        if not isinstance(value, dict) or len(branches) < 2:
            return None
        tags = [self._tags(branch) for branch in branches]
        tagged = [n for n, each in enumerate(tags) if each is not None]
        if len(tagged) < 2:
            return None
        names = [name for name in tags[tagged[0]] or {} if all(name in (tags[n] or {}) for n in tagged)]
        for name in names:
            choices = [choice for n in tagged for choice in (tags[n] or {})[name]]
            if name not in value:
                if len(tagged) < len(branches):
                    continue
                listed = options(choices)
                return [Problem((*path, name), f"missing ({listed})", "missing", listed)]
            chosen = [n for n in tagged if any(same(choice, value[name]) for choice in (tags[n] or {})[name])]
            if len(chosen) == 1 or (chosen and len(chosen) < len(tagged)):
                return min((tried[n][1] for n in chosen), key=lambda problems: _distance(problems, path))
            if not chosen and len(tagged) == len([b for b in branches if _may_be_object(b.schema)]):
                return [self._not_among(choices, value[name], (*path, name))]
        return None

    def _tags(self, branch: _Rule) -> dict[str, list[Any]] | None:
        """Properties of a branch that have a few possible values."""
        for _ in range(5):
            found = self._mismatch.target(branch)
            if found is None:
                break
            branch = found
        properties = branch.schema.get("properties") if isinstance(branch.schema, Mapping) else None
        if not isinstance(properties, dict):
            return None
        tags = {}
        for name, schema in properties.items():
            choices = _choices_of(schema)
            if choices is not None and len(choices) <= 100:
                tags[name] = choices
        return tags or None

    def _evaluated(self, rule: _Rule, value: Any, path: Path, depth: int) -> set[str | int]:
        """Members or items that `unevaluated...` does not speak of."""
        schema = rule.schema
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH or not self._spend():
            return set()
        found: set[str | int] = set()
        if isinstance(value, dict):
            properties, patterns = schema.get("properties"), schema.get("patternProperties")
            found |= {name for name in value if isinstance(properties, dict) and name in properties}
            for pattern in patterns if isinstance(patterns, dict) else ():
                found |= {name for name in value if self._mismatch.obeys("pattern", pattern, name)}
            if "additionalProperties" in schema or schema.get("unevaluatedProperties", False) is not False:
                return set(value)
        else:
            first = schema.get("prefixItems")
            found |= set(range(len(first) if isinstance(first, list) else 0))
            if "items" in schema or schema.get("unevaluatedItems", False) is not False:
                return set(range(len(value)))
            if "contains" in schema:
                contained = self._under(rule, "contains")
                found |= {n for n, item in enumerate(value) if not self.visit(contained, item, (*path, n), depth)}
        applied = []
        target = self._mismatch.target(rule)
        if target is not None:
            applied.append(target)
        for keyword in ("allOf", "anyOf", "oneOf"):
            applied += [self._under(rule, keyword, n) for n in range(len(_list(schema, keyword)[:_MAX_BRANCHES]))]
        if isinstance(schema.get("dependentSchemas"), dict) and isinstance(value, dict):
            applied += [self._under(rule, "dependentSchemas", n) for n in schema["dependentSchemas"] if n in value]
        if "if" in schema:
            holds = not self.visit(self._under(rule, "if"), value, path, depth)
            applied += [self._under(rule, key) for key in (("if", "then") if holds else ("else",)) if key in schema]
        for each in applied:
            if not self.visit(each, value, path, depth):
                found |= self._evaluated(each, value, path, depth + 1)
        return found


# what is said of problems


def _merged(found: Iterable[Problem]) -> list[Problem]:
    """Each problem once, and a name that is unknown together with the missing one that was meant, in its place."""
    problems = list(dict.fromkeys(found))
    meant = {(*p.path[:-1], p.near): p for p in reversed(problems) if p.kind == "unknown" and p.near is not None}
    merged: list[Problem] = []
    said: set[Problem] = set()
    for problem in problems:
        unknown = meant.get(problem.path) if problem.kind == "missing" else None
        if unknown is not None and unknown not in said:
            said.add(unknown)
            about = f"missing, {problem.expected}" if problem.expected else "missing"
            merged.append(replace(unknown, text=_meant(unknown.path[:-1], str(problem.path[-1]), f" ({about})")))
        else:
            merged.append(problem)
    return _gathered(_listing_once(problem for problem in merged if problem not in said))


def _listing_once(problems: Iterable[Problem]) -> Iterator[Problem]:
    """The names that there are at a place, with the first that is none of them alone."""
    listed: set[tuple[Path, str]] = set()
    for problem in problems:
        text, _, names = problem.text.partition(_THERE_ARE) if problem.kind == "unknown" else (problem.text, "", "")
        place = (problem.path[:-1], names)
        yield replace(problem, text=text) if place in listed else problem
        if names:
            listed.add(place)


_THERE_ARE = "; there are "


def _no_such(path: Path) -> str:
    return f"no such {'property' if path else 'argument'}"


def _meant(path: Path, near: str, about: str = "") -> str:
    return f"{_no_such(path)}; did you mean {shown_name(near)}{about}?"


def _gathered(problems: Iterable[Problem]) -> list[Problem]:
    """Of problems that items of one array share, the first few and the number of the others."""
    counts: dict[tuple[Any, ...], int] = {}
    kept: list[Problem] = []
    ends: dict[tuple[Any, ...], int] = {}
    for problem in problems:
        inside = next((n for n, part in enumerate(problem.path) if isinstance(part, int)), None)
        if inside is None:
            kept.append(problem)
            continue
        shape = tuple(-1 if isinstance(part, int) else part for part in problem.path)
        key = (shape, problem.kind, problem.expected or problem.text.partition(", got ")[0])
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= _MAX_ALIKE:
            kept.append(problem)
        elif counts[key] == _MAX_ALIKE + 1:
            ends[key] = len(kept)
            kept.append(Problem(problem.path[:inside], ""))
    for key, n in ends.items():
        kept[n] = replace(kept[n], text=f"{counts[key] - _MAX_ALIKE} more like the last")
    return kept


def _distance(problems: Sequence[Problem], path: Path) -> tuple[int, int, int]:
    """How far a value is from a branch: another kind of value, then fewer problems, then those that lie deeper."""
    of_kind = any(p.path == path and p.kind in ("kind", "choice") for p in problems)
    return of_kind, len(problems), -min(len(p.path) for p in problems)


def _with_others(problems: list[Problem], others: Sequence[str], path: Path) -> list[Problem]:
    """The problems of the branch that fits best, naming the other branches once."""
    named = clip(_either(others), _MAX_EXPECTED)
    first = problems[0]
    if "(or " in first.text:  # said of alternatives further inside, which are nearer to what was meant
        return problems
    where = "" if first.path == path else f"{path_text(path)}: "
    return [replace(first, text=f"{first.text} (or {where}{named})", kind="other"), *problems[1:]]


def _lacks(branches: Sequence[Sequence[str]], path: Path) -> Problem:
    """Every branch wants a property that is not there."""
    ways = [" and ".join(shown_name(name) for name in names[:4]) for names in branches[:6]]
    more = ["…"] if len(branches) > 6 else []
    return Problem(path, f"missing {clip(', or '.join(dict.fromkeys([*ways, *more])), _MAX_OPTIONS)}")


def path_text(path: Path) -> str:
    """`input.labels[0]["odd name"]`; the middle of a very long one is left out."""
    text = "input"
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if _is_word(part) else f"[{shown_name(part)}]"
    return text if len(text) <= _MAX_PATH else f"{text[: _MAX_PATH // 2]}…{text[-_MAX_PATH // 2 :]}"


def shown_name(name: str) -> str:
    """A name as it is, where it is a plain word, and else in quotes."""
    return name if _is_word(name) else literal(name)


def listed_names(names: Sequence[str], limit: int = _MAX_NAMES) -> str:
    """Names as they are written, as many as fit in a line, and the number of the others."""
    text = ""
    for n, name in enumerate(names):
        following = f"{', ' if n else ''}{shown_name(name)}"
        if n and len(text) + len(following) > limit:
            return f"{text} and {len(names) - n} more"
        text += following
    return text


def _is_word(name: str) -> bool:
    return len(name) <= _MAX_NAME and _IDENTIFIER.fullmatch(name) is not None


def literal(value: Any) -> str:
    """A constant, short and on one line. What is cut off a text is cut inside its quotes."""
    text = _json(value)
    if isinstance(value, str) and len(text) > _MAX_SEEN:
        return text[: _MAX_SEEN - 2].rstrip("\\") + '…"'
    return clip(text, _MAX_SEEN)


def options(choices: Sequence[Any]) -> str:
    """`"open" | "closed"`; of many, those that fit in a line."""
    text = ""
    for n, choice in enumerate(choices):
        following = f"{' | ' if n else ''}{literal(choice)}"
        if n and len(text) + len(following) > _MAX_OPTIONS:
            return f"{text} | … ({len(choices)} in all)"
        text += following
    return text or "nothing"


def seen(value: Any) -> str:
    """A value by its kind: `number 3`, `string "x"`, `array of 12 items`."""
    match value:
        case None:
            return "null"
        case bool():
            return f"boolean {literal(value)}"
        case int() | float():
            return f"number {literal(value)}"
        case str():
            return f"string {_bare(value)}"
        case list():
            return f"array {_bare(value)}" if _is_short(value) else f"array of {_counted(len(value), 'item')}"
        case _:
            return f"object {_bare(value)}" if _is_short(value) else f"object of {_counted(len(value), 'member')}"


def _bare(value: Any) -> str:
    """A value whose kind shows by itself."""
    if isinstance(value, str) and len(value) > _MAX_SEEN:
        return f"{literal(value)} ({len(value)} characters)"
    return literal(value) if not isinstance(value, list | dict) or _is_short(value) else seen(value)


def _is_short(value: list[Any] | dict[str, Any]) -> bool:
    members = list(value.values()) if isinstance(value, dict) else value
    if len(members) > 8 or any(isinstance(each, list | dict) and each for each in members):
        return False
    if any(isinstance(each, str) and len(each) > _MAX_SEEN for each in (*members, *value)):
        return False
    return len(_json(value)) <= _MAX_SEEN


def _json(value: Any) -> str:
    if isinstance(value, str) and len(value) > 2 * _MAX_SEEN:
        value = value[: 2 * _MAX_SEEN]
    elif isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return "a very large number"
    elif isinstance(value, list | dict) and _is_large(value):
        return "a long array" if isinstance(value, list) else "a large object"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):  # a number among others that Python refuses to print
        return "a large value"
    return text if text.isprintable() else json.dumps(value)


def one_line(text: str, limit: int) -> str:
    """A schema's words on one line, without what a terminal or a reader would take for something else."""
    line = " ".join(text[: 4 * limit].split())
    return clip("".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line), limit)


def _pattern(text: str) -> str:
    return clip(text, _MAX_EXPECTED) if text[:_MAX_EXPECTED].isprintable() else one_line(text, _MAX_EXPECTED)


def clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _counted(count: float, thing: str) -> str:
    return f"{literal(count)} {thing}{'' if count == 1 else 's'}"


def _either(texts: Iterable[str]) -> str:
    return " | ".join(dict.fromkeys(part for text in texts for part in text.split(" | ")))


# JSON


def same(a: Any, b: Any) -> bool:
    """Whether two values are one in JSON, where 1 is 1.0 and not true."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


def _hashable(value: Any) -> Any:
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return frozenset((key, _hashable(member)) for key, member in value.items())
    return value


def _is_of(names: Any, value: Any) -> bool:
    for name in names if isinstance(names, list) else [names]:
        if name in ("integer", "number"):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and (name == "number" or value == value // 1):
                return True
        elif not isinstance(name, str) or name not in _TYPES or isinstance(value, _TYPES[name]):
            return True
    return False


def _is_large(value: Any) -> bool:
    """Whether there are more than a few dozen values in a value."""
    left = _LARGE
    level = [value]
    while level:
        following: list[Any] = []
        for each in level:
            if isinstance(each, list | dict):
                left -= len(each)
                if left < 0:
                    return True
                following.extend(each.values() if isinstance(each, dict) else each)
        level = following
    return False


def _choices_of(schema: Any) -> list[Any] | None:
    """The few values that a subschema takes, if it says them."""
    if not isinstance(schema, Mapping):
        return None
    if "const" in schema:
        return [schema["const"]]
    choices = schema.get("enum")
    return choices if isinstance(choices, list) else None


def _may_be_object(schema: Any) -> bool:
    return not isinstance(schema, Mapping) or _is_of(schema.get("type", "object"), {})


def _dict(schema: Any, keyword: str) -> dict[str, Any]:
    found = schema.get(keyword) if isinstance(schema, Mapping) else None
    return found if isinstance(found, dict) else {}


def _list(schema: Any, keyword: str) -> list[Any]:
    found = schema.get(keyword) if isinstance(schema, Mapping) else None
    return found if isinstance(found, list) else []
