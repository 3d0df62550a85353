"""The catalog: names, files, look-ups, and denied tools."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.catalog.catalog import Catalog
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.catalog.serialize import catalog_text, read_catalog
from codemode_mcp.rules.policy.policy import Allow, Ask, Policy
from codemode_mcp.rules.policy.rule_patterns import Effects
from declarations.operations import OPERATIONS
from tests.values import replace
from upstream_clients.tools import Annotations, Tool, UpstreamView

SCHEMA = {"type": "object", "properties": {"owner": {"type": "string"}}, "required": ["owner"]}
GITHUB = UpstreamView(
    "github",
    "ready",
    description="Issues and more",
    tools=(
        Tool("create_issue", "Create an issue in a repository", input_schema=SCHEMA),
        Tool("delete_repo", "Delete a repository", annotations=Annotations(destructive=True)),
        Tool("then", "Prototype names are harmless"),
    ),
    resources=True,
    prompts=True,
)
DOWN = UpstreamView("my-docs", "down", error="server 'my-docs' did not start: command '/usr/bin/x/docs' does not exist")


def test_every_tool_has_an_id_a_path_and_an_alias() -> None:
    catalog = build([GITHUB, DOWN], Policy(PolicyRules()))
    entry = catalog.resolve("mcp:github:create_issue")
    assert entry.path == "MCP.github.createIssue"
    assert catalog.signature(entry).startswith("MCP.github.createIssue(input: { owner: string })")
    server = json.loads(catalog.manifest)["servers"][0]
    assert ["createIssue", "create_issue", "mcp:github:create_issue"] in server["tools"]
    assert ["then_", None, "mcp:github:then"] in server["tools"]
    assert [group for group, _ in server["groups"]] == ["resources", "prompts"]
    assert json.loads(catalog.manifest)["servers"][1]["alias"] == "my-docs"


def test_denied_tools_appear_nowhere() -> None:
    catalog = build([GITHUB], Policy(PolicyRules(deny=("mcp:github:delete_*", "mcp:github:prompts/*"))))
    assert "delete" not in catalog.manifest
    assert "delete" not in catalog.files.text("mcp/github.d.ts").lower()
    assert "prompts" not in catalog.manifest
    assert [hit["call"] for hit in catalog.search("delete a repository", 5, None)] == ["MCP.github.createIssue"]
    with pytest.raises(ProgramError) as raised:
        catalog.resolve("mcp:github:delete_repo")
    assert "delete" not in raised.value.message.removeprefix('there is no tool "mcp:github:delete_repo"')


def test_a_server_that_is_down_is_listed_with_the_reason_but_without_paths_of_the_machine() -> None:
    catalog = build([GITHUB, DOWN], Policy(PolicyRules()))
    assert "down" in catalog.files.text("mcp/index.d.ts")
    assert "/usr/bin" not in catalog.files.text("mcp/index.d.ts")
    assert "…/docs" in catalog.files.text("mcp/myDocs.d.ts")
    hits = catalog.search("issue", 5, None)
    assert (hits[-1]["call"], hits[-1]["status"]) == ("MCP.myDocs", "down")
    with pytest.raises(ProgramError, match=r"MCP\.myDocs is down"):
        catalog.resolve("mcp:my-docs:anything")


def test_a_server_that_needs_a_login_is_not_called_down_and_says_what_to_do() -> None:
    error = "server 'my docs' needs a login: run codemode-mcp login 'my docs'"
    catalog = build([GITHUB, replace(DOWN, name="my docs", error=error, login_required=True)], Policy(PolicyRules()))
    advice = "needs a login; ask the user to run: codemode-mcp login 'my docs'"
    with pytest.raises(ProgramError) as raised:
        catalog.resolve("mcp:my docs:anything")
    assert raised.value.message == f"MCP.myDocs {advice}"
    hit = catalog.search("issue", 5, None)[-1]
    assert f"MCP.myDocs {advice}" in hit["description"]
    assert hit["status"] == "down"  # as `ApiHit` has it
    for path in ("mcp/index.d.ts", "mcp/myDocs.d.ts"):
        assert advice in catalog.files.text(path)
        assert "down" not in catalog.files.text(path)
    assert "needs a login" in catalog.files.list_files("mcp/myDocs")[0]["description"]


@pytest.mark.parametrize(
    "path", ["", "/", "mcp//index.d.ts", "mcp/../x", "./mcp/index.d.ts", "mcp\\x", "mcp/none.d.ts", "mcp"]
)
def test_paths_that_name_no_file_are_refused(path: str) -> None:
    with pytest.raises(ProgramError):
        build([GITHUB], Policy(PolicyRules())).files.read(path)


def test_the_nearest_name_is_offered() -> None:
    catalog = build([GITHUB], Policy(PolicyRules()))
    with pytest.raises(ProgramError, match="Nearest: createIssue"):
        catalog.header("github", "createIsue", schema=False)
    with pytest.raises(ProgramError, match=r"Nearest: mcp/github\.d\.ts"):
        catalog.files.read("mcp/githb.d.ts")


PART = "mcp/github.d.ts#"
NAMES = [
    ("createIssue", ["createIssue"]),
    ("create_issue", ["createIssue"]),
    ("then", ["then_"]),
    ("deleteRepo,create_issue", ["deleteRepo", "createIssue"]),
    ("createIssue, createIssue", ["createIssue"]),
    ("resources.read", ["read"]),
    ("prompts", ["list", "get"]),
    ("then_,prompts.get", ["then_", "get"]),
    ("notes/../x#1, 2", ["notesX12"]),
]


@pytest.mark.parametrize(("part", "functions"), NAMES, ids=[part for part, _ in NAMES])
def test_a_part_of_a_file_is_read_by_identifier_or_by_original_name(part: str, functions: list[str]) -> None:
    catalog = build([replace(GITHUB, tools=(*GITHUB.tools, Tool("notes/../x#1, 2")))], Policy(PolicyRules()))
    read = catalog.files.read(PART + part)
    assert re.findall(r"function (\w+)", read["content"]) == functions
    assert read["path"] == PART + part
    assert read["description"] == catalog.files.read("mcp/github.d.ts")["description"]
    assert read["bytes"] == len(read["content"].encode())


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (PART + "createIsue", 'MCP.github has no tool "createIsue". Nearest: createIssue'),
        (PART + "createIssue,then", None),
        (PART + "createIssue,deleteRep", 'MCP.github has no tool "deleteRep". Nearest: deleteRepo'),
        (PART + "resources.raed", 'MCP.github has no tool "resources.raed". Nearest: resources.read'),
        (PART, "name a tool after the #"),
        (PART + "createIssue,", 'MCP.github has no tool ""'),
        (PART + "$api", 'MCP.github has no tool "$api"'),
        ("mcp/index.d.ts#createIssue", "mcp/index.d.ts has no tools"),
        ("mcp/none.d.ts#createIssue", 'there is no file "mcp/none.d.ts"'),
        ("#createIssue", "is not a valid path"),
    ],
)
def test_an_unknown_part_of_a_file_is_refused_with_the_nearest(path: str, message: str | None) -> None:
    catalog = build([GITHUB], Policy(PolicyRules()))
    if message is None:
        assert catalog.files.read(path)["content"]
        return
    with pytest.raises(ProgramError, match=re.escape(message)):
        catalog.files.read(path)


def test_denied_tools_are_in_no_part_of_a_file() -> None:
    catalog = build(
        [GITHUB], Policy(PolicyRules(deny=("mcp:github:delete_*", "mcp:github:resources/read", "*prompts/*")))
    )
    assert re.findall(r"function (\w+)", catalog.files.read(PART + "resources")["content"]) == ["list", "templates"]
    assert "function read" not in catalog.files.text("mcp/github.d.ts")
    for part in ("deleteRepo", "delete_repo", "resources.read", "prompts", "prompts.get"):
        with pytest.raises(ProgramError, match=r"has no (tool|prompts)"):
            catalog.files.read(PART + part)


def test_a_part_of_the_file_of_a_server_that_is_down_says_so() -> None:
    catalog = build([replace(GITHUB, state="down", error="no answer")], Policy(PolicyRules()))
    assert "This server is down: no answer" in catalog.files.read(PART + "createIssue")["content"]


def test_the_list_of_files_names_the_tools_of_each_server() -> None:
    login = UpstreamView("mail", "down", error="x", login_required=True)
    catalog = build([GITHUB, DOWN, login], Policy(PolicyRules(deny=("mcp:github:delete_*",))))
    assert catalog.files.list_files("") == [
        {"path": "mcp/index.d.ts", "description": "Servers and shared types"},
        {"path": "mcp/github.d.ts", "tools": ["createIssue", "then_"], "description": "Issues and more"},
        {"path": "mcp/myDocs.d.ts", "tools": [], "description": "down"},
        {"path": "mcp/mail.d.ts", "tools": [], "description": "needs a login"},
    ]
    assert [each["path"] for each in catalog.files.list_files("mcp/mail", "mcp/git")] == [
        "mcp/github.d.ts",
        "mcp/mail.d.ts",
    ]


def big_tool(verb: str, noun: str) -> Tool:
    owner = {"type": "string", "description": f"Whose {noun} to {verb}. " * 9}
    schema = {"type": "object", "properties": {"owner": owner}, "required": ["owner"]}
    reads = Annotations(read_only=verb == "get")
    return Tool(f"{verb}_{noun}", "Words about it. " * 8, input_schema=schema, annotations=reads)


VERBS, NOUNS = ("get", "create", "delete", "move"), ("page", "file", "note", "user", "team")
BIG = UpstreamView(
    "hub", "ready", tools=tuple(big_tool(verb, noun) for verb in VERBS for noun in NOUNS), resources=True
)


def test_a_long_file_is_read_as_an_overview_that_says_how_to_read_the_rest() -> None:
    files = build([BIG], Policy(PolicyRules(ask=("mcp:hub:move_*",)))).files
    read = files.read("mcp/hub.d.ts")
    lines = read["content"].splitlines()
    assert read["bytes"] == len(read["content"].encode()) < 6 * 1024 < files.read("mcp/hub.d.ts#*")["bytes"]
    assert lines[1:3] == [
        "// read-only:",
        "getPage(input: { owner: string }): unknown // " + ("Words about it. " * 8).strip(),
    ]
    assert "// destructive:" in lines
    assert "// destructive, asks the user first:" in lines
    assert lines[-2] == '// resources: list, read, templates; types: "mcp/hub.d.ts#resources"'
    assert lines[-1] == (
        '// Types and comments of some tools: API.read("mcp/hub.d.ts#getPage,getFile"); of all: "mcp/hub.d.ts#*".'
    )
    assert files.read("mcp/hub.d.ts#*")["content"].count("  function ") == 20
    assert files.text("mcp/hub.d.ts").count("  function ") == 20 + 1 + 3


def test_the_names_of_very_many_servers_are_few_for_each() -> None:
    views = [
        UpstreamView(f"s{n}", "ready", tools=tuple(Tool(f"do_{chr(97 + m)}") for m in range(20))) for n in range(99)
    ]
    listed = build(views, Policy(PolicyRules())).files.list_files("")
    names = [file["tools"] for file in listed if "tools" in file]
    assert len(names) == 99
    assert all(each == ["do... (20)"] for each in names)
    (alone,) = build(views, Policy(PolicyRules())).files.list_files("mcp/s7.d.ts")
    assert len(alone["tools"]) == 20


def test_several_files_and_parts_are_read_as_one_text() -> None:
    files = build([GITHUB, BIG], Policy(PolicyRules())).files
    read = files.read("mcp/github.d.ts#createIssue", "mcp/hub.d.ts#getPage, getFile", "mcp/github.d.ts#then")
    assert read["path"] == "mcp/github.d.ts#createIssue, mcp/hub.d.ts#getPage, getFile, mcp/github.d.ts#then"
    assert re.findall(r"namespace ([\w.]+)|function (\w+)", read["content"]) == [
        ("MCP.github", ""),
        ("", "createIssue"),
        ("", "then_"),
        ("MCP.hub", ""),
        ("", "getPage"),
        ("", "getFile"),
    ]
    repeated = files.read("mcp/hub.d.ts#getPage,mcp/hub.d.ts#getFile")["content"]
    assert repeated == files.read("mcp/hub.d.ts#getPage,getFile")["content"]
    both = files.read("mcp/github.d.ts", "mcp/hub.d.ts")["content"]
    assert both.count("Types and comments of some tools") == 1
    assert "createIssue(input: { owner: string })" in both
    assert both.count("\ngetPage(") == 1
    assert 'of all: "mcp/hub.d.ts#*"' in both
    index = files.read("mcp/index.d.ts", "mcp/github.d.ts")["content"]
    assert "interface McpApiHeader" in index
    assert "namespace MCP.github {" in index


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ("createIsue", "Nearest: createIssue."),
        ("createIssue,nope", 'has no tool "nope"'),
        ("createIssue,delete-repo", "Nearest: deleteRepo"),
    ],
)
def test_an_unknown_part_among_others_has_the_nearest_names(part: str, told: str) -> None:
    with pytest.raises(ProgramError) as raised:
        build([GITHUB], Policy(PolicyRules())).files.read(PART + part)
    assert told in raised.value.message


def test_what_a_server_does_not_have_is_said() -> None:
    files = build([replace(GITHUB, resources=False, prompts=False)], Policy(PolicyRules())).files
    assert "resources" not in files.read("mcp/github.d.ts")["content"]
    for part in ("resources", "resources.list", "prompts.get"):
        with pytest.raises(ProgramError, match=rf"MCP\.github has no {part.partition('.')[0]}\Z"):
            files.read(PART + part)


@pytest.mark.parametrize(
    ("declared", "own", "ask", "words"),
    [
        (Annotations(read_only=True), None, False, "read-only"),
        (Annotations(read_only=True), None, True, "read-only, asks the user first"),
        (Annotations(read_only=False), None, False, "destructive"),
        (Annotations(read_only=False, destructive=False), None, False, "writes"),
        (Annotations(destructive=False, idempotent=True), None, False, "writes, idempotent"),
        (Annotations(destructive=True, idempotent=True), None, True, "destructive, idempotent, asks the user first"),
        (Annotations(), None, False, "not annotated"),
        (Annotations(open_world=False), None, False, "not annotated"),
        (Annotations(), Annotations(read_only=True), False, "read-only"),
        (Annotations(read_only=True), Annotations(read_only=False, destructive=True), False, "destructive"),
    ],
)
def test_what_a_tool_does_is_a_word_in_its_declaration_in_hits_and_in_headers(
    declared: Annotations, own: Annotations | None, ask: bool, words: str
) -> None:
    view = UpstreamView("s", "ready", tools=(Tool("do_it", "Do it.", annotations=declared),))
    annotations = () if own is None else (("mcp:s:do_it", own),)
    built = build([view], Policy(PolicyRules(ask=("mcp:s:*",) if ask else (), annotations=annotations)))
    for catalog in (built, read_catalog(catalog_text(built))):
        for path in ("mcp/s.d.ts", "mcp/s.d.ts#doIt"):
            assert f"/** [{words}] Do it. */" in catalog.files.read(path)["content"]
        assert f"/** [{words}] Do it. */" in catalog.files.text("mcp/s.d.ts")
        assert catalog.search("do it", 1, None)[0]["effects"] == words
        assert catalog.header("s", None, schema=False)["tools"][0]["effects"] == words


def test_an_untrusted_annotation_is_no_word() -> None:
    view = UpstreamView("s", "ready", tools=(Tool("do_it", annotations=Annotations(read_only=True)),))
    catalog = build([view], Policy(PolicyRules(distrusted_servers=frozenset({"s"}))))
    assert "[not annotated]" in catalog.files.read("mcp/s.d.ts")["content"]


def test_an_empty_query_lists_the_tools_of_a_server() -> None:
    catalog = build([GITHUB, BIG], Policy(PolicyRules()))
    assert [hit["call"] for hit in catalog.search("", 8, "github")] == [
        *("MCP.github.createIssue", "MCP.github.deleteRepo", "MCP.github.then_"),
    ]
    assert [hit["call"] for hit in catalog.search("  ", 2, "hub")] == ["MCP.hub.getPage", "MCP.hub.getFile"]
    assert len(catalog.search("", 50, None)) == 23
    assert [catalog.search("", 2, server).total for server in (None, "github", "hub")] == [23, 3, 20]
    assert {hit["score"] for hit in catalog.search("", 50, None)} == {0}


def test_the_index_declares_what_api_headers_have() -> None:
    text = build([GITHUB], Policy(PolicyRules())).files.read("mcp/index.d.ts")["content"]
    for member in (
        "kind",
        "scope",
        "header",
        "servers",
        "tools",
        "schemas",
        "method",
        "mcpTool",
        "effects",
        "description",
    ):
        assert re.search(rf"\b{member}\??: ", text)
    assert "MCP.<server>.$api(tool?, { schema: true })" in text


def test_headers_describe_all_servers_one_server_or_one_tool() -> None:
    catalog = build([GITHUB], Policy(PolicyRules()))
    root = catalog.header(None, None, schema=False)
    assert root["servers"] == [{"identifier": "github", "serverName": "github", "toolCount": 3, "status": "ready"}]
    server = catalog.header("github", None, schema=True)
    assert {tool["operation"] for tool in server["tools"]} == {"tool", "resource", "prompt"}
    assert server["schemas"]["createIssue"]["input"] == SCHEMA
    tool = catalog.header("github", "create_issue", schema=False)
    assert [each["method"] for each in tool["tools"]] == ["createIssue"]


def test_the_same_tools_give_the_same_catalog() -> None:
    assert build([GITHUB], Policy(PolicyRules())).version == build([GITHUB], Policy(PolicyRules())).version
    assert build([GITHUB], Policy(PolicyRules())).version != build([GITHUB, DOWN], Policy(PolicyRules())).version


def test_members_of_a_server_are_known_only_after_its_listing() -> None:
    connecting = UpstreamView("slow", "connecting")
    members = build([GITHUB, connecting, DOWN], Policy(PolicyRules())).members
    assert members["github"] is not None
    assert {"createIssue", "create_issue"} <= members["github"]
    assert members["slow"] is None
    assert members["my-docs"] is None


def test_the_next_catalog_reuses_unchanged_files_and_indexes() -> None:
    before = build([GITHUB, DOWN], Policy(PolicyRules()))
    text, hits = before.files.text("mcp/github.d.ts"), before.search("issue", 5, None)
    up = replace(DOWN, state="ready", error=None, tools=(Tool("find_page", "Find a page"),))
    after = build([GITHUB, up], Policy(PolicyRules()), previous=before)
    assert after.files.text("mcp/github.d.ts") is text
    assert "findPage" in after.files.text("mcp/myDocs.d.ts")
    assert [hit["call"] for hit in after.search("find a page", 1, None)] == ["MCP.myDocs.findPage"]
    assert after.search("issue", 5, None)[0]["signature"] is hits[0]["signature"]
    assert "findPage" not in before.files.text("mcp/myDocs.d.ts")


def test_the_next_catalog_makes_changed_files_and_indexes() -> None:
    before = build([GITHUB], Policy(PolicyRules()))
    before.files.text("mcp/github.d.ts"), before.search("issue", 5, None)
    changed = replace(GITHUB, tools=(replace(GITHUB.tools[0], description="Open a ticket"), *GITHUB.tools[1:]))
    after = build([changed], Policy(PolicyRules(deny=("mcp:github:delete_*",))), previous=before)
    assert "Open a ticket" in after.files.text("mcp/github.d.ts")
    assert "deleteRepo" not in after.files.text("mcp/github.d.ts")
    assert after.search("ticket", 1, None)[0]["description"] == "Open a ticket"
    assert "MCP.github.deleteRepo" not in [hit["call"] for hit in after.search("delete_repo", 5, None)]
    assert before.search("delete_repo", 1, None)[0]["call"] == "MCP.github.deleteRepo"


def test_a_hit_leads_to_the_declaration_of_its_tool() -> None:
    catalog = build([GITHUB], Policy(PolicyRules()))
    hit = catalog.search("create an issue", 1, None)[0]
    assert hit["path"] == "mcp/github.d.ts#createIssue"
    assert "function createIssue(" in catalog.files.read(hit["path"])["content"]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("MCP.github.createIssue", 'write API.read("mcp/github.d.ts#createIssue")'),
        ("MCP.github", 'write API.read("mcp/github.d.ts")'),
        ("mcp/github.d.ts#", "name a tool after the #"),
    ],
)
def test_an_error_for_a_path_in_another_form_has_the_right_one(path: str, told: str) -> None:
    with pytest.raises(ProgramError) as raised:
        build([GITHUB], Policy(PolicyRules())).files.read(path)
    assert told in raised.value.message


def test_completion_is_offered_if_the_server_has_it_and_rules_allow_it() -> None:
    able = replace(GITHUB, completions=True)
    catalog = build([able], Policy(PolicyRules()))
    ids = ["mcp:github:resources/complete", "mcp:github:prompts/complete"]
    assert [catalog.resolve(each).path for each in ids] == [
        "MCP.github.resources.complete",
        "MCP.github.prompts.complete",
    ]
    assert {catalog.resolve(each).method for each in ids} == {"completion/complete"}
    assert catalog.resolve(ids[0]).repeatable
    assert "complete" not in build([GITHUB], Policy(PolicyRules())).manifest
    assert "complete" not in build([replace(able, resources=False, prompts=False)], Policy(PolicyRules())).manifest
    denied = build([able], Policy(PolicyRules(deny=("*/complete",))))
    assert "complete" not in denied.manifest
    assert "complete" not in denied.files.text("mcp/github.d.ts")
    assert "resources.read" in (denied.members["github"] or ())


OPERATION_IDS = [operation.id for operations in OPERATIONS.values() for operation in operations]
MARKED = [f"tools/call:{name}" for name in (*OPERATION_IDS, "add")]
ODD = [*OPERATION_IDS, *MARKED, "completion/complete", "add"]


def imitating(**rules: Any) -> Catalog:
    """Return a catalog whose server has tools with the names of operations."""
    return build([replace(GITHUB, tools=tuple(map(Tool, ODD)), completions=True)], Policy(PolicyRules(**rules)))


def test_tools_named_like_operations_have_ids_of_their_own() -> None:
    catalog = imitating()
    entries = catalog.servers[0].entries
    assert len({entry.id for entry in entries}) == len(entries) == len(ODD) + len(OPERATION_IDS)
    assert len({entry.path for entry in entries}) == len(entries)
    for name in OPERATION_IDS:
        operation = catalog.resolve(f"mcp:github:{name}")
        assert operation.operation is not None
        assert operation.operation.id == name
        tool = catalog.resolve(f"mcp:github:tools/call:{name}")
        assert (tool.method, tool.tool.name) == ("tools/call", name)
    assert catalog.resolve("mcp:github:tools/call:tools/call:add").tool.name == "tools/call:add"
    assert catalog.resolve("mcp:github:completion/complete").tool.name == "completion/complete"


@pytest.mark.parametrize("name", OPERATION_IDS)
def test_a_rule_that_admits_an_operation_admits_no_tool_of_that_name(name: str) -> None:
    operation, tool = f"mcp:github:{name}", f"mcp:github:tools/call:{name}"
    for admitted in (operation, tool):
        for rules in ({"allow": (admitted,)}, {"allow": (), "approved": (admitted,)}):
            assert [entry.id for entry in imitating(**rules).servers[0].entries] == [admitted]


@pytest.mark.parametrize("name", OPERATION_IDS)
def test_a_rule_that_restricts_an_operation_restricts_a_tool_of_that_name_too(name: str) -> None:
    operation, tool = f"mcp:github:{name}", f"mcp:github:tools/call:{name}"
    left = {entry.id for entry in imitating(deny=(operation,)).servers[0].entries}
    assert not {operation, tool} & left
    assert len(left) == len(ODD) + len(OPERATION_IDS) - 2
    asking = Policy(PolicyRules(ask=(operation,)))
    nothing = Effects.of(None)
    assert isinstance(asking.decide(tool, nothing), Ask)
    # The tool alone is restricted by its own id.
    assert operation in {entry.id for entry in imitating(deny=(tool,)).servers[0].entries}
    assert isinstance(Policy(PolicyRules(ask=(operation,), approved=(tool,))).decide(tool, nothing), Allow)
    assert isinstance(Policy(PolicyRules(ask=(operation,), approved=(operation,))).decide(tool, nothing), Ask)


def test_members_are_tools_groups_and_operations_and_unknown_before_anything_is_known() -> None:
    found = build([replace(GITHUB, prompts=False), DOWN], Policy(PolicyRules())).members
    assert found == {
        "github": {
            *("createIssue", "create_issue", "deleteRepo", "delete_repo", "then_"),
            *("resources", "resources.list", "resources.read", "resources.templates"),
        },
        "myDocs": None,
        "my-docs": None,
    }


@pytest.mark.parametrize("state", ["idle", "connecting", "down", "stopped"])
def test_the_groups_of_a_server_that_does_not_run_stay_as_last_known(state: str) -> None:
    view = replace(GITHUB, state=state, error="it crashed" if state == "down" else None)
    catalog = build([view], Policy(PolicyRules()))
    assert "prompts.get" in (catalog.members["github"] or ())
    assert "namespace resources" in catalog.files.text("mcp/github.d.ts")


def test_a_search_finds_resources_and_prompts_only_when_they_are_named() -> None:
    other = replace(GITHUB, name="other")
    catalog = build([GITHUB, other], Policy(PolicyRules()))

    def calls(query: str, server: str | None = None, limit: int = 8) -> list[str]:
        return [hit["call"] for hit in catalog.search(query, limit, server) if hit["score"] == 0]

    assert calls("create an issue") == []
    assert calls("get a prompt") == ["MCP.github.prompts", "MCP.other.prompts"]
    assert calls("Resource templates", "other") == ["MCP.other.resources"]
    assert len(catalog.search("issue resources", 1, None)) == 2
    [hit] = [hit for hit in catalog.search("prompts", 8, "github") if hit["score"] == 0]
    assert hit["path"] == "mcp/github.d.ts#prompts"
    assert hit["signature"].startswith("MCP.github.prompts.list(input?: { cursor?: string }): Promise<{ prompts: ")
    assert catalog.files.read(hit["path"])["content"].count("function ") == 2


@pytest.mark.parametrize("name", ["create_issue", "createIssue"])
def test_a_held_tool_is_named_even_while_its_server_is_connecting(name: str) -> None:
    view = UpstreamView("github", "connecting", withheld={"create_issue": "is held until the user accepts it"})
    catalog = build([view], Policy(PolicyRules()))
    with pytest.raises(ProgramError, match=r"MCP\.github\.\w+ is held until the user accepts it"):
        catalog.resolve(f"mcp:github:{name}")
    with pytest.raises(ProgramError, match=r"MCP\.github\.\w+ is held until the user accepts it"):
        catalog.resolve_by_id(f"mcp:github:{name}")
    with pytest.raises(ProgramError, match="was still connecting"):
        catalog.resolve("mcp:github:other")
    with pytest.raises(ProgramError, match="is held until the user accepts it"):
        read_catalog(catalog_text(catalog)).resolve(f"mcp:github:{name}")


def test_the_note_about_held_tools_counts_tools_with_the_same_reason_one_by_one() -> None:
    tools = dict.fromkeys(("create_issue", "drop_all", "look"), "is held: it is not as the user's lock file has it")
    policy = Policy(PolicyRules(deny=("mcp:github:look",)))
    catalog = build([UpstreamView("github", "ready", era="legacy", withheld=tools)], policy)
    for each in (catalog, read_catalog(catalog_text(catalog))):
        assert "2 tools of this server are held until" in each.files.read("mcp/github.d.ts")["content"]
