"""Servers over HTTP, each a real one on the loopback interface: streamable HTTP of both eras, and HTTP+SSE."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import httpx2
import pytest

from upstream_clients import ToolOutcome, UpstreamCallError, UpstreamSpec, UpstreamUnavailable, http, line_messages
from upstream_clients.error_mapping import HttpWatch

pytestmark = pytest.mark.anyio

KINDS = [
    pytest.param((), "modern", id="modern"),
    pytest.param(("--legacy",), "legacy", id="legacy"),
    pytest.param(("--sse",), "modern", id="sse"),
]


def text(outcome: ToolOutcome) -> str:
    block: dict[str, Any] = outcome.result["content"][0]
    return str(block["text"])


@pytest.mark.parametrize(("flags", "era"), KINDS)
async def test_a_server_is_connected_listed_and_called(
    flags: tuple[str, ...], era: str, server_of: Any, pool_of: Any
) -> None:
    server = await server_of(*flags)
    async with pool_of(server.spec("auto")) as pool:
        (view,) = pool.views()
        assert (view.state, view.era, view.error) == ("ready", era, None)
        assert "echo" in [tool.name for tool in view.tools]
        assert text(await pool.source("srv").call_tool("echo", {"text": "hi"}, timeout=10)) == "hi"


@pytest.mark.parametrize(("flags", "era"), KINDS)
async def test_cancelling_the_caller_cancels_the_call_upstream(
    flags: tuple[str, ...], era: str, server_of: Any, pool_of: Any
) -> None:
    server = await server_of(*flags)
    async with pool_of(server.spec()) as pool:
        source = pool.source("srv")
        with pytest.raises(UpstreamCallError, match="timed out"):
            await source.call_tool("hang", {"key": "alone"}, timeout=0.3)
        assert text(await source.call_tool("wait_cancelled", {"key": "alone"}, timeout=10)) == "done"


@pytest.mark.parametrize(("flags", "era"), KINDS)
async def test_half_a_character_in_the_arguments_does_no_harm(
    flags: tuple[str, ...], era: str, server_of: Any, pool_of: Any
) -> None:
    server = await server_of(*flags)
    async with pool_of(server.spec()) as pool:
        source = pool.source("srv")
        assert text(await source.call_tool("echo", {"text": "\ud83d!"}, timeout=10)) == "\ufffd!"
        assert text(await source.call_tool("echo", {"text": "after"}, timeout=10)) == "after"


@pytest.mark.parametrize("proxied", [False, True])
async def test_a_connection_notices_a_peer_that_is_gone_without_a_word_and_goes_through_the_proxy_if_there_is_one(
    proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.split()[1].decode())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    asked: list[str] = []
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
        address = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", address if proxied else "")
        url = "http://mcp.example/mcp" if proxied else f"{address}/mcp"
        spec = UpstreamSpec("srv", transport="http", url=url)
        async with http.McpHttpClient(spec, HttpWatch()) as client, client.stream("GET", url) as response:
            connection = response.extensions["network_stream"].get_extra_info("socket")
            assert proxied or connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            if sys.platform == "linux" and not proxied:
                times = [
                    connection.getsockopt(socket.IPPROTO_TCP, option)
                    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                ]
                assert times == [15, 5, 3]
    assert asked == [url if proxied else "/mcp"]


async def test_a_notification_without_a_reader_holds_no_later_message_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    monkeypatch.setattr(http, "_NOTIFICATION_TIMEOUT", 0.1)
    async with await asyncio.start_server(swallow, "127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        spec = UpstreamSpec("srv", transport="http", url=url)
        async with http.McpHttpClient(spec, HttpWatch()) as client:
            for told in ({"method": "notifications/cancelled"}, {"id": 1, "result": {}}):
                with anyio.fail_after(10):
                    assert (await client.post(url, json={"jsonrpc": "2.0", **told})).status_code == 502
            with anyio.move_on_after(0.5) as waiting:
                await client.post(url, json={"jsonrpc": "2.0", "id": 2, "method": "tools/call"})
            assert waiting.cancelled_caught, "an answer may take for ever"


@pytest.mark.parametrize(("flags", "era"), KINDS)
async def test_progress_of_a_call_reaches_its_caller(
    flags: tuple[str, ...], era: str, server_of: Any, pool_of: Any
) -> None:
    seen = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    server = await server_of(*flags)
    async with pool_of(server.spec()) as pool:
        await pool.source("srv").call_tool("progress", {}, on_progress=on_progress, timeout=10)
    assert seen == [(0.0, 3.0, "step 0"), (1.0, 3.0, "step 1"), (2.0, 3.0, "step 2")]


@pytest.mark.parametrize(("flags", "era"), KINDS)
async def test_a_change_of_the_tools_is_noticed(
    flags: tuple[str, ...], era: str, server_of: Any, pool_of: Any, changes: Any
) -> None:
    server = await server_of(*flags)
    async with pool_of(server.spec(), on_change=changes) as pool:
        source = pool.source("srv")
        await source.call_tool("grow", {"legacy": era == "legacy"}, timeout=10)
        await changes.until(source, lambda view: any(tool.name.startswith("grown") for tool in view.tools))


@pytest.mark.parametrize(("flags", "era"), KINDS)
async def test_a_result_of_many_megabytes_arrives(
    flags: tuple[str, ...], era: str, server_of: Any, pool_of: Any
) -> None:
    server = await server_of(*flags)
    async with pool_of(server.spec()) as pool:
        assert len(text(await pool.source("srv").call_tool("big", {"bytes": 5_000_000}, timeout=20))) == 5_000_000


async def test_an_annotated_argument_travels_as_a_header_too(server_of: Any, pool_of: Any) -> None:
    server = await server_of()
    async with pool_of(server.spec()) as pool:
        assert text(await pool.source("srv").call_tool("routed", {"tenant": "acme"}, timeout=10)) == "acme"


async def test_a_hundred_calls_are_in_flight_together(server_of: Any, pool_of: Any) -> None:
    server = await server_of()
    async with pool_of(server.spec()) as pool:
        source = pool.source("srv")
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for _ in range(120):
                    tasks.start_soon(source.call_tool, "wait_cancelled", {"key": "many"})
                with pytest.raises(UpstreamCallError, match="timed out"):
                    await source.call_tool("hang", {"key": "many"}, timeout=1)


async def test_headers_are_sent_and_a_missing_one_is_explained(http_server: Any, pool_of: Any) -> None:
    async with http_server("--token", "hunter22") as server:
        async with pool_of(server.spec(headers={"Authorization": "Bearer hunter22"})) as pool:
            assert pool.views()[0].state == "ready"
        async with pool_of(server.spec()) as pool:
            assert pool.views()[0].error == (
                f"server 'srv' did not start: http://127.0.0.1:{server.port}/mcp answered HTTP 401 (Unauthorized); "
                'check "headers" or "auth" of mcpServers.srv'
            )


async def test_a_wrong_path_is_explained(server_of: Any, pool_of: Any) -> None:
    server = await server_of()
    async with pool_of(server.spec(path="/wrong")) as pool:
        assert 'answered HTTP 404 (Not Found); check the path in "url" of mcpServers.srv' in str(pool.views()[0].error)


async def test_a_header_that_is_no_http_is_explained_without_its_value(server_of: Any, pool_of: Any) -> None:
    server = await server_of()
    async with pool_of(server.spec(headers={"X-Key": "one\ntwo secret"})) as pool:
        error = str(pool.views()[0].error)
        assert 'check "headers" of mcpServers.srv' in error
        assert "secret" not in error


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_server_that_is_not_there_is_down_with_its_address(transport: Any, pool_of: Any) -> None:
    spec = UpstreamSpec("srv", transport=transport, url="http://user:hunter22@127.0.0.1:9/mcp?key=hunter23")
    async with pool_of(spec) as pool:
        error = str(pool.views()[0].error)
        assert "http://127.0.0.1:9/mcp cannot be reached" in error
        assert "hunter" not in error


async def test_a_call_that_a_restarted_legacy_server_refuses_is_repeated_in_a_new_session(
    http_server: Any, pool_of: Any
) -> None:
    async with http_server("--legacy") as server, pool_of(server.spec()) as pool:
        source = pool.source("srv")
        await source.call_tool("echo", {"text": "before"}, timeout=10)
        await pool.wait_listed(None, 10)  # a request in flight would notice that the server is away
        await server.kill()
        await server.start()
        assert text(await source.call_tool("echo", {"text": "after"}, timeout=10)) == "after"


@pytest.mark.parametrize(("flags", "era"), KINDS)
async def test_a_server_that_goes_away_is_down_and_comes_back_and_one_that_dies_in_mid_call_rejects_it_as_sent(
    flags: tuple[str, ...], era: str, http_server: Any, pool_of: Any, changes: Any
) -> None:
    async with http_server(*flags) as server, pool_of(server.spec(), on_change=changes) as pool:
        source = pool.source("srv")
        await server.kill()
        with pytest.raises((UpstreamCallError, UpstreamUnavailable)):
            await source.call_tool("echo", {}, timeout=10)
        view = await changes.until(source, lambda view: view.state == "down")
        assert "cannot be reached" in str(view.error)
        assert view.tools
        await server.start()
        with suppress(UpstreamUnavailable):
            await source.call_tool("echo", {}, timeout=10)
        await changes.until(source, lambda view: view.state == "ready")
        assert text(await source.call_tool("echo", {"text": "back"}, timeout=10)) == "back"
        with pytest.raises(UpstreamCallError) as caught:
            await source.call_tool("die", {}, timeout=20)
        assert caught.value.dispatched


@pytest.mark.parametrize(("status", "dispatched"), [(403, False), (413, False), (429, False), (500, True), (503, True)])
async def test_an_http_error_in_the_place_of_an_answer_is_explained(
    status: int, dispatched: bool, server_of: Any, pool_of: Any
) -> None:
    server = await server_of()
    async with pool_of(server.spec()) as pool:
        source = pool.source("srv")
        with pytest.raises(UpstreamCallError, match=f"answered HTTP {status}") as caught:
            await source.call_tool(f"http_{status}", {}, timeout=10)
        assert caught.value.dispatched is dispatched
        assert text(await source.call_tool("echo", {"text": "hi"}, timeout=10)) == "hi"


@pytest.mark.parametrize("flags", [(), ("--json",)], ids=["event stream", "plain body"])
async def test_an_answer_beyond_the_limit_fails_its_call_alone(
    flags: tuple[str, ...], server_of: Any, pool_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_MESSAGE_BYTES", 100_000)
    monkeypatch.setattr(line_messages, "MAX_MESSAGE_BYTES", 100_000)
    server = await server_of(*flags)
    async with pool_of(server.spec()) as pool:
        source = pool.source("srv")
        with pytest.raises(UpstreamCallError):
            await source.call_tool("big", {"bytes": 200_000}, timeout=10)
        assert len(text(await source.call_tool("big", {"bytes": 50_000}, timeout=10))) == 50_000


async def test_an_event_stream_whose_posts_are_refused_is_down_immediately_and_says_why(
    http_server: Any, pool_of: Any
) -> None:
    async with http_server("--sse", "--no-post") as server:
        with anyio.fail_after(10):
            async with pool_of(server.spec("sse")) as pool:
                assert "answered HTTP 403 (Forbidden)" in str(pool.views()[0].error)


@asynccontextmanager
async def dropping_proxy(port: int) -> AsyncIterator[int]:
    """Yield a proxy that hangs up on every request in which the word `drop-me` occurs.

    One with `end-events` vanishes, and all streams of events end.
    """
    streams: list[asyncio.StreamWriter] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                if data.startswith(b"GET "):
                    streams.append(peer)
                if b"drop-me" in data:
                    peer.transport.abort()
                    break
                if b"end-events" in data:
                    for each in streams:
                        each.transport.abort()
                    continue
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, upstream_writer, writer), pump(upstream_reader, writer, upstream_writer))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(("flags", "era"), KINDS[:2])
async def test_a_broken_post_fails_its_request_and_not_the_connection(
    flags: tuple[str, ...], era: str, server_of: Any, pool_of: Any
) -> None:
    server = await server_of(*flags)
    async with (
        dropping_proxy(server.port) as port,
        pool_of(UpstreamSpec("srv", transport="http", url=f"http://127.0.0.1:{port}/mcp")) as pool,
    ):
        source = pool.source("srv")
        answers = []

        async def waiter() -> None:
            answers.append(text(await source.call_tool("wait_cancelled", {"key": "broken"}, timeout=10)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waiter)
            await source.call_tool("echo", {}, timeout=10)
            with pytest.raises(UpstreamCallError) as caught:
                await source.call_tool("echo", {"text": "drop-me"}, timeout=10)
            assert caught.value.dispatched
            with pytest.raises(UpstreamCallError, match="timed out"):
                await source.call_tool("hang", {"key": "broken"}, timeout=0.3)
        assert answers == ["done"]


async def test_a_call_that_waits_for_the_post_of_another_is_not_sent_when_the_stream_of_events_ends(
    server_of: Any, pool_of: Any
) -> None:
    server = await server_of("--sse")
    async with (
        dropping_proxy(server.port) as port,
        pool_of(UpstreamSpec("srv", transport="sse", url=f"http://127.0.0.1:{port}/mcp")) as pool,
    ):
        sent = {}

        async def call(word: str) -> None:
            with pytest.raises(UpstreamCallError) as caught:
                await pool.source("srv").call_tool("echo", {"text": word}, timeout=10)
            sent[word] = caught.value.dispatched

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, "end-events")
            tasks.start_soon(call, "after it")
        assert sent == {"end-events": True, "after it": False}


class FixedBearer:
    """A login that is always there."""

    stamp = None

    async def token(self) -> str:
        return "a-token"

    async def renewed(self, rejected: str) -> None: ...


async def test_a_login_is_sent_only_to_its_own_server(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[str, str | None] = {}

    async def answer(_: object, request: httpx2.Request) -> httpx2.Response:
        sent[str(request.url)] = request.headers.get("authorization")
        if request.url.path == "/moved":
            return httpx2.Response(307, headers={"location": "https://other.example/mcp"})
        return httpx2.Response(200, json={})

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", answer)
    spec = UpstreamSpec("srv", transport="http", url="https://mcp.example/mcp")
    urls = (
        *("https://mcp.example/mcp", "https://mcp.example/moved", "https://mcp.example:8443/mcp"),
        *("http://mcp.example/mcp", "https://sub.mcp.example/mcp", "https://evil.example/mcp"),
    )
    bearer: Any = FixedBearer()
    async with http.McpHttpClient(spec, HttpWatch(), bearer) as client:
        for url in urls:
            await client.get(url)
        await client.get("https://mcp.example/moved", follow_redirects=True)
    assert "https://other.example/mcp" in sent
    assert [url for url, token in sent.items() if token is not None] == list(urls[:2])
    assert {sent[url] for url in urls[:2]} == {"Bearer a-token"}
