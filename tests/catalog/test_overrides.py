"""Overrides in catalogs: what programs see of a tool, and what keeps the name that the server lists."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.base.settings import PolicyRules, ToolOverride, ToolSettings
from codemode_mcp.catalog.overrides import Overrides, shown_names
from codemode_mcp.catalog.per_caller import Catalogs, build
from codemode_mcp.catalog.serialize import catalog_hash, catalog_text, read_catalog
from codemode_mcp.rules.policy.policy import Caller, Policy
from codemode_mcp.rules.policy.rule_patterns import Effects
from tests.properties import examples
from tests.values import replace
from upstream_clients.list_repair import read_tools
from upstream_clients.tools import Annotations, Tool, UpstreamView

SCHEMA = {
    "type": "object",
    "properties": {
        "owner": {"type": "string", "description": "The owner of the repository"},
        "title": {"type": "string"},
        "per_page": {"type": "integer", "minimum": 1},
    },
    "required": ["owner", "title", "per_page"],
    "additionalProperties": False,
}
HUB = UpstreamView(
    "hub",
    "ready",
    tools=(
        Tool("create_issue", "Create a zeppelin in the hangar", input_schema=SCHEMA),
        Tool("list_issues", "List", annotations=Annotations(read_only=True)),
    ),
)
OVERRIDE = ToolOverride(
    name="report_bug",
    title="Report a bug",
    description="Report a defect of our product.",
    annotations=Annotations(destructive=False),
    fixed={"owner": "acme"},
    default={"per_page": 30},
)
OVERRIDES = {"mcp:hub:create_issue": OVERRIDE}
OPEN = Policy(PolicyRules())


def catalog_of(overrides: dict[str, ToolOverride], view: UpstreamView = HUB, policy: Policy = OPEN) -> Any:
    return build([view], policy, overrides=Overrides(overrides))


def test_the_declaration_has_what_the_configuration_says() -> None:
    text = catalog_of(OVERRIDES).files.text("mcp/hub.d.ts")
    assert "reportBug" in text
    assert "Report a defect of our product." in text
    assert "@default 30" in text
    assert "per_page?: int" in text
    assert "title: string" in text
    for hidden in ("owner", "acme", "createIssue", "zeppelin"):
        assert hidden not in text


def test_hidden_arguments_of_a_schema_that_contradicts_itself_stay_hidden() -> None:
    schema = {**SCHEMA, "properties": {**SCHEMA["properties"], "kind": {"type": "string", "enum": [1, 2]}}}
    (listed,), _ = read_tools([{"name": "create_issue", "inputSchema": schema}])
    catalog = catalog_of(OVERRIDES, replace(HUB, tools=(listed,)))
    entry = catalog.get("mcp:hub:create_issue")
    assert entry.original.as_sent.input_schema == schema
    assert "kind?: string | 1 | 2" in catalog.signature(entry)
    restored = read_catalog(catalog_text(catalog), None).get("mcp:hub:create_issue")
    for shown in (entry.tool, entry.tool.as_sent, restored.tool, restored.tool.as_sent):
        assert "owner" not in shown.input_schema["properties"]


def test_the_id_and_the_source_have_the_name_that_the_server_lists() -> None:
    catalog = catalog_of(OVERRIDES)
    entry = catalog.get("mcp:hub:create_issue")
    assert entry.path == "MCP.hub.reportBug"
    assert entry.tool.name == "report_bug"
    assert entry.original is HUB.tools[0]
    assert catalog.get("mcp:hub:report_bug") is None


def test_the_search_reads_the_shown_texts() -> None:
    catalog = catalog_of(OVERRIDES)
    (hit,) = catalog.search("report a defect", 1, None)
    assert hit["call"] == "MCP.hub.reportBug"
    assert not any("reportBug" in each["call"] for each in catalog.search("zeppelin hangar", 5, None))


def test_the_header_of_a_tool_has_the_shown_schema() -> None:
    header = catalog_of(OVERRIDES).header("hub", "reportBug", schema=True)
    assert header["schemas"]["reportBug"]["input"] == {
        "type": "object",
        "properties": {"title": {"type": "string"}, "per_page": {"type": "integer", "minimum": 1, "default": 30}},
        "required": ["title"],
        "additionalProperties": False,
    }
    assert header["tools"][0]["mcpTool"] == "report_bug"


def test_a_secret_default_is_optional_but_not_shown() -> None:
    override = ToolOverride(default={"owner": "hunter2"}, secret=frozenset({"owner"}))
    entry = catalog_of({"mcp:hub:create_issue": override}).get("mcp:hub:create_issue")
    assert "hunter2" not in json.dumps(entry.tool.input_schema)
    assert entry.tool.input_schema["required"] == ["title", "per_page"]
    assert entry.tool.input_schema["properties"]["owner"]["description"] == (
        "The owner of the repository The configuration sets a value if you leave it out."
    )


def test_rules_and_effects_are_those_of_the_original_name() -> None:
    rules = PolicyRules(
        deny=("mcp:hub:create_*",), annotations=(("mcp:hub:list_issues", Annotations(read_only=False)),)
    )
    catalog = catalog_of(OVERRIDES, policy=Policy(rules))
    assert catalog.get("mcp:hub:create_issue") is None
    assert catalog.get("mcp:hub:list_issues").effects == Effects.of(Annotations())


def test_an_unchanged_tool_stays_the_same_object() -> None:
    tools = ToolSettings(overrides=OVERRIDES)
    catalogs = Catalogs(lambda: [HUB], tools, None)
    first = catalogs.servers_of(Caller("someone"))
    catalogs.invalidate()
    second = catalogs.servers_of(Caller("someone"))
    assert second is not first
    first_entry, second_entry = (each.get("mcp:hub:create_issue") for each in (first, second))
    assert first_entry is not None
    assert second_entry is not None
    assert first_entry.tool is second_entry.tool
    catalogs.apply(ToolSettings())
    third = catalogs.servers_of(Caller("someone")).get("mcp:hub:create_issue")
    assert third is not None
    assert third.tool is HUB.tools[0]


def test_a_stored_catalog_has_the_tool_in_both_forms() -> None:
    catalog = catalog_of(OVERRIDES)
    read = read_catalog(catalog_text(catalog))
    assert read.servers == catalog.servers
    assert read.manifest == catalog.manifest
    assert catalog_hash(read) == catalog_hash(catalog)
    assert "acme" not in catalog_text(catalog)
    assert catalog_text(catalog_of({})) == catalog_text(build([HUB], OPEN))
    assert "listed" not in json.loads(catalog_text(catalog_of({})))["servers"][0]


def test_a_held_tool_is_refused_under_its_new_name_too() -> None:
    held = replace(HUB, tools=HUB.tools[1:], withheld={"create_issue": "is held"})
    (server,) = catalog_of(OVERRIDES, held).servers
    assert {name: server.withheld.get(name) for name in ("reportBug", "report_bug", "create_issue")} == dict.fromkeys(
        ("reportBug", "report_bug", "create_issue"), "is held"
    )


# names


def test_a_name_that_another_tool_has_is_not_given() -> None:
    overrides = {"mcp:hub:create_issue": ToolOverride(name="listIssues")}
    catalog = catalog_of(overrides)
    assert catalog.get("mcp:hub:create_issue").path == "MCP.hub.createIssue"
    assert list(Overrides(overrides).problems(HUB)) == [
        ("create_issue", 'is not renamed to "listIssues", because this is the name of the tool "list_issues"')
    ]


def test_a_tool_that_gives_up_its_name_leaves_it_to_another_one() -> None:
    overrides = {"a": ToolOverride(name="b"), "b": ToolOverride(name="a")}
    assert shown_names(["a", "b"], overrides) == {"a": "b", "b": "a"}
    assert shown_names(["a", "b", "c"], {"a": ToolOverride(name="c"), "b": ToolOverride(name="a")}) == {
        "a": "a",
        "b": "b",
        "c": "c",
    }


NAMES = st.sampled_from(["a", "b", "c", "aB", "a_b", "A"])


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(NAMES, unique=True), st.dictionaries(NAMES, NAMES))
def test_no_new_name_is_that_of_another_tool(listed: list[str], renamed: dict[str, str]) -> None:
    overrides = {name: ToolOverride(name=to) for name, to in renamed.items() if name in listed}
    names = shown_names(listed, overrides)
    assert set(names) == set(listed)
    assert len(set(names.values())) == len(listed)


# what does not fit


def test_what_does_not_fit_the_tools_is_named() -> None:
    override = ToolOverride(fixed={"ownr": 1, "title": 5}, default={"per_page": 0}, hidden=("owner",))
    overrides = Overrides({"mcp:hub:create_issue": override, "mcp:hub:create_isue": override, "mcp:other:x": override})
    assert dict.fromkeys(overrides.problems(HUB)) == dict.fromkeys(
        [
            ("create_isue", 'names a tool that the server does not list; did you mean "create_issue"?'),
            (
                "create_issue",
                'hides the argument "owner", which the tool requires, so that every call fails; give it a value in '
                "`fixed` instead",
            ),
            ("create_issue", 'names the argument "ownr", which the tool does not declare; did you mean "owner"?'),
            ("create_issue", 'gives the argument "title" in `fixed` a value that does not fit the schema of the tool'),
            (
                "create_issue",
                'gives the argument "per_page" in `default` a value that does not fit the schema of the tool',
            ),
        ]
    )
    assert list(Overrides(OVERRIDES).problems(HUB)) == []
    assert list(Overrides(OVERRIDES).problems(replace(HUB, tools=()))) == [
        ("create_issue", "names a tool that the server does not list")
    ]
