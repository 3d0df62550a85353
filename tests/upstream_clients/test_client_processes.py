"""Servers with several processes: for each set of roots, and for each client."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from counted_processes import Processes, said
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties import examples
from upstream_clients import Asking, JsonObject, Question, UpstreamPool, UpstreamSpec
from upstream_clients.client_processes import ClientRoots, RunningServer, SharedServer
from upstream_clients.listing import ListingCache
from upstream_clients.pool import SharedServers

pytestmark = pytest.mark.anyio


class Client:
    """A client with roots, which counts how often it is asked."""

    def __init__(self, key: str, *uris: str) -> None:
        self.key = key
        self.uris = uris
        self.asked = 0
        self.answers = anyio.Event()
        self.answers.set()

    @property
    def roots(self) -> JsonObject:
        return {"roots": [{"uri": uri, "name": f"{self.key}'s"} for uri in self.uris]}

    async def list_roots(self) -> JsonObject:
        self.asked += 1
        await self.answers.wait()
        return self.roots

    async def ask(self, question: Question) -> JsonObject:
        assert question.method == "roots/list"
        return await self.list_roots()

    @property
    def asking(self) -> Asking:
        return Asking(f"run of {self.key}", self.ask, self.key)


@asynccontextmanager
async def pool_with(
    processes: Processes, *clients: Client, flags: str = "", **more: Any
) -> AsyncIterator[UpstreamPool]:
    async with SharedServers() as shared, UpstreamPool([processes.spec(*flags.split(), **more)], shared=shared) as pool:
        for client in clients:
            pool.offer_roots(client.key, client.list_roots)
        yield pool


async def pid(pool: UpstreamPool, client: Client | None) -> int:
    return int(await said(pool.source("srv", None if client is None else client.key)))


async def roots_seen(pool: UpstreamPool, client: Client) -> set[str]:
    """Return the roots that the process for a client has got last."""
    outcome = await pool.source("srv", client.key).call_tool("roots", {}, timeout=20, asking=client.asking)
    answer = json.loads(outcome.result["content"][0]["text"])
    return {root["uri"] for root in answer["roots"]}


async def test_clients_with_different_roots_share_a_server_that_never_asks(processes: Processes) -> None:
    ada, bob = Client("ada", "file:///ada"), Client("bob", "file:///bob")
    async with pool_with(processes, ada, bob) as pool:
        assert await pid(pool, ada) == await pid(pool, bob) == await pid(pool, None)
        assert (ada.asked, bob.asked, len(processes.pids)) == (0, 0, 1)


@pytest.mark.parametrize("flags", ["roots", "roots_in_call"])
async def test_clients_with_different_roots_have_processes_that_see_their_own(flags: str, processes: Processes) -> None:
    ada, bob, eve = Client("ada", "file:///a"), Client("bob", "file:///b"), Client("eve", "file:///a", "file:///b")
    async with pool_with(processes, ada, bob, eve, flags=flags) as pool:
        for client in (ada, bob, eve, bob, ada):
            assert await roots_seen(pool, client) == set(client.uris)
        assert len({await pid(pool, client) for client in (ada, bob, eve)}) == 3
        assert len(processes.alive) == 3
    assert processes.alive == []


@pytest.mark.parametrize("flags", ["roots", "roots_in_call"])
async def test_clients_with_equal_roots_share_a_process(flags: str, processes: Processes) -> None:
    ada, bob = Client("ada", "file:///b", "file:///a"), Client("bob", "file:///a", "file:///b")
    async with pool_with(processes, ada, bob, flags=flags) as pool:
        for client in (ada, bob):
            assert await roots_seen(pool, client) == {"file:///a", "file:///b"}
        assert await pid(pool, ada) == await pid(pool, bob)
        assert len(processes.pids) == 1


@pytest.mark.parametrize("starts", [True, False])
async def test_a_client_that_names_its_roots_only_in_calls_is_asked_in_its_next_call(
    starts: bool, processes: Processes
) -> None:
    ada = Client("ada", "file:///a")
    async with pool_with(processes, flags="roots renews") as pool:
        pool.offer_roots("ada", None)
        if not starts:
            await pid(pool, None)  # the server has asked no client
        for _ in range(2):
            assert await roots_seen(pool, ada) == {"file:///a"}
        assert ada.asked == 1


async def test_a_client_without_roots_does_not_get_those_that_another_one_has_named_in_its_calls(
    processes: Processes,
) -> None:
    ada, bob = Client("ada", "file:///a"), Client("bob")
    async with pool_with(processes, flags="roots renews") as pool:
        for client in (ada, bob):
            pool.offer_roots(client.key, None)
        for _ in range(2):
            await roots_seen(pool, ada)
            assert await roots_seen(pool, bob) == set()


async def test_a_server_that_does_not_ask_again_delays_only_one_call(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upstream_clients.question_routing.RENEWAL_SECONDS", 0.05)
    ada = Client("ada", "file:///a")
    async with pool_with(processes, flags="roots") as pool:
        pool.offer_roots("ada", None)
        assert [await roots_seen(pool, ada) for _ in range(2)] == [set(), set()]
        assert ada.asked == 0


async def test_clients_of_different_pools_with_equal_roots_share_a_process(processes: Processes) -> None:
    ada, bob, eve = Client("ada", "file:///a"), Client("bob", "file:///b"), Client("eve", "file:///a")
    spec = processes.spec("roots")
    async with SharedServers() as shared, UpstreamPool([spec], shared=shared) as one:
        async with UpstreamPool([spec], shared=shared) as two:
            for pool, client in ((one, ada), (one, bob), (two, eve)):
                pool.offer_roots(client.key, client.list_roots)
            assert await roots_seen(one, ada) == {"file:///a"}
            assert await pid(two, eve) == await pid(one, ada) != await pid(one, bob)
        assert await pid(one, ada) in processes.alive


async def test_a_client_without_roots_has_a_process_of_its_own_once_the_server_has_asked(processes: Processes) -> None:
    ada = Client("ada", "file:///a")
    async with pool_with(processes, ada, flags="roots") as pool:
        pool.offer_roots("bob", None)
        assert await pid(pool, ada) != await said(pool.source("srv", "bob"))
        assert await said(pool.source("srv", "bob"), "roots") == {"roots": []}


async def test_the_roots_go_to_the_client_whose_call_starts_the_server(processes: Processes, tmp_path: Path) -> None:
    cache = ListingCache(tmp_path / "listings")
    ada, bob = Client("ada", "file:///a"), Client("bob", "file:///b")
    async with UpstreamPool([processes.spec("roots", "late")], cache=cache) as pool:
        await said(pool.source("srv"))
    async with (
        SharedServers(cache=cache) as shared,
        UpstreamPool([processes.spec("roots", "late")], shared=shared) as two,
    ):
        for client in (ada, bob):
            two.offer_roots(client.key, client.list_roots)
        assert two.views()[0].state == "idle"
        assert await roots_seen(two, bob) == {"file:///b"}
        assert await roots_seen(two, ada) == {"file:///a"}
        assert len(processes.alive) == 2


async def test_a_server_that_has_asked_once_is_remembered_after_a_restart(processes: Processes, tmp_path: Path) -> None:
    cache, spec = ListingCache(tmp_path / "listings"), processes.spec("roots_in_call")
    ada, bob = Client("ada", "file:///a"), Client("bob", "file:///b")
    for remembers in (False, True):
        async with SharedServers(cache=cache) as shared, UpstreamPool([spec], shared=shared) as pool:
            for client in (ada, bob):
                pool.offer_roots(client.key, client.list_roots)
            assert pool.views()[0].asks_for_roots is remembers
            separate = await pid(pool, ada) != await pid(pool, bob)
            assert separate is remembers
            await roots_seen(pool, ada)
            with anyio.fail_after(20):
                while (saved := cache.load(spec)) is None or not saved.view.asks_for_roots:  # noqa: ASYNC110
                    await anyio.sleep(0.01)


async def test_changed_roots_move_a_client_to_another_process(processes: Processes) -> None:
    ada, bob = Client("ada", "file:///a"), Client("bob", "file:///b")
    async with pool_with(processes, ada, bob, flags="roots") as pool:
        of_ada, of_bob = await pid(pool, ada), await pid(pool, bob)
        bob.uris = ada.uris
        assert await pid(pool, bob) == of_bob
        pool.roots_changed("bob")
        assert await pid(pool, bob) == of_ada
        await processes.until_alive(1)
        ada.uris = ("file:///new",)
        pool.roots_changed("ada")
        assert await pid(pool, ada) != of_ada
        assert await roots_seen(pool, ada) == {"file:///new"}
        assert await pid(pool, bob) == of_ada


async def test_a_client_with_other_roots_than_it_has_reported_does_not_change_those_of_others(
    processes: Processes,
) -> None:
    ada, bob = Client("ada", "file:///a"), Client("bob", "file:///a")
    async with pool_with(processes, ada, bob, flags="roots") as pool:
        of_both = await pid(pool, ada)
        assert await pid(pool, bob) == of_both
        ada.uris = ("file:///new",)  # without a notification
        assert await said(pool.source("srv", "bob"), "ask_again") == "ok"
        with anyio.fail_after(20):
            while ada.asked < 2 or bob.asked < 2:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        assert await roots_seen(pool, bob) == {"file:///a"}
        assert await roots_seen(pool, ada) == {"file:///new"}
        assert await pid(pool, bob) == of_both


async def test_a_client_that_floods_with_changes_is_asked_once_at_a_time(processes: Processes) -> None:
    ada, bob = Client("ada", "file:///a"), Client("bob", "file:///b")
    async with pool_with(processes, ada, bob, flags="roots") as pool:
        await pid(pool, ada)
        of_bob = await pid(pool, bob)
        ada.asked, ada.answers = 0, anyio.Event()
        for _ in range(1000):
            pool.roots_changed("ada")
        assert await pid(pool, bob) == of_bob
        assert ada.asked == 1
        ada.answers.set()
        assert await roots_seen(pool, ada) == {"file:///a"}
        assert ada.asked <= 3


async def test_a_client_that_does_not_answer_counts_as_one_without_roots(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upstream_clients.client_processes.ROOTS_SECONDS", 0.2)
    ada, bob = Client("ada", "file:///a"), Client("bob", "file:///b")
    async with pool_with(processes, ada, bob, flags="roots") as pool:
        of_ada = await pid(pool, ada)
        bob.answers = anyio.Event()
        assert await pid(pool, bob) != of_ada
        with anyio.fail_after(20):
            while (seen := await said(pool.source("srv", "bob"), "roots")) == {}:  # noqa: ASYNC110 - the process asks, too
                await anyio.sleep(0.01)
        assert seen == {"roots": []}


async def test_each_client_has_a_process_where_the_entry_says_so(processes: Processes) -> None:
    ada, bob = Client("ada"), Client("bob")
    async with pool_with(processes, ada, bob, share="client") as pool:
        of_ada, of_bob = await pid(pool, ada), await pid(pool, bob)
        assert of_ada != of_bob
        assert (await pid(pool, ada), await pid(pool, bob)) == (of_ada, of_bob)
        assert len(processes.pids) == 2
        unknown = await pid(pool, None)
        assert unknown not in (of_ada, of_bob)
        assert await pid(pool, Client("not connected")) == unknown


@pytest.mark.parametrize("first", [True, False], ids=["the main process", "another process"])
@pytest.mark.parametrize("share", ["client", "user"])
async def test_the_process_of_a_client_ends_with_its_last_call_after_the_client_has_left(
    first: bool, share: str, processes: Processes, tmp_path: Path
) -> None:
    ada, bob = Client("ada", "file:///a"), Client("bob", "file:///b")
    leaves, stays = (ada, bob) if first else (bob, ada)
    async with pool_with(processes, ada, bob, flags="roots", share=share) as pool:
        pids = {client: await pid(pool, client) for client in (ada, bob)}
        sent, got = anyio.Event(), []

        async def wait() -> None:
            outcome = await pool.source("srv", leaves.key).call_tool(
                "wait", {"path": str(tmp_path / "go")}, on_sent=sent.set
            )
            got.append(json.loads(outcome.result["content"][0]["text"]))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await sent.wait()
            pool.forget_client(leaves.key)
            assert await pid(pool, stays) == pids[stays]
            assert sorted(processes.alive) == sorted(pids.values())
            (tmp_path / "go").touch()
        assert got == [pids[leaves]]
        await processes.until_alive(1)
        assert processes.alive == [pids[stays]]
        assert pool.views()[0].tools[0].name == "pid"
        pool.offer_roots(leaves.key, leaves.list_roots)
        assert await pid(pool, leaves) not in pids.values()
        assert await roots_seen(pool, leaves) == set(leaves.uris)


async def test_a_call_that_waited_for_a_process_of_other_roots_is_sent_to_its_own(processes: Processes) -> None:
    # Both calls wait while the server starts. Its question binds it to the client of the first call.
    ada, bob = Client("ada", "file:///a"), Client("bob", "file:///b")
    seen: dict[str, set[str]] = {}

    async def see(pool: UpstreamPool, client: Client) -> None:
        seen[client.key] = await roots_seen(pool, client)

    async with pool_with(processes, ada, bob, flags="roots") as pool, anyio.create_task_group() as tasks:
        for client in (bob, ada):
            tasks.start_soon(see, pool, client)
    assert seen == {"ada": {"file:///a"}, "bob": {"file:///b"}}


async def test_a_slow_client_does_not_get_calls_of_others_into_its_process_or_delay_them(processes: Processes) -> None:
    ada, bob = Client("ada", "file:///a"), Client("bob", "file:///b")
    ada.answers = anyio.Event()
    async with pool_with(processes, ada, bob, flags="roots") as pool:
        await pool.connect(None, 20)
        with anyio.fail_after(20):
            while not ada.asked:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            assert await roots_seen(pool, bob) == {"file:///b"}
        ada.answers.set()
        assert await pid(pool, ada) == processes.pids[0] != await pid(pool, bob)
        assert await roots_seen(pool, ada) == {"file:///a"}


async def test_the_only_client_keeps_its_process_whatever_its_roots_are(processes: Processes) -> None:
    only = Client("only", "file:///a")
    async with UpstreamPool([processes.spec("roots")]) as pool:
        pool.offer_roots(None, only.list_roots)
        before = await pid(pool, None)
        assert await said(pool.source("srv"), "roots") == only.roots
        only.uris = ("file:///b",)
        pool.roots_changed(None)
        assert await pid(pool, None) == before
        pool.forget_client(None)
        assert await pid(pool, None) == before
        assert processes.pids == [before]


async def test_a_reload_ends_the_calls_at_every_process(processes: Processes) -> None:
    ada, bob = Client("ada"), Client("bob")
    async with pool_with(processes, ada, bob, share="client") as pool:
        failures: list[str] = []

        async def wait(client: Client, sent: anyio.Event) -> None:
            try:
                await pool.source("srv", client.key).call_tool("wait", {"path": "/none"}, on_sent=sent.set)
            except Exception as error:
                failures.append(str(error))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for client in (ada, bob):
                    tasks.start_soon(wait, client, sent := anyio.Event())
                    await sent.wait()
                pool.apply([])
        assert [text[:24] for text in failures] == ["server 'srv' was removed"] * 2
        await processes.until_alive(0)


# Any history of clients, roots, questions and calls, without real processes: no process mixes clients.


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
