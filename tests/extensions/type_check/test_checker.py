"""Single checks: what is an error, what is not, positions, hostile programs, and the life of the compiler's process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from codemode_mcp.base.errors import RuntimeUnavailable
from codemode_mcp.base.paths import cache_dir
from codemode_mcp.base.settings import Language, PolicyRules
from codemode_mcp.catalog.catalog import Catalog
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.extensions.type_check import problems
from codemode_mcp.extensions.type_check.checker import TypeChecker
from codemode_mcp.extensions.type_check.compiler import MEMORY_BYTES, Compiler, CompilerProcess, find_compiler
from codemode_mcp.extensions.type_check.problems import lines, signatures
from codemode_mcp.rules.policy.policy import Policy
from tests.extensions.type_check.checks import catalog, cell, installed_compiler
from upstream_clients.tools import Tool, UpstreamView

pytestmark = pytest.mark.anyio

CATALOG = catalog()

CLOSED = {"additionalProperties": False}
FILTER = {"type": "object", "properties": {"since": {"type": "string"}}}
ARGUMENTS = {"city": {"type": "string"}, "days": {"type": "integer"}, "filter": FILTER, "tags": {"type": "array"}}
UNTYPED = {"where": {"properties": {"a": {"type": "string"}}}, "list": {"items": {"type": "string"}}}
WEATHER = build(
    [
        UpstreamView(
            "weather",
            "ready",
            tools=tuple(
                Tool(name, input_schema={"type": "object", "properties": properties, **more})
                for name, properties, more in (
                    ("open", ARGUMENTS, {}),
                    ("closed", ARGUMENTS, CLOSED),
                    ("sealed", {"filter": FILTER | CLOSED}, CLOSED),
                    ("any", ARGUMENTS, {"additionalProperties": True}),
                    ("untyped", UNTYPED, CLOSED),
                )
            ),
        )
    ],
    Policy(PolicyRules()),
)
"""A server whose schemas accept more than their types, in several ways."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return the backend, in module scope: the tests share a checker."""
    return "asyncio"


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return installed_compiler()


@pytest.fixture(scope="module")
async def checker(compiler: Compiler) -> AsyncIterator[TypeChecker]:
    checker = TypeChecker(cache_dir(), seconds=60)
    async with anyio.create_task_group() as group:
        group.start_soon(checker.end_when_idle)
        yield checker
        group.cancel_scope.cancel()


async def errors(
    checker: TypeChecker, source: str, language: Language = "javascript", catalog: Catalog = CATALOG
) -> list[str]:
    """Return the lines about the errors of a cell."""
    text = cell(source, language)
    checked = await checker.check(text, catalog)
    assert checked.unchecked is None
    return lines(text, checked.problems, signatures(catalog))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("await MCP.tracker.createIssue({ titel: 'x' })", "Did you mean to write 'title'? (cell.js:1:33)"),
        (
            "await MCP.tracker.create_issue({ title: 1 })",
            "Type 'number' is not assignable to type 'string' (cell.js:1:34)",
        ),
        ("await MCP.tracker.createIssue({ title: 'x', state: 'opened' })", "Did you mean '\"open\"'? (cell.js:1:45)"),
        ("await MCP.tracker.createIssue({ state: 'open' })", "createIssue: Property 'title' is missing"),
        ("const a = { state: 'open' };\nawait MCP.tracker.createIssue(a)", "createIssue: Property 'title' is missing"),
        ("await MCP.tracker.createIssue('x')", "Argument of type 'string' is not assignable"),
        ("const t = MCP.tracker;\nt.close()", "Property 'close' does not exist on type 'typeof tracker' (cell.js:2:3)"),
        ("MCP.tracker.listIssues().structuredContent.items", "this is a promise: `await` is missing before it"),
        ("MCP.tracker.createIssue({ title: 'é𝒳' });\nawait 1", "createIssue(...) is not awaited; write await MCP"),
        ("const r = MCP.tracker.raw();\ntext(r); await 1", "`r` is a promise; write await r (cell.js:2:6)"),
        (
            "const r = await MCP.tracker.listIssues();\nr.items.map(i => i.id)",
            "Property 'items' does not exist on type 'McpToolResult<",
        ),
        (
            "const { items } = await MCP.tracker.listIssues();\nitems",
            "; its content is in structuredContent, which unwrap(result) returns",
        ),
        (
            "unwrap(await MCP.tracker.listIssues()).items.id",
            "Property 'id' does not exist on type 'CreateIssueOutput[]'",
        ),
        ("for (const i of unwrap(await MCP.tracker.listIssues())) text(i)", "must have a '[Symbol.iterator]()' method"),
        ("unwrap(await MCP.tracker.createIssue({ title: 'é𝒳' })).titel", "Did you mean 'title'? (cell.js:1:57)"),
        (
            "(await MCP.tracker.createIssue({ title: 'x' })).structuredContent.state === 'opened'",
            "have no overlap (cell.js:1:1)",
        ),
        ("JSON.parse(MCP.tracker.raw())", "this is a promise"),
        ("await MCP.tracker.createIssue(MCP.tracker.raw())", "this is a promise"),
        ("const { createIssue } = MCP.tracker;\nawait createIssue({})", "createIssue: Property 'title' is missing"),
        (
            "unwrap(await MCP.tracker.listIssues()).items.filter(i => i.status === 'open')",
            "Property 'status' does not exist on type 'CreateIssueOutput'",
        ),
        ("async () => { return MCP.tracker.listIssues({}).items }", "on type 'Promise<McpToolResult<"),
        (
            "for (const query of ['a', 'b']) MCP.tracker.raw({ query });\nreturn 1",
            "MCP.tracker.raw(...) is not awaited",
        ),
        ("['a'].forEach(async query => { await MCP.tracker.raw({ query }) });\nreturn 1", "does not wait for an async"),
        ("[1].filter(async () => !(await MCP.tracker.raw()).isError)", "a promise is always true"),
        ("async function f() { return unwrap(await MCP.tracker.listIssues()) }\nf().items", "this is a promise"),
        ("const { raw, close } = MCP.tracker;\nawait raw(); await close()", "Property 'close' does not exist"),
        ("try { await MCP.tracker.close() } catch (e) { text(e.message) }", "Property 'close' does not exist"),
        ("const ok = async () => !(await MCP.tracker.raw()).isError;\nif (!ok()) text('no')", "`ok()` is a promise"),
        ("await MCP.tracker.readAd({ id: 5n, title: 5n })", "Type 'bigint' is not assignable to type 'string'"),
        ("await MCP.tracker.readAd({ id: '5' })", "Type 'string' is not assignable to type 'int'"),
        ("await MCP.tracker.createIssue({ title: '', state: 1 })", "Type 'number' is not assignable to type '"),
        (
            "switch (unwrap(await MCP.tracker.createIssue({ title: '' })).state) { case 'x': 1 }",
            '"x"\' is not comparable to type',
        ),
    ],
)
async def test_an_error_is_found_at_its_place(checker: TypeChecker, source: str, expected: str) -> None:
    found = await errors(checker, source)
    assert len([line for line in found if line.startswith("- ")]) == 1
    assert expected in found[0]
    typed = await errors(checker, source, "typescript")
    assert expected.replace("cell.js", "cell.ts") in typed[0], "the same in TypeScript"


@pytest.mark.parametrize(
    "source",
    [
        "let state = 'open'; state += ''; await MCP.tracker.createIssue({ title: 'x', state })",
        "const a = {}; a.title = 'x'; await MCP.tracker.createIssue(a)",
        "const base = { title: 'x' }; await MCP.tracker.createIssue({ ...base, state: 'open' })",
        "await MCP.tracker.createIssue({ title: new Date(0) })",
        "const r = await MCP.tracker.listIssues(); (r.items ?? r.structuredContent.items).length",
        "const r = await MCP.tracker.listIssues(); const d = r.structuredContent ?? r; d.items.length",
        "const r = unwrap(await MCP.tracker.listIssues()); for (const i of r.items) i.age = 1; r.items[0].age",
        "const r = unwrap(await MCP.tracker.listIssues()); if (r.total) text(r.total)",
        "const r = unwrap(await MCP.tracker.raw()); r.anything.at.all[0]",
        "const r = await MCP.tracker.raw(); r.items",
        "unwrap(await MCP.tracker.listIssues()).items.reduce((s, i) => { s.n = (s.n ?? 0) + i.id; return s }, {}).n",
        "await MCP.asleep.anything({ whatever: 1 })",
        "const e = await MCP.tracker.createIssue({ title: 1 }).catch(e => e); e.message",
        "let r = await MCP.tracker.listIssues(); r = await MCP.tracker.createIssue({ title: 'x' }); r.isError",
        "const all = await Promise.all([MCP.tracker.listIssues(), MCP.tracker.createIssue({ title: 'x' })]);\n"
        "const [a, b] = all.map(unwrap); [a.items, b.title]",
        "let r = await MCP.tracker.listIssues(); r = unwrap(r); r.items",
        "let a = { title: 1 }; a = { title: 'x' }; await MCP.tracker.createIssue(a)",
        "try { await MCP.tracker.close() } catch (e) { text(e.message); await MCP.tracker.raw() }",
        "try { if ('close' in MCP.tracker) await MCP.tracker.close() } catch (e) { throw e }",
        "const { raw, close } = MCP.tracker; if (close) await close(); await raw()",
        "Object.groupBy(unwrap(await MCP.tracker.listIssues()).items, i => i.state)",
        "unwrap(await MCP.tracker.listIssues()).items.filter(i => i.state === 'open' || i.status === 'open')",
        "const { id } = unwrap(await MCP.tracker.readAd({ id: 7n }));\nawait MCP.tracker.readAd({ id })",
        "const { id } = unwrap(await MCP.tracker.readAd({ id: 1 }));\n"
        "await MCP.tracker.readAd({ id, page: id, ratio: 5n })",
        "const { sizes } = unwrap(await MCP.tracker.readAd({ id: 1 })); sizes.reduce((sum, size) => sum + size, 0)",
        "const { sizes } = unwrap(await MCP.tracker.readAd({ id: 1 }));\n"
        "Math.max(...sizes); new Date(sizes[0]); isNaN(sizes[0])",
        "const { id } = unwrap(await MCP.tracker.readAd({ id: 1 }));\nid.toFixed(2); id === 5n; id === 5; id + 1",
        "MCP.tracker.listIssues()",
        "MCP.tracker.raw({ query: 'x' });\nreturn 1",
        "let n = 0; await new Promise(r => [1].forEach(async () => { await MCP.tracker.raw(); if (++n) r() })); n",
        "class L { filter(f) { return f(1) } }; await new L().filter(async () => MCP.tracker.raw())",
        "var undefinedName = nothing.at.all; with_sloppy = 1",
    ],
)
async def test_what_may_run_is_no_error(checker: TypeChecker, source: str) -> None:
    assert await errors(checker, source) == []
    assert await errors(checker, source, "typescript") == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("open({ city: 'x', quux: 1 })", None),
        ("open({ city: 'x', dayz: 1 })", None),
        ("open({ citty: 'x', quuux: 1 })", "Did you mean to write 'city'?"),
        ("open({ fliter: {} })", "Did you mean to write 'filter'?"),
        ("open({ filter: { quux: 1 } })", None),
        ("open({ filter: { sicne: 'x' } })", "Did you mean to write 'since'?"),
        ("open({ tags: { quux: 1 } })", "known properties, and 'quux' does not exist in type"),
        ("open({ days: 'x', quux: 1 })", "Type 'string' is not assignable to type 'int'"),
        ("closed({ city: 'x', quux: 1 })", "known properties, and 'quux' does not exist in type"),
        ("closed({ filter: { quux: 1 } })", None),
        ("sealed({ filter: { quux: 1 } })", "known properties, and 'quux' does not exist in type"),
        ("any({ quux: 1 })", None),
        ("untyped({ where: 5, list: 'x' })", None),
        ("untyped({ where: ['x'], list: null })", None),
        ("untyped({ where: { a: 'x' }, quux: 1 })", "known properties, and 'quux' does not exist in type"),
    ],
)
async def test_what_a_schema_accepts_beyond_its_type_is_no_error(
    checker: TypeChecker, arguments: str, expected: str | None
) -> None:
    for language in ("javascript", "typescript"):
        found = await errors(checker, f"await MCP.weather.{arguments}", language, WEATHER)
        assert len(found) == (0 if expected is None else 2)
        assert expected is None or expected in found[0]


async def test_five_errors_are_shown_and_each_signature_once(checker: TypeChecker) -> None:
    call = "await MCP.tracker.createIssue({ title: 1 });\n"
    found = await errors(checker, f"MCP.tracker.raw({{}});\n{call * 6}return 1")
    assert [line.rpartition("(")[2] for line in found[:2]] == ["cell.js:1:1)", "cell.js:2:33)"]
    assert found[5] == "- … and 2 more"
    assert [line for line in found if line.startswith("Signature: ")] == [found[-1]]
    assert "Signature: MCP.tracker.createIssue(input: { title: string;" in found[-1]


# --- Hostile programs


@pytest.mark.parametrize("style", ["path", "import", "require", "types", "lib"])
def test_a_program_cannot_make_the_compiler_read_a_file(compiler: Compiler, tmp_path: Path, style: str) -> None:
    """The options of this project resolve everything: only the answers about files stand between."""
    secret = tmp_path / "secret.d.ts"
    secret.write_text("declare const secret: 42;\n", "utf-8")
    (tmp_path / "index.d.ts").write_text("export const secret: 42;\n", "utf-8")
    link = Path(tmp_path / "link.d.ts")
    link.symlink_to(secret)
    sources = {
        "path": f'/// <reference path="{secret}" />\n/// <reference path="{link}" />\nconst x: 43 = secret;',
        "import": f'import {{ secret }} from "{tmp_path}/index"; const x: 43 = secret;',
        "require": f'const x: 43 = (null as any as typeof import("{tmp_path}/index")).secret;',
        "types": f'/// <reference types="{tmp_path}" />\nconst x: 43 = secret;',
        "lib": f'/// <reference lib="../../../..{secret}" />\nconst x: 43 = secret;',
    }
    process = CompilerProcess(compiler)
    try:
        process.write({"/own/cell.ts": sources[style], "/own/tsconfig.json": '{"files": ["cell.ts"]}'})
        response = process.request("updateSnapshot", {"openProjects": ["/own/tsconfig.json"]})
        project = {"snapshot": response["snapshot"], "project": "/own/tsconfig.json", "file": "/own/cell.ts"}
        found = process.request("getSemanticDiagnostics", project) or []
    finally:
        process.end()
    assert not [each for each in found if "Type '42'" in each["text"]], "the file was read"


SLOW = """
type Digit = 0|1|2|3|4|5|6|7|8|9;
type Texts<End extends string> = `${Digit}${Digit}${Digit}${Digit}${End}`;
type Last<T> = T extends `${infer _}${infer Rest}` ? Last<Rest> : T;
const slow: Last<Texts<"abc">> = 1;
return slow;
"""
"""A program whose check takes 10 s."""


def _spent() -> float:
    """Return the processor time of processes that have ended, in seconds."""
    times = os.times()
    return times.children_user + times.children_system


async def test_a_check_that_takes_too_long_is_given_up_and_the_next_one_works(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker = TypeChecker(cache_dir(), seconds=0.4)
    began = _spent()
    assert (await checker.check(cell(SLOW, "typescript"), CATALOG)).gave_up == "that took longer than 0.4 s"
    assert checker.pid is None
    assert _spent() - began < 5
    monkeypatch.setattr(checker, "_seconds", 60)
    assert (await checker.check(cell("await MCP.tracker.createIssue({})"), CATALOG)).problems
    await checker.close()


async def test_declarations_that_take_too_long_are_not_read_again(compiler: Compiler) -> None:
    checker = TypeChecker(cache_dir(), seconds=60, open_seconds=0)
    right = cell("1")
    for _ in range(2):
        assert (await checker.check(right, CATALOG)).gave_up == "the declarations of its tools take too long to read"
        assert checker.pid is None
    await checker.close()


async def test_a_process_that_was_killed_is_replaced_and_an_idle_one_is_ended(compiler: Compiler) -> None:
    checker = TypeChecker(cache_dir(), seconds=60, idle_seconds=0.05)
    wrong = cell("await MCP.tracker.createIssue({})")
    assert (await checker.check(wrong, CATALOG)).problems
    first = checker.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert (await checker.check(wrong, CATALOG)).gave_up == "the compiler failed on it"
    assert (await checker.check(wrong, CATALOG)).problems
    second = checker.pid
    assert second not in (None, first)
    async with anyio.create_task_group() as group:
        group.start_soon(checker.end_when_idle)
        await anyio.to_thread.run_sync(_wait_for_end, second)
        assert checker.pid is None
        group.cancel_scope.cancel()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot limit another process")
def test_the_system_limits_the_compiler(compiler: Compiler) -> None:
    process = CompilerProcess(compiler)
    try:
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        variables = Path(f"/proc/{process.pid}/environ").read_text()
    finally:
        process.end()
    found = {line[:25].strip(): line[26:].split()[0] for line in limits.splitlines()}
    assert found["Max data size"] == str(MEMORY_BYTES)
    assert (found["Max file size"], found["Max core file size"]) == ("0", "0")
    assert "HOME" not in variables


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals that end a process like this")
def test_the_compiler_ends_with_a_process_that_was_killed(compiler: Compiler) -> None:
    code = (
        "import time; from codemode_mcp.base.paths import cache_dir\n"
        "from codemode_mcp.extensions.type_check.compiler import find_compiler\n"
        "from codemode_mcp.extensions.type_check.compiler import CompilerProcess\n"
        "print(CompilerProcess(find_compiler(cache_dir())).pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    _wait_for_end(pid)


def _wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 20
    while _runs(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


async def test_a_flaw_of_the_check_fails_no_program(checker: TypeChecker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(problems, "find_problems", fail)
    assert (await checker.check(cell("MCP.tracker.raw()"), CATALOG)).gave_up == "the check failed"


# --- The pinned files


def test_a_compiler_that_was_changed_is_not_executed(compiler: Compiler, tmp_path: Path) -> None:
    folder = tmp_path / cache_dir().name / compiler.executable.parent.name
    folder.mkdir(parents=True, mode=0o700)
    for each in compiler.executable.parent.iterdir():
        (folder / each.name).write_bytes(each.read_bytes())
    find_compiler(folder.parent)
    for name in (compiler.executable.name, "library.json"):
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(before + b"\n")
        with pytest.raises(RuntimeUnavailable, match=r"is not the .* of TypeScript .* as pinned.*setup --check"):
            find_compiler(folder.parent)
        (folder / name).write_bytes(before)
    with pytest.raises(RuntimeUnavailable, match="which is not in"):
        find_compiler(tmp_path)
