"""Hostile programs against the real server: each ends with its code and in time, the server stays small, and the next
program of the same session is right."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from harness import SECONDS, SERVERS, Session, counting, events, http_server, serve, write_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from harness import Answer

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024

TIMEOUT_MS = 250

IN_TIME = TIMEOUT_MS / 1000 + 15
"""Seconds. 1.5 s after the deadline at the latest, and something for a machine that is busy."""


@pytest.fixture(scope="module")
async def session(folder: Path) -> AsyncIterator[Session]:
    settings = {"timeoutMs": TIMEOUT_MS, "memoryLimitBytes": 32 * MIB}
    config = write_config(folder, {"counting": counting(folder / "log")}, codeMode=settings)
    async with serve(config) as session:
        PROCESSES[session] = server_process()
        await session.finish(await session.exec('return unwrap(await MCP.counting.count({ name: "up" }))'))
        yield session


@pytest.fixture(scope="module")
async def small(folder: Path) -> AsyncIterator[Session]:
    """Yield a server that gives programs little memory, and time to fill it on a machine that is busy."""
    settings = {"timeoutMs": 20_000, "memoryLimitBytes": 32 * MIB}
    config = write_config(folder, {"counting": counting(folder / "small")}, name="small.json", codeMode=settings)
    async with serve(config) as session:
        PROCESSES[session] = server_process()
        await session.finish(await session.exec('return unwrap(await MCP.counting.count({ name: "up" }))'))
        yield session


PATIENT = {"timeoutMs": 20_000, "maxOutputBytes": 20_000, "maxQueuedToolCalls": 1024, "maxSuspendedRunsPerOwner": 5}


@pytest.fixture(scope="module")
async def patient(folder: Path) -> AsyncIterator[Session]:
    """Yield a server that gives programs the time they need."""
    config = write_config(folder, {"counting": counting(folder / "patient")}, name="patient.json", codeMode=PATIENT)
    async with serve(config) as session:
        PROCESSES[session] = server_process()
        yield session


async def attack(session: Session, code: str, **arguments: Any) -> Answer:
    """Return the end of a hostile program; the next one is right."""
    answer = await session.exec(f'text("before"); {code}', **arguments)
    if answer.status == "waiting":  # a call took longer than the request
        ended = await session.finish(answer)
        output = [*answer.structured.get("output", []), *ended.structured.get("output", [])]
        answer = replace(ended, structured={**ended.structured, "output": output})
    following = await session.exec('return unwrap(await MCP.counting.count({ name: "next" }))')
    assert (await session.finish(following)).value == "next"
    return answer


# the server's memory


def resident(pid: int) -> int:
    """Bytes."""
    for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


PROCESSES: dict[Session, int] = {}
"""The server of each client."""


def server_process() -> int:
    """Return the `serve` that was started last below this process."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            if b"codemode_mcp\0serve\0" in (entry / "cmdline").read_bytes():
                # Fields 4 and 22 of proc_pid_stat(5). The system may use small ids again.
                fields = (entry / "stat").read_text("utf-8").rpartition(")")[2].split()
                if int(fields[1]) == os.getpid():
                    found.append((int(fields[19]), int(entry.name)))
    return max(found)[1]


@asynccontextmanager
async def growing_at_most(session: Session, size: int) -> AsyncIterator[None]:
    """Yield the resident memory of its server never grows by more than `size` bytes while inside."""
    if sys.platform != "linux":
        pytest.skip("no /proc")
    pid = PROCESSES[session]
    before = highest = resident(pid)

    async def watch() -> None:
        nonlocal highest
        while True:
            highest = max(highest, resident(pid))
            await anyio.sleep(0.01)

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        yield
        group.cancel_scope.cancel()
    assert highest > 0
    assert highest - before < size, f"{before // MIB} MiB grew to {highest // MIB} MiB"


# time

# One case of each way in which a program gets to compute; tests/sandbox has many more of each.
ENDLESS = {
    "loop": "for (;;) {}",
    "regular expression": "/^(a+)+$/.test('a'.repeat(60) + 'b')",
    "microtasks": "const f = () => queueMicrotask(f); f(); await new Promise(() => {})",
    "toJSON of an argument": "await MCP.counting.count({ name: { toJSON() { for (;;); } } })",
    "proxy of the value": "return new Proxy({}, { ownKeys() { for (;;); } })",
    "timer": "setTimeout(() => { for (;;); }, 1); await new Promise(() => {})",
    "after a call": "await MCP.counting.count({ name: 'x' }); for (;;);",
    "native loop": "Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1)",
    "message of what is thrown": "throw { get message() { for (;;); } }",
}


@pytest.mark.parametrize("code", ENDLESS.values(), ids=ENDLESS.keys())
async def test_what_never_ends_is_a_timeout(session: Session, code: str) -> None:
    began = time.monotonic()
    answer = await attack(session, code)
    assert time.monotonic() - began < IN_TIME
    assert answer.code == "timeout"
    assert answer.texts == ["before"]


@pytest.mark.usefixtures("esbuild")
async def test_a_loop_in_typescript_is_a_timeout(session: Session) -> None:
    answer = await attack(
        session, "const spin = (n: number): never => { for (;;) n++ }; spin(1)", language="typescript"
    )
    assert answer.code == "timeout"
    assert answer.texts == ["before"]


async def test_a_loop_after_a_suspension_is_a_timeout(session: Session) -> None:
    suspended = await session.exec("await yield_control(); text('resumed'); for (;;);")
    answer = await session.wait(suspended.run_id)
    assert answer.code == "timeout"
    assert answer.texts == ["resumed"]
    assert await session.value("return 1 + 1") == 2


# memory

BOMBS = {
    "arrays": "const kept = []; for (;;) kept.push(new Array(1e5).fill(0))",
    "a string": "'x'.repeat(2 ** 28)",
    "buffers": "const kept = []; for (;;) kept.push(new Uint8Array(1e6))",
    "closures": "const kept = []; for (;;) kept.push(() => kept)",
    "JSON": "JSON.parse('[' + '{\"a\":1},'.repeat(1e6) + '1]')",
    "a huge value": "return new Array(1000).fill('x'.repeat(1e6))",
    "a huge argument": "await MCP.counting.count({ name: 'x'.repeat(20e6) })",
}


@pytest.mark.parametrize("code", BOMBS.values(), ids=BOMBS.keys())
async def test_what_takes_too_much_memory_is_told_so(small: Session, code: str) -> None:
    async with growing_at_most(small, 200 * MIB):
        answer = await attack(small, code)
    assert answer.code == "memory_limit_exceeded"
    assert "32 MiB" in answer.error
    assert answer.texts == ["before"]


async def test_a_program_continues_after_it_caught_the_end_of_its_memory(small: Session) -> None:
    code = """
        let kept = [];
        try { for (;;) kept.push(new Array(1e5).fill(0)) } catch (error) { kept = null; text(error.message) }
        return unwrap(await MCP.counting.count({ name: "survived" }));
    """
    answer = await small.exec(code)
    assert answer.value == "survived"
    assert answer.texts == ["out of memory"]


# stack

RECURSION = {
    "functions": "const f = () => 1 + f(); f()",
    "async functions": "const f = async () => { await f() }; await f()",
    "callbacks": "const f = (x) => [x].map(f); f(1)",
    "getters": "const o = { get a() { return this.a } }; o.a",
    "proxies": "const p = new Proxy({}, { get: (t, k, r) => r[k] }); p.a",
    "JSON.parse": "JSON.parse('['.repeat(1e5))",
}


@pytest.mark.parametrize("code", RECURSION.values(), ids=RECURSION.keys())
async def test_recursion_without_end_is_a_range_error_with_a_place(small: Session, code: str) -> None:
    answer = await attack(small, code)
    assert answer.code == "internal_error"
    assert answer.error.startswith("RangeError: Maximum call stack size exceeded")
    assert "cell.js:1:" in answer.error
    caught = await small.exec(f"try {{ {code} }} catch (error) {{ return error instanceof RangeError }}")
    assert caught.value is True


TOO_DEEP = {
    "parentheses": "(" * 20_000 + "1" + ")" * 20_000,
    "arrays": "return " + "[" * 20_000 + "]" * 20_000,
    "templates": "return " + "`${" * 20_000 + "1" + "}`" * 20_000,
    "conditionals": "return " + "1?" * 60_000 + "1" + ":1" * 60_000,
}


@pytest.mark.parametrize("code", TOO_DEEP.values(), ids=TOO_DEEP.keys())
async def test_a_program_nested_too_deep_is_refused(session: Session, code: str) -> None:
    answer = await session.exec(code, language="javascript")
    assert answer.code == "invalid_input"
    assert await session.value("return 1 + 1") == 2


@pytest.mark.usefixtures("esbuild")
@pytest.mark.parametrize("code", [TOO_DEEP["arrays"], "let a: " + "Array<" * 5000], ids=["arrays", "types"])
async def test_typescript_nested_too_deep_is_refused(session: Session, code: str) -> None:
    answer = await session.exec(code, language="typescript")
    assert answer.code in {"invalid_input", "typescript_transform_failed"}
    assert await session.value("return 1 + 1") == 2


# output


async def test_a_flood_of_output_is_bounded_in_the_server_while_it_happens(session: Session) -> None:
    async with growing_at_most(session, 150 * MIB):
        answer = await attack(session, "const line = 'x'.repeat(100_000); for (;;) { text(line); json([line]); }")
    assert answer.code == "timeout"
    assert len(answer.read) < 200_000


async def test_a_flood_of_output_over_turns_is_bounded_too(session: Session) -> None:
    async with growing_at_most(session, 150 * MIB):
        answer = await session.exec("const line = 'x'.repeat(100_000); for (;;) { text(line); await load('k'); }")
        if answer.status == "waiting":
            assert len(answer.read) < 200_000
            answer = await session.wait(answer.run_id, cancel=True)
            assert answer.code == "aborted"
    assert await session.value("return 1 + 1") == 2


@pytest.mark.parametrize("character", ["\\u0001", '\\"', "\\\\", "漢"])
async def test_an_answer_is_no_larger_than_its_cap_when_its_characters_need_escapes(
    session: Session, character: str
) -> None:
    with anyio.fail_after(SECONDS):
        result = await session.client.call_tool("exec", {"code": f'throw new Error("{character}".repeat(100_000))'})
    text = json.dumps([block.text for block in result.content], ensure_ascii=False)
    structured = json.dumps(result.structured_content, ensure_ascii=False)
    assert max(len(text.encode()), len(structured.encode())) < 34_000, "maxOutputBytes is 32 KiB"


async def test_large_values_and_outputs_are_read_back_whole(patient: Session) -> None:
    line = "0123456789abcdefghijklmnop\\u00e9\\n"
    many = f"const big = '{line}'.repeat(180_000)"
    whole = "0123456789abcdefghijklmnop\u00e9\n" * 180_000
    value = (await patient.exec(f"{many}; return big")).value
    assert value["truncated"] is True
    assert value["bytes"] == len(json.dumps(whole, ensure_ascii=False).encode()) > 5_000_000
    read = f"const kept = await load({json.dumps(value['ref'])});"
    assert await patient.value(f"{read} {many}; return [kept === big, kept.length]") == [True, len(whole)]
    printed = await patient.exec(f"{many}; text('first'); text(big); json([big.length]); return 1")
    assert printed.texts == ["first"]
    cut = printed.structured["output"][-1]["value"]
    read = f"const kept = await load({json.dumps(cut['ref'])});"
    assert await patient.value(f"{read} {many}; return [kept[0].text === big, kept[1].value]") == [
        True,
        [len(whole)],
    ]
    both = await patient.exec(f"{many}; text(big); return [big]")
    refs = [both.structured["value"]["ref"], both.structured["output"][-1]["value"]["ref"]]
    read = f"const [value, output] = await Promise.all({json.dumps(refs)}.map(load));"
    assert await patient.value(f"{read} {many}; return [value[0] === big, output[0].text === big]") == [True, True]


# floods


async def flooded(session: Session, log: Path, accepted: int) -> None:
    code = """
        const all = await Promise.allSettled(Array.from({ length: 20_000 }, () => MCP.counting.count({ name: "f" })));
        const ends = {};
        for (const one of all) { const end = one.reason?.code ?? one.status; ends[end] = (ends[end] ?? 0) + 1 }
        return ends
    """
    await session.value("return 1")
    async with growing_at_most(session, 150 * MIB):
        answer = await session.finish(await session.exec(code))
    assert answer.value == {"fulfilled": accepted, "too_many_pending_tool_calls": 20_000 - accepted}
    assert events(log).count("call f") == accepted
    assert await session.value("return 1 + 1") == 2


async def test_a_flood_of_calls_reaches_the_upstream_as_far_as_it_was_queued(folder: Path, patient: Session) -> None:
    await flooded(patient, folder / "patient", 1040)


async def test_a_flood_of_calls_reaches_the_upstream_as_far_as_it_was_made_where_none_is_queued(folder: Path) -> None:
    settings = {"timeoutMs": 20_000, "maxQueuedToolCalls": 0}
    config = write_config(folder, {"counting": counting(folder / "flood")}, name="flood.json", codeMode=settings)
    async with serve(config) as session:
        PROCESSES[session] = server_process()
        await flooded(session, folder / "flood", 16)


async def test_results_over_the_limit_are_refused_and_take_no_room(folder: Path) -> None:
    settings = {"timeoutMs": 25_000, "maxToolResultBytes": MIB, "memoryLimitBytes": 64 * MIB}
    code = """
        const big = () => CALL.then(() => "came", (error) => error.code);
        return [await big(), [...new Set(await Promise.all(Array.from({ length: 8 }, big)))]]
    """
    local = {"command": sys.executable, "args": [str(SERVERS / "bulky.py"), str(folder / "bulky")]}
    async with http_server() as url:
        servers = {"local": local, "far": {"type": "http", "url": url}}
        config = write_config(folder, servers, name="bulky.json", codeMode=settings)
        async with serve(config) as session:
            PROCESSES[session] = server_process()
            await session.value("return 1")
            for call in ("MCP.local.get({ bytes: 20_000_000 })", "MCP.far.echo({ text: 'x'.repeat(1_500_000) })"):
                async with growing_at_most(session, 500 * MIB):
                    answer = await session.finish(await session.exec(code.replace("CALL", call)))
                assert answer.value == ["nested_tool_failed", ["nested_tool_failed"]], call
                assert await session.value("return 1 + 1") == 2


async def test_suspended_runs_of_one_owner_are_limited(patient: Session) -> None:
    answers = [await patient.exec("await yield_control(); return 'resumed'") for _ in range(10)]
    assert [answer.status for answer in answers] == ["waiting"] * 5 + ["failed"] * 5
    assert {answer.code for answer in answers[5:]} == {"too_many_pending_tool_calls"}
    assert [(await patient.wait(answer.run_id)).value for answer in answers[:5]] == ["resumed"] * 5


async def test_more_endless_programs_than_may_run_delay_the_others_but_do_not_stop_them(folder: Path) -> None:
    settings = {"timeoutMs": TIMEOUT_MS, "maxRunningRuns": 2}
    async with serve(write_config(folder, {}, name="many.json", codeMode=settings)) as session:
        await session.value("return 1")
        codes: list[str] = []

        async def loop() -> None:
            codes.append((await session.exec("for (;;);")).code)

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(loop)
        assert set(codes) <= {"timeout"}
        assert len(codes) == 5
        assert await session.value("return 1 + 1") == 2
