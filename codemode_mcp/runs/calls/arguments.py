"""The arguments of a nested call: their check, those that the configuration sets, and their secrets."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import OrderedDict
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from codemode_mcp.base.did_you_mean import nearest, normalize_name
from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.strict_json import MAX_SAFE_INTEGER, replace_lone_surrogates
from codemode_mcp.catalog.entries import Entry, mcp_id
from codemode_mcp.runs.calls.schema_check import SchemaCheck
from codemode_mcp.runs.calls.schema_phrases import Path, path_text, seen, shown_name
from upstream_clients import redaction
from upstream_clients.json_values import is_deeper, map_json

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from codemode_mcp.base.settings import ToolOverride
    from codemode_mcp.sandbox.messages import ToolCall
    from upstream_clients.tools import AskFn, JsonObject, ProgressFn, Question, ToolOutcome


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
            keeps_numbers: True for arguments that a program gets; see `rounding_problems`.

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
        rounded = has_rounded(call)
        if rounded and not problems:
            problems = rounding_problems(given, check.is_valid)
        if problems or refused:
            raise _refusal(expression, [*refused.values(), *problems], signature())
        if note is not None and (undeclared := check.undeclared(given)):
            note(undeclared)
        if rounded and not keeps_numbers:
            return {name: as_written(value) for name, value in given.items()}
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
    if given is _TOO_DEEP or is_deeper(given, MAX_DEPTH):
        raise _refusal(expression, [f"its input is nested deeper than {MAX_DEPTH} levels"], signature())
    return given


def _finite(text: str) -> float:
    # A program can write a number such as 1e999 with JSON.rawJSON. As infinity, it could not be sent.
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(text)
    return number


_DECODER = json.JSONDecoder(parse_float=_finite)


_TOO_DEEP = object()


_OPTIONS = ("timeoutMs",)


def _options_problem(options: Any) -> str | None:
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


# Numbers beyond 2^53 in arguments: Numbers of the program, whose last digits may be lost.
#
# The guest writes these with an exponent and `E`, and a bigint as its digits (`numberJson` in `prelude/20_values.js`).
# Only the schema of a tool knows where an integer belongs: there, a Number is refused, because it is probably not the
# integer that the program was given. Anywhere else it is sent as JavaScript writes it.


_MARK = re.compile(r"[0-9]E[0-9+]")
"""The exponent of a Number beyond 2^53, as the guest writes it. A string may have it, too."""

_MAX_NAMED = 3
_MAX_TRIED = 50
"""Maximum number of Numbers that are tried one by one, to name those that are refused."""

_EXPONENT_FROM = 1e21
"""The first number that JavaScript writes with an exponent."""


def has_rounded(call: ToolCall) -> bool:
    """Return True if the arguments of a call may have a Number beyond 2^53."""
    request = None if call.through is None else call.through.request
    texts = (call.input, *(() if request is None else request.arguments))
    return any(text is not None and "E" in text and _MARK.search(text) is not None for text in texts)


def rounding_problems(arguments: dict[str, Any], is_valid: Callable[[Any], bool]) -> list[str]:
    """Return a line for Numbers beyond 2^53 in places of integers.

    Args:
        is_valid: returns whether arguments fit the schema. `arguments` fit it.
    """

    # An integer belongs where it fits, and a fraction next to it does not, on either side.
    def fits(chosen: Path | None) -> bool:
        farther, nearer, whole = (_replaced(arguments, chosen, each, ()) for each in (_farther, _nearer, _digits))
        return is_valid(farther) or is_valid(nearer) or not is_valid(whole)

    if fits(None):
        return []
    tried = islice(_rounded(arguments, ()), _MAX_TRIED)
    refused = list(islice(((path, number) for path, number in tried if not fits(path)), _MAX_NAMED))
    lines = [f"{path_text(path)}: {_advice(number)}" for path, number in refused]
    return lines or [f"input: {_advice(next(_rounded(arguments, ()))[1])}"]


def _advice(number: float) -> str:
    return (
        f"expected an integer, got the Number {_as_written(number)}: beyond 2^53, a Number loses its last digits; pass "
        "the bigint that the result gave (unwrap keeps it, JSON.parse rounds it), or write all digits with n at the "
        "end, such as 725653563933458433n"
    )


def as_written(value: Any) -> Any:
    """Return arguments with each Number beyond 2^53 as JavaScript writes it: its digits, up to 1e21."""
    return map_json(value, str, _as_written, keys=False)


def _as_written(number: float) -> int | float:
    return _digits(number) if MAX_SAFE_INTEGER < abs(number) < _EXPONENT_FROM else number


def _digits(number: float) -> int:
    return int(Decimal(repr(number)))


def _rounded(value: Any, path: Path) -> Iterator[tuple[Path, float]]:
    match value:
        case float() if abs(value) > MAX_SAFE_INTEGER:
            yield path, value
        case dict():
            for key, item in value.items():
                yield from _rounded(item, (*path, key))
        case list():
            for number, item in enumerate(value):
                yield from _rounded(item, (*path, number))


def _replaced(value: Any, chosen: Path | None, other: Callable[[float], Any], path: Path) -> Any:
    """Return a copy with the other form of the chosen Number; None chooses all."""
    match value:
        case float() if abs(value) > MAX_SAFE_INTEGER and chosen in (None, path):
            return other(value)
        case dict():
            return {key: _replaced(item, chosen, other, (*path, key)) for key, item in value.items()}
        case list():
            return [_replaced(item, chosen, other, (*path, number)) for number, item in enumerate(value)]
    return value


def _farther(number: float) -> Decimal:
    return Decimal(f"{_digits(number)}.5")  # not by `+`, which rounds


def _nearer(number: float) -> Decimal:
    whole = _digits(number)
    return Decimal(f"{whole - 1 if whole > 0 else whole + 1}.5")


class ConfiguredArguments:
    """The current overrides, applied to the arguments of calls.

    A run may have begun under other overrides, so its catalog decides nothing here.

    Attributes:
        overrides: the overrides by the id of the tool.
    """

    def __init__(self, checker: ArgumentChecker, overrides: Mapping[str, ToolOverride]) -> None:
        self._checker = checker
        self.apply(overrides)

    def apply(self, overrides: Mapping[str, ToolOverride]) -> None:
        """Use these overrides from now on, also for runs that have begun."""
        self.overrides = overrides
        self._secrets: dict[str, RepeatedSecrets | None] = {}

    def secrets(self, entry: Entry) -> RepeatedSecrets | None:
        if not self.overrides or entry.source != "mcp":
            return None
        server = entry.source_name
        if server not in self._secrets:
            self._secrets[server] = secrets_of(server, self.overrides)
        return self._secrets[server]

    def prepare(
        self,
        call: ToolCall,
        entry: Entry,
        override: ToolOverride | None,
        signature: Callable[[], str],
        note: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """Return the input of a program, checked against the schema that it sees; see `ArgumentChecker.prepare`."""
        refuse = None
        if override is not None and override.reserved:
            own = override

            def refuse(given: JsonObject) -> Mapping[str, str]:
                return {name: f"{path_text((name,))}: {_REFUSED}" for name in _reserved(given, own, entry)}

        keeps, schema = entry.source == "program", entry.tool.input_schema
        return self._checker.prepare(call, entry.path, schema, signature, refuse, note, keeps_numbers=keeps)

    def complete(
        self, entry: Entry, override: ToolOverride | None, arguments: dict[str, Any], signature: Callable[[], str]
    ) -> dict[str, Any]:
        """Return the arguments to send: those of the program with those of the configuration.

        They are checked against the tool's own schema, if the program sees another one.

        Raises:
            ProgramError: see `ArgumentChecker.check_complete`.
        """
        if override is None and entry.listed is None:
            return arguments  # as nearly all calls
        is_changed = override is not None and override.changes_arguments
        if not is_changed and entry.original.input_schema is entry.tool.input_schema:
            return arguments
        schema = entry.original.input_schema
        if override is not None:
            arguments = {**_hidden_defaults(schema, override), **override.default, **arguments, **override.fixed}
        reserved = () if override is None else (*override.reserved, *override.secret)
        self._checker.check_complete(arguments, schema, reserved, entry.path, signature)
        return arguments


def _hidden_defaults(schema: JsonObject, override: ToolOverride) -> JsonObject:
    """Return the defaults of hidden arguments that the tool requires, since programs cannot give them."""
    if not override.hidden:
        return {}
    from codemode_mcp.catalog.shown_arguments import required_defaults  # not needed at the start

    return {name: value for name, value in required_defaults(schema).items() if name in override.hidden}


_REFUSED = "only the configuration of codemode-mcp may set this argument; leave it out"


def _reserved(given: JsonObject, override: ToolOverride, entry: Entry) -> list[str]:
    """Return the given arguments that are reserved, or that a server could take for a reserved one.

    Some servers accept `repoName`, `REPO_NAME` and `repo_name` for the same argument. Such a name is refused, unless
    the tool declares it.
    """
    properties = entry.original.input_schema.get("properties")
    declared = properties if isinstance(properties, dict) else {}
    spellings = {spelling for name in override.reserved if (spelling := _spelling(name))}
    return [
        name for name in given if name in override.reserved or (name not in declared and _spelling(name) in spellings)
    ]


def _spelling(name: str) -> str:
    return normalize_name(unicodedata.normalize("NFKC", name).casefold())


class RepeatedSecrets:
    """The secret values that overrides set for any tool of one server.

    The server may remember a value, and repeat it when another one of its tools is called.
    """

    def __init__(self, texts: tuple[str, ...]) -> None:
        self._secrets = redaction.secrets_of(texts)

    def hide(self, value: Any) -> Any:
        """Return JSON data with `***` for each secret value."""
        return self._secrets.hide_in(value)

    def hide_in_outcome(self, outcome: ToolOutcome) -> ToolOutcome:
        result = self._secrets.hide_in(outcome.result, outcome.text)
        text = outcome.text if result is outcome.result else None
        return replace(outcome, result=result, notes=tuple(map(self.hide, outcome.notes)), text=text)

    def hide_in_progress(self, on_progress: ProgressFn) -> ProgressFn:
        async def report(progress: float, total: float | None, message: str | None) -> None:
            await on_progress(progress, total, self.hide(message))

        return report

    def hide_in_questions(self, ask: AskFn) -> AskFn:
        def ask_without(question: Question) -> Any:
            params: JsonObject = self.hide(question.params)
            return ask(replace(question, params=params))

        return ask_without


def secrets_of(server: str, overrides: Mapping[str, ToolOverride]) -> RepeatedSecrets | None:
    """Return the secret values for a server; None if there are none. `overrides`: by the id of the tool."""
    prefix = mcp_id(server, "")
    texts = {text for each, override in overrides.items() if each.startswith(prefix) for text in override.secret_texts}
    return RepeatedSecrets(tuple(sorted(texts, key=len, reverse=True))) if texts else None
