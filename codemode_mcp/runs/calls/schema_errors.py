"""The reasons why a value does not fit a JSON Schema, in words for the program that passed the value.

jsonschema-rs gives the verdict. If the value does not fit, this module finds the reasons. It does not use the errors of
the library, because the library makes all of them before the first can be read, each with copies of the expected and
the seen value. For a hostile schema that takes seconds. The work of the search is limited (`MAX_STEPS`).

The search understands the keywords that schemas of tools use: types, choices, limits, properties, items, references and
alternatives. For every other keyword (`_VERDICT_ONLY`), it asks the library for the verdict and quotes the keyword.
Before it searches a large part of a value, it asks the library if that part fits.

The module is long because one search, with one limit of steps, covers all of these keywords.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from codemode_mcp.base.did_you_mean import misspells, nearest
from codemode_mcp.base.text import clip
from codemode_mcp.runs.calls.schema_phrases import (
    LARGE,
    LIMITS,
    MAX_OPTIONS,
    THERE_ARE,
    Path,
    Problem,
    Subschema,
    Subschemas,
    bare,
    choices_of,
    choices_with_null,
    dict_in,
    did_you_mean,
    distance,
    either,
    is_large,
    lacks,
    limit_words,
    list_in,
    listed_names,
    literal,
    merged,
    no_such,
    options,
    same,
    seen,
    shown_name,
    with_others,
)

MAX_STEPS = 1_500
"""Steps of one search: visits of a subschema with a value, and other work of that size. They take milliseconds."""

_VERDICT_STEPS = 20
"""Steps for one verdict of the library on a large value."""

_MAX_DEPTH = 120
_MAX_PROBLEMS = 500
_MAX_BRANCHES = 40

_MAX_COMPARED = 2_000
"""Maximum number of names that one search compares to find the nearest ones."""

_VERDICT_ONLY = frozenset(
    (
        *("not", "if", "contains", "propertyNames", "dependentRequired", "dependentSchemas", "dependencies"),
        *("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef"),
    )
)
"""Keywords that only the library checks. Hardly any schema of a tool has one."""

_BESIDE = frozenset({"then", "else", "minContains", "maxContains"})
"""Keywords that are quoted together with keywords of `_VERDICT_ONLY`, because they mean nothing without these."""


class SchemaErrors:
    """The reasons why values do not fit one schema, which must compile."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._subschemas = Subschemas(schema)

    def problems(self, value: Any) -> tuple[list[Problem], bool]:
        """Return the problems of a value in the order of the schema, and True if the list is complete."""
        search = _Search(self._subschemas)
        found = search.visit(self._subschemas.root, value, (), 0)
        return merged(found), not search.exhausted


class _Search:
    """One search for reasons, with limited work."""

    def __init__(self, subschemas: Subschemas) -> None:
        self._subschemas = subschemas
        self._under = subschemas.under
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
        """Return True if the limit allows to compare a name with so many others, and count that work."""
        self._compared -= names + 80
        return self._compared >= 0

    def visit(self, sub: Subschema, value: Any, path: Path, depth: int) -> list[Problem]:
        """Return the problems of a value with a subschema. Some are missing if the search is `exhausted`."""
        schema = sub.schema
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
        self._visited[key] = []  # a reference to itself adds no problems
        found = self._reasons(sub, value, path, depth + 1)
        if len(found) > _MAX_PROBLEMS:
            self.exhausted = True
        self._visited[key] = found[:_MAX_PROBLEMS]
        return self._visited[key]

    def _visit_part(self, sub: Subschema, value: Any, path: Path, depth: int, *, many: bool = False) -> list[Problem]:
        """Visit a part of a value. A large part, or one of many, is skipped if it fits."""
        fits = self._subschemas.verdict(sub, value) if many or is_large(value) else None
        if fits:
            return []
        found = self.visit(sub, value, path, depth)
        return [self._unlike(sub, value, path)] if fits is False and not found else found

    def _unlike(self, sub: Subschema, value: Any, path: Path) -> Problem:
        expected = self._subschemas.expected(sub)
        return Problem(path, f"does not fit its schema: expected {expected}, got {seen(value)}", "other", expected)

    def _reasons(self, sub: Subschema, value: Any, path: Path, depth: int) -> list[Problem]:
        schema = sub.schema
        found: list[Problem] = []
        target = self._subschemas.target(sub)
        if target is not None:
            found += self.visit(target, value, path, depth)
            if self._subschemas.legacy:  # keywords beside a `$ref` have no effect there
                return found
        fits_type = "type" not in schema or self._subschemas.is_of(schema["type"], value)
        for choices in ([schema["const"]] if "const" in schema else None, schema.get("enum")):
            if isinstance(choices, list) and not (fits_type and self._is_among(choices, value)):
                return [self._not_among(self._subschemas.typed(schema, choices), value, path)]
        if not fits_type:
            expected = self._subschemas.expected(sub)
            return [Problem(path, f"expected {expected}, got {seen(value)}", "kind", expected)]
        found += self._beyond_limits(schema, value, path)
        if isinstance(value, list):
            found += self._items(sub, value, path, depth)
        elif isinstance(value, dict):
            found += self._members(sub, value, path, depth)
        for n in range(len(list_in(schema, "allOf"))):
            found += self.visit(self._under(sub, "allOf", n), value, path, depth)
        for keyword in ("anyOf", "oneOf"):
            if list_in(schema, keyword):
                found += self._alternatives(sub, keyword, value, path, depth)
        return found or self._by_verdict(sub, value, path)

    def _by_verdict(self, sub: Subschema, value: Any, path: Path) -> list[Problem]:
        """Return the library's verdict where a subschema has keywords that only the library knows."""
        keywords = [each for each in sub.schema if each in _VERDICT_ONLY]
        if "$ref" in sub.schema and self._subschemas.target(sub) is None:
            keywords.append("$ref")
        if not keywords:
            return []
        self._spend(_VERDICT_STEPS if is_large(value) else 1)
        fits = self._subschemas.verdict(sub, value)
        if fits is None:
            self.exhausted = True
        if fits is not False:
            return []
        shown = [each for each in sub.schema if each in keywords or each in _BESIDE]
        clauses = ", ".join(f"{literal(each)}: {literal(sub.schema[each])}" for each in shown)
        return [Problem(path, f"does not fit {clip(clauses, MAX_OPTIONS)}, got {seen(value)}")]

    # the value itself

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
        for keyword in LIMITS.get(type(value), ()):
            limit = schema.get(keyword)
            if not isinstance(limit, str | int | float) or isinstance(limit, bool) != (keyword == "uniqueItems"):
                continue
            strict = "exclusive" + keyword.capitalize()
            if schema.get(strict) is True:  # draft-04 has `exclusiveMinimum: true` beside `minimum`
                keyword = strict
            if self._subschemas.obeys(keyword, limit, value):
                continue
            expected = limit_words(type(value), keyword, limit)
            got = bare(value)
            if isinstance(value, list | dict):
                got = seen(value) if keyword == "uniqueItems" else str(len(value))
            elif isinstance(value, str) and keyword != "pattern":
                got = f"{len(value)}: {got}" if value else "none"
            yield Problem(path, f"expected {expected}, got {got}")

    # items and members

    def _items(self, sub: Subschema, value: list[Any], path: Path, depth: int) -> list[Problem]:
        schema = sub.schema
        found: list[Problem] = []
        tuple_key, rest_key = "prefixItems", "items"
        if self._subschemas.legacy and isinstance(schema.get("items"), list):
            tuple_key, rest_key = "items", "additionalItems"
        first = [] if self._subschemas.legacy and tuple_key == "prefixItems" else list_in(schema, tuple_key)
        for n, item in enumerate(value[: len(first)]):
            found += self._visit_part(self._under(sub, tuple_key, n), item, (*path, n), depth)
        if rest_key in schema and len(value) > len(first):
            rest = self._under(sub, rest_key)
            many = len(value) > LARGE
            for n, item in enumerate(value[len(first) :], len(first)):
                if self.exhausted or len(found) > _MAX_PROBLEMS:
                    break
                found += self._visit_part(rest, item, (*path, n), depth, many=many)
                self._steps -= many and n % 10 == 0  # an item that is skipped costs a tenth of a step
        return found

    def _members(self, sub: Subschema, value: dict[str, Any], path: Path, depth: int) -> list[Problem]:
        found: list[Problem] = []
        properties, required = dict_in(sub.schema, "properties"), list_in(sub.schema, "required")
        missing = dict.fromkeys(islice((name for name in required if name not in value), _MAX_PROBLEMS + 1))
        self._spend(len(properties) // 50 + len(required) // 50)
        for name in properties:
            if name in missing:
                found.append(self._missing(sub, name, path))
            elif name in value:
                found += self._visit_part(self._under(sub, "properties", name), value[name], (*path, name), depth)
        found += [self._missing(sub, name, path) for name in missing if name not in properties]
        if missing and "additionalProperties" not in sub.schema:
            found += self._misspelt(list(missing), properties, value, path)
        return found + list(self._other_members(sub, value, path, depth, properties))

    def _misspelt(
        self, missing: list[str], properties: Mapping[str, Any], value: Mapping[str, Any], path: Path
    ) -> Iterator[Problem]:
        for name in value:
            if name not in properties and missing and self._compared > 0:
                near = self._near(missing, name, value)
                if near is not None:
                    missing.remove(near)
                    yield Problem((*path, name), did_you_mean(path, near), "unknown", near=near)

    def _other_members(
        self, sub: Subschema, value: dict[str, Any], path: Path, depth: int, properties: dict[str, Any]
    ) -> Iterator[Problem]:
        patterns = dict_in(sub.schema, "patternProperties")
        rest = self._under(sub, "additionalProperties") if "additionalProperties" in sub.schema else None
        if not patterns and rest is None:
            return
        count = 0
        for name, member in value.items():
            if self.exhausted or count > _MAX_PROBLEMS or not self._spend(len(patterns)):
                return
            matching = [pattern for pattern in patterns if self._subschemas.obeys("pattern", pattern, name)]
            rules = [self._under(sub, "patternProperties", pattern) for pattern in matching]
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

    def _missing(self, sub: Subschema, name: str, path: Path) -> Problem:
        expected = note = ""
        if name in dict_in(sub.schema, "properties"):
            declared = self._under(sub, "properties", name)
            expected, note = self._subschemas.expected(declared), self._subschemas.described(declared)
        about = ": ".join(filter(None, (expected, note)))
        return Problem((*path, name), f"missing{f' ({about})' if about else ''}", "missing", expected)

    def _unknown(self, names: Sequence[str], name: str, path: Path, value: Mapping[str, Any]) -> Problem:
        if not names:
            return Problem((*path, name), f"{no_such(path)}; there are none", "unknown")
        near = self._near(names, name, value)
        if near is not None and (len(names) == 1 or misspells(name, near)):
            return Problem((*path, name), did_you_mean(path, near), "unknown", near=near)
        text = no_such(path) + (f"; nearest: {shown_name(near)}" if near is not None else "")
        return Problem((*path, name), f"{text}{THERE_ARE}{listed_names(names)}", "unknown", near=near)

    def _near(self, names: Sequence[str], name: str, value: Mapping[str, Any]) -> str | None:
        if not self._may_hint(len(names)):
            return None
        return next(iter(nearest(name, [each for each in names if each not in value], count=1)), None)

    # alternatives

    def _alternatives(self, sub: Subschema, keyword: str, value: Any, path: Path, depth: int) -> list[Problem]:
        branches = [self._under(sub, keyword, n) for n in range(len(sub.schema[keyword]))]
        searched = branches[:_MAX_BRANCHES]
        tried = [self.visit(branch, value, path, depth) for branch in searched]
        fitting = [n for n, problems in enumerate(tried) if not problems]
        if self.exhausted or (not fitting and len(branches) > len(searched)):
            fits = self._subschemas.verdict(sub, value)
            return [self._unlike(sub, value, path)] if fits is False else []
        if fitting:
            if keyword == "anyOf" or len(fitting) == 1:
                return []
            fit = " and ".join(f"{self._subschemas.expected(searched[n])} (number {n + 1})" for n in fitting[:3])
            more = f" and {len(fitting) - 3} more" if len(fitting) > 3 else ""
            return [Problem(path, f"fits {fit}{more}, but must fit exactly one of {len(branches)} alternatives")]
        tagged = self._by_tag(searched, tried, value, path)
        if tagged is not None:
            return tagged
        if all(p.path == path and p.kind in ("kind", "choice") for problems in tried for p in problems):
            return [self._none_of(searched, tried, value, path)]
        if all(p.kind == "missing" and p.path[:-1] == path for problems in tried for p in problems):
            return [lacks([[str(p.path[-1]) for p in problems] for problems in tried], path)]
        best = min(range(len(tried)), key=lambda n: distance(tried[n], path))
        others = [self._subschemas.expected(branch) for n, branch in enumerate(searched) if n != best]
        return with_others(tried[best], others, path)

    def _none_of(
        self, branches: Sequence[Subschema], tried: Sequence[list[Problem]], value: Any, path: Path
    ) -> Problem:
        choices: list[Any] = []
        for branch in branches:
            found = next(filter(None, map(choices_with_null, self._subschemas.followed(branch))), None)
            if found is None:
                expected = clip(either(p.expected for problems in tried for p in problems), MAX_OPTIONS)
                return Problem(path, f"expected {expected}, got {seen(value)}", "kind", expected)
            choices += found
        return self._not_among(choices, value, path)

    def _by_tag(
        self, branches: Sequence[Subschema], tried: Sequence[list[Problem]], value: Any, path: Path
    ) -> list[Problem] | None:
        """Return the problems of the branch that the tag of a value selects; None if the branches have no common tag.

        A tag is a property whose possible values differ between branches, such as `type`.
        """
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
            if not chosen and len(tagged) == sum(map(self._may_be_object, branches)):
                return [self._not_among(choices, value[name], (*path, name))]
        return None

    def _may_be_object(self, branch: Subschema) -> bool:
        schema = branch.schema
        return not isinstance(schema, Mapping) or self._subschemas.is_of(schema.get("type", "object"), {})

    def _tags(self, branch: Subschema) -> dict[str, list[Any]]:
        """Return the properties of a branch that have a few possible values."""
        last: Mapping[str, Any] = {}
        for last in self._subschemas.followed(branch):  # noqa: B007
            pass
        tags = {name: choices_of(schema) for name, schema in dict_in(last, "properties").items()}
        return {name: choices for name, choices in tags.items() if choices is not None and len(choices) <= 100}
