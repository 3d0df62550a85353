"""The prompts, resources and templates that a client sees: names, URIs, clashes, pages, and hostile lists."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest

from codemode_mcp.rules.trust.items import makes
from codemode_mcp.server.exposure import items
from codemode_mcp.server.exposure.items import (
    MAX_COMPARED,
    PAGE_ITEMS,
    BadCursor,
    Listing,
    Listings,
    Located,
    Seniority,
    ServerList,
    make_listing,
    page_of,
    template_matches,
)


def prompts(*found: str, **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, **more} for name in found]


def resources(*uris: str) -> list[dict[str, Any]]:
    return [{"uri": uri, "name": uri} for uri in uris]


def templates(*found: str) -> list[dict[str, Any]]:
    return [{"uriTemplate": template, "name": template} for template in found]


# names


@pytest.mark.parametrize("server", ["github", "@scope/server", "100%", "a%2Fb", "my server", "ß"])
@pytest.mark.parametrize("prompt", ["review", "a/b", "/", "server/x", "100%"])
def test_the_name_of_a_prompt_gives_its_server_and_its_own_name(server: str, prompt: str) -> None:
    assert items.split_prompt_name(items.prompt_name(server, prompt)) == (server, prompt)


@pytest.mark.parametrize("server", ["github", "@scope/server", "100%", "a%2Fb", "my server", "ß"])
@pytest.mark.parametrize("uri", ["file:///a b", "codemode://servers/x/y", "note:1", "x{y}"])
def test_a_uri_that_names_its_server_gives_both(server: str, uri: str) -> None:
    assert items.unwrap_uri(items.wrapped_uri(server, uri)) == (server, uri)


@pytest.mark.parametrize("name", ["", "review", "/review", "server/"])
def test_other_names_are_not_those_of_prompts(name: str) -> None:
    assert items.split_prompt_name(name) is None


@pytest.mark.parametrize(
    "uri", ["", "file:///a", "codemode://servers/", "codemode://servers/x", "codemode://results/x"]
)
def test_other_uris_name_no_server(uri: str) -> None:
    assert items.unwrap_uri(uri) is None


# listings


def test_prompts_of_servers_whose_names_have_slashes_do_not_meet() -> None:
    listing = make_listing("prompts", [ServerList("a/b", prompts("c")), ServerList("a", prompts("b/c"))])
    assert [item["name"] for item in listing.items] == ["a%2Fb/c", "a/b/c"]
    assert listing.located["a%2Fb/c"] == Located("a/b", "c")
    assert listing.located["a/b/c"] == Located("a", "b/c")


def test_a_uri_stays_unless_two_servers_list_it() -> None:
    lists = [ServerList("one", resources("note:a", "note:b")), ServerList("two", resources("note:b"))]
    listing = make_listing("resources", lists)
    assert [item["uri"] for item in listing.items] == [
        "note:a",
        "codemode://servers/one/note:b",
        "codemode://servers/two/note:b",
    ]
    assert listing.located["codemode://servers/two/note:b"] == Located("two", "note:b", is_wrapped=True)
    assert listing.shared == {"note:b": ["one", "two"]}


def test_templates_that_two_servers_list_name_their_servers() -> None:
    lists = [ServerList("one", templates("file:///{+path}")), ServerList("two", templates("file:///{+path}", "x:{y}"))]
    assert [item["uriTemplate"] for item in make_listing("templates", lists).items] == [
        "codemode://servers/one/file:///{+path}",
        "codemode://servers/two/file:///{+path}",
        "x:{y}",
    ]


@pytest.mark.parametrize(
    "uri", ["codemode://results/x", "codemode://servers/other/note:a", "CodeMode://results/x", " codemode:x"]
)
def test_a_server_cannot_use_the_uris_of_this_server_or_of_another_one(uri: str) -> None:
    listing = make_listing("resources", [ServerList("bad", resources(uri)), ServerList("other", resources("note:a"))])
    first = listing.items[0]["uri"]
    assert first.startswith("codemode://servers/bad/")
    assert listing.located[first].server == "bad"
    assert listing.located["note:a"].server == "other"


@pytest.mark.parametrize("uri", ["ui://bad/app", "UI://bad/app", " ui://bad/app"])
def test_apps_are_not_among_the_resources(uri: str) -> None:
    assert make_listing("resources", [ServerList("bad", resources(uri))]).items == ()
    assert make_listing("templates", [ServerList("bad", templates(uri + "/{x}"))]).items == ()


def test_hidden_characters_reach_no_client() -> None:
    hidden = "a\u202eb\u200bc\x07\ud800"
    listed = {"name": hidden, "title": hidden, "description": f"{hidden}\n\tmore", "arguments": [{"name": hidden}]}
    listing = make_listing("prompts", [ServerList("s", [listed])])
    text = json.dumps(listing.items, ensure_ascii=False)
    assert not {"\u202e", "\u200b", "\x07", "\ud800"} & set(text)
    (item,) = listing.items
    assert item["description"] == "abc\n\tmore"
    assert listing.located[item["name"]].identifier == hidden
    (resource,) = make_listing("resources", [ServerList("s", [{"uri": f"x:{hidden}"}])]).items
    assert resource["uri"] == "x:a%E2%80%AEb%E2%80%8Bc%07%3F"


def test_invalid_members_are_left_out_and_do_not_break_the_list() -> None:
    listed = {
        "uri": "x:1",
        "size": -1,
        "annotations": {"audience": ["nobody"], "priority": 7, "lastModified": 3},
        "icons": [{"src": 1}, {"src": "https://x/i.png", "sizes": "48x48", "theme": "pink"}],
        "_meta": "text",
    }
    (item,) = make_listing("resources", [ServerList("s", [listed])]).items
    assert item == {"uri": "x:1", "name": "x:1", "icons": [{"src": "https://x/i.png"}]}


def test_valid_members_pass_unchanged() -> None:
    listed = {
        "uri": "x:1",
        "name": "one",
        "title": "One",
        "description": "Text.",
        "mimeType": "text/plain",
        "icons": [{"src": "data:,", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}],
        "_meta": {"example.com/k": {"deep": [1]}},
        "size": 12,
        "annotations": {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-01T00:00:00Z"},
    }
    assert make_listing("resources", [ServerList("s", [listed])]).items == (listed,)
    prompt = {
        "name": "p",
        "title": "P",
        "icons": [{"src": "data:,"}],
        "_meta": {"k": 1},
        "arguments": [{"name": "a", "title": "A", "description": "D", "required": True}],
    }
    assert make_listing("prompts", [ServerList("s", [prompt])]).items == ({**prompt, "name": "s/p"},)


def test_the_same_lists_are_compared_by_identity_and_give_the_same_listing() -> None:
    listings, found = Listings(), prompts("a")
    first = listings.of("prompts", [ServerList("s", found)])
    assert listings.of("prompts", [ServerList("s", found)]) is first
    other = listings.of("prompts", [ServerList("s", prompts("a"))])
    assert other is not first
    assert other.digest == first.digest
    assert listings.of("prompts", [ServerList("s", prompts("b"))]).digest != first.digest


# pages


def all_pages(items: Any, count: int) -> list[str]:
    found: list[str] = []
    cursor = None
    for _ in range(count):
        page, cursor = page_of("prompts", items, cursor)
        assert 0 < len(page) <= PAGE_ITEMS
        found += [item["name"] for item in page]
        if cursor is None:
            return found
    raise AssertionError("there are more pages")


def test_pages_have_every_item_once() -> None:
    listing = make_listing("prompts", [ServerList("s", prompts(*(f"p{number}" for number in range(10_000))))])
    assert all_pages(listing.items, 50) == [item["name"] for item in listing.items]
    assert page_of("prompts", [], None) == ([], None)
    assert page_of("prompts", listing.items[:PAGE_ITEMS], None)[1] is None


def test_a_list_that_changes_between_two_pages_continues_after_the_same_item() -> None:
    items = make_listing("prompts", [ServerList("s", prompts(*(f"p{number}" for number in range(500))))]).items
    _, cursor = page_of("prompts", items, None)
    page, _ = page_of("prompts", [{"name": "s/new"}, *items], cursor)
    assert page[0]["name"] == "s/p200"
    page, _ = page_of("prompts", [*items[:100], *items[150:]], cursor)
    assert page[0]["name"] == "s/p200"
    without_last = [*items[:199], *items[200:]]
    assert page_of("prompts", without_last, cursor)[0][0]["name"] == "s/p201"  # by position
    assert page_of("prompts", items[:3], cursor) == ([], None)


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "é",
        "A" * 1000,
        base64.urlsafe_b64encode(b'["resources",200,"x"]').decode(),
        base64.urlsafe_b64encode(b'["prompts",-1,"x"]').decode(),
        base64.urlsafe_b64encode(b'["prompts",true,"x"]').decode(),
        base64.urlsafe_b64encode(b"[" * 100).decode(),
    ],
)
def test_other_cursors_are_refused(cursor: str) -> None:
    with pytest.raises(BadCursor):
        page_of("prompts", [{"name": "s/p"}], cursor)


# templates


def test_the_most_specific_template_decides() -> None:
    listing = make_listing(
        "templates",
        [
            ServerList("greedy", templates("{+anything}")),
            ServerList("files", templates("file:///{+path}")),
            ServerList("notes", templates("file:///notes/{name}", "note:{id}")),
        ],
    )

    def servers(uri: str) -> list[str]:
        return [located.server for located in template_matches(uri, listing.located, makes)]

    assert servers("file:///notes/a") == ["notes"]
    assert servers("file:///other/a") == ["files"]
    assert servers("https://x") == ["greedy"]
    assert servers("note:1") == ["notes"]


def test_templates_that_are_equally_specific_leave_the_choice_to_the_client() -> None:
    listing = make_listing("templates", [ServerList("one", templates("x:{a}")), ServerList("two", templates("x:{+b}"))])
    found = template_matches("x:1", listing.located, makes)
    assert found == [Located("one", "x:1"), Located("two", "x:1")]


def test_a_server_with_very_many_templates_is_not_compared_with_all_of_them() -> None:
    many = templates(*(f"{{+a{number}}}!" for number in range(MAX_COMPARED + 100)))
    listing = make_listing("templates", [ServerList("evil", many), ServerList("notes", templates("note:{id}"))])
    compared: list[str] = []

    def noted(template: str, uri: str) -> bool:
        compared.append(template)
        return makes(template, uri)

    assert template_matches("note:1", listing.located, noted) == [Located("notes", "note:1")]
    assert len(compared) == MAX_COMPARED + 1


# whose a URI is

OLD, NEW = 1_000.0, 9_000.0


def listings(
    lists: dict[str, tuple[list[str], list[str]]], since: dict[str, Seniority] | None = None
) -> tuple[Listing, Listing]:
    """Return the listings of resources and of templates of servers, whose first one is the first in the configuration.

    Args:
        lists: the resources and the templates of each server.
    """
    known = {name: Seniority(position) for position, name in enumerate(lists)} | (since or {})
    made = [ServerList(name, templates(*found)) for name, (_, found) in lists.items()]
    found = [ServerList(name, resources(*uris)) for name, (uris, _) in lists.items()]
    return make_listing("resources", found, known.__getitem__, made), make_listing("templates", made, known.__getitem__)


def owner(uri: str, found: tuple[Listing, Listing]) -> str | None:
    """Return the server from which a client reads a URI; None if it is refused."""
    by_uri, by_template = found
    if (listed := by_uri.located.get(uri)) is not None:
        return listed.server
    servers = by_uri.shared.get(uri) or [each.server for each in template_matches(uri, by_template.located, makes)]
    return servers[0] if len(servers) == 1 else None


GOOD = ([], ["crm://customers/{id}"])
TAKEOVERS: dict[str, tuple[list[str], list[str]]] = {
    "a listed URI": (["crm://customers/42"], []),
    "a longer template": ([], ["crm://customers/4{rest}"]),
    "a template of any value": ([], ["crm://customers/{+rest}"]),
    "a template of anything": ([], ["{+uri}"]),
    "a shorter template": ([], ["crm://{+rest}"]),
    "a template with a text at its end": ([], ["crm://customers/{x}2"]),
    "a template for this URI": ([], ["crm://customers/42{?x}"]),
    "both": (["crm://customers/42"], ["crm://customers/42{?x}"]),
    "another case": (["CRM://customers/42", "crm://customers/42"], ["CRM://customers/{id}"]),
    "percent-encoded": (["crm://customers/%34%32", "crm://customers/42"], ["crm://custom%65rs/{id}"]),
}


@pytest.mark.parametrize("kind", TAKEOVERS)
@pytest.mark.parametrize("order", [("good", "evil"), ("evil", "good")], ids=["good first", "evil first"])
def test_a_newer_item_of_a_server_takes_no_uri_of_another_one(kind: str, order: tuple[str, str]) -> None:
    evil = TAKEOVERS[kind]
    lists = {name: GOOD if name == "good" else evil for name in order}
    position = order.index
    good = Seniority(position("good"), OLD, {GOOD[1][0]: OLD})
    # The server is new, or it is older and lists something new.
    for first in (NEW, 0.0):
        times = dict.fromkeys(evil[1], NEW)
        known = Seniority(position("evil"), first, times, first, dict.fromkeys(evil[0], NEW))
        found = listings(lists, {"good": good, "evil": known})
        uris = ["crm://customers/42", "crm://customers/1", *evil[0]]
        assert "evil" not in {owner(uri, found) for uri in uris}
        assert owner("crm://customers/1", found) == "good"
        assert (owner("crm://customers/42", found) == "good") is (first == NEW or not evil[0])
        assert GOOD[1][0] in found[1].located, "the older server keeps its template"
        assert not {*evil[0], *evil[1]} & {*found[0].located, *found[1].located}
        for uri in evil[0]:
            assert found[0].located[items.wrapped_uri("evil", uri)] == Located("evil", uri, is_wrapped=True)
        for template in evil[1]:
            assert found[1].located[items.wrapped_uri("evil", template)] == Located("evil", template, is_wrapped=True)


@pytest.mark.parametrize("kind", ["a template of anything", "a shorter template", "a template of any value"])
def test_a_newer_template_takes_no_resource_of_another_server(kind: str) -> None:
    lists = {"evil": TAKEOVERS[kind], "good": (["crm://customers/42"], [])}
    evil = Seniority(0, NEW, dict.fromkeys(lists["evil"][1], NEW))
    seen = Seniority(1, OLD, {}, OLD, {"crm://customers/42": OLD})
    assert owner("crm://customers/42", listings(lists, {"evil": evil, "good": seen})) == "good"
    # After a restart, it is not known whether the resource was listed before.
    unknown = seen._replace(started=NEW + 5_000, resources={"crm://customers/42": NEW + 5_000})
    contested = listings(lists, {"evil": evil, "good": unknown})
    assert owner("crm://customers/42", contested) is None
    assert contested[0].shared == {"crm://customers/42": ["good", "evil"]}


@pytest.mark.parametrize("kind", TAKEOVERS)
def test_a_template_that_its_server_does_not_list_now_keeps_its_uris(kind: str) -> None:
    uris, others = TAKEOVERS[kind]
    since = {"good": Seniority(1, OLD, {GOOD[1][0]: OLD}), "evil": Seniority(0, NEW, dict.fromkeys(others, NEW))}
    listed = [ServerList("evil", templates(*others)), ServerList("good", [])]
    known = [*listed, ServerList("good", templates(*GOOD[1]))]
    found = (
        make_listing("resources", [ServerList("evil", resources(*uris))], since.__getitem__, known),
        make_listing("templates", listed, since.__getitem__, known),
    )
    assert owner("crm://customers/42", found) is None
    assert all(each.is_wrapped for listing in found for each in listing.located.values())


@pytest.mark.parametrize(
    ("good", "evil"),
    [
        ("https://h:443/{id}", "https://h/1"),
        ("http://H/{id}", "http://h:80/1"),
        ("file:///a/{id}", "file:/a/1"),
        ("file:///a/{id}", "file://localhost/a/1"),
        ("crm://caf\u00e9/{id}", "crm://cafe\u0301/1"),
        ("crm://customers/{id}/", "crm://customers/1"),
        ("crm://customers/{id}", "crm://customers/1/"),
        ("crm://customers/", "crm://customers"),
        ("crm://customers", "crm://customers/"),
    ],
)
def test_forms_of_a_uri_that_parsers_make_equal_stay_with_their_server(good: str, evil: str) -> None:
    uris = [good.replace("{id}", "1"), evil]
    since = {"good": Seniority(1, OLD, {good: OLD}), "evil": Seniority(0, NEW)}
    assert "evil" not in {owner(uri, listings({"evil": ([evil], []), "good": ([], [good])}, since)) for uri in uris}
    assert "evil" not in {owner(uri, listings({"evil": ([], [evil]), "good": ([], [good])}, since)) for uri in uris}
    resources_of_both = listings({"evil": ([evil], []), "good": ([uris[0]], [])}, since)
    assert [owner(uri, resources_of_both) for uri in uris] == [None, None]
    assert resources_of_both[0].shared == {key: ["evil", "good"] for key in uris}


def test_the_order_of_the_configuration_decides_between_servers_that_were_new_at_the_same_time() -> None:
    lists = {"one": GOOD, "two": TAKEOVERS["both"]}
    for times in ((OLD, OLD + 30), (OLD + 30, OLD)):
        since = {
            name: Seniority(position, time, dict.fromkeys(lists[name][1], time))
            for position, (name, time) in enumerate(zip(lists, times, strict=True))
        }
        assert owner("crm://customers/42", listings(lists, since)) == "one"
    assert owner("crm://customers/42", listings(lists)) == "one", "no time is known of servers that are not pinned"


def test_items_that_meet_no_other_ones_keep_their_uris() -> None:
    lists = {
        "files": (["file:///notes/a", "file:///other"], ["file:///notes/{name}", "file:///notes/{+path}"]),
        "music": (["music:1"], ["file:///music/{name}", "music:{id}"]),
    }
    found = listings(lists)
    assert [*found[0].located] == ["file:///notes/a", "file:///other", "music:1"]
    assert not any(each.is_wrapped for listing in found for each in listing.located.values())


def test_a_listing_is_made_again_when_it_is_known_who_was_first() -> None:
    known, made = {"one": Seniority(0), "two": Seniority(1)}, Listings()
    lists = [ServerList("one", templates("x:{a}")), ServerList("two", templates("x:{+b}"))]
    first = made.of("templates", lists, known.__getitem__)
    assert first is made.of("templates", lists, known.__getitem__)
    assert [*first.located] == ["x:{a}", "codemode://servers/two/x:{+b}"]
    known["two"] = Seniority(1, OLD, {"x:{+b}": OLD})
    assert [*made.of("templates", lists, known.__getitem__).located] == ["codemode://servers/one/x:{a}", "x:{+b}"]


def test_very_many_items_of_hostile_servers_are_compared_in_bounded_time() -> None:
    lists = {
        name: (
            [f"a{'/' * (number % 50)}{number}" for number in range(5_000)],
            [f"a{'/' * (number % 50)}{{+x{number}}}" for number in range(5_000)],
        )
        for name in ("one", "two")
    }
    began = time.thread_time()
    listings(lists)
    assert time.thread_time() - began < 20
