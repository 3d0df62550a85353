"""The arguments of a nested call, checked against the tool's input schema before the call is sent."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from codemode_mcp.calls import rounded_numbers
from codemode_mcp.calls.phrases import seen, shown_name
from codemode_mcp.calls.schema_check import SchemaCheck
from codemode_mcp.did_you_mean import nearest
from codemode_mcp.errors import ProgramError
from codemode_mcp.json_text import replace_lone_surrogates

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from codemode_mcp.sandbox.messages import ToolCall
    from upstream_clients.tools import JsonObject

MAX_DEPTH = 100
"""Maximum levels of nesting. Every MCP implementation between the program and the tool accepts so many."""

MAX_TIMEOUT_MS = 600_000
"""Longest timeout that a program may set for one call."""

_MAX_WEIGHT = 100_000
"""Maximum weight of all compiled schemas in memory. See `SchemaCheck.weight`."""


class ArgumentChecker:
    """A checker of arguments that compiles each schema once.

    A schema is not used if it does not compile, refers to another document, or has a pattern that cannot be matched in
    linear time. The tool then checks the arguments itself.
    """

    def __init__(self) -> None:
        # Checks by the `id()` of the schema. The schema is kept with its check, so that no other object gets the id.
        # Tools come and go, so the least recently used check is dropped first.
        self._checks: OrderedDict[int, tuple[Mapping[str, Any], SchemaCheck]] = OrderedDict()
        self._weight_of_all = 0

    def prepare(
        self,
        call: ToolCall,
        expression: str,
        schema: Mapping[str, Any],
        signature: Callable[[], str],
        refuse: Callable[[JsonObject], Mapping[str, str]] | None = None,
        note: Callable[[str], None] | None = None,
        *,
        keeps_numbers: bool = False,
    ) -> dict[str, Any]:
        """Return the object to send for a call: exactly the input of the program.

        Args:
            expression: the name of the tool as the program wrote it, for messages.
            signature: called for the tool's signature if something is wrong.
            refuse: returns the problem of each argument that programs may not give, whatever the schema says.
            note: takes a phrase about arguments that are sent although the schema does not declare them.
            keeps_numbers: True for arguments that a program gets; see `rounded_numbers`.

        Raises:
            ProgramError: `nested_tool_failed`, with every problem by its path, and the signature.
        """
        if call.count > 2:
            raise _refusal(expression, [f"takes one object and options, got {call.count} arguments"], signature())
        given = _read(call, expression, signature)
        if not isinstance(given, dict):
            raise _refusal(expression, [f"takes one plain object, got {seen(given)}"], signature())
        refused = {} if refuse is None else refuse(given)
        if refused:
            given = {name: value for name, value in given.items() if name not in refused}
        check = self._check(schema)
        problems = check(given)
        rounded = rounded_numbers.has_rounded(call)
        if rounded and not problems:
            problems = rounded_numbers.problems(given, check.is_valid)
        if problems or refused:
            raise _refusal(expression, [*refused.values(), *problems], signature())
        if note is not None and (undeclared := check.undeclared(given)):
            note(undeclared)
        if rounded and not keeps_numbers:
            return {name: rounded_numbers.as_written(value) for name, value in given.items()}
        return given

    def check_complete(
        self,
        arguments: dict[str, Any],
        schema: Mapping[str, Any],
        reserved: Collection[str],
        expression: str,
        signature: Callable[[], str],
    ) -> None:
        """Check arguments again, after the configuration has added some.

        Args:
            schema: the tool's own schema.
            reserved: the arguments that the program may not see. No message has a value of them.

        Raises:
            ProgramError: `nested_tool_failed`, as `prepare`.
        """
        problems = self._check(schema).problems_without(arguments, reserved)
        if problems:
            raise _refusal(expression, problems, signature())

    @staticmethod
    def timeout(call: ToolCall, expression: str, signature: Callable[[], str]) -> float | None:
        """Return the timeout in the options of a call, in seconds; None if there is none.

        Raises:
            ProgramError: `nested_tool_failed`, for invalid options.
        """
        if call.options is None:
            return None
        try:
            options = _DECODER.decode(replace_lone_surrogates(call.options))
        except (ValueError, RecursionError):
            options = call.options
        if options is None:
            return None
        problem = _options_problem(options)
        if problem is not None:
            raise _refusal(expression, [problem], signature())
        timeout = options.get("timeoutMs")
        return None if timeout is None else timeout / 1000

    def _check(self, schema: Mapping[str, Any]) -> SchemaCheck:
        found = self._checks.get(id(schema))
        if found is None:
            found = self._checks[id(schema)] = (schema, SchemaCheck(schema))
            self._weight_of_all += found[1].weight
            while self._weight_of_all > _MAX_WEIGHT and len(self._checks) > 1:
                _, (_, oldest) = self._checks.popitem(last=False)
                self._weight_of_all -= oldest.weight
        else:
            self._checks.move_to_end(id(schema))
        return found[1]


def _read(call: ToolCall, expression: str, signature: Callable[[], str]) -> Any:
    """Return the first argument of a call. Raise `ProgramError` if it is too large or nested too deep."""
    if call.input is None:
        return {}
    try:
        given = _DECODER.decode(replace_lone_surrogates(call.input))
    except ValueError:
        problem = "its input has a number that is too large"
        raise _refusal(expression, [problem], signature()) from None
    except RecursionError:
        given = _TOO_DEEP
    if given is _TOO_DEEP or _deeper_than(given, MAX_DEPTH):
        raise _refusal(expression, [f"its input is nested deeper than {MAX_DEPTH} levels"], signature())
    return given


def _finite(text: str) -> float:
    # A program can write a number such as 1e999 with JSON.rawJSON. As infinity, it could not be sent.
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


_OPTIONS = ("timeoutMs",)


def _options_problem(options: Any) -> str | None:
    """Return the problem with the second argument of a call; None if it is valid."""
    if not isinstance(options, dict):
        return f"takes one object, and options such as {{ timeoutMs: 5000 }} after it, got {seen(options)}"
    for name in options:
        if name not in _OPTIONS:
            near = nearest(name, _OPTIONS, count=1)
            hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(_OPTIONS)}."
            return (
                f"the second argument has options of the call: there is no option {shown_name(name)}; {hint} "
                "Arguments of the tool go into the first argument"
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
