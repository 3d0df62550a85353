"""Clients of the handshake revisions get equal answers from `HandshakeSession` and from the SDK's server."""

import json
import math
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast

import anyio
import mcp_types as types
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from mcp_types import methods, version

from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.server.client_messages import NOT_INITIALIZED
from codemode_mcp.server.client_questions import as_request
from codemode_mcp.server.exchange import Exchange
from codemode_mcp.server.line_stream import LineStream, open_line_stream
from codemode_mcp.server.notifications import Announcer
from codemode_mcp.server.sdk_server import serve_lines, surface_server
from codemode_mcp.server.stdio import HandshakeSession, is_plain_call, is_plain_greeting, is_plain_listing
from upstream_clients import jsonrpc
from upstream_clients.errors import QuestionRefused
from upstream_clients.jsonrpc import METHOD_NOT_FOUND, JsonRpcError
from upstream_clients.tools import Question

pytestmark = pytest.mark.anyio

CALLER = Caller("stdio:test", "stdio")
SECONDS = 20
FRONTS = pytest.mark.parametrize("front", ["ours", "sdk"])
GREETING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}, "roots": {"listChanged": True}},
    "clientInfo": {"name": "test", "version": "1"},
}
TOOL = {
    "name": "exec",
    "title": "Run",
    "description": "Runs",
    "inputSchema": {"type": "object"},
    "annotations": {"title": "Run", "readOnlyHint": True},
    "_meta": {"a": 1},
}
ASK = Question("shop", "elicitation/create", {"message": "?", "requestedSchema": {"type": "object", "properties": {}}})


class Counter:
    """A surface that answers with its request."""

    name, title, version, state_seconds, state_keys = "codemode-mcp", "Code mode", "1", 60.0, None

    def __init__(self) -> None:
        self.change = anyio.Event()
        self.shown = 0
        self.announcer = Announcer(lambda: self.shown, lambda: self.change)
        self.on_change: Callable[[], None] | None = None
        self.cancelled = anyio.Event()
        self.begun = anyio.Event()
        self.roots_changes: list[Caller] = []

    def roots_changed(self, caller: Caller) -> None:
        self.roots_changes.append(caller)

    def instructions(self, client: object = None, path: object = None) -> str:
        return "Use it"

    def capabilities(self, client: object, path: object, caller: object) -> dict[str, Any]:
        return {"tools": {"listChanged": True}}

    def sees(self, client: object, path: object, caller: object, kind: str) -> bool:
        return kind == "tools"

    def running(self) -> AbstractAsyncContextManager[None]:
        return self.announcer.running()

    async def answer(self, exchange: Exchange, method: str) -> dict[str, Any]:
        match method:
            case "tools/list":
                return {"tools": await self.list_tools(exchange)}
            case "tools/call":
                return await self.call_tool(exchange)
        raise JsonRpcError(METHOD_NOT_FOUND, "Method not found", method)

    async def list_tools(self, exchange: Exchange) -> list[dict[str, Any]]:
        self.announcer.listed()
        return [TOOL]

    async def call_tool(self, exchange: Exchange) -> dict[str, Any]:
        arguments = exchange.params.get("arguments") or {}
        session = exchange.session
        match exchange.params["name"]:
            case "hang":
                self.begun.set()
                try:
                    await anyio.sleep_forever()
                finally:
                    self.cancelled.set()
            case "fail":
                raise RuntimeError("secret")
            case "deep":
                nested: dict[str, Any] = {}
                for _ in range(100_000):
                    nested = {"a": nested}
                return {"content": [], "structuredContent": nested, "isError": False}
            case "infinite":
                return {"content": [], "structuredContent": {"x": [math.inf, math.nan, 1.5]}, "isError": False}
            case "progress":
                await exchange.report_progress(1, 2, "half")
                await exchange.report_progress(2, None, None)
            case "ask":
                try:
                    answer = await session.request("elicitation/create", as_request(ASK)["params"], exchange.request_id)
                except QuestionRefused as refusal:
                    answer = {"refused": str(refusal)}
                return {"content": [], "structuredContent": answer, "isError": False}
        told = {
            "arguments": arguments,
            "client": [session.client_name, session.client_version, session.protocol_version],
            "capabilities": session.capabilities,
            "progress": exchange.wants_progress,
        }
        return {
            "content": [{"type": "text", "text": "hi"}, {"type": "image", "data": "aGk=", "mimeType": "image/png"}],
            "structuredContent": told,
            "isError": exchange.params["name"] == "error",
            "_meta": {"b": 2},
        }


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


class Peer:
    """A client that writes lines and reads messages."""

    def __init__(self, lines: LineStream) -> None:
        self._lines = lines

    async def send(self, message: object) -> None:
        await self._lines.send(json.dumps(message).encode())

    async def write(self, line: bytes) -> None:
        await self._lines.send(line)

    async def receive(self) -> dict[str, Any]:
        with anyio.fail_after(SECONDS):
            line = await self._lines.receive()
        assert line is not None
        message: dict[str, Any] = json.loads(line, parse_constant=_refuse)
        return message

    async def until(self, request_id: object) -> list[dict[str, Any]]:
        """Return all messages up to the answer of a request."""
        found = [await self.receive()]
        while found[-1].get("id") != request_id or "method" in found[-1]:
            found.append(await self.receive())
        return found

    async def ask(self, request_id: int | str, method: str, params: object = None) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        await self.send(message if params is None else {**message, "params": params})
        return (await self.until(request_id))[-1]

    async def greet(self) -> None:
        await self.ask("hello", "initialize", GREETING)
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})


@asynccontextmanager
async def serving(front: str, surface: Counter) -> AsyncIterator[Peer]:
    to_server, to_client = os.pipe(), os.pipe()
    try:
        async with (
            open_line_stream(to_server[0], to_client[1]) as served,
            open_line_stream(to_client[0], to_server[1]) as lines,
            anyio.create_task_group() as group,
        ):
            if front == "ours":
                group.start_soon(HandshakeSession(cast("Any", surface), served, CALLER).serve)
            else:
                server = surface_server(cast("Any", surface), lambda _: CALLER)
                group.start_soon(serve_lines, server, served)
            yield Peer(lines)
            group.cancel_scope.cancel()
    finally:
        for descriptor in (*to_server, *to_client):
            os.close(descriptor)


def test_names_and_codes_are_those_of_the_sdk() -> None:
    assert jsonrpc.HANDSHAKE_VERSIONS == version.HANDSHAKE_PROTOCOL_VERSIONS
    assert jsonrpc.MODERN_VERSIONS == version.MODERN_PROTOCOL_VERSIONS
    assert jsonrpc.PROTOCOL_VERSION == types.PROTOCOL_VERSION_META_KEY
    assert jsonrpc.CLIENT_INFO == types.CLIENT_INFO_META_KEY
    assert jsonrpc.CLIENT_CAPABILITIES == types.CLIENT_CAPABILITIES_META_KEY
    assert jsonrpc.SERVER_INFO == types.SERVER_INFO_META_KEY
    for name in (
        *("INVALID_REQUEST", "METHOD_NOT_FOUND", "INVALID_PARAMS", "INTERNAL_ERROR", "CONNECTION_CLOSED"),
        *("HEADER_MISMATCH", "UNSUPPORTED_PROTOCOL_VERSION", "URL_ELICITATION_REQUIRED"),
    ):
        assert getattr(jsonrpc, name) == getattr(types, name)


# the same answers

SERVED = ("initialize", "ping", "tools/list", "tools/call")
scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3)
anything = st.recursive(
    scalars, lambda each: st.lists(each, max_size=2) | st.dictionaries(st.text(max_size=2), each, max_size=2)
)
metas = st.fixed_dictionaries({}, optional={"progressToken": scalars | st.floats(0, 1), "x": scalars})
calls = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["echo", "error", ""]) | scalars,
        "arguments": st.dictionaries(st.text(max_size=3), anything, max_size=3) | anything,
        "_meta": metas | scalars,
        "task": anything,
        "more": anything,
    },
)
listings = st.fixed_dictionaries({}, optional={"cursor": scalars, "_meta": metas | scalars, "more": anything})
capabilities = st.fixed_dictionaries(
    {},
    optional={
        "roots": st.just({}) | st.fixed_dictionaries({"listChanged": scalars}) | scalars,
        "sampling": st.just({}) | st.fixed_dictionaries({"tools": st.just({}) | scalars}),
        "elicitation": st.fixed_dictionaries({}, optional={"form": st.just({}) | scalars, "url": st.just({})})
        | scalars,
        "experimental": st.dictionaries(st.text(max_size=2), st.just({}) | scalars, max_size=2),
        "tasks": anything,
        "tools": anything,
    },
)
infos = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text(max_size=4) | scalars,
        "version": st.text(max_size=4) | scalars,
        "title": scalars,
        "websiteUrl": scalars,
        "icons": anything,
    },
)
greetings = st.fixed_dictionaries(
    {},
    optional={
        "protocolVersion": st.sampled_from([*version.HANDSHAKE_PROTOCOL_VERSIONS, "2030-01-01"]) | scalars,
        "capabilities": capabilities | scalars,
        "clientInfo": infos | scalars,
        "_meta": metas,
    },
)
whole_greetings = st.fixed_dictionaries(
    {
        "protocolVersion": st.sampled_from([*version.HANDSHAKE_PROTOCOL_VERSIONS, "2030-01-01"]),
        "capabilities": capabilities,
        "clientInfo": st.fixed_dictionaries({"name": st.text(max_size=4), "version": st.text(max_size=4)}),
    }
)


@given(calls)
def test_what_is_taken_for_a_plain_call_is_one_to_the_sdk(params: dict[str, Any]) -> None:
    if is_plain_call(params):
        methods.parse_client_request("tools/call", "2025-11-25", params)


@given(listings, st.sampled_from(["ping", "tools/list"]))
def test_what_is_taken_for_a_plain_listing_is_one_to_the_sdk(params: dict[str, Any], method: str) -> None:
    if is_plain_listing(params):
        methods.parse_client_request(method, "2025-11-25", params)


@given(greetings | whole_greetings)
def test_what_is_taken_for_a_plain_greeting_is_one_to_the_sdk(params: dict[str, Any]) -> None:
    if is_plain_greeting(params):
        methods.parse_client_request("initialize", "2025-11-25", params)


def test_what_real_clients_send_is_plain() -> None:
    info = {"name": "claude-code", "version": "2.1.330", "title": "Claude Code", "websiteUrl": "https://claude.com"}
    assert is_plain_greeting({"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": info})
    cursor = {"tools": True, "prompts": True, "roots": {"listChanged": False}}
    assert is_plain_greeting({"protocolVersion": "2025-06-18", "capabilities": cursor, "clientInfo": info})
    meta = {"progressToken": 3, "claudecode/toolUseId": "toolu_1"}
    assert is_plain_call({"name": "exec", "arguments": {"code": "1"}, "_meta": meta})


requests = st.one_of(
    st.tuples(st.just("initialize"), greetings | whole_greetings),
    st.tuples(st.just("ping"), st.none() | listings),
    st.tuples(st.just("tools/list"), st.none() | listings),
    st.tuples(st.just("tools/call"), calls),
    st.tuples(st.just("tools/call"), st.none()),
    st.tuples(st.sampled_from(["prompts/list", "resources/list", "a/b", "server/discover"]), st.none()),
)


def comparable(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without nulls and empty `params`, which make no difference to a client."""
    return cast("dict[str, Any]", json.loads(json.dumps(message)))


async def answers(front: str, asked: list[tuple[str, Any]], *, greets: bool) -> list[dict[str, Any]]:
    async with serving(front, Counter()) as peer:
        if greets:
            await peer.greet()
        return [comparable(await peer.ask(number, method, params)) for number, (method, params) in enumerate(asked)]


@example(
    asked=[
        (
            "initialize",
            {
                "protocolVersion": "2024-11-05",
                "capabilities": {"tools": None, "roots": {}, "elicitation": {"form": {"a": 1}}},
                "clientInfo": {"name": "", "version": ""},
            },
        ),
        ("tools/call", {"name": "echo"}),
    ],
    greets=False,
)
@example(asked=[("tools/call", {"name": "echo", "_meta": {"progressToken": False}})], greets=True)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(requests, min_size=1, max_size=6), st.booleans())
def test_any_requests_are_answered_as_the_sdk_answers_them(asked: list[tuple[str, Any]], greets: bool) -> None:
    async def compare() -> None:
        assert await answers("ours", asked, greets=greets) == await answers("sdk", asked, greets=greets)

    anyio.run(compare)


# messages that are not answers


@FRONTS
async def test_a_request_that_the_client_cancels_is_given_up_and_not_answered(front: str) -> None:
    surface = Counter()
    async with serving(front, surface) as peer:
        await peer.greet()
        await peer.send({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "hang"}})
        await surface.begun.wait()
        await peer.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "7"}})
        with anyio.fail_after(SECONDS):
            await surface.cancelled.wait()
        await peer.send({"jsonrpc": "2.0", "id": 8, "method": "ping"})
        assert await peer.until(8) == [{"jsonrpc": "2.0", "id": 8, "result": {}}]


async def test_changed_roots_of_the_client_reach_the_surface() -> None:
    surface = Counter()
    async with serving("ours", surface) as peer:
        await peer.greet()
        await peer.send({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        await peer.send({"jsonrpc": "2.0", "id": 8, "method": "ping"})
        await peer.until(8)
    assert surface.roots_changes == [CALLER]


@FRONTS
async def test_progress_carries_the_token_of_its_request(front: str) -> None:
    async with serving(front, Counter()) as peer:
        await peer.greet()
        params = {"name": "progress", "_meta": {"progressToken": "t"}}
        await peer.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        told = [message["params"] for message in await peer.until(1) if "method" in message]
    assert told == [
        {"progressToken": "t", "progress": 1, "total": 2, "message": "half"},
        {"progressToken": "t", "progress": 2},
    ]


@FRONTS
async def test_without_a_token_there_is_no_progress(front: str) -> None:
    async with serving(front, Counter()) as peer:
        await peer.greet()
        await peer.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "progress"}})
        assert [message.get("id") for message in await peer.until(1)] == [1]


@FRONTS
@pytest.mark.parametrize(
    ("answer", "got"),
    [
        ({"result": {"action": "accept", "content": {"a": 1}}}, {"action": "accept", "content": {"a": 1}}),
        ({"result": {"action": "perhaps"}}, {"refused": "the client's answer is not valid MCP"}),
        ({"error": {"code": -1, "message": "no"}}, {"refused": "the client answered with error -1: no"}),
    ],
    ids=["accepted", "invalid", "refused"],
)
async def test_the_client_is_asked_while_its_request_is_open(front: str, answer: dict[str, Any], got: Any) -> None:
    async with serving(front, Counter()) as peer:
        await peer.greet()
        await peer.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask"}})
        question = await peer.receive()
        assert question["method"] == "elicitation/create"
        assert question["params"]["message"] == "[shop] ?"
        await peer.send({"jsonrpc": "2.0", "id": str(question["id"]), **answer})
        assert (await peer.until(1))[-1]["result"]["structuredContent"] == got


@FRONTS
async def test_a_question_of_a_request_that_is_cancelled_is_taken_back(front: str) -> None:
    async with serving(front, Counter()) as peer:
        await peer.greet()
        await peer.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask"}})
        question = await peer.receive()
        await peer.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        taken_back = await peer.receive()
    assert taken_back["method"] == "notifications/cancelled"
    assert taken_back["params"]["requestId"] == question["id"]


@FRONTS
async def test_a_changed_list_is_announced_to_a_client_that_has_seen_it(
    front: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codemode_mcp.server.notifications.DELAY_SECONDS", 0.01)
    surface = Counter()
    async with serving(front, surface) as peer:
        await peer.greet()
        await peer.ask(1, "tools/list")
        surface.shown = 1
        surface.change.set()
        surface.change = anyio.Event()
        assert (await peer.receive())["method"] == "notifications/tools/list_changed"


MALFORMED = {
    b"junk": (-32700, None, "not JSON: Expecting value at character 0"),
    b"{bad": (-32700, None, "not JSON"),
    b'{"jsonrpc": "2.0", "id": 5, "method": "pi': (-32700, None, "not JSON"),
    b"\xff\xfe": (-32700, None, "not JSON"),
    b"[" * 100_000: (-32700, None, "nested too deeply"),
    b"5": (-32600, None, "a message must be an object"),
    b'"ping"': (-32600, None, "a message must be an object"),
    b"null": (-32600, None, "a message must be an object"),
    b"{}": (-32600, None, '"method" is missing'),
    b'{"jsonrpc": "2.0"}': (-32600, None, '"method" is missing'),
    b'{"jsonrpc": "2.0", "id": 5}': (-32600, 5, '"method" is missing'),
    b'{"jsonrpc": "2.0", "id": "a", "method": 5}': (-32600, "a", '"method" must be a string'),
    b'{"id": 5, "method": "ping"}': (-32600, 5, '"jsonrpc" must be "2.0"'),
    b'{"jsonrpc": "1.0", "id": 5, "method": "ping"}': (-32600, 5, '"jsonrpc" must be "2.0"'),
    b'{"jsonrpc": 2.0, "id": 5, "method": "ping"}': (-32600, 5, '"jsonrpc" must be "2.0"'),
    b'{"jsonrpc": "2.0", "id": 5, "method": "ping", "params": []}': (-32600, 5, '"params" must be an object'),
    b'{"jsonrpc": "2.0", "id": 5, "method": "ping", "params": "x"}': (-32600, 5, '"params" must be an object'),
    b'{"jsonrpc": "2.0", "id": null, "method": "ping"}': (-32600, None, '"id" must be a string or an integer'),
    b'{"jsonrpc": "2.0", "id": true, "method": "ping"}': (-32600, None, '"id" must be a string or an integer'),
    b'{"jsonrpc": "2.0", "id": [1], "method": "ping"}': (-32600, None, '"id" must be a string or an integer'),
    b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}': (-32600, 1.5, '"id" must be a string or an integer'),
    b'{"jsonrpc": "2.0", "id": 1e999, "method": "ping"}': (-32600, None, '"id" must be a string or an integer'),
    b"[]": (-32600, None, "batches are not supported; send each message alone"),
    b"[1]": (-32600, None, "batches are not supported"),
    b'[{"jsonrpc": "2.0", "id": 5, "method": "ping"}]': (-32600, 5, "batches are not supported"),
}


@pytest.mark.parametrize("line", MALFORMED, ids=lambda line: line[:60].decode("latin-1"))
@FRONTS
async def test_a_malformed_request_is_answered_with_its_id_where_it_can_be_read(front: str, line: bytes) -> None:
    code, request_id, words = MALFORMED[line]
    async with serving(front, Counter()) as peer:
        await peer.write(line)
        answer = await peer.receive()
        assert (answer["jsonrpc"], answer["id"], answer["error"]["code"]) == ("2.0", request_id, code)
        assert words in answer["error"]["message"]
        assert await peer.ask(1, "ping") == {"jsonrpc": "2.0", "id": 1, "result": {}}


@FRONTS
async def test_each_request_of_a_batch_is_answered(front: str) -> None:
    batch: list[object] = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in (5, "a", 6.0)]
    async with serving(front, Counter()) as peer:
        await peer.send([*batch, {"jsonrpc": "2.0", "method": "notifications/initialized"}, 7])
        assert [(await peer.receive())["id"] for _ in range(3)] == [5, "a", 6]
        await peer.send([{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(10_000)])
        assert (await peer.receive())["id"] is None
        assert (await peer.ask(1, "ping"))["result"] == {}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"   \r",
        b"\xef\xbb\xbf",
        b'{"jsonrpc": "1.0", "method": "notifications/initialized"}',
        b'{"method": "notifications/initialized"}',
        b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": [1]}',
        b'{"jsonrpc": "2.0", "id": null, "result": {}}',
        b'{"jsonrpc": "2.0", "id": 5, "result": null}',
        b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "what?"}}',
        b'{"jsonrpc": "2.0", "id": 5, "error": "no"}',
        b'[{"jsonrpc": "2.0", "method": "notifications/initialized"}]',
    ],
)
@FRONTS
async def test_what_expects_no_answer_gets_none(front: str, line: bytes) -> None:
    async with serving(front, Counter()) as peer:
        await peer.write(line)
        await peer.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert await peer.receive() == {"jsonrpc": "2.0", "id": 1, "result": {}}


@FRONTS
@pytest.mark.parametrize(
    "line",
    [b'{"jsonrpc": "2.0", "id": 1.0, "method": "ping"}', b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}'],
)
async def test_a_request_in_an_unusual_form_is_answered(front: str, line: bytes) -> None:
    async with serving(front, Counter()) as peer:
        await peer.write(line)
        assert await peer.receive() == {"jsonrpc": "2.0", "id": 1, "result": {}}


@FRONTS
@pytest.mark.parametrize(
    ("answer", "got"),
    [
        ({"result": None}, "the client answered with error -32600: the result is not an object"),
        ({"result": "yes"}, "the client answered with error -32600: the result is not an object"),
        ({"error": "no"}, "the client answered with error -32000: no"),
        ({"error": {"code": "E1"}}, "the client answered with error -32000: E1"),
        ({"error": {"code": -1, "data": 5}}, "the client answered with error -1: 5"),
    ],
)
async def test_a_malformed_answer_to_a_question_ends_the_question(front: str, answer: dict[str, Any], got: str) -> None:
    async with serving(front, Counter()) as peer:
        await peer.greet()
        await peer.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask"}})
        question = await peer.receive()
        await peer.send({"jsonrpc": "2.0", "id": float(question["id"]), **answer})
        assert (await peer.until(1))[-1]["result"]["structuredContent"] == {"refused": got}


@FRONTS
@pytest.mark.parametrize(
    ("method", "params", "words"),
    [
        ("initialize", {**GREETING, "capabilities": {"roots": True}}, "capabilities.roots must be an object"),
        ("initialize", {**GREETING, "clientInfo": {"name": "x"}}, "clientInfo.version is missing"),
        ("initialize", {**GREETING, "clientInfo": "x"}, "clientInfo must be an object"),
        ("initialize", {**GREETING, "protocolVersion": 5}, "protocolVersion must be a string"),
        ("initialize", {}, "capabilities is missing; clientInfo is missing; protocolVersion is missing"),
        ("initialize", None, "capabilities is missing; clientInfo is missing; protocolVersion is missing"),
        ("tools/call", {"name": "x", "arguments": []}, "arguments must be an object"),
        (
            "tools/call",
            {"name": "x", "_meta": {"progressToken": 1.5}},
            "_meta.progressToken must be a string or an integer",
        ),
        ("tools/list", {"cursor": 5}, "cursor must be a string"),
        ("prompts/get", {"name": "x", "arguments": {"a": 5}}, "arguments.a must be a string"),
        ("logging/setLevel", {"level": "loud"}, "level must be 'alert', 'critical', 'debug'"),
        ("completion/complete", {"ref": {"type": "ref/x"}, "argument": {"name": "a", "value": "b"}}, "ref"),
    ],
)
async def test_invalid_params_are_named(front: str, method: str, params: Any, words: str) -> None:
    async with serving(front, Counter()) as peer:
        await peer.greet()
        error = (await peer.ask(1, method, params))["error"]
        assert error["code"] == -32602
        assert error["message"].startswith(f"Invalid request parameters: {words}")
        assert "data" not in error


@FRONTS
async def test_a_request_before_initialize_is_answered_with_what_is_missing(front: str) -> None:
    async with serving(front, Counter()) as peer:
        error = (await peer.ask(1, "tools/list"))["error"]
        assert error == {"code": -32602, "message": NOT_INITIALIZED}


@FRONTS
async def test_an_infinite_number_of_a_server_does_not_make_an_answer_invalid(front: str) -> None:
    async with serving(front, Counter()) as peer:
        await peer.greet()
        answer = await peer.ask(1, "tools/call", {"name": "infinite"})
        assert answer["result"]["structuredContent"] == {"x": [None, None, 1.5]}


@FRONTS
async def test_half_a_surrogate_pair_costs_no_request(front: str) -> None:
    async with serving(front, Counter()) as peer:
        await peer.greet()
        params = '{"name": "a", "arguments": {"b": "\\ud83d!"}}'
        await peer.write(f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}'.encode())
        answer = (await peer.until(1))[-1]
        assert answer["result"]["structuredContent"]["arguments"] == {"b": "\ufffd!"}


async def test_what_a_client_of_these_revisions_brings_back_is_never_looked_at() -> None:
    surface = Counter()
    seen: list[Any] = []

    async def call_tool(exchange: Exchange) -> dict[str, Any]:
        seen.append(dict(exchange.params))
        return {"content": [], "isError": False}

    surface.call_tool = call_tool  # type: ignore[method-assign]
    async with serving("ours", surface) as peer:
        await peer.greet()
        params = {"name": "exec", "arguments": {}, "requestState": '["stolen", 1]', "inputResponses": {}}
        await peer.ask(1, "tools/call", params)
    assert seen == [{"name": "exec", "arguments": {}}]


@pytest.mark.parametrize("fault", ["fail", "deep"], ids=["an exception", "an answer that cannot be written"])
async def test_a_fault_of_ours_shows_nothing_of_itself_and_ends_its_request_alone(fault: str) -> None:
    async with serving("ours", Counter()) as peer:
        await peer.greet()
        answer = await peer.ask(1, "tools/call", {"name": fault})
        assert answer["error"] == {"code": -32603, "message": "Internal error"}
        assert (await peer.ask(2, "ping"))["result"] == {}
