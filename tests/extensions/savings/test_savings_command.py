"""`codemode-mcp savings` over the servers of the quick start, and a real recording."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from typer.testing import CliRunner

from codemode_mcp.cli.parser import app
from codemode_mcp.extensions.savings.exposure import server_of
from tests.extensions.savings.trajectories import run
from upstream_clients.tools import Tool, UpstreamView

QUICKSTART = Path(__file__).parents[3] / "examples" / "quickstart"

MEASURING = """\
const result = await MCP.tracker.listPeople({});
const bytes = (text) => new TextEncoder().encode(text).length;
return [bytes(result.content.map((block) => block.text).join("")), bytes(JSON.stringify(result.structuredContent))];"""


def written(folder: Path, servers: dict[str, Any], **more: Any) -> Path:
    path = folder / "codemode-mcp.json"
    path.write_text(json.dumps({"mcpServers": servers, **more}), "utf-8")
    return path


def text_of(result: types.CallToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, types.TextContent))


async def recorded(config: Path) -> tuple[list[dict[str, Any]], types.CallToolResult]:
    """Return what `serve` lists once it knows its servers' tools, and its answer to a program."""
    command = ["-m", "codemode_mcp", "serve", "--private", "--config", str(config), "--log-level", "error"]
    parameters = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))
    async with Client(parameters) as client:
        answer = await client.call_tool("exec", {"code": MEASURING})
        return await listed(client), answer


async def listed_directly(script: Path) -> list[dict[str, Any]]:
    async with Client(StdioServerParameters(command=sys.executable, args=[str(script)])) as client:
        return await listed(client)


async def listed(client: Client) -> list[dict[str, Any]]:
    tools = (await client.list_tools()).tools
    return [tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in tools]


def test_what_a_recorded_task_sent_and_what_its_servers_take_of_a_prompt(tmp_path: Path) -> None:
    tracker = QUICKSTART / "tracker.py"
    servers = {"tracker": {"command": sys.executable, "args": [str(tracker)]}}
    config = written(tmp_path, servers, audit={"trajectory": "runs.jsonl"})
    own, result = anyio.run(recorded, config)
    directly = anyio.run(listed_directly, tracker)
    done = CliRunner().invoke(app, ["savings", "--config", str(config), "--json"])
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)

    def in_a_prompt(tools: list[dict[str, Any]]) -> int:
        shown = [{"name": t["name"], "description": t["description"], "input_schema": t["inputSchema"]} for t in tools]
        return sum(len(json.dumps(each, separators=(",", ":"), ensure_ascii=False).encode()) for each in shown)

    exposure = report["exposure"]
    assert exposure["code_mode"]["prompt_bytes"] == in_a_prompt(own)
    assert exposure["direct"]["prompt_bytes"] == in_a_prompt(directly)
    assert [(server["name"], server["state"]) for server in exposure["servers"]] == [("tracker", "listed")]
    text, structured = (result.structured_content or {})["value"]
    (task,) = report["tasks"]["all"]
    assert (task["kind"], task["calls"], task["requests"]) == ("single", 1, 1)
    assert task["sent_bytes"] == len(json.dumps({"code": MEASURING}, separators=(",", ":")))
    assert task["shown_bytes"] == len(text_of(result).encode())
    assert (task["arguments_bytes"], task["results_bytes"]) == (len("{}"), text)
    events = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text("utf-8").splitlines()]
    (ended,) = (event for event in events if event["kind"] == "call_ended")
    assert ended["structured_bytes"] == structured


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    return written(tmp_path, {})


def test_without_a_recording_it_says_how_to_have_one(bare: Path) -> None:
    done = CliRunner().invoke(app, ["savings", "--config", str(bare)])
    assert done.exit_code == 0
    assert "No tools are known" in done.stdout
    assert '"audit": { "trajectory": "runs.jsonl" }' in done.stdout


def test_a_recording_that_is_named_is_read_and_one_that_is_not_there_is_an_error(bare: Path, tmp_path: Path) -> None:
    file = tmp_path / "old.jsonl"
    file.write_text("".join(json.dumps(event) + "\n" for event in run({"text_bytes": 500})) + "{torn", "utf-8")
    named = ["--config", str(bare), "--trajectory", str(file)]
    done = CliRunner().invoke(app, ["savings", *named, "--json"])
    assert json.loads(done.stdout)["tasks"]["saved_bytes"] == 510 - 80
    lately = CliRunner().invoke(app, ["savings", *named, "--since", "7"])
    # Folded, and a path that is longer than a line is broken.
    expected = f"No tasks of a model are recorded in {file} in the last 7 days."
    assert "".join(expected.split()) in "".join(lately.stdout.split())
    missing = CliRunner().invoke(app, ["savings", "--config", str(bare), "--trajectory", str(tmp_path / "none.jsonl")])
    assert missing.exit_code == 1
    assert "there is no file" in missing.stderr


@pytest.mark.parametrize(
    ("view", "state"),
    [
        (UpstreamView("up", "ready", tools=(Tool("a"),)), "listed"),
        (UpstreamView("up", "down", error="it is gone", tools=(Tool("a"),)), "remembered"),
        (UpstreamView("up", "down", error="it is gone"), "unknown"),
        (UpstreamView("up", "connecting"), "unknown"),
    ],
    ids=["ready", "down but known", "down", "slow"],
)
def test_a_server_that_is_down_counts_by_what_is_known_of_it_and_says_why(view: UpstreamView, state: str) -> None:
    found = server_of(view, 7)
    assert found.state == state
    assert found.weight.tools == len(view.tools)
    assert bool(found.why) == (state != "listed")
    assert view.error is None or found.why == view.error
