"""Names of servers and tools as identifiers."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from declarations import aliases, identifiers
from declarations.names import (
    HOST_GLOBALS,
    LANGUAGE_GLOBALS,
    MAX_LENGTH,
    OBJECT_PROTOTYPE,
    RESERVED_WORDS,
    TOOL_RESERVED,
)

# Short names, which often collide.
NAMES = st.one_of(
    st.text(alphabet="aAbB2_-. $é日", max_size=6), st.text(max_size=80), st.sampled_from(sorted(TOOL_RESERVED))
)


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("create_issue", "createIssue"),
        ("chrome-devtools", "chromeDevtools"),
        ("Create Issue", "createIssue"),
        ("slack.post_message", "slackPostMessage"),
        ("@scope/pkg", "scopePkg"),
        ("mcp__github__search", "mcpGithubSearch"),
        ("getHTTPResponse", "getHTTPResponse"),
        ("API_KEY_get", "APIKEYGet"),
        ("A1_b", "a1B"),
        ("3d-render", "_3dRender"),
        ("_private", "_private"),
        ("日本語", "日本語"),
        ("größe", "größe"),
        ("gro\u0308ße", "größe"),
        ("get_😀", "get"),
        ("²", "tool_"),
        ("", "tool_"),
        ("---", "tool_"),
        ("a" * 100, "a" * 64),
        ("delete", "delete_"),
        ("then", "then_"),
        ("constructor", "constructor_"),
        ("to_string", "toString_"),
        ("__proto__", "proto_"),
        ("$api", "$api_"),
        ("resources", "resources_"),
        ("fetch", "fetch"),
    ],
)
def test_a_tool_name_becomes_this_identifier(name: str, identifier: str) -> None:
    assert identifiers([name]) == {name: identifier}


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("text", "text_"),
        ("JSON", "JSON_"),
        ("api", "api"),
        ("API", "API_"),
        ("resources", "resources"),
        ("", "server_"),
        ("index", "index_"),
        ("Index", "index_"),
        ("INDEX", "INDEX_"),
        ("indexer", "indexer"),
    ],
)
def test_a_server_keeps_clear_of_global_names(name: str, identifier: str) -> None:
    assert identifiers([name], kind="server") == {name: identifier}


def test_the_caller_may_reserve_more_names() -> None:
    assert identifiers(["issues"], kind="server", reserved=frozenset({"issues"})) == {"issues": "issues_"}


def test_of_colliding_names_the_identifier_itself_wins_and_the_others_follow_in_order() -> None:
    names = ["create_issue", "create-issue", "createIssue", "create.issue", "create/issue", "Create Issue"]
    assert identifiers(names) == {
        "createIssue": "createIssue",
        "Create Issue": "createIssue_2",
        "create-issue": "createIssue_3",
        "create.issue": "createIssue_4",
        "create/issue": "createIssue_5",
        "create_issue": "createIssue_6",
    }


def test_a_suffix_never_makes_the_original_name_of_another_tool() -> None:
    result = identifiers(["foo", "foo!", "foo_2"])
    assert result == {"foo": "foo", "foo!": "foo_3", "foo_2": "foo2"}
    assert aliases(result, result) == {"foo!": "foo_3", "foo_2": "foo2"}


def test_long_names_that_collide_stay_within_the_length() -> None:
    names = ["a" * 70, "a" * 71, "a" * 63 + "b", "a" * 63 + "B"]
    result = identifiers(names)
    assert len(set(result.values())) == 4
    assert max(map(len, result.values())) == MAX_LENGTH


def test_the_reference_names_are_matched(corpus: Path) -> None:
    for group in json.loads((corpus / "schemas" / "tool_names.json").read_text())["groups"]:
        result = identifiers(group["names"])
        assert sorted(result.values()) == sorted(group["suggest"])
        if "collisions" not in group["why"]:
            assert [result[name] for name in group["names"]] == group["suggest"]


@given(st.lists(NAMES, max_size=12), st.sampled_from(["tool", "server"]))
def test_identifiers_are_unique_valid_and_free(names: list[str], kind: str) -> None:
    result = identifiers(names, kind=kind)  # type: ignore[arg-type]
    assert set(result) == set(names)
    assert len(set(result.values())) == len(result)
    reserved = (
        RESERVED_WORDS
        | OBJECT_PROTOTYPE
        | {"then", "$api"}
        | (HOST_GLOBALS | LANGUAGE_GLOBALS if kind == "server" else set())
    )
    for identifier in result.values():
        assert identifier.replace("$", "_").isidentifier()
        assert len(identifier) <= MAX_LENGTH
        assert identifier not in reserved


@given(st.lists(NAMES, max_size=12), st.randoms())
def test_the_order_of_names_does_not_matter(names: list[str], chance: random.Random) -> None:
    shuffled = list(names)
    chance.shuffle(shuffled)
    assert identifiers(names) == identifiers(shuffled)


@given(st.sets(NAMES, max_size=10), NAMES)
def test_a_new_name_renames_no_name_that_it_does_not_collide_with(names: set[str], new: str) -> None:
    before, after = identifiers(names), identifiers(names | {new})
    added = identifiers([new])[new]
    for name in names:
        alone = identifiers([name])[name]
        if alone != added and before[name] == alone:
            assert after[name] == alone


@given(st.lists(NAMES, max_size=8), st.lists(NAMES, max_size=8), st.booleans(), st.sampled_from(["tool", "server"]))
def test_a_name_that_is_kept_stays_whatever_comes_later(
    names: list[str], later: list[str], in_order: bool, kind: str
) -> None:
    before = identifiers(names, kind=kind)  # type: ignore[arg-type]
    after = identifiers([*later, *names], kind=kind, kept=before, in_order=in_order)  # type: ignore[arg-type]
    assert {name: after[name] for name in names} == before
    assert len(set(after.values())) == len(after)
    # Names that are gone give nothing away.
    alone = identifiers(later, kind=kind, kept=before)  # type: ignore[arg-type]
    taken = {before[name]: name for name in names}
    assert all(taken.get(identifier, name) == name for name, identifier in alone.items())


def test_in_order_the_earlier_of_two_new_names_wins() -> None:
    names = ["foo-bar", "FooBar", "fooBar"]
    assert identifiers(names, kind="server")["fooBar"] == "fooBar"
    in_order = {"foo-bar": "fooBar", "FooBar": "fooBar_2", "fooBar": "fooBar_3"}
    assert identifiers(names, kind="server", in_order=True) == in_order
    assert identifiers(names[1:], kind="server", kept={"foo-bar": "fooBar"}, in_order=True) == {
        "FooBar": "fooBar_2",
        "fooBar": "fooBar_3",
    }


def test_what_is_kept_twice_or_is_reserved_by_now_is_made_again() -> None:
    kept = {"a": "x", "b": "x", "delete": "delete", "c": "c"}
    assert identifiers(["a", "b", "c", "delete"], kept=kept) == {"a": "x", "b": "b", "c": "c", "delete": "delete_"}


def test_a_name_that_was_of_another_tool_is_no_alias_even_if_that_tool_is_gone() -> None:
    names = {"getItem": "getItem_2", "get_item": "getItem"}
    assert aliases(names, names) == {"get_item": "getItem"}
    assert aliases(["getItem"], {"getItem": "getItem_2"}) == {}
    assert aliases(["my-docs"], {"my-docs": "myDocs"}, {"my-docs"}) == {}


@given(st.lists(NAMES, max_size=12))
def test_an_alias_never_shadows_an_identifier_or_a_name_of_every_object(names: list[str]) -> None:
    result = identifiers(names)
    for name, identifier in aliases(names, result).items():
        assert result[name] == identifier
        assert name not in result.values()
        assert name not in OBJECT_PROTOTYPE | {"", "then", "$api", "resources", "prompts", "prototype"}


def test_reserved_words_work_as_aliases() -> None:
    names = ["delete", "create_issue", "then", "__proto__", "", "plain"]
    assert aliases(names, identifiers(names)) == {"delete": "delete_", "create_issue": "createIssue"}
