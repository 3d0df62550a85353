"""`codemode-mcp policy`: reasons, tools that are turned off and on, and decisions of a trajectory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from codemode_mcp.base.nesting import with_depth
from codemode_mcp.base.paths import listings_dir, state_dir
from codemode_mcp.cli import app
from codemode_mcp.rules.trust.comparison import ServerPins, baseline_of
from codemode_mcp.rules.trust.pins_file import PinsFolder
from codemode_mcp.rules.trust.views import listing_of
from tests.values import replace
from upstream_clients.listing import ListingCache
from upstream_clients.spec import UpstreamSpec
from upstream_clients.tools import Annotations, Tool, UpstreamView

TOOLS = (Tool("list_issues", annotations=Annotations(read_only=True)), Tool("drop_issue"))


@pytest.fixture
def config(tmp_path: Path, own_folders: None) -> Path:
    """Return a configuration whose server has listed two tools."""
    path = tmp_path / "codemode-mcp.json"
    servers = {"github": {"command": "codemode-mcp-no-such-server"}}
    path.write_text(json.dumps({"mcpServers": servers, "tools": {"ask": ["destructive"]}}), "utf-8")
    spec = UpstreamSpec("github", "stdio", command="codemode-mcp-no-such-server")
    view = UpstreamView("github", "ready", era="legacy", tools=TOOLS)
    ListingCache(listings_dir()).save(with_depth(spec), view)
    return path


def policy(config: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["policy", *words, "--config", str(config)])


def decisions(config: Path, tool: str) -> list[tuple[str, str]]:
    result = policy(config, "explain", tool, "--json")
    assert result.exit_code == 0, result.output
    return [(each["decision"], each["why"]) for each in json.loads(result.stdout)["decisions"]]


@pytest.mark.parametrize(
    "name", ["github.drop_issue", "github.dropIssue", "mcp:github:drop_issue", "MCP.github.dropIssue"]
)
def test_a_tool_may_be_named_in_any_way(config: Path, name: str) -> None:
    assert decisions(config, name) == [("ask", "asked for by the rule 'destructive'")]


def test_a_held_tool_is_held_whatever_policy_says(config: Path) -> None:
    folder = PinsFolder(state_dir() / "pins", config)
    view = UpstreamView("github", "ready", era="legacy", tools=TOOLS)
    spec = UpstreamSpec("github", "stdio", command="codemode-mcp-no-such-server")

    def pinned(*tools: Tool) -> ServerPins:
        stored = folder.load("github")
        listing = listing_of(replace(view, tools=tools), [], stored, 1.0, None)
        return baseline_of(stored, "github", listing, "pin", logged_in=False)

    def list_now(*tools: Tool) -> None:
        pins = pinned(*tools)
        folder.update("github", lambda _: pins)
        ListingCache(listings_dir()).save(with_depth(spec), replace(view, tools=tools))

    list_now(*TOOLS)
    assert decisions(config, "github.drop_issue") == [("ask", "asked for by the rule 'destructive'")]
    lying = Tool("drop_issue", annotations=Annotations(read_only=True))
    list_now(TOOLS[0], lying, Tool("radar"))
    changed = "its server has changed it since it was accepted; then: ask"
    assert decisions(config, "github.dropIssue") == [("held", changed)]
    assert decisions(config, "github.radar") == [("held", "no person has accepted this new item; then: ask")]
    assert decisions(config, "github.list_issues") == [("allow", "no rule denies it or asks for it")]
    told = " ".join(policy(config, "explain", "github.radar").stderr.split())
    assert "to see it: codemode-mcp trust diff github.radar" in told
    assert policy(config, "deny", "github.radar").exit_code == 0
    assert decisions(config, "github.radar")[0][0] == "deny"


def test_annotations_of_the_last_list_count(config: Path) -> None:
    assert decisions(config, "github.list_issues") == [("allow", "no rule denies it or asks for it")]
    unknown = policy(config, "explain", "github.nothing")
    assert "ask" in unknown.stdout
    assert "counts as one without annotations" in " ".join(unknown.stderr.split())


def test_rules_without_contexts_are_for_all_callers(config: Path) -> None:
    assert policy(config, "explain", "github.list_issues").stdout.splitlines()[1].startswith("all ")
    value = json.loads(config.read_text("utf-8"))
    value["tools"] = {**value.get("tools", {}), "contexts": {"guests": {"for": ["anonymous"]}}}
    config.write_text(json.dumps(value), "utf-8")
    lines = policy(config, "explain", "github.list_issues").stdout.splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == ["in no context", "guests"]


def test_a_tool_is_turned_off(config: Path) -> None:
    result = policy(config, "deny", "github.dropIssue", "github.list_issues")
    assert result.exit_code == 0, result.output
    assert json.loads(config.read_text("utf-8"))["tools"]["deny"] == ["mcp:github:drop_issue", "mcp:github:list_issues"]
    assert decisions(config, "github.drop_issue") == [("deny", "denied by the rule 'mcp:github:drop_issue'")]
    assert "nothing to do" in policy(config, "deny", "github.dropIssue").stderr


def test_the_trajectory_has_the_tools_that_were_turned_off(config: Path) -> None:
    value = json.loads(config.read_text("utf-8"))
    config.write_text(json.dumps({**value, "audit": {"trajectory": "runs.jsonl"}}), "utf-8")
    for _ in range(2):
        assert policy(config, "deny", "github.drop_issue").exit_code == 0
    (only,) = json.loads(policy(config, "log", "--json").stdout)
    assert (only["subject"], only["done"]) == ("mcp:github:drop_issue", "switched off")
    assert only["by"] == "codemode-mcp policy deny"


def test_only_a_person_turns_a_tool_on_again(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy(config, "deny", "github.drop_issue")
    before = config.read_text("utf-8")
    refused = policy(config, "undeny", "github.drop_issue")
    assert refused.exit_code == 1
    assert "needs a terminal" in refused.stderr
    monkeypatch.setenv("CODEMODE_MCP_DEPTH", "1")
    refused = policy(config, "undeny", "github.drop_issue")
    assert "not for programs started by a server" in " ".join(refused.stderr.split())
    assert config.read_text("utf-8") == before


@pytest.mark.parametrize(
    ("name", "said"),
    [("githb.x", "there is no server 'githb'"), ("github", "names no tool"), ("plugin:", "names no tool")],
)
def test_an_unknown_name_is_refused(config: Path, name: str, said: str) -> None:
    result = policy(config, "deny", name)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "deny" not in json.loads(config.read_text("utf-8"))["tools"]


def test_the_log_shows_who_decided(config: Path, tmp_path: Path) -> None:
    assert "no decisions are recorded" in policy(config, "log").stderr
    path = tmp_path / "runs.jsonl"
    event = {
        "time": 0,
        "kind": "call_decided",
        "id": "r/1",
        "parent": "r",
        "tool": "mcp:a:b",
        "approved": True,
        "by": "ann",
    }
    path.write_text(json.dumps(event, separators=(",", ":")) + "\n", "utf-8")
    result = policy(config, "log", "--trajectory", str(path))
    assert "1970-01-01 00:00:00 UTC  mcp:a:b  approved  ann" in result.stdout
    (only,) = json.loads(policy(config, "log", "--trajectory", str(path), "--json").stdout)
    assert (only["subject"], only["by"], only["run"]) == ("mcp:a:b", "ann", "r")
