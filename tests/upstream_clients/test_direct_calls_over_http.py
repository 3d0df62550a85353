"""Calls over HTTP that are sent immediately, past the SDK's streams: what servers see, and how odd answers end.

A bare server in this process shows each request as it came, and answers byte by byte as the test says. What servers of
the SDK do is tested by the tests for `call_tool`.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from direct_pool import DirectSource, direct_pool

from upstream_clients import (
    Asking,
    Question,
    ToolOutcome,
    UpstreamCallError,
    UpstreamSpec,
    http,
    line_messages,
    streamable,
)
from upstream_clients.direct import THREAD_BYTES
from upstream_clients.http import Bearer

pytestmark = pytest.mark.anyio

TOOL = {"name": "work", "inputSchema": {"type": "object"}}
CAPABILITIES = {"tools": {"listChanged": True}}
JSON = "application/json"
EVENTS = "text/event-stream"
ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])
FORMS = pytest.mark.parametrize("form", [JSON, EVENTS])


@dataclass
class Exchange:
    """One request, and the connection that its answer belongs on.

    Attributes:
        connection: number of the connection, in the order in which clients made them.
        left: set when the client has closed the connection before the answer was whole.
    """

    method: str
    headers: dict[str, str]
    message: Any
    connection: int
    writer: asyncio.StreamWriter
    left: anyio.Event = field(default_factory=anyio.Event)

    @property
    def request_id(self) -> int:
        return int(self.message["id"])

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, body: bytes | str, kind: str = JSON, status: str = "200 OK", *more: str) -> None:
        """Answer with a whole body."""
        body = body.encode() if isinstance(body, str) else body
        fields = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *more, "", ""]
        await self.write("\r\n".join(fields).encode() + body)

    async def begin_stream(self, kind: str = EVENTS) -> None:
        """Begin a stream of events."""
        await self.write(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n" % kind.encode())

    async def send(self, data: bytes | str) -> None:
        """Send a chunk of the stream."""
        data = data.encode() if isinstance(data, str) else data
        await self.write(b"%x\r\n%s\r\n" % (len(data), data))

    async def event(self, body: str, **fields: str) -> None:
        """Send one event."""
        more = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        await self.send(f"event: message\r\n{more}data: {body}\r\n\r\n")

    async def end_stream(self) -> None:
        """End the stream in the usual way."""
        await self.write(b"0\r\n\r\n")

    async def result(self, result: str, form: str) -> None:
        """Answer with a result, as a body or as a stream."""
        body = f'{{"jsonrpc":"2.0","id":{self.request_id},"result":{result}}}'
        if form == JSON:
            await self.answer(body)
        else:
            await self.begin_stream()
            await self.event(body)
            await self.end_stream()


def text_result(text: str) -> str:
    return json.dumps({"content": [{"type": "text", "text": text}]})


async def say_done(exchange: Exchange) -> None:
    await exchange.result(text_result("done"), JSON)


class Bare:
    """The bare server.

    Attributes:
        calls: POSTs of `tools/call`, in order.
        others: everything else after the handshake: notifications, answers, GETs, DELETEs.
        work: answers a call.
        get: answers a GET.
    """

    def __init__(self, era: str, work: Callable[[Exchange], Awaitable[None]] = say_done) -> None:
        self.era = era
        self.work = work
        self.get: Callable[[Exchange], Awaitable[None]] = lambda each: each.answer("", "text/plain", "405 No")
        self.calls: list[Exchange] = []
        self.others: list[Exchange] = []
        self.connections = 0
        self.port = 0
        self.news = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when the condition holds. It is checked after each request."""
        with anyio.fail_after(10):
            while not condition():
                await self.news.wait()

    def told(self, method: str) -> list[Any]:
        """Return the params of the notifications of one method that came."""
        return [
            each.message.get("params")
            for each in self.others
            if isinstance(each.message, dict) and each.message.get("method") == method
        ]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in lines if line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                exchange = Exchange(head.split()[0], headers, json.loads(body) if body else None, number, writer)
                await self._answer(exchange, reader)
        for each in (*self.calls, *self.others):
            if each.connection == number:
                each.left.set()
        writer.close()

    async def _answer(self, exchange: Exchange, reader: asyncio.StreamReader) -> None:
        message = exchange.message
        method = message.get("method") if isinstance(message, dict) else None
        if method == "tools/call":
            self.calls.append(exchange)
            self._tell()
            # The client sends nothing more but the end of the connection.
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, exchange, reader, tasks.cancel_scope)
                await self.work(exchange)
                tasks.cancel_scope.cancel()
            return
        if method in ("initialize", "tools/list", "server/discover"):
            await exchange.answer(json.dumps({"jsonrpc": "2.0", "id": exchange.request_id, **self._handshake(method)}))
            return
        self.others.append(exchange)
        self._tell()
        if exchange.method == "GET":
            await self.get(exchange)
        else:
            await exchange.answer("", "text/plain", "202 Accepted")

    async def _watch(self, exchange: Exchange, reader: asyncio.StreamReader, scope: anyio.CancelScope) -> None:
        # Reading takes no bytes of another request, since the client sends none before the answer.
        with suppress(ConnectionError):
            if not await reader.read(1):
                exchange.left.set()
                self._tell()
                scope.cancel()

    def _handshake(self, method: str) -> dict[str, Any]:
        info = {"name": "bare", "version": "1"}
        match method:
            case "tools/list":
                return {"result": {"tools": [TOOL]}}
            case "server/discover" if self.era == "modern":
                return {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}}
            case "initialize" if self.era == "legacy":
                version = {"protocolVersion": "2025-06-18", "capabilities": CAPABILITIES, "serverInfo": info}
                return {"result": version}
        return {"error": {"code": -32601, "message": "no such method"}}

    def _tell(self) -> None:
        self.news.set()
        self.news = anyio.Event()

    def spec(self, **more: Any) -> UpstreamSpec:
        return UpstreamSpec("srv", transport="http", url=f"http://127.0.0.1:{self.port}/mcp", **more)


class WithSession(Bare):
    """A legacy server that gives its clients a session."""

    async def _answer(self, exchange: Exchange, reader: asyncio.StreamReader) -> None:
        if isinstance(exchange.message, dict) and exchange.message.get("method") == "initialize":
            body = json.dumps({"jsonrpc": "2.0", "id": exchange.request_id, **self._handshake("initialize")})
            await exchange.answer(body, JSON, "200 OK", "Mcp-Session-Id: the-session")
        else:
            await super()._answer(exchange, reader)


@asynccontextmanager
async def served(server: Bare, **more: Any) -> AsyncIterator[DirectSource]:
    """Start a server and connect to it. Return a source that calls it directly."""
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=1 << 20) as listener:
        server.port = listener.sockets[0].getsockname()[1]
        async with direct_pool(server.spec(**more)) as pool:
            assert pool.views()[0].state == "ready", pool.views()
            yield pool.source("srv")


def text(outcome: ToolOutcome) -> str:
    return str(outcome.result["content"][0]["text"])


# Common answers.


@ERAS
@FORMS
async def test_a_result_is_the_servers_own_text_and_the_request_is_sent_once_with_all_headers(
    era: str, form: str
) -> None:
    result = '{ "content":[ {"type":"text","text":"\u00e4 \\n"} ], "structuredContent":{"n":1.50} }'
    server = (WithSession if era == "legacy" else Bare)(era, lambda exchange: exchange.result(result, form))
    async with served(server, headers={"X-Key": "k"}) as source:
        outcome = await source.call_tool("work", {"a": [1, "b"]}, timeout=10)
    assert source.sent == ["work"]
    assert (outcome.text, outcome.result) == (result, json.loads(result))
    (call,) = server.calls
    assert call.message["params"]["arguments"] == {"a": [1, "b"]}
    assert (call.headers["x-key"], call.headers["accept"]) == ("k", f"{JSON}, {EVENTS}")
    if era == "legacy":
        assert (call.headers["mcp-protocol-version"], call.headers["mcp-session-id"]) == ("2025-06-18", "the-session")
        assert "_meta" not in call.message["params"]
    else:
        assert (call.headers["mcp-protocol-version"], call.headers["mcp-name"]) == ("2026-07-28", "work")
        assert call.message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"


@ERAS
async def test_a_call_says_to_the_server_what_call_tool_says(era: str) -> None:
    server = WithSession(era) if era == "legacy" else Bare(era)
    async with served(server) as source:
        await source.call_tool("work", {"a": 1}, timeout=10)
        await source.call_by_dispatcher("work", {"a": 1}, timeout=10)
    directly, by_task = server.calls
    for each in (directly, by_task):
        del each.message["id"], each.headers["content-length"]
    assert directly.message == by_task.message
    assert directly.headers == by_task.headers


@FORMS
async def test_calls_one_after_the_other_share_a_connection(form: str) -> None:
    server = Bare("modern", lambda exchange: exchange.result(text_result("x"), form))
    async with served(server) as source:
        for _ in range(5):
            await source.call_tool("work", {}, timeout=10)
    assert len({call.connection for call in server.calls}) == 1


async def test_a_stream_that_stays_open_after_the_answer_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamable, "DRAIN_SECONDS", 0.05)

    async def work(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.event(json.dumps({"jsonrpc": "2.0", "id": exchange.request_id, "result": {"content": []}}))
        await exchange.left.wait()

    server = Bare("modern", work)
    async with served(server) as source:
        await source.call_tool("work", {}, timeout=10)
        with anyio.fail_after(10):
            await server.calls[0].left.wait()


@FORMS
async def test_large_results_are_read_whole_and_keep_their_text(form: str) -> None:
    rows = ",".join(f'{{"id":{number},"name":"row \u00e4 \\n {number}"}}' for number in range(20_000))
    results = [f'{{"content":[],"structuredContent":{{"rows":[{rows}]}}}}', text_result("line\n" * 200_000)]
    server = Bare(
        "modern", lambda exchange: exchange.result(results[exchange.message["params"]["arguments"]["n"]], form)
    )
    async with served(server) as source:
        for number, result in enumerate(results):
            assert len(result) > THREAD_BYTES
            for call in (source.call_tool, source.call_by_dispatcher):
                outcome = await call("work", {"n": number}, timeout=30)
                assert (outcome.text, outcome.result) == (result, json.loads(result))
    assert source.sent == ["work", "work"]


# Unusual answers.


def session_lost(exchange: Exchange) -> Awaitable[None]:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Session not found"}}
    return exchange.answer(json.dumps(body), JSON, "404 Not Found")


def json_error(exchange: Exchange) -> Awaitable[None]:
    body = {"jsonrpc": "2.0", "id": exchange.request_id, "error": {"code": -32602, "message": "wrong", "data": 1}}
    return exchange.answer(json.dumps(body))


def header_mismatch(exchange: Exchange) -> Awaitable[None]:
    body = {"jsonrpc": "2.0", "id": exchange.request_id, "error": {"code": -32020, "message": "mismatch"}}
    return exchange.answer(json.dumps(body), JSON, "400 Bad Request")


def challenge(exchange: Exchange) -> Awaitable[None]:
    return exchange.answer("", "text/plain", "401 Unauthorized", "WWW-Authenticate: Bearer error=invalid_token")


def more_rights(exchange: Exchange) -> Awaitable[None]:
    header = 'WWW-Authenticate: Bearer error="insufficient_scope", scope="write"'
    return exchange.answer("", "text/plain", "403 Forbidden", header)


async def hang_up(exchange: Exchange) -> None:
    exchange.writer.transport.abort()


async def half_a_body(exchange: Exchange) -> None:
    await exchange.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{")
    exchange.writer.transport.abort()


async def empty_stream(exchange: Exchange) -> None:
    await exchange.begin_stream()
    await exchange.end_stream()


async def broken_event(exchange: Exchange) -> None:
    await exchange.begin_stream()
    await exchange.event('{"jsonrpc":"2.0","id":1,"result":{"a":}}')
    await exchange.end_stream()


async def half_a_character(exchange: Exchange) -> None:
    await exchange.result('{"content":[{"type":"text","text":"\\ud83d"}]}', EVENTS)


async def other_kind_of_stream(exchange: Exchange) -> None:
    await exchange.begin_stream("text/event-streams")
    await exchange.end_stream()


async def in_latin_1(exchange: Exchange) -> None:
    await exchange.begin_stream("text/event-stream; charset=iso-8859-1")
    body = f'{{"jsonrpc":"2.0","id":{exchange.request_id},"result":{{"content":[{{"type":"text","text":"\u00e4"}}]}}}}'
    await exchange.send(f"data: {body}\n\n".encode("latin-1"))
    await exchange.end_stream()


async def event_of_another_id(exchange: Exchange) -> None:
    await exchange.begin_stream()
    await exchange.event('{"jsonrpc":"2.0","id":999999,"result":{"content":[]}}')
    await exchange.end_stream()


async def too_large_event(exchange: Exchange) -> None:
    await exchange.begin_stream()
    await exchange.send("data: " + "x" * 20_000)
    await exchange.end_stream()


def too_large_body(exchange: Exchange) -> Awaitable[None]:
    return exchange.answer(" " * 20_000)


def redirect(
    exchange: Exchange, status: str = "307 Elsewhere", to: str = "http://elsewhere.example/"
) -> Awaitable[None]:
    return exchange.answer("", "text/plain", status, f"Location: {to}")


ODD: dict[str, Callable[[Exchange], Awaitable[None]]] = {
    "accepted": lambda each: each.answer("", "text/plain", "202 Accepted"),
    "no content": lambda each: each.write(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "a page": lambda each: each.answer("<html>", "text/html"),
    "another redirect": redirect,
    "a redirect that loses the body": lambda each: redirect(each, "302 Found", "/mcp"),
    "401": lambda each: each.answer("no", "text/plain", "401 Unauthorized"),
    "403": lambda each: each.answer("no", "text/plain", "403 Forbidden"),
    "404": lambda each: each.answer("no", "text/plain", "404 Not Found"),
    "413": lambda each: each.answer("no", "text/plain", "413 Too Large"),
    "429": lambda each: each.answer("no", "text/plain", "429 Too Many"),
    "500": lambda each: each.answer("no", "text/plain", "500 Error"),
    "503 with json": lambda each: each.answer('{"error":"busy"}', JSON, "503 Busy"),
    "a challenge": challenge,
    "more rights": more_rights,
    "no json": lambda each: each.answer("{"),
    "a list": lambda each: each.answer("[]"),
    "nothing": lambda each: each.answer(""),
    "a number with a plus": lambda each: each.answer(
        f'{{"jsonrpc":"2.0","id":{each.request_id},"result":{{"content":[],"a":+1}}}}'
    ),
    "an id as text": lambda each: each.answer(
        f'{{"jsonrpc":"2.0","id":"{each.request_id}","result":{{"content":[]}}}}'
    ),
    "an error": json_error,
    "header mismatch": header_mismatch,
    "session lost": session_lost,
    "hung up": hang_up,
    "half a body": half_a_body,
    "an empty stream": empty_stream,
    "a broken event": broken_event,
    "half a character": half_a_character,
    "another kind of stream": other_kind_of_stream,
    "latin-1": in_latin_1,
    "an event of another id": event_of_another_id,
    "a large event": too_large_event,
    "a large body": too_large_body,
}


async def how_it_ends(server: Bare, *, directly: bool) -> tuple[Any, ...]:
    """Return how a call ends, and the end of the connection."""
    async with served(server) as source:
        call = source.call_tool if directly else source.call_by_dispatcher
        try:
            outcome = await call("work", {}, timeout=10)
        except UpstreamCallError as error:
            # The ids of requests have different lengths, which change the position in a parser's error.
            message = re.sub(r"column \d+|input_value=b?'.*'", "", error.message.replace(str(server.port), "PORT"))
            end: tuple[Any, ...] = (message, error.dispatched, error.code)
        else:
            end = (outcome.result, outcome.notes)
        link = source.upstream._link
        alive = link is not None and link.alive
    assert source.sent == (["work"] if directly else [])
    return (*end, alive, len(server.calls))


@ERAS
@pytest.mark.parametrize("how", ODD)
async def test_an_odd_answer_ends_a_call_as_it_ends_one_of_a_task(
    how: str, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_MESSAGE_BYTES", 10_000)
    monkeypatch.setattr(line_messages, "MAX_MESSAGE_BYTES", 10_000)
    kind = WithSession if era == "legacy" else Bare
    ends = [await how_it_ends(kind(era, ODD[how]), directly=directly) for directly in (True, False)]
    assert ends[0] == ends[1]
    # Only a server that does not know the session gets the call again, once.
    assert ends[0][-1] == (2 if era == "legacy" and how in ("404", "session lost") else 1)


async def test_a_redirect_within_the_server_is_followed_with_the_body() -> None:
    async def work(exchange: Exchange) -> None:
        if len(server.calls) == 1:
            await redirect(exchange, "308 Moved", "/mcp/")
        else:
            await say_done(exchange)

    server = Bare("modern", work)
    async with served(server) as source:
        assert text(await source.call_tool("work", {"a": 1}, timeout=10)) == "done"
    assert server.calls[0].message == server.calls[1].message


async def test_progress_and_a_new_list_of_tools_are_heard_before_the_answer() -> None:
    seen: list[Any] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async def work(exchange: Exchange) -> None:
        token = exchange.message["params"]["_meta"]["progressToken"]
        await exchange.begin_stream()
        params = {"progressToken": token, "progress": 1, "total": 2, "message": "half"}
        for method, told in (("notifications/progress", params), ("notifications/tools/list_changed", {})):
            await exchange.event(json.dumps({"jsonrpc": "2.0", "method": method, "params": told}))
        await exchange.event(json.dumps({"jsonrpc": "2.0", "id": exchange.request_id, "result": {"content": []}}))
        await exchange.end_stream()

    async with served(WithSession("legacy", work)) as source:
        await source.call_tool("work", {}, timeout=10, on_progress=on_progress)
        assert source.upstream.lists["tools"].changes == 1
        assert seen == [(1, 2, "half")]
    assert source.sent == ["work"]


async def test_a_question_on_the_stream_of_a_call_is_its_own_while_calls_of_others_are_in_flight() -> None:
    answered = anyio.Event()
    asked: list[tuple[str, Question]] = []

    async def work(exchange: Exchange) -> None:
        await exchange.begin_stream()
        if exchange.message["params"]["arguments"]["run"] == "b":
            question = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {"message": "Who?"}}
            await exchange.event(json.dumps(question))
            await server.until(lambda: any((each.message or {}).get("id") == "q" for each in server.others))
            answered.set()
        await answered.wait()
        await exchange.event(json.dumps({"jsonrpc": "2.0", "id": exchange.request_id, "result": {"content": []}}))
        await exchange.end_stream()

    def asking(run: str) -> Asking:
        async def ask(question: Question) -> dict[str, Any]:
            asked.append((run, question))
            return {"action": "accept", "content": {"run": run}}

        return Asking(run, ask)

    server = WithSession("legacy", work)
    async with served(server) as source, anyio.create_task_group() as tasks:
        for run in ("a", "b"):

            async def call(run: str = run) -> None:
                await source.call_tool("work", {"run": run}, timeout=10, asking=asking(run))

            tasks.start_soon(call)
    assert [(run, question.params) for run, question in asked] == [("b", {"message": "Who?"})]
    (reply,) = [each.message for each in server.others if (each.message or {}).get("id") == "q"]
    assert reply["result"] == {"action": "accept", "content": {"run": "b"}}
    assert source.sent == ["work", "work"]


async def test_a_stream_that_breaks_after_an_event_with_an_id_is_resumed_and_the_call_is_not_sent_again() -> None:
    async def work(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.send("id: 7\r\nretry: 1\r\ndata: \r\n\r\n")
        exchange.writer.transport.abort()

    async def get(exchange: Exchange) -> None:
        if exchange.headers.get("last-event-id") != "7":
            await exchange.answer("", "text/plain", "405 No")
            return
        await exchange.begin_stream()
        body = f'{{"jsonrpc":"2.0","id":{server.calls[0].request_id},"result":{text_result("late")}}}'
        await exchange.event(body, id="8")
        await exchange.end_stream()

    server = WithSession("legacy", work)
    server.get = get
    async with served(server) as source:
        assert text(await source.call_tool("work", {}, timeout=10)) == "late"
    assert (len(server.calls), source.sent) == (1, ["work"])


async def test_the_login_is_sent_with_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    login = "first"

    async def token(_: Any) -> str:
        return login

    monkeypatch.setattr(Bearer, "token", token)
    server = Bare("modern")
    async with served(server) as source:
        await source.call_tool("work", {}, timeout=10)
        login = "second"
        await source.call_tool("work", {}, timeout=10)
    assert [call.headers["authorization"] for call in server.calls] == ["bearer first", "bearer second"]


# Calls that are given up.


async def hang(exchange: Exchange) -> None:
    await exchange.left.wait()


@ERAS
@pytest.mark.parametrize("directly", [True, False], ids=["directly", "by a task"])
async def test_giving_up_closes_the_connection_to_a_modern_server_and_is_told_to_a_legacy_one(
    era: str, directly: bool
) -> None:
    server = (WithSession if era == "legacy" else Bare)(era, hang)
    async with served(server) as source:
        call = source.call_tool if directly else source.call_by_dispatcher
        with pytest.raises(UpstreamCallError, match=r"tool 'work' timed out after 0\.2 s") as caught:
            await call("work", {}, timeout=0.2)
        assert caught.value.dispatched
        (sent,) = server.calls
        if era == "modern":
            with anyio.fail_after(10):
                await sent.left.wait()
            assert server.told("notifications/cancelled") == []
        else:
            await server.until(lambda: bool(server.told("notifications/cancelled")))
            told = {"requestId": sent.request_id, "reason": "caller cancelled"}
            assert server.told("notifications/cancelled") == [told]
            assert not sent.left.is_set()
        server.work = say_done
        assert text(await call("work", {}, timeout=10)) == "done"
    assert source.sent == (["work", "work"] if directly else [])


@ERAS
async def test_a_call_that_is_given_up_in_the_round_that_makes_it_is_never_sent(era: str) -> None:
    server = Bare(era)
    async with served(server) as source:
        direct = source.upstream._link._dispatcher.direct
        number = direct.send("tools/call", {"name": "work", "arguments": {"n": 1}}, lambda _: pytest.fail("given up"))
        direct.cancel(number)
        direct.cancel(number)
        await source.call_tool("work", {"n": 2}, timeout=10)
        assert [call.message["params"]["arguments"] for call in server.calls] == [{"n": 2}]
        assert server.told("notifications/cancelled") == []


async def test_a_late_answer_to_a_call_that_was_given_up_lets_the_next_question_through() -> None:
    release = anyio.Event()

    async def work(exchange: Exchange) -> None:
        await release.wait()
        await say_done(exchange)

    async with served(WithSession("legacy", work)) as source:
        pending = source.upstream._link._dispatcher.questions
        with pytest.raises(UpstreamCallError, match="timed out"):
            await source.call_tool("work", {}, timeout=0.1)
        assert len(pending._abandoned) == 1
        release.set()
        await source.call_tool("work", {}, timeout=10)
        with anyio.fail_after(10):
            while pending._abandoned:  # noqa: ASYNC110 - nothing tells of it
                await anyio.sleep(0.01)


async def test_what_keeps_a_call_from_being_sent_is_raised_and_nothing_is_sent() -> None:
    def refuse(_: Any = None) -> None:
        raise PermissionError

    server = Bare("modern")
    async with served(server) as source:
        for options in ({"admit": refuse}, {"on_sent": refuse}):
            with pytest.raises(PermissionError):
                await source.call_tool("work", {}, timeout=10, **options)
        await source.call_tool("work", {}, timeout=10)
        assert len(server.calls) == 1
        assert not source.upstream.calls


@ERAS
async def test_calls_in_flight_end_with_their_connection(era: str) -> None:
    server = (WithSession if era == "legacy" else Bare)(era, hang)
    ends: list[UpstreamCallError] = []
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listener, anyio.create_task_group() as tasks:
        server.port = listener.sockets[0].getsockname()[1]
        async with direct_pool(server.spec()) as pool:
            source = pool.source("srv")

            async def call() -> None:
                with pytest.raises(UpstreamCallError) as caught:
                    await source.call_tool("work", {})
                ends.append(caught.value)

            tasks.start_soon(call)
            await server.until(lambda: bool(server.calls))
        with anyio.fail_after(10):
            await server.calls[0].left.wait()
    assert [end.dispatched for end in ends] == [True]
