"""Calls of operations over HTTP: what an API sees, and how its answers and its silence end."""

import json
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from loopback_api import JSON, LoopbackApi, Received, call, connected, loopback_api, reply, spec_of, write_document

from upstream_clients import UpstreamCallError, UpstreamPool
from upstream_clients.direct import THREAD_BYTES
from upstream_clients.openapi import connections, exchanges
from upstream_clients.openapi.calls import MAX_VALUES

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return the backend, in module scope: the tests share a server."""
    return "asyncio"


@pytest.fixture(scope="module")
async def api() -> AsyncIterator[LoopbackApi]:
    async with loopback_api() as served:
        yield served


@pytest.fixture(scope="module")
async def pool(api: LoopbackApi, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[UpstreamPool]:
    """Yield a pool with the API, whose address the configuration names."""
    document = write_document(tmp_path_factory.mktemp("api"))
    async with connected(spec_of(document, url=f"{api.url}/v1/", headers={"X-Key": "secret-key"})) as opened:
        yield opened


def value_of(outcome: Any) -> Any:
    return outcome.result["structuredContent"]


async def test_an_operation_is_one_request_with_the_configured_headers_and_its_answer_is_the_body(
    api: LoopbackApi, pool: UpstreamPool
) -> None:
    api.script("/v1/pets", reply(body=[{"id": 1}]))
    assert value_of(await call(pool, "fetch", "pets")) == [{"id": 1}]
    assert value_of(await call(pool, "send", "pets", text="é")) == [{"id": 1}]
    first, second = api.requests("/v1/pets")
    assert (first.method, first.body, first.headers["x-key"]) == ("GET", b"", "secret-key")
    assert "content-length" not in first.headers
    assert second.method == "POST"
    assert second.headers["content-type"] == JSON
    assert second.body.decode("unicode_escape" if b"\\u" in second.body else "utf-8").endswith('é"}')
    assert first.connection == second.connection
    # The same call by a task, as after a question or a wait.
    outcome = await pool.source("api").call_tool("fetch", {"case": "pets"})
    assert value_of(outcome) == [{"id": 1}]


async def test_an_error_status_is_a_result_with_the_body(api: LoopbackApi, pool: UpstreamPool) -> None:
    api.script("/v1/missing", reply("404 Not Found", {"error": "no pet"}))
    result = (await call(pool, "fetch", "missing")).result
    assert result["isError"] is True
    assert "404" in result["content"][0]["text"]
    assert "no pet" in result["content"][1]["text"]


async def test_a_large_answer_is_the_same_as_a_small_one_and_keeps_its_text(
    api: LoopbackApi, pool: UpstreamPool
) -> None:
    rows = [{"id": number, "name": "\U0001f415é" * 10} for number in range(THREAD_BYTES // 50)]
    for name, body in (
        ("escaped", json.dumps(rows).encode()),
        ("plain", b"\xef\xbb\xbf" + json.dumps(rows, ensure_ascii=False).encode() + b"\r\n"),
    ):
        assert len(body) > THREAD_BYTES
        api.script(f"/v1/{name}", reply("200 OK", body, JSON, "ETag: x"))
        outcome = await call(pool, "fetch", name)
        assert value_of(outcome) == rows
        assert outcome.text is not None
        assert json.loads(outcome.text) == outcome.result
        assert outcome.result["_meta"]["http"]["headers"] == {"etag": "x"}
    for name, body in (("no-json", b"{" + b"x" * THREAD_BYTES), ("two", b"1" + b" " * THREAD_BYTES + b"2")):
        api.script(f"/v1/{name}", reply("200 OK", body))
        result = (await call(pool, "fetch", name)).result
        assert "structuredContent" not in result
        assert result["content"] == [{"type": "text", "text": body.decode()}]


async def test_compressed_answers_are_read_and_a_bomb_is_refused(
    api: LoopbackApi, pool: UpstreamPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    packer = zlib.compressobj(wbits=31)
    body = packer.compress(b'{"n": 1}') + packer.flush()
    api.script("/v1/gzip", reply("200 OK", body, JSON, "Content-Encoding: gzip"))
    assert value_of(await call(pool, "fetch", "gzip")) == {"n": 1}
    monkeypatch.setattr(exchanges, "MAX_MESSAGE_BYTES", 100_000)
    packer = zlib.compressobj(wbits=31)
    bomb = packer.compress(b" " * 10_000_000) + packer.flush()
    api.script("/v1/bomb", reply("200 OK", bomb, JSON, "Content-Encoding: gzip"))
    with pytest.raises(UpstreamCallError, match="larger than 100000 bytes") as refused:
        await call(pool, "fetch", "bomb")
    assert refused.value.dispatched
    monkeypatch.undo()
    packer = zlib.compressobj(wbits=31)
    lists = packer.compress(b"[" + b"[]," * (MAX_VALUES + 1) + b"1]") + packer.flush()
    api.script("/v1/lists", reply("200 OK", lists, JSON, "Content-Encoding: gzip"))
    with pytest.raises(UpstreamCallError, match="more than 2000000 values"):
        await call(pool, "fetch", "lists")
    api.script("/v1/brotli", reply("200 OK", b"??", JSON, "Content-Encoding: br"))
    with pytest.raises(UpstreamCallError, match="content encoding 'br'"):
        await call(pool, "fetch", "brotli")


async def endless(request: Received) -> None:
    request.writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        request.writer.write(b"x" * 65536)
        await request.writer.drain()


async def broken_off(request: Received) -> None:
    request.writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"n":')
    await request.writer.drain()


async def closed(request: Received) -> None:
    request.writer.close()


HOSTILE: dict[str, Any] = {
    "endless": (endless, "larger than 1000000 bytes"),
    "broken": (broken_off, "without sending the complete body"),
    "closed": (closed, "disconnected"),
    "garbage": (b"\x00\x01 not HTTP at all" + b"x" * 10_000 + b"\r\n\r\n", "illegal status line|illegal request line"),
    "headers": (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 400_000 + b"\r\n\r\n", "too long|exceeded|too much|Receive buffer"),
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "Content-Length"),
    "huge": (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n", "larger than 1000000 bytes"),
}


@pytest.mark.parametrize("is_kept", [False, True], ids=["new connection", "kept connection"])
@pytest.mark.parametrize("case", HOSTILE)
async def test_an_answer_that_cannot_be_read_rejects_its_call_only(
    api: LoopbackApi, pool: UpstreamPool, monkeypatch: pytest.MonkeyPatch, case: str, is_kept: bool
) -> None:
    monkeypatch.setattr(exchanges, "MAX_MESSAGE_BYTES", 1_000_000)
    answer, why = HOSTILE[case]
    api.script(f"/v1/{case}", answer)
    api.script("/v1/fine", reply(body={"n": 1}))
    before = len(api.requests(f"/v1/{case}"))
    if is_kept:
        await call(pool, "fetch", "fine")
    with pytest.raises(UpstreamCallError, match=why) as refused:
        await call(pool, "send", case)
    assert refused.value.dispatched
    assert f"send got no answer from {api.url}/v1" in refused.value.message
    assert len(refused.value.message) < 500
    assert len(api.requests(f"/v1/{case}")) == before + 1
    assert value_of(await call(pool, "fetch", "fine")) == {"n": 1}


async def given_up(api: LoopbackApi, pool: UpstreamPool, case: str) -> None:
    """Give a call up that gets no answer, and wait until its connection is closed."""
    arrived = anyio.Event()

    async def silent(_: Received) -> None:
        arrived.set()
        await anyio.sleep_forever()

    api.script(f"/v1/{case}", silent)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, pool, "send", case)
        await arrived.wait()
        tasks.cancel_scope.cancel()
    with anyio.fail_after(10):
        await api.requests(f"/v1/{case}")[0].left.wait()


async def test_on_a_kept_connection_too_a_call_is_repeated_redirected_given_up_and_decompressed(
    api: LoopbackApi, pool: UpstreamPool
) -> None:
    packer = zlib.compressobj(wbits=31)
    body = packer.compress(b'{"n": 3}') + packer.flush()
    api.script("/v1/warm", reply(body={"n": 1}))
    api.script("/v1/busy-once", reply("503 Busy", b"", JSON, "Retry-After: 0"), reply(body={"n": 2}))
    api.script("/v1/from", reply("302 Found", b"", JSON, "Location: /v1/busy-once"))
    api.script("/v1/packed", reply("200 OK", body, JSON, "Content-Encoding: gzip"))
    for case, expected in (("busy-once", 2), ("from", 2), ("packed", 3)):
        await call(pool, "fetch", "warm")
        assert value_of(await call(pool, "fetch", case)) == {"n": expected}
    await call(pool, "fetch", "warm")
    await given_up(api, pool, "quiet")
    warm, quiet = api.requests("/v1/warm")[-1], api.requests("/v1/quiet")[0]
    assert warm.connection == quiet.connection


async def test_a_call_that_is_given_up_or_times_out_closes_its_request(api: LoopbackApi, pool: UpstreamPool) -> None:
    await given_up(api, pool, "silent")
    with pytest.raises(UpstreamCallError, match=r"timed out after 0\.05 s"):
        await call(pool, "send", "silent", timeout=0.05)
    with anyio.fail_after(10):
        for request in api.requests("/v1/silent"):
            await request.left.wait()
    assert len(api.requests("/v1/silent")) == 2


async def test_a_call_that_is_prevented_when_it_would_be_sent_makes_no_request(
    api: LoopbackApi, pool: UpstreamPool
) -> None:
    def prevent() -> None:
        raise ValueError("prevented")

    api.script("/v1/warm", reply(body={}))
    for path in ("prevented", "warm"):
        await call(pool, "fetch", "warm")
        with pytest.raises(ValueError, match="prevented"):
            await pool.source("api").call_tool("send", {"case": path}, on_sent=prevent)
        await call(pool, "fetch", "warm")
    assert [each.method for each in api.requests("/v1/warm")[-4:]] == ["GET"] * 4
    assert api.requests("/v1/prevented") == []


async def test_parallel_calls_have_connections_of_their_own_and_no_cookies(
    api: LoopbackApi, pool: UpstreamPool
) -> None:
    together, count = anyio.Event(), 0

    async def all_first(request: Received) -> None:
        nonlocal count
        count += 1
        if count == 8:
            together.set()
        await together.wait()
        request.writer.write(reply("200 OK", {"case": request.target}, JSON, "Set-Cookie: a=b"))

    api.script("/v1/together", all_first)
    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(call, pool, "fetch", "together")
    assert len({each.connection for each in api.requests("/v1/together")}) == 8
    api.script("/v1/after", reply(body={}))
    await call(pool, "fetch", "after")
    assert "cookie" not in api.requests("/v1/after")[0].headers


# redirects


async def test_redirects_within_the_origin_keep_what_http_says(api: LoopbackApi, pool: UpstreamPool) -> None:
    api.script("/v1/kept", reply("307 Temporary Redirect", b"", JSON, "Location: /v2/kept"))
    api.script("/v1/seen", reply("303 See Other", b"", JSON, f"Location: {api.url}/v2/seen?a=1"))
    api.script("/v2/kept", reply(body={"n": 1}))
    api.script("/v2/seen", reply(body={"n": 2}))
    assert value_of(await call(pool, "send", "kept", text="x")) == {"n": 1}
    assert value_of(await call(pool, "send", "seen", text="x")) == {"n": 2}
    (kept,), (seen,) = api.requests("/v2/kept"), api.requests("/v2/seen")
    assert (kept.method, kept.headers["x-key"]) == ("POST", "secret-key")
    assert b'"x"' in kept.body
    assert (seen.method, seen.target, seen.body) == ("GET", "/v2/seen?a=1", b"")
    assert "content-type" not in seen.headers


async def test_a_redirect_loop_ends_as_an_error_with_the_redirect(api: LoopbackApi, pool: UpstreamPool) -> None:
    api.script("/v1/loop", reply("302 Found", b"", JSON, "Location: /v1/loop"))
    result = (await call(pool, "fetch", "loop")).result
    assert result["isError"] is True
    assert "302" in result["content"][0]["text"]
    assert len(api.requests("/v1/loop")) == 6


async def test_a_redirect_to_an_address_that_is_not_public_is_not_followed(
    api: LoopbackApi, pool: UpstreamPool
) -> None:
    async with loopback_api() as other:
        for number, host in enumerate(
            ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0x7f000001", "169.254.169.254")
        ):
            location = f"http://{host}:{other.port}/stolen"
            api.script(f"/v1/away{number}", reply("302 Found", b"", JSON, f"Location: {location}"))
            result = (await call(pool, "fetch", f"away{number}")).result
            assert result["isError"] is True
        assert other.received == []


async def test_a_redirect_to_a_public_address_gets_neither_credentials_nor_the_headers_of_the_call(
    api: LoopbackApi, pool: UpstreamPool, public_names: None
) -> None:
    async with loopback_api() as other:
        away = f"http://files.example:{other.port}"
        other.script("/file", reply("302 Found", b"", JSON, f"Location: {away}/moved"))
        other.script("/moved", reply(body={"n": 3}))
        api.script("/v1/file", reply("302 Found", b"", JSON, f"Location: {away}/file"))
        assert value_of(await call(pool, "fetch", "file")) == {"n": 3}
        assert {name for each in other.received for name in each.headers} <= {
            *("host", "accept", "accept-encoding", "user-agent", "connection")
        }
        assert len({each.connection for each in other.received}) == 2
        # A body never leaves the origin, and a call that comes back has no credentials either.
        api.script("/v1/upload", reply("307 Temporary Redirect", b"", JSON, f"Location: {away}/moved"))
        result = (await call(pool, "send", "upload", text="x")).result
        assert (result["isError"], len(other.received)) == (True, 2)
        other.script("/back", reply("302 Found", b"", JSON, f"Location: http://api.example:{api.port}/v1/again"))
        api.script("/v1/leaves", reply("302 Found", b"", JSON, f"Location: {away}/back"))
        api.script("/v1/again", reply(body={"n": 4}))
        assert value_of(await call(pool, "fetch", "leaves")) == {"n": 4}
        assert "x-key" not in api.requests("/v1/again")[0].headers


@pytest.fixture
def public_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let names below `example` lead to this machine, as if it were public."""
    checked = connections.resolve_permitted

    async def permitted(host: str, port: int, named_by: str | None) -> list[str]:
        return ["127.0.0.1"] if host.endswith(".example") else await checked(host, port, named_by)

    monkeypatch.setattr(connections, "resolve_permitted", permitted)


# addresses


async def test_an_address_that_only_the_document_names_must_be_public(api: LoopbackApi, tmp_path: Path) -> None:
    api.script("/doc/pets", reply(body={}))
    document = write_document(tmp_path, servers=[{"url": f"{api.url}/doc"}])
    async with connected(spec_of(document)) as pool:
        with pytest.raises(UpstreamCallError, match='"baseUrl"') as refused:
            await call(pool, "fetch", "pets")
    assert not refused.value.dispatched
    assert api.requests("/doc/pets") == []
