"""Messages between host and guest: they are read as they were written, and all others are rejected."""

from __future__ import annotations

import json
from typing import Any

import pytest
from guest_harness import Cell
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.base.errors import InternalError
from codemode_mcp.base.strict_json import as_javascript, json_text
from codemode_mcp.sandbox import messages
from codemode_mcp.sandbox.engine import Engine
from codemode_mcp.sandbox.messages import Completion, GuestError, decode_turn, deliver_message

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)

REST: dict[str, Any] = {
    "state": "pending", "value": None, "error": None, "fault": None, "calls": [], "outputs": [], "droppedItems": 0,
    "droppedSize": 0, "rejections": [], "unchecked": [], "leftOut": [], "returning": False, "tooLarge": 0,
    "lost": "",
}  # fmt: skip


def report(**parts: Any) -> str:
    return json.dumps({**REST, **parts}, ensure_ascii=False)


@given(st.lists(st.tuples(st.integers(1, 2**31), JSON | st.text().map(lambda t: GuestError(t, name=t)))))
def test_a_delivery_is_valid_json_that_says_what_it_was_given(items: list[tuple[int, Any]]) -> None:
    completions = [
        Completion(number, error=item) if isinstance(item, GuestError) else Completion(number, json_text(item))
        for number, item in items
    ]
    message = json.loads(deliver_message(completions, elapsed_ms=1.5))
    assert message["elapsed"] == 1.5
    for (number, item), told in zip(items, message["completions"], strict=True):
        if isinstance(item, GuestError):
            error = {"name": item.name, "message": item.message, "code": item.code, "data": None}
            assert told == [number, None, error]
        else:
            assert told == [number, item, None]


@given(JSON, st.text(), st.integers(1, 2**31))
def test_a_turn_is_read_as_it_was_written(value: Any, text: str, number: int) -> None:
    calls = [
        {"id": number, "op": "call", "target": text, "count": 1, "input": json.dumps(value)},
        {"id": number, "op": "call_by_id", "target": text, "count": 0},
        {"id": number, "op": "store", "key": text, "value": json.dumps(value)},
        {"id": number, "op": "timer", "ms": 5},
    ]
    outputs = [{"type": "text", "text": text}, {"type": "json", "value": value}]
    turn = decode_turn(report(state="done", value=value, calls=calls, outputs=outputs))
    assert turn.value == value
    assert turn.outputs == tuple(outputs)
    assert turn.requests == (
        messages.ToolCall(number, text, json.dumps(value)),
        messages.ToolCall(number, text, count=0, by_id=True),
        messages.Store(number, text, json.dumps(value)),
        messages.Timer(number, 5),
    )


@given(st.lists(st.integers(1, 2**31)))
def test_a_guest_that_only_waits_says_so_in_short(numbers: list[int]) -> None:
    calls = [{"id": number, "op": "timer", "ms": 5} for number in numbers]
    assert decode_turn(json.dumps({"state": "pending", "calls": calls})) == decode_turn(report(calls=calls))


@pytest.mark.parametrize(
    "text",
    [
        '{"state":"done","calls":[]}',
        '{"state":null,"calls":[]}',
        '{"state":"pending","calls":null}',
        '{"state":"pending","calls":[{"id":1,"op":"format_disk"}]}',
        '{"state":"pending"}',
        '{"state":"pending","calls":[],"value":1}',
        '{"state":"pending","calls":[]}{}',
        '["state","calls"]',
    ],
)
def test_a_short_report_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InternalError):
        decode_turn(text)


@pytest.mark.parametrize(
    "parts",
    [
        {"state": "over"},
        {"calls": {}},
        {"calls": [{"id": 1, "op": "format_disk"}]},
        {"calls": [{"id": "1", "op": "timer", "ms": 1}]},
        {"calls": [{"id": True, "op": "timer", "ms": 1}]},
        {"calls": [{"op": "timer", "ms": 1}]},
        {"calls": [{"id": 1, "op": "call", "target": None, "count": 1}]},
        {"calls": [{"id": 1, "op": "call", "target": "t", "count": 1, "input": {}}]},
        {"calls": ["timer"]},
        {"calls": [{"id": 1, "op": "api_search", "query": "x" * 1025}]},
        {"calls": [{"id": 1, "op": "api_read", "path": "x" * 1025}]},
        {"outputs": [{"type": "text"}]},
        {"outputs": [{"type": "audio", "data": ""}]},
        {"outputs": [{"type": "text", "text": 5}]},
        {"error": {"name": "Error"}},
        {"error": "Error"},
        {"droppedSize": "many"},
        {"rejections": None},
        {"unchecked": None},
        {"unchecked": [{"id": "1", "text": "x"}]},
        {"unchecked": [{"id": 1, "text": None}]},
        {"leftOut": None},
        {"leftOut": [{"tool": None, "parts": "", "taken": "", "count": 1}]},
        {"leftOut": [{"tool": "", "parts": "", "taken": ""}]},
    ],
)
def test_a_report_of_another_form_is_refused_as_a_whole(parts: dict[str, Any]) -> None:
    with pytest.raises(InternalError):
        decode_turn(report(**parts))


@given(st.text() | JSON.map(json.dumps))
def test_whatever_is_read_gives_a_report_or_one_kind_of_error(text: str) -> None:
    try:
        decode_turn(text)
    except InternalError as error:
        assert "sandbox" in error.message  # noqa: PT017  # either way is fine, nothing else is


def test_json_nested_without_end_is_refused() -> None:
    with pytest.raises(InternalError):
        decode_turn(report(value=0).replace('"value": 0', '"value": ' + "[" * 100_000 + "]" * 100_000))


def test_halves_of_surrogate_pairs_are_replaced_and_escapes_of_backslashes_are_not() -> None:
    text = '{"type":"text","text":"\\\\ud800|\\ud800|\\\\\\udfff"}'
    (output,) = decode_turn(json.dumps(REST).replace('"outputs": []', f'"outputs": [{text}]')).outputs
    assert output["text"] == "\\ud800|\ufffd|\\\ufffd"


def test_numbers_that_json_does_not_have_become_null() -> None:
    assert json.loads(json_text({"a": [float("nan"), float("inf"), 1.5]})) == {"a": [None, None, 1.5]}


DATA = st.recursive(
    st.integers(-(10**30), 10**30) | st.floats(-1e15, 1e15) | st.text('0123456789-\\"en.,: ', max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('09,:\\"', max_size=20), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(value=DATA)
def test_a_value_in_the_text_of_a_program_keeps_the_digits_of_its_integers(engine: Engine, value: Any) -> None:
    cell = Cell(engine)
    try:
        assert cell.start(f"return [{as_javascript(value)}]").value == [value]
    finally:
        cell.close()
