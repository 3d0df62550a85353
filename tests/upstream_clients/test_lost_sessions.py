"""Sessions over HTTP: a refusal of something optional ends none, and a lost one is renewed, whatever words tell it.

The bare server of `test_direct_calls_over_http` shows each request as it came.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from direct_pool import DirectSource
from started_pools import settled_pool
from test_direct_calls_over_http import EVENTS, JSON, Exchange, WithSession, hang_up, say_done, served, text

from upstream_clients import UpstreamCallError, UpstreamSpec
from upstream_clients.error_mapping import is_session_lost
from upstream_clients.jsonrpc import JsonRpcError

Answer = Callable[[Exchange], Awaitable[None]]

pytestmark = pytest.mark.anyio

WAYS = pytest.mark.parametrize("directly", [True, False], ids=["direct", "by a task"])
NOT_FOUND = {"code": -32001, "message": "Session not found"}


class Forgetful(WithSession):
    """A server that gives each `initialize` a new session, and loses sessions.

    Attributes:
        lose: answers a request of a lost session.
        lost: the sessions that it has lost.
        loses_listings: requests of lost sessions other than calls are answered by `lose`, too.
        listings: sessions of the requests for the list of tools.
    """

    def __init__(self, lose: Answer, work: Answer = say_done) -> None:
        super().__init__("legacy", work)
        self.lose = lose
        self.sessions = 0
        self.lost: set[str] = set()
        self.loses_always = False
        self.listings: list[str] = []
        self.greet: Answer | None = None

    async def _answer(self, exchange: Exchange, reader: asyncio.StreamReader) -> None:
        method = exchange.message.get("method") if isinstance(exchange.message, dict) else None
        session = exchange.headers.get("mcp-session-id", "")
        if method == "initialize":
            if self.sessions and self.greet is not None:
                await self.greet(exchange)
                return
            self.sessions += 1
            body = {"jsonrpc": "2.0", "id": exchange.request_id, **self._handshake(method)}
            await exchange.answer(json.dumps(body), JSON, "200 OK", f"Mcp-Session-Id: session-{self.sessions}")
        elif exchange.method == "POST" and (session in self.lost or (self.loses_always and method == "tools/call")):
            (self.calls if method == "tools/call" else self.others).append(exchange)
            self._tell()
            await self.lose(exchange)
        else:
            if method == "tools/list":
                self.listings.append(session)
            await super()._answer(exchange, reader)


async def call(source: DirectSource, *, directly: bool, timeout: float = 10) -> str:
    make = source.call_tool if directly else source.call_by_dispatcher
    return text(await make("work", {}, timeout=timeout))


# What is optional.


def refuse(status: str, body: str = "no", kind: str = "text/plain") -> Answer:
    return lambda exchange: exchange.answer(body, kind, status)


@pytest.mark.parametrize(
    "get",
    [
        refuse("404 Not Found"),
        refuse("404 Not Found", json.dumps({"jsonrpc": "2.0", "id": None, "error": NOT_FOUND}), JSON),
        refuse("404 Not Found", "<pre>Cannot GET /mcp</pre>", "text/html"),
        refuse("410 Gone"),
        refuse("400 Bad Request", "no valid session"),
        refuse("403 Forbidden"),
        refuse("405 Method Not Allowed"),
        refuse("406 Not Acceptable"),
        refuse("500 Oops", "Session not found"),
        refuse("200 OK", "<html>", "text/html"),
        hang_up,
    ],
    ids=["404", "404 json", "404 html", "410", "400", "403", "405", "406", "500", "html", "hung up"],
)
async def test_a_server_without_a_stream_of_its_own_messages_is_used_without_one(get: Answer) -> None:
    server = Forgetful(say_done)
    server.get = get
    async with served(server) as source:
        await server.until(lambda: any(each.method == "GET" for each in server.others))
        assert await call(source, directly=True) == "done"
        assert await call(source, directly=False) == "done"
    assert server.sessions == 1


def short_stream(rest: Answer) -> Answer:
    """Return an answer to GETs: a stream that ends soon, and after that `rest`."""
    begun = False

    async def get(exchange: Exchange) -> None:
        nonlocal begun
        if begun:
            await rest(exchange)
            return
        begun = True
        await exchange.begin_stream()
        await exchange.send("retry: 10\n\n: hello\n\n")
        await exchange.end_stream()

    return get


async def test_a_stream_that_is_refused_after_it_has_worked_ends_no_session_that_still_answers() -> None:
    server = Forgetful(say_done)
    server.get = short_stream(refuse("404 Not Found"))
    async with served(server) as source:
        await server.until(lambda: any(is_ping(each) for each in server.others))
        assert await call(source, directly=True) == "done"
    assert server.sessions == 1


async def test_a_lost_session_is_noticed_without_a_call_when_its_stream_is_refused() -> None:
    async def lose_it(exchange: Exchange) -> None:
        server.lost.add("session-1")
        await refuse("404 Not Found")(exchange)

    server = Forgetful(refuse("404 Not Found"))
    server.get = short_stream(lose_it)
    async with served(server) as source:
        await server.until(lambda: "session-2" in server.listings)
        assert await call(source, directly=True) == "done"
    assert (server.sessions, len(server.calls)) == (2, 1)


def is_ping(exchange: Exchange) -> bool:
    return isinstance(exchange.message, dict) and exchange.message.get("method") == "ping"


# Lost sessions.


def error_body(error: object, **more: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": None, **more, "error": error})


def plain(error: object, status: str = "200 OK") -> Answer:
    return lambda exchange: exchange.answer(error_body(error, id=exchange.message.get("id")), JSON, status)


def event(body: str) -> Answer:
    async def answer(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.event(body)
        await exchange.end_stream()

    return answer


LOST: dict[str, Answer] = {
    "404": refuse("404 Not Found"),
    "404 html": refuse("404 Not Found", "<html>", "text/html"),
    "404 json": plain(NOT_FOUND, "404 Not Found"),
    "404 another code": plain({"code": -32603, "message": "Session not found"}, "404 Not Found"),
    "410": refuse("410 Gone"),
    "410 json": plain({"code": -32000, "message": "gone"}, "410 Gone"),
    "400": plain({"code": -32000, "message": "Bad Request: No valid session ID provided"}, "400 Bad Request"),
    "400 text": refuse("400 Bad Request", "Invalid or missing session ID"),
    "400 not initialized": plain({"code": -32000, "message": "Bad Request: Server not initialized"}, "400 Bad Request"),
    "401 text": refuse("401 Unauthorized", "Unauthorized: Session not found"),
    "409": refuse("409 Conflict", json.dumps({"detail": "Unknown session."}), JSON),
    "422": refuse("422 No", json.dumps({"error": "session has expired, please reinitialize"}), JSON),
    "200": plain(NOT_FOUND),
    "200 null id": lambda each: each.answer(error_body(NOT_FOUND)),
    "200 with the id of the session": plain({"code": -32001, "message": "Session 3f2a-9c not found"}),
    "200 server error": plain({"code": -32000, "message": "Invalid session ID"}),
    "200 invalid request": plain({"code": -32600, "message": "Session terminated"}),
    "200 text code": plain({"code": "-32001", "message": "Session expired"}),
    "200 text": lambda each: each.answer(json.dumps({"error": "Session not found"})),
    "200 list": lambda each: each.answer("[" + error_body(NOT_FOUND) + "]"),
    "200 byte order mark": lambda each: each.answer("\ufeff" + error_body(NOT_FOUND)),
    "event": event(error_body(NOT_FOUND)),
    "event text": event(json.dumps({"error": "Session not found"})),
    "event unknown": event(error_body({"code": -32001, "message": "unknown session"}, id=0)),
}


@pytest.mark.parametrize("how", LOST)
async def test_a_lost_session_is_renewed_once_and_the_call_repeated_in_it(how: str) -> None:
    server = Forgetful(LOST[how])
    async with served(server) as source:
        for number in range(1, 5):
            assert await call(source, directly=number % 2 == 0) == "done"
            server.lost.add(f"session-{number}")
    assert (server.sessions, len(server.calls)) == (4, 4 + 3)


@WAYS
@pytest.mark.parametrize(
    "lose",
    [
        refuse("500 Oops", json.dumps({"error": "session not found"}), JSON),
        plain({"code": -32603, "message": "Session not found"}, "503 Busy"),
        refuse("502 Bad Gateway", "Session not found."),
    ],
    ids=["text", "json", "plain"],
)
async def test_a_call_during_which_the_session_is_lost_is_not_repeated_if_the_server_may_have_acted(
    lose: Answer, directly: bool
) -> None:
    server = Forgetful(lose)
    async with served(server) as source:
        server.lost.add("session-1")
        with pytest.raises(UpstreamCallError, match="lost this session while it handled tools/call") as raised:
            await call(source, directly=directly)
        assert raised.value.dispatched
        assert await call(source, directly=directly) == "done"
    assert (server.sessions, len(server.calls)) == (2, 2)


@WAYS
async def test_a_call_that_the_server_had_begun_is_not_repeated(directly: bool) -> None:
    async def lose(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.event(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1}}))
        await exchange.event(error_body(NOT_FOUND))
        await exchange.end_stream()

    server = Forgetful(lose)
    async with served(server) as source:
        server.lost.add("session-1")
        with pytest.raises(UpstreamCallError, match="it is unknown whether the server acted") as raised:
            await call(source, directly=directly)
        assert raised.value.dispatched
        assert await call(source, directly=directly) == "done"
    assert (server.sessions, len(server.calls)) == (2, 2)


async def test_calls_that_are_in_flight_when_the_session_is_lost_are_repeated_in_one_new_session() -> None:
    gathered = anyio.Event()

    async def lose(exchange: Exchange) -> None:
        if len(server.calls) == 10:
            gathered.set()
        await gathered.wait()
        await refuse("404 Not Found")(exchange)

    server = Forgetful(lose)
    async with served(server) as source, anyio.create_task_group() as tasks:
        server.lost.add("session-1")
        for number in range(10):

            async def one(number: int) -> None:
                assert await call(source, directly=number % 2 == 0, timeout=20) == "done"

            tasks.start_soon(one, number)
    assert (server.sessions, len(server.calls)) == (2, 20)


@WAYS
@pytest.mark.parametrize("how", ["404 json", "200", "event"])
async def test_a_server_that_knows_no_session_gets_a_call_twice_and_the_error_says_why(
    how: str, directly: bool
) -> None:
    server = Forgetful(LOST[how])
    server.loses_always = True
    async with served(server) as source:
        with pytest.raises(UpstreamCallError, match="has refused tool 'work' twice") as raised:
            await call(source, directly=directly)
        assert "Session not found" in raised.value.message
        assert not raised.value.dispatched
    assert (len(server.calls), server.sessions) == (2, 2)


async def test_a_server_that_refuses_what_follows_initialize_is_down_for_that_reason() -> None:
    server = Forgetful(plain(NOT_FOUND, "404 Not Found"))
    server.lost.update(f"session-{number}" for number in range(1, 100))
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listener:
        server.port = listener.sockets[0].getsockname()[1]
        async with settled_pool(server.spec()) as pool:
            (view,) = pool.views()
    assert view.state == "down"
    assert "does not know the session that it has just begun (HTTP 404: Session not found)" in str(view.error)


@WAYS
async def test_a_call_that_cannot_be_repeated_was_not_sent(directly: bool) -> None:
    server = Forgetful(refuse("404 Not Found"))
    server.greet = refuse("401 Unauthorized", "", 'text/plain\r\nWWW-Authenticate: Bearer realm="x"')
    async with served(server) as source:
        server.lost.add("session-1")
        with pytest.raises(UpstreamCallError, match="needs a login") as raised:
            await call(source, directly=directly)
        assert not raised.value.dispatched


@WAYS
async def test_the_time_for_the_repetition_counts_for_the_call(directly: bool) -> None:
    async def never(_: Exchange) -> None:
        pass

    server = Forgetful(refuse("404 Not Found"))
    server.greet = never
    async with served(server) as source:
        server.lost.add("session-1")
        with pytest.raises(UpstreamCallError, match="still connecting") as raised:
            await call(source, directly=directly, timeout=0.5)
        assert not raised.value.dispatched


OTHER_ERRORS: dict[str, Answer] = {
    "of a tool": plain({"code": -32602, "message": "Session not found"}),
    "inside the server": plain({"code": -32603, "message": "Session not found"}),
    "of a browser": plain({"code": -32001, "message": "Browser session not found"}),
    "with a name": plain({"code": -32000, "message": "Session not found: main"}),
    "a timeout": plain({"code": -32001, "message": "Request timed out"}),
    "a method": plain({"code": -32601, "message": "Method not found"}, "404 Not Found"),
    "a failure": refuse("500 Oops", json.dumps({"error": "the browser session has expired"}), JSON),
    "a bad request": refuse("400 Bad Request", "no such tool"),
}


@pytest.mark.parametrize("how", OTHER_ERRORS)
async def test_an_error_about_something_else_ends_no_session(how: str) -> None:
    server = Forgetful(say_done, OTHER_ERRORS[how])
    async with served(server) as source:
        for directly in (True, False):
            with pytest.raises(UpstreamCallError):
                await call(source, directly=directly)
    assert (server.sessions, len(server.calls)) == (1, 2)


@WAYS
async def test_without_a_session_a_404_is_about_the_address(directly: bool) -> None:
    server = Forgetful(say_done, refuse("404 Not Found"))
    server.sessions = -1
    server._handshake = lambda method: {**WithSession._handshake(server, method)}  # type: ignore[method-assign]

    async def answer(exchange: Exchange, reader: asyncio.StreamReader) -> None:
        await super(WithSession, server)._answer(exchange, reader)

    server._answer = answer  # type: ignore[method-assign]
    async with served(server) as source:
        with pytest.raises(UpstreamCallError, match='check the path in "url"') as raised:
            await call(source, directly=directly)
        assert not raised.value.dispatched
    assert len(server.calls) == 1


async def test_a_server_that_does_not_start_shows_the_reason_of_the_last_exchange() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()
                return
            body = await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
            status = b"400 Bad Request" if b"server/discover" in body else b"503 Busy"
            writer.write(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % status)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/mcp"
        async with settled_pool(UpstreamSpec("srv", transport="http", url=url)) as pool:
            assert "answered HTTP 503" in str(pool.views()[0].error)


# Other transports.


async def test_a_bridge_on_stdio_that_has_lost_its_session_is_started_again(raw_server: Any, tmp_path: Any) -> None:
    marker = tmp_path / "lost"
    async with settled_pool(raw_server(f"lost={marker}")) as pool:
        outcome = await pool.source("srv").call_tool("echo", {"text": "hi"}, timeout=10)
        assert text(outcome) == "hi"
    assert marker.read_text() == "lost\n"


@asynccontextmanager
async def older_server(refusals: list[bytes]) -> AsyncIterator[tuple[UpstreamSpec, list[str]]]:
    """Yield a server of HTTP+SSE that answers calls with these refusals, while there are any, and its calls."""
    calls: list[str] = []
    streams: dict[str, asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                method, path, _ = head.split(" ", 2)
                if method == "GET":
                    session = f"/messages?session={len(streams)}"
                    streams[session] = writer
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n\r\n" % EVENTS.encode())
                    writer.write(f"event: endpoint\ndata: {session}\n\n".encode())
                    continue
                length = int(head.lower().split("content-length: ")[1].split("\r\n")[0])
                message = json.loads(await reader.readexactly(length))
                if message.get("method") == "tools/call":
                    calls.append(path)
                    if refusals:
                        writer.write(refusals.pop(0))
                        continue
                writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
                if "id" in message:
                    answer = {"jsonrpc": "2.0", "id": message["id"], **answer_of(message["method"])}
                    streams[path].write(f"data: {json.dumps(answer)}\n\n".encode())
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/sse"
        yield UpstreamSpec("srv", transport="sse", url=url), calls


def answer_of(method: str) -> dict[str, Any]:
    return {
        "initialize": WithSession("legacy")._handshake("initialize"),
        "tools/list": WithSession("legacy")._handshake("tools/list"),
        "tools/call": {"result": {"content": [{"type": "text", "text": "done"}]}},
    }.get(method, {"error": {"code": -32601, "message": "no such method"}})


def refusal(status: str, body: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


@pytest.mark.parametrize(
    "how",
    [refusal("404 Not Found", "Could not find session"), refusal("400 Bad", "no such session"), refusal("410 Gone")],
    ids=["404", "400", "410"],
)
async def test_a_lost_session_of_the_older_transport_is_renewed_and_the_call_repeated_in_it(how: bytes) -> None:
    async with older_server([how]) as (spec, calls), settled_pool(spec) as pool:
        assert text(await pool.source("srv").call_tool("work", {}, timeout=10)) == "done"
    assert len(calls) == len(set(calls)) == 2


@pytest.mark.parametrize(("status", "dispatched"), [("413 Too Large", False), ("429 Wait", False), ("500 Oops", True)])
async def test_a_call_that_the_older_transport_refuses_fails_alone(status: str, dispatched: bool) -> None:
    async with older_server([refusal(status)]) as (spec, calls), settled_pool(spec) as pool:
        source = pool.source("srv")
        with pytest.raises(UpstreamCallError, match=f"answered HTTP {status[:3]}") as raised:
            await source.call_tool("work", {}, timeout=10)
        assert raised.value.dispatched is dispatched
        assert text(await source.call_tool("work", {}, timeout=10)) == "done"
    assert len(set(calls)) == 1


SAID = {
    True: (
        "Session not found",
        "session not found.",
        "Bad Request: No valid session ID provided",
        "Invalid or expired session",
        "Unknown MCP session",
        "Mcp-Session-Id is invalid",
        "Session 3f2a9c41-77 has been terminated",
        "Not Found: Session has been terminated",
        "Your session has expired, please reconnect",
        "Server not initialized",
        "The session does not exist",
        "Session doesn't exist",
        "no active session for id abc123",
        "SESSION_NOT_FOUND",
        "SESSION_NOT_FOUND: No valid session ID provided",
        "SessionExpiredError: sessionId is unknown",
        "invalid_session",
    ),
    False: (
        "",
        "Session",
        "Session not found: main",
        "Browser session not found",
        "database session expired",
        "Request timed out",
        "Not found",
        "No such tool in this session",
        "The session token of the user has expired",
        "Session started",
        "BROWSER_SESSION_EXPIRED",
        "DbSessionNotFound",
    ),
}


@pytest.mark.parametrize("is_lost", [True, False])
def test_only_an_error_about_the_session_of_the_connection_tells_its_loss(is_lost: bool) -> None:
    for message in SAID[is_lost]:
        error = JsonRpcError(-32001, message)
        assert is_session_lost(error, in_session=True) is is_lost, message
        assert is_session_lost(error, in_session=True, is_process=True) is is_lost, message
        assert not is_session_lost(error, in_session=False), message


@pytest.mark.parametrize(
    ("message", "data", "is_lost"),
    [
        ("Bad Request", "Session not found", True),
        ("Not found", "The issue of the session", False),
        ("Issue is unknown", "Session not found", False),
        ("Bad Request", {"session": "not found"}, False),
    ],
)
def test_the_data_of_an_error_may_tell_the_loss_of_a_session(message: str, data: Any, is_lost: bool) -> None:
    assert is_session_lost(JsonRpcError(-32000, message, data), in_session=True) is is_lost


def test_over_stdio_only_the_codes_of_bridges_tell_the_loss_of_a_session() -> None:
    for code, is_lost in ((-32600, True), (32600, True), (-32000, False), (-32603, False), (-32602, False)):
        assert is_session_lost(JsonRpcError(code, "Session not found"), in_session=True, is_process=True) is is_lost
