"""Servers that are processes: killed, stopped and talking nonsense in mid-call, under a real `codemode-mcp serve`.

One `serve` lives through all of it. Whatever is not said here is said by `Rig.run` of every program: each call has one
outcome, which agrees with what the server did.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

import anyio
import pytest

from tests.faults.rig import CALL_MS, Job, Rig, ledger_server, rig
from tests.integration.harness import until

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def chaos(folder: Path) -> AsyncIterator[Rig]:
    ledger, unless = folder / "ledger", f"unless={folder / 'mended'}"
    servers = {
        "beacon": ledger_server(ledger, "beacon"),
        "victim": ledger_server(ledger, "victim"),
        "hanging": ledger_server(ledger, "hanging", timeoutMs=CALL_MS),
        "exiting": ledger_server(ledger, "exiting", "exit", unless),
        "fleeting": ledger_server(ledger, "fleeting", "exit_after_hello", unless),
    }
    async with rig(folder, servers, tried=("beacon", "victim", "hanging")) as chaos:
        yield chaos


async def cancel(chaos: Rig, job: Job, calls: int) -> None:
    """Run a program and cancel it once so many of its calls were done."""
    async with chaos.running(job) as scope:
        await chaos.until_done(job, calls)
        scope.cancel()


async def test_a_server_that_is_killed_under_two_hundred_calls(chaos: Rig) -> None:
    for _ in range(2):
        # The last calls are queued when the server is killed. Its next process answers them.
        job = chaos.job("victim", 200, lambda i: "never" if i < 100 and i % 3 == 0 else "now")
        async with chaos.running(job):
            await chaos.until_done(job, 100)
            chaos.signal("victim", SIGKILL)
            await chaos.works("beacon")
        assert job.ends["done"] > 0
        assert job.ends["unknown"] > 0
        await chaos.works("victim")


async def test_a_server_that_is_killed_under_several_programs(chaos: Rig) -> None:
    jobs = [chaos.job("victim", 60, lambda i: "never" if i % 4 == 0 else "now") for _ in range(5)]
    async with chaos.running(*jobs):
        await until(lambda: chaos.done(*jobs) == 300)
        # The answer of a later call comes behind those of the calls that are done.
        await chaos.works("victim")
        chaos.signal("victim", SIGKILL)
    for job in jobs:
        assert job.ends == {"done": 45, "unknown": 15}
    await chaos.works("victim")


async def test_a_server_that_is_killed_again_and_again(chaos: Rig) -> None:
    job = chaos.job("victim", 400)
    async with chaos.running(job):
        for done in (10, 60, 110):
            await until(lambda done=done: chaos.done(job) >= done or job.ended.is_set())
            chaos.signal("victim", SIGKILL)
    await chaos.works("victim")


async def test_calls_of_a_stopped_server_are_answered_when_it_is_resumed(chaos: Rig) -> None:
    chaos.signal("victim", SIGSTOP)
    job = chaos.job("victim", 200, beacon="beacon")
    async with chaos.running(job):
        await chaos.until_done(job, 1)
        await chaos.works("beacon")
        assert chaos.done(job) == 1, "a stopped process has done something"
        chaos.signal("victim", SIGCONT)
    assert job.ends == {"done": 201}


@pytest.mark.parametrize("length", [0, 5_000], ids=["with room in its pipe", "whose pipe is full"])
async def test_calls_of_a_stopped_server_end_at_their_timeout_and_delay_no_other_server(
    chaos: Rig, length: int
) -> None:
    chaos.signal("hanging", SIGSTOP)
    try:
        keys = [f"long-{number}-{'x' * length}-{length}" for number in range(100)]
        job = await chaos.run(chaos.add([("hanging", "append", key, {}) for key in keys]))
        assert job.ends["done"] == 0
        assert length or "timed out" in " ".join(job.errors)
        await chaos.works("beacon")
    finally:
        chaos.signal("hanging", SIGCONT)
    # None of them is made again.
    await chaos.works("hanging")
    assert job.outcomes is not None
    chaos.books.check(job.tools, job.outcomes)


async def test_a_server_that_talks_nonsense_between_its_answers(chaos: Rig) -> None:
    ways = ("now", "twice", "wrong_id", "junk", "changed")
    jobs = [chaos.job("victim", 50, lambda i: ways[i % len(ways)]) for _ in range(2)]
    async with chaos.running(*jobs):
        pass
    assert [job.ends for job in jobs] == [{"done": 50}] * 2


async def test_answers_with_an_unknown_id_or_too_late_reach_no_program(chaos: Rig) -> None:
    ways = ("now", "strangers", "cancelled", "never")
    job = await chaos.run(chaos.job("hanging", 40, lambda i: ways[i % len(ways)]))
    assert job.ends == {"done": 10, "unknown": 30}
    assert job.outcomes is not None
    await chaos.until_cancelled("hanging", {key for key, (end, _) in job.outcomes.items() if end == "unknown"})
    assert (await chaos.run(chaos.job("hanging", 40))).ends == {"done": 40}


@pytest.mark.parametrize("how", ["die", "torn", "refuse"])
async def test_a_server_that_ends_in_a_call(chaos: Rig, how: str) -> None:
    job = await chaos.run(chaos.job("victim", 30, lambda i: how if i == 20 else "now"))
    assert job.ends["unknown"] >= 1
    await chaos.works("victim")


async def test_a_server_that_ends_in_every_call(chaos: Rig) -> None:
    job = await chaos.run(chaos.job("victim", 10, "die"))
    assert job.ends["done"] == 0
    await chaos.works("victim")


async def test_servers_that_end_immediately_cost_only_their_own_calls_until_they_are_mended(
    chaos: Rig, folder: Path
) -> None:
    async def costs_its_own(server: str) -> None:
        job = await chaos.run(chaos.job(server, 20, beacon="beacon"))
        assert job.ends["done"] == 1, "that of the beacon"
        # A server that never started got nothing.
        assert server == "fleeting" or job.ends["unknown"] == 0
        assert (await chaos.run(chaos.job("beacon", 100))).ends == {"done": 100}
        chaos.books.read()
        assert len(chaos.books.pids[server]) < 40, "it is started without a pause"

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(costs_its_own, "exiting")
            tasks.start_soon(costs_its_own, "fleeting")
    finally:
        (folder / "mended").touch()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(chaos.works, "exiting")
        tasks.start_soon(chaos.works, "fleeting")


async def test_cancelling_a_program_cancels_its_calls_upstream_and_what_was_queued_is_never_sent(chaos: Rig) -> None:
    job = chaos.job("victim", 200, "never")
    await cancel(chaos, job, 128)
    await chaos.until_cancelled("victim", set(list(job.tools)[:128]))
    await chaos.works("victim")
    assert chaos.done(job) == 128


async def test_programs_that_are_cancelled_while_their_server_is_killed(chaos: Rig) -> None:
    for _ in range(2):
        job = chaos.job("victim", 100, "never")
        async with chaos.running(job) as scope:
            await chaos.until_done(job, 100)
            chaos.signal("victim", SIGKILL)
            scope.cancel()
        await chaos.works("victim")


async def test_a_program_that_is_cancelled_while_its_server_is_stopped(chaos: Rig) -> None:
    chaos.signal("victim", SIGSTOP)
    try:
        await cancel(chaos, chaos.job("victim", 200, beacon="beacon"), 1)
        await chaos.works("beacon")
    finally:
        chaos.signal("victim", SIGCONT)
    await chaos.works("victim")


async def test_nothing_is_left_behind(chaos: Rig) -> None:
    async def once() -> None:
        job = chaos.job("victim", 60, "never")
        async with chaos.running(job):
            await chaos.until_done(job, 60)
            chaos.signal("victim", SIGKILL)
        await cancel(chaos, chaos.job("beacon", 60, "never"), 60)
        await chaos.works("victim")

    await once()
    rest = await chaos.footprint()
    for _ in range(2):
        await once()
    now = await chaos.until_at_rest(rest)
    assert now.threads <= rest.threads + 4
    assert now.resident - rest.resident < 30 * 1024 * 1024
