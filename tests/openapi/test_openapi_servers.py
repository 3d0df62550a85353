"""Operations with a server of their own: where they are sent, which are skipped, and what each server gets."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from loopback_api import (
    DOCUMENT,
    JSON,
    LoopbackApi,
    call,
    connected,
    loopback_api,
    operation,
    reply,
    spec_of,
    write_document,
)
from openapi_documents import read, tools

from upstream_clients import UpstreamCallError
from upstream_clients.openapi import connections
from upstream_clients.openapi.api import Api

pytestmark = pytest.mark.anyio

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


# Calls of operations with a server of their own: what each server gets.


KEY = {"X-Key": "secret-key"}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return the backend, in module scope: the tests share a server."""
    return "asyncio"


@pytest.fixture
async def api() -> AsyncIterator[LoopbackApi]:
    async with loopback_api() as served:
        yield served


def document(base: str, own: str) -> dict[str, Any]:
    """Return the members of a document with `fetch` at the base address, and `upload` at another server."""
    upload = {"servers": [{"url": own}], "get": operation("upload")}
    return {"servers": [{"url": base}], "paths": {**DOCUMENT["paths"], "/up/{case}": upload}}


async def test_an_operation_at_another_path_of_its_api_gets_the_credentials_in_place_of_the_base_path(
    api: LoopbackApi, tmp_path: Path
) -> None:
    base, own = f"{api.url}/v1", f"{api.url}/v2/"
    api.script("/v1/a", reply(body=1))
    api.script("/v2/up/a", reply(body=2), reply("401 Unauthorized"))
    path = write_document(tmp_path, **document(base, own))
    async with connected(spec_of(path, url=base, headers=KEY)) as pool:
        outcomes = [await call(pool, tool, "a") for tool in ("fetch", "upload")]
        assert [each.result["structuredContent"] for each in outcomes] == [1, 2]
        outcome = await pool.source("api").call_tool("upload", {"case": "a"})  # without the direct way
    assert "were sent and refused" in outcome.result["content"][-1]["text"]
    sent = [(each.target, each.headers["x-key"], each.connection) for each in api.received]
    assert sent == [("/v1/a", "secret-key", 1), ("/v2/up/a", "secret-key", 1), ("/v2/up/a", "secret-key", 1)]


async def test_another_origin_gets_calls_and_credentials_only_if_the_configuration_names_it(
    api: LoopbackApi, tmp_path: Path
) -> None:
    async with loopback_api() as other:
        other.script("/v2/up/a", reply(body=2))
        back = f"Location: {api.url}/stolen"
        other.script("/v2/up/away", reply("307 Temporary Redirect", b"", JSON, back))
        path = write_document(tmp_path, **document(f"{api.url}/v1", f"{other.url}/v2"))
        async with connected(spec_of(path, url=f"{api.url}/v1", headers=KEY)) as pool:
            assert "upload" not in [tool.name for tool in pool.source("api").view().tools]
        spec = spec_of(path, url=f"{api.url}/v1", headers=KEY, other_origins=(other.url,))
        async with connected(spec) as pool:
            assert (await call(pool, "upload", "a")).result["structuredContent"] == 2
            # The origin of the API is another origin than this one, so a redirect there has to be to a public address.
            assert (await call(pool, "upload", "away")).result["isError"] is True
        assert [each.headers["x-key"] for each in other.received] == ["secret-key"] * 2
    assert api.received == []


async def test_a_server_of_an_operation_that_only_the_document_names_is_treated_as_the_base_address(
    api: LoopbackApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, own = f"{api.url}/v1", f"{api.url}/v2"
    path = write_document(tmp_path, **document(base, own))
    async with connected(spec_of(path)) as pool:
        with pytest.raises(UpstreamCallError, match=f'write "baseUrl": "{base}"'):
            await call(pool, "upload", "a")
    assert api.received == []

    async def permitted(host: str, port: int, named_by: str | None) -> list[str]:
        assert (host, named_by) == ("api.example", None)
        return ["127.0.0.1"]

    monkeypatch.setattr(connections, "resolve_permitted", permitted)
    public = f"http://api.example:{api.port}"
    api.script("/docs/api.json", reply(body={**DOCUMENT, **document(f"{public}/v1", f"{public}/v2")}))
    api.script("/v2/up/a", reply("401 Unauthorized"))
    spec = spec_of(f"{api.url}/docs/api.json", headers=KEY)
    async with connected(spec) as pool:
        outcome = await call(pool, "upload", "a")
    assert f"only its document names {public}/v1." in outcome.result["content"][-1]["text"]
    (request,) = api.requests("/v2/up/a")
    assert "x-key" not in request.headers
