"""Servers that are processes: killed, stopped and talking nonsense in mid-call, under a real `codemode-mcp serve`.

One `serve` lives through all of it. Whatever is not said here is said by `Rig.run` of every program: each call has one
outcome, which agrees with what the server did.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import pytest

from tests.chaos.rig import CALL_MS, rig, stdio
from tests.integration.harness import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.chaos.rig import Job, Rig

pytestmark = pytest.mark.anyio

SEVERAL = 5


@pytest.fixture(scope="module")
async def chaos(folder: Path) -> AsyncIterator[Rig]:
    servers = {
        "beacon": stdio(folder, "beacon"),
        "victim": stdio(folder, "victim"),
        "hanging": stdio(folder, "hanging", timeoutMs=CALL_MS),
        "exiting": stdio(folder, "exiting", "exit", f"unless={folder / 'mended'}"),
        "fleeting": stdio(folder, "fleeting", "exit_after_hello", f"unless={folder / 'mended'}"),
    }
    async with rig(folder, servers) as chaos:
        for server in ("beacon", "victim", "hanging"):
            await chaos.works(server)
        yield chaos


def kill(chaos: Rig, server: str) -> None:
    with suppress(ProcessLookupError):  # killed before, and not started again yet
        os.kill(chaos.pid_of(server), signal.SIGKILL)


async def test_a_server_that_is_killed_under_two_hundred_calls(chaos: Rig) -> None:
    for _ in range(2):
        # The last calls are queued when the server is killed. Its next process answers them.
        job = chaos.job("victim", 200, lambda i: "never" if i < 100 and i % 3 == 0 else "now")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(chaos.run, job)
            await chaos.until_done(job, 100)
            kill(chaos, "victim")
            await chaos.works("beacon")
        assert job.ends["done"] > 0
        assert job.ends["unknown"] > 0
        await chaos.works("victim")


async def test_a_server_that_is_killed_under_several_programs(chaos: Rig) -> None:
    jobs = [chaos.job("victim", 60, lambda i: "never" if i % 4 == 0 else "now") for _ in range(SEVERAL)]
    async with anyio.create_task_group() as tasks:
        for job in jobs:
            tasks.start_soon(chaos.run, job)
        for job in jobs:
            await chaos.until_done(job, 60)
        kill(chaos, "victim")
    for job in jobs:
        assert job.ends == {"done": 45, "unknown": 15}
    await chaos.works("victim")


async def test_a_server_that_is_killed_again_and_again(chaos: Rig) -> None:
    job = chaos.job("victim", 400)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(chaos.run, job)
        for done in (10, 60, 110):
            await until(lambda done=done: chaos.done(job) >= done or job.ended.is_set())
            kill(chaos, "victim")
    await chaos.works("victim")


async def test_calls_of_a_stopped_server_are_answered_when_it_is_resumed(chaos: Rig) -> None:
    os.kill(chaos.pid_of("victim"), signal.SIGSTOP)
    job = chaos.job("victim", 200, beacon="beacon")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(chaos.run, job)
        await chaos.until_done(job, 1)
        await chaos.works("beacon")
        assert chaos.done(job) == 1, "a stopped process has done something"
        os.kill(chaos.pid_of("victim"), signal.SIGCONT)
    assert job.ends == {"done": 201}


async def test_calls_of_a_stopped_server_end_at_their_timeout_and_are_not_made_again(chaos: Rig) -> None:
    pid = chaos.pid_of("hanging")
    os.kill(pid, signal.SIGSTOP)
    try:
        job = await chaos.run(chaos.job("hanging", 100))
        assert job.ends["done"] == 0
        assert "timed out" in " ".join(job.errors)
        await chaos.works("beacon")
    finally:
        os.kill(pid, signal.SIGCONT)
    await chaos.works("hanging")
    chaos.audit(job)


async def test_a_stopped_server_whose_pipe_is_full_delays_no_other_server(chaos: Rig) -> None:
    pid = chaos.pid_of("hanging")
    os.kill(pid, signal.SIGSTOP)
    try:
        long = "x" * 5_000
        job = await chaos.run(chaos.add([("hanging", f"long-{i}-{long}", "now") for i in range(100)]))
        assert job.ends["done"] == 0
        await chaos.works("beacon")
    finally:
        os.kill(pid, signal.SIGCONT)
    await chaos.works("hanging")
    chaos.audit(job)


async def test_a_server_that_talks_nonsense_between_its_answers(chaos: Rig) -> None:
    ways = ("now", "twice", "wrong_id", "junk", "changed")
    jobs = [chaos.job("victim", 50, lambda i: ways[i % len(ways)]) for _ in range(2)]
    async with anyio.create_task_group() as tasks:
        for job in jobs:
            tasks.start_soon(chaos.run, job)
    assert [job.ends for job in jobs] == [{"done": 50}] * 2


async def test_answers_with_an_unknown_id_or_too_late_reach_no_program(chaos: Rig) -> None:
    ways = ("now", "strangers", "cancelled", "never")
    before = len(chaos.lines("hanging", "cancelled"))
    job = await chaos.run(chaos.job("hanging", 40, lambda i: ways[i % len(ways)]))
    assert job.ends == {"done": 10, "unknown": 30}
    await until(lambda: len(chaos.lines("hanging", "cancelled")) >= before + 30)
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
        assert len(chaos.lines(server, "pid")) < 40, "it is started without a pause"

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(costs_its_own, "exiting")
            tasks.start_soon(costs_its_own, "fleeting")
    finally:
        (folder / "mended").touch()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(chaos.works, "exiting")
        tasks.start_soon(chaos.works, "fleeting")


async def cancel(chaos: Rig, job: Job, calls: int) -> None:
    """Run a program and cancel it once so many of its calls were done."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(chaos.run, job)
        await chaos.until_done(job, calls)
        tasks.cancel_scope.cancel()


async def test_cancelling_a_program_cancels_its_calls_upstream_and_what_was_queued_is_never_sent(chaos: Rig) -> None:
    before = len(chaos.lines("victim", "cancelled"))
    job = chaos.job("victim", 200, "never")
    await cancel(chaos, job, 128)
    await until(lambda: len(chaos.lines("victim", "cancelled")) >= before + 128)
    await chaos.works("victim")
    assert chaos.done(job) == 128


async def test_programs_that_are_cancelled_while_their_server_is_killed(chaos: Rig) -> None:
    for _ in range(2):
        job = chaos.job("victim", 100, "never")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(chaos.run, job)
            await chaos.until_done(job, 100)
            kill(chaos, "victim")
            tasks.cancel_scope.cancel()
        await chaos.works("victim")


async def test_a_program_that_is_cancelled_while_its_server_is_stopped(chaos: Rig) -> None:
    pid = chaos.pid_of("victim")
    os.kill(pid, signal.SIGSTOP)
    try:
        await cancel(chaos, chaos.job("victim", 200, beacon="beacon"), 1)
        await chaos.works("beacon")
    finally:
        os.kill(pid, signal.SIGCONT)
    await chaos.works("victim")


async def test_nothing_is_left_behind(chaos: Rig) -> None:
    async def once() -> None:
        job = chaos.job("victim", 60, "never")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(chaos.run, job)
            await chaos.until_done(job, 60)
            kill(chaos, "victim")
        await cancel(chaos, chaos.job("beacon", 60, "never"), 60)
        await chaos.works("victim")

    await once()
    rest = await chaos.footprint()
    for _ in range(2):
        await once()
    now = await chaos.until_at_rest(rest)
    assert now.threads <= rest.threads + 4
    assert now.resident - rest.resident < 30 * 1024 * 1024
