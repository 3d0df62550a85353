"""The bundled demo servers, driven over real stdio in both protocol eras."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from codemode_mcp.config import load_config

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart"

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", params=["auto", "legacy"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def connect(script: str, mode: str, *args: str) -> AsyncIterator[Client]:
    parameters = StdioServerParameters(command=sys.executable, args=[str(QUICKSTART / script), *args])
    async with Client(parameters, mode=mode) as client:
        yield client


@pytest.fixture(scope="module")
async def tracker(mode: str) -> AsyncIterator[Client]:
    """Return a client of a server whose issues stay as they are."""
    async with connect("tracker.py", mode) as client:
        yield client


@pytest.fixture(scope="module")
async def reports(mode: str) -> AsyncIterator[Client]:
    async with connect("reports.py", mode) as client:
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """Return the structured content of a call that succeeds."""
    with anyio.fail_after(30):
        result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def call_error(client: Client, tool: str, **arguments: Any) -> str:
    """Return the text of a call that fails."""
    with anyio.fail_after(30):
        result = await client.call_tool(tool, arguments)
    assert result.is_error
    return str(result.content[0].text)  # type: ignore[union-attr]


async def test_each_server_speaks_the_era_that_the_client_asks_for(tracker: Client, reports: Client, mode: str) -> None:
    for client in (tracker, reports):
        assert (client.protocol_version == "2026-07-28") == (mode == "auto")


async def test_tracker_declares_schemas_and_annotations(tracker: Client) -> None:
    tools = {tool.name: tool for tool in (await tracker.list_tools()).tools}
    assert list(tools) == ["list_issues", "get_issue", "list_people", "create_issue", "comment_issue", "close_issue"]
    for tool in tools.values():
        assert tool.description
        assert tool.output_schema is not None
        assert tool.annotations is not None
    hints = {
        name: (tool.annotations.read_only_hint, tool.annotations.destructive_hint, tool.annotations.idempotent_hint)
        for name, tool in tools.items()
        if tool.annotations
    }
    assert hints["list_issues"] == (True, None, None)
    assert hints["create_issue"] == (False, False, False)
    assert hints["close_issue"] == (False, True, True)
    assert tools["create_issue"].input_schema["required"] == ["title", "label"]
    assert tools["create_issue"].input_schema["properties"]["label"]["enum"] == [
        "bug",
        "feature",
        "docs",
        "performance",
    ]


async def test_issues_can_be_narrowed_by_every_argument(tracker: Client) -> None:
    everything = await call(tracker, "list_issues")
    bugs = await call(tracker, "list_issues", state="open", label="bug", assignee="ada@example.com")
    assert everything["total"] == len(everything["issues"]) == 30
    assert {(issue["state"], issue["label"], issue["assignee"]) for issue in bugs["issues"]} == {
        ("open", "bug", "ada@example.com")
    }


async def test_an_issue_is_opened_commented_closed_and_kept_in_a_file(tmp_path: Path) -> None:
    database = str(tmp_path / "work.db")
    async with connect("tracker.py", "auto", "--db", database) as client:
        new = await call(client, "create_issue", title="It's slow", label="bug", assignee="bo@example.com")
        assert (new["id"], new["state"], new["assignee"]) == (31, "open", "bo@example.com")
        for text in ("first", "second"):
            await call(client, "comment_issue", issue_id=31, author="ada@example.com", text=text)
        for _ in range(2):
            assert (await call(client, "close_issue", issue_id=31))["state"] == "closed"
        issue = await call(client, "get_issue", issue_id=31)
        assert (issue["title"], issue["state"]) == ("It's slow", "closed")
        assert [comment["text"] for comment in issue["comments"]] == ["first", "second"]

        (resource,) = (await client.read_resource("issue://31")).contents
        assert json.loads(resource.text) == issue  # type: ignore[union-attr]
    async with connect("tracker.py", "legacy", "--db", database) as client:
        assert (await call(client, "list_issues"))["total"] == 31
        assert await call(client, "get_issue", issue_id=31) == issue


async def test_tracker_says_what_is_wrong_with_an_argument(tracker: Client) -> None:
    assert "There is no issue 99" in await call_error(tracker, "get_issue", issue_id=99)
    assert "list_people" in await call_error(tracker, "create_issue", title="x", label="bug", assignee="nobody")
    assert "label" in await call_error(tracker, "create_issue", title="x", label="bugs")
    with pytest.raises(MCPError, match="There is no issue 99"):
        await tracker.read_resource("issue://99")


async def test_tracker_has_resources_and_a_prompt(tracker: Client) -> None:
    (labels,) = (await tracker.list_resources()).resources
    (template,) = (await tracker.list_resource_templates()).resource_templates
    (prompt,) = (await tracker.list_prompts()).prompts
    (content,) = (await tracker.read_resource(labels.uri)).contents
    message = (await tracker.get_prompt(prompt.name, {"label": "docs"})).messages[0]
    assert template.uri_template == "issue://{issue_id}"
    assert content.text.startswith("- bug: ")  # type: ignore[union-attr]
    assert "open docs issues" in message.content.text  # type: ignore[union-attr]


async def test_a_report_takes_its_time_and_tells_its_progress(reports: Client) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    before = (await call(reports, "list_reports"))["reports"]
    started = anyio.current_time()
    with anyio.fail_after(30):
        result = await reports.call_tool(
            "generate_report", {"kind": "cost", "seconds": 1.2}, progress_callback=on_progress
        )
    took = anyio.current_time() - started
    listed = await call(reports, "list_reports")
    report = result.structured_content
    assert report is not None
    assert took >= 1.2
    assert seen == [(1, 2, "cost report: step 1 of 2"), (2, 2, "cost report: step 2 of 2")]
    assert report["unit"] == "EUR"
    assert report["total"] == sum(person["total"] for person in report["totals"])
    assert listed == {"reports": [*before, report]}


async def test_a_slow_report_blocks_no_other_call_and_can_be_given_up(reports: Client) -> None:
    started = anyio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        started.set()

    async def generate() -> None:
        await reports.call_tool("generate_report", {"kind": "hours"}, progress_callback=on_progress)

    before = await call(reports, "list_reports")
    async with anyio.create_task_group() as group:
        group.start_soon(generate)
        with anyio.fail_after(30):
            await started.wait()
        assert await call(reports, "list_reports") == before
        group.cancel_scope.cancel()


async def test_reports_refuses_what_it_cannot_do(reports: Client) -> None:
    assert "seconds" in await call_error(reports, "generate_report", kind="hours", seconds=121)
    assert "2026-W23" in await call_error(reports, "team_hours", week="2026-W01")


async def test_the_people_of_both_servers_can_be_joined(tracker: Client, reports: Client) -> None:
    people = (await call(tracker, "list_people"))["people"]
    hours = (await call(reports, "team_hours", week="2026-W22"))["people"]
    report = await call(reports, "generate_report", kind="hours", seconds=0)
    emails = {person["email"] for person in people}
    assert emails == {person["email"] for person in hours} == {person["email"] for person in report["totals"]}


def test_the_configuration_names_both_servers() -> None:
    """Check the names only: the command of the README shows that the servers start."""
    config = load_config(QUICKSTART / "codemode-mcp.json", environ={"PYTHON": sys.executable})
    assert [upstream.name for upstream in config.upstreams] == ["tracker", "reports"]
    assert config.notes == ()
