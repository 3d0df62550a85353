"""The check of arguments by one input schema, with one line for each problem."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any

from msgspec.structs import replace

from codemode_mcp.base.did_you_mean import misspells, nearest, normalize_name
from codemode_mcp.base.text import clip
from codemode_mcp.runs.calls.schema_errors import SchemaErrors
from codemode_mcp.runs.calls.schema_phrases import Problem, listed_names, path_text, shown_name
from upstream_clients.json_values import values_in
from upstream_clients.schema_repair import names
from upstream_clients.schemas import usable, with_optional_defaults

_MAX_PROBLEMS = 20
_MAX_LINE = 640
_MAX_BYTES = 3_800
"""Maximum bytes of all lines together. The message is a little longer, because it also has the signature."""

_MAX_IGNORED = 120
"""Maximum characters of the list of undeclared names."""

_MAX_COMPARED = 500
"""Maximum number of pairs of an undeclared and a declared name that are compared to find misspelt names."""

_MAX_HINTS = 3
"""Maximum number of undeclared names for which the nearest declared name is searched."""

_MAX_DECLARED = 2_000
"""Maximum number of declared names with which an undeclared name is compared."""

_CHARACTERS = 1_000

_UNFIT = (
    "input: does not fit the tool together with the arguments that the configuration of codemode-mcp sets; "
    "ask the user to run: codemode-mcp doctor"
)

_OPENING = frozenset({"additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames"})
"""Keywords that determine which undeclared properties a schema accepts."""

_COMBINING = frozenset(
    (
        *("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if"),
        *("dependentRequired", "dependentSchemas", "dependencies"),
    )
)
"""Keywords by which a schema may require or accept a property that it does not declare."""


class SchemaCheck:
    """One schema with its validator.

    A `default` says what the server assumes for an argument that is left out. So arguments with a default may be left
    out, even if the schema requires them.

    Attributes:
        weight: the approximate memory of the compiled schema: 1 for a subschema, and for `_CHARACTERS` of text.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.weight = _weight(schema)
        properties = schema.get("properties")
        self._properties: dict[str, Any] = properties if isinstance(properties, dict) else {}
        self._defaults = {
            name: rule["default"]
            for name, rule in self._properties.items()
            if isinstance(rule, dict) and "default" in rule
        }
        schema, self._validator, _, _ = usable(with_optional_defaults(schema))
        self._required = set(names(schema.get("required"))) if self._validator is not None else set()
        self._errors = SchemaErrors(schema)
        self._is_combined = not _COMBINING.isdisjoint(schema)
        self._is_left_open = not self._is_combined and _OPENING.isdisjoint(schema)
        # Declared names by their spelling. Made for the first undeclared name, and only if the schema accepts others.
        self._declared: dict[str, None] | None = None
        self._by_spelling: dict[str, str] = {}
        self._by_letter: dict[str, list[str]] = {}

    def __call__(self, given: dict[str, Any]) -> list[str]:
        """Return the problems of arguments, each as one line."""
        if self._validator is None:
            return []
        if not self._fits(given):
            return self._lines(given)
        if given.keys() <= self._properties.keys():
            return []
        slips = self._slips(given)
        return _lines([*slips, *self._ignored(given, slips)] if slips else [], complete=True)

    def is_valid(self, arguments: dict[str, Any]) -> bool:
        """Return True if arguments fit the schema, or it cannot be used."""
        return self._validator is None or self._fits(arguments)

    def problems_without(self, given: dict[str, Any], reserved: Collection[str]) -> list[str]:
        if self._validator is None or self._fits(given):
            return []
        problems, complete = self._errors.problems(given)
        # The text of a problem with the whole input may quote it.
        told = [each for each in problems if each.path and each.path[0] not in reserved]
        return _lines(told, complete=complete and len(told) == len(problems)) or [_UNFIT]

    def undeclared(self, given: dict[str, Any]) -> str:
        """Return a phrase about arguments that a schema accepts and does not declare; empty if there are none.

        It is empty too if the schema itself says which other arguments it accepts, or declares none.
        """
        if not self._is_left_open or not self._properties or given.keys() <= self._properties.keys():
            return ""
        names = [name for name in given if name not in self._properties and name not in self._required]
        if not names:
            return ""
        declared = list(islice(self._properties, _MAX_DECLARED))
        free = [name for name in declared if name not in given]
        near = dict.fromkeys(each for name in names[:_MAX_HINTS] for each in nearest(name, free, count=1))
        meant = f"did you mean {listed_names(list(near))}?" if near else f"there are {listed_names(declared)}"
        return f"{listed_names(names, _MAX_IGNORED)}; {meant}"

    def _fits(self, given: dict[str, Any]) -> bool:
        """Return True if the arguments are valid as they are, or with the values that the server assumes."""
        assert self._validator is not None
        if self._validator.is_valid(given):
            return True
        return bool(self._defaults) and self._validator.is_valid({**self._defaults, **given})

    def _lines(self, given: dict[str, Any]) -> list[str]:
        problems, complete = self._errors.problems(given)
        problems = self._advised(problems, given)
        named = {problem.path for problem in problems}
        problems += [slip for slip in self._slips(given) if slip.path not in named]
        problems += self._ignored(given, problems)
        return _lines(problems, complete=complete) or ["input: does not fit the schema"]

    def _advised(self, problems: list[Problem], given: dict[str, Any]) -> list[Problem]:
        """Add the advice to convert a bigint, or to leave out an optional argument for which null was given."""
        problems = [
            replace(problem, text=f"{problem.text}; pass String(n)")
            if problem.kind == "kind" and "string" in problem.expected and ", got bigint " in problem.text
            else problem
            for problem in problems
        ]
        nulls = {(name,) for name, value in given.items() if value is None and name not in self._required}
        if self._is_combined:  # any argument may be needed
            return problems
        return [
            replace(problem, text=f"{problem.text}; leave it out")
            if problem.kind in ("kind", "choice") and problem.path in nulls
            else problem
            for problem in problems
        ]

    def _ignored(self, given: dict[str, Any], problems: list[Problem]) -> list[Problem]:
        """Return one problem for all undeclared arguments of a refused call that no other problem names."""
        named = {problem.path[:1] for problem in problems}
        declared = self._declared or {}
        names = [name for name in given if name not in declared and name not in self._required and (name,) not in named]
        if not declared or not names:
            return []
        there = listed_names(list(declared))
        return [Problem((), f"not declared: {listed_names(names, _MAX_IGNORED)}; there are {there}")]

    def _slips(self, given: dict[str, Any]) -> list[Problem]:
        """Return problems for arguments that look like misspelt names, if the schema accepts undeclared arguments.

        The tool would ignore such an argument without an error, and the intended argument would be missing.
        """
        if self._declared is None:
            names = self._properties if self._is_left_open else ()
            self._declared = dict.fromkeys(islice(names, _MAX_DECLARED))
            for name in self._declared:
                spelling = normalize_name(name)
                self._by_spelling.setdefault(spelling, name)
                self._by_letter.setdefault(spelling[:1], []).append(name)
        slips: list[Problem] = []
        left = _MAX_COMPARED
        for name in given if self._declared else ():
            if name in self._declared or name in self._required:
                continue
            if len(slips) == _MAX_PROBLEMS or left < 0:
                break
            left -= 1
            spelling = normalize_name(name)
            same = self._by_spelling.get(spelling)
            if same is not None and same not in given and misspells(name, same):
                slips.append(
                    Problem((name,), f"no such argument; did you mean {shown_name(same)}?", "unknown", near=same)
                )
                continue
            similar = [
                each
                for each in self._by_letter.get(spelling[:1], [])
                if abs(len(each) - len(name)) <= 3 and each not in given
            ]
            left -= len(similar)
            meant = next((each for each in similar[:_MAX_COMPARED] if misspells(name, each)), None)
            if meant is not None:
                shown = shown_name(meant)
                text = f"no such argument; did you mean {shown}? If not, give {shown} as well"
                slips.append(Problem((name,), text, "unknown", near=meant))
        return slips


def _weight(schema: Mapping[str, Any]) -> int:
    """Return the approximate memory of a compiled schema; see `SchemaCheck`."""
    weight = 1.0
    for here in values_in(schema):
        if isinstance(here, list | dict):
            weight += 1 + len(here) / 4
        elif isinstance(here, str):
            weight += len(here) / _CHARACTERS
    return int(weight)


def _lines(problems: list[Problem], *, complete: bool) -> list[str]:
    lines: list[str] = []
    size = 0
    for problem in problems[:_MAX_PROBLEMS]:
        line = clip(f"{path_text(problem.path)}: {problem.text}", _MAX_LINE)
        size += len(line.encode())
        if size > _MAX_BYTES and lines:
            break
        lines.append(line)
    left = len(problems) - len(lines)
    if left or (lines and not complete):
        lines.append(f"… and {left} more" if left and complete else "… and more")
    return lines
