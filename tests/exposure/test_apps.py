"""Tests of the forms in which clients get tools with apps, and apps."""

from __future__ import annotations

import base64
import json
import re
from typing import Any
from urllib.parse import quote

import mcp_types as types
import pytest

from codemode_mcp.server.exposure.apps import (
    MAX_HTML,
    RESOURCES,
    SHOWN_KEY,
    SHOWN_URI,
    AppError,
    exposed_contents,
    exposed_resource,
    exposed_uri,
    marked,
    original_uri,
    shown_meta,
    shown_page,
    shows_apps,
    tool_meta,
)
from declarations.untrusted_text import HIDDEN
from upstream_clients.jsonrpc import APP_MIME_TYPE as MIME_TYPE
from upstream_clients.tools import Tool

HTML = "<!doctype html><p>Hello</p>"
URI = "ui://get-time/mcp-app.html"


def declared(*types: Any) -> dict[str, Any]:
    return {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": list(types)}}}


@pytest.mark.parametrize("types", [[MIME_TYPE], ["text/plain", MIME_TYPE], ["text/html; profile=mcp-app"]])
def test_a_client_that_declares_the_type_shows_apps(types: list[Any]) -> None:
    assert shows_apps(declared(*types))


@pytest.mark.parametrize(
    "capabilities",
    [
        None,
        {},
        {"extensions": None},
        {"extensions": {"io.modelcontextprotocol/ui": {}}},
        {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": MIME_TYPE}}},
        declared(),
        declared("text/html"),
        declared(1, None),
    ],
)
def test_other_clients_show_none(capabilities: Any) -> None:
    assert not shows_apps(capabilities)


@pytest.mark.parametrize("server", ["clock", "my server", "a/b", "ä", "%2F", "ui://x"])
@pytest.mark.parametrize("uri", [URI, "ui://x", "ui://other/app", "ui:///", "ui://a/b?c=d#e", "ui://%2F/.."])
def test_a_uri_leads_back_to_its_server(server: str, uri: str) -> None:
    exposed = exposed_uri(server, uri)
    assert exposed.startswith("ui://")
    assert original_uri(exposed) == (server, uri)


@pytest.mark.parametrize("uri", ["", "ui://", "ui://clock", "ui://clock/", "http://a/b", "ui://a/b c", "ui://a/\u00e9"])
def test_other_uris_lead_to_no_server(uri: str) -> None:
    assert original_uri(uri) is None


def test_a_tool_names_the_app_of_its_own_server() -> None:
    meta = {"ui": {"resourceUri": "ui://bank/pay", "csp": {}}, "anything": 1}
    assert tool_meta("clock", Tool("t", meta=meta)) == {
        "ui": {"resourceUri": "ui://clock/bank/pay"},
        "ui/resourceUri": "ui://clock/bank/pay",
    }


def test_the_earlier_key_counts_too() -> None:
    meta = tool_meta("clock", Tool("t", meta={"ui/resourceUri": URI}))
    assert meta is not None
    assert meta["ui"] == {"resourceUri": "ui://clock/get-time/mcp-app.html"}


@pytest.mark.parametrize(
    ("visibility", "expected"),
    [
        (["app"], ["app"]),
        (["model"], ["model"]),
        (["model", "app"], None),
        ([], ["app"]),
        (["other"], ["app"]),
        ("app", None),
        (None, None),
    ],
)
def test_the_visibility_of_a_tool_is_kept(visibility: Any, expected: Any) -> None:
    meta = tool_meta("clock", Tool("t", meta={"ui": {"resourceUri": URI, "visibility": visibility}}))
    assert meta is not None
    assert meta["ui"].get("visibility") == expected


@pytest.mark.parametrize(
    "uri",
    ["https://evil.test/app", "http://x", "javascript:alert(1)", "file:///etc/passwd", "ui:", "ui://a b", 1, None],
)
def test_a_tool_with_another_uri_has_no_app(uri: Any) -> None:
    assert tool_meta("clock", Tool("t", meta={"ui": {"resourceUri": uri}})) is None
    assert tool_meta("clock", Tool("t", meta={"ui/resourceUri": uri})) is None


def test_a_tool_without_metadata_has_no_app() -> None:
    assert tool_meta("clock", Tool("t")) is None
    assert tool_meta("clock", Tool("t", meta={"ui": "no object"})) is None


def test_an_app_is_listed_under_its_server() -> None:
    resource = {
        "uri": URI,
        "name": "clock",
        "title": "Clock",
        "mimeType": MIME_TYPE,
        "_meta": {"ui": {"prefersBorder": True}, "other": 1},
        "unknown": 1,
    }
    assert exposed_resource("clock", resource) == {
        "uri": "ui://clock/get-time/mcp-app.html",
        "name": "clock",
        "title": "Clock",
        "mimeType": MIME_TYPE,
        "_meta": {"ui": {"prefersBorder": True}},
    }


@pytest.mark.parametrize("changed", [{"uri": "file:///a"}, {"uri": 1}, {"mimeType": "text/html"}, {"mimeType": 1}])
def test_other_resources_are_no_apps(changed: dict[str, Any]) -> None:
    assert exposed_resource("clock", {"uri": URI, "name": "clock", "mimeType": MIME_TYPE, **changed}) is None


@pytest.mark.parametrize(
    "member",
    [
        {"name": 5},
        {"name": None},
        {"title": ["x"]},
        {"size": -1.5},
        {"annotations": {"priority": "high", "audience": "all"}},
        {"icons": [{"src": 5}]},
        {"name": "\x1b[2J\u202egnp", "description": "\x1b[2Jx"},
    ],
)
def test_an_app_with_an_invalid_member_does_not_make_the_list_of_all_servers_invalid(member: dict[str, Any]) -> None:
    listed = exposed_resource("evil", {"uri": URI, "name": "clock", "mimeType": MIME_TYPE, **member})
    assert listed is not None
    read = types.ListResourcesResult.model_validate({"resources": [listed]})
    assert read.resources[0].name
    assert not HIDDEN.search(json.dumps(listed, ensure_ascii=False))


def test_a_server_with_our_name_gets_none_of_our_addresses() -> None:
    for uri in ("ui://shown", "ui://resources/bank/memo%3A%2F%2Fsecret"):
        exposed = exposed_uri("codemode-mcp", uri)
        assert exposed != SHOWN_URI
        assert original_uri(exposed) == ("codemode-mcp", uri)


# contents


def contents(**item: Any) -> dict[str, Any]:
    return {"contents": [{"uri": URI, "mimeType": MIME_TYPE, **item}]}


def exposed(html: str = HTML, **item: Any) -> dict[str, Any]:
    """Return the only content of an app."""
    content: dict[str, Any] = exposed_contents("clock", URI, contents(text=html, **item), {})["contents"][0]
    return content


def given(page: str) -> Any:
    """Return what a page of ours has of its app."""
    found = re.search(r'<script type="application/json" id="app">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.parametrize("item", [{"text": HTML}, {"blob": base64.b64encode(HTML.encode()).decode()}])
def test_the_document_of_an_app_is_in_our_page(item: dict[str, Any]) -> None:
    (page,) = exposed_contents("clock", URI, contents(**item), {"get-time": "clock__get-time"})["contents"]
    assert (page["uri"], page["mimeType"]) == ("ui://clock/get-time/mcp-app.html", MIME_TYPE)
    assert HTML not in page["text"]
    assert "_meta" not in page
    assert given(page["text"]) == {
        "html": HTML,
        "tools": {"get-time": "clock__get-time"},
        "apps": "ui://clock/",
        "resources": "ui://codemode-mcp/resources/clock/",
        "allow": "",
    }


@pytest.mark.parametrize(
    "html",
    ["</script><script>alert(1)</script>", "<!--<script>", "{app}", "\u2028\u2029", "\ud800", "\\u003c", "\r\n\0"],
)
def test_no_document_leaves_its_place_in_our_page(html: str) -> None:
    (page,) = exposed_contents("clock", URI, contents(text=html), {})["contents"]
    assert page["text"].count("<script") == shown_page()["contents"][0]["text"].count("<script")
    assert page["text"].count("</script") == shown_page()["contents"][0]["text"].count("</script")
    assert given(page["text"])["html"] == html.replace("\ud800", "\ufffd")


def test_a_document_that_grows_too_large_in_our_page_is_refused() -> None:
    with pytest.raises(AppError, match="larger than 12 MiB in our page"):
        exposed("<" * (MAX_HTML - 1))


def test_the_page_of_programs_has_no_app() -> None:
    (page,) = shown_page()["contents"]
    assert (page["uri"], page["mimeType"]) == (SHOWN_URI, MIME_TYPE)
    assert given(page["text"]) is None


def test_metadata_of_the_list_counts_if_the_document_has_none() -> None:
    listed = {"_meta": {"ui": {"csp": {"connectDomains": ["https://a.test"]}}}}
    own = {"ui": {"prefersBorder": True}}
    plain = exposed_contents("clock", URI, contents(text=HTML), {}, listed)["contents"][0]
    assert plain["_meta"] == listed["_meta"]
    assert exposed_contents("clock", URI, contents(text=HTML, _meta=own), {}, listed)["contents"][0]["_meta"] == own


def test_domains_and_permissions_are_passed_on() -> None:
    ui = {
        "csp": {
            "connectDomains": ["https://api.test", "wss://live.test:8443"],
            "resourceDomains": ["https://*.cdn.test", "*"],
        },
        "permissions": {"camera": {}, "geolocation": {}},
        "prefersBorder": False,
    }
    shown = exposed(_meta={"ui": ui})
    assert shown["_meta"] == {"ui": ui}


@pytest.mark.parametrize(
    "domain",
    [
        "https://a.test; script-src *",
        "https://a.test 'unsafe-eval'",
        "'unsafe-eval'",
        "* 'unsafe-eval'",
        "data:",
        "blob:",
        "https://a.test\n",
        "https://a.test,b",
        "https://a.test/path",
        "https://a@b.test",
        "",
        1,
        None,
    ],
)
def test_a_domain_that_could_change_the_policy_is_left_out(domain: Any) -> None:
    ui = {"csp": {"connectDomains": [domain, "https://ok.test"]}}
    shown = exposed(_meta={"ui": ui})
    assert shown["_meta"]["ui"]["csp"] == {"connectDomains": ["https://ok.test"]}


def test_unknown_members_and_the_origin_are_left_out() -> None:
    csp = {"scriptDomains": ["https://a.test"]}
    ui = {"domain": "bank.test", "csp": csp, "permissions": {"usb": {}}, "sandbox": "x"}
    shown = exposed(_meta={"ui": ui})
    assert shown["_meta"] == {"ui": {"csp": {}, "permissions": {}}}


def test_the_number_of_domains_is_bounded() -> None:
    ui = {"csp": {"connectDomains": [f"https://a{number}.test" for number in range(10_000)]}}
    shown = exposed(_meta={"ui": ui})
    assert len(shown["_meta"]["ui"]["csp"]["connectDomains"]) == 50


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({}, "exactly one document"),
        ({"contents": []}, "exactly one document"),
        ({"contents": [{}, {}]}, "exactly one document"),
        ({"contents": ["x"]}, "exactly one document"),
        (contents(text=HTML, mimeType="text/html"), "MIME type"),
        (contents(text=HTML, mimeType="text/html;profile=mcp-app;x"), "MIME type"),
        (contents(text=HTML, mimeType=None), "MIME type"),
        (contents(), "no document"),
        (contents(text=1), "no document"),
        (contents(blob="***"), "not UTF-8"),
        (contents(blob="/w=="), "not UTF-8"),
        (contents(text="x" * (MAX_HTML + 1)), "larger than 8 MiB"),
        (contents(text="\u00e4" * (MAX_HTML // 2 + 1)), "larger than 8 MiB"),
        (contents(blob="QUJD" * (MAX_HTML // 2)), "larger than 8 MiB"),
    ],
)
def test_anything_else_is_refused(result: dict[str, Any], why: str) -> None:
    with pytest.raises(AppError, match=why):
        exposed_contents("clock", URI, result, {})


# apps that programs show


def test_an_answer_has_all_that_the_page_of_programs_needs() -> None:
    item = {"type": "app", "target": "mcp:clock:get-time", "input": '{"zone":"UTC"}', "result": {"content": [], "x": 1}}
    meta = shown_meta(item, "ui://clock/a")
    assert meta["ui"] == {"resourceUri": "ui://clock/a"}
    assert meta[SHOWN_KEY] == {
        "resourceUri": "ui://clock/a",
        "tool": "mcp:clock:get-time",
        "arguments": {"zone": "UTC"},
        "result": {"content": [], "x": 1},
    }


def test_the_input_of_a_shown_app_can_be_sent_whatever_the_program_has_made_of_it() -> None:
    for given_input in (r'{"a":"\ud800 x"}', '{"a":NaN}', '{"a":1e999}', '{"a":' + "[" * 100_000):
        item = {"type": "app", "target": "t", "input": given_input, "result": {}}
        arguments = shown_meta(item, "ui://clock/a")[SHOWN_KEY]["arguments"]
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize("given_input", ["[1]", "null", "1", "{", ""])
def test_other_input_becomes_no_arguments(given_input: str) -> None:
    item = {"type": "app", "target": "t", "input": given_input, "result": {}}
    assert shown_meta(item, "ui://clock/a")[SHOWN_KEY]["arguments"] == {}
    assert shown_meta(item, "ui://clock/a")[SHOWN_KEY]["result"] == {"content": []}


def test_only_the_metadata_of_a_marked_tool_changes() -> None:
    tool = {"name": "exec", "description": "d", "_meta": {"anthropic/alwaysLoad": True}}
    made = marked(tool)
    assert {**made, "_meta": None} == {**tool, "_meta": None}
    assert made["_meta"]["anthropic/alwaysLoad"] is True
    assert made["_meta"]["ui"] == {"resourceUri": SHOWN_URI, "visibility": ["model"]}
    assert tool["_meta"] == {"anthropic/alwaysLoad": True}


@pytest.mark.parametrize("uri", ["file:///a/b?c#d", "memo://\u00e4", "ui://x"])
def test_apps_read_resources_of_their_server_by_other_uris(uri: str) -> None:
    assert original_uri(f"{RESOURCES}my%20clock/{quote(uri, safe='')}") == ("my clock", uri)
