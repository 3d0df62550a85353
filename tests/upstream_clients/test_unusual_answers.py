"""Answers of servers in an unusual form: what they say is read, and what is no message is logged and passed over.

The same answers come over stdio, as a plain body and as an event, to calls that are sent directly and by a task.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from direct_pool import DirectSource, direct_pool
from test_direct_calls_over_http import EVENTS, JSON, Bare, Exchange, served, text

from upstream_clients import UpstreamCallError, UpstreamSpec
from upstream_clients.jsonrpc import readable_error
from upstream_clients.line_messages import NotAMessage, read_message

pytestmark = pytest.mark.anyio

RESULT = {"content": [{"type": "text", "text": "done"}]}
WAYS = ("stdio", "body", "event")

SCRIPT = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method, number = message["method"], message.get("id")
    if method == "initialize":
        info = {"name": "srv", "version": "1"}
        answer = {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}}
    elif method == "tools/list":
        answer = {"result": {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]}}
    elif method == "tools/call":
        for each in json.loads(sys.argv[1]):
            print(each.replace("ID", str(number)))
        sys.stdout.flush()
        continue
    else:
        if number is None and len(sys.argv) > 2:
            print(sys.argv[2], flush=True)
        answer = {"error": {"code": -32601, "message": "no such method"}}
    if number is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": number, **answer}), flush=True)
"""


@asynccontextmanager
async def answering(way: str, *texts: str, after_notifications: str | None = None) -> AsyncIterator[DirectSource]:
    """Yield a source whose server answers calls with these texts, in which ID is the id of the call."""
    if way == "stdio":
        more = () if after_notifications is None else (after_notifications,)
        spec = UpstreamSpec("srv", command=sys.executable, args=("-X", "utf8", "-c", SCRIPT, json.dumps(texts), *more))
        async with direct_pool(spec) as pool:
            assert pool.views()[0].state == "ready", pool.views()
            yield pool.source("srv")
        return

    async def work(exchange: Exchange) -> None:
        given = [each.replace("ID", str(exchange.request_id)) for each in texts]
        if way == "body":
            await exchange.answer("".join(given), JSON.title())
            return
        await exchange.begin_stream(EVENTS.upper())
        for each in given:
            await exchange.event(each)
        await exchange.end_stream()

    async with served(Bare("legacy", work)) as source:
        yield source


async def outcome(way: str, *texts: str, **more: Any) -> str:
    """Return the text of the result, or the message of the error, which is the same for calls of both kinds."""
    found = set()
    async with answering(way, *texts, **more) as source:
        for call in (source.call_tool, source.call_by_dispatcher):
            try:
                found.add(text(await call("work", {}, timeout=2)))
            except UpstreamCallError as error:
                found.add(error.message.replace(f"{1 << 20}", "ID").replace(f"{1 << 40}", "ID"))
    (only,) = found
    return only


def whole(**members: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", **members}).replace('"ID"', "ID")


USUAL = whole(id="ID", result=RESULT)
READ = {
    "a byte order mark": "\ufeff" + USUAL,
    "a number with a fraction": whole(id="ID", result=RESULT).replace("ID", "ID.0"),
    "a text": whole(id="ID", result=RESULT).replace("ID", '"ID"'),
    "a list": f"[{USUAL}]",
    "a list behind a byte order mark": f"\ufeff[{USUAL}]",
    "a list with a notification": f"[{whole(method='notifications/message', params={'data': 1})}, {USUAL}]",
    "a number with a fraction, result first": f'{{"result":{json.dumps(RESULT)},"jsonrpc":"2.0","id":ID.0}}',
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", READ)
async def test_an_answer_in_an_unusual_form_is_read(how: str, way: str) -> None:
    assert await outcome(way, READ[how]) == "done"


@pytest.mark.parametrize("way", ["body", "event"])
@pytest.mark.parametrize("number", [0, None, 77, 1.5, "x", True, [1], {}])
async def test_over_http_an_answer_belongs_to_its_request_whatever_its_id(number: Any, way: str) -> None:
    assert await outcome(way, whole(id=number, result=RESULT)) == "done"


@pytest.mark.parametrize("way", ["body", "event"])
@pytest.mark.parametrize(
    "answer", [{"id": 7, "result": RESULT}, {"result": RESULT}, {"jsonrpc": "2.0", "result": RESULT}]
)
async def test_over_http_an_answer_needs_neither_a_version_nor_an_id(answer: Any, way: str) -> None:
    assert await outcome(way, json.dumps(answer)) == "done"


STRAY = [
    *('{"type": "heartbeat"}', "not json", '"ping"', "123", "[]", "null", "{}", '{"id": 12, "half": '),
    *('{"jsonrpc": "2.0", "id": 12}', '{"jsonrpc": "2.0", "id": 12, "result": null}'),
    *('{"jsonrpc": "1.0", "method": "notifications/message"}', '{"status": "ok", "error": null}', "<html>"),
]


@pytest.mark.parametrize("way", ["stdio", "event"])
async def test_what_is_no_message_is_passed_over_and_logged(way: str) -> None:
    async with answering(way, *STRAY, USUAL) as source:
        assert text(await source.call_tool("work", {}, timeout=5)) == "done"
        assert text(await source.call_by_dispatcher("work", {}, timeout=5)) == "done"
        lines = [line.text for line in source.upstream.log.after(0) if "not an MCP message" in line.text]
    assert len(lines) == 10
    assert lines[:2] == [f"passed over, because it is not an MCP message: {each}" for each in STRAY[:2]]


async def test_what_is_logged_of_a_text_that_is_no_message_is_short_and_has_no_secret() -> None:
    async with served(Bare("legacy", lambda each: stray_answer(each)), env={"KEY": "hunter22"}) as source:
        await source.call_tool("work", {}, timeout=5)
        (line,) = [line.text for line in source.upstream.log.after(0) if "not an MCP message" in line.text]
    assert "hunter" not in line
    assert len(line) < 300


async def stray_answer(exchange: Exchange) -> None:
    await exchange.begin_stream()
    await exchange.event("the key is hunter22 " + "x y " * 1000)
    await exchange.event(json.dumps({"jsonrpc": "2.0", "id": exchange.request_id, "result": RESULT}))
    await exchange.end_stream()


async def test_a_stream_that_ends_without_an_answer_fails_with_its_last_words() -> None:
    found = await outcome("event", '{"type": "heartbeat"}', '{"detail": "out of memory"}')
    assert found == (
        "server 'srv': its stream of events ended without an answer; the last message was: "
        '{"detail": "out of memory"}'
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("", "its answer is empty"),
        ("<html>", "its answer is not one of JSON-RPC: <html>"),
        ("[]", "its answer is not one of JSON-RPC: []"),
        (whole(method="notifications/message"), "its answer is not one of JSON-RPC: notifications/message"),
        (whole(id="ID", result=None), "answered tools/call with error -32603: the answer is not valid JSON-RPC"),
        (whole(id=None, result=None), "its answer is not one of JSON-RPC"),
    ],
)
async def test_a_body_that_is_no_answer_fails_its_call_in_plain_words(answer: str, words: str) -> None:
    found = await outcome("body", answer)
    assert words in found
    assert "validation" not in found


MEDIA_TYPES = ["text/plain", "application/vnd.mcp+json", "text/html; charset=utf-8", ""]


@pytest.mark.parametrize("media_type", MEDIA_TYPES)
async def test_an_answer_is_read_whatever_its_media_type_is(media_type: str) -> None:
    async def work(exchange: Exchange) -> None:
        await exchange.answer(whole(id=exchange.request_id, result=RESULT), media_type)

    async with served(Bare("legacy", work)) as source:
        for call in (source.call_tool, source.call_by_dispatcher):
            assert text(await call("work", {}, timeout=5)) == "done"


@pytest.mark.parametrize("media_type", MEDIA_TYPES)
async def test_after_a_body_of_another_media_type_it_is_unknown_whether_the_server_acted(media_type: str) -> None:
    async def work(exchange: Exchange) -> None:
        await exchange.answer("<html>please log in", media_type)

    async with served(Bare("legacy", work)) as source:
        with pytest.raises(UpstreamCallError) as raised:
            await source.call_tool("work", {}, timeout=5)
    assert raised.value.message == "server 'srv': its answer is not one of JSON-RPC: <html>please log in"
    assert raised.value.dispatched
    assert raised.value.code is None


ERRORS: list[tuple[Any, str]] = [
    ({"code": "ENOENT", "message": "no file"}, "error -32000: ENOENT: no file"),
    ({"code": "-32602", "message": "no file"}, "error -32602: no file"),
    ({"code": -32602.0, "message": "no file"}, "error -32602: no file"),
    ({"code": -1, "data": "the disk is full"}, "error -1: the disk is full"),
    ({"code": -1, "data": {"why": "full"}}, 'error -1: {"why": "full"}'),
    ({"code": -1, "message": "", "data": {"why": "full"}}, 'error -1: {"why": "full"}'),
    ({"code": None, "message": "no code"}, "error -32000: no code"),
    ({"code": True, "message": "odd"}, "error -32000: true: odd"),
    ({"message": "no code"}, "error -32000: no code"),
    ({"message": {"en": "bad"}, "code": 5}, 'error 5: {"en": "bad"}'),
    ({"reason": "quota", "status": 429}, 'error -32000: {"reason": "quota", "status": 429}'),
    ({}, "error -32000: an error without a message"),
    ("it broke", "error -32000: it broke"),
    ("", "error -32000: an error without a message"),
    (["a", 1], 'error -32000: ["a", 1]'),
    (42, "error -32000: 42"),
    (False, "error -32000: false"),
]


@pytest.mark.parametrize(("error", "words"), ERRORS)
def test_an_error_in_another_form_keeps_its_words(error: Any, words: str) -> None:
    found = readable_error(error)
    assert f"error {found['code']}: {found['message']}" == words
    message = read_message(json.dumps({"jsonrpc": "2.0", "id": 7, "error": error}).encode())
    assert message == {"jsonrpc": "2.0", "id": 7, "error": found}


@pytest.mark.parametrize("way", WAYS)
async def test_the_words_of_an_error_in_another_form_reach_the_caller(way: str) -> None:
    for error, words in (ERRORS[0], ERRORS[4], ERRORS[12]):
        assert await outcome(way, whole(id="ID", error=error)) == f"server 'srv' answered tools/call with {words}"


DATA: list[tuple[dict[str, Any], str]] = [
    ({"code": -32602, "message": "Bad", "data": "owner is empty"}, "error -32602: Bad; data: owner is empty"),
    ({"code": -32603, "message": "Bad", "data": {"disk": "full"}}, 'error -32603: Bad; data: {"disk": "full"}'),
    ({"code": "E_LIMIT", "message": "Bad", "data": {"after": 30}}, 'error -32000: E_LIMIT: Bad; data: {"after": 30}'),
    ({"code": -32602, "message": "owner is empty", "data": "owner is empty"}, "error -32602: owner is empty"),
    ({"code": -32602, "message": "Bad", "data": ""}, "error -32602: Bad"),
    ({"code": -32042, "message": "Bad", "data": {"elicitations": ["https://a.example"]}}, "error -32042: Bad"),
]


@pytest.mark.parametrize("way", WAYS)
async def test_the_data_of_an_error_reaches_the_caller_with_its_message(way: str) -> None:
    for error, words in DATA[: 3 if way == "stdio" else 1]:
        assert await outcome(way, whole(id="ID", error=error)) == f"server 'srv' answered tools/call with {words}"


@pytest.mark.parametrize(("error", "words"), DATA)
async def test_the_data_of_an_error_with_an_http_status_reaches_the_caller(error: dict[str, Any], words: str) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.answer(whole(id=exchange.request_id, error=error), JSON, "422 Unprocessable Content")

    async with served(Bare("legacy", refuse)) as source:
        with pytest.raises(UpstreamCallError) as raised:
            await source.call_tool("work", {}, timeout=5)
    assert raised.value.message == f"server 'srv' answered tools/call with {words}"


async def test_the_words_of_an_error_are_bounded() -> None:
    found = await outcome("body", whole(id="ID", error={"code": 1, "message": "Bad", "data": ["x y"] * 10_000}))
    assert len(found) < 700
    assert len(await outcome("body", "<html>" + "x y " * 10_000)) < 700
    assert len(await outcome("body", whole(id="ID", error={"reason": ["x y"] * 10_000}))) < 700


@pytest.mark.parametrize("number", [{"id": None}, {}])
async def test_on_stdio_an_error_without_an_id_belongs_to_the_only_call_that_is_open(number: Any) -> None:
    refusal = whole(**number, error={"code": -32700, "message": "cannot parse"})
    assert await outcome("stdio", refusal) == "server 'srv' answered tools/call with error -32700: cannot parse"


async def test_on_stdio_an_error_about_a_notification_ends_no_request() -> None:
    refusal = whole(id=None, error={"code": -32601, "message": "no such notification"})
    assert await outcome("stdio", USUAL, after_notifications=refusal) == "done"
    # A call that was given up is told in a notification.
    async with answering("stdio", after_notifications=refusal) as source:
        for call in (source.call_tool, source.call_by_dispatcher):
            for _ in range(2):
                with pytest.raises(UpstreamCallError, match="timed out"):
                    await call("work", {}, timeout=0.3)


async def test_on_stdio_an_error_without_an_id_belongs_to_no_call_if_several_are_open() -> None:
    refusal = whole(id=None, error={"code": -32700, "message": "cannot parse"})
    async with answering("stdio", refusal) as source:
        calls = [source.call_tool("work", {}, timeout=0.5), source.call_tool("work", {}, timeout=0.5)]
        ends = await asyncio.gather(*calls, return_exceptions=True)
    assert [str(each) for each in ends] == ["server 'srv': tool 'work' timed out after 0.5 s"] * 2


async def test_the_words_of_an_error_status_are_shown_without_secrets() -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.answer('{"error": {"reason": "key hunter22 is not valid"}}', JSON, "403 Forbidden")

    async with served(Bare("legacy", refuse), headers={"X-Key": "hunter22"}) as source:
        with pytest.raises(UpstreamCallError) as raised:
            await source.call_tool("work", {}, timeout=5)
    assert raised.value.message.endswith("of mcpServers.srv; it says: key *** is not valid")
    assert not raised.value.dispatched


@pytest.mark.parametrize("way", ["body", "event"])
async def test_a_failed_call_shows_what_came_in_place_of_an_answer_without_secrets(way: str) -> None:
    async def answer(exchange: Exchange) -> None:
        if way == "body":
            await exchange.answer('{"sent": "key hunter22"}', JSON)
        else:
            await exchange.begin_stream()
            await exchange.event("key hunter22")
            await exchange.end_stream()

    async with served(Bare("legacy", answer), headers={"X-Key": "hunter22"}) as source:
        with pytest.raises(UpstreamCallError, match=r"key \*\*\*") as raised:
            await source.call_tool("work", {}, timeout=5)
    assert "hunter" not in str(raised.value)


def test_a_text_that_is_no_message_shows_its_beginning_only() -> None:
    found = read_message(b"\xef\xbb\xbf hello " + b"x" * 1_000_000)
    assert isinstance(found, NotAMessage)
    assert str(found).startswith("hello xxx")
    assert len(str(found)) < 10_000
