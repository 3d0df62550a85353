"""Tools of upstreams, outcomes of calls, and the Protocols of sources of tools. Pure: no I/O, no MCP SDK.

The module is long because half of it describes the values that a source and its users exchange.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol, TypedDict, Unpack

from msgspec import Struct, field, structs

JsonObject = Mapping[str, Any]

ProgressFn = Callable[[float, float | None, str | None], Awaitable[None]]
"""`(progress, total, message)`, as in MCP's progress notification."""

SentFn = Callable[[], None]
"""A function that is called right before each time that a request is sent. If it raises, the request is not sent."""

BeginFn = Callable[[], Awaitable[None]]
"""A function that is awaited right before a call is sent for the first time. There is a connection then, and it is the
call's turn. If the function raises, the call is not sent."""

UpdateFn = Callable[[str], None]
"""A function that takes the URI of a resource that was updated. It runs in the event loop, and must not block."""

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""Levels of log messages (MCP, Logging), from the lowest to the highest."""

LogFn = Callable[[JsonObject], None]
"""A function that takes a log message of a server: `level`, `data`, and `logger` if the server names one. Secrets of
the server are replaced. The function runs in the event loop, and must not block."""

Operation = Literal["tool", "resource", "prompt"]


class Annotations(Struct, frozen=True):
    """MCP tool annotations as declared; None where the server declares nothing."""

    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    title: str | None = None


class Tool(Struct, frozen=True):
    """One tool of one upstream, as listed and repaired.

    Attributes:
        title: the title, or else that of the annotations.
        meta: the member `_meta`, for clients; None without one.
        icons: the icons as in MCP, for clients.
        needs_task: True if a server of MCP 2025-11-25 answers the call only with a task.
        sent: the schemas of arguments and result as the server sends them, if they contradict themselves. Then those of
            the tool are relaxed (`schema_relaxation`).
    """

    name: str
    description: str = ""
    title: str | None = None
    input_schema: JsonObject = field(default_factory=lambda: {"type": "object"})
    output_schema: JsonObject | None = None
    annotations: Annotations = Annotations()
    meta: JsonObject | None = None
    icons: tuple[JsonObject, ...] = ()
    needs_task: bool = False
    sent: tuple[JsonObject, JsonObject | None] | None = None

    @property
    def as_sent(self) -> Tool:
        """The tool with the schemas that the server sends, for comparisons."""
        if self.sent is None:
            return self
        return structs.replace(self, input_schema=self.sent[0], output_schema=self.sent[1], sent=None)


AdmitFn = Callable[[Tool | None], None]
"""A function that is called right before each time that a call is sent. Its argument is the tool as the server lists it
at that moment; None if the server does not list it. If the function raises, the call ends, and nothing more is sent."""


class Admission(Struct, frozen=True):
    """An `AdmitFn` that also says on which facts the decision depends.

    Attributes:
        by_listing: True if the decision depends on the tool as the server lists it. Then, after an announcement of
            changed tools, the call waits for the next listing.
    """

    decide: AdmitFn
    by_listing: bool

    def __call__(self, tool: Tool | None) -> None:
        self.decide(tool)


class ToolOutcome(Struct, frozen=True):
    """The end of a call that the tool itself answered.

    Attributes:
        result: JSON. For an MCP tool, the MCP result object (`content`, `structuredContent`, `isError`, ...).
        notes: problems of the result, e.g. that it does not match the tool's own output schema.
        text: `result` as JSON text, if the server's own text can be used unchanged.
    """

    result: Any
    notes: tuple[str, ...] = ()
    text: str | None = None


class TaskOptions(Struct, frozen=True):
    """The record of a call that a server answers with a task (`tasks`), for a caller whose calls outlive a process.

    Attributes:
        known: the handle of the task as text. Then nothing is sent but requests about this task. Empty for a new call.
        created: awaited with the handle of a new task as text, before the task is followed.
        is_left: returns True if a later process follows the task, so that the end of this one must not cancel it.
    """

    known: str = ""
    created: Callable[[str], Awaitable[None]] | None = None
    is_left: Callable[[], bool] = lambda: False


QuestionMethod = Literal["elicitation/create", "sampling/createMessage", "roots/list"]
"""Requests of a server to the client during a call (MCP 2025-11-25 and 2026-07-28)."""


class Question(Struct, frozen=True):
    """A question that a server needs answered to continue a call.

    Attributes:
        params: params of the MCP request, as the server sent them.
        by_program: True if a program asks. Programs are not trusted either.
    """

    server: str
    method: QuestionMethod
    params: JsonObject
    by_program: bool = False


AskFn = Callable[[Question], Awaitable[JsonObject]]


RootsFn = Callable[[], Awaitable[JsonObject]]
"""A function that returns the MCP result of `roots/list`, for a server that asks outside any call. It never raises."""


class Asking(Struct, frozen=True):
    """The person who can be asked on behalf of one call.

    Attributes:
        run: an id of the run. Clients of other runs are never asked.
        ask: returns the MCP result of the question (`{"action": "accept", "content": {...}}`, ...). Raises
            `errors.QuestionRefused`. It is cancelled when the server withdraws its question or the call ends.
        owner: the principal that the run belongs to.
        can_answer: returns True if a client of the run is able to answer this kind of question.
        queued: takes the reason why the call is not sent yet, in words.
        share: the share of the server that the call uses, such as that of one of several clients of the owner; empty
            for the owner's share. Calls of one share hardly delay those of another.
        on_start: called with True when the call begins to wait for the start of its server, and with False at the end
            of that wait.
    """

    run: str
    ask: AskFn
    owner: str = ""
    can_answer: Callable[[Question], bool] = lambda _: True
    queued: Callable[[str], None] = lambda _: None
    share: str = ""
    on_start: Callable[[bool], None] = lambda _: None


class ResourceListing(NamedTuple):
    """The resources that a server lists.

    Attributes:
        items: as in MCP (`list_repair`).
        ttl_ms: milliseconds for which the list is fresh by the hint of its server; 0 without a hint.
        is_private: True unless the server allows that other users get the same list.
    """

    items: tuple[JsonObject, ...]
    ttl_ms: int = 0
    is_private: bool = True


UpstreamState = Literal["idle", "connecting", "ready", "down", "stopped"]


class UpstreamView(Struct, frozen=True):
    """Facts about one upstream at one moment.

    Attributes:
        name: the server's name in the configuration.
        state: `idle`: the tools are known, and the next call starts the server. `connecting`: calls wait for the
            current attempt (the first one, or the one right after a connection was lost). `down`: calls fail with
            `error`, and attempts continue in the background.
        error: the reason for `down`, for a person; no secrets, no traceback.
        login_required: True if the server is down because it needs a login. `error` then has the command.
        server_name: the name of the server program, as the server states it.
        logged_in: True if the lists were requested with a stored login.
        tools: last known tools, also while the server is down.
        prompt_list, template_list: the prompts and resource templates of the server, as in MCP (`list_repair`);
            None while they are not listed yet.
        resource_list: the last known resources of the server, as in MCP; None if they were never requested. They are
            requested when they are first needed (`ItemSource.list_resources`).
        withheld: the tools of the server that are not in `tools`, each with the reason, as a sentence for a model.
        server_info: the server's description of itself (`Implementation` of MCP), as JSON; None without one.
        resources, prompts, completions, logging: True if the server has this capability.
        resource_subscriptions: True if the server announces updates of resources on request.
        era: `"modern"` or `"legacy"` protocol, once connected.
        problems: repairs and failures of the server's lists, one sentence each.
        refused_lists: the lists of prompts and so on that the server has answered without a list, or not in time, when
            they were last requested.
        asks_for_roots: True if the server has asked for the roots of a client, now or in an earlier process.
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
    asks_for_roots: bool = False
    server_name: str | None = None
    logged_in: bool = False
    prompt_list: tuple[JsonObject, ...] | None = None
    template_list: tuple[JsonObject, ...] | None = None
    resource_list: tuple[JsonObject, ...] | None = None
    server_info: JsonObject | None = None
    logging: bool = False
    resource_subscriptions: bool = False
    withheld: Mapping[str, str] = field(default_factory=dict)
    refused_lists: frozenset[str] = frozenset()

    @property
    def is_listed(self) -> bool:
        """True if the tools are known, now or from an earlier process."""
        return self.era is not None or bool(self.tools)


HintFn = Callable[[int, bool], None]
"""A function that takes the milliseconds for which an answer is fresh, and True if it is private."""


class RequestOptions(TypedDict, total=False):
    """Options of a request other than a call.

    Attributes:
        on_progress: takes the progress that the server reports.
        asking: the person who can be asked; None if no person can be asked.
        on_sent, begin: see `SentFn`, `BeginFn`.
        admit_view: called right before each time that the request is sent, with the view of the process that gets it.
            If it raises, nothing more is sent. Requests about prompts and resources first wait until the server has
            listed its prompts or resource templates since it last announced a change.
        on_hint: takes the caching hint of the answer of a modern server: the milliseconds for which it still is fresh,
            and whether it is for one login only. Not called for answers without such a time.
        on_cached: called in place of `begin` and `on_sent`, if an earlier answer of the server is used again
            (`resource_state`). If it raises, the answer is not used.
    """

    asking: Asking | None
    on_sent: SentFn | None
    begin: BeginFn | None
    on_progress: ProgressFn | None
    on_hint: HintFn | None
    on_cached: SentFn | None
    admit_view: Callable[[UpstreamView], None] | None


class CallOptions(TypedDict, total=False):
    """Options of a call.

    Attributes:
        on_progress: takes the progress that the server reports.
        timeout: limit in seconds; None for the limit of the source. The clock stops while a question is open.
        asking: the person who can be asked; None if no person can be asked.
        on_sent, admit, begin: see `SentFn`, `AdmitFn`, `BeginFn`.
        task: what to do if the server answers with a task; None if the task ends with the caller.
    """

    on_progress: ProgressFn | None
    timeout: float | None
    asking: Asking | None
    on_sent: SentFn | None
    admit: AdmitFn | None
    begin: BeginFn | None
    task: TaskOptions | None


class ToolSource(Protocol):
    """A source of tools with one name: an MCP connection, a plugin, a fake."""

    @property
    def name(self) -> str: ...

    def view(self) -> UpstreamView: ...

    async def call_tool(self, tool: str, arguments: JsonObject, **options: Unpack[CallOptions]) -> ToolOutcome:
        """Call one tool. Cancelling the caller cancels the call at the server.

        Raises:
            errors.UpstreamUnavailable: the call was not sent.
            errors.UpstreamCallError: the tool did not answer.
        """
        ...

    async def request(self, method: str, params: JsonObject, **options: Unpack[RequestOptions]) -> JsonObject:
        """Return the result of `resources/list`, `resources/read`, `resources/templates/list`, `prompts/list`,
        `prompts/get` or `completion/complete`. Raises as `call_tool`."""
        ...


class ItemSource(ToolSource, Protocol):
    """A server whose resources can be listed and observed."""

    async def list_resources(self) -> ResourceListing:
        """Return the resources of the server.

        A connected server is asked if its list is not known, or may have changed. A server that is not connected is
        started only if no list is known.

        Raises:
            errors.UpstreamUnavailable: no list is known, and the server is down.
            errors.UpstreamCallError: no list is known, and the server did not answer with one.
        """
        ...

    async def subscribe(self, uri: str, on_update: UpdateFn) -> Callable[[], None]:
        """Have updates of a resource reported, until the returned function is called.

        The server is started, and not closed as long as there is a subscription. After a lost connection, the
        subscription continues with the next one, and one update is reported, since some may have been missed. This also
        applies if the server gets another definition. If it is removed, the subscription ends without notice.

        Args:
            on_update: gets the URI that the server has named: the resource or a part of it.

        Raises:
            errors.UpstreamUnavailable: the server is down.
            errors.UpstreamCallError: the server refuses, or has too many subscriptions.
        """
        ...

    def on_log(
        self, listener: LogFn, level: LogLevel, owner: str | None = None, *, known_only: bool = False
    ) -> Callable[[], None]:
        """Have log messages of the server reported from a level on, until the returned function is called.

        The server is not started for this. Like a subscription, it continues with another definition of the server.

        Args:
            owner: the owner whose calls the messages may be about (`Asking.owner`); None for all.
            known_only: True to leave out messages that belong to no known call. Otherwise all listeners get them.

        Raises:
            ValueError: the level is unknown.
        """
        ...


# The caching hints of a modern server: how long a result may be used again, and by whom.
#
# Source: MCP 2026-07-28, Caching (SEP-2549). Results of older revisions have no hints, even if they have such members.


MAX_TTL_MS: Final = 24 * 60 * 60 * 1000
"""Longest time that is honoured, in milliseconds."""


class CacheHint(NamedTuple):
    """The hint of one result.

    Attributes:
        ttl_ms: milliseconds for which the result counts as fresh; 0 if it has no such time.
        is_private: True if the result is for one login only.
    """

    ttl_ms: int = 0
    is_private: bool = True


NO_HINT: Final = CacheHint()


def read_hint(result: Mapping[str, Any]) -> CacheHint:
    """Return the hint of a result of a modern server. A malformed time counts as none."""
    ttl_ms = result.get("ttlMs")
    if isinstance(ttl_ms, bool) or not isinstance(ttl_ms, int):
        ttl_ms = 0
    return CacheHint(min(max(ttl_ms, 0), MAX_TTL_MS), result.get("cacheScope") != "public")


def combined(hints: Iterable[CacheHint]) -> CacheHint:
    """Return the hint of all pages of a list: the shortest time, and private if any page is."""
    found = tuple(hints)
    if not found:
        return NO_HINT
    return CacheHint(min(hint.ttl_ms for hint in found), any(hint.is_private for hint in found))
