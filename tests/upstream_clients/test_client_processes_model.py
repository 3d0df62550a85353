"""Any history of clients, roots, questions and calls, without real processes: no process mixes clients."""

from contextvars import ContextVar

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties import examples
from upstream_clients import JsonObject, UpstreamSpec
from upstream_clients.client_processes import ClientRoots, RunningServer, SharedServer

CLIENTS = ("ada", "bob", "eve")
ROOTS = st.frozensets(st.sampled_from(["file:///a", "file:///b"]))

steps = st.one_of(
    st.tuples(st.just("connect"), st.sampled_from(CLIENTS), ROOTS),
    st.tuples(st.just("change"), st.sampled_from(CLIENTS), ROOTS),
    st.tuples(st.just("leave"), st.sampled_from(CLIENTS)),
    st.tuples(st.just("call"), st.sampled_from(CLIENTS), st.booleans()),
    st.tuples(st.just("ask"), st.integers(0, 3)),
    st.tuples(st.just("start")),
    st.tuples(st.just("idle"), st.integers(0, 3)),
)


class History:
    """A server with fake processes.

    Attributes:
        got: the roots that each process has got last, outside calls or from its only caller.
    """

    def __init__(self, share: str) -> None:
        self.roots: dict[str, frozenset[str]] = {}
        self.clients = ClientRoots()
        self.started: list[RunningServer] = []
        spec = UpstreamSpec("srv", command="x", share=share)  # type: ignore[arg-type]
        self.server = SharedServer(spec, self.clients, self.started.append)
        self.server.main.upstream.report_idle()
        self.got: dict[RunningServer, frozenset[str]] = {}
        self.callers: dict[RunningServer, set[str]] = {}

    @property
    def processes(self) -> list[RunningServer]:
        return [self.server.main, *self.server._others]

    async def connect(self, client: str, roots: frozenset[str]) -> None:
        if client not in self.roots:
            self.roots[client] = roots

            async def list_roots() -> JsonObject:
                await anyio.lowlevel.checkpoint()
                return {"roots": [{"uri": uri} for uri in self.roots[client]]}

            self.clients.offer(client, list_roots)

    async def change(self, client: str, roots: frozenset[str]) -> None:
        if client in self.roots:
            self.roots[client] = roots
            self.clients.changed(client)
            await self.clients.learn(client)
            self.server.end_unneeded()

    async def leave(self, client: str) -> None:
        if self.roots.pop(client, None) is not None:
            self.clients.forget(client)
            self.server.end_unneeded()

    async def call(self, client: str, asks: bool) -> None:
        while (process := self.server.process_of(client)) is None:
            await self.server.learn_roots_of(client)
        assert self.server.serves(process, client)
        if process.upstream.view().state == "idle":
            self.got.pop(process, None)
            self.callers.pop(process, None)
            process.upstream.report_connecting()
        if client not in self.roots:
            return
        if self.server.spec.share == "client":
            assert self.callers.setdefault(process, {client}) == {client}
        else:
            assert self.got.get(process, self.roots[client]) == self.roots[client]
        if asks:
            process.note_roots(client, None)
            answer = {"roots": [{"uri": uri} for uri in self.roots[client]]}
            process.note_roots(client, answer)
            self.got[process] = self.roots[client]

    async def ask(self, number: int) -> None:
        process = self.processes[number % len(self.processes)]
        if process.upstream.view().state != "idle":
            with anyio.fail_after(20):
                answer = await process.list_roots()
            if answer["roots"] or self.roots:
                self.got[process] = frozenset(root["uri"] for root in answer["roots"])

    async def start(self) -> None:
        if self.server.main.upstream.view().state == "idle":
            self.server.main.upstream.report_connecting()
            self.got.pop(self.server.main, None)
            self.callers.pop(self.server.main, None)

    async def idle(self, number: int) -> None:
        self.processes[number % len(self.processes)].upstream.report_idle()

    def check(self) -> None:
        keys = [process.key for process in self.processes if process.key is not None]
        assert len(keys) == len(set(keys)), "two processes serve the same clients"
        for process in self.server._others:
            assert process in self.started
            assert process.upstream.view().state != "stopped"
            assert process.key == "" or any(self.server._needs(client, process.key) for client in self.clients)


@pytest.mark.parametrize("share", ["user", "client"])
@settings(max_examples=examples(100), deadline=None)
@given(history=st.lists(steps, max_size=30))
def test_a_process_that_has_got_roots_serves_only_clients_with_these_roots(
    share: str, history: list[tuple[object, ...]]
) -> None:
    async def run() -> None:
        model = History(share)
        for name, *arguments in history:
            await getattr(model, str(name))(*arguments)
            model.check()

    anyio.run(run)


@pytest.mark.anyio
@pytest.mark.parametrize(("share", "context"), [("user", "all"), ("client", "eve")])
async def test_a_process_for_several_clients_is_not_started_in_the_context_of_one(share: str, context: str) -> None:
    user = ContextVar("user", default="all")
    began: list[str] = []
    clients = ClientRoots()
    spec = UpstreamSpec("srv", command="x", share=share)  # type: ignore[arg-type]
    server = SharedServer(spec, clients, lambda _: began.append(user.get()))
    server.main.upstream.report_asks_for_roots()
    server.main.upstream.report_connecting()
    for client in ("ada", "eve", "ada"):
        user.set(client)
        clients.offer(client, None)
        clients.note(client, {"roots": [{"uri": f"file:///{client}"}]})
        server.process_of(client)
    assert began == [context]
    began.clear()
    clients.forget("ada")  # the main process served it, and is replaced
    server.end_unneeded()
    assert began == ["all"]
