"""Programs that take longer than one request: suspended, resumed by `wait`, expired, cancelled."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import anyio
import pytest
from harness import Answer, Session, counting, events, other, serve, until, write_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


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


async def test_calls_that_end_while_suspended_are_all_delivered(session: Session, log: Path, name: str) -> None:
    names = [f"{name}-{n}" for n in range(5)]
    code = f"""
        const order = [];
        const held = {names!r}.map((name) => MCP.counting.hold({{ name }}).then(() => order.push(name)));
        await Promise.all(held);
        return order;
    """
    suspended = await session.exec(code)
    assert len(suspended.pending) == 5
    for each in reversed(names):
        await release(session, each)
    end = await session.finish(await session.wait(suspended.run_id))
    assert end.value == list(reversed(names))


async def test_yield_control_hands_over_what_there_is(session: Session) -> None:
    code = 'for (const n of [1, 2]) { text(`step ${n}`); await yield_control("look"); }\nreturn "end"'
    first = await session.exec(code)
    assert first.structured["reason"] == "yield"
    assert first.texts == ["step 1"]
    assert first.pending == []
    second = await session.wait(first.run_id)
    assert (second.run_id, second.texts) == (first.run_id, ["step 2"])
    last = await session.wait(first.run_id)
    assert (last.value, last.texts) == ("end", [])


async def test_the_end_is_given_again_when_it_is_asked_for_again(session: Session) -> None:
    first = await session.exec('text("a"); await yield_control(); text("b"); return { n: 1 }')
    end = await session.wait(first.run_id)
    again = await session.wait(first.run_id)
    assert again == end
    whole = await session.wait(first.run_id, fromStart=True)
    assert (whole.value, whole.texts) == ({"n": 1}, ["a", "b"])


async def test_a_failure_after_a_suspension_is_given_again_too(session: Session) -> None:
    first = await session.exec('await yield_control();\nthrow new Error("late")')
    failed = await session.wait(first.run_id)
    assert failed.code == "internal_error"
    assert "cell.js:2:" in failed.error
    assert (await session.wait(first.run_id)) == failed


async def test_variables_closures_and_timers_survive_a_suspension(session: Session) -> None:
    code = """
        const map = new Map([["k", { deep: [1, 2, 3] }]]);
        let ticks = 0;
        const timer = setInterval(() => { ticks++; }, 60);
        await yield_control();
        await new Promise((resolve) => setTimeout(resolve, 1500));
        for (let n = 0; ticks < 3 && n < 100; n++) await new Promise((resolve) => setTimeout(resolve, 60));
        clearInterval(timer);
        return [map.get("k").deep.length, ticks >= 3];
    """
    suspended = await session.exec(code)
    end = await session.wait(suspended.run_id)
    assert end.pending[0] == "core:timer"
    assert (await session.finish(end)).value == [3, True]


async def test_an_unknown_run_is_refused_and_not_guessed(session: Session) -> None:
    for run_id in ("run_nothing", "x" * 10_000, "run_" + "\0" * 24, "../../etc/passwd"):
        refused = await session.wait(run_id)
        assert refused.code == "invalid_input"
        assert "there is no run" in refused.error
        assert len(refused.error) < 500


async def test_the_second_of_two_waits_is_refused(session: Session, name: str) -> None:
    suspended = await session.exec(f'return unwrap(await MCP.counting.hold({{ name: "{name}" }}))')
    answers: list[Answer] = []

    async def wait() -> None:
        answers.append(await session.wait(suspended.run_id))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        group.start_soon(wait)
    refused = [answer for answer in answers if answer.status == "failed"]
    assert [answer.code for answer in refused] == ["invalid_input"]
    assert "another request is waiting" in refused[0].error
    await release(session, name)
    assert (await session.finish(await session.wait(suspended.run_id))).value == f"{name} is done"


async def test_wait_can_cancel_a_suspended_run_and_its_calls(session: Session, log: Path, name: str) -> None:
    suspended = await session.exec(f'text("kept"); return await MCP.counting.hold({{ name: "{name}" }})')
    aborted = await session.wait(suspended.run_id, cancel=True)
    assert aborted.code == "aborted"
    assert "cancelled" in aborted.error
    await until(lambda: f"cancelled {name}" in events(log))
    again = await session.wait(suspended.run_id)
    assert again.code == "aborted"
    assert await session.value("return 1") == 1


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


async def test_calls_that_are_not_waited_for_are_named(session: Session, log: Path, name: str) -> None:
    code = f"""
        MCP.counting.hold({{ name: "{name}-hold" }}).catch(() => 0);
        MCP.counting.peek({{ name: "{name}-peek" }}).catch(() => 0);
        await MCP.counting.count({{ name: "{name}" }});
        return "over";
    """
    answer = await session.finish(await session.exec(code))
    assert answer.value == "over"
    assert "still in flight: mcp:counting:hold" in answer.read
    assert "cancelled: mcp:counting:peek" in answer.read
    await until(lambda: f"cancelled {name}-peek" in events(log))
    await release(session, f"{name}-hold")
    assert f"end {name}-hold" in events(log)


async def test_more_calls_than_may_run_concurrently_queue_and_all_are_made(folder: Path, name: str) -> None:
    log = folder / f"log-{name}"
    settings = {"timeoutMs": 300, "maxPendingToolCalls": 2, "maxQueuedToolCalls": 3}
    config = write_config(folder, {"counting": counting(log)}, name="queue.json", codeMode=settings)
    async with serve(config) as session:
        code = """
            const calls = [1, 2, 3, 4, 5, 6].map((n) => MCP.counting.hold({ name: `h${n}` }).then(unwrap));
            return (await Promise.allSettled(calls)).map((s) => s.value ?? s.reason.code);
        """
        suspended = await session.exec(code)
        assert [call["status"] for call in suspended.structured["pendingToolCalls"]] == ["executing"] * 2 + [
            "queued"
        ] * 3
        await until(lambda: len(events(log)) >= 2)
        assert events(log) == ["call h1", "call h2"]
        for n in range(1, 6):
            await until(lambda n=n: f"call h{n}" in events(log))
            await release(session, f"h{n}")
        end = await session.finish(await session.wait(suspended.run_id))
    assert end.value == [f"h{n} is done" for n in range(1, 6)] + ["too_many_pending_tool_calls"]


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


async def test_a_snapshot_that_is_too_large_is_refused(patient: Patient) -> None:
    assert (await patient.session.exec("await yield_control(); return 1")).status == "waiting"
    code = "const a = Array.from({ length: 30_000 }, () => Math.random()); await yield_control(); return a.length"
    refused = await patient.session.exec(code)
    assert refused.code == "snapshot_limit_exceeded"
    assert "maxSnapshotBytes" in refused.error


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


async def test_cancelling_an_endless_loop_frees_its_place(patient: Patient) -> None:
    session = patient.session
    assert await session.value("return 1") == 1
    with anyio.move_on_after(0.5) as scope:
        await session.exec("for (;;);")
    assert scope.cancelled_caught
    with anyio.fail_after(20):
        assert await session.value("return 2") == 2


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


async def test_an_upstream_that_is_slow_to_start_is_waited_for_only_when_named(folder: Path, name: str) -> None:
    gate = folder / f"gate-{name}"
    servers = {
        "early": counting(folder / f"early-{name}"),
        "late": counting(folder / f"late-{name}", f"wait_for={gate}"),
    }
    config = write_config(folder, servers, name=f"{name}.json", codeMode={"connectWaitMs": 25_000})
    async with serve(config) as session, anyio.create_task_group() as group:
        answers: list[str] = []

        async def exec_late() -> None:
            answers.append(await session.value('return unwrap(await MCP.late.count({ name: "late" }))'))

        group.start_soon(exec_late)
        for _ in range(2):
            assert await session.value('return unwrap(await MCP.early.count({ name: "early" }))') == "early"
        assert answers == []
        gate.touch()
    assert answers == ["late"]


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


async def test_an_upstream_that_does_not_come_up_in_time_is_reported(folder: Path, name: str) -> None:
    servers = {"mute": other("raw_server.py", "silent", "probe_silent")}
    config = write_config(folder, servers, name=f"{name}.json", codeMode={"connectWaitMs": 200})
    async with serve(config) as session:
        answer = await session.exec("return await MCP.mute.echo({})")
        assert answer.code == "nested_tool_failed"
        assert "MCP.mute was still connecting" in answer.error
        listed = await session.value("return (await MCP.$api()).servers[0]")
        assert listed["serverName"] == "mute"
        assert listed["status"] != "ready"
