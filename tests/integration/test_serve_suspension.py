"""Programs that take longer than one request: suspended, resumed by `wait`, expired, cancelled."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
from harness import Answer, Session, counting, events, other, serve, until, write_config

pytestmark = pytest.mark.anyio

_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """Return a name that no other test gives its calls."""
    return f"n{next(_numbers)}"


@pytest.fixture(scope="module")
def log(folder: Path) -> Path:
    return folder / "log"


@pytest.fixture(scope="module", params=["auto", "legacy"])
async def session(folder: Path, log: Path, request: pytest.FixtureRequest) -> AsyncIterator[Session]:
    servers = {"counting": counting(log)}
    config = write_config(folder, servers, codeMode={"timeoutMs": 200})
    async with serve(config, mode=request.param) as session:
        # A server that is still starting has not got the call when the time of the request is over.
        await session.finish(await session.exec("return unwrap(await MCP.counting.count({ name: 'first' }))"))
        yield session


async def release(session: Session, name: str) -> None:
    """Let the held call of this name end; in a program of its own, while the other one is suspended."""
    done = await session.finish(await session.exec(f'return unwrap(await MCP.counting.release({{ name: "{name}" }}))'))
    assert done.value == name


async def test_a_slow_call_is_waited_for_again_and_again_and_made_once(session: Session, log: Path, name: str) -> None:
    code = f'text("before"); const r = await MCP.counting.hold({{ name: "{name}" }}); text("after"); return unwrap(r)'
    answer = await session.exec(code)
    run_id = answer.run_id
    assert answer.structured["reason"] == "pending_tools"
    assert answer.texts == ["before"]
    for _ in range(3):
        assert answer.run_id == run_id
        assert answer.pending == ["mcp:counting:hold"]
        assert answer.structured["pendingToolCalls"][0]["status"] == "executing"
        assert "mcp:counting:hold (executing" in answer.read
        answer = await session.wait(run_id)
        assert answer.texts == []
    await release(session, name)
    end = await session.finish(answer)
    assert end.value == f"{name} is done"
    assert end.texts == ["after"]
    assert [event for event in events(log) if name in event] == [f"call {name}", f"call {name}", f"end {name}"]
    assert end.telemetry["counts"]["call"] == 1
    assert end.telemetry["snapshots"] >= 1


async def test_the_end_is_given_again_when_it_is_asked_for_again(session: Session) -> None:
    first = await session.exec('text("a"); await yield_control(); text("b"); return { n: 1 }')
    end = await session.wait(first.run_id)
    again = await session.wait(first.run_id)
    assert again == end
    whole = await session.wait(first.run_id, fromStart=True)
    assert (whole.value, whole.texts) == ({"n": 1}, ["a", "b"])


async def test_cancelling_wait_only_lets_go(session: Session, log: Path, name: str) -> None:
    suspended = await session.exec(f'return unwrap(await MCP.counting.hold({{ name: "{name}" }}))')
    with anyio.move_on_after(0.05) as scope:
        await session.wait(suspended.run_id)
    assert scope.cancelled_caught
    await release(session, name)
    # The server may still be letting go of the first one.
    answer = await session.wait(suspended.run_id)
    while answer.status == "failed" and "another request is waiting" in answer.error:
        answer = await session.wait(suspended.run_id)
    assert (await session.finish(answer)).value == f"{name} is done"
    assert f"cancelled {name}" not in events(log)


class Patient(NamedTuple):
    """A client whose requests last as long as programs do, and what it is in front of."""

    session: Session
    log: Path
    upstream: str


@pytest.fixture(scope="module", params=[("auto", "bare"), ("legacy", "modern")], ids=["auto-bare", "legacy-modern"])
async def patient(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Patient]:
    mode, upstream = request.param
    log = folder / f"log-{mode}"
    servers = {"counting": counting(log)} | ({"modern": other("sdk_server.py")} if upstream == "modern" else {})
    settings = {"timeoutMs": 25_000, "maxRunningRuns": 1, "maxSnapshotBytes": 100_000}
    config = write_config(folder, servers, name=f"{mode}.json", codeMode=settings)
    async with serve(config, mode=mode) as session:
        yield Patient(session, log, upstream)


async def test_cancelling_exec_cancels_its_calls(patient: Patient) -> None:
    session, log, upstream = patient
    assert await session.value("return 1") == 1

    async def exec_for_ever() -> None:
        call = 'counting.hold({ name: "x" })' if upstream == "bare" else "modern.hang({})"
        await session.call("exec", {"code": f"return await MCP.{call}"})

    async with anyio.create_task_group() as group:
        group.start_soon(exec_for_ever)
        if upstream == "bare":
            await until(lambda: "call x" in events(log))
        else:
            code = "return unwrap(await MCP.modern.waitCancelled({ hanging: true }))"
            assert await session.value(code) == "done"
        group.cancel_scope.cancel()
    if upstream == "bare":
        await until(lambda: "cancelled x" in events(log))
    else:
        assert await session.value("return unwrap(await MCP.modern.waitCancelled({}))") == "done"
    assert await session.value("return 1") == 1


async def test_progress_arrives_while_a_request_is_open(patient: Patient) -> None:
    session, log, _ = patient
    seen: list[tuple[float, str | None]] = []
    half = anyio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, message))
        if message and "1/2 p half" in message:
            half.set()

    async def exec_held() -> None:
        code = 'return unwrap(await MCP.counting.hold({ name: "p" }))'
        answer = await session.call("exec", {"code": code}, progress_callback=on_progress)
        assert answer.value == "p is done"

    async with anyio.create_task_group() as group:
        group.start_soon(exec_held)
        await until(lambda: "call p" in events(log))
        await session.exec('await MCP.counting.advance({ name: "p" })')
        with anyio.fail_after(10):
            await half.wait()
        await release(session, "p")
    steps = [step for step, _ in seen]
    assert steps == sorted(set(steps))
    assert any(message == "mcp:counting:hold: 1/2 p half" for _, message in seen)


async def test_the_start_of_an_idle_server_does_not_count_as_time_of_the_program(folder: Path, name: str) -> None:
    gate = folder / f"gate-{name}"
    servers = {
        "late": counting(folder / f"late-{name}", f"wait_for={gate}"),
        "early": counting(folder / f"early-{name}"),
    }
    config = write_config(folder, servers, name=f"{name}.json", codeMode={"timeoutMs": 1_000})
    env = {"XDG_STATE_HOME": str(folder / f"state-{name}")}
    gate.touch()
    async with serve(config, env=env) as session:  # from now on its tools are known before it has started
        assert await session.value('return unwrap(await MCP.late.count({ name: "a" }))') == "a"
    gate.unlink()
    async with serve(config, env=env) as session, anyio.create_task_group() as group:
        answers: list[Answer] = []

        async def exec_late() -> None:
            answers.append(await session.exec('return unwrap(await MCP.late.count({ name: "late" }))'))

        group.start_soon(exec_late)
        # Each of these programs uses its whole time, so the time of the first one is over, too.
        for _ in range(2):
            assert (await session.exec('await MCP.early.hold({ name: "x" })')).status == "waiting"
        assert answers == []
        gate.touch()
    assert answers[0].value == "late"
