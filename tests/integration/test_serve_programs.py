"""Programs over the quick start's servers: joins, TypeScript, values, output, and errors of every kind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from harness import (
    DOWN,
    LANGUAGES,
    QUICKSTART,
    TYPES,
    Session,
    counting,
    events,
    quickstart,
    serve,
    write_config,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def session(folder: Path) -> AsyncIterator[Session]:
    """Yield a client of the handshake; `test_contract.py` has the other ways to a server."""
    servers = quickstart() | {"counting": counting(folder / "log")}
    config = write_config(folder, servers, codeMode={"maxOutputBytes": 20_000, "memoryLimitBytes": 32 << 20})
    async with serve(config) as session:
        yield session


@pytest.mark.usefixtures("esbuild")
async def test_one_program_joins_two_servers(session: Session) -> None:
    answer = await session.exec((QUICKSTART / "join.ts").read_text("utf-8"), language="typescript")
    assert answer.texts == ["Week 2026-W23: 24 open issues, 3 unassigned"]
    assert answer.value[0] == {
        "name": "Ada Moreau",
        "team": "platform",
        "openIssues": 5,
        "oldest": "Login loops when the session cookie has expired",
        "hours": 44,
    }
    assert [person["openIssues"] for person in answer.value] == [5, 4, 3, 3, 3, 3]
    assert answer.read.startswith("Week 2026-W23: 24 open issues")
    telemetry = answer.telemetry
    assert telemetry["counts"]["call"] == 3
    assert {call["tool"] for call in telemetry["calls"]} <= {
        "mcp:tracker:list_people",
        "mcp:tracker:list_issues",
        "mcp:reports:team_hours",
    }


async def test_parallel_calls_overlap(session: Session) -> None:
    # `hold` answers when `release` is called: one after the other, this program would never end.
    code = """
        const held = Promise.all(["a", "b", "c"].map((name) => MCP.counting.hold({ name })));
        for (const name of ["c", "b", "a"]) await MCP.counting.release({ name });
        return (await held).map(unwrap);
    """
    assert await session.value(code) == ["a is done", "b is done", "c is done"]


async def test_the_last_expression_is_the_value(session: Session) -> None:
    assert await session.value("const x = 20; x + 22") == 42
    assert await session.value("MCP.counting.count({ name: 'last' }).then(unwrap)") == "last"


@pytest.mark.usefixtures("esbuild")
async def test_a_stack_of_typescript_has_the_message_and_lines_of_the_program(session: Session) -> None:
    code = (
        "interface P {\n  a: number\n}\nconst p: P = { a: 1 };\n"
        "function f(\n  x: P,\n): never {\n  throw new RangeError('disk full')\n}\n"
        "try { f(p) } catch (e) { console.log(e); return (e as Error).stack }"
    )
    answer = await session.exec(code)
    stack = "RangeError: disk full\n    at f (cell.ts:8)\n    at <anonymous> (cell.ts:10)"
    assert (answer.value, answer.structured["output"]) == (stack, [{"type": "text", "text": stack}])


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("MCP.tracker.getIssue({ issue_id: 1 }).then(unwrap).then((i) => i.id)", 1),
        ('MCP.tracker["get_issue"]({ issue_id: 2 }).then(unwrap).then((i) => i.id)', 2),
        ("MCP.tracker.resources.list().then((r) => r.resources[0].uri)", "tracker://labels"),
        ("MCP.tracker.prompts.list().then((r) => r.prompts[0].name)", "triage"),
    ],
)
async def test_a_tool_can_be_called_in_several_ways(session: Session, call: str, expected: Any) -> None:
    assert await session.value(f"return await {call}") == expected


async def test_a_mistyped_call_is_found_before_anything_is_sent(session: Session, folder: Path) -> None:
    answer = await session.exec('await MCP.counting.count({ name: "typo" });\nawait MCP.counting.cuont({})')
    assert answer.code == "invalid_input"
    assert "cell.js:2:7" in answer.error
    assert "count" in answer.error
    assert await session.value('return unwrap(await MCP.counting.count({ name: "later" }))') == "later"
    seen = events(folder / "log")
    assert "call later" in seen
    assert "call typo" not in seen


async def test_an_endless_loop_ends_in_time_and_delays_no_other_program(folder: Path) -> None:
    config = write_config(folder, {}, name="short.json", codeMode={"timeoutMs": 4000})
    async with serve(config) as session, anyio.create_task_group() as group:
        await session.value("return 1")
        ended: list[str] = []

        async def loop() -> None:
            ended.append((await session.exec("let n = 0;\nfor (;;) n++;")).code)

        group.start_soon(loop)
        answered = 0
        while not ended:
            assert await session.value(f"return {answered}") == answered
            answered += 1
    assert ended == ["timeout"]
    assert answered > 1, "the last one alone may have waited for the end of the loop"


async def test_the_api_is_listed_read_and_searched(session: Session) -> None:
    files = await session.value("return (await API.list()).files.map((f) => f.path)")
    assert files == ["mcp/index.d.ts", "mcp/tracker.d.ts", "mcp/reports.d.ts", "mcp/counting.d.ts"]
    content = await session.value('return (await API.read("mcp/tracker.d.ts")).content')
    assert "declare namespace MCP.tracker" in content
    assert 'label: "bug" | "feature" | "docs" | "performance"' in content
    hits = await session.value('return await API.search("close an issue")')
    assert hits[0]["call"] == "MCP.tracker.closeIssue"
    assert hits[0]["server"] == "tracker"
    only = await session.value('return await API.search("hours", { server: "reports", limit: 1 })')
    assert [hit["server"] for hit in only] == ["reports"]


async def test_headers_tell_what_a_server_has(session: Session) -> None:
    root = await session.value("return await MCP.$api()")
    assert root["kind"] == "mcp_api"
    assert {server["identifier"] for server in root["servers"]} == {"tracker", "reports", "counting"}
    one = await session.value('return await MCP.tracker.$api("getIssue", { schema: true })')
    assert one["scope"] == "tool"
    assert [tool["mcpTool"] for tool in one["tools"]] == ["get_issue"]
    assert "issue_id" in str(one["schemas"])


async def test_a_result_is_rendered_plainly_on_request(folder: Path) -> None:
    config = write_config(folder, {}, name="plain.json", resultFormat="plain")
    async with serve(config) as session:
        assert (await session.exec("return { a: 1 }")).read == '{"a":1}'
        assert (await session.exec("nope")).read.startswith("Error internal_error: ")


async def test_a_language_that_is_switched_off_is_refused(folder: Path) -> None:
    config = write_config(folder, DOWN, name="js.json", codeMode={"languages": ["javascript"]})
    async with serve(config) as session:
        assert (await session.exec("return 1", language="typescript")).code == "unsupported_language"
        assert await session.value("return 1") == 1
        schema = (await session.client.list_tools()).tools[0].input_schema
        assert schema["properties"]["language"]["enum"] == ["javascript"]


async def test_a_date_is_written_in_the_time_zone_that_a_program_names(session: Session) -> None:
    program = """
        const zone = { timeZone: "America/New_York" };
        const dates = ["2026-01-01T00:00:00Z", "2026-07-01T00:00:00Z", "2026-03-08T07:00:00Z"].map((d) => new Date(d));
        return dates.map((date) => date.toLocaleString("en-US", zone));
    """
    assert await session.value(program) == ["12/31/2025, 7:00:00 PM", "6/30/2026, 8:00:00 PM", "3/8/2026, 3:00:00 AM"]


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("return mcp__tracker__get_issue({ issue_id: 1 })", "(write MCP.tracker.getIssue({...}))"),
        ("return await getIssue({ issue_id: 1 })", "(write MCP.tracker.getIssue({...}))"),
        ("return await tools.tracker.getIssue({ issue_id: 1 })", "(write MCP.tracker)"),
        ("return await tools.getIssue({ issue_id: 1 })", "(write MCP.tracker.getIssue({...}))"),
        ("return await tracker.getIssue({ issue_id: 1 })", "(write MCP.tracker)"),
        ("return await tools.call('tracker.getIssue', { issue_id: 1 })", "call MCP.tracker.getIssue({...})"),
        ("return await tools.call('tracker', 'get_issue', { issue_id: 1 })", "functions of MCP.tracker, such as"),
        ("return await callTool('get_issue', { issue_id: 1 })", "write MCP.<server>.<tool>({...})"),
        ("return await MCP.tracker.call('get_issue', {})", "call them by name, such as MCP.tracker."),
        ("return await MCP.callTool('tracker', 'get_issue', {})", "write MCP.<server>.<tool>({...}), such as MCP."),
        ("return await MCP.getIssue({ issue_id: 1 })", "Write MCP.tracker.getIssue({...})."),
        ("return JSON.parse('Commit: x')", 'this is plain text: "Commit: x" (unwrap(result) returns data'),
        ("return Buffer.from('x')", "atob(text)"),
        ("return nothingLikeIt({})", "nothingLikeIt is not defined"),
    ],
)
async def test_a_name_from_elsewhere_is_answered_with_the_expression_to_use(
    session: Session, program: str, told: str
) -> None:
    assert await session.value("return Object.keys(MCP.tracker).includes('getIssue')")  # its tools are known by now
    assert told in (await session.exec(program)).error


async def test_names_of_tools_are_listed_in_one_spelling(session: Session) -> None:
    error = (await session.exec("await MCP.tracker.zzz({})")).error
    assert "MCP.tracker has: " in error
    assert "getIssue" in error
    assert "get_issue" not in error


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("const r = await MCP.tracker.getIssue({ issue_id: 1 }); r.split('x')", "r.split is not a function (r is an "),
        ("const r = await MCP.tracker.getIssue({ issue_id: 1 }); r.issue.x", "; r is an object with: content (array)"),
        ("const r = unwrap(await MCP.tracker.getIssue({ issue_id: 1 })); r.map(String)", "(r is an object with: "),
        ("const r = await API.search('issue'); return r.results.length", "; r is an array of "),
        ("await Promise.resolve(); const r = { a: 1 }; return r.map(String)", "r.map is not a function\n"),
    ],
)
@pytest.mark.parametrize("language", LANGUAGES)
async def test_an_error_says_what_the_value_was_that_a_call_gave(
    session: Session, program: str, told: str, language: str
) -> None:
    types = TYPES if language == "typescript" else ""
    assert told in (await session.exec(types + program, language=language)).error


async def test_a_loop_that_waits_for_nothing_is_told_what_waits(session: Session) -> None:
    answer = await session.exec("[1, 2].forEach(async (issue_id) => { await MCP.tracker.getIssue({ issue_id }) })")
    assert "forEach does not wait" in answer.read
    part = await session.exec("return { rows: [{ a: null }, { average: 0 / 0, day: new Date('x') }] }")
    assert "value.rows[1].average is NaN in the program" in part.read
