"""The reasons why a value does not fit a JSON Schema, in words for the program that passed the value.

jsonschema-rs gives the verdict. Once it has said no, this module finds the reasons. It does not read the errors of the
library: the library makes all of them before the first can be read, each with copies of what was expected and seen,
which takes seconds for a hostile schema. Here the work is counted.

The search knows the keywords that schemas of tools use: types, choices, limits, properties, items, references and
alternatives. For every other keyword (`_VERDICT_ONLY`) it asks the library whether the value fits and quotes the
keyword. It also skips large parts that fit with a compiled validator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from codemode_mcp.calls.phrases import (
    LARGE,
    MAX_EXPECTED,
    MAX_OPTIONS,
    Path,
    bare,
    clip,
    either,
    is_large,
    listed_names,
    literal,
    one_line,
    options,
    pattern_text,
    seen,
    shown_name,
)
from codemode_mcp.calls.problems import THERE_ARE, Problem, did_you_mean, distance, lacks, merged, no_such, with_others
from codemode_mcp.did_you_mean import misspells, nearest
from declarations.references import Document
from upstream_clients.schemas import SchemaParts, UnusableSchema, compile_schema, is_legacy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import jsonschema_rs

MAX_STEPS = 1_500
"""Pairs of a subschema and a value that one search visits, and other work of that size: a few milliseconds."""

_STEPS_OF_VERDICT = 20
"""Steps that one verdict of the library on a large value counts for."""

_MAX_DEPTH = 120
_MAX_KEPT = 1_000
_MAX_PROBLEMS = 500
_MAX_BRANCHES = 40
_MAX_REFERENCES = 5

_MAX_COMPARED = 2_000
"""Names, and as many more for each hint, that may be compared for hints."""

_MAX_NOTE = 80
"""Characters of a description in a message."""

_MAX_WORDS_DEPTH = 4
"""Levels of a schema that are put into words."""

_TYPES: dict[str, type | tuple[type, ...]] = {
    "null": type(None),
    "boolean": bool,
    "string": str,
    "array": list,
    "object": dict,
}

_NUMBER_LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
}
_LIMITS: dict[type, dict[str, str]] = {
    int: _NUMBER_LIMITS,
    float: _NUMBER_LIMITS,
    str: {"minLength": "at least {} character", "maxLength": "at most {} character", "pattern": "a match of /{}/"},
    list: {"minItems": "at least {} item", "maxItems": "at most {} item", "uniqueItems": "no two equal items"},
    dict: {"minProperties": "at least {} member", "maxProperties": "at most {} member"},
}
"""Keywords with one argument by the kind of value that they limit, and what they expect of it."""

_VERDICT_ONLY = frozenset(
    (
        *("not", "if", "contains", "propertyNames", "dependentRequired", "dependentSchemas", "dependencies"),
        *("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef"),
    )
)
"""Keywords that are left to the library. Hardly any schema of a tool has one."""

_BESIDE = frozenset({"then", "else", "minContains", "maxContains"})
"""Keywords that are quoted beside those, because they have no meaning alone."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """A subschema, the resource that its references are relative to, and its JSON pointer if known."""

    schema: Any
    base: Mapping[str, Any]
    pointer: str | None


class SchemaErrors:
    """The reasons why values do not fit one schema, which must compile. What it compiles is kept, within a bound."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._document = Document(schema)
        self._root = _Rule(schema, schema, "")
        self._expected: dict[tuple[int, int], str] = {}
        self._single: dict[tuple[str, Any], jsonschema_rs.Validator | None] = {}
        self.parts = SchemaParts(schema)
        self.legacy = is_legacy(schema)

    def problems(self, value: Any, given: Iterable[str] | None = None) -> tuple[list[Problem], bool]:
        """Return what is wrong with a value, in the order of the schema, and whether that is all.

        Args:
            given: the members that the program wrote, where defaults were added. An unknown member may stand for a
                default, but not for another member that was written.
        """
        search = _Search(self, given)
        found = search.visit(self._root, value, (), 0)
        return merged(found), not search.exhausted

    def under(self, rule: _Rule, *keys: str | int) -> _Rule:
        """Return the subschema at these keys, which must exist."""
        schema, base, pointer = rule.schema, rule.base, rule.pointer
        for key in keys:
            schema = schema[key]
            if pointer is not None:
                pointer += "/" + str(key).replace("~", "~0").replace("/", "~1")
        if isinstance(schema, Mapping) and isinstance(schema.get("$id"), str) and not schema["$id"].startswith("#"):
            base, pointer = schema, None
        return _Rule(schema, base, pointer)

    def target(self, rule: _Rule) -> _Rule | None:
        """Return the subschema that a `$ref` points to; None without a `$ref`, or where that cannot be told."""
        reference = rule.schema.get("$ref") if isinstance(rule.schema, Mapping) else None
        if not isinstance(reference, str):
            return None
        place = self._document.resolve(reference, rule.base)
        if place is None:
            return None
        local = reference == "#" or reference.startswith("#/")
        pointer = reference[1:] if local and rule.base is self._root.schema and "%" not in reference else None
        return _Rule(place.schema, place.base, pointer)

    def followed(self, rule: _Rule) -> Iterator[Mapping[str, Any]]:
        """Yield a subschema and the next few that it refers to, while they are objects."""
        following: _Rule | None = rule
        for _ in range(_MAX_REFERENCES):
            if following is None or not isinstance(following.schema, Mapping):
                return
            yield following.schema
            following = self.target(following)

    def described(self, rule: _Rule) -> str:
        """Return the description, or else the title, of a subschema or what it refers to, on one line."""
        texts = (schema.get(key) for schema in self.followed(rule) for key in ("description", "title"))
        return next((one_line(text, _MAX_NOTE) for text in texts if isinstance(text, str) and text.strip()), "")

    def expected(self, rule: _Rule, depth: int = 0) -> str:
        """Return what a subschema takes, in a few words: `string`, `"open" | "closed"`, `array of integer`."""
        key = (id(rule.schema), depth)  # the id stays valid: the subschema lives as long as this object
        if key not in self._expected:
            if len(self._expected) >= _MAX_KEPT:
                self._expected.clear()
            self._expected[key] = self._in_words(rule, depth)
        return self._expected[key]

    def _in_words(self, rule: _Rule, depth: int) -> str:
        schema = rule.schema
        if schema is False:
            return "nothing"
        if not isinstance(schema, Mapping) or depth > _MAX_WORDS_DEPTH:
            return "any value"
        choices = _choices_of(schema)
        if choices is not None:
            return literal(schema["const"]) if "const" in schema else options(choices)
        names = schema.get("type")
        if isinstance(names, str | list):
            listed = names[:7] if isinstance(names, list) else [names]
            return clip(either(self._kind(str(name), rule, depth) for name in listed), MAX_EXPECTED)
        target = self.target(rule)
        if target is not None:
            return self.expected(target, depth + 1)
        for keyword in ("anyOf", "oneOf"):
            branches = _list(schema, keyword)
            if branches:
                shown = [self.expected(self.under(rule, keyword, n), depth + 1) for n in range(len(branches[:8]))]
                more = [f"{len(branches) - 8} more"] if len(branches) > 8 else []
                return clip(either([*shown, *more]), MAX_EXPECTED)
        for n in range(len(_list(schema, "allOf")[:8])):
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

    def obeys(self, keyword: str, argument: str | float, value: Any) -> bool:
        """Return the library's verdict on a keyword with this argument alone."""
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

    def __init__(self, errors: SchemaErrors, given: Iterable[str] | None) -> None:
        self._errors = errors
        self._under = errors.under
        self._given = None if given is None else frozenset(given)
        self._steps = MAX_STEPS
        self._compared = _MAX_COMPARED
        self._visited: dict[tuple[int, Path], list[Problem]] = {}
        self.exhausted = False

    def _spend(self, steps: int = 1) -> bool:
        self._steps -= steps
        if self._steps < 0:
            self.exhausted = True
        return not self.exhausted

    def _may_hint(self, names: int) -> bool:
        """Return whether there is work left for comparing a name with so many others."""
        self._compared -= names + 80
        return self._compared >= 0

    def visit(self, rule: _Rule, value: Any, path: Path, depth: int) -> list[Problem]:
        """Return the problems of a value with a subschema. There are none either where work ran out (`exhausted`)."""
        schema = rule.schema
        if schema is False:
            return [Problem(path, f"not allowed, got {seen(value)}")]
        if not isinstance(schema, Mapping) or not schema:
            return []
        key = (id(schema), path)
        known = self._visited.get(key)
        if known is not None:
            return known
        if depth > _MAX_DEPTH or not self._spend():
            self.exhausted = True
            return []
        self._visited[key] = []  # a reference that leads back to itself adds nothing
        found = self._reasons(rule, value, path, depth + 1)
        if len(found) > _MAX_PROBLEMS:
            self.exhausted = True
        self._visited[key] = found[:_MAX_PROBLEMS]
        return self._visited[key]

    def _visit_part(self, rule: _Rule, value: Any, path: Path, depth: int, *, many: bool = False) -> list[Problem]:
        """Visit a value inside the one visited. A large value, or one of many, is not read if it fits."""
        fits = None
        if rule.pointer is not None and (many or is_large(value)):
            fits = self._errors.parts.is_valid(rule.pointer, value)
            if fits:
                return []
        found = self.visit(rule, value, path, depth)
        return [self._unlike(rule, value, path)] if fits is False and not found else found

    def _unlike(self, rule: _Rule, value: Any, path: Path) -> Problem:
        expected = self._errors.expected(rule)
        return Problem(path, f"does not fit its schema: expected {expected}, got {seen(value)}", "other", expected)

    def _reasons(self, rule: _Rule, value: Any, path: Path, depth: int) -> list[Problem]:
        schema = rule.schema
        found: list[Problem] = []
        target = self._errors.target(rule)
        if target is not None:
            found += self.visit(target, value, path, depth)
            if self._errors.legacy:  # keywords beside a `$ref` have no effect there
                return found
        for choices in ([schema["const"]] if "const" in schema else None, schema.get("enum")):
            if isinstance(choices, list) and not self._is_among(choices, value):
                return [self._not_among(choices, value, path)]
        if "type" in schema and not _is_of(schema["type"], value):
            expected = self._errors.expected(rule)
            return [Problem(path, f"expected {expected}, got {seen(value)}", "kind", expected)]
        found += self._beyond_limits(schema, value, path)
        if isinstance(value, list):
            found += self._items(rule, value, path, depth)
        elif isinstance(value, dict):
            found += self._members(rule, value, path, depth)
        for n in range(len(_list(schema, "allOf"))):
            found += self.visit(self._under(rule, "allOf", n), value, path, depth)
        for keyword in ("anyOf", "oneOf"):
            if _list(schema, keyword):
                found += self._alternatives(rule, keyword, value, path, depth)
        return found or self._by_verdict(rule, value, path)

    def _by_verdict(self, rule: _Rule, value: Any, path: Path) -> list[Problem]:
        """Return the library's verdict where a subschema has keywords that only the library knows."""
        keywords = [each for each in rule.schema if each in _VERDICT_ONLY]
        if "$ref" in rule.schema and self._errors.target(rule) is None:
            keywords.append("$ref")
        if not keywords:
            return []
        self._spend(_STEPS_OF_VERDICT if is_large(value) else 1)
        fits = None if rule.pointer is None else self._errors.parts.is_valid(rule.pointer, value)
        if fits is None:
            self.exhausted = True
        if fits is not False:
            return []
        shown = [each for each in rule.schema if each in keywords or each in _BESIDE]
        clauses = ", ".join(f"{literal(each)}: {literal(rule.schema[each])}" for each in shown)
        return [Problem(path, f"does not fit {clip(clauses, MAX_OPTIONS)}, got {seen(value)}")]

    # the value by itself

    def _is_among(self, choices: list[Any], value: Any) -> bool:
        self._spend(len(choices) // 50)
        return value in choices and any(same(each, value) for each in choices)

    def _not_among(self, choices: Sequence[Any], value: Any, path: Path) -> Problem:
        expected = options(choices)
        text = f"expected {expected}, got {bare(value)}"
        comparable = isinstance(value, str | int | float) and not isinstance(value, bool)
        if comparable and len(choices) > 1 and self._may_hint(len(choices)):
            spelled = {str(each): each for each in choices if isinstance(each, str | int | float)}
            near = [str(value)] if str(value) in spelled else nearest(str(value), spelled, count=1)
            if near:
                text += f"; nearest: {literal(spelled[near[0]])}"
        return Problem(path, text, "choice", expected)

    def _beyond_limits(self, schema: Mapping[str, Any], value: Any, path: Path) -> Iterator[Problem]:
        for keyword in _LIMITS.get(type(value), ()):
            limit = schema.get(keyword)
            if not isinstance(limit, str | int | float) or isinstance(limit, bool) != (keyword == "uniqueItems"):
                continue
            strict = "exclusive" + keyword.capitalize()
            if schema.get(strict) is True:  # draft-04 has `exclusiveMinimum: true` beside `minimum`
                keyword = strict
            if self._errors.obeys(keyword, limit, value):
                continue
            words = _LIMITS[type(value)][keyword]
            expected = words.format(pattern_text(limit) if isinstance(limit, str) else literal(limit))
            expected += "s" if limit != 1 and words.endswith(("character", "item", "member")) else ""
            got = bare(value)
            if isinstance(value, list | dict):
                got = seen(value) if keyword == "uniqueItems" else str(len(value))
            elif isinstance(value, str) and keyword != "pattern":
                got = f"{len(value)}: {got}" if value else "none"
            yield Problem(path, f"expected {expected}, got {got}")

    # items and members

    def _items(self, rule: _Rule, value: list[Any], path: Path, depth: int) -> list[Problem]:
        schema = rule.schema
        found: list[Problem] = []
        tuple_key, rest_key = "prefixItems", "items"
        if self._errors.legacy and isinstance(schema.get("items"), list):
            tuple_key, rest_key = "items", "additionalItems"
        first = [] if self._errors.legacy and tuple_key == "prefixItems" else _list(schema, tuple_key)
        for n, item in enumerate(value[: len(first)]):
            found += self._visit_part(self._under(rule, tuple_key, n), item, (*path, n), depth)
        if rest_key in schema and len(value) > len(first):
            rest = self._under(rule, rest_key)
            many = len(value) > LARGE
            for n, item in enumerate(value[len(first) :], len(first)):
                if self.exhausted or len(found) > _MAX_PROBLEMS:
                    break
                found += self._visit_part(rest, item, (*path, n), depth, many=many)
                self._steps -= many and n % 10 == 0
        return found

    def _members(self, rule: _Rule, value: dict[str, Any], path: Path, depth: int) -> list[Problem]:
        found: list[Problem] = []
        properties, required = _dict(rule.schema, "properties"), _list(rule.schema, "required")
        missing = dict.fromkeys(islice((name for name in required if name not in value), _MAX_PROBLEMS + 1))
        self._spend(len(properties) // 50 + len(required) // 50)
        for name in properties:
            if name in missing:
                found.append(self._missing(rule, name, path))
            elif name in value:
                found += self._visit_part(self._under(rule, "properties", name), value[name], (*path, name), depth)
        found += [self._missing(rule, name, path) for name in missing if name not in properties]
        if missing and "additionalProperties" not in rule.schema:
            found += self._misspelt(list(missing), properties, value, path)
        return found + list(self._other_members(rule, value, path, depth, properties))

    def _misspelt(
        self, missing: list[str], properties: Mapping[str, Any], value: Mapping[str, Any], path: Path
    ) -> Iterator[Problem]:
        """Yield undeclared members of an open object that were probably meant to be missing ones."""
        for name in value:
            if name not in properties and missing and self._compared > 0:
                near = self._near(missing, name, path, value)
                if near is not None:
                    missing.remove(near)
                    yield Problem((*path, name), did_you_mean(path, near), "unknown", near=near)

    def _other_members(
        self, rule: _Rule, value: dict[str, Any], path: Path, depth: int, properties: dict[str, Any]
    ) -> Iterator[Problem]:
        """Yield the problems of members with `patternProperties` and `additionalProperties`."""
        patterns = _dict(rule.schema, "patternProperties")
        rest = self._under(rule, "additionalProperties") if "additionalProperties" in rule.schema else None
        if not patterns and rest is None:
            return
        count = 0
        for name, member in value.items():
            if self.exhausted or count > _MAX_PROBLEMS or not self._spend(len(patterns)):
                return
            matching = [pattern for pattern in patterns if self._errors.obeys("pattern", pattern, name)]
            rules = [self._under(rule, "patternProperties", pattern) for pattern in matching]
            if rest is not None and name not in properties and not matching:
                if rest.schema is False:
                    count += 1
                    yield self._unknown(list(properties), name, path, value)
                    continue
                rules = [rest]
            for each in rules:
                problems = self._visit_part(each, member, (*path, name), depth)
                count += len(problems)
                yield from problems

    def _missing(self, rule: _Rule, name: str, path: Path) -> Problem:
        expected = note = ""
        if name in _dict(rule.schema, "properties"):
            declared = self._under(rule, "properties", name)
            expected, note = self._errors.expected(declared), self._errors.described(declared)
        about = ": ".join(filter(None, (expected, note)))
        return Problem((*path, name), f"missing{f' ({about})' if about else ''}", "missing", expected)

    def _unknown(self, names: Sequence[str], name: str, path: Path, value: Mapping[str, Any]) -> Problem:
        if not names:
            return Problem((*path, name), f"{no_such(path)}; there are none", "unknown")
        near = self._near(names, name, path, value)
        if near is not None and (len(names) == 1 or misspells(name, near)):
            return Problem((*path, name), did_you_mean(path, near), "unknown", near=near)
        text = no_such(path) + (f"; nearest: {shown_name(near)}" if near is not None else "")
        return Problem((*path, name), f"{text}{THERE_ARE}{listed_names(names)}", "unknown", near=near)

    def _near(self, names: Sequence[str], name: str, path: Path, value: Mapping[str, Any]) -> str | None:
        """Return the nearest of the names that are not given, while there is work left for that."""
        if not self._may_hint(len(names)):
            return None
        given = value if path or self._given is None else self._given
        return next(iter(nearest(name, [each for each in names if each not in given], count=1)), None)

    # alternatives

    def _alternatives(self, rule: _Rule, keyword: str, value: Any, path: Path, depth: int) -> list[Problem]:
        branches = [self._under(rule, keyword, n) for n in range(len(rule.schema[keyword]))]
        looked_at = branches[:_MAX_BRANCHES]
        tried = [self.visit(branch, value, path, depth) for branch in looked_at]
        fitting = [n for n, problems in enumerate(tried) if not problems]
        if self.exhausted or (not fitting and len(branches) > len(looked_at)):
            fits = None if rule.pointer is None else self._errors.parts.is_valid(rule.pointer, value)
            return [self._unlike(rule, value, path)] if fits is False else []
        if fitting:
            if keyword == "anyOf" or len(fitting) == 1:
                return []
            fit = " and ".join(f"{self._errors.expected(looked_at[n])} (number {n + 1})" for n in fitting[:3])
            more = f" and {len(fitting) - 3} more" if len(fitting) > 3 else ""
            return [Problem(path, f"fits {fit}{more}, but must fit exactly one of {len(branches)} alternatives")]
        tagged = self._by_tag(looked_at, tried, value, path)
        if tagged is not None:
            return tagged
        if all(p.path == path and p.kind in ("kind", "choice") for problems in tried for p in problems):
            return [self._none_of(looked_at, tried, value, path)]
        if all(p.kind == "missing" and p.path[:-1] == path for problems in tried for p in problems):
            return [lacks([[str(p.path[-1]) for p in problems] for problems in tried], path)]
        best = min(range(len(tried)), key=lambda n: distance(tried[n], path))
        others = [self._errors.expected(branch) for n, branch in enumerate(looked_at) if n != best]
        return with_others(tried[best], others, path)

    def _none_of(self, branches: Sequence[_Rule], tried: Sequence[list[Problem]], value: Any, path: Path) -> Problem:
        """Return the problem of a value whose kind, or which itself, no branch takes."""
        choices: list[Any] = []
        for branch in branches:
            found = next(filter(None, map(_choices_with_null, self._errors.followed(branch))), None)
            if found is None:
                expected = clip(either(p.expected for problems in tried for p in problems), MAX_OPTIONS)
                return Problem(path, f"expected {expected}, got {seen(value)}", "kind", expected)
            choices += found
        return self._not_among(choices, value, path)

    def _by_tag(
        self, branches: Sequence[_Rule], tried: Sequence[list[Problem]], value: Any, path: Path
    ) -> list[Problem] | None:
        """Return the problems by the one property whose constants tell the branches apart; None without one."""
        if not isinstance(value, dict):
            return None
        tags = [self._tags(branch) for branch in branches]
        tagged = [n for n, each in enumerate(tags) if each]
        if len(tagged) < 2:
            return None
        for name in tags[tagged[0]]:
            if not all(name in tags[n] for n in tagged):
                continue
            choices = [choice for n in tagged for choice in tags[n][name]]
            if name not in value:
                if len(tagged) < len(branches):
                    continue
                listed = options(choices)
                return [Problem((*path, name), f"missing ({listed})", "missing", listed)]
            chosen = [n for n in tagged if any(same(choice, value[name]) for choice in tags[n][name])]
            if len(chosen) == 1 or (chosen and len(chosen) < len(tagged)):
                return min((tried[n] for n in chosen), key=lambda problems: distance(problems, path))
            if not chosen and len(tagged) == sum(_may_be_object(branch.schema) for branch in branches):
                return [self._not_among(choices, value[name], (*path, name))]
        return None

    def _tags(self, branch: _Rule) -> dict[str, list[Any]]:
        """Return the properties of a branch that have a few possible values."""
        last: Mapping[str, Any] = {}
        for last in self._errors.followed(branch):  # noqa: B007
            pass
        tags = {name: _choices_of(schema) for name, schema in _dict(last, "properties").items()}
        return {name: choices for name, choices in tags.items() if choices is not None and len(choices) <= 100}


# JSON


def same(a: Any, b: Any) -> bool:
    """Return whether two values are equal in JSON, where 1 equals 1.0 and not true."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


def _is_of(names: Any, value: Any) -> bool:
    """Return whether a value has one of the types named. An unknown name is every type."""
    for name in names if isinstance(names, list) else [names]:
        if name in ("integer", "number"):
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and (name == "number" or value == value // 1):
                return True
        elif not isinstance(name, str) or name not in _TYPES or isinstance(value, _TYPES[name]):
            return True
    return False


def _choices_of(schema: Any) -> list[Any] | None:
    """Return the values that a subschema lists; None where it lists none."""
    if not isinstance(schema, Mapping):
        return None
    if "const" in schema:
        return [schema["const"]]
    choices = schema.get("enum")
    return choices if isinstance(choices, list) else None


def _choices_with_null(schema: Mapping[str, Any]) -> list[Any] | None:
    return [None] if schema.get("type") == "null" else _choices_of(schema)


def _may_be_object(schema: Any) -> bool:
    return not isinstance(schema, Mapping) or _is_of(schema.get("type", "object"), {})


def _dict(schema: Any, keyword: str) -> dict[str, Any]:
    found = schema.get(keyword) if isinstance(schema, Mapping) else None
    return found if isinstance(found, dict) else {}


def _list(schema: Any, keyword: str) -> list[Any]:
    found = schema.get(keyword) if isinstance(schema, Mapping) else None
    return found if isinstance(found, list) else []
