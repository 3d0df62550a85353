"""Operations with a server of their own: where they are sent, and which are skipped."""

from typing import Any

import pytest
from openapi_documents import read, tools

from upstream_clients.openapi.api import Api

STATED = "https://api.example/v1"
OTHER = "https://upload.example"


def api_with(
    url: Any, base_url: str | None = None, *origins: str, source: str = "x.json", stated: str = STATED, **more: Any
) -> Api:
    """Return an API with an operation `plain`, and an operation `own` that has this server."""
    paths = {
        "/plain": {"get": {"operationId": "plain"}},
        "/own": {"servers": [{"url": url}], "get": {"operationId": "own", **more}},
    }
    document = {"openapi": "3.0.0", "servers": [{"url": stated}], "paths": paths}
    return read(document, base_url=base_url, source=source, other_origins=origins)


def request_of(api: Api) -> str:
    """Return the place of `own` as its definition has it, or the reason why it is skipped."""
    if api.skipped:
        return api.skipped[0].reason
    place: str = tools(api)["own"]["inputSchema"]["x-request"]
    assert place.endswith(f"{api.server_of('own')}/own")
    assert tools(api)["own"]["description"] == place
    return place


@pytest.mark.parametrize(
    ("url", "base_url", "place"),
    [
        ("https://api.example/v2/", None, "GET https://api.example/v2/own"),
        ("https://API.example", None, "GET https://api.example/own"),
        ("https://api.example:443/v2", None, "GET https://api.example:443/v2/own"),
        ("https://api.example/v2", STATED, "GET https://api.example/v2/own"),
        ("https://api.example/v2", f"{STATED}/", "GET https://api.example/v2/own"),
        # The server of all operations is the base address, also if the configuration names another one.
        (STATED, None, f"GET {STATED}/own"),
        (STATED, "https://test.example/v9", "GET /own"),
        ("https://test.example/v9", "https://test.example/v9", "GET /own"),
    ],
)
def test_an_operation_with_a_server_at_the_origin_of_the_api_is_sent_there(
    url: str, base_url: str | None, place: str
) -> None:
    assert request_of(api_with(url, base_url)) == place


ADVICE = 'it has a server of its own; if you trust it, add "{}" to "otherOrigins" of the entry'
NOT_STATED = (
    "it has a server of its own, and `baseUrl` is not the document's address; "
    'if you trust it, add "https://api.example" to "otherOrigins" of the entry'
)
UNUSABLE = "it has a server of its own without a usable address"


@pytest.mark.parametrize(
    ("url", "base_url", "reason"),
    [
        ("https://upload.example/v2", None, ADVICE.format(OTHER)),
        ("http://api.example/v2", None, ADVICE.format("http://api.example")),
        ("https://api.example:8443/v2", None, ADVICE.format("https://api.example:8443")),
        ("https://api.example.thief.example", None, ADVICE.format("https://api.example.thief.example")),
        ("http://127.0.0.1:80/v2", None, ADVICE.format("http://127.0.0.1:80")),
        # A `baseUrl` may stand for a test server, at the same origin too.
        ("https://api.example/v2", "https://test.example/v1", ADVICE.format("https://api.example")),
        ("https://api.example/v2", "https://api.example/sandbox/v1", NOT_STATED),
        ("https://api.example/v1/../admin", None, "a segment `.` or `..`"),
        ("https://api.example/%2e%2E", None, "a segment `.` or `..`"),
        ("/v2", None, UNUSABLE),
        ("https://api.example@thief.example", None, UNUSABLE),
        ("https://api.example\\.thief.example", None, UNUSABLE),
        ("https://api.example%2f.thief.example", None, UNUSABLE),
        ("https://\u24d0pi.example", None, UNUSABLE),
        ("https://{host}", None, UNUSABLE),
        (7, None, UNUSABLE),
    ],
)
def test_an_operation_with_any_other_server_is_skipped_with_the_setting_that_allows_it(
    url: Any, base_url: str | None, reason: str
) -> None:
    api = api_with(url, base_url)
    assert reason in request_of(api)
    assert list(tools(api)) == ["plain"]
    assert api.own_servers == ()


@pytest.mark.parametrize("base_url", [None, STATED, "https://test.example/v1"])
def test_a_server_at_an_origin_that_the_configuration_names_is_used(base_url: str | None) -> None:
    api = api_with(f"{OTHER}/v2", base_url, "https://a.example", OTHER)
    assert request_of(api) == "GET https://upload.example/v2/own"
    assert api.own_servers == ("https://upload.example/v2",)
    assert request_of(api_with("http://upload.example/v2", base_url, OTHER)) == ADVICE.format("http://upload.example")


def test_the_server_of_an_operation_wins_over_that_of_its_path() -> None:
    api = api_with(OTHER, servers=[{"url": "https://api.example/{v}", "variables": {"v": {"default": "v3"}}}])
    assert request_of(api) == "GET https://api.example/v3/own"


def test_the_server_of_one_operation_is_not_that_of_operations_without_servers() -> None:
    paths: dict[str, Any] = {
        "/plain": {"get": {"operationId": "plain"}},
        "/own": {"servers": [{"url": OTHER}], "get": {"operationId": "own"}},
    }
    document = {"openapi": "3.0.0", "paths": paths}
    at_url = read(document, base_url=None, source="https://api.example/openapi.json", other_origins=[OTHER])
    places = [tool["inputSchema"]["x-request"] for tool in at_url.tools]
    assert places == ["GET https://api.example/plain", f"GET {OTHER}/own"]
    assert request_of(read(document, base_url="https://api.example", source="x.json")) == ADVICE.format(OTHER)
    assert read(document, base_url=None, source="x.json").base_url is None
    # A server that all operations have is the server of the API.
    paths["/plain"]["servers"] = [{"url": OTHER}]
    assert read(document, base_url=None, source="x.json").base_url == OTHER


def test_a_relative_server_of_a_file_is_skipped_unless_the_whole_api_has_it() -> None:
    def relative(url: str, **more: Any) -> Api:
        return api_with(url, "https://api.example/v1", stated="/v1", **more)

    assert request_of(relative("/v1")) == "GET /own"
    assert request_of(relative("/v2")) == UNUSABLE
    at_url = api_with("../v2", stated="/v1", source="https://api.example/docs/openapi.json")
    assert request_of(at_url) == "GET https://api.example/v2/own"
