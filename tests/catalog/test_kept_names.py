"""Names in catalogs: the same for every policy, with sentences about those that several servers or tools would have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.settings import PolicyRules, ToolOverride
from codemode_mcp.catalog.overrides import Overrides
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.catalog.serialize import catalog_text, read_catalog
from codemode_mcp.program.mcp_uses import contested_names
from codemode_mcp.program.preflight import inspect
from codemode_mcp.rules.policy.policy import Policy
from upstream_clients.tools import Tool, UpstreamView


@dataclass
class Kept:
    """Remembered names, as `Trust` has them."""

    server_names: Mapping[str, str] = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)

    def tool_names(self, server: str) -> Mapping[str, str]:
        return self.tools if server == "foo-bar" else {}


KEPT = Kept({"foo-bar": "fooBar", "FooBar": "fooBar_2"}, {"get_item": "getItem", "getItem": "getItem_2"})
OLD = UpstreamView("foo-bar", "ready", tools=(Tool("getItem"), Tool("get_item"), Tool("list")))
NEW = UpstreamView("FooBar", "ready", tools=(Tool("get_item"),))
ALL = Policy(PolicyRules())


def paths(policy: Policy, *views: UpstreamView) -> dict[str, str]:
    catalog = build(views, policy, names=KEPT)
    return {entry.id: entry.path for entry in catalog.index.tools}


def test_servers_and_tools_have_the_names_that_are_kept() -> None:
    assert paths(ALL, NEW, OLD) == {
        "mcp:FooBar:get_item": "MCP.fooBar_2.getItem",
        "mcp:foo-bar:getItem": "MCP.fooBar.getItem_2",
        "mcp:foo-bar:get_item": "MCP.fooBar.getItem",
        "mcp:foo-bar:list": "MCP.fooBar.list",
    }


@pytest.mark.parametrize("denied", ["mcp:foo-bar:*", "mcp:foo-bar:get_item"])
def test_a_rule_gives_no_name_to_another_server_or_tool(denied: str) -> None:
    everything = paths(ALL, NEW, OLD)
    seen = paths(Policy(PolicyRules(deny=(denied,))), NEW, OLD)
    assert 0 < len(seen) < len(everything)
    assert seen.items() <= everything.items()


def test_a_name_that_is_of_a_tool_or_server_which_is_not_there_does_not_exist() -> None:
    catalog = build([UpstreamView("foo-bar", "ready", tools=(Tool("getItem"),))], ALL, names=KEPT)
    assert catalog.members == {"fooBar": {"getItem_2"}, "foo-bar": {"getItem_2"}}
    with pytest.raises(ProgramError, match="Nearest: getItem_2"):
        catalog.header("fooBar", "getItem", schema=False)
    (alone,) = build([NEW], ALL, names=Kept({"FooBar": "fooBar_2", "foo-bar": "FooBar"})).servers
    assert (alone.identifier, alone.alias) == ("fooBar_2", None)


def test_a_held_tool_has_the_name_that_it_would_get() -> None:
    view = UpstreamView("foo-bar", "ready", tools=(Tool("get_item"),), withheld={"getItem": "is held"})
    (server,) = build([view], ALL, names=Kept({}, {"get_item": "getItem"})).servers
    assert server.withheld == {"getItem_2": "is held"}


def test_an_override_names_a_tool_beside_those_that_have_names() -> None:
    overrides = Overrides({"mcp:foo-bar:list": ToolOverride(name="more")})
    catalog = build([OLD], ALL, overrides=overrides, names=KEPT)
    names = {entry.id.rpartition(":")[2]: entry.identifier for entry in catalog.index.tools}
    assert names == {"get_item": "getItem", "getItem": "getItem_2", "list": "more"}


SERVERS = 'MCP.fooBar is the server "foo-bar"; "FooBar" is MCP.fooBar_2.'
TOOLS = 'MCP.fooBar.getItem is the tool "get_item"; "getItem" is MCP.fooBar.getItem_2.'


@pytest.mark.parametrize(
    ("program", "sentences"),
    [
        ("await MCP.fooBar.list()", [SERVERS]),
        ("await MCP.fooBar.getItem()", [SERVERS, TOOLS]),
        ("const s = MCP.fooBar; s.x", [SERVERS]),
        ("await MCP.fooBar_2.getItem()", []),
        ('await MCP["foo-bar"].get_item()', []),
        ("return 1", []),
    ],
)
def test_a_program_that_uses_a_name_of_several_gets_a_sentence(program: str, sentences: list[str]) -> None:
    catalog = build([NEW, OLD], ALL, names=KEPT)
    assert contested_names(inspect(program, "javascript"), catalog.contested) == sentences
    stored = read_catalog(catalog_text(catalog))
    assert stored.contested == catalog.contested


def test_sentences_about_names_are_bounded() -> None:
    names = ["a-b", "a_b", "a.b", "a b", "A-b", "a--b"]
    servers = [UpstreamView(f"s{number}", "ready", tools=tuple(map(Tool, names))) for number in range(5)]
    catalog = build(servers, ALL)
    calls = " ".join(f"MCP.s{number}.aB();" for number in range(5))
    found = contested_names(inspect(calls, "javascript"), catalog.contested)
    assert len(found) == 3
    assert all("and 2 more" in sentence and len(sentence) < 200 for sentence in found)
