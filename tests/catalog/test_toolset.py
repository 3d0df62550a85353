"""Tools that are not MCP tools: visibility, ids, functions of `tools`, and look-ups."""

from __future__ import annotations

import json
import time

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.settings import PolicyRules, ToolSettings
from codemode_mcp.catalog.catalog import Catalog
from codemode_mcp.catalog.entries import OfferedNamespace, OfferedTool
from codemode_mcp.catalog.per_caller import Catalogs, build
from codemode_mcp.catalog.toolset import MAX_LISTED, Toolset, is_function_name, select_tools
from codemode_mcp.rules.policy.policy import Caller, Policy
from codemode_mcp.runs.calls.dispatch import Dispatcher
from codemode_mcp.runs.calls.outcome import Calling, CallRecord
from codemode_mcp.sandbox.messages import Describe, ToolCall, ToolSearch
from tests.values import replace
from upstream_clients.tools import Annotations, Tool, ToolOutcome, UpstreamView

SCHEMA = {"type": "object", "properties": {"owner": {"type": "string"}}, "required": ["owner"]}
GITHUB = UpstreamView("github", "ready", tools=(Tool("create_issue", "Create an issue", input_schema=SCHEMA),))
ANY_CALLER = Policy(PolicyRules())
CALLER = Caller("ada")


def offer(name: str, plugin: str = "issues", description: str = "", **more: object) -> OfferedTool:
    return OfferedTool("plugin", plugin, Tool(name, description, **more))  # type: ignore[arg-type]


def chosen(*offered: OfferedTool, policy: Policy = ANY_CALLER) -> Toolset:
    return select_tools(offered, (), policy)


# visible tools


def test_a_tool_id_names_its_source_and_its_owner() -> None:
    toolset = chosen(offer("list"), replace(offer("load", "results"), source="core"), offer("list", "tickets"))
    assert list(toolset.ids) == ["core:results:load", "plugin:issues:list", "plugin:tickets:list"]
    assert toolset.names == {"load": "core:results:load"}
    assert [entry.path for entry in toolset.entries] == [
        "tools.load",
        'tools.call("plugin:issues:list")',
        'tools.call("plugin:tickets:list")',
    ]


def test_a_plugin_tool_keeps_a_name_that_a_tool_of_this_product_has_too() -> None:
    results = [replace(offer(name, "results"), source="core") for name in ("list", "load")]
    toolset = chosen(*results, offer("list"), replace(offer("sample", "session"), source="client"), offer("sample"))
    assert toolset.names == {
        "list": "plugin:issues:list",
        "load": "core:results:load",
        "sample": "plugin:issues:sample",
    }
    paths = {entry.id: entry.path for entry in toolset.entries}
    assert paths["core:results:list"] == 'tools.call("core:results:list")'
    assert paths["plugin:issues:list"] == "tools.list"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("file_write", "Nearest: plugin:files:write."),
        ("fake_nop", "Nearest: plugin:fake:fake_noop."),
        ("plugin:files:wirte", "Nearest: plugin:files:write."),
        ("github.createIssue", "call MCP.github.createIssue({...})"),
        ("mcp__github__create_issue", "call MCP.github.createIssue({...})"),
        ("createIssue", "call MCP.github.createIssue({...})"),
        ("MCP.github.createIssue", "call MCP.github.createIssue({...})"),
    ],
)
def test_an_error_for_a_misspelt_id_shows_the_right_expression(written: str, told: str) -> None:
    catalog = build([GITHUB], ANY_CALLER, offered=[offer("write", "files"), offer("fake_noop", "fake")])
    with pytest.raises(ProgramError) as raised:
        catalog.resolve_by_id(written)
    assert told in raised.value.message


def test_toolsets_do_not_depend_on_the_order_of_offers() -> None:
    tools = [offer("b"), offer("a"), offer("c", "other")]
    catalogs = [build([GITHUB], ANY_CALLER, offered=order) for order in (tools, tools[::-1])]
    assert catalogs[0].manifest == catalogs[1].manifest
    assert catalogs[0].version == catalogs[1].version != build([GITHUB], ANY_CALLER).version


def test_denied_tools_are_absent_and_make_no_name_ambiguous() -> None:
    policy = Policy(PolicyRules(deny=("plugin:secret:*",)))
    toolset = chosen(offer("list"), offer("list", "secret"), policy=policy)
    assert toolset.names == {"list": "plugin:issues:list"}
    assert "secret" not in toolset.manifest


def test_an_optional_tool_is_offered_only_if_a_rule_names_it() -> None:
    optional = replace(offer("purge"), optional=True)
    assert not chosen(optional)
    assert not chosen(optional, policy=Policy(PolicyRules(allow=("*",))))
    assert chosen(optional, policy=Policy(PolicyRules(allow=("plugin:issues:*",))))


def test_read_only_admits_tools_that_declare_it() -> None:
    policy = Policy(PolicyRules(read_only=True))
    reads = offer("reads", annotations=Annotations(read_only=True))
    assert list(chosen(reads, offer("writes"), policy=policy).ids) == ["plugin:issues:reads"]


def test_the_tools_that_run_programs_are_in_no_catalog() -> None:
    own = [OfferedTool("core", "code_mode", Tool(name)) for name in ("exec", "wait", "anything")]
    assert not chosen(*own)
    toolset = chosen(*own, offer("exec"), offer("wait"))
    assert list(toolset.ids) == ["plugin:issues:exec", "plugin:issues:wait"]
    assert toolset.names == {}


def test_of_two_tools_with_the_same_id_the_first_counts() -> None:
    first, second = offer("list", description="first"), offer("list", description="second")
    assert [entry.tool.description for entry in chosen(first, second).entries] == ["first"]


# names

REFUSED = (
    *("search", "describe", "call", "exec", "wait", "then", "toJSON", "constructor", "__proto__", "toString"),
    *("hasOwnProperty", "prototype", "delete", "class", "await", "arguments", "eval", "create-issue", "a.b", "a b"),
    *("", "1st", "x\u200by", "e\u0301", "a\n", "\u2028", "x" * 200, "#private", "a:b"),
)


@pytest.mark.parametrize("name", REFUSED, ids=[ascii(name)[:30] for name in REFUSED])
def test_reserved_names_and_names_that_are_no_identifiers_are_no_functions(name: str) -> None:
    toolset = chosen(offer(name))
    assert toolset.names == {}
    assert toolset.get(f"plugin:issues:{name}") is not None, "but it is there by its id"


@pytest.mark.parametrize("name", ["list", "createIssue", "create_issue", "$x", "_x", "größe", "日本", "x1"])
def test_identifiers_are_functions(name: str) -> None:
    assert chosen(offer(name)).names == {name: f"plugin:issues:{name}"}


NAMES = st.one_of(st.sampled_from([*REFUSED, "list", "load", "create_issue", "a", "b"]), st.text(max_size=12))
OFFERS = st.lists(st.tuples(st.sampled_from(["plugin", "core", "client"]), st.sampled_from(["x", "y"]), NAMES))


@given(OFFERS, st.sets(st.sampled_from(["plugin:*", "core:x:*", "*:a"]), max_size=2))
@example([("plugin", "x", "A\u00b7")], set())
def test_a_name_is_a_function_if_exactly_one_visible_tool_has_it(
    offered: list[tuple[str, str, str]], denied: set[str]
) -> None:
    tools = [OfferedTool(source, owner, Tool(name)) for source, owner, name in offered]  # type: ignore[arg-type]
    toolset = select_tools(tools, (), Policy(PolicyRules(deny=tuple(denied))))
    assert list(toolset.ids) == sorted(toolset.ids)
    assert len({entry.path for entry in toolset.entries}) == len(toolset)
    of_plugins = {entry.tool.name for entry in toolset.entries if entry.source == "plugin"}
    visible = [
        entry.tool.name for entry in toolset.entries if entry.source == "plugin" or entry.tool.name not in of_plugins
    ]
    for name, tool_id in toolset.names.items():
        entry = toolset.get(tool_id)
        assert entry is not None
        assert entry.tool.name == name
        assert entry.path == f"tools.{name}"
        assert visible.count(name) == 1
        # Not only letters and digits: U+00B7, for example, may continue an identifier.
        assert not name[0].isdecimal()
        assert all(each == "$" or f"a{each}".isidentifier() for each in name)
        assert name not in REFUSED
    for entry in toolset.entries:
        if visible.count(entry.tool.name) == 1 and is_function_name(entry.tool.name):
            assert entry.tool.name in toolset.names
    again = select_tools(tools[::-1], (), Policy(PolicyRules(deny=tuple(denied))))
    assert again.manifest == toolset.manifest
    json.loads("{" + toolset.manifest + "}")


@given(OFFERS, OFFERS)
def test_only_a_tool_of_the_same_name_makes_a_name_ambiguous(
    before: list[tuple[str, str, str]], more: list[tuple[str, str, str]]
) -> None:
    def named(offered: list[tuple[str, str, str]]) -> dict[str, str]:
        return chosen(*[OfferedTool(s, o, Tool(n)) for s, o, n in offered]).names  # type: ignore[arg-type]

    added = {name for _, _, name in more}
    kept = {name: tool_id for name, tool_id in named(before).items() if name not in added}
    assert kept.items() <= named([*before, *more]).items()


# namespaces


def test_a_namespace_is_visible_if_all_its_tools_are_visible_and_of_its_plugin() -> None:
    namespace = OfferedNamespace("issues", "issues", "issues", "", ("list", "close"))
    both, one = [offer("list"), offer("close")], [offer("list"), offer("close", "tickets")]
    assert build([], ANY_CALLER, offered=both, namespaces=[namespace]).namespaces == (namespace,)
    assert build([], ANY_CALLER, offered=one, namespaces=[namespace]).namespaces == ()
    denied = Policy(PolicyRules(deny=("*:close",)))
    assert build([], denied, offered=both, namespaces=[namespace]).namespaces == ()
    assert build([], ANY_CALLER, offered=both, namespaces=[namespace]).with_observed({"x": {}}).namespaces == (
        namespace,
    )


# look-ups

LIST = offer("list", description="List the open issues of a repository.", input_schema=SCHEMA, title="List issues")
COUNT = replace(
    offer("count-all", description="Count what there is", output_schema={"type": "integer"}), label="Counter"
)


def catalog(*more: OfferedTool, policy: Policy = ANY_CALLER) -> Catalog:
    return build([GITHUB], policy, offered=[LIST, COUNT, *more])


def test_listed_entries_are_short_and_name_the_source() -> None:
    long = offer("long", description="word " * 1000)
    entries = json.loads("{" + catalog(long).toolset.manifest + "}")["tools"]
    assert entries[0] == {
        "id": "plugin:issues:count-all",
        "name": "count-all",
        "label": "Counter",
        "description": "Count what there is",
        "source": "plugin",
        "sourceName": "issues",
    }
    assert len(entries[2]["description"]) == 200
    assert "parameters" not in entries[1]


def test_a_description_has_parameters_returns_and_a_signature() -> None:
    toolset = catalog().toolset
    described = toolset.describe(toolset.entries[1])
    assert described["parameters"] == SCHEMA
    assert described["label"] == "List issues"
    assert described["signature"] == "tools.list(input: { owner: string }): Promise<unknown>"
    assert "returns" not in described
    counted = toolset.describe(toolset.entries[0])
    assert counted["returns"] == {"type": "integer"}
    assert counted["signature"].startswith('tools.call("plugin:issues:count-all", input?: ')
    assert counted["signature"].endswith("): Promise<number>")


def test_tools_search_ranks_by_words_and_finds_no_mcp_tool() -> None:
    hits = catalog().toolset.search("which issues are open", 5)
    assert hits[0]["id"] == "plugin:issues:list"
    assert hits[0]["signature"].startswith("tools.list(")
    assert all(hit["source"] != "mcp" for hit in hits)
    assert catalog().toolset.search("list", 1)[0]["id"] == "plugin:issues:list"
    assert build([GITHUB], ANY_CALLER).toolset.search("create issue", 5) == []


def refusal(found: Catalog, entry_id: str) -> str:
    with pytest.raises(ProgramError) as raised:
        found.resolve_by_id(entry_id)
    return raised.value.message


def test_an_id_of_a_server_without_a_listing_is_refused_with_the_expression_to_write() -> None:
    starting = build([UpstreamView("git-hub", "connecting")], ANY_CALLER)
    told = '"mcp:git-hub:create_issue" names a tool of an MCP server: call it as MCP.gitHub.<tool>({...})'
    assert refusal(starting, "mcp:git-hub:create_issue") == told
    assert "MCP.gitHub" not in refusal(starting, "mcp:git-hub-2:create_issue")


def test_an_mcp_id_is_refused_with_the_expression_to_write() -> None:
    message = refusal(catalog(), "mcp:github:create_issue")
    assert "call MCP.github.createIssue({...})" in message
    assert 'MCP.github.$api("createIssue")' in message


def test_an_unknown_id_is_refused_with_the_nearest_visible_ids() -> None:
    assert "Nearest: plugin:issues:list" in refusal(catalog(), "plugin:issue:list")
    assert "Nearest: plugin:issues:list" in refusal(catalog(), "list")
    assert "Nearest: MCP.github.createIssue({...})" in refusal(catalog(), "mcp:github:createIssue")


SECRET = offer("list_secrets", "vault")
HIDDEN = (
    "plugin:vault:list_secrets",  # denied
    "mcp:hidden:steal",  # of a server whose tools are all denied
    "plugin:other-owner:list",  # of another owner
    *("exec", "wait", "core:code_mode:exec", "core:code_mode:wait"),  # `exec` and `wait`
    *("client:session:sample", "plugin::", ":", "", "toString", "__proto__"),
)


@pytest.mark.parametrize("entry_id", HIDDEN)
def test_hidden_tools_are_refused_like_tools_that_do_not_exist(entry_id: str) -> None:
    policy = Policy(PolicyRules(deny=("plugin:vault:*", "mcp:hidden:*")))
    hidden = UpstreamView("hidden", "ready", tools=(Tool("steal"),))
    own = OfferedTool("core", "code_mode", Tool("exec"))
    with_them = build([GITHUB, hidden], policy, offered=[LIST, COUNT, SECRET, own])
    without = build([GITHUB], policy, offered=[LIST, COUNT])
    assert refusal(with_them, entry_id) == refusal(without, entry_id)
    assert refusal(with_them, entry_id).startswith("there is no tool ")
    assert with_them.toolset.manifest == without.toolset.manifest


# the dispatch path


class Plugin:
    """A source that records the arguments of its calls."""

    name = "issues"

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []

    def view(self) -> UpstreamView:
        return UpstreamView("issues", "ready")

    async def call_tool(self, tool: str, arguments: object, **options: object) -> ToolOutcome:
        self.calls.append((tool, arguments))
        return ToolOutcome({"called": tool})

    async def request(self, *_: object, **__: object) -> dict[str, object]:
        raise AssertionError


def test_calls_by_name_and_by_id_take_the_same_path() -> None:
    plugin = Plugin()
    dispatcher = Dispatcher(lambda entry, _: plugin, ToolSettings(policy=PolicyRules(deny=("*:count-all",))))  # type: ignore[arg-type, return-value]
    context = dispatcher.context("run_1", "ada", CALLER, catalog())

    def call(target: str, given: str | None, *, by_id: bool) -> tuple[str, str]:
        made = ToolCall(1, target, given, by_id=by_id)
        ended = anyio.run(dispatcher.call, Calling(made, context, CallRecord(1, target, time.monotonic())))
        return ended.value, "" if ended.error is None else ended.error.message

    listing = "plugin:issues:list"
    for by_id in (True, False):
        assert call(listing, '{"owner":"me"}', by_id=by_id) == ('{"called":"list"}', "")
        assert "tools.list: invalid arguments, nothing was sent" in call(listing, '{"owner":1}', by_id=by_id)[1]
        # These rules are newer than the catalog.
        assert "denied by the rule" in call("plugin:issues:count-all", None, by_id=by_id)[1]
    assert plugin.calls == [("list", {"owner": "me"})] * 2
    assert "call MCP.github.createIssue" in call("mcp:github:create_issue", "{}", by_id=True)[1]


def test_look_ups_of_a_program_are_answered_and_counted() -> None:
    dispatcher = Dispatcher(lambda entry, _: Plugin(), ToolSettings())  # type: ignore[arg-type, return-value]
    context = dispatcher.context("run_1", "ada", CALLER, catalog())
    assert [hit["name"] for hit in json.loads(dispatcher.answer(ToolSearch(1, "open issues", 1), context).value)] == [
        "list"
    ]
    described = dispatcher.answer(Describe(2, "plugin:issues:list"), context)
    assert json.loads(described.value)["parameters"] == SCHEMA
    refused = dispatcher.answer(Describe(3, "plugin:issues:lst"), context).error
    assert refused is not None
    assert "Nearest: plugin:issues:list" in refused.message
    assert (context.counts.search, context.counts.describe, context.counts.call) == (1, 2, 0)


# catalogs of callers


class Offers:
    """Offers that differ between callers."""

    def __init__(self) -> None:
        self.common = (LIST,)
        self.more = (LIST, COUNT)

    async def offered(self, caller: Caller) -> tuple[OfferedTool, ...]:
        return self.more if caller.principal == "ada" else self.common

    def namespaces(self) -> tuple[OfferedNamespace, ...]:
        return ()


def test_callers_share_mcp_tools_and_equal_catalogs() -> None:
    looked = []

    def views() -> list[UpstreamView]:
        looked.append(1)
        return [GITHUB]

    offers = Offers()
    catalogs = Catalogs(views, ToolSettings(), None, offers)

    async def check() -> None:
        ada, bob, eve = (Caller(name, "http", name) for name in ("ada", "bob", "eve"))
        of_ada, of_bob, of_eve = [await catalogs.of(each, None) for each in (ada, bob, eve)]
        assert of_bob is of_eve
        assert of_ada is not of_bob
        assert of_ada.version != of_bob.version
        assert of_ada.files.text("mcp/github.d.ts") is of_bob.files.text("mcp/github.d.ts")
        of_ada.search("issue", 1, None)
        assert of_ada.index.finder is of_bob.index.finder
        # Equal tools as other objects.
        offers.common = (replace(LIST),)
        assert await catalogs.of(bob, None) is of_bob
        offers.common = (replace(LIST, label="another"),)
        assert await catalogs.of(bob, None) is not of_bob
        assert of_ada.sources == {"mcp": 1, "plugin": 2}
        assert len(of_ada) == 3

    anyio.run(check)
    assert looked == [1]


def test_new_tools_of_servers_appear_in_catalogs_with_other_tools() -> None:
    views = [GITHUB]
    catalogs = Catalogs(lambda: views, ToolSettings(), None, Offers())

    async def check() -> None:
        caller = Caller("ada", "http", "ada")
        before = await catalogs.of(caller, None)
        views[0] = replace(GITHUB, tools=())
        assert await catalogs.of(caller, None) is before, "no change was reported"
        catalogs.invalidate()
        after = await catalogs.of(caller, None)
        assert (before.sources, after.sources) == ({"mcp": 1, "plugin": 2}, {"mcp": 0, "plugin": 2})

    anyio.run(check)


def test_ten_thousand_tools_are_one_text_in_the_manifest() -> None:
    tools = [offer(f"tool_{n}", f"plugin-{n % 20}", f"Does the thing number {n}") for n in range(10_000)]
    toolset = chosen(*tools)
    told = json.loads("{" + toolset.manifest + "}")
    assert isinstance(told["tools"], str)
    assert told["named"] == []
    groups = json.loads(told["tools"])
    assert len(groups) == 20
    assert sum(len(rows) for _, _, rows in groups) == 10_000 > MAX_LISTED
    assert toolset.search("tool_77", 1)[0]["id"] == "plugin:plugin-17:tool_77"
