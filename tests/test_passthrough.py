"""Pass-through: what the tools are called, and that no name stands for two of them."""

from __future__ import annotations

import string

import pytest

from codemode_mcp.catalog import build
from codemode_mcp.passthrough import MAX_NAME, Listing, exposed_name
from codemode_mcp.settings import PolicyRules
from upstream_clients.tools import Annotations, Tool, UpstreamView

FIT = set(string.ascii_letters + string.digits + "_-")


@pytest.mark.parametrize(
    ("server", "tool"),
    [("github", "create_issue"), ("chrome-devtools", "click"), ("a", "b__c"), ("a", "_b"), ("A1", "x" * 60)],
)
def test_what_clients_take_is_left_as_it_is(server: str, tool: str) -> None:
    assert exposed_name(server, tool) == f"{server}__{tool}"


@pytest.mark.parametrize(
    ("server", "tool"),
    [("my server", "x"), ("a", "é"), ("a", "b/c"), ("a", "x" * 62), ("a__b", "c"), ("a_", "b"), ("a", "b_0123abcd")],
)
def test_what_clients_do_not_take_or_could_be_read_in_two_ways_gets_a_digest(server: str, tool: str) -> None:
    name = exposed_name(server, tool)
    assert name != f"{server}__{tool}"
    assert len(name) <= MAX_NAME
    assert set(name) <= FIT
    assert name == exposed_name(server, tool)


def test_names_that_look_alike_stay_apart() -> None:
    pairs = [("a__b", "c"), ("a", "b__c"), ("a_", "b"), ("a", "_b"), ("a b", "c"), ("a_b", "c"), ("a.b", "c")]
    pairs += [("s", tool) for tool in ("get thing", "get/thing", "get_thing", "x" * 62, "x" * 63)]
    pairs += [("s", exposed_name("s", "get thing").removeprefix("s__"))]
    names = [exposed_name(*pair) for pair in pairs]
    assert len(set(names)) == len(pairs)


def view(name: str, *tools: Tool) -> UpstreamView:
    return UpstreamView(name, "ready", tools=tools)


def test_a_tool_that_comes_renames_no_other() -> None:
    rules = PolicyRules()
    before = Listing(build([view("a", Tool("b__c"))], rules), rules)
    after = Listing(build([view("a__b", Tool("c")), view("a", Tool("b__c"), Tool("d"))], rules), rules)
    assert before.entries.keys() < after.entries.keys()
    assert after.entries["a__b__c"].id == "mcp:a:b__c"


def test_the_fingerprint_depends_on_what_clients_see_alone() -> None:
    rules = PolicyRules()
    one, two = Tool("one", "first"), Tool("two")

    def fingerprint(*tools: Tool, rules: PolicyRules = rules) -> str:
        return Listing(build([view("s", *tools)], rules), rules).fingerprint

    assert fingerprint(one, two) == fingerprint(two, one)
    assert fingerprint(one, two) != fingerprint(one)
    assert fingerprint(one) != fingerprint(Tool("one", "other"))
    assert fingerprint(one, two) != fingerprint(one, two, rules=PolicyRules(deny=("mcp:s:two",)))


def test_annotations_of_a_distrusted_server_are_left_out() -> None:
    tool = Tool("look", annotations=Annotations(read_only=True))
    for distrusted, shown in ((frozenset[str](), {"readOnlyHint": True}), (frozenset({"s"}), None)):
        rules = PolicyRules(distrusted_servers=distrusted)
        (found,) = Listing(build([view("s", tool)], rules), rules).tools
        assert found.get("annotations") == shown


def test_messages_speak_of_a_tool_by_the_name_that_clients_use() -> None:
    rules = PolicyRules()
    listing = Listing(build([view("s", Tool("look"))], rules), rules)
    entry = listing.catalog.resolve("mcp:s:look")
    assert entry.path == "s__look"
    assert listing.catalog.signature(entry).startswith("s__look(")
