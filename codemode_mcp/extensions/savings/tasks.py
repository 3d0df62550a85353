"""The sizes of tools in a prompt, and the bytes that recorded runs have sent through the model. Pure."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct, field, structs

from codemode_mcp.audit.events import mapping, number, text
from codemode_mcp.base.text import utf8_size
from codemode_mcp.server.descriptions import listed_bytes, prompt_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from upstream_clients.tools import Tool


Reads = Literal["content", "structured"]
"""The part of a result that a client shows its model: the content blocks, or `structuredContent` if there is any."""

Kind = Literal["task", "single", "look-up", "failed", "refused", "open"]
"""The kind of a task.

`single`: the program made one nested call. `look-up`: the program made no call. `task`: the program made several calls.
`failed`: the program did not complete. `refused`: the program did not start. `open`: no end is recorded.
"""

_NOT_DIRECT: Final = ("core:", "client:", "program:")
"""Prefixes of the ids of what does not exist in direct calling. The calls of a saved program count themselves."""


class Task(Struct, frozen=True):
    """One run, or one request that started no run. Sizes are in bytes.

    Attributes:
        id: the id of the run, or of the request.
        began: Unix seconds.
        requests: number of requests that the model wrote: `exec` and each `wait`.
        sent: size of the arguments of these requests.
        shown: size of the answers to these requests.
        calls: number of nested calls of tools that could have been called directly.
        repeats: number of these calls that repeat an earlier repeatable call. With direct calling, the model would have
            had the answer already.
        arguments, results: sizes of arguments and results of these calls, without the repeats.
        tools: number of different tools that were called.
    """

    id: str
    began: float
    kind: Kind
    requests: int = 0
    sent: int = 0
    shown: int = 0
    calls: int = 0
    repeats: int = 0
    arguments: int = 0
    results: int = 0
    tools: int = 0

    @property
    def through(self) -> int:
        """Return the bytes that went through the model."""
        return self.sent + self.shown

    @property
    def failed(self) -> bool:
        """Return True if the program failed or did not start."""
        return self.kind in ("failed", "refused")

    @property
    def direct(self) -> int:
        """Return the bytes that direct calling would have taken.

        This is 0 for a failed task, because the next attempt makes the same calls again.
        """
        return 0 if self.failed else self.arguments + self.results

    @property
    def steps_saved(self) -> int:
        """Return the number of steps of the model that code mode has saved; negative if code mode took more."""
        return (0 if self.failed else self.calls - self.repeats) - self.requests

    @property
    def stayed(self) -> int:
        """Return the bytes of results that the model did not see."""
        return 0 if self.failed else max(0, self.results - self.shown)

    @property
    def saved(self) -> int:
        """Return the bytes that code mode has saved; negative if it cost more."""
        return self.direct - self.through


class Tasks(Struct, frozen=True):
    """The tasks of a trajectory.

    Attributes:
        all: tasks in the order in which they began.
        unmeasured: number of runs for which sizes or the beginning are not recorded.
        terminal: number of runs from `codemode-mcp run` and other commands. No model wrote their programs.
        passed: number of calls in pass-through mode. These are direct calls.
        lost: number of events that were not recorded.
    """

    all: tuple[Task, ...] = ()
    unmeasured: int = 0
    terminal: int = 0
    passed: int = 0
    lost: int = 0

    @property
    def through(self) -> int:
        return sum(task.through for task in self.all)

    @property
    def direct(self) -> int:
        return sum(task.direct for task in self.all)

    @property
    def saved(self) -> int:
        return self.direct - self.through

    @property
    def costlier(self) -> tuple[Task, ...]:
        return tuple(task for task in self.all if task.saved < 0)


class _Request(Struct):
    began: float
    kind: str
    run: str = ""
    sent: int | None = None
    shown: int | None = None
    answered: bool = False

    @property
    def by_model(self) -> bool:
        """Return False if the client only delivers a person's answers. The model has written nothing then."""
        return self.sent != 0

    @property
    def sized(self) -> bool:
        return self.sent is not None and (self.shown is not None or not self.answered)


class _Run(Struct):
    first: float
    """Unix seconds of the first event of the run."""
    began: float | None = None
    parent: str | None = None
    status: str = ""
    calls: int = 0
    repeats: int = 0
    arguments: int = 0
    results: int = 0
    requests: list[_Request] = field(default_factory=list)
    tools: set[str] = field(default_factory=set)
    asked: set[tuple[str, str]] = field(default_factory=set)
    """Tools and argument digests of repeatable calls that have ended."""

    def begin(self, event: Mapping[str, Any]) -> tuple[int, tuple[str, str]]:
        """Count the beginning of a call. Return the argument size, and the tool with the argument digest, for `end`."""
        given = mapping(event, "input")
        size = _size(given, "bytes") or 0
        self.calls += 1
        self.tools.add(text(event, "tool"))
        self.arguments += size
        return size, (text(event, "tool"), text(given, "digest"))

    def end(self, event: Mapping[str, Any], begun: tuple[int, tuple[str, str]] | None, reads: Reads) -> None:
        """Count the end of a call.

        Args:
            begun: the value that `begin` returned for this call; None if its beginning is not recorded.
        """
        if begun is not None and begun[1][1] and event.get("repeatable") is True:
            if begun[1] in self.asked:
                self.repeats += 1
                self.arguments -= begun[0]
                return
            self.asked.add(begun[1])
        seen = _seen(event, reads)
        self.results += (_size(event, "bytes") or 0) if seen is None else seen


def tasks_of(events: Iterable[Mapping[str, Any]], reads: Reads = "content", since: float = 0.0) -> Tasks:
    """Return the tasks of a trajectory.

    Args:
        events: the events in the order in which they were written. Invalid events are ignored.
        since: Unix seconds. Tasks that began earlier are left out.
    """
    requests: dict[str, _Request] = {}
    runs: dict[str, _Run] = {}
    calls: dict[str, tuple[int, tuple[str, str]]] = {}
    passed = lost = 0
    for event in events:
        about, when = event.get("id"), number(event.get("time"))
        if when is None:
            continue
        if event.get("kind") == "lost":
            lost += _size(event, "events") or 0 if when >= since else 0
            continue
        if not isinstance(about, str):
            continue
        run_id = about.partition("/")[0]
        match event.get("kind"):
            case "exec" | "wait" as kind:
                requests[about] = _Request(when, kind, text(event, "run"), _size(event, "bytes"))
            case "answered" if about in requests:
                request = requests[about]
                request.answered, request.run = True, text(event, "run")
                nothing = text(event, "status") in ("asks", "cancelled")
                request.shown = 0 if nothing else _seen(event, reads)
            case "run_started":
                run = runs.setdefault(about, _Run(when))
                run.began, run.parent = when, text(event, "parent") or None
            case "call_started" if run_id.startswith("run_") and _counts(event):
                calls[about] = runs.setdefault(run_id, _Run(when)).begin(event)
            case "call_started" if run_id.startswith("call_") and when >= since:
                passed += 1
            case "call_ended" if run_id.startswith("run_") and _counts(event):
                runs.setdefault(run_id, _Run(when)).end(event, calls.pop(about, None), reads)
            case "run_ended":
                runs.setdefault(about, _Run(when)).status = text(event, "status")
    return _assembled(requests, runs, since, passed, lost)


def _assembled(
    requests: Mapping[str, _Request], runs: Mapping[str, _Run], since: float, passed: int, lost: int
) -> Tasks:
    of_parent = {run.parent: run for run in runs.values() if run.parent is not None}
    tasks: list[Task] = []
    unmeasured = terminal = 0
    for request_id, request in requests.items():
        run = of_parent.get(request_id) or runs.get(request.run)
        if run is not None:
            run.requests.append(request)
        elif request.began >= since and request.by_model and request.answered:
            if request.sized:
                tasks.append(Task(request_id, request.began, "refused", 1, request.sent or 0, request.shown or 0))
            else:
                unmeasured += 1
    for run_id, run in runs.items():
        if (run.first if run.began is None else run.began) < since:
            continue
        if run.began is not None and run.parent is None:
            terminal += 1
            continue
        whole = any(each.kind == "exec" for each in run.requests) and all(each.sized for each in run.requests)
        if run.began is None or not whole:
            unmeasured += 1
            continue
        tasks.append(
            Task(
                run_id,
                run.began,
                _kind(run),
                sum(each.by_model for each in run.requests),
                sum(each.sent or 0 for each in run.requests),
                sum(each.shown or 0 for each in run.requests),
                run.calls,
                run.repeats,
                run.arguments,
                run.results,
                len(run.tools),
            )
        )
    return Tasks(tuple(sorted(tasks, key=lambda task: task.began)), unmeasured, terminal, passed, lost)


def _kind(run: _Run) -> Kind:
    if run.status and run.status != "completed":
        return "failed"
    if not run.status:
        return "open"
    return "look-up" if run.calls == 0 else "single" if run.calls == 1 else "task"


def _counts(event: Mapping[str, Any]) -> bool:
    return not text(event, "tool").startswith(_NOT_DIRECT)


def _seen(event: Mapping[str, Any], reads: Reads) -> int | None:
    """Return the bytes of a result that the model sees, or None if they are not recorded."""
    structured = _size(event, "structured_bytes")
    return structured if reads == "structured" and structured is not None else _size(event, "text_bytes")


def _size(event: Mapping[str, Any], key: str) -> int | None:
    value = event.get(key)
    # A file that was not written by this program may have negative, fractional or huge numbers here.
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


# The sizes of tools in a prompt: the tools of all servers if added directly, and `exec` and `wait`.


State = Literal["listed", "remembered", "unknown"]
"""The source of a tool list.

`listed`: the server has listed its tools. `remembered`: the list is from an earlier connection. `unknown`: no list.
"""

_HINTS = (
    ("readOnlyHint", "read_only"),
    ("destructiveHint", "destructive"),
    ("idempotentHint", "idempotent"),
    ("openWorldHint", "open_world"),
)


class Weight(Struct, frozen=True):
    """The sizes of some tools, in bytes.

    Attributes:
        tools: number of tools.
        prompt: names, descriptions and input schemas, which clients pass to the model.
        listing: everything in `tools/list`.
        instructions: the instructions of the server, which some clients put into the prompt too.
    """

    tools: int = 0
    prompt: int = 0
    listing: int = 0
    instructions: int = 0

    def __add__(self, other: Weight) -> Weight:
        return Weight(
            *(mine + others for mine, others in zip(structs.astuple(self), structs.astuple(other), strict=True))
        )


class Server(Struct, frozen=True):
    """One server, with its sizes if it is added to a client directly.

    Attributes:
        declarations: bytes of the server's declaration file.
        why: the reason for a state other than `listed`.
    """

    name: str
    weight: Weight
    declarations: int = 0
    state: State = "listed"
    why: str = ""


class Exposure(Struct, frozen=True):
    """The sizes of all servers, and of `exec` and `wait`.

    Attributes:
        own: the sizes of `exec` and `wait`, as this server lists them with these servers.
        index: bytes of `mcp/index.d.ts`.
        one_tool: the median size of the declaration of one tool, in bytes.
        searching: the sizes of `search` and `call`.
    """

    servers: tuple[Server, ...]
    own: Weight
    index: int = 0
    one_tool: int = 0
    searching: Weight = Weight()

    @property
    def direct(self) -> Weight:
        return sum((server.weight for server in self.servers), Weight())

    @property
    def reading(self) -> int:
        """Return the bytes of declarations that a task typically reads.

        This is the median size of the declaration files of servers with tools, because the description of `exec` tells
        models to read the file of one server first.
        """
        files = [server.declarations for server in self.servers if server.weight.tools]
        return statistics.median_low(files) if files else 0

    @property
    def saved(self) -> int:
        """Return the bytes of the prompt that code mode saves; negative if code mode takes more."""
        return self.direct.prompt - self.own.prompt

    def pays_from(self, *, reading: bool = False) -> tuple[int, int] | None:
        """Return the least numbers of tools and of servers with which code mode saves bytes; None without tools.

        Args:
            reading: add the bytes of declarations that a task reads.
        """
        direct, known = self.direct, sum(server.weight.tools > 0 for server in self.servers)
        if not direct.tools:
            return None
        needed = self.own.prompt + (self.reading if reading else 0) + 1
        return math.ceil(needed * direct.tools / direct.prompt), math.ceil(needed * known / direct.prompt)


def weigh(items: Sequence[Mapping[str, Any]], instructions: str | None = None) -> Weight:
    """Return the sizes of tools. Each item has the form of an item in `tools/list`."""
    return Weight(len(items), prompt_bytes(items), listed_bytes(items), utf8_size(instructions or ""))


def as_listed(tool: Tool) -> dict[str, Any]:
    """Return a tool in the form of `tools/list`. Icons and `_meta` are missing, because they are not stored."""
    annotations = {
        key: value for key, attribute in _HINTS if (value := getattr(tool.annotations, attribute)) is not None
    }
    item = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description or None,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": annotations or None,
    }
    return {key: value for key, value in item.items() if value is not None}
