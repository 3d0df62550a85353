"""A run manager on fakes: the real sandbox, catalog, dispatcher and store, with scripted upstream servers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio

from codemode_mcp.audit import Auditor
from codemode_mcp.audit.recordings.recordings import Recordings
from codemode_mcp.base.errors import CodeModeError
from codemode_mcp.base.settings import ApprovalSettings, CodeModeSettings, PolicyRules, ToolSettings, Via
from codemode_mcp.catalog import client_tools
from codemode_mcp.catalog.catalog import Catalog
from codemode_mcp.catalog.client_tools import ClientTools
from codemode_mcp.catalog.entries import Entry, OfferedNamespace, OfferedTool
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.catalog.plugins.interception import Interceptors
from codemode_mcp.catalog.saved_programs.folder import EMPTY
from codemode_mcp.catalog.toolset import select_tools
from codemode_mcp.program.typescript import Transformed
from codemode_mcp.rules.policy.approval import ApprovalQuestion, RememberFn
from codemode_mcp.rules.policy.policy import Caller, Policy
from codemode_mcp.runs.calls.dispatch import Dispatcher
from codemode_mcp.runs.calls.outcome import Outcome
from codemode_mcp.runs.manager import Cell, RunManager, Services, open_manager
from codemode_mcp.runs.questions import Client, RunNotes, Way
from codemode_mcp.runs.store import MemoryStore, RunStore
from codemode_mcp.runs.values import MemoryValues, Values
from codemode_mcp.sandbox.engine import Engine
from tests.values import replace
from upstream_clients.tools import JsonObject, Question, QuestionMethod, ToolSource

OWNER = "somebody"
CALLER = Caller(OWNER)


class Clock:
    """Monotonic seconds that a test can move on."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._ahead

    def advance(self, seconds: float) -> None:
        self._ahead += seconds


class FakeClient:
    """A client that is asked, gets the questions as an answer, or neither, as told; see `runs.questions.Client`.

    `ask` gives out `replies` in order, and waits where there is none. What it was asked is in `asked`.
    """

    def __init__(
        self,
        way: Way = "none",
        *,
        replies: Sequence[JsonObject] = (),
        lasting: bool = False,
        supported: Collection[QuestionMethod] = (),
    ) -> None:
        self.lasting = lasting
        self.polls = False
        self.supported = frozenset(supported)
        self.asked: list[Question | ApprovalQuestion] = []
        self.taken_back = 0
        self.is_asked = anyio.Event()
        self.heard: list[str] = []
        self.notes: RunNotes | None = None
        self.on_progress: Callable[[], None] = lambda: None
        self._way = way
        self._replies = list(replies)

    def progress(self, source: str, message: str) -> None:
        self.heard.append(message)
        self.on_progress()

    def way(self, question: Question | ApprovalQuestion) -> Way:
        return self._way

    async def ask(self, question: Question | ApprovalQuestion) -> JsonObject:
        self.asked.append(question)
        self.is_asked.set()
        if self._replies:
            return self._replies.pop(0)
        try:
            await anyio.sleep_forever()
        finally:
            self.taken_back += 1


class PluginsLike(Protocol):
    """Plugins, as far as a run needs them."""

    def tools(self) -> Sequence[OfferedTool]: ...

    def namespaces(self) -> Sequence[OfferedNamespace]: ...

    def source(self, plugin: str) -> ToolSource:
        """Raises KeyError."""
        ...


class Bench:
    """The manager of a test, with its sources and its clock."""

    def __init__(
        self,
        sources: Collection[ToolSource],
        rules: PolicyRules,
        settings: CodeModeSettings,
        plugins: PluginsLike | None = None,
        interception: Interceptors | None = None,
        store: RunStore | None = None,
        via: Via = "auto",
    ) -> None:
        self.sources = {source.name: source for source in sources}
        self.plugins = plugins
        self.rules = rules
        self.settings = settings
        self.via: Via = via
        self.dispatcher = Dispatcher(
            lambda entry, _: self.source(entry), self.dispatcher_settings(rules), interception=interception
        )
        self.auditor = Auditor()
        self.clock = Clock()
        self.store = store or MemoryStore(settings, self.clock)
        self.library = EMPTY
        self.waited_for: list[set[str] | None] = []
        self.manager: RunManager

    def dispatcher_settings(self, rules: PolicyRules) -> ToolSettings:
        return ToolSettings(code_mode=self.settings, policy=rules, approval=ApprovalSettings(self.via))

    def source(self, entry: Entry) -> ToolSource:
        if entry.source == "client":
            return ClientTools()
        if entry.source == "plugin":
            assert self.plugins is not None
            return self.plugins.source(entry.source_name)
        return self.sources[entry.source_name]

    def catalog(self) -> Catalog:
        views = [source.view() for source in self.sources.values()]
        offered = () if self.plugins is None else self.plugins.tools()
        namespaces = () if self.plugins is None else self.plugins.namespaces()
        catalog = build(views, Policy(self.rules), offered=offered, namespaces=namespaces)
        programs, broken = self.library.programs, self.library.broken
        if not programs and not broken:
            return catalog
        return catalog.with_tools(select_tools(offered, namespaces, Policy(self.rules), None, programs, broken))

    async def catalog_for(self, caller: Caller, client: Client | None) -> Catalog:
        catalog = self.catalog()
        if client is None or not client.supported:
            return catalog
        offered = (
            (*self.plugins.tools(), *client_tools.offered_by_client(client.supported))
            if self.plugins
            else client_tools.offered_by_client(client.supported)
        )
        return catalog.with_tools(select_tools(offered, catalog.namespaces, Policy(self.rules)))

    def servers_for(self, caller: Caller, names: Collection[str] | None) -> set[str] | None:
        if names is None:
            return None
        return {each.name for each in self.catalog().servers if each.name in names or each.identifier in names}

    async def wait_settled(self, names: Collection[str] | None, seconds: float) -> None:
        self.waited_for.append(None if names is None else set(names))

    async def transform(self, source: str) -> Transformed:
        raise AssertionError("no TypeScript in these tests")

    async def execute(self, code: str, *, caller: Caller = CALLER, **options: Any) -> Outcome:
        return await self.manager.execute(Cell(code, "javascript", caller), **options)

    async def observe(self, run_id: str, *, owner: str = OWNER, **options: Any) -> Outcome:
        return await self.manager.observe(run_id, owner, **options)

    async def finish(self, run_id: str) -> tuple[Outcome, ...]:
        """Wait for a run until it has ended, as often as a busy machine needs. Return all answers."""
        outcomes = [await self.observe(run_id)]
        while outcomes[-1].status == "waiting":
            outcomes.append(await self.observe(run_id))
        return tuple(outcomes)


@asynccontextmanager
async def bench(
    engine: Engine,
    *sources: ToolSource,
    rules: PolicyRules | None = None,
    plugins: PluginsLike | None = None,
    interception: Interceptors | None = None,
    remember: RememberFn | None = None,
    values: Values | None = None,
    store: RunStore | None = None,
    via: Via = "auto",
    recordings: Recordings | None = None,
    **settings: Any,
) -> AsyncIterator[Bench]:
    """A manager over `sources` and `plugins`; `settings` are fields of `CodeModeSettings`."""
    chosen = replace(CodeModeSettings(timeout_ms=5_000), **settings)
    opened = Bench(sources, rules or PolicyRules(), chosen, plugins, interception, store, via)

    async def ready() -> Engine:
        return engine

    services = Services(
        engine=ready,
        dispatcher=opened.dispatcher,
        store=opened.store,
        values=values or MemoryValues(chosen.store_max_bytes),
        upstreams=opened,
        transform=opened.transform,
        clock=opened.clock,
        auditor=opened.auditor,
        registered=plugins,
        remember=remember,
        library=lambda: opened.library,
        recordings=recordings,
    )
    async with open_manager(services, chosen) as manager:
        opened.manager = manager
        yield opened


async def ran(
    engine: Engine,
    code: str,
    *sources: ToolSource,
    client: Client | None = None,
    caller: Caller = CALLER,
    on_output: Callable[[list[JsonObject]], None] | None = None,
    **options: Any,
) -> Outcome:
    """Return the answer to a program on a bench of its own, which takes the other options."""
    async with bench(engine, *sources, **options) as it:
        try:
            return await it.execute(code, caller=caller, client=client, on_output=on_output)
        except CodeModeError as error:  # raised in a task group, it would come in a group
            failed = error
    raise failed


def texts(outcome: Outcome) -> list[str]:
    """The text outputs."""
    return [item["text"] for item in outcome.outputs]
