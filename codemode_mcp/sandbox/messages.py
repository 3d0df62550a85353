"""The messages between host and guest, as JSON. Pure.

Host to guest: `start_message` once, then `deliver_message` for every later turn. Guest to host: one `TurnReport` per
turn, written by `sandbox/prelude`. Guest code cannot write these messages, but nothing here relies on that: a report
with a missing member or a wrong type is rejected as a whole. Unknown members are ignored.

The module is long because it declares every message of one protocol. Half of it is documentation.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Required, TypedDict

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from codemode_mcp.base.errors import CodeModeError, InternalError
from codemode_mcp.base.strict_json import ascii_json, parse_json, replace_lone_surrogates

MAX_TIMER_MS = 2**31 - 1
"""Longest delay of a timer, as in browsers."""

Name = Annotated[str, Meta(max_length=1024)]
"""A name, path or query. The prelude has the same limit, and reports it to the program."""

MAX_PATHS = 64
"""Maximum number of paths in one request. The prelude has the same limit, and reports it to the program."""

MorePaths = Annotated[tuple[Name, ...], Meta(max_length=MAX_PATHS - 1)] | UnsetType
"""The paths after the first one."""

# errors of a guest


class Thrown(Struct, frozen=True):
    """A value thrown in the guest.

    Attributes:
        stack: frames as the engine gives them.
        engine: True for the engine's own errors (out of memory, interrupted). A guest can only imitate one that it has
            caught before.
        code: the error code with which the error entered the guest; None for the guest's own errors.
    """

    name: str
    message: str
    stack: str
    engine: bool
    code: str | None

    @property
    def is_null(self) -> bool:
        """True for null, thrown by the program or by an engine that could not make an error."""
        return (self.name, self.message) == ("Uncaught", "null")

    @property
    def is_blank(self) -> bool:
        """True for an error of the engine that has no message, because the engine had no memory for one."""
        return self.engine and self.message == ""


# requests of a guest


class GuestRequest(Struct, frozen=True, tag_field="op"):
    """Base of the requests that a guest sends. Each is completed by its `id`."""

    id: int


class NamespaceCall(GuestRequest, frozen=True, tag="namespace"):
    """A call of a function in a plugin's namespace, not yet resolved to a tool.

    Attributes:
        path: the path of the function in the namespace, such as `labels.add`.
        arguments: each as unchecked JSON text; None for undefined. The prelude has the same limit on their number.
    """

    namespace: Name
    path: Name
    arguments: Annotated[tuple[str | None, ...], Meta(max_length=32)]


class ApiList(GuestRequest, frozen=True, tag="api_list"):
    """A request for the list of declaration files, by the beginnings of their paths."""

    prefix: Name
    more: MorePaths = UNSET


class ApiRead(GuestRequest, frozen=True, tag="api_read"):
    """A request for declaration files. `more` has the paths after the first one."""

    path: Name
    more: MorePaths = UNSET


class ApiSearch(GuestRequest, frozen=True, tag="api_search"):
    """A search for operations. Options of the wrong type count as not set, since the program wrote them.

    Attributes:
        limit: an integer, or None for the default.
        server: the identifier of a server as text, or None for all servers.
    """

    query: Name
    limit: Any = None
    server: Any = None

    def __post_init__(self) -> None:
        structs.force_setattr(self, "limit", _valid_limit(self.limit))
        structs.force_setattr(
            self, "server", msgspec.convert(self.server, Name) if isinstance(self.server, str) else None
        )


class Header(GuestRequest, frozen=True, tag="header"):
    """A call of `$api`.

    Attributes:
        server: the identifier of the server; None for `MCP.$api()`.
        schema: an option of the program. Only `true` counts as set.
    """

    server: Name | None
    tool: Name | None
    schema: Any = False

    def __post_init__(self) -> None:
        structs.force_setattr(self, "schema", self.schema is True)


class ToolSearch(GuestRequest, frozen=True, tag="search"):
    """A search for tools. `limit` is as in `ApiSearch`."""

    query: Name
    limit: Any = None

    def __post_init__(self) -> None:
        structs.force_setattr(self, "limit", _valid_limit(self.limit))


class Describe(GuestRequest, frozen=True, tag="describe"):
    target: Name


class Store(GuestRequest, frozen=True, tag="store"):
    """A value to store. `value` is valid JSON text: it becomes part of messages to later programs, unparsed."""

    key: Name
    value: str

    def __post_init__(self) -> None:
        parse_json(self.value)


class Load(GuestRequest, frozen=True, tag="load"):
    key: Name


class SaveProgram(GuestRequest, frozen=True, tag="save"):
    """A proposal of a program to save its own text.

    Attributes:
        input: the JSON Schema of its input, as JSON text; None for a program without input.
        source: the text of the program, as its author wrote it.
    """

    name: Name
    description: str
    language: Literal["javascript", "typescript"]
    source: str
    input: str | None = None


class YieldControl(GuestRequest, frozen=True, tag="yield"):
    reason: str | None


class Timer(GuestRequest, frozen=True, tag="timer"):
    """A timer of `ms` milliseconds, capped at `MAX_TIMER_MS`. Each round of an interval has the same `id`."""

    ms: int

    def __post_init__(self) -> None:
        if self.ms > MAX_TIMER_MS:
            structs.force_setattr(self, "ms", MAX_TIMER_MS)


class ClearTimer(GuestRequest, frozen=True, tag="clear"):
    target: int


class ProgramEnd(GuestRequest, frozen=True, tag="program_end"):
    """The end of a saved program, which ran in the guest.

    Attributes:
        target: the number of its call.
        name: the name of the program.
        bytes: the size of its result as JSON text.
        error: the error that it threw. Only then does the guest expect an answer, which is the error for the caller.
    """

    target: int
    name: Name
    bytes: int = 0
    error: Thrown | None = None


class Through(Struct, frozen=True):
    """The origin of a call in a namespace.

    Attributes:
        path: the expression in the program, such as `issues.labels.add`.
        map_input: makes the JSON text of the tool's input from the arguments; raises `CodeModeError`. None if the
            call already has the tool's input.
        refusal: the reason why there is no tool to call; empty if there is one.
        request: the request of the program, from which this value can be made again.
    """

    path: str
    map_input: Callable[[], Awaitable[str]] | None = None
    refusal: str = ""
    request: NamespaceCall | None = None


class ToolCall(Struct, frozen=True):
    """A nested call.

    Attributes:
        input: the first argument, as unchecked JSON text; None if there is no argument.
        count: the number of arguments in the program.
        by_id: True if the program called `tools.call`, which does not reach MCP tools.
        options: the second argument, as unchecked JSON text.
        chain: for a saved program: the names of the saved programs around the call, outermost first.
        known: for a saved program: True if the guest has its text already.
        through: the namespace of the call. Until `map_input` is applied, `input` is the list of all arguments.
    """

    id: int
    target: str
    input: str | None = None
    count: int = 1
    by_id: bool = False
    options: str | None = None
    chain: tuple[str, ...] = ()
    known: bool = False
    through: Through | None = None


class _Call(GuestRequest, frozen=True, tag="call"):
    """A `ToolCall` as a message: no guest can set `through`."""

    target: str
    count: int
    input: str | UnsetType = UNSET
    options: str | UnsetType = UNSET
    chain: Annotated[tuple[Name, ...], Meta(max_length=16)] | UnsetType = UNSET
    known: bool | UnsetType = UNSET


class _CallById(_Call, frozen=True, tag="call_by_id"):
    pass


Lookup = ApiList | ApiRead | ApiSearch | Header | ToolSearch | Describe
"""Requests that are answered immediately from the run's catalog, without a tool call or a suspension."""

Answered = Lookup | Store | Load | SaveProgram | ProgramEnd
"""Requests that the host answers itself, in order."""

Request = ToolCall | NamespaceCall | Answered | YieldControl | Timer | ClearTimer

RequestMessage = _Call | _CallById | NamespaceCall | Answered | YieldControl | Timer | ClearTimer
"""A request as a message: what `msgspec` decodes and encodes."""


def request_of(message: RequestMessage) -> Request:
    if not isinstance(message, _Call):
        return message
    given = None if message.input is UNSET else message.input
    options = None if message.options is UNSET else message.options
    chain = () if message.chain is UNSET else message.chain
    by_id, known = isinstance(message, _CallById), message.known is True
    return ToolCall(message.id, message.target, given, message.count, by_id, options, chain, known)


def message_of(request: Request) -> RequestMessage:
    if not isinstance(request, ToolCall):
        return request
    given = UNSET if request.input is None else request.input
    options = UNSET if request.options is None else request.options
    message = (_CallById if request.by_id else _Call)(request.id, request.target, request.count, given, options)
    if request.chain or request.known:
        return structs.replace(message, chain=request.chain or UNSET, known=request.known or UNSET)
    return message


def _valid_limit(limit: Any) -> int | None:
    valid = isinstance(limit, int | float) and not isinstance(limit, bool) and 1 <= limit < 2**31
    return int(limit) if valid else None


# the report of a guest at the end of a turn

GuestState = Literal["pending", "done", "failed", "syntax"]


class UncheckedError(Struct, frozen=True, rename={"call": "id"}):
    """A result with `isError` that its program never checked.

    Attributes:
        call: the number of its call.
        text: the beginning of its first text; may be empty.
    """

    call: int
    text: str


class LeftOut(Struct, frozen=True):
    """Parts of the results of one tool that `unwrap` has left out.

    Attributes:
        tool: the id of the tool; empty if it is not known.
        parts: descriptions of the parts of the first such result.
        taken: a description of the value instead, if that is no text of a text block or structured content.
        count: the number of such results.
    """

    tool: str
    parts: str
    taken: str
    count: int


class TurnReport(Struct, frozen=True, rename="camel"):
    """The state of a guest after a turn.

    Attributes:
        value: the return value of the program, as JSON data; meaningful if `state` is `done`.
        error: the end of the program, if `state` is `failed` or `syntax`.
        fault: the error that stopped the job queue, if any.
        calls: see `requests`.
        outputs: new ones, each `{"type": "text" | "json" | "image" | "app", ...}`. An image has `mimeType` (of any kind
            of content), `data` as the program wrote it, and optionally `uri`, of the resource that it is. An app has
            the `target` and the `input` of the call, as JSON text, and its `result`.
        dropped_items, dropped_size: number and characters of the outputs that the guest has discarded so far, beyond
            its own limit.
        rejections: unhandled rejections, once the program is over.
        unchecked: results with `isError` that the program never checked, once it is over.
        left_out: parts of results that `unwrap` has left out, once it is over.
        returning: True if the program has returned, so that an error is one of the conversion of its value to JSON.
        too_large: characters of its value if it is too large to be handed over; otherwise 0.
        lost: the first part of its value that JSON has no form for: `NaN` for a whole value, or `value.a[0] is NaN`.
    """

    state: GuestState
    value: Any
    error: Thrown | None
    fault: Thrown | None
    calls: tuple[RequestMessage, ...]
    outputs: tuple[dict[str, Any], ...]
    dropped_items: int
    dropped_size: int
    rejections: tuple[Thrown, ...]
    unchecked: tuple[UncheckedError, ...]
    left_out: tuple[LeftOut, ...]
    returning: bool
    too_large: int
    lost: str

    def __post_init__(self) -> None:
        for output in self.outputs:
            check_output(output)

    @property
    def requests(self) -> tuple[Request, ...]:
        return tuple(map(request_of, self.calls))


class _Waiting(Struct, forbid_unknown_fields=True):
    """The short report of a guest that waits and has no other news."""

    state: Literal["pending"]
    calls: tuple[RequestMessage, ...]


# completions of requests


class Completion(Struct, frozen=True):
    """The end of one request, for the guest.

    Attributes:
        value: the result as JSON text; ignored if there is an `error`.
        of_call: True if the request was a nested call.
    """

    id: int
    value: str = "null"
    error: GuestError | None = None
    of_call: bool = True

    @property
    def size(self) -> int:
        """Approximate size in characters."""
        return len(self.value)


class GuestError(Struct, frozen=True):
    """An error as plain data, from which the prelude makes an `Error`.

    Attributes:
        code: one of `errors.ERROR_CODES`. The run fails with it if the program does not catch the error.
        data: JSON text.
    """

    message: str
    name: str = "Error"
    code: str = "nested_tool_failed"
    data: str = "null"

    @staticmethod
    def of(error: CodeModeError) -> GuestError:
        return GuestError(error.message, code=error.code)


# host to guest


class StartParts(TypedDict, total=False):
    """The arguments of `start_message`."""

    code: Required[str]
    fallback: Required[str | None]
    seed: Required[bytes]
    output_limit: Required[int]
    call_limit: Required[int]
    elapsed_ms: Required[float]
    file: str | None
    lines: str
    label: str | None
    zones: Mapping[str, Sequence[int]]
    args: Sequence[str]
    namespaces: str
    saving: tuple[str, str] | None


def start_message(
    *,
    code: str,
    fallback: str | None,
    seed: bytes,
    output_limit: int,
    call_limit: int,
    elapsed_ms: float,
    file: str | None = None,
    lines: str = "null",
    label: str | None = None,
    zones: Mapping[str, Sequence[int]] | None = None,
    args: Sequence[str] = (),
    namespaces: str = "[]",
    saving: tuple[str, str] | None = None,
) -> str:
    """Return the message that starts a program.

    Args:
        code: the body of an async function.
        fallback: another body to run if `code` does not parse.
        seed: 32 random bytes for this run.
        output_limit: maximum characters of output, in total; the guest discards more.
        file: the name of the program in stacks.
        lines: JSON text of the author's lines in stacks, from `Positions.guest_lines`.
        label: an identifier that the program cannot know. It detects a text that closes its function and opens another.
        call_limit: maximum number of unsettled calls; the guest refuses more. The host has limits of its own.
        zones: time zones that the program may name, in the form of `prelude/65_locale.js`.
        args: the value of the global `args`.
        namespaces: JSON text in the form of `prelude/75_namespaces.js`.
        saving: the language and text of a program that may propose to save itself; None without `save_program`.
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
            "saving": None if saving is None else {"language": saving[0], "source": saving[1]},
        }
    )
    return f'{message[:-1]},"lines":{lines},"namespaces":{namespaces}}}'


def deliver_message(completions: Sequence[Completion], *, elapsed_ms: float) -> str:
    parts = []
    for completion in completions:
        error = completion.error
        if error is None:
            parts.append(f"[{completion.id},{completion.value},null]")
        else:
            name, message, code = map(ascii_json, (error.name, error.message, error.code))
            fields = f'"name":{name},"message":{message},"code":{code},"data":{error.data}'
            parts.append(f"[{completion.id},null,{{{fields}}}]")
    return f'{{"elapsed":{elapsed_ms},"completions":[{",".join(parts)}]}}'


# guest to host


def decode_turn(text: str) -> TurnReport:
    """Return the report that the prelude's `collect` has written.

    Raises:
        InternalError: it is not a valid report.
    """
    try:
        whole = replace_lone_surrogates(text)
        try:
            calls = _decode_waiting(whole).calls
        except msgspec.ValidationError:
            return _decode_report(whole)
        return TurnReport("pending", None, None, None, calls, (), 0, 0, (), (), (), False, 0, "")
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InternalError(f"the sandbox answered with a message that is not valid ({type(error).__name__})") from None


_decode_waiting = msgspec.json.Decoder(_Waiting).decode
# `float` reads numbers beyond the range of a double as infinity, as JavaScript does.
_decode_report = msgspec.json.Decoder(TurnReport, float_hook=float).decode


def check_output(output: dict[str, Any]) -> None:
    """Raise `ValueError` for an output that no guest writes."""
    match output:
        case {"type": "text", "text": str()} | {"type": "json", "value": _}:
            return
        case {"type": "image", "mimeType": str(), "data": str()} if isinstance(output.get("uri", ""), str):
            return
        case {"type": "app", "target": str(), "result": dict()} if isinstance(output.get("input", ""), str):
            return
    raise ValueError("not an output")
