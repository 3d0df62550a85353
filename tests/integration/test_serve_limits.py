"""Hostile programs against the real server: each ends with its code and in time, the server stays small, and the next
program of the same session is right."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from harness import SECONDS, SERVERS, Answer, Session, counting, events, http_server, serve, write_config

from tests.values import replace

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


PATIENT = {"timeoutMs": 20_000, "memoryLimitBytes": 32 * MIB, "maxOutputBytes": 20_000, "maxQueuedToolCalls": 1024}
"""Settings that give programs the time to use up their memory on a machine that is busy."""


@asynccontextmanager
async def served(folder: Path, name: str, settings: dict[str, Any]) -> AsyncIterator[Session]:
    """Yield a server whose log is `folder / name`, after its first call."""
    config = write_config(folder, {"counting": counting(folder / name)}, name=f"{name}.json", codeMode=settings)
    async with serve(config) as session:
        PROCESSES[session] = server_process()
        await session.finish(await session.exec('return unwrap(await MCP.counting.count({ name: "up" }))'))
        yield session


@pytest.fixture(scope="module")
async def session(folder: Path) -> AsyncIterator[Session]:
    async with served(folder, "log", {"timeoutMs": 250, "memoryLimitBytes": 32 * MIB}) as session:
        yield session


@pytest.fixture(scope="module")
async def patient(folder: Path) -> AsyncIterator[Session]:
    async with served(folder, "patient", PATIENT) as session:
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


# time, memory, stack; tests/sandbox and tests/runs have each way in which a program gets to compute

ENDLESS = {
    "loop": ("for (;;) {}", "javascript"),
    "loop in TypeScript": ("const spin = (n: number): never => { for (;;) n++ }; spin(1)", "typescript"),
    "after a call": ("await MCP.counting.count({ name: 'x' }); for (;;);", "javascript"),
}


@pytest.mark.usefixtures("esbuild")
@pytest.mark.parametrize(("code", "language"), ENDLESS.values(), ids=ENDLESS.keys())
async def test_what_never_ends_is_a_timeout(session: Session, code: str, language: str) -> None:
    answer = await attack(session, code, language=language)
    assert answer.code == "timeout"
    assert answer.texts == ["before"]


async def test_a_loop_after_a_suspension_is_a_timeout(session: Session) -> None:
    suspended = await session.exec("await yield_control(); text('resumed'); for (;;);")
    answer = await session.wait(suspended.run_id)
    assert answer.code == "timeout"
    assert answer.texts == ["resumed"]
    assert await session.value("return 1 + 1") == 2


@pytest.mark.parametrize(
    ("code", "ends_with", "words"),
    [
        ("const kept = []; for (;;) kept.push(new Uint8Array(1e6))", "memory_limit_exceeded", "32 MiB"),
        ("return new Array(1000).fill('x'.repeat(1e6))", "memory_limit_exceeded", "32 MiB"),
        ("const f = () => 1 + f(); f()", "internal_error", "RangeError: Maximum call stack size exceeded"),
    ],
    ids=["buffers", "a huge value", "recursion"],
)
async def test_what_takes_too_much_memory_or_stack_is_told_so(
    patient: Session, code: str, ends_with: str, words: str
) -> None:
    async with growing_at_most(patient, 200 * MIB):
        answer = await attack(patient, code)
    assert (answer.code, words in answer.error) == (ends_with, True), answer.error
    assert answer.texts == ["before"]


@pytest.mark.usefixtures("esbuild")
@pytest.mark.parametrize("code", ["return " + "[" * 20_000 + "]" * 20_000, "let a: " + "Array<" * 5000])
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


# floods


async def test_a_flood_of_calls_reaches_the_upstream_as_far_as_it_was_queued(folder: Path, patient: Session) -> None:
    code = """
        const all = await Promise.allSettled(Array.from({ length: 20_000 }, () => MCP.counting.count({ name: "f" })));
        const ends = {};
        for (const one of all) { const end = one.reason?.code ?? one.status; ends[end] = (ends[end] ?? 0) + 1 }
        return ends
    """
    async with growing_at_most(patient, 150 * MIB):
        answer = await patient.finish(await patient.exec(code))
    assert answer.value == {"fulfilled": 1040, "too_many_pending_tool_calls": 20_000 - 1040}
    assert events(folder / "patient").count("call f") == 1040


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
