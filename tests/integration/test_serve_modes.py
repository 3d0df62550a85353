"""The modes: which tools a client gets, by configuration, client and path, and that each takes the one road."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest

from codemode_mcp.server.descriptions import prompt_bytes
from codemode_mcp.server.search_tools import SEARCH_BYTES
from tests.integration.announcements import Ear
from tests.integration.harness import SECONDS, Session, quickstart, serve, until
from tests.integration.http_harness import serve_http

pytestmark = pytest.mark.anyio


def write(folder: Path, expose: dict[str, Any], **others: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({"mcpServers": quickstart(), "expose": expose, **others}), "utf-8")
    return path


async def tools(session: Session) -> list[types.Tool]:
    with anyio.fail_after(SECONDS):
        return (await session.client.list_tools(cache_mode="refresh")).tools


async def names(session: Session) -> list[str]:
    return [tool.name for tool in await tools(session)]


async def call(session: Session, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
    with anyio.fail_after(SECONDS):
        return await session.client.call_tool(name, arguments)


def text(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


async def test_exec_and_wait_are_the_same_bytes_with_and_without_chosen_tools(tmp_path: Path) -> None:
    # The description of `exec` has topics of the servers that have listed their tools.
    connected = "await API.read('mcp/tracker.d.ts', 'mcp/reports.d.ts')"
    found = []
    for expose in ({}, {"direct": ["*"]}):
        async with serve(write(tmp_path, expose)) as session:
            await session.value(connected)
            listed = (await tools(session))[:2]
        assert "Topics: " in (listed[0].description or "")
        found.append([tool.model_dump_json() for tool in listed])
    assert found[0] == found[1]


async def test_search_finds_a_tool_by_words_and_call_calls_it(tmp_path: Path) -> None:
    async with serve(write(tmp_path, {"mode": "search"}), mode="auto") as session:
        listed = await tools(session)
        assert [tool.name for tool in listed] == ["search", "call"]
        assert prompt_bytes([tool.model_dump(by_alias=True) for tool in listed]) <= SEARCH_BYTES
        hits = text(await call(session, "search", {"query": "issues of a person"}))
        assert "MCP.tracker.listIssues(" in hits
        assert 'state?: "open" | "closed"' in hits
        found = await call(session, "call", {"name": "MCP.tracker.listIssues", "arguments": {"state": "closed"}})
        assert found.structured_content is not None
        assert found.structured_content["total"] > 0
        for name in ("mcp:tracker:list_issues", "tracker__list_issues", "tracker.listIssues"):
            again = await call(session, "call", {"name": name, "arguments": {"state": "closed"}})
            assert again.structured_content == found.structured_content, name


async def test_no_client_approves_a_call_without_a_program_if_approvals_are_given_in_a_terminal(tmp_path: Path) -> None:
    asked: list[str] = []

    async def approve(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    rules = {"ask": ["mcp:tracker:close_issue"], "approval": {"via": "terminal"}}
    config = write(tmp_path, {"mode": "search", "direct": ["mcp:tracker:close_issue"]}, tools=rules)
    async with serve(config, elicitation_callback=approve) as session:
        closing = {"issue_id": 1}
        await tools(session)
        for name, arguments in (
            ("call", {"name": "MCP.tracker.closeIssue", "arguments": closing}),
            ("tracker__close_issue", closing),
        ):
            refused = await call(session, name, arguments)
            assert refused.is_error
            assert "approvals are given in a terminal (tools.approval.via)" in text(refused)
        found = await call(session, "call", {"name": "MCP.tracker.getIssue", "arguments": closing})
        assert found.structured_content is not None
        assert found.structured_content["state"] == "open"
    assert asked == []


async def test_mistakes_of_call_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "issuesOfAPerson.js").write_text("export default () => 1;\n", "utf-8")
    async with serve(write(tmp_path, {"mode": "search"})) as session:
        hits = text(await call(session, "search", {"query": "issues of a person"}))
        assert "programs." not in hits  # which only programs can call
        for arguments, expected in (
            ({"name": "program:saved:issuesOfAPerson"}, "Find tools with search."),
            ({"name": "programs.issuesOfAPerson"}, "Find tools with search."),
            ({"name": "MCP.tracker.listIsues"}, "Nearest: listIssues"),
            ({"name": "nothing"}, "Find tools with search."),
            ({}, "name is missing"),
            ({"name": "MCP.tracker.listIssues", "state": "open"}, 'into arguments: ["state"]'),
            ({"name": "MCP.tracker.listIssues", "arguments": {"state": "lost"}}, "state"),
        ):
            result = await call(session, "call", arguments)
            assert result.is_error, arguments
            assert expected in text(result)
        missing = await call(session, "search", {"query": " "})
        assert missing.is_error
        assert "query is missing" in text(missing)
        refused = await call(session, "exec", {"code": "return 1"})
        assert refused.is_error
        assert "this server has search and call" in text(refused)


async def test_policy_holds_for_searched_and_for_listed_tools(tmp_path: Path) -> None:
    rules = {"deny": ["mcp:tracker:list_people"], "ask": ["mcp:tracker:create_issue"]}
    asked: list[str] = []

    async def answer(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "deny"})

    config = write(tmp_path, {"mode": "search", "direct": ["mcp:tracker:*"]}, tools=rules)
    async with serve(config, mode="auto", elicitation_callback=answer) as session:
        assert "tracker__list_people" not in await names(session)
        assert "listPeople" not in text(await call(session, "search", {"query": "list people"}))
        for tool, arguments in (
            ("call", {"name": "MCP.tracker.createIssue", "arguments": {"title": "x", "label": "bug"}}),
            ("tracker__create_issue", {"title": "x", "label": "bug"}),
        ):
            refused = await call(session, tool, arguments)
            assert refused.is_error
            assert "denied" in text(refused)
        assert len(asked) == 2


async def test_each_path_of_http_has_its_mode_at_the_same_time(tmp_path: Path) -> None:
    async with serve_http(write(tmp_path, {})) as served, anyio.create_task_group() as group:
        await served.ready()
        seen: dict[tuple[str, str], list[str]] = {}

        async def look(path: str, era: str) -> None:
            url = served.url + path
            of_path = type(served)(served.process, url, served.stderr_path)
            async with of_path.client(era) as session:
                instructions = session.client.instructions or ""
                assert ("search finds tools" in instructions) == (path == "/search")
                seen[path, era] = await names(session)

        for path in ("", "/code", "/search", "/direct"):
            for era in ("legacy", "auto"):
                group.start_soon(look, path, era)
        await until(lambda: len(seen) == 8)
        for era in ("legacy", "auto"):
            assert seen["", era] == seen["/code", era] == ["exec", "wait"]
            assert seen["/search", era] == ["search", "call"]
            assert seen["/direct", era][:2] == ["exec", "wait"]
            assert "tracker__close_issue" in seen["/direct", era]
        assert (await served.request("GET", "/mcp/other")).status_code == 404


async def test_a_changed_configuration_is_announced_and_changes_the_list(tmp_path: Path) -> None:
    ear = Ear("legacy")
    config = write(tmp_path, {"direct": ["mcp:tracker:list_*"]})
    async with serve(config, message_handler=ear) as session:
        assert len(await names(session)) == 4
        write(tmp_path, {"direct": ["mcp:tracker:list_issues"]})
        await ear.heard()
        assert await names(session) == ["exec", "wait", "tracker__list_issues"]
        write(tmp_path, {"mode": "search"})
        await ear.heard(2)
        assert await names(session) == ["search", "call"]
