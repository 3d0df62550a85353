"""Servers behind a bad line: cut, stalled, half-open, slow, refusing, restarted, in each kind of HTTP transport.

One `serve` lives through all of it. Whatever is not said here is said by `Rig.run` of every program: each call has one
outcome, which agrees with what the server did.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.faults.rig import CALL_MS, HASTY, NETWORK, Job, Remote, Rig, ledger_server, remotes, rig, without_processor
from tests.integration.harness import until

pytestmark = pytest.mark.anyio


class Upstream:
    """One server, the line to it, and the rig that calls it."""

    def __init__(self, chaos: Rig, remote: Remote) -> None:
        self.chaos, self.remote, self.line, self.name = chaos, remote, remote.line, remote.name
        self.hasty = remote.name + HASTY
        """The same server, with a short timeout."""

    async def works(self) -> None:
        """Repair the line and the server."""
        await self.remote.repair()
        await self.chaos.works(self.name, self.hasty)

    async def cut_until_over(self, job: Job) -> None:
        """Reset all connections repeatedly, until the program has the outcome of every call."""
        while not job.ended.is_set():
            self.line.cut()
            with anyio.move_on_after(0.2):
                await job.ended.wait()


@pytest.fixture(scope="module")
async def upstreams(folder: Path) -> AsyncIterator[dict[str, Upstream]]:
    async with remotes(folder) as servers:
        entries = {name: remote.entry for name, remote in servers.items()}
        entries |= {name + HASTY: {**entry, "timeoutMs": CALL_MS} for name, entry in entries.items()}
        entries["beacon"] = ledger_server(folder / "ledger", "beacon")
        async with rig(folder, entries, tried=tuple(NETWORK)) as chaos:
            yield {name: Upstream(chaos, servers[name]) for name in NETWORK}


@pytest.fixture(params=list(NETWORK))
async def upstream(request: pytest.FixtureRequest, upstreams: dict[str, Upstream]) -> AsyncIterator[Upstream]:
    """One of the servers. After each test, it is repaired until it works, also if the test has failed."""
    yield upstreams[request.param]
    await upstreams[request.param].works()


async def test_a_server_that_is_killed_under_two_hundred_calls(upstream: Upstream) -> None:
    chaos = upstream.chaos
    job = chaos.job(upstream.name, 200, lambda i: "never" if i < 100 and i % 3 == 0 else "now")
    async with chaos.running(job):
        # A call that was not sent yet would wait in the next process, forever.
        await chaos.until_begun(job, "never")
        await upstream.remote.restart()
    assert job.ends["unknown"] > 0


@pytest.mark.parametrize("upstream", ["legacy"], indirect=True)
async def test_a_server_that_forgets_its_sessions_under_several_programs(upstream: Upstream) -> None:
    chaos = upstream.chaos
    jobs = [chaos.job(upstream.name, 60) for _ in range(5)]
    async with chaos.running(*jobs):
        await until(lambda: chaos.done(*jobs) >= 40)
        await upstream.remote.restart()


async def test_connections_that_are_reset_under_two_hundred_calls(upstream: Upstream) -> None:
    job = upstream.chaos.job(upstream.name, 200, lambda i: "never" if i % 5 == 0 else "now")
    async with upstream.chaos.running(job):
        await upstream.chaos.until_done(job, 20)
        await upstream.cut_until_over(job)


FOR_A_WHILE: dict[str, tuple[Callable[[Remote], None], Callable[[Remote], None]]] = {
    "a line that stalls": (lambda it: it.line.line("stalled"), lambda it: it.line.line("good")),
    "a stopped server": (lambda it: it.send_signal(signal.SIGSTOP), lambda it: it.send_signal(signal.SIGCONT)),
}


@pytest.mark.parametrize("fault", FOR_A_WHILE)
async def test_a_fault_that_lasts_for_a_while_loses_nothing(upstream: Upstream, fault: str) -> None:
    begin, end = FOR_A_WHILE[fault]
    begin(upstream.remote)
    job = upstream.chaos.job(upstream.name, 40, beacon="beacon")
    async with upstream.chaos.running(job):
        await upstream.chaos.until_done(job, 1)
        end(upstream.remote)
    assert job.ends == {"done": 41}


def clock(pid: int) -> float:
    """Return the time without what a process waits for a processor: other tests are no delay."""
    return anyio.current_time() - without_processor(pid)


@pytest.mark.parametrize(
    ("upstream", "line"),
    [
        ("modern", "silent"),
        ("modern", "lossy"),
        ("modern", "endless headers"),
        ("legacy", "lossy"),
        ("sse", "stalled"),
        *((kind, "refusing") for kind in NETWORK),
    ],
    indirect=["upstream"],
)
async def test_calls_over_a_line_that_is_half_open_end_at_their_timeout(upstream: Upstream, line: Any) -> None:
    if line == "refusing":
        upstream.line.refuse()
    else:
        upstream.line.line(line)
    began = clock(upstream.chaos.pid)
    job = await upstream.chaos.run(upstream.chaos.job(upstream.hasty, 20, beacon="beacon"))
    assert upstream.name != "legacy" or clock(upstream.chaos.pid) - began < CALL_MS / 1000 + 4, "it came seconds later"
    assert job.ends["done"] == 1, "that of the beacon"
    assert line != "refusing" or job.ends["not sent"] > 0


async def test_answers_that_come_a_byte_at_a_time(upstream: Upstream) -> None:
    upstream.line.line("trickling")
    job = await upstream.chaos.run(upstream.chaos.job(upstream.name, 5, beacon="beacon"))
    assert job.ends == {"done": 6}


@pytest.mark.parametrize("upstream", ["modern"], indirect=True)
async def test_a_storm_of_refusals(upstream: Upstream) -> None:
    chaos = upstream.chaos
    upstream.remote.weather("fail 429,500,502,503 40 7")
    jobs = [chaos.job(upstream.name, 100) for _ in range(2)]
    async with chaos.running(*jobs):
        pass
    for job in jobs:
        assert job.ends["done"] > 30
        assert job.ends["done"] == chaos.done(job)
        assert job.ends["unknown"] + job.ends["not sent"] > 10
        assert [error for error in job.errors if "HTTP " not in error] == []


async def test_a_server_that_refuses_everything_for_a_while(upstream: Upstream) -> None:
    upstream.remote.weather("fail_all 502")
    job = await upstream.chaos.run(upstream.chaos.job(upstream.name, 40))
    assert job.ends["done"] == 0


@pytest.mark.parametrize("upstream", ["modern", "legacy"], indirect=True)
async def test_a_gateway_that_loses_answers_leaves_open_whether_the_calls_were_made(upstream: Upstream) -> None:
    upstream.remote.weather("swallow 502")
    job = await upstream.chaos.run(upstream.chaos.job(upstream.name, 20))
    assert job.ends == {"unknown": 20}
    assert upstream.chaos.done(job) == 20


async def test_cancelling_a_program_cancels_its_calls_upstream(upstream: Upstream) -> None:
    chaos = upstream.chaos
    job = chaos.job(upstream.name, 40, "never")
    async with chaos.running(job) as scope:
        await chaos.until_done(job, 40)
        scope.cancel()
    await chaos.until_cancelled(upstream.name, set(job.tools))


async def test_programs_that_are_cancelled_on_a_bad_line(upstream: Upstream) -> None:
    chaos = upstream.chaos
    upstream.line.line("stalled")
    job = chaos.job(upstream.name, 40, beacon="beacon")
    async with chaos.running(job) as scope:
        await chaos.until_done(job, 1)
        scope.cancel()
    upstream.line.cut()


async def test_nothing_is_left_behind(upstreams: dict[str, Upstream]) -> None:
    chaos = upstreams["modern"].chaos

    async def once() -> None:
        for upstream in upstreams.values():
            job = chaos.job(upstream.name, 40, lambda i: "never" if i % 2 else "now")
            async with chaos.running(job):
                await chaos.until_done(job, 40)
                await upstream.cut_until_over(job)
            job = chaos.job(upstream.name, 40, "never")
            async with chaos.running(job) as scope:
                await until(lambda job=job: chaos.done(job) >= 20 or job.ended.is_set())
                scope.cancel()
            await upstream.works()

    # Some streams may not be open again yet.
    before = await chaos.settled()
    await once()
    rest = before.most(await chaos.settled())
    await once()
    # Each server may have some idle connections more or less than before.
    now = await chaos.until_at_rest(rest, more_sockets=20)
    assert now.threads <= rest.threads + 4
    assert now.resident - rest.resident < 30 * 1024 * 1024
