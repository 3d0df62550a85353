"""Arguments of a nested call, checked against the tool's input schema before anything is sent (SPEC 5)."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from codemode_mcp.calls.schema_errors import Mismatch, Problem, clip, listed_names, path_text, seen, shown_name
from codemode_mcp.did_you_mean import misspells, nearest, plain
from codemode_mcp.errors import ProgramError
from codemode_mcp.json_text import whole_characters
from codemode_mcp.sandbox.messages import Absent
from upstream_clients.schemas import UnusableSchema, compile_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import jsonschema_rs

    from codemode_mcp.sandbox.messages import ToolCall

MAX_DEPTH = 100
"""Levels of nesting that every MCP implementation on the way can be relied on to take."""

MAX_TIMEOUT_MS = 600_000
"""The longest that a program may let one call take."""

_MAX_PROBLEMS = 20
_MAX_LINE = 640
_MAX_BYTES = 3_800
"""Of all lines together; a message is a little longer, and has the signature."""

_MAX_IGNORED = 120
"""Characters of the names that are not declared."""

_MAX_COMPARED = 500
"""Pairs of an undeclared and a declared name that are compared for slips."""

_MAX_TRIED = 32
"""Defaults that are tried one by one where they do not go together."""

_MAX_KEPT = 100_000
"""Of compiled schemas: their subschemas and, as one each, so many characters. Some 1 kB each."""
_CHARACTERS = 1_000


class ArgumentChecker:
    """Compiles each schema once and checks arguments with it.

    A schema that does not compile, that refers to something outside itself, or whose patterns cannot be matched in
    linear time is not used: its tool checks its own arguments.
    """

    def __init__(self) -> None:
        # By identity of the schema, which is kept with its check so that the identity stays its own. Tools come and go:
        # what was not used for longest goes first.
        self._checks: OrderedDict[int, tuple[Mapping[str, Any], _Check]] = OrderedDict()
        self._kept = 0

    def prepare(
        self, call: ToolCall, expression: str, schema: Mapping[str, Any], signature: Callable[[], str]
    ) -> dict[str, Any]:
        """The object to send for a call, top-level defaults filled in.

        Args:
            expression: what the program wrote, for messages.
            signature: asked for when something is wrong.

        Raises:
            ProgramError: `nested_tool_failed` with every problem by its path, and the signature.
        """
        if call.count > 2:
            raise _refusal(expression, [f"takes one object and options, got {call.count} arguments"], signature())
        given = _read(call, expression, signature)
        if not isinstance(given, dict):
            raise _refusal(expression, [f"takes one plain object, got {seen(given)}"], signature())
        check = self._check(schema)
        arguments, problems = check(given)
        if problems:
            raise _refusal(expression, problems, signature())
        return arguments

    @staticmethod
    def timeout(call: ToolCall, expression: str, signature: Callable[[], str]) -> float | None:
        """Seconds that a call may take by its own options; None where they say nothing.

        Raises:
            ProgramError: `nested_tool_failed`, where they are no options.
        """
        if isinstance(call.options, Absent):
            return None
        try:
            options = _DECODER.decode(whole_characters(call.options))
        except (ValueError, RecursionError):
            options = call.options
        if options is None:
            return None
        problem = _options_problem(options)
        if problem is not None:
            raise _refusal(expression, [problem], signature())
        timeout = options.get("timeoutMs")
        return None if timeout is None else timeout / 1000

    def _check(self, schema: Mapping[str, Any]) -> _Check:
        found = self._checks.get(id(schema))
        if found is None:
            found = self._checks[id(schema)] = (schema, _Check(schema))
            self._kept += found[1].weight
            while self._kept > _MAX_KEPT and len(self._checks) > 1:
                _, (_, oldest) = self._checks.popitem(last=False)
                self._kept -= oldest.weight
        else:
            self._checks.move_to_end(id(schema))
        return found[1]


class _Check:
    """One schema, ready to check with."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._validator: jsonschema_rs.Validator | None
        try:
            self._validator = compile_schema(schema)
        except UnusableSchema:
            self._validator = None
        self.weight = _weight(schema)
        self._mismatch = Mismatch(schema)
        properties = schema.get("properties")
        self._properties: dict[str, Any] = properties if isinstance(properties, dict) else {}
        required = schema.get("required")
        self._required = set(required) if isinstance(required, list) and self._validator is not None else set()
        self._defaults = {
            name: rule["default"]
            for name, rule in self._properties.items()
            if isinstance(rule, dict) and "default" in rule
        }
        if self._validator is not None:
            self._defaults = self._mismatch.fitting(self._defaults)
        # For what is left open, made at the first undeclared argument: the names, and the names by how they are spelt.
        self._declared: dict[str, None] | None = None
        self._others: frozenset[str] = frozenset()
        self._by_spelling: dict[str, str] = {}
        self._by_letter: dict[str, list[str]] = {}

    def __call__(self, given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """What to send, and what is wrong with it, as lines."""
        filled = {name: value for name, value in self._defaults.items() if name not in given}
        arguments = {**given, **filled} if filled else given
        if self._validator is None:
            return arguments, []
        if not self._validator.is_valid(arguments):
            # What is sent without being asked for is no reason, and no name that the program has given.
            least = given | {name: value for name, value in filled.items() if name in self._required}
            if not filled or not self._validator.is_valid(least):
                return arguments, self._lines(least, given)
            arguments = self._with_defaults(least, filled)
        if given.keys() <= self._properties.keys():
            return arguments, []
        slips = self._slips(given)
        return arguments, _lines([*slips, *self._ignored(given, slips)] if slips else [], complete=True)

    def _with_defaults(self, arguments: dict[str, Any], filled: dict[str, Any]) -> dict[str, Any]:
        """Valid arguments with those defaults that go with them, one by one."""
        assert self._validator is not None
        for name, value in list(filled.items())[:_MAX_TRIED]:
            more = {**arguments, name: value}
            if self._validator.is_valid(more):
                arguments = more
        return arguments

    def _lines(self, arguments: dict[str, Any], given: dict[str, Any]) -> list[str]:
        problems, complete = self._mismatch.problems(arguments, given)
        problems = self._advised(problems, given)
        told = {problem.path for problem in problems}
        problems += [slip for slip in self._slips(given) if slip.path not in told]
        problems += self._ignored(given, problems)
        return _lines(problems, complete=complete) or ["input: does not fit the schema"]

    def _advised(self, problems: list[Problem], given: dict[str, Any]) -> list[Problem]:
        """The problems, where a null that is none of the values of an optional argument is to be left out."""
        nulls = {(name,) for name, value in given.items() if value is None and name not in self._required}
        wrong = {problem.path for problem in problems if problem.kind in ("kind", "choice")} & nulls
        if not wrong:
            return problems
        needed = self._mismatch.mentioned()  # or perhaps needed
        return [
            replace(problem, text=f"{problem.text}; leave it out")
            if problem.path in wrong and problem.path[0] not in needed
            else problem
            for problem in problems
        ]

    def _ignored(self, given: dict[str, Any], problems: list[Problem]) -> list[Problem]:
        """Of a call that is refused: the other undeclared arguments, which the schema leaves open, in one line."""
        told = {problem.path[:1] for problem in problems}
        declared = self._declared or {}
        names = [name for name in given if name not in declared and name not in self._others and (name,) not in told]
        if not declared or not names:
            return []
        there = listed_names(list(declared))
        return [Problem((), f"not declared: {listed_names(names, _MAX_IGNORED)}; there are {there}")]

    def _slips(self, given: dict[str, Any]) -> list[Problem]:
        """Undeclared arguments of a schema that leaves open whether there are any, where they are slips in writing.

        Sent, such an argument would be ignored without a word, and the one that was meant would be missing.
        """
        if self._declared is None:
            names = [] if self._mismatch.is_closed or self._mismatch.admits_others() else self._mismatch.declared()
            self._declared = dict.fromkeys(names)
            self._others = frozenset(self._mismatch.mentioned().difference(names)) if names else frozenset()
            for name in names:
                spelling = plain(name)
                self._by_spelling.setdefault(spelling, name)
                self._by_letter.setdefault(spelling[:1], []).append(name)
        slips: list[Problem] = []
        left = _MAX_COMPARED
        for name in given if self._declared else ():
            if name in self._declared or name in self._others:
                continue
            if len(slips) == _MAX_PROBLEMS or left < 0:
                break
            left -= 1
            spelling = plain(name)
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
    """Roughly how much a compiled schema keeps in memory, in units of a subschema."""
    weight, stack = 1.0, [schema]
    while stack:
        here: Any = stack.pop()
        if isinstance(here, list | dict):
            weight += 1 + len(here) / 4
            stack.extend(here if isinstance(here, list) else here.values())
        elif isinstance(here, str):
            weight += len(here) / _CHARACTERS
    return int(weight)


def _read(call: ToolCall, expression: str, signature: Callable[[], str]) -> Any:
    if isinstance(call.input, Absent):
        return {}
    try:
        given = _DECODER.decode(whole_characters(call.input))
    except ValueError:
        problem = "its input has a number that is too large"
        raise _refusal(expression, [problem], signature()) from None
    except RecursionError:
        given = _TOO_DEEP
    if given is _TOO_DEEP or _deeper_than(given, MAX_DEPTH):
        raise _refusal(expression, [f"its input is nested deeper than {MAX_DEPTH} levels"], signature())
    return given


def _finite(text: str) -> float:
    # A program can write any number with JSON.rawJSON.
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(text)
    return number


_DECODER = json.JSONDecoder(parse_float=_finite)


def _deeper_than(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


_TOO_DEEP = object()


def _lines(problems: list[Problem], *, complete: bool) -> list[str]:
    """One line for each problem, as many as there is room for."""
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


_OPTIONS = ("timeoutMs",)


def _options_problem(options: Any) -> str | None:
    """What is wrong with the second argument of a call."""
    if not isinstance(options, dict):
        return f"takes one object, and options such as {{ timeoutMs: 5000 }} after it, not {seen(options)}"
    for name in options:
        if name not in _OPTIONS:
            near = nearest(name, _OPTIONS, count=1)
            hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(_OPTIONS)}."
            return (
                f"the second argument has options of the call: there is no option {shown_name(name)}; {hint} "
                "What is meant for the tool goes into the first argument"
            )
    timeout = options.get("timeoutMs")
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 1 <= timeout <= MAX_TIMEOUT_MS:
        return f"timeoutMs is a number of milliseconds from 1 to {MAX_TIMEOUT_MS}, not {seen(timeout)}"
    return None


def _refusal(expression: str, problems: list[str], signature: str) -> ProgramError:
    listed = "\n".join(f"- {problem}" for problem in problems)
    last = f"\nSignature: {signature}" if signature else ""
    return ProgramError("nested_tool_failed", f"{expression}: invalid arguments, nothing was sent.\n{listed}{last}")
