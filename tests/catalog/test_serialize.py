"""Catalogs as text: a catalog read from its text is equal in every respect, and so is its hash."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.catalog import serialize as module
from codemode_mcp.catalog.catalog import Catalog
from codemode_mcp.catalog.entries import OfferedNamespace, OfferedTool
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.catalog.serialize import catalog_hash, catalog_text, read_catalog
from codemode_mcp.catalog.toolset import select_tools
from codemode_mcp.rules.policy.policy import Policy
from tests.values import replace
from upstream_clients.list_repair import read_tools
from upstream_clients.tools import Annotations, Tool, UpstreamView

SCHEMA = {
    "type": "object",
    "properties": {"owner": {"type": "string", "description": "wer, 谁"}},
    "required": ["owner"],
}
GITHUB = UpstreamView(
    "github",
    "ready",
    description="Issues and more",
    tools=(
        Tool("create_issue", "Create an issue in a repository", "Create", input_schema=SCHEMA),
        Tool("delete_repo", "Delete a repository", annotations=Annotations(destructive=True, idempotent=True)),
        Tool("list-issues", "List", output_schema={"type": "object"}, annotations=Annotations(read_only=True)),
        Tool("then", "Prototype names are harmless"),
        Tool("resources/read", "A tool with the name of an operation"),
    ),
    resources=True,
    prompts=True,
    completions=True,
)
DOWN = UpstreamView("my-docs", "down", error="server 'my-docs' did not start: command '/usr/bin/x/docs' does not exist")
LOGIN = UpstreamView("my docs", "down", error="log in", login_required=True)
EMPTY = UpstreamView("empty", "connecting")
OFFERED = (
    OfferedTool("plugin", "tracker", Tool("list", "List issues"), label="The list"),
    OfferedTool("plugin", "tracker", Tool("add", "Add one", "Adding", input_schema=SCHEMA, output_schema=SCHEMA)),
    OfferedTool("plugin", "other", Tool("add", "Add another thing")),
    OfferedTool("core", "results", Tool("read.it", "Read a result")),
    OfferedTool("client", "session", Tool("elicit", "Ask the user")),
)
NAMESPACES = (OfferedNamespace("issues", "tracker", "issues", "Issues of the team", ("list", "add"), "Use them"),)
OPEN = Policy(PolicyRules())


def many() -> Catalog:
    return build([], OPEN, offered=[OfferedTool("plugin", "p", Tool(f"tool_{n}", f"Number {n}")) for n in range(400)])


ODD = {
    "name": "odd",
    "inputSchema": {"type": "object", "properties": {"v": {"type": "string", "enum": [1], "nullable": True}}},
    "outputSchema": {"type": "object", "properties": {"v": {"type": "number", "minimum": 5, "maximum": 1}}},
}


CATALOGS: dict[str, Callable[[], Catalog]] = {
    "nothing": lambda: build([], OPEN),
    "servers": lambda: build([GITHUB, DOWN, LOGIN, EMPTY], OPEN),
    "policy": lambda: build([GITHUB], Policy(PolicyRules(deny=("mcp:github:delete_*", "mcp:github:prompts/*")))),
    "tools": lambda: build([], OPEN, offered=OFFERED, namespaces=NAMESPACES),
    "everything": lambda: build([GITHUB, DOWN], OPEN, offered=OFFERED, namespaces=NAMESPACES),
    "many tools": many,
    "contradictions": lambda: build([UpstreamView("odd", "ready", tools=read_tools([ODD])[0])], OPEN),
}


def said(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except ProgramError as error:
        return error.code, error.message


def check_same(catalog: Catalog, other: Catalog) -> None:
    assert other.manifest == catalog.manifest
    assert other.version == catalog.version
    assert other.servers == catalog.servers
    assert other.toolset.same_as(catalog.toolset)
    assert other.toolset.names == catalog.toolset.names
    assert (len(other), other.sources, other.members) == (len(catalog), catalog.sources, catalog.members)
    assert other.files.list_files("") == catalog.files.list_files("")
    assert other.toolset.declarations() == catalog.toolset.declarations()
    for path in catalog.files.paths:
        assert other.files.read(path) == catalog.files.read(path)
    for server in (None, *(each.identifier for each in catalog.servers)):
        assert other.header(server, None, schema=True) == catalog.header(server, None, schema=True)
    for query in ("create an issue", "list", "resources", "docs"):
        assert other.search(query, 5, None) == catalog.search(query, 5, None)
        assert other.toolset.search(query, 5) == catalog.toolset.search(query, 5)
    ids = [*(entry.id for server in catalog.servers for entry in server.entries), *catalog.toolset.ids]
    assert [*map(other.definition_digest, ids)] == [*map(catalog.definition_digest, ids)]
    for entry_id in (*ids, "mcp:github:creat_issue", "mcp:my-docs:x", "plugin:tracker:ad", "junk"):
        assert said(lambda: other.resolve(entry_id)) == said(lambda: catalog.resolve(entry_id))  # noqa: B023
        assert said(lambda: other.resolve_by_id(entry_id)) == said(lambda: catalog.resolve_by_id(entry_id))  # noqa: B023
    for entry in catalog.toolset.entries:
        assert other.toolset.describe(entry) == catalog.toolset.describe(entry)


@pytest.mark.parametrize("name", CATALOGS)
def test_a_catalog_comes_back_the_same(name: str) -> None:
    catalog = CATALOGS[name]()
    text = catalog_text(catalog)
    again = read_catalog(text)
    check_same(catalog, again)
    assert catalog_text(again) == text
    assert catalog_hash(again) == catalog_hash(catalog)
    assert text.isascii()


def test_the_hash_is_that_of_the_text_and_differs_with_anything_in_it() -> None:
    import hashlib

    found = set()
    for make in CATALOGS.values():
        catalog = make()
        found.add(catalog_hash(catalog))
        assert catalog_hash(catalog) == hashlib.sha256(catalog_text(catalog).encode()).hexdigest()
        assert catalog_hash(make()) == catalog_hash(catalog)
    assert len(found) == len(CATALOGS)
    changed = replace(GITHUB, tools=(*GITHUB.tools[:-1], replace(GITHUB.tools[-1], input_schema=SCHEMA)))
    assert catalog_hash(build([changed], OPEN)) != catalog_hash(build([GITHUB], OPEN))


def test_observed_types_are_not_in_the_text_of_a_catalog() -> None:
    catalog = CATALOGS["everything"]()
    observed = catalog.with_observed({"mcp:github:create_issue": {"type": "object"}})
    assert catalog_text(observed) == catalog_text(catalog)
    assert catalog_hash(observed) == catalog_hash(catalog)


def test_catalogs_that_share_their_servers_write_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Catalog] = []
    write = module._servers_text
    monkeypatch.setattr(module, "_servers_text", lambda catalog: written.append(catalog) or write(catalog))
    base = build([GITHUB], OPEN)
    others = [base.with_tools(select_tools(OFFERED[:count], (), OPEN)) for count in (1, 2)]
    hashes = {catalog_hash(each) for each in (base, *others, others[0].with_observed({"x": {}}))}
    assert (len(hashes), len(written)) == (3, 1)


def test_hashes_of_removed_catalogs_are_forgotten() -> None:
    catalog_hash(build([GITHUB], OPEN))
    gc.collect()
    before = len(module._digests)
    catalog = build([DOWN], OPEN)
    catalog_hash(catalog)
    assert len(module._digests) == before + 1
    del catalog
    gc.collect()
    assert len(module._digests) == before


def test_the_text_of_a_catalog_has_no_path_of_the_machine() -> None:
    assert "/usr/bin" not in catalog_text(build([DOWN], OPEN))


# texts that are damaged or of another origin

TEXT = catalog_text(CATALOGS["everything"]())


def test_another_format_is_refused_by_name() -> None:
    with pytest.raises(ProgramError, match=r"another version of codemode-mcp \(format 2\)") as raised:
        read_catalog(TEXT.replace('"format":1', '"format":2'))
    assert raised.value.code == "snapshot_restore_failed"


@pytest.mark.parametrize("text", ["", "{", "null", "[]", "{}", '{"format":1}', '{"format":true}', "[" * 100_000])
def test_foreign_texts_are_refused(text: str) -> None:
    with pytest.raises(ProgramError) as raised:
        read_catalog(text)
    assert raised.value.code == "snapshot_restore_failed"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"identifier":"myDocs"', '"identifier":"github"'),
        lambda text: text.replace('"name":"delete_repo"', '"name":"create_issue"'),
        lambda text: text.replace('["deleteRepo",', '["createIssue",'),
        lambda text: text.replace('"mcp:github:resources/read"', '"mcp:other:resources/read"'),
        lambda text: text.replace('"resources/read"', '"resources/burn"'),
        lambda text: text.replace('"status":"down"', '"status":"odd"'),
        lambda text: text.replace('["plugin","tracker"', '["robot","tracker"'),
        lambda text: text.replace("[null,null,null,null]", "[null,null,null]"),
        lambda text: text.replace('"prompt":', '"more":1,"prompt":'),
    ],
    ids=["server", "id", "identifier", "foreign", "operation", "status", "source", "annotations", "member"],
)
def test_contradictory_texts_are_refused(change: Callable[[str], str]) -> None:
    changed = change(TEXT)
    assert changed != TEXT
    with pytest.raises(ProgramError):
        read_catalog(changed)


@settings(max_examples=300, deadline=None)
@given(
    st.integers(0, len(TEXT) - 1), st.integers(0, 30), st.text(alphabet='{}[]",:0123456789eE-.truefalsn\\u', max_size=6)
)
def test_a_text_that_was_tampered_with_is_read_or_refused_and_nothing_else(at: int, cut: int, put: str) -> None:
    try:
        catalog = read_catalog(TEXT[:at] + put + TEXT[at + cut :])
    except ProgramError:
        return
    json.loads(catalog.manifest)
    assert catalog.files.list_files("")
    assert catalog.members is not None


# the recorded lists of real servers

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "toollists"


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the recorded tool lists are not beside this repository")
def test_catalogs_of_real_servers_come_back_the_same() -> None:
    views = []
    for file in sorted(CORPUS.glob("*.json")):
        listed = json.loads(file.read_text("utf-8"))["tools"]
        tools = [
            Tool(
                each["name"],
                each.get("description") or "",
                each.get("title"),
                each["inputSchema"],
                each.get("outputSchema"),
                Annotations(read_only=(each.get("annotations") or {}).get("readOnlyHint")),
            )
            for each in listed
        ]
        views.append(UpstreamView(file.stem, "ready", tools=tuple({tool.name: tool for tool in tools}.values())))
    catalog = build(views, OPEN, offered=OFFERED, namespaces=NAMESPACES)
    assert len(catalog) > 100
    again = read_catalog(catalog_text(catalog))
    assert again.manifest == catalog.manifest
    assert again.servers == catalog.servers
    assert catalog_text(again) == catalog_text(catalog)
    assert again.search("create an issue", 10, None) == catalog.search("create an issue", 10, None)
    for path in catalog.files.paths[:5]:
        assert again.files.read(path) == catalog.files.read(path)
