"""Programs outlive the process that runs them: one that is killed and started again, or one of several replicas behind
a load balancer that sends every request to another one."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from anyio.abc import SocketAttribute, SocketStream
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.integration.harness import (
    SECONDS,
    Raw,
    Session,
    counting,
    events,
    handshaken,
    pids,
    quickstart,
    until,
    write_config,
)
from tests.integration.http_harness import ALICE, TWO_TOKENS, Served, serve_http
from tests.stores.postgres_server import PostgresServer

pytestmark = pytest.mark.anyio

REPORT = "const { total } = unwrap(await MCP.reports.generateReport({ kind: 'cost', seconds: 1.2 })); return total"
TOTAL = 50980


async def call(client: Raw, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = await client.call(tool, arguments)
    return answer["result"]["structuredContent"]


async def test_a_killed_server_that_is_started_again_resumes_a_program_that_waits(tmp_path: Path) -> None:
    """Nothing is configured: what is written is in the user's own folder."""
    config = write_config(tmp_path, quickstart(), codeMode={"timeoutMs": 1000})
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    async with handshaken(config, env=env) as first:
        answer = await call(first, "exec", code=f"text('asking'); {REPORT}")
        assert (answer["status"], answer["reason"]) == ("waiting", "pending_tools")
        assert [item["text"] for item in answer["output"]] == ["asking"]
        run_id = answer["runId"]
        first.process.kill()
        await first.process.wait()
    async with handshaken(config, env=env) as second:
        while answer["status"] == "waiting":
            answer = await call(second, "wait", runId=run_id)
        assert answer["value"] == TOTAL
        assert (await call(second, "wait", runId=run_id))["value"] == TOTAL
    assert (tmp_path / "state" / "codemode-mcp" / "runs.sqlite3").exists()


async def test_a_program_is_not_resumed_beyond_the_limits_of_today(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    async with handshaken(write_config(tmp_path, {}), env=env) as first:
        code = "const kept = Array.from({ length: 300_000 }, (_, i) => i); await yield_control(); return kept.length"
        answer = await call(first, "exec", code=code)
        assert answer["status"] == "waiting"
        small = await call(first, "exec", code="const kept = [1]; await yield_control(); return kept")
    async with handshaken(write_config(tmp_path, {}, codeMode={"memoryLimitBytes": 1024 * 1024}), env=env) as second:
        refused = await call(second, "wait", runId=answer["runId"])
        assert refused.get("code") == "snapshot_restore_failed", refused
        assert "memoryLimitBytes" in refused["error"]
        assert (await call(second, "wait", runId=small["runId"]))["value"] == [1]


# replicas


class Balancer:
    """Sends each connection to the next of the servers that take one; its clients make one for each request.

    Attributes:
        served: which server had each of them.
    """

    def __init__(self, ports: Sequence[int], url: str) -> None:
        self._turn = count()
        self.served: list[int] = []
        self.front = Served(None, url, Path())
        self._ports = ports

    async def carry(self, client: SocketStream) -> None:
        async with client:
            for _ in self._ports:
                number = next(self._turn) % len(self._ports)
                with suppress(OSError):
                    server = await anyio.connect_tcp("127.0.0.1", self._ports[number])
                    break
            else:
                return
            self.served.append(number)
            async with server, anyio.create_task_group() as both:
                both.start_soon(self._copy, client, server, both.cancel_scope)
                both.start_soon(self._copy, server, client, both.cancel_scope)

    async def _copy(self, source: SocketStream, target: SocketStream, scope: anyio.CancelScope) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for data in source:
                await target.send(data)
        scope.cancel()

    @asynccontextmanager
    async def client(self, mode: str = "auto", **callbacks: Any) -> AsyncIterator[Session]:
        headers, limits = {"authorization": f"Bearer {ALICE}"}, httpx2.Limits(max_keepalive_connections=0)
        async with (
            httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(SECONDS), limits=limits) as http,
            Client(streamable_http_client(self.front.url, http_client=http), mode=mode, **callbacks) as client,
        ):
            yield Session(client, Path())


@asynccontextmanager
async def replicas(folder: Path, url: str, **http: Any) -> AsyncIterator[tuple[Balancer, list[Served]]]:
    """Yield two servers of one configuration, and what is before them."""
    servers = {**quickstart(), "counting": counting(folder / "log"), "asked": counting(folder / "asked")}
    tools = {"ask": ["mcp:asked:*"], "codeMode": {"timeoutMs": 1000}}
    store = {"kind": "postgres", "url": url}
    # The balancer has another port than they.
    said = {"mcpServers": servers, "tools": tools, "store": store, "http": {"allowedHosts": ["127.0.0.1"], **http}}
    config = folder / "config.json"
    config.write_text(json.dumps(said), "utf-8")
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(serve_http(config, own_process=True)) for _ in range(2)]
        listener = await stack.enter_async_context(await anyio.create_tcp_listener(local_host="127.0.0.1"))
        port = listener.extra(SocketAttribute.local_port)
        balancer = Balancer([each.port for each in opened], f"http://127.0.0.1:{port}/mcp")
        group = await stack.enter_async_context(anyio.create_task_group())
        group.start_soon(listener.serve, balancer.carry)
        for each in opened:
            await each.ready()
        yield balancer, opened
        group.cancel_scope.cancel()


@pytest.fixture(scope="module")
async def replicated(folder: Path, postgres: PostgresServer) -> AsyncIterator[tuple[Balancer, list[Served]]]:
    """Yield two that know their clients."""
    async with replicas(folder, postgres.url("outlives"), **TWO_TOKENS) as both:
        yield both


@pytest.fixture
def balancer(replicated: tuple[Balancer, list[Served]]) -> Balancer:
    return replicated[0]


async def test_any_replica_resumes_any_program(balancer: Balancer, folder: Path) -> None:
    code = """
        const seen = [];
        for (const name of ["a", "b", "c", "d"]) {
            text(name);
            seen.push(unwrap(await MCP.counting.count({ name })));
            await store("seen", seen);
            await yield_control(name);
        }
        return (await load("seen")).length;
    """
    since = len(balancer.served)
    async with balancer.client() as session:
        answer = await session.exec(code)
        texts = list(answer.texts)
        while answer.status == "waiting":
            answer = await session.wait(answer.run_id)
            texts += answer.texts
        assert (answer.value, texts) == (4, ["a", "b", "c", "d"])
    log = folder / "log"
    assert [event for event in events(log) if event.startswith("call")] == [f"call {name}" for name in "abcd"]
    assert len(pids(log)) == 2, "both have done something"
    assert all(one != other for one, other in pairwise(balancer.served[since:]))


async def test_an_approval_counts_on_whichever_replica_it_arrives(balancer: Balancer, folder: Path) -> None:
    """A client that is asked repeats its request with the answer, which the other replica gets."""
    shown: list[str] = []

    async def approve(context: Any, params: Any) -> types.ElicitResult:
        shown.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    code = "for (const name of ['a', 'b']) unwrap(await MCP.asked.count({ name })); return 'made'"
    async with balancer.client(elicitation_callback=approve) as session:
        assert (await session.finish(await session.exec(code))).value == "made"
    assert ['"name": "a"' in message for message in shown] == [True, False], "each call is shown once"
    assert [event for event in events(folder / "asked") if event.startswith("call")] == ["call a", "call b"]


async def test_a_session_of_a_legacy_client_is_of_one_replica_and_its_programs_are_of_all(
    replicated: tuple[Balancer, list[Served]],
) -> None:
    balancer, (one, other) = replicated
    async with balancer.client("legacy") as session:
        with pytest.raises(MCPError, match="Session not found"):  # which says: open another one
            await session.exec("return 1")
    async with one.client("legacy", ALICE) as session:
        run_id = (await session.exec("await yield_control(); return 'resumed'")).run_id
    async with other.client("legacy", ALICE) as session:
        assert (await session.wait(run_id)).value == "resumed"


async def test_the_death_of_a_replica_ends_no_program(tmp_path: Path, postgres: PostgresServer) -> None:
    """Kill a replica that has sent a call of one program, and waits for that of another one, which it has taken over.

    Clients are not authenticated here: whichever client has the id of a program may resume it.
    """
    schema = f"outlives_{uuid.uuid4().hex[:8]}"
    async with replicas(tmp_path, postgres.url(schema)) as (balancer, opened):

        async def ask(served: Served, tool: str, **arguments: Any) -> dict[str, Any]:
            return (await served.call(tool, arguments))["result"]["structuredContent"]

        async def finish(served: Served, answer: dict[str, Any]) -> Any:
            run_id = answer["runId"]
            while answer["status"] == "waiting":
                answer = await ask(served, "wait", runId=run_id)
            assert answer["status"] == "completed", answer
            return answer["value"]

        dying, front = opened[1], balancer.front
        # So that its server of the reports is running when it matters.
        await finish(dying, await ask(dying, "exec", code="await MCP.reports.listReports(); await yield_control()"))
        suspended = await ask(opened[0], "exec", code=f"await yield_control(); {REPORT}")
        sent = await ask(dying, "exec", code=REPORT.replace("1.2", "4"))  # far more than the second of one `exec`
        assert [each["status"] for each in sent["pendingToolCalls"]] == ["executing"]

        async def wait_in_vain() -> None:
            with pytest.raises(httpx2.RemoteProtocolError):
                await ask(dying, "wait", runId=suspended["runId"])

        async with anyio.create_task_group() as group:
            group.start_soon(wait_in_vain)
            await until(lambda: postgres.sql(f"SELECT 1 FROM {schema}.runs WHERE holder IS NOT NULL"))
            dying.process.kill()
        refused = await ask(front, "wait", runId=suspended["runId"])
        assert "another request is waiting" in refused["error"], "others learn only later that its process is dead"
        # As if the seconds were over for which a process is taken for alive.
        dead = f"process = (SELECT holder FROM {schema}.runs WHERE holder IS NOT NULL)"
        postgres.sql(f"UPDATE {schema}.processes SET expires = 0 WHERE {dead}")
        assert [await finish(front, sent), await finish(front, suspended)] == [TOTAL, TOTAL]
        assert set(balancer.served) == {0}
