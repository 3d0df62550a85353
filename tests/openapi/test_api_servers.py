"""Calls of operations with a server of their own: what each server gets."""

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

from upstream_clients import UpstreamCallError
from upstream_clients.openapi import connections

pytestmark = pytest.mark.anyio

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
