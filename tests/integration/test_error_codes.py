"""Every code of `docs/errors.md`, as a client gets it from the real process, by every way there is for a client.

A way is a program, in JavaScript and, behind lines that are types alone, in TypeScript; or a scenario with a server of
its own, for what the operator, the clock or a damaged installation brings about.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
from harness import (
    DOWN,
    LANGUAGES,
    TYPES,
    Answer,
    Session,
    counting,
    events,
    handshaken,
    invoke,
    quickstart,
    serve,
    until,
    write_config,
)

from codemode_mcp.base.errors import ERROR_CODES, ErrorCode
from codemode_mcp.sandbox.binary import PACKAGE

pytestmark = pytest.mark.anyio


class Fails(NamedTuple):
    """A program, its code, `LINE:COLUMN` of what is at fault (empty: none is promised), and parts of the message."""

    text: str
    code: ErrorCode
    place: str
    words: tuple[str, ...]
    languages: tuple[str, ...] = LANGUAGES


PLAIN = ("javascript",)

PROGRAMS = {
    # in text, before anything runs
    "syntax": Fails("text(1);\nconst x = ;", "invalid_input", "2:11", ("2 | const x = ;\n              ^",), PLAIN),
    "not closed": Fails("if (true) {\n  text(1)", "invalid_input", "2:10", ("the program ends before",), PLAIN),
    "two in a line": Fails("const o = {\n  a: 1\n  b: 2\n};", "invalid_input", "3:3", (), PLAIN),
    "types": Fails("text(1);\nconst x: number = 1;", "invalid_input", "2:1", ("const x: number",), PLAIN),
    "shell": Fails("ls -la /tmp", "invalid_input", "", ("shell", "MCP.<server>"), PLAIN),
    "unknown tool": Fails("text(1);\nawait MCP.tracker.listIssue({})", "invalid_input", "2:7", ("listIssues",)),
    "unknown server": Fails("text(1);\nawait MCP.trakker.listIssues({})", "invalid_input", "2:7", ("tracker",)),
    "typed syntax": Fails("text(1);\nconst b: = 2;", "typescript_transform_failed", "2:10", ("b: =",), ("typescript",)),
    "typed, not closed": Fails("{\n  text(1)", "typescript_transform_failed", "2:10", (), ("typescript",)),
    "typed enum": Fails("enum A { x = }", "typescript_transform_failed", "1:14", ("enum A",), ("typescript",)),
    "import": Fails('import fs from "fs";\nreturn 1', "module_access_denied", "1:1", ("`import`", "MCP")),
    # module access that only shows when it runs
    "import in eval": Fails("await eval('import(\"fs\")')", "module_access_denied", "", ("no modules", "MCP")),
    # the program's own errors; tests of positions say more
    "exception": Fails('text(1);\nthrow new TypeError("oops")', "internal_error", "2:7", ("TypeError: oops",)),
    "parsed result": Fails(
        "const r = await MCP.counting.count({ name: 'a' });\nJSON.parse(r);",
        "internal_error",
        "2:",
        ("unwrap(result)",),
    ),
    "BigInt and number": Fails("text(1);\n1n + 1;", "internal_error", "2:", ("Number(n) or BigInt(n)",)),
    "thrown object": Fails("throw { odd: 1 }", "internal_error", "", ('{"odd":1}',)),
    "thrown text": Fails("throw 'no'", "internal_error", "", ("Uncaught: no",)),
    "thrown null": Fails("throw null", "internal_error", "", ("Uncaught: null",)),
    "after a suspension": Fails("await yield_control();\nthrow new Error('late')", "internal_error", "2:7", ("late",)),
    "never settles": Fails("await new Promise(() => {})", "internal_error", "", ("nothing can settle",)),
    # calls that are not caught
    "arguments": Fails(
        "text(1);\nawait MCP.tracker.getIssue({ issue_id: 0 })",
        "nested_tool_failed",
        "2:19",
        ("input.issue_id", "nothing was sent", "Signature: MCP.tracker.getIssue("),
    ),
    "no JSON": Fails(
        "await MCP.counting.count({ name: () => 1 })",
        "nested_tool_failed",
        "1:20",
        ("name is a function", "leave it out"),
    ),
    "rounded integer": Fails(
        "await MCP.tracker.getIssue({ issue_id: 725653563933458433 })",
        "nested_tool_failed",
        "1:19",
        ("input.issue_id: expected an integer, got the Number 725653563933458400", "with n at the end"),
    ),
    "unwrapped error": Fails(
        "const r = await MCP.counting.refuse({});\nunwrap(r)", "nested_tool_failed", "2:", ("the tool says no",)
    ),
    "server error": Fails(
        "text(1);\nawait MCP.counting.reject({})",
        "nested_tool_failed",
        "2:20",
        ("MCP.counting.reject", "server says no"),
    ),
    "awaited late": Fails(
        "const p = MCP.counting.reject({});\nawait MCP.counting.count({ name: 'a' });\nawait p",
        "nested_tool_failed",
        "1:24",
        ("MCP.counting.reject",),
    ),
    "by id": Fails(
        'await tools.call("mcp:tracker:list_issues", {})', "nested_tool_failed", "1:13", ("MCP.tracker.listIssues",)
    ),
    "unknown id": Fails('await tools.call("plugin:a:b", {})', "nested_tool_failed", "1:13", ("plugin:a:b",)),
    "unknown file": Fails('await API.read("mcp/trakker.d.ts")', "nested_tool_failed", "1:11", ("mcp/tracker.d.ts",)),
    "dying server": Fails("await MCP.mortal.die({})", "nested_tool_failed", "1:18", ("MCP.mortal.die", "'mortal'")),
    # limits
    "memory": Fails(
        "const a = [];\nfor (;;) a.push(new Array(10000).fill(1))", "memory_limit_exceeded", "2:", ("16 MiB",)
    ),
    "memory in one string": Fails("return 'x'.repeat(1e8)", "memory_limit_exceeded", "", ("16 MiB",)),
    "memory after a suspension": Fails(
        "await yield_control();\nconst a = [];\nfor (;;) a.push(new Array(10000).fill(1))",
        "memory_limit_exceeded",
        "3:",
        ("16 MiB",),
    ),
    "output": Fails("text('x'.repeat(5000)); return 1", "output_limit_exceeded", "", ("maxOutputBytes", "2000")),
    "value": Fails("return 'x'.repeat(5000)", "output_limit_exceeded", "", ("maxOutputBytes", "2000")),
    "output bit by bit": Fails(
        "for (let i = 0; i < 500; i++) console.log('twelve bytes');", "output_limit_exceeded", "", ("maxOutputBytes",)
    ),
    "value and output": Fails(
        "json('x'.repeat(1500)); return 'x'.repeat(1500)", "output_limit_exceeded", "", ("maxOutputBytes",)
    ),
    "output after a suspension": Fails(
        "await yield_control(); return 'x'.repeat(5000)", "output_limit_exceeded", "", ("maxOutputBytes",)
    ),
    "concurrent calls": Fails(
        "const three = [1, 2, 3];\nawait Promise.all(three.map((n) => MCP.counting.count({ name: `${n}` })))",
        "too_many_pending_tool_calls",
        "2:49",
        ("too many calls in flight", "await some"),
    ),
}
"""Programs on a server with room for two calls, 16 MiB of memory and 2,000 bytes of output."""

NARROW = {
    "loop": Fails("let n = 0;\nfor (;;) n++;", "timeout", "", ("0.2 s", "split the work into several programs")),
    "loop in a function": Fails("function spin() {\n  for (;;);\n}\nspin();", "timeout", "", ("in spin",), PLAIN),
    "yield": Fails("await yield_control(); return 1", "snapshot_limit_exceeded", "", ("maxSnapshotBytes", "(1024)")),
    "timer": Fails(
        "await new Promise((r) => setTimeout(r, 60_000))", "snapshot_limit_exceeded", "", ("maxSnapshotBytes",)
    ),
    "pending call": Fails(
        "await MCP.counting.peek({ name: 'long' })", "snapshot_limit_exceeded", "", ("maxSnapshotBytes", "keep less")
    ),
}
"""Programs on a server with 200 ms for a program and 1,024 bytes for a suspended one."""


@pytest.fixture(scope="module")
async def sessions(folder: Path) -> AsyncIterator[dict[str, Session]]:
    """Yield a client of either era by the language that it runs, each with a server of its own."""
    settings = {
        "memoryLimitBytes": 16 << 20,
        "maxOutputBytes": 2000,
        "onOutputLimit": "fail",
        "maxPendingToolCalls": 1,
        "maxQueuedToolCalls": 1,
    }
    async with AsyncExitStack() as stack:
        found = {}
        for language, mode in zip(LANGUAGES, ("auto", "legacy"), strict=True):
            servers = {name: counting(folder / f"{name}-{mode}") for name in ("counting", "mortal")}
            servers["tracker"] = quickstart()["tracker"]
            config = write_config(folder, servers, name=f"{mode}.json", codeMode=settings)
            found[language] = await stack.enter_async_context(serve(config, mode=mode))
        yield found


@pytest.fixture
def session(sessions: dict[str, Session]) -> Session:
    return sessions["javascript"]


@pytest.fixture(scope="module")
async def narrow(folder: Path) -> AsyncIterator[Session]:
    settings = {"timeoutMs": 200, "maxSnapshotBytes": 1024}
    config = write_config(folder, {"counting": counting(folder / "log-narrow")}, name="narrow.json", codeMode=settings)
    async with serve(config) as session:
        yield session


def rows(table: dict[str, Fails]) -> list[object]:
    return [
        pytest.param(row, language, id=f"{name}-{language}")
        for name, row in table.items()
        for language in row.languages
    ]


async def check(session: Session, row: Fails, language: str) -> None:
    typed = language == "typescript"
    answer = await session.finish(await session.exec((TYPES if typed else "") + row.text, language=language))
    assert answer.code == row.code, answer.error
    if row.place:
        line, _, column = row.place.partition(":")
        file, shift = ("cell.ts", TYPES.count("\n")) if typed else ("cell.js", 0)
        assert f"{file}:{int(line) + shift}:{column}" in answer.error
    for word in row.words:
        assert word in answer.error
    assert await session.value("return 1") == 1


@pytest.mark.usefixtures("esbuild")
@pytest.mark.parametrize(("row", "language"), rows(PROGRAMS))
async def test_a_program_fails_with_its_code_its_place_and_advice(
    sessions: dict[str, Session], row: Fails, language: str
) -> None:
    await check(sessions[language], row, language)


@pytest.mark.usefixtures("esbuild")
@pytest.mark.parametrize(("row", "language"), rows(NARROW))
async def test_a_program_that_takes_too_much_fails_with_its_code(narrow: Session, row: Fails, language: str) -> None:
    await check(narrow, row, language)


async def test_an_unfinished_string_is_placed_within_its_line(session: Session) -> None:
    answer = await session.exec("const s = 'abc\nreturn 1")
    assert answer.code == "invalid_input"
    place = answer.error.partition("(cell.js:1:")[2].partition(")")[0]
    assert 11 <= int(place) <= 15


async def test_a_refused_call_can_be_caught_and_made_again(session: Session) -> None:
    code = """
        const ends = await Promise.allSettled([1, 2, 3].map((n) => MCP.counting.count({ name: `${n}` })));
        const again = await MCP.counting.count({ name: "again" });
        return [...ends.map((end) => end.reason?.code ?? "made"), unwrap(again)];
    """
    assert await session.value(code) == ["made", "made", "too_many_pending_tool_calls", "again"]


# scenarios


class Told(NamedTuple):
    """The texts that a person in front of a client, or a terminal, reads."""

    code: str
    error: str


Scenario = Callable[..., Awaitable[Answer | Told]]

SCENARIOS: dict[str, tuple[ErrorCode, tuple[str, ...], Scenario]] = {}
"""Each is given what its parameters name: a folder of its own, or a server that others are given too."""


def reaches(code: ErrorCode, *words: str) -> Callable[[Scenario], Scenario]:
    """Puts a scenario into the table: the code that it ends with, and parts of the message."""

    def add(scenario: Scenario) -> Scenario:
        SCENARIOS[scenario.__name__.replace("_", " ")] = (code, words, scenario)
        return scenario

    return add


def found_first(folder: Path) -> dict[str, str]:
    """Return the environment for a server that finds modules of a folder before any installed package."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))}


@pytest.fixture(scope="module")
async def strict(folder: Path) -> AsyncIterator[Session]:
    """Yield a server that runs JavaScript alone, and suspends one program."""
    servers = {"counting": counting(folder / "log-strict")}
    settings = {"languages": ["javascript"], "maxSuspendedRuns": 1}
    config = write_config(folder, servers, name="strict.json", codeMode=settings)
    # Programs that other tests leave suspended count in the store that they share.
    store = {"kind": "sqlite", "path": str(folder / "strict.sqlite3")}
    config.write_text(json.dumps(json.loads(config.read_text("utf-8")) | {"store": store}), "utf-8")
    async with serve(config) as session:
        yield session


@asynccontextmanager
async def still_working(config: Path, env: dict[str, str] | None = None) -> AsyncIterator[Session]:
    """Yield a server that runs a program after all that has happened to it."""
    async with serve(config, env=env) as session:
        yield session
        assert await session.value("return 1") == 1


@reaches("invalid_config", "mcpServers.a.comand: unknown key", '"command"')
async def a_mistyped_key(folder: Path) -> Told:
    config = write_config(folder, {"a": {"comand": "x"}})
    done = invoke("serve", "--config", str(config))
    assert (done.exit_code, done.stdout) == (2, "")
    code, _, rest = done.stderr.partition(":")
    return Told(code, rest)


@reaches("runtime_unavailable", "engine is missing", "install the package")
async def no_engine(folder: Path) -> Answer:
    (folder / PACKAGE).mkdir()
    (folder / PACKAGE / "__init__.py").touch()
    async with serve(write_config(folder, DOWN), env=found_first(folder)) as session:
        answer = await session.exec("return 1")
        # There is no fallback: still two tools, and the same answer again.
        assert [tool.name for tool in (await session.client.list_tools()).tools] == ["exec", "wait"]
        assert (await session.exec("return 1", language="typescript")).error == answer.error
        return answer


@reaches("invalid_input", "there is no run")
async def a_run_of_an_earlier_server_and_an_esbuild_that_is_none(folder: Path) -> Answer:
    (folder / "esbuild").write_text("no program", "utf-8")
    config = write_config(folder, {}, esbuild=str(folder / "esbuild"))
    # With nothing that outlives a server.
    config.write_text(json.dumps({**json.loads(config.read_text("utf-8")), "store": {"kind": "memory"}}), "utf-8")
    async with still_working(config) as session:
        failed = await session.exec("return 1 as number", language="typescript")
        assert failed.code == "runtime_unavailable"
        assert "esbuild" in failed.error
        assert "does not run" in failed.error
        run_id = (await session.exec("await yield_control(); return 1")).run_id
    async with still_working(config) as session:
        return await session.wait(run_id)


@reaches("unsupported_language", "'typescript'", "javascript")
async def a_language_that_is_switched_off(strict: Session) -> Answer:
    return await strict.exec("return 1", language="typescript")


@reaches("snapshot_expired", "1 s", "start the program again")
async def a_run_left_alone_for_too_long(folder: Path) -> Answer:
    log = folder / "log"
    settings = {"timeoutMs": 100, "snapshotTtlSeconds": 1}
    async with still_working(write_config(folder, {"counting": counting(log)}, codeMode=settings)) as session:
        calling = await session.exec('return await MCP.counting.hold({ name: "old" })')
        suspended = await session.exec("await yield_control(); return 1")
        # The store drops it at its next look; what is past its time is refused before that too. The time itself has to
        # pass: it began before the answer came, so that it is over for certain, however late this line runs.
        await anyio.sleep(1.1)
        expired = await session.wait(suspended.run_id)
        await until(lambda: "cancelled old" in events(log))
        assert (await session.wait(calling.run_id)).code == "snapshot_expired"
        assert (await session.wait("run_unknown")).code == "invalid_input"
        return expired


DAMAGE = """
from codemode_mcp.runs.store import MemoryStore

suspend = MemoryStore.suspend

async def damage(self, run):
    if run.reason == "yield":
        run = replace(run, snapshot=run.snapshot[:-1] + bytes([run.snapshot[-1] ^ 1]))
    await suspend(self, run)

MemoryStore.suspend = damage
"""


FAULT = """
from tests.values import replace
from codemode_mcp.runs.driver import Driver

complete = Driver._complete

async def fail(self, run, report):
    if report.value == "fail":
        raise RuntimeError("a secret of ours")
    return await complete(self, run, report)

Driver._complete = fail
"""


class Faulty(NamedTuple):
    session: Session
    log: Path


@pytest.fixture(scope="module")
async def faulty(folder: Path) -> AsyncIterator[Faulty]:
    """Yield a server that damages what it keeps of a program that yields, and breaks where one returns "fail"."""
    config = folder / "faulty.json"
    log = folder / "faulty.log"
    config.write_text(json.dumps({"log": {"file": str(log)}, "store": {"kind": "memory"}}), "utf-8")
    (folder / "faulty").mkdir()
    (folder / "faulty" / "sitecustomize.py").write_text(DAMAGE + FAULT, "utf-8")
    async with serve(config, env=found_first(folder / "faulty")) as session:
        yield Faulty(session, log)
        assert await session.value("return 1") == 1


@reaches("snapshot_restore_failed", "cannot be restored", "damaged", "start the program again")
async def a_snapshot_that_was_damaged_in_its_store(faulty: Faulty) -> Answer:
    suspended = await faulty.session.exec("text('before'); await yield_control(); return 1")
    failed = await faulty.session.wait(suspended.run_id)
    assert await faulty.session.wait(suspended.run_id) == failed
    return failed


@reaches("internal_error", "inside codemode-mcp", "log")
async def a_fault_of_ours(faulty: Faulty) -> Answer:
    answer = await faulty.session.exec("return 'fail'")
    assert "secret" not in answer.read
    assert "a secret of ours" in faulty.log.read_text("utf-8")
    return answer


@reaches("too_many_pending_tool_calls", "maxSuspendedRuns is 1", "cancel: true")
async def one_suspended_run_more_than_there_may_be(strict: Session) -> Answer:
    suspended = await strict.exec("await yield_control(); return 'first'")
    refused = await strict.exec("text('kept'); await yield_control(); return 'second'")
    assert refused.texts == ["kept"]
    assert (await strict.wait(suspended.run_id)).value == "first"
    again = await strict.exec("await yield_control(); return 'third'")
    assert (await strict.wait(again.run_id)).value == "third"
    return refused


@reaches("aborted", "cancelled")
async def a_run_that_is_cancelled_while_a_client_waits_for_it(strict: Session, log: Path) -> Answer:
    suspended = await strict.exec("await yield_control(); return await MCP.counting.hold({ name: 'x' })")
    answers: list[Answer] = []

    async def wait() -> None:
        answers.append(await strict.wait(suspended.run_id))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await until(lambda: "call x" in events(log))
        aborted = await strict.wait(suspended.run_id, cancel=True)
    assert [answer.code for answer in answers] == ["aborted"]
    await until(lambda: "cancelled x" in events(log))
    return aborted


@reaches("aborted", "shutting down")
async def a_server_that_is_told_to_end(folder: Path) -> Told:
    log, config = folder / "log", folder / "config.json"
    # Where a store keeps it, the program is suspended.
    config.write_text(json.dumps({"mcpServers": {"counting": counting(log)}, "store": {"kind": "memory"}}), "utf-8")
    async with handshaken(config) as client:
        await client.send_call(99, "exec", {"code": "return await MCP.counting.hold({ name: 'x' })"})
        await until(lambda: "call x" in events(log))
        client.process.terminate()
        result = (await client.answer_to(99))["result"]
        assert result["isError"] is True
        assert await client.exit_code() == 0
    structured = result["structuredContent"]
    return Told(structured["code"], structured["error"])


@pytest.mark.parametrize("name", SCENARIOS)
async def test_what_happens_around_programs_has_its_code_too(
    tmp_path: Path, folder: Path, strict: Session, faulty: Faulty, name: str
) -> None:
    if name == "a server that is told to end" and sys.platform == "win32":
        pytest.skip("Windows has no such signals")
    code, words, scenario = SCENARIOS[name]
    shared = {"folder": tmp_path, "strict": strict, "log": folder / "log-strict", "faulty": faulty}
    told = await scenario(**{each: shared[each] for each in inspect.signature(scenario).parameters})
    assert told.code == code
    for word in words:
        assert word in told.error
    assert await strict.value("return 1") == 1


def test_every_code_is_reached() -> None:
    programs = {row.code for row in [*PROGRAMS.values(), *NARROW.values()]}
    assert programs | {code for code, _, _ in SCENARIOS.values()} == set(ERROR_CODES)


@pytest.mark.usefixtures("esbuild")
@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("const a: number = 1;\nconst b: = 2;", "typescript_transform_failed", "cell.ts:2:10"),
        ("const a = 1;\nconst b = ;", "invalid_input", "cell.js:2:11"),
    ],
    ids=["typescript", "javascript"],
)
async def test_a_mistake_is_told_by_the_verdict_of_its_language_without_a_language(
    session: Session, text: str, code: str, place: str
) -> None:
    answer = await session.exec(text)
    assert answer.code == code
    assert place in answer.error
