"""Servers behind a bad line: cut, stalled, half-open, slow, refusing, restarted, in each kind of HTTP transport.

One `serve` lives through all of it. Whatever is not said here is said by `Rig.run` of every program: each call has one
outcome, which agrees with what the server did.
"""

from __future__ import annotations

import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import anyio
import pytest

from tests.chaos.proxy import Proxy
from tests.chaos.rig import CALL_MS, HASTY, HttpServer, rig, stdio
from tests.integration.harness import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.chaos.rig import Job, Rig

pytestmark = pytest.mark.anyio

KINDS = {"modern": (), "legacy": ("--legacy",), "sse": ("--sse",)}
WITH_ANSWERS_IN_BODIES = ("modern", "legacy")


class Upstream:
    """One server, the line to it, and the program that calls it."""

    def __init__(self, chaos: Rig, name: str, server: HttpServer, line: Proxy) -> None:
        self.chaos, self.name, self.server, self.line = chaos, name, server, line
        self.hasty = name + HASTY
        """The same server, with a short timeout."""

    async def works(self) -> None:
        """Repair the line and the server."""
        self.server.weather("")
        self.line.line("good")
        await self.chaos.works(self.name)
        await self.chaos.works(self.hasty)


@pytest.fixture(scope="module")
async def upstreams(folder: Path) -> AsyncIterator[dict[str, Upstream]]:
    async with AsyncExitStack() as stack:
        servers = {
            name: await stack.enter_async_context(HttpServer(folder, name, *flags)) for name, flags in KINDS.items()
        }
        lines = {name: await stack.enter_async_context(Proxy(server.port)) for name, server in servers.items()}
        entries = {
            name: {"type": "sse" if name == "sse" else "http", "url": f"http://127.0.0.1:{line.port}/mcp"}
            for name, line in lines.items()
        }
        entries |= {name + HASTY: {**entry, "timeoutMs": CALL_MS} for name, entry in entries.items()}
        chaos = await stack.enter_async_context(rig(folder, {**entries, "beacon": stdio(folder, "beacon")}))
        for name in KINDS:
            await chaos.works(name)
        yield {name: Upstream(chaos, name, servers[name], lines[name]) for name in KINDS}


@pytest.fixture(scope="module", params=list(KINDS))
def upstream(request: pytest.FixtureRequest, upstreams: dict[str, Upstream]) -> Upstream:
    return upstreams[request.param]


async def test_a_server_that_is_killed_under_two_hundred_calls(upstream: Upstream) -> None:
    chaos = upstream.chaos
    job = chaos.job(upstream.name, 200, lambda i: "never" if i < 100 and i % 3 == 0 else "now")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(chaos.run, job)
        # A call that was not sent yet would wait in the next process, forever.
        await chaos.until_begun(job, "never")
        await upstream.server.restart()
    assert job.ends["unknown"] > 0
    await upstream.works()


@pytest.mark.parametrize("upstream", ["legacy"], indirect=True)
async def test_a_server_that_forgets_its_sessions_under_several_programs(upstream: Upstream) -> None:
    chaos = upstream.chaos
    jobs = [chaos.job(upstream.name, 60) for _ in range(5)]
    async with anyio.create_task_group() as tasks:
        for job in jobs:
            tasks.start_soon(chaos.run, job)
        await until(lambda: sum(map(chaos.done, jobs)) >= 40)
        await upstream.server.restart()
    await upstream.works()


async def cut_until_over(upstream: Upstream, job: Job) -> None:
    """Reset all connections repeatedly, until the program has the outcome of every call."""
    while not job.ended.is_set():
        upstream.line.cut()
        with anyio.move_on_after(0.2):
            await job.ended.wait()


async def test_connections_that_are_reset_under_two_hundred_calls(upstream: Upstream) -> None:
    chaos = upstream.chaos
    job = chaos.job(upstream.name, 200, lambda i: "never" if i % 5 == 0 else "now")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(chaos.run, job)
        await until(lambda: chaos.done(job) >= 20)
        await cut_until_over(upstream, job)
    await upstream.works()


async def test_a_line_that_stalls_for_a_while_loses_nothing(upstream: Upstream) -> None:
    chaos = upstream.chaos
    upstream.line.line("stalled")
    job = chaos.job(upstream.name, 40, beacon="beacon")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(chaos.run, job)
        await chaos.until_done(job, 1)
        upstream.line.line("good")
    assert job.ends == {"done": 41}
    await upstream.works()


@pytest.mark.parametrize(
    ("upstream", "line"),
    [("modern", "silent"), ("modern", "lossy"), ("sse", "stalled")],
    indirect=["upstream"],
)
async def test_calls_over_a_line_that_is_half_open_end_at_their_timeout(upstream: Upstream, line: str) -> None:
    chaos = upstream.chaos
    upstream.line.line(line)
    job = await chaos.run(chaos.job(upstream.hasty, 40, beacon="beacon"))
    assert job.ends["done"] == 1, "that of the beacon"
    # Connections that lost bytes stay broken; new ones work.
    await upstream.works()


@pytest.mark.parametrize("upstream", ["legacy"], indirect=True)
async def test_calls_over_a_line_that_swallows_everything_end_at_their_timeout_and_not_seconds_later(
    upstream: Upstream,
) -> None:
    chaos = upstream.chaos
    upstream.line.line("lossy")
    began = anyio.current_time()
    try:
        job = await chaos.run(chaos.job(upstream.hasty, 10, beacon="beacon"))
        assert anyio.current_time() - began < CALL_MS / 1000 + 4
        assert job.ends["done"] == 1, "that of the beacon"
    finally:
        await upstream.works()


async def test_answers_that_come_a_byte_at_a_time(upstream: Upstream) -> None:
    upstream.line.line("trickling")
    job = await upstream.chaos.run(upstream.chaos.job(upstream.name, 5, beacon="beacon"))
    assert job.ends == {"done": 6}
    await upstream.works()


@pytest.mark.parametrize("upstream", ["modern"], indirect=True)
async def test_headers_that_never_end(upstream: Upstream) -> None:
    upstream.line.line("endless headers")
    job = await upstream.chaos.run(upstream.chaos.job(upstream.hasty, 20, beacon="beacon"))
    assert job.ends["done"] == 1, "that of the beacon"
    await upstream.works()


@pytest.mark.parametrize("upstream", ["modern"], indirect=True)
async def test_a_storm_of_refusals(upstream: Upstream) -> None:
    chaos = upstream.chaos
    upstream.server.weather("fail 429,500,502,503 40 7")
    jobs = [chaos.job(upstream.name, 100) for _ in range(2)]
    async with anyio.create_task_group() as tasks:
        for job in jobs:
            tasks.start_soon(chaos.run, job)
    for job in jobs:
        assert job.ends["done"] > 30
        assert job.ends["done"] == chaos.done(job)
        assert job.ends["unknown"] + job.ends["not sent"] > 10
        assert [error for error in job.errors if "HTTP " not in error] == []
    await upstream.works()


async def test_a_server_that_refuses_everything_for_a_while(upstream: Upstream) -> None:
    upstream.server.weather("fail_all 502")
    job = await upstream.chaos.run(upstream.chaos.job(upstream.name, 40))
    assert job.ends["done"] == 0
    await upstream.works()


@pytest.mark.parametrize("upstream", WITH_ANSWERS_IN_BODIES, indirect=True)
async def test_a_gateway_that_loses_answers_leaves_open_whether_the_calls_were_made(upstream: Upstream) -> None:
    upstream.server.weather("swallow 502")
    job = await upstream.chaos.run(upstream.chaos.job(upstream.name, 20))
    assert job.ends == {"unknown": 20}
    assert upstream.chaos.done(job) == 20
    await upstream.works()


async def test_an_address_that_refuses_connections_for_a_while(upstream: Upstream) -> None:
    chaos = upstream.chaos
    upstream.line.refuse()
    job = await chaos.run(chaos.job(upstream.hasty, 20, beacon="beacon"))
    assert job.ends["done"] == 1, "that of the beacon"
    assert job.ends["not sent"] > 0
    await upstream.line.accept()
    await upstream.works()


async def test_a_server_that_is_stopped_and_resumed(upstream: Upstream) -> None:
    chaos = upstream.chaos
    upstream.server.send_signal(signal.SIGSTOP)
    job = chaos.job(upstream.name, 40, beacon="beacon")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(chaos.run, job)
        await chaos.until_done(job, 1)
        upstream.server.send_signal(signal.SIGCONT)
    assert job.ends == {"done": 41}
    await upstream.works()


async def test_cancelling_a_program_cancels_its_calls_upstream(upstream: Upstream) -> None:
    chaos = upstream.chaos
    job = chaos.job(upstream.name, 40, "never")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(chaos.run, job)
        await chaos.until_done(job, 40)
        tasks.cancel_scope.cancel()
    names = {name for _, name, _ in job.asked}
    await until(lambda: names <= set(chaos.lines(upstream.name, "cancelled")))
    await upstream.works()


async def test_programs_that_are_cancelled_on_a_bad_line(upstream: Upstream) -> None:
    chaos = upstream.chaos
    upstream.line.line("stalled")
    job = chaos.job(upstream.name, 40, beacon="beacon")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(chaos.run, job)
        await chaos.until_done(job, 1)
        tasks.cancel_scope.cancel()
    upstream.line.cut()
    await upstream.works()


async def test_nothing_is_left_behind(upstreams: dict[str, Upstream]) -> None:
    chaos = upstreams["modern"].chaos

    async def once() -> None:
        for upstream in upstreams.values():
            job = chaos.job(upstream.name, 40, lambda i: "never" if i % 2 else "now")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(chaos.run, job)
                await chaos.until_done(job, 40)
                await cut_until_over(upstream, job)
            job = chaos.job(upstream.name, 40, "never")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(chaos.run, job)
                await until(lambda job=job: chaos.done(job) >= 20 or job.ended.is_set())
                tasks.cancel_scope.cancel()
            await upstream.works()

    await once()
    rest = await chaos.footprint()
    await once()
    # Each server may have some idle connections more or less than before.
    now = await chaos.until_at_rest(rest, more_sockets=20)
    assert now.threads <= rest.threads + 4
    assert now.resident - rest.resident < 30 * 1024 * 1024
