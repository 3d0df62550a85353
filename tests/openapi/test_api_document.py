"""The document of an API: where it is read from, what its server sees, and how a missing one is reported."""

import json
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from loopback_api import (
    DOCUMENT,
    JSON,
    LoopbackApi,
    Received,
    call,
    connected,
    loopback_api,
    reply,
    spec_of,
    write_document,
)

from upstream_clients import UpstreamCallError, UpstreamPool
from upstream_clients.listing import ListingCache
from upstream_clients.openapi import connections, exchanges
from upstream_clients.openapi.served import report_of

pytestmark = pytest.mark.anyio

KEY = {"X-Key": "secret-key"}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return the backend, in module scope: the tests share a server."""
    return "asyncio"


@pytest.fixture
async def api() -> AsyncIterator[LoopbackApi]:
    async with loopback_api() as served:
        served.script("/docs/api.json", reply(body={**DOCUMENT, "servers": [{"url": "../v1"}]}))
        served.script("/v1/pets", reply(body=[1]))
        yield served


async def failure(spec: Any) -> str:
    async with UpstreamPool([spec]) as pool:
        await pool.wait_settled(None, timeout=30)
        return str(pool.source("api").view().error)


async def test_a_document_at_a_url_is_read_without_credentials_and_its_own_origin_gets_them_for_calls(
    api: LoopbackApi,
) -> None:
    async with connected(spec_of(f"{api.url}/docs/api.json", headers=KEY)) as pool:
        outcome = await call(pool, "fetch", "pets")
    assert outcome.result["structuredContent"] == [1]
    document, pets = api.received
    assert "x-key" not in document.headers
    assert pets.headers["x-key"] == "secret-key"


async def test_a_document_that_is_refused_without_credentials_is_requested_with_them(api: LoopbackApi) -> None:
    api.script("/docs/api.json", reply("401 Unauthorized"), reply(body=DOCUMENT))
    async with connected(spec_of(f"{api.url}/docs/api.json", headers=KEY)):
        pass
    assert [each.headers.get("x-key") for each in api.received] == [None, "secret-key"]
    # The API is elsewhere, so its credentials are not for the server of the document.
    api.script("/docs/api.json", reply("401 Unauthorized"))
    why = await failure(spec_of(f"{api.url}/docs/api.json", headers=KEY, url="https://api.example/v1"))
    assert "answered HTTP 401 Unauthorized" in why
    assert [each.headers.get("x-key") for each in api.received[2:]] == [None]


async def test_an_api_on_another_origin_than_its_document_gets_no_credentials(
    api: LoopbackApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def permitted(host: str, port: int, named_by: str | None) -> list[str]:
        assert (host, named_by) == ("api.example", None)
        return ["127.0.0.1"]

    monkeypatch.setattr(connections, "resolve_permitted", permitted)
    document = {**DOCUMENT, "servers": [{"url": f"http://api.example:{api.port}/v1"}]}
    api.script("/docs/api.json", reply(body=document))
    async with connected(spec_of(f"{api.url}/docs/api.json", headers=KEY)) as pool:
        for _ in range(2):
            await call(pool, "fetch", "pets")
    first, second = api.requests("/v1/pets")
    assert "x-key" not in first.headers
    assert first.headers["host"] == f"api.example:{api.port}"
    assert first.connection == second.connection


async def test_a_document_that_cannot_be_used_is_reported_with_its_address_and_the_reason(
    api: LoopbackApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{api.url}/docs/api.json"
    broken = tmp_path / "broken.json"
    broken.write_text("{", "utf-8")
    monkeypatch.setattr(exchanges, "MAX_MESSAGE_BYTES", 100_000)
    for answer, why in (
        (reply("500 Internal Server Error"), "answered HTTP 500"),
        (reply(f"500 {'x' * 5_000}"), "answered HTTP 500 xxx"),
        (reply("302 Found", b"", JSON, "Location: http://127.0.0.1:1/x"), "it has moved to 'http://127.0.0.1:1/x'"),
        (reply("302 Found", b"", JSON, "Location: /docs/api.json"), "redirects without end"),
        (reply(body=b" " * 100_001), "larger than 100000 bytes"),
        (reply(body=b"<html>"), f"the OpenAPI document {url!r} is not usable: the document is HTML"),
    ):
        api.script("/docs/api.json", answer)
        said = await failure(spec_of(url))
        assert why in said
        assert len(said) < 700
        assert "'api'" in said
    for path, why in (
        (tmp_path / "missing.json", "No such file"),
        (tmp_path, "directory"),
        (broken, f"the OpenAPI document {str(broken)!r} is not usable: the document is not valid JSON"),
        (write_document(tmp_path), '"baseUrl"'),
    ):
        assert why in await failure(spec_of(str(path)))


async def test_a_proxy_that_ends_the_connection_is_reported_with_the_reason(
    api: LoopbackApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def reset(request: Received) -> None:
        linger = struct.pack("ii", 1, 0)  # a reset, whose exception has no text
        request.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        request.writer.transport.abort()

    monkeypatch.setenv("HTTP_PROXY", api.url)
    api.script("http://api.example/docs/api.json", reset)
    said = await failure(spec_of("http://api.example/docs/api.json"))
    assert "its server cannot be reached (ReadError)" in said


async def test_a_document_that_never_ends_is_not_awaited_for_ever(api: LoopbackApi) -> None:
    async def dripping(request: Received) -> None:
        request.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
        await anyio.sleep_forever()

    api.script("/docs/api.json", dripping)
    spec = spec_of(f"{api.url}/docs/api.json", connect_timeout=0.2)
    with anyio.fail_after(20), pytest.raises(UpstreamCallError, match=r"has not answered completely within 0\.2 s"):
        await report_of(spec)


async def test_tools_known_from_an_earlier_process_are_listed_before_the_document_is_read(
    api: LoopbackApi, tmp_path: Path
) -> None:
    spec = spec_of(f"{api.url}/docs/api.json")
    cache = ListingCache(tmp_path)
    async with connected(spec, cache=cache) as pool:
        tools = pool.source("api").view().tools
    assert [json.loads(each.body or b"null") for each in api.received] == [None]
    async with UpstreamPool([spec], cache=cache) as pool:
        view = pool.source("api").view()
        assert (view.state, view.tools) == ("idle", tools)
        assert len(api.received) == 1
        outcome = await pool.source("api").call_tool("fetch", {"case": "pets"})
        assert outcome.result["structuredContent"] == [1]
    assert [each.target for each in api.received[1:]] == ["/docs/api.json", "/v1/pets"]
