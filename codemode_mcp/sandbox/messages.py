"""The messages between host and guest, and their strict JSON. Pure.

Host to guest: `start_message` once, then `deliver_message` for every later turn. Guest to host: one `TurnReport` a
turn. The guest's side of it is `sandbox/prelude`. Guest code cannot write these messages, but nothing here relies on
that: a report that does not have the exact form is refused as a whole.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from codemode_mcp.errors import CodeModeError, InternalError
from codemode_mcp.json_text import whole_characters
from codemode_mcp.strict_json import no_constant

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence


class Absent:
    """The type of `ABSENT`: no input was given, which is not the same as null."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()

# what a guest asks for


@dataclass(frozen=True, slots=True)
class Through:
    """Origin of a call in a namespace.

    Attributes:
        path: what the program wrote, such as `issues.labels.add`.
        map_input: makes the tool's input, JSON text, of the arguments; raises `CodeModeError`. None: the call has it.
        refusal: why there is nothing to call; empty: there is.
        asked: the program's own request, from which the rest can be made again.
    """

    path: str
    map_input: Callable[[], Awaitable[str]] | None = None
    refusal: str = ""
    asked: NamespaceCall | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A nested call.

    Attributes:
        input: the first argument, as unchecked JSON text; ABSENT when there is none.
        count: how many arguments it was given.
        options: the second argument, as unchecked JSON text.
        by_id: it came through `tools.call`, which is not the way to MCP tools.
        through: the namespace that it came by. Until its input is mapped, `input` is the list of all arguments.
    """

    id: int
    target: str
    input: str | Absent = ABSENT
    count: int = 1
    by_id: bool = False
    options: str | Absent = ABSENT
    through: Through | None = None


@dataclass(frozen=True, slots=True)
class NamespaceCall:
    """A call of a function in a namespace, before it is known what it calls.

    Attributes:
        path: such as `labels.add`.
        arguments: each as unchecked JSON text; ABSENT for undefined.
    """

    id: int
    namespace: str
    path: str
    arguments: tuple[str | Absent, ...] = ()


@dataclass(frozen=True, slots=True)
class ApiList:
    id: int
    prefix: str


@dataclass(frozen=True, slots=True)
class ApiRead:
    id: int
    path: str


@dataclass(frozen=True, slots=True)
class ApiSearch:
    id: int
    query: str
    limit: int | None = None
    server: str | None = None


@dataclass(frozen=True, slots=True)
class Header:
    """`$api`; `server` is a guest identifier, None for `MCP.$api()`."""

    id: int
    server: str | None
    tool: str | None
    schema: bool = False


@dataclass(frozen=True, slots=True)
class ToolSearch:
    id: int
    query: str
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Describe:
    id: int
    target: str


@dataclass(frozen=True, slots=True)
class Store:
    """`value` is JSON text."""

    id: int
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Load:
    id: int
    key: str


@dataclass(frozen=True, slots=True)
class YieldControl:
    id: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class Timer:
    """Complete this `ms` from now; the same `id` comes again for every round of an interval."""

    id: int
    ms: int


@dataclass(frozen=True, slots=True)
class ClearTimer:
    id: int
    target: int


Lookup = ApiList | ApiRead | ApiSearch | Header | ToolSearch | Describe
"""Requests answered from the run's catalog immediately: no tool call, no suspension."""

Request = ToolCall | NamespaceCall | Lookup | Store | Load | YieldControl | Timer | ClearTimer

# what a guest says at the end of a turn

GuestState = Literal["pending", "done", "failed", "syntax"]


@dataclass(frozen=True, slots=True)
class Thrown:
    """Something thrown in the guest.

    Attributes:
        stack: frames as the engine gives them.
        engine: it is the engine's own error (out of memory, interrupted), which a guest that has not met one cannot
            imitate.
        code: the error code it carried when it crossed into the guest; None for the guest's own errors.
    """

    name: str
    message: str
    stack: str
    engine: bool
    code: str | None

    @property
    def is_null(self) -> bool:
        """Null was thrown: by the program, or by an engine that could not make an error."""
        return (self.name, self.message) == ("Uncaught", "null")

    @property
    def is_blank(self) -> bool:
        """An error of the engine's that it could not give a message."""
        return self.engine and self.message == ""


@dataclass(frozen=True, slots=True)
class UncheckedError:
    """A result with `isError` that its program never looked at.

    Attributes:
        call: the number of its call.
        text: the begin of its first text, or nothing.
    """

    call: int
    text: str


@dataclass(frozen=True, slots=True)
class TurnReport:
    """The state of a guest after a turn.

    Attributes:
        value: what the program returned, as JSON; meaningful when `state` is `done`.
        error: what ended it, when `state` is `failed` or `syntax`.
        fault: what stopped the job queue, if something did.
        outputs: new ones, each `{"type": "text" | "json" | "image", ...}`. An image has `mimeType`, of any kind of
            content, `data` as the program wrote it, and the `uri` of the resource that it is, if it is one.
        dropped_items, dropped_size: output thrown away in the guest so far, over its own limit; characters.
        rejections: unhandled rejections, once the program is over.
        unchecked: results with `isError` that the program never looked at, once it is over.
        returning: the program had come to its end, so that what failed is making JSON of its value.
        too_large: characters of its value, if that is too large to be handed over; 0 otherwise.
    """

    state: GuestState
    value: Any = None
    error: Thrown | None = None
    fault: Thrown | None = None
    requests: tuple[Request, ...] = ()
    outputs: tuple[dict[str, Any], ...] = ()
    dropped_items: int = 0
    dropped_size: int = 0
    rejections: tuple[Thrown, ...] = ()
    unchecked: tuple[UncheckedError, ...] = ()
    returning: bool = False
    too_large: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """The end of one request, for the guest. `value` is JSON text; `error` wins over it.

    Attributes:
        of_call: the request was a nested call.
    """

    id: int
    value: str = "null"
    error: GuestError | None = None
    of_call: bool = True

    @property
    def size(self) -> int:
        """Characters, about."""
        return len(self.value)


@dataclass(frozen=True, slots=True)
class GuestError:
    """An error as the guest gets to see it: plain data, rebuilt as an `Error` on the other side.

    Attributes:
        code: one of our codes, with which the run fails when the error is not caught.
    """

    message: str
    name: str = "Error"
    code: str = "nested_tool_failed"
    data: str = "null"

    @staticmethod
    def of(error: CodeModeError) -> GuestError:
        return GuestError(error.message, code=error.code)


# host to guest


def start_message(
    *,
    code: str,
    fallback: str | None,
    seed: bytes,
    output_limit: int,
    call_limit: int,
    elapsed_ms: float,
    file: str | None = None,
    label: str | None = None,
    zones: Mapping[str, Sequence[int]] | None = None,
    args: Sequence[str] = (),
    namespaces: str = "[]",
) -> str:
    """Return the first turn.

    Args:
        code: body of an async function.
        fallback: another body to run when `code` does not parse.
        seed: 32 bytes of randomness for this run.
        output_limit: characters of output the guest keeps, all in all.
        file: how stacks name the cell, where the guest can tell its lines.
        label: an identifier that the program cannot know, to check that it does not leave the function it is put into.
        call_limit: unsettled calls from which on the guest refuses more by itself; the host has limits of its own.
        zones: time zones that the program may name, as `prelude/65_locale.js` takes them.
        args: what the program finds in `args`.
        namespaces: JSON text, as `prelude/75_namespaces.js` takes it.
    """
    message = json.dumps(
        {
            "code": code,
            "fallback": fallback,
            "label": label,
            "seed": seed.hex(),
            "outputLimit": output_limit,
            "callLimit": call_limit,
            "file": file,
            "elapsed": elapsed_ms,
            "zones": zones or {},
            "args": list(args),
        }
    )
    return f'{message[:-1]},"namespaces":{namespaces}}}'


def deliver_message(completions: Sequence[Completion], *, elapsed_ms: float) -> str:
    """Return a later turn."""
    parts = []
    for completion in completions:
        error = completion.error
        if error is None:
            parts.append(f"[{completion.id},{completion.value},null]")
        else:
            name, message, code = json.dumps(error.name), json.dumps(error.message), json.dumps(error.code)
            parts.append(
                f'[{completion.id},null,{{"name":{name},"message":{message},"code":{code},"data":{error.data}}}]'
            )
    return f'{{"elapsed":{elapsed_ms},"completions":[{",".join(parts)}]}}'


# guest to host


def decode_turn(text: str) -> TurnReport:
    """Read what the prelude's `collect` returned.

    Raises:
        InternalError: it does not have the exact form.
    """
    try:
        whole = whole_characters(text)
        raw, end = _DECODER.raw_decode(whole)
        if end != len(whole):
            raise ValueError(end)
        if raw.keys() == _WAITING:
            return TurnReport(_one_of(raw["state"], ("pending",)), requests=_requests(raw["calls"]))
        return TurnReport(
            state=_one_of(raw["state"], ("pending", "done", "failed", "syntax")),
            value=raw["value"],
            error=_thrown(raw["error"]),
            fault=_thrown(raw["fault"]),
            requests=_requests(raw["calls"]),
            outputs=tuple(map(_output, raw["outputs"])),
            dropped_items=_integer(raw["droppedItems"]),
            dropped_size=_integer(raw["droppedSize"]),
            rejections=tuple(filter(None, map(_thrown, raw["rejections"]))),
            unchecked=tuple(map(_unchecked, raw["unchecked"])),
            returning=_boolean(raw["returning"]),
            too_large=_integer(raw["tooLarge"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InternalError(f"the sandbox answered with a message that is not valid ({type(error).__name__})") from None


_WAITING = {"state", "calls"}
"""Members of the message of a guest that waits and has nothing else to say."""


_DECODER = json.JSONDecoder(parse_constant=no_constant)


def _requests(raw: Any) -> tuple[Request, ...]:
    if not isinstance(raw, list):
        raise TypeError
    return tuple(map(read_request, raw))


def read_request(raw: Any) -> Request:
    """Return one request, as the prelude writes it. Raises `ValueError`, `KeyError` or `TypeError` for what is none."""
    return _READERS[raw["op"]](raw)


def write_request(request: Request) -> dict[str, Any]:
    """Return what `read_request` makes the same request of."""
    match request:
        case ToolCall():
            written: dict[str, Any] = {"op": "call_by_id" if request.by_id else "call", "target": request.target}
            written["count"] = request.count
            if not isinstance(request.input, Absent):
                written["input"] = request.input
            if not isinstance(request.options, Absent):
                written["options"] = request.options
        case NamespaceCall():
            given = [None if isinstance(each, Absent) else each for each in request.arguments]
            written = {
                "op": "namespace",
                "namespace": request.namespace,
                "path": request.path,
                "arguments": given,
            }
        case ApiList():
            written = {"op": "api_list", "prefix": request.prefix}
        case ApiRead():
            written = {"op": "api_read", "path": request.path}
        case ApiSearch():
            written = {"op": "api_search", "query": request.query, "limit": request.limit, "server": request.server}
        case Header():
            written = {
                "op": "header",
                "server": request.server,
                "tool": request.tool,
                "schema": request.schema,
            }
        case ToolSearch():
            written = {"op": "search", "query": request.query, "limit": request.limit}
        case Describe():
            written = {"op": "describe", "target": request.target}
        case Store():
            written = {"op": "store", "key": request.key, "value": request.value}
        case Load():
            written = {"op": "load", "key": request.key}
        case YieldControl():
            written = {"op": "yield", "reason": request.reason}
        case Timer():
            written = {"op": "timer", "ms": request.ms}
        case ClearTimer():
            written = {"op": "clear", "target": request.target}
    return {**written, "id": request.id}


def _read_call(raw: dict[str, Any]) -> Request:
    target, count = _string(raw["target"]), _integer(raw["count"])
    given = _string(raw["input"]) if "input" in raw else ABSENT
    options = _string(raw["options"]) if "options" in raw else ABSENT
    return ToolCall(_integer(raw["id"]), target, given, count, by_id=raw["op"] == "call_by_id", options=options)


def _read_namespace_call(raw: dict[str, Any]) -> Request:
    given = raw["arguments"]
    if not isinstance(given, list) or len(given) > _MAX_ARGUMENTS:
        raise TypeError
    arguments = tuple(ABSENT if item is None else _string(item) for item in given)
    return NamespaceCall(_integer(raw["id"]), _name(raw["namespace"]), _name(raw["path"]), arguments)


def _read_search(raw: dict[str, Any]) -> Request:
    return ApiSearch(_integer(raw["id"]), _name(raw["query"]), _limit(raw), _optional_name(raw.get("server")))


def _read_header(raw: dict[str, Any]) -> Request:
    server, tool = _optional_name(raw["server"]), _optional_name(raw["tool"])
    return Header(_integer(raw["id"]), server, tool, raw.get("schema") is True)


_MAX_NAME = 1024
"""Characters of a name, a path or a request, as in the prelude, which tells the program."""
_MAX_ARGUMENTS = 32
"""Arguments of a function in a namespace, as in the prelude."""
_MAX_TIMER_MS = 2**31 - 1
"""Longest delay of a timer, as in browsers."""


_READERS: dict[str, Callable[[dict[str, Any]], Request]] = {
    "call": _read_call,
    "call_by_id": _read_call,
    "namespace": _read_namespace_call,
    "api_list": lambda raw: ApiList(_integer(raw["id"]), _name(raw["prefix"])),
    "api_read": lambda raw: ApiRead(_integer(raw["id"]), _name(raw["path"])),
    "api_search": _read_search,
    "header": _read_header,
    "search": lambda raw: ToolSearch(_integer(raw["id"]), _name(raw["query"]), _limit(raw)),
    "describe": lambda raw: Describe(_integer(raw["id"]), _name(raw["target"])),
    "store": lambda raw: Store(_integer(raw["id"]), _name(raw["key"]), _json_text(raw["value"])),
    "load": lambda raw: Load(_integer(raw["id"]), _name(raw["key"])),
    "yield": lambda raw: YieldControl(_integer(raw["id"]), _optional_string(raw["reason"])),
    "timer": lambda raw: Timer(_integer(raw["id"]), min(_integer(raw["ms"]), _MAX_TIMER_MS)),
    "clear": lambda raw: ClearTimer(_integer(raw["id"]), _integer(raw["target"])),
}


def _output(raw: Any) -> dict[str, Any]:
    match raw:
        case {"type": "text", "text": str()}:
            return dict(raw)
        case {"type": "image", "mimeType": str(), "data": str()}:
            _string(raw.get("uri", ""))
            return dict(raw)
        case {"type": "json", "value": _}:
            return dict(raw)
    raise TypeError


def _thrown(raw: Any) -> Thrown | None:
    if raw is None:
        return None
    return Thrown(
        name=_string(raw["name"]),
        message=_string(raw["message"]),
        stack=_string(raw["stack"]),
        engine=raw["engine"] is True,
        code=_optional_string(raw["code"]),
    )


def _unchecked(raw: Any) -> UncheckedError:
    return UncheckedError(_integer(raw["id"]), _string(raw["text"]))


def _limit(raw: dict[str, Any]) -> int | None:
    # An option the guest wrote: anything that is no number counts as not given.
    limit = raw.get("limit")
    return int(limit) if isinstance(limit, int | float) and not isinstance(limit, bool) and 1 <= limit < 2**31 else None


def _string(raw: Any) -> str:
    if not isinstance(raw, str):
        raise TypeError
    return raw


def _name(raw: Any) -> str:
    if len(name := _string(raw)) > _MAX_NAME:
        raise ValueError("a name that the prelude never sends")
    return name


def _optional_name(raw: Any) -> str | None:
    return _name(raw) if isinstance(raw, str) else None


def _json_text(raw: Any) -> str:
    # It is put into messages to later programs as it is.
    _DECODER.decode(_string(raw))
    return str(raw)


def _optional_string(raw: Any) -> str | None:
    return raw if isinstance(raw, str) else None


def _boolean(raw: Any) -> bool:
    if not isinstance(raw, bool):
        raise TypeError
    return raw


def _integer(raw: Any) -> int:
    if not isinstance(raw, int) or isinstance(raw, bool):
        raise TypeError
    return raw


def _one_of(raw: Any, allowed: tuple[GuestState, ...]) -> GuestState:
    for state in allowed:
        if raw == state:
            return state
    raise TypeError
