"""Tests that direct requests read answers of any spelling with the same meaning as the SDK's models."""

import json
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import anyio
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError

from tests.properties import examples
from upstream_clients import direct
from upstream_clients.direct import Answer, DirectRequests, Refusal, read_answer
from upstream_clients.dispatcher import Dispatcher
from upstream_clients.jsonrpc import form_of, key_of
from upstream_clients.line_messages import Incoming, LineBuffer, read_message
from upstream_clients.question_routing import ConnectionQuestions
from upstream_clients.sse import EventBuffer

pytestmark = pytest.mark.anyio

FIRST = 1 << 40
"""The id of the first request on a connection."""

REQUESTS = 3

TEXTS = st.text(st.characters(), max_size=8) | st.sampled_from(
    ["\ud83d", "\ude00 \ud83d", "\U0001f600", 'a "quoted" \\ud83d', "\x00\x1f\x7f\u2028", '"},{"id":1', "\r\n"]
)
"""Texts with halves of surrogate pairs, and with characters that look like the end of a string."""
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
RESULTS = st.dictionaries(st.sampled_from(["content", "isError", "structuredContent", "_meta", "id"]), VALUES)
IDS = st.one_of(
    st.integers(FIRST, FIRST + REQUESTS - 1),
    st.integers(FIRST, FIRST + REQUESTS - 1).map(str),
    st.integers(FIRST, FIRST + REQUESTS - 1).map(float),
    st.sampled_from([0, 1, -1, FIRST + REQUESTS, "a", None, 1.5, True]),
)


@st.composite
def answers(draw: st.DrawFn) -> dict[str, Any]:
    """Return the members of an answer, in any order, sometimes with one too many or without one."""
    members: dict[str, Any] = {"jsonrpc": "2.0", "id": draw(IDS)}
    if draw(st.integers(0, 5)):
        members["result"] = draw(RESULTS) if draw(st.integers(0, 9)) else draw(VALUES)
    else:
        members["error"] = {"code": draw(st.integers(-40000, 0)), "message": draw(TEXTS)}
    if not draw(st.integers(0, 9)):
        members["more"] = draw(VALUES)
    if not draw(st.integers(0, 19)):
        del members[draw(st.sampled_from(sorted(members)))]
    order = draw(st.permutations(list(members))) if draw(st.booleans()) else list(members)
    return {name: members[name] for name in order}


OTHERS = st.sampled_from(
    [
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}},
        {"jsonrpc": "2.0", "id": FIRST, "method": "ping"},
        {"jsonrpc": "2.0", "id": 7, "method": "roots/list", "params": {"result": {}}},
    ]
)


@st.composite
def written(draw: st.DrawFn) -> bytes:
    """Return a message as a line, in one of many ways to write it, sometimes with a byte of it broken."""
    message = draw(answers()) if draw(st.integers(0, 4)) else draw(OTHERS)
    text = json.dumps(
        message,
        ensure_ascii=draw(st.booleans()),
        separators=draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")])),
    )
    if "result" in message and not draw(st.integers(0, 9)):  # a member twice
        text = text[:-1] + ',"result":{"twice":1}}'
    if not draw(st.integers(0, 9)):
        text = text.replace(str(FIRST), "0" + str(FIRST)).replace("[]", "[01]")
    text = draw(st.sampled_from(["", "", "", " ", "\t", "\r", "\u00a0", "\ufeff", "\x0b", "[", "log: "])) + text
    text += draw(st.sampled_from(["", "", "", " ", "\r", "\u00a0", "}", ",", " {}"]))
    line = text.encode("utf-8", "surrogatepass").replace(b"\n", b" ")
    if draw(st.integers(0, 9)):
        return line
    place = draw(st.integers(0, len(line) - 1))
    return draw(
        st.sampled_from([line[:place], line[:place] + b"\xff" + line[place:], line[:place] + line[place + 1 :]])
    )


def read_by_models(line: bytes) -> Incoming:
    """Read a line by the SDK's models, and by our repairs if they refuse it."""
    try:
        model = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        return read_message(line)
    message: dict[str, Any] = model.model_dump(by_alias=True, mode="json", exclude_unset=True)
    return message


def by_models(lines: list[bytes]) -> dict[int, list[Any]]:
    """Return the answer of each request, if every line becomes a model."""
    pending, outcomes = set(range(FIRST, FIRST + REQUESTS)), dict[int, list[Any]]()
    for line in lines:
        item = read_by_models(line)
        if isinstance(item, Exception) or form_of(item) not in ("result", "error"):
            continue
        if item.get("id") is not None:
            request_id = key_of(item["id"])
        elif len(pending) == 1:
            (request_id,) = pending
        else:
            continue
        if request_id in pending and isinstance(request_id, int):
            pending.discard(request_id)
            if "result" in item:
                outcomes[request_id] = [item["result"]]
            else:
                error = item["error"]
                said = error["message"] or "an error without a message"
                outcomes[request_id] = [error["code"], said, error.get("data")]
    return outcomes


def by_take(lines: list[bytes], cuts: list[int]) -> tuple[dict[int, list[Any]], list[Answer]]:
    """Return the answer of each direct request, if the lines come in pieces; and all answers."""
    requests, outcomes, read = DirectRequests(lambda _: None), dict[int, list[Any]](), list[Answer]()

    def on_answer(request_id: int) -> Callable[[Answer | Refusal | None], None]:
        def note(answer: Answer | Refusal | None) -> None:
            assert request_id not in outcomes
            match answer:
                case Answer():
                    read.append(answer)
                    outcomes[request_id] = [answer.result]
                case Refusal():
                    outcomes[request_id] = list(answer)

        return note

    for number in range(REQUESTS):
        assert requests.send("tools/call", {}, on_answer(FIRST + number)) == FIRST + number
    stream = b"".join(line + b"\n" for line in lines)
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    buffer = LineBuffer()
    dispatcher = Dispatcher(
        cast("Any", None),
        over=anyio.Event(),
        questions=ConnectionQuestions(roots=None),
        on_list_changed=lambda _: None,
        direct=requests,
    )
    for begin, end in pairwise(places):
        for line in buffer.feed(stream[begin:end]):
            assert isinstance(line, bytes)
            item = None if requests.take(line) else read_message(line)
            if isinstance(item, dict) and form_of(item) in ("result", "error"):
                dispatcher._take_answer(item)
    return outcomes, read


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(written(), max_size=6), st.lists(st.integers(0, 1000), max_size=8))
async def test_requests_get_the_answers_that_models_would_read_for_them(lines: list[bytes], cuts: list[int]) -> None:
    outcomes, read = by_take(lines, cuts)
    assert outcomes == by_models(lines)
    for answer in read:
        if answer.text is not None:
            assert json.loads(answer.text) == answer.result


@settings(max_examples=200, deadline=None)
@given(RESULTS, st.booleans())
async def test_an_answer_in_a_usual_form_is_read_past_the_dispatcher_with_its_own_text(
    result: dict[str, Any], result_first: bool
) -> None:
    text = json.dumps(result, ensure_ascii=False)
    ends = (f'"jsonrpc": "2.0", "id": {FIRST}', f'"result": {text}')
    line = f"{{{', '.join(reversed(ends) if result_first else ends)}}}".encode("utf-8", "surrogatepass")
    if "\\ud" in text.lower() or any("\ud800" <= each <= "\udfff" for each in text):
        return  # half of a surrogate pair has to be replaced, so the models read it
    assert read_answer(line) == (FIRST, Answer(result, text))


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "1" * 5000, "[" * 5000 + "]" * 5000])
async def test_numbers_and_nesting_that_json_of_programs_does_not_have_are_left_to_the_dispatcher(value: str) -> None:
    line = f'{{"jsonrpc":"2.0","id":{FIRST},"result":{{"a":{value}}}}}'.encode()
    assert read_answer(line) is None


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":0%d,"result":{}}',
        '\u00a0{"jsonrpc":"2.0","id":%d,"result":{}}',
        '{"jsonrpc":"2.0","id":%d,"result":{}}\u2003',
        '{"jsonrpc":"2.0","id":\u0661%d,"result":{}}',
    ],
)
async def test_what_only_looks_like_json_is_none(line: str) -> None:
    assert read_answer((line % FIRST).encode()) is None


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(TEXTS | st.sampled_from(["\\\\\\\\", '\\"' * 4, "\n" * 9, "x" * 30]), max_size=6).map("".join),
    st.dictionaries(st.sampled_from(["type", "text", "more"]), VALUES, max_size=2),
    st.sampled_from(
        [
            '{"content":[{"type":"text","text":%s}]}',
            '{"content" : [ { "text" : %s , "type" : "text" } , 1 ] }',
            '{"content":[{"text":%s,"text":""}]}',
            '{"content":[{"text":%s}],"content":5}',
            '{"content":[{"text":%s,"text":5}],"isError":false}',
            '{"content":[{"text":%s}',
            '{"content":[{"text":%s',
        ]
    ),
    st.booleans(),
)
async def test_large_answers_are_read_in_pieces_to_the_same_end(
    text: str, more: dict[str, Any], form: str, cut_off: bool
) -> None:
    printed = json.dumps(text, ensure_ascii=False)
    result = form % (printed[:-1] if cut_off else printed)
    line = f'{{"jsonrpc":"2.0","id":{FIRST},"result":{result}}}'.encode("utf-8", "surrogatepass")
    small = read_answer(line)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direct, "THREAD_BYTES", 0)
        patch.setattr(direct, "_PIECE", 7)
        assert read_answer(line) == small


async def test_a_request_that_is_given_up_in_the_round_that_makes_it_is_never_written() -> None:
    lines: list[bytes] = []
    requests = DirectRequests(lines.append)
    first = requests.send("tools/call", {"name": "first"}, lambda _: None)
    second = requests.send("tools/call", {"name": "second"}, lambda _: None)
    assert first is not None
    assert second is not None
    requests.cancel(first)
    await anyio.wait_all_tasks_blocked()
    requests.cancel(second)
    requests.cancel(second)
    await anyio.wait_all_tasks_blocked()
    told = [json.loads(line) for data in lines for line in data.splitlines()]
    assert [(each["method"], each["params"].get("requestId")) for each in told] == [
        ("tools/call", None),
        ("notifications/cancelled", second),
    ]


FIELDS = st.sampled_from(
    (
        *("data: a", "data:b", "data", "data: ", "event: message", "event:ping", "id: 1", "id: \0", "retry: 5"),
        *("retry: x", "", "", "", "", ": a comment", "other: c", "data: \u00e4\u2028\U0001f600", "\u00e4"),
    )
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(FIELDS, st.sampled_from(["\n", "\r\n", "\r"]))), st.lists(st.integers(0, 200)), st.booleans())
async def test_events_are_those_that_the_sdk_reads_whatever_pieces_they_come_in(
    lines: list[tuple[str, str]], cuts: list[int], ends: bool
) -> None:
    content = "".join(line + end for line, end in lines).encode() + (b"" if ends else b"data: unfinished")
    request = httpx2.Request("GET", "http://srv")
    kind = {"content-type": "text/event-stream"}
    response = httpx2.Response(200, headers=kind, content=content, request=request)
    expected = [(each.event, each.data, each.id, each.retry) for each in httpx2.EventSource(response)]
    buffer = EventBuffer(10_000)
    places = sorted({0, len(content), *(cut % (len(content) + 1) for cut in cuts)})
    events = [event for begin, end in pairwise(places) for event in buffer.feed(content[begin:end])]
    events.extend(buffer.close())
    assert [(each.name, str(each.data, "utf-8"), each.identity, each.retry) for each in events] == expected


async def test_an_event_beyond_the_limit_is_refused_before_it_has_come_whole() -> None:
    buffer = EventBuffer(100)
    assert [event.data for event in buffer.feed(b"data: " + b"x" * 94 + b"\n\n")] == [b"x" * 94]
    assert list(buffer.feed(b"data: " + b"x" * 94)) == []
    with pytest.raises(httpx2.SSEError, match="exceeded the 100 byte limit"):
        list(buffer.feed(b"x"))


async def test_a_byte_order_mark_before_the_first_event_is_left_out() -> None:
    stream = b"\xef\xbb\xbfdata: first\n\ndata: \xef\xbb\xbfsecond\n\n"
    for size in (1, 2, 3, len(stream)):
        buffer = EventBuffer(1000)
        pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
        found = [bytes(event.data) for piece in pieces for event in buffer.feed(piece)]
        assert found == [b"first", b"\xef\xbb\xbfsecond"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":012,"result":{}}',
        b'{"jsonrpc":"2.0","id":"a\x01","result":}',
        b'{"jsonrpc":"2.0","id":true}',
        b'{"jsonrpc":"2.0","id":true,"result":{"a":"\\ud83d"}}',
        '{"jsonrpc":"2.0","id":\u0661,"result":}'.encode(),
    ],
)
async def test_a_line_that_names_a_request_in_a_wrong_way_ends_no_connection(line: bytes) -> None:
    assert isinstance(read_message(line), Exception)


async def test_an_error_with_half_a_character_is_the_answer_to_its_request() -> None:
    line = b'{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"\\ud83d"}}'
    item = read_message(line)
    assert isinstance(item, dict)
    assert (item["id"], item["error"]["message"]) == (7, "\ufffd")


@pytest.mark.parametrize("progress", [10**400, -(10**400), True, "1", None, [], float("nan")])
async def test_progress_that_is_no_number_ends_no_connection(progress: object) -> None:
    told: list[float] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        told.append(done)

    requests = DirectRequests(lambda _: None)
    request_id = requests.send("tools/call", {}, lambda _: None, on_progress)
    dispatcher = Dispatcher(
        cast("Any", SimpleNamespace(last_context=None)),
        over=anyio.Event(),
        questions=ConnectionQuestions(roots=None),
        on_list_changed=lambda _: None,
        direct=requests,
    )
    async with anyio.create_task_group() as dispatcher._group:
        for each in (progress, 1):
            dispatcher._take_notification(
                "notifications/progress", {"progressToken": request_id, "progress": each, "total": progress}
            )
    assert told[-1] == 1.0
