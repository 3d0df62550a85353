"""The script of a replay, the identity of requests, and the first point of difference. Pure."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from codemode_mcp.audit.recordings.format import Clock, Completed, Recording, Requests, Suspended, Turn
from codemode_mcp.base.strict_json import json_text, parse_json
from codemode_mcp.sandbox import messages
from codemode_mcp.sandbox.clock import Readings
from codemode_mcp.sandbox.messages import Completion, GuestError, Request, message_of, request_of
from declarations.untrusted_text import escape_line

# The identity of requests: two requests are equal if they ask the same of the same tool.


class Identity(Struct, frozen=True):
    """The identity of a request.

    Attributes:
        name: the tool, or the function of the program that made the request, such as `setTimeout`.
        given: the arguments as JSON text with sorted keys.
    """

    name: str
    given: str


def identity(request: Request) -> Identity:
    """Return the identity of a request. It does not depend on the number of the request."""
    match request:
        case messages.ToolCall():
            given = _canonical(request.input)
            return Identity(request.target, given if request.options is None else f"{given} {request.options}")
        case messages.NamespaceCall():
            arguments = ",".join(map(_canonical, request.arguments))
            return Identity(f"{request.namespace}.{request.path}", f"[{arguments}]")
        case messages.Store():
            return Identity("store", f"[{json_text(request.key)},{_canonical(request.value)}]")
        case messages.ProgramEnd():
            thrown = "" if request.error is None else f"{request.error.name}: {request.error.message}"
            return Identity(f"programs.{request.name}", json_text(thrown))
    fields = msgspec.to_builtins(message_of(request))
    name = _FUNCTIONS.get(type(request), str(fields["op"]))
    return Identity(name, json_text({key: fields[key] for key in sorted(fields) if key not in ("id", "op")}))


def is_call(request: Request) -> bool:
    """Return True for calls of tools, which only a recording can answer."""
    return isinstance(request, messages.ToolCall | messages.NamespaceCall)


def value_of(given: str) -> Any:
    """Return arguments as JSON data. Text that is not JSON is returned as it is."""
    try:
        return parse_json(given)
    except (ValueError, RecursionError):
        return given


def _canonical(text: str | None) -> str:
    if text is None:
        return "null"
    try:
        return json_text(_sorted(parse_json(text)))
    except (ValueError, RecursionError):
        return text


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


_FUNCTIONS: Final = {
    messages.ApiList: "API.list",
    messages.ApiRead: "API.read",
    messages.ApiSearch: "API.search",
    messages.Header: "$api",
    messages.ToolSearch: "tools.search",
    messages.Describe: "tools.describe",
    messages.Load: "load",
    messages.SaveProgram: "save_program",
    messages.Timer: "setTimeout",
    messages.ClearTimer: "clearTimeout",
    messages.YieldControl: "yield_control",
}
"""The functions of programs that make requests."""


class Asked(Struct, frozen=True):
    """A request of the recorded run.

    Attributes:
        turn: the number of the turn that made it. The start of the program is turn 0.
        nth: the number of earlier requests with the same identity.
    """

    request: Request
    identity: Identity
    turn: int
    nth: int


class Batch(Struct, frozen=True):
    """The ends of requests that one turn of the recorded run got.

    Attributes:
        elapsed: milliseconds since the beginning of the run.
        ends: the index of each request in `Script.asked`, and its end.
        readings: the readings of the clock in this turn.
        suspended: True if the run was suspended before this turn.
    """

    elapsed: float
    ends: tuple[tuple[int, Completion], ...]
    readings: Readings
    suspended: bool


class Script(Struct, frozen=True):
    """A recorded run, as a replay needs it.

    Attributes:
        asked: the requests, in order.
        batches: the turns after the start, in order.
        readings: the readings of the clock in the first turn.
    """

    asked: tuple[Asked, ...]
    batches: tuple[Batch, ...]
    readings: Readings


def script_of(recording: Recording) -> Script:
    """Return the script of a recording.

    Raises:
        ValueError: it has the end of a request that was never made.
    """
    asked: list[Asked] = []
    batches: list[Batch] = []
    counts: defaultdict[Identity, int] = defaultdict(int)
    open_requests: defaultdict[int, deque[int]] = defaultdict(deque)
    turns = list(_turns(recording))
    for number, turn in enumerate(turns):
        if turn.delivered is not None:
            ends = []
            for each in turn.delivered.completions:
                if not open_requests[each.id]:
                    raise ValueError(f"request {each.id} ends, but it was never made")
                ends.append((open_requests[each.id].popleft(), _completion(each)))
            batches.append(Batch(turn.delivered.elapsed, tuple(ends), turn.readings, turn.suspended))
        for request in turn.requests:
            who = identity(request)
            open_requests[request.id].append(len(asked))
            asked.append(Asked(request, who, number, counts[who]))
            counts[who] += 1
    return Script(tuple(asked), tuple(batches), turns[0].readings)


_NONE = Readings()


class _Recorded(Struct):
    delivered: Turn | None
    suspended: bool = False
    readings: Readings = _NONE
    requests: tuple[Request, ...] = ()


def _turns(recording: Recording) -> Iterator[_Recorded]:
    current, suspended = _Recorded(None), False
    for line in recording.steps:
        match line:
            case Turn():
                yield current
                current, suspended = _Recorded(line, suspended), False
            case Clock():
                current.readings = Readings(line.wall, line.monotonic, line.lost)
            case Requests():
                current.requests += tuple(map(request_of, line.requests))
            case Suspended():
                suspended = True
    yield current


def _completion(end: Completed) -> Completion:
    if end.error is None:
        return Completion(end.id, "null" if end.value is None else end.value)
    error = end.error
    return Completion(end.id, error=GuestError(error.message, error.name, error.code, error.data))


# Divergences: the first point at which a replay differs from its recording, in words.


MAX_DIFFERENCES: Final = 8
"""Maximum number of differences that are shown."""

MAX_PLACES: Final = 3
"""Maximum number of positions that are named."""

SHOWN: Final = 160
"""Maximum characters that are shown of a value."""

_ABSENT: Final = object()

_BLOCK_COMMENT: Final = re.compile(r"^[ \t]*/\*.*?\*/", re.DOTALL | re.MULTILINE)
"""A comment that begins a line, such as the one before a saved program, which may name tools."""


class Divergence(Struct, frozen=True):
    """The first difference between a replay and its recording.

    Attributes:
        what: a sentence about the difference.
        differences: lines that show the recorded and the actual value of each part that differs.
        places: positions in the program that may have made the call, such as `cell.js:3:9`.
    """

    what: str
    differences: tuple[str, ...] = ()
    places: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = [f"at {' or '.join(self.places)}"] if self.places else []
        return "\n".join([self.what, *(f"  {each}" for each in (*self.differences, *where))])


def places_of(expression: str, source: str, file: str) -> tuple[str, ...]:
    """Return the positions of an expression such as `MCP.github.listIssues` in a program; none if there are many."""
    names = r"\s*\.\s*".join(map(re.escape, expression.split(".")))
    source = _BLOCK_COMMENT.sub(_blank, source)
    found = [match.start() for match in re.finditer(rf"(?<![\w$.]){names}(?![\w$])", source)]
    if len(found) > MAX_PLACES:
        return ()
    lines = [(source.count("\n", 0, at) + 1, at - source.rfind("\n", 0, at)) for at in found]
    return tuple(f"{file}:{line}:{column}" for line, column in lines)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def differences(recorded: Any, actual: Any) -> tuple[str, ...]:
    """Return a line for each part in which two JSON values differ, at most `MAX_DIFFERENCES` and one that counts."""
    try:
        found = list(_differing(recorded, actual, ""))
    except RecursionError:
        return ("the values are nested too deep to show where they differ",)
    lines = [f"{path or 'value'}: recorded {_shown(old)}, now {_shown(new)}" for path, old, new in found]
    if len(lines) > MAX_DIFFERENCES:
        lines[MAX_DIFFERENCES:] = [f"and {len(lines) - MAX_DIFFERENCES} more differences"]
    return tuple(lines)


def _differing(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            inner = f"{path}.{key}" if key.isidentifier() else f"{path}[{json_text(key)}]"
            yield from _differing(old.get(key, _ABSENT), new.get(key, _ABSENT), inner.removeprefix("."))
        if list(old) != list(new) and old == new:
            yield path, list(old), list(new)  # only the order of the keys differs
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            before = old[index] if index < len(old) else _ABSENT
            after = new[index] if index < len(new) else _ABSENT
            yield from _differing(before, after, f"{path}[{index}]")
    elif isinstance(old, str) and isinstance(new, str) and old != new:
        at = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        start = max(0, at - 40)
        yield (
            (path, old, new) if start == 0 else (f"{path or 'value'} from character {start}", old[start:], new[start:])
        )
    elif old is not new and (type(old) is not type(new) or old != new):
        yield path, old, new


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    text = escape_line(json_text(value))
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"
