"""Tools of an upstream, and outcomes of calls. Pure: no I/O, no MCP SDK."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

JsonObject = Mapping[str, Any]

ProgressFn = Callable[[float, float | None, str | None], Awaitable[None]]
"""`(progress, total, message)`, as in MCP's progress notification."""

SentFn = Callable[[], None]
"""Told right before a request is sent, each time that it is; until then it waits, and the server knows nothing. What
this raises keeps it from being sent."""

BeginFn = Callable[[], Awaitable[None]]
"""Awaited right before a call is sent for the first time, when there is a connection and its turn has come. What it
raises keeps it from being sent."""

Operation = Literal["tool", "resource", "prompt"]


@dataclass(frozen=True, slots=True)
class Annotations:
    """MCP tool annotations as declared; `None` where the server said nothing."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of one upstream, as listed (after repair of what was sloppy)."""

    name: str
    description: str = ""
    title: str | None = None
    input_schema: JsonObject = field(default_factory=lambda: {"type": "object"})
    output_schema: JsonObject | None = None
    annotations: Annotations = Annotations()


AdmitFn = Callable[[Tool | None], None]
"""Called with a tool as its server lists it at that moment, right before each time that a call of it is sent; `None`
when the server does not list it. What it raises ends the call, and nothing more is sent."""


@dataclass(frozen=True, slots=True)
class Admission:
    """An `AdmitFn` that says what it decides by.

    Attributes:
        by_annotations: the tool's annotations decide, so the call waits until a server that has announced other tools
            was listed again.
        just_decided: the caller has decided in the same moment by everything else. `DirectSource.try_call` need not ask
            again; what is sent later must.
    """

    decide: AdmitFn
    by_annotations: bool
    just_decided: bool = False

    @property
    def is_settled(self) -> bool:
        """Tell whether asking again in the same moment could bring no other answer."""
        return self.just_decided and not self.by_annotations

    def __call__(self, tool: Tool | None) -> None:
        self.decide(tool)


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The end of a call that the tool itself answered.

    Attributes:
        result: JSON. Of an MCP tool the MCP result object (`content`, `structuredContent`, `isError`, ...).
        notes: what was odd about it, e.g. that it does not match the tool's own output schema.
        text: `result` as JSON text, where the server's own text can be used as it is.
    """

    result: Any
    notes: tuple[str, ...] = ()
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A direct call that needs more than its first answer, such as an answer of the user.

    Attributes:
        rest: finishes it; raises what `call_tool` raises. Cancelling it gives the call up.
    """

    rest: Callable[[], Awaitable[ToolOutcome]]


CallEnd = ToolOutcome | Unfinished | Exception
"""End of a direct call: the tool's answer, the reason for its absence, or the part that is left to do."""


class SentCall(Protocol):
    """A direct call in flight."""

    def cancel(self) -> None:
        """Give the call up, and tell the server. Its `on_end` is not called any more. May be called again."""
        ...


QuestionMethod = Literal["elicitation/create", "sampling/createMessage", "roots/list"]
"""Requests of a server to the client while it works on a call (MCP 2025-11-25 and 2026-07-28)."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question of an upstream that it needs answered to continue a call.

    Attributes:
        params: of the MCP request, as the server sent them.
        by_program: the question is a program's own, which is not trusted either.
    """

    server: str
    method: QuestionMethod
    params: JsonObject
    by_program: bool = False


AskFn = Callable[[Question], Awaitable[JsonObject]]


RootsFn = Callable[[], Awaitable[JsonObject]]
"""The MCP result of `roots/list` for a server that asks outside any call. Never raises."""


@dataclass(frozen=True, slots=True)
class Asking:
    """The person who can be asked on behalf of one call.

    Attributes:
        run: calls with the same text here belong together; a question is never given to another run's.
        ask: returns the MCP result of the question (`{"action": "accept", "content": {...}}`, ...). Raises
            `errors.QuestionRefused`; is cancelled when the server takes its question back or the call ends.
        owner: principal that the run belongs to. Calls of one owner never delay those of another.
        can_answer: tells if a client of the run is able to answer such a question.
        queued: takes the reason why the call is not sent yet, in words.
    """

    run: str
    ask: AskFn
    owner: str = ""
    can_answer: Callable[[Question], bool] = lambda _: True
    queued: Callable[[str], None] = lambda _: None


UpstreamState = Literal["idle", "connecting", "ready", "down", "stopped"]


@dataclass(frozen=True, slots=True)
class UpstreamView:
    """Facts about one upstream at one moment.

    Attributes:
        name: the server's name in the configuration.
        state: `idle` while the server need not run: its tools are known, and a call starts it. `connecting` while an
            attempt worth waiting for is made (the first one, and the one right after a connection was lost). `down`
            carries an `error`, and attempts continue in the background.
        error: why it is down, for a person; no secrets, no traceback.
        login_required: it is down because it needs a login; `error` says how.
        tools: last known tools, also while it is down.
        resources, prompts, completions: whether the server has them.
        era: `"modern"` or `"legacy"` protocol once connected.
        problems: what was repaired or dropped from its listing.
    """

    name: str
    state: UpstreamState
    error: str | None = None
    login_required: bool = False
    description: str | None = None
    instructions: str | None = None
    server_version: str | None = None
    era: Literal["modern", "legacy"] | None = None
    protocol_version: str | None = None
    tools: tuple[Tool, ...] = ()
    resources: bool = False
    prompts: bool = False
    completions: bool = False
    problems: tuple[str, ...] = ()


class ToolSource(Protocol):
    """Anything that offers tools under one name: an MCP connection, a plugin, a fake.

    Calls raise `UpstreamCallError` of `upstream_clients.errors` when the tool did not answer.
    """

    @property
    def name(self) -> str: ...

    def view(self) -> UpstreamView: ...

    async def call_tool(
        self,
        tool: str,
        arguments: JsonObject,
        *,
        on_progress: ProgressFn | None = None,
        timeout: float | None = None,
        asking: Asking | None = None,
        on_sent: SentFn | None = None,
        admit: AdmitFn | None = None,
        begin: BeginFn | None = None,
    ) -> ToolOutcome:
        """Call one tool; `timeout` in seconds, which stand still while a question is open.

        Cancelling the caller cancels the call upstream. `asking`: None where no person can be asked.
        """
        ...

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        asking: Asking | None = None,
        on_sent: SentFn | None = None,
        begin: BeginFn | None = None,
    ) -> JsonObject:
        """Return one of `resources/list`, `resources/read`, `resources/templates/list`, `prompts/list`, `prompts/get`,
        `completion/complete`."""
        ...


class DirectSource(ToolSource, Protocol):
    """A source that can send a call directly, without a task of its own for it."""

    def try_call(
        self,
        tool: str,
        arguments: JsonObject,
        *,
        on_end: Callable[[CallEnd], None],
        on_progress: ProgressFn | None = None,
        timeout: float | None = None,
        asking: Asking | None = None,
        on_sent: SentFn | None = None,
        admit: AdmitFn | None = None,
    ) -> SentCall | None:
        """Send one call, in the event loop; None where anything has to be awaited first: nothing was done then, and
        `call_tool` does the same.

        The arguments mean what they mean in `call_tool`. `on_end` is called once, from the event loop, after this has
        returned, unless the call is cancelled. What `admit` and `on_sent` raise is raised here, and nothing is sent.
        """
        ...
