"""Pass-through: names of tools, which are unique, and results in each protocol revision."""

import json
import re
import string
from types import SimpleNamespace
from typing import Any

import pytest
from mcp_types import methods

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.base.strict_json import json_text
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.rules.policy.policy import Caller, Policy
from codemode_mcp.server.direct_calls import MAX_OWN_CALLS, MAX_PROGRESS, ForwardedCall, no_room
from codemode_mcp.server.direct_forms import MAX_PARTS, MAX_VALUES, Listing, result_for
from codemode_mcp.server.exposure import names
from codemode_mcp.server.exposure.names import MAX_NAME, exposed_name
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
    [("my server", "x"), ("a", "é"), ("a", "b/c"), ("a", "x" * 62), ("a__b", "c"), ("a_", "b"), ("a", "b_" + "0" * 16)],
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


def test_a_digest_has_64_bits_and_the_name_fits_every_client() -> None:
    for server, tool in [("my server", "x"), ("a" * 70, "b"), ("a", "é" * 200), ("a__b", "c"), ("s", "x" * 64)]:
        name = exposed_name(server, tool)
        assert re.fullmatch(r"[A-Za-z0-9_-]*_[0-9a-f]{16}", name), name
        assert 17 < len(name) <= 64
    # The names are part of the interface and must not change.
    assert exposed_name("a", "b_0123abcd") == "a__b_0123abcd"


def test_of_two_tools_with_one_name_neither_is_shown_whatever_their_order(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(names, "exposed_name", lambda server, tool: f"{server[0]}__{tool}")
    rules = PolicyRules()
    views = [view("bank", Tool("pay"), Tool("look")), view("bad", Tool("pay"))]
    for order in (views, views[::-1]):
        caplog.clear()
        listing = Listing(build(order, Policy(rules)), rules)
        assert [tool["name"] for tool in listing.tools] == list(listing.entries) == ["b__look"]
        with pytest.raises(ProgramError):
            listing.catalog.resolve("mcp:bad:pay")
        assert "mcp:bank:pay" in caplog.text
        assert "mcp:bad:pay" in caplog.text


def view(name: str, *tools: Tool) -> UpstreamView:
    return UpstreamView(name, "ready", tools=tools)


def test_a_tool_that_comes_renames_no_other() -> None:
    rules = PolicyRules()
    before = Listing(build([view("a", Tool("b__c"))], Policy(rules)), rules)
    after = Listing(build([view("a__b", Tool("c")), view("a", Tool("b__c"), Tool("d"))], Policy(rules)), rules)
    assert before.entries.keys() < after.entries.keys()
    assert after.entries["a__b__c"].id == "mcp:a:b__c"


def test_the_fingerprint_depends_on_what_clients_see_alone() -> None:
    rules = PolicyRules()
    one, two = Tool("one", "first"), Tool("two")

    def fingerprint(*tools: Tool, rules: PolicyRules = rules) -> str:
        return Listing(build([view("s", *tools)], Policy(rules)), rules).fingerprint

    assert fingerprint(one, two) == fingerprint(two, one)
    assert fingerprint(one, two) != fingerprint(one)
    assert fingerprint(one) != fingerprint(Tool("one", "other"))
    assert fingerprint(one, two) != fingerprint(one, two, rules=PolicyRules(deny=("mcp:s:two",)))


def test_icons_titles_and_metadata_are_passed_on_without_references_to_apps() -> None:
    tool = Tool(
        "look",
        title="Look",
        annotations=Annotations(title="Look here"),
        meta={"example.com/a": 1, "ui": {"resourceUri": "ui://a"}, "ui/resourceUri": "ui://a"},
        icons=({"src": "https://example.com/i.png", "mimeType": "image/png", "sizes": ["any"]}, {"href": "x"}),
    )
    (found,) = Listing(build([view("s", tool)], Policy(PolicyRules())), PolicyRules()).tools
    assert found["title"] == "Look"
    assert found["annotations"] == {"title": "Look here"}
    assert found["_meta"] == {"example.com/a": 1}
    assert found["icons"] == [{"src": "https://example.com/i.png", "mimeType": "image/png", "sizes": ["any"]}]


def test_annotations_of_a_distrusted_server_are_left_out() -> None:
    tool = Tool("look", annotations=Annotations(read_only=True))
    for distrusted, shown in ((frozenset[str](), {"readOnlyHint": True}), (frozenset({"s"}), None)):
        rules = PolicyRules(distrusted_servers=distrusted)
        (found,) = Listing(build([view("s", tool)], Policy(rules)), rules).tools
        assert found.get("annotations") == shown


def test_messages_speak_of_a_tool_by_the_name_that_clients_use() -> None:
    rules = PolicyRules()
    listing = Listing(build([view("s", Tool("look"))], Policy(rules)), rules)
    entry = listing.catalog.resolve("mcp:s:look")
    assert entry.path == "s__look"
    assert listing.catalog.signature(entry) == "", "clients that write no programs are told no JavaScript"


VERSIONS = ("2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28")


def sent(result: dict[str, Any], version: str) -> dict[str, Any]:
    """Return a result as the SDK sends it."""
    fitted = result_for("s__look", json_text(result), version)
    return methods.serialize_server_result("tools/call", version, fitted)


def test_a_result_without_content_has_its_value_as_text_too() -> None:
    for version in VERSIONS:
        assert sent({"content": [], "structuredContent": {"a": 1}}, version)["content"][0]["text"] == '{"a":1}'


def refusal(result: dict[str, Any]) -> str:
    said = sent(result, "2025-11-25")
    assert said["isError"] is True
    return str(said["content"][0]["text"])


def test_one_of_several_callers_does_not_take_the_room_of_all() -> None:
    alice, bob = Caller("http:alice", "http"), Caller("http:bob", "http")
    hers = [alice] * MAX_OWN_CALLS
    assert no_room(hers[1:], alice) is None
    assert "of yours" in str(no_room(hers, alice))
    assert no_room(hers, bob) is None
    assert "try again" in str(no_room([bob, *hers] * 4, bob))
    only = Caller("stdio:ada")
    assert no_room([only] * MAX_OWN_CALLS, only) is None
    here, there = (Caller(None, "http", share=f"peer 192.0.2.{number}") for number in (1, 2))
    assert "from your address" in str(no_room([here] * MAX_OWN_CALLS, here))
    assert no_room([here] * MAX_OWN_CALLS, there) is None


def test_a_result_of_too_many_parts_is_refused() -> None:
    block = {"type": "text", "text": ""}
    assert len(sent({"content": [block] * MAX_PARTS}, "2025-11-25")["content"]) == MAX_PARTS
    assert refusal({"content": [block] * (MAX_PARTS + 1)}) == (
        f"s__look: the result has {MAX_PARTS + 1} parts, more than {MAX_PARTS}; ask the tool for less at a time"
    )


@pytest.mark.parametrize(
    "values",
    [
        [0] * MAX_VALUES,
        [[]] * MAX_VALUES,
        [{}] * MAX_VALUES,
        [""] * MAX_VALUES,
        [[""]] * (MAX_VALUES // 2),
        ['\\"'] * MAX_VALUES,
        {str(n): [] for n in range(MAX_VALUES)},
    ],
    ids=["numbers", "arrays", "objects", "empty strings", "nested", "escapes", "keys"],
)
def test_a_result_of_too_many_values_is_refused(values: Any) -> None:
    # Four more values: the result, `content`, `structuredContent` and `a`.
    count = 4 + (2 if values == [[""]] * (MAX_VALUES // 2) else 1) * len(values)
    assert refusal({"content": [], "structuredContent": {"a": values}}) == (
        f"s__look: the result has {count} values, more than {MAX_VALUES}; ask the tool for less at a time"
    )


def test_what_looks_like_many_values_within_a_string_is_none() -> None:
    text = ',[{"\\",' * MAX_VALUES
    assert sent({"content": [{"type": "text", "text": text}]}, "2025-11-25")["content"][0]["text"] == text


KINDS: list[tuple[dict[str, Any], dict[str, list[Any]]]] = [
    ({"type": "text", "text": "a"}, {}),
    ({"type": "image", "data": "AAAA", "mimeType": "image/png"}, {}),
    ({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}, {}),
    (
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
        {
            "title": ["A"],
            "description": ["an a"],
            "mimeType": ["text/plain"],
            "size": [0, 10**30],
            "icons": [[], [{"src": "a"}], [{"src": "a", "mimeType": "b", "sizes": ["any"], "theme": "dark"}]],
        },
    ),
    ({"type": "resource", "resource": {"uri": "file:///a", "text": "b", "mimeType": "text/plain", "_meta": {}}}, {}),
    ({"type": "resource", "resource": {"uri": "file:///a", "blob": "AAAA"}}, {}),
]
OF_ALL: dict[str, list[Any]] = {
    "_meta": [{}, {"example.com/a": [1, None]}],
    "annotations": [{}, {"audience": ["user", "assistant"], "priority": 0.5, "lastModified": "2025"}, {"priority": 1}],
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("block", "more"), KINDS, ids=lambda value: value.get("type", ""))
def test_parts_that_are_as_they_should_be_are_left_so(
    block: dict[str, Any], more: dict[str, list[Any]], version: str
) -> None:
    for key, values in [("type", [block["type"]]), *more.items(), *OF_ALL.items()]:
        for value in values:
            (said,) = sent({"content": [{**block, key: value}]}, version)["content"]
            assert {**said, key: said.get(key)} == {**block, key: value}
        (said,) = sent({"content": [{**block, key: None if key != "type" else block["type"]}]}, version)["content"]
        assert said == block


WRONG = [7, -1.5, True, "x", [], [7], ["x"], {}, {"a": 1}, [{"src": 7}], [{"src": "a", "sizes": [1]}, 3]]
WRONG += [[{"src": "a", "theme": "x"}], {"audience": "user"}, {"audience": [[]]}, {"priority": 2}, {"priority": True}]
WRONG += [{"uri": "a"}, {"uri": 7, "text": ""}, {"uri": "a", "text": "", "mimeType": 7}, {"lastModified": 7}]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("block", "more"), KINDS, ids=lambda value: value.get("type", ""))
def test_parts_that_are_not_as_they_should_be_are_shown_as_they_are_or_as_text(
    block: dict[str, Any], more: dict[str, list[Any]], version: str
) -> None:
    as_text = 0
    for key in [*block, *more, *OF_ALL]:
        for value in WRONG:
            odd = {**block, key: value}
            (said,) = sent({"content": [odd]}, version)["content"]  # this raises if the SDK refuses the result
            if said["type"] == "text" and said["text"] != odd.get("text"):
                assert json.loads(said["text"]) == odd
                as_text += 1
            else:
                # Only parts of a field that the revision does not know may be missing.
                assert (said["type"], said.keys()) == (odd["type"], odd.keys())
    assert as_text > len(WRONG)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_nested_too_deeply_to_be_sent_is_shown_as_text(version: str) -> None:
    deep: Any = "bottom"
    for _ in range(300):
        deep = {"a": deep}
    (said,) = sent({"content": [], "structuredContent": deep, "_meta": deep}, version)["content"]
    assert json.loads(said["text"]) == deep
    odd = {"type": "text", "text": "a", "_meta": deep}
    (said,) = sent({"content": [odd]}, version)["content"]
    assert json.loads(said["text"]) == odd


@pytest.mark.anyio
async def test_a_progress_message_of_a_server_cannot_control_a_terminal_or_be_endless() -> None:
    sent: list[Any] = []
    reporter: Any = SimpleNamespace(report=lambda _, message: sent.append(message))
    nothing: Any = None
    call = ForwardedCall("call_x", "c", Caller("me"), nothing, reporter, 1, 1, plain=False, remember=None)
    await call.progress(1, None, "\x1b[2Jdone\u202e\n")
    await call.progress(2, 3, "x" * 1_000_000)
    await call.progress(3, None, None)
    assert sent[0] == (1, None, "[2Jdone\n")
    assert len(sent[1][2]) <= MAX_PROGRESS
    assert sent[2] == (3, None, None)
