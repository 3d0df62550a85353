"""Tests of the tools with apps in catalogs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from codemode_mcp.base.settings import PolicyRules, ToolSettings
from codemode_mcp.catalog.catalog import Catalog
from codemode_mcp.catalog.entries import app_tools_alone, app_uri, is_for_apps, is_for_apps_only, without_app_tools
from codemode_mcp.catalog.per_caller import Catalogs, build
from codemode_mcp.catalog.serialize import catalog_hash, catalog_text, read_catalog
from codemode_mcp.catalog.topics import CallerTopics
from codemode_mcp.rules.policy.policy import Caller, Policy
from upstream_clients.tools import Tool, UpstreamView

CALLER = Caller("me")
URI = "ui://clock/app.html"
SHOW = Tool("show_clock", "Shows the time", meta={"ui": {"resourceUri": URI}})
REFRESH = Tool("refresh_clock", "Fetches chronometers", meta={"ui": {"resourceUri": URI, "visibility": ["app"]}})
PLAIN = Tool("set_alarm", "Sets an alarm")
CLOCK = UpstreamView("clock", "ready", tools=(SHOW, REFRESH, PLAIN), resources=True)


def catalogs(*views: UpstreamView, **rules: Any) -> Catalogs:
    return Catalogs(lambda: views, ToolSettings(policy=PolicyRules(**rules)), None)


def ids(catalog: Catalog) -> list[str]:
    return list(catalog.index.by_id)


def test_programs_do_not_see_tools_for_apps_only() -> None:
    catalog = catalogs(CLOCK).servers_of(CALLER)
    assert "mcp:clock:refresh_clock" not in ids(catalog)
    assert "refresh" not in catalog.manifest
    assert "refresh" not in catalog.files.text("mcp/clock.d.ts")
    assert [hit["call"] for hit in catalog.search("fetch chronometers", 10, None)] == []
    assert catalog.get("mcp:clock:refresh_clock") is None


def test_apps_get_these_tools_and_nothing_else() -> None:
    catalog = catalogs(CLOCK).app_tools_of(CALLER)
    assert ids(catalog) == ["mcp:clock:refresh_clock"]
    assert catalog.resolve("mcp:clock:refresh_clock").tool is REFRESH


def test_policy_holds_for_these_tools_too() -> None:
    assert ids(catalogs(CLOCK, deny=("mcp:clock:refresh*",)).app_tools_of(CALLER)) == []


def test_changes_reach_the_catalog_of_these_tools() -> None:
    made = catalogs(CLOCK)
    before = made.app_tools_of(CALLER)
    assert made.app_tools_of(CALLER) is before
    made.invalidate()
    assert made.app_tools_of(CALLER) is not before
    made.apply(ToolSettings(policy=PolicyRules(deny=("*",))))
    assert ids(made.app_tools_of(CALLER)) == []


def test_topics_have_no_words_of_these_tools() -> None:
    policy = Policy(PolicyRules())
    assert "chronometers" not in CallerTopics(lambda: [CLOCK]).of(policy)


def test_the_guest_knows_which_tools_have_an_app() -> None:
    manifest = json.loads(catalogs(CLOCK).servers_of(CALLER).manifest)
    rows = {row[2]: row[3:] for row in manifest["servers"][0]["tools"]}
    assert rows == {"mcp:clock:show_clock": [True], "mcp:clock:set_alarm": []}


def test_the_declaration_of_a_tool_says_that_it_has_an_app() -> None:
    text = catalogs(CLOCK).servers_of(CALLER).files.text("mcp/clock.d.ts")
    assert text.count("Has an app: show(result) shows it to the user.") == 1


def test_a_stored_catalog_has_the_same_manifest() -> None:
    catalog = build([without_app_tools(CLOCK)], Policy(PolicyRules()))
    restored = read_catalog(catalog_text(catalog))
    assert restored.manifest == catalog.manifest
    assert catalog_hash(restored) == catalog_hash(catalog)
    assert app_uri(restored.resolve("mcp:clock:show_clock").tool) == URI


def test_a_view_without_these_tools_stays_the_same_object() -> None:
    view = UpstreamView("clock", "ready", tools=(SHOW, PLAIN))
    assert without_app_tools(view) is view
    assert app_tools_alone(view).tools == ()


@pytest.mark.parametrize(
    ("meta", "for_apps", "only"),
    [
        (None, True, False),
        ({}, True, False),
        ({"ui": None}, True, False),
        ({"ui": {"visibility": ["model"]}}, False, False),
        ({"ui": {"visibility": ["app"]}}, True, True),
        ({"ui": {"visibility": ["model", "app"]}}, True, False),
        ({"ui": {"visibility": []}}, False, True),
        ({"ui": {"visibility": "app"}}, True, False),
    ],
)
def test_the_visibility_of_a_tool(meta: Any, for_apps: bool, only: bool) -> None:
    tool = Tool("t", meta=meta)
    assert (is_for_apps(tool), is_for_apps_only(tool)) == (for_apps, only)
