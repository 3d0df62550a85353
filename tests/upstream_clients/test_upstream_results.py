"""Outcomes of raw results, checks of untrusted output schemas, and the end of very large results."""

import json
import threading
from itertools import pairwise
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream_clients import jsonrpc, results
from upstream_clients.direct import THREAD_BYTES, read_answer
from upstream_clients.results import LargeResult, free_in_steps, needs_input, read_outcome
from upstream_clients.schemas import compile_check

pytestmark = pytest.mark.anyio

TEXT = {"type": "text", "text": "hi"}


def test_a_good_result_passes_unchanged() -> None:
    raw = {"content": [TEXT], "isError": False, "_meta": {"a": 1}, "vendor": [1]}
    assert read_outcome(raw).result == raw
    assert read_outcome(raw).notes == ()


@pytest.mark.parametrize(
    ("raw", "content"),
    [
        ({"content": "plain"}, [{"type": "text", "text": "plain"}]),
        ({"content": 5}, [{"type": "text", "text": "5"}]),
        ({"content": TEXT}, [TEXT]),
        (
            {"content": [TEXT, "loose", None]},
            [TEXT, {"type": "text", "text": "loose"}, {"type": "text", "text": "null"}],
        ),
        ({}, []),
        ("nothing but text", [{"type": "text", "text": "nothing but text"}]),
        ([1, 2], [{"type": "text", "text": "[1, 2]"}]),
    ],
)
def test_content_of_a_wrong_shape_is_repaired_with_a_note(raw: Any, content: list[Any]) -> None:
    outcome = read_outcome(raw)
    assert outcome.result["content"] == content
    assert len(outcome.notes) == 1


def test_the_raw_result_is_not_changed_by_a_repair() -> None:
    raw = {"content": "plain"}
    read_outcome(raw)
    assert raw == {"content": "plain"}


def test_structured_content_alone_is_nothing_odd() -> None:
    outcome = read_outcome({"structuredContent": {"a": 1}})
    assert outcome.result == {"structuredContent": {"a": 1}, "content": []}
    assert outcome.notes == ()


def test_structured_content_against_the_output_schema_is_kept_and_noted() -> None:
    check = compile_check({"type": "object", "properties": {"count": {"type": "integer"}}})
    outcome = read_outcome({"content": [], "structuredContent": {"count": "many"}}, check)
    assert outcome.result["structuredContent"] == {"count": "many"}
    assert "does not match" in outcome.notes[0]
    assert "/count" in outcome.notes[0]


def test_an_error_result_is_not_held_against_the_output_schema() -> None:
    assert read_outcome({"content": [TEXT], "isError": True}, compile_check({"type": "object"})).notes == ()


def test_an_is_error_that_is_no_boolean_counts_as_an_error() -> None:
    outcome = read_outcome({"content": [], "isError": "no"})
    assert outcome.result["isError"] is True
    assert len(outcome.notes) == 1


def test_a_request_for_input_is_recognised() -> None:
    assert needs_input({"resultType": "input_required"})
    assert not needs_input({"resultType": "complete"})
    assert not needs_input({})


def doubling(levels: int) -> dict[str, Any]:
    """Return a schema where each level refers twice to the next: two to the power of `levels` visits for any value."""
    definitions: dict[str, Any] = {"l0": {"type": "object"}}
    for level in range(1, levels):
        below = {"$ref": f"#/$defs/l{level - 1}"}
        definitions[f"l{level}"] = {"allOf": [below, dict(below)]}
    return {"$defs": definitions, "$ref": f"#/$defs/l{levels - 1}"}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"$ref": "http://127.0.0.1:1/schema.json"}, id="fetches over HTTP"),
        pytest.param({"$ref": "file:///etc/hostname"}, id="reads a file"),
        pytest.param({"pattern": "(?=a)b"}, id="pattern beyond linear time"),
        pytest.param({"type": "nonsense"}, id="no schema"),
        pytest.param(doubling(60), id="doubles at every level"),
        pytest.param(nested(2000), id="very deep"),
    ],
)
def test_a_schema_that_is_not_safe_gives_no_check(schema: dict[str, Any]) -> None:
    assert compile_check(schema) is None


def test_a_recursive_schema_is_a_normal_one() -> None:
    check = compile_check(
        {"$defs": {"n": {"properties": {"next": {"$ref": "#/$defs/n"}}, "type": "object"}}, "$ref": "#/$defs/n"}
    )
    assert check is not None
    assert check({"next": {"next": {}}}) is None
    assert check({"next": {"next": 5}}) is not None


def test_a_schema_with_a_few_shared_definitions_is_a_normal_one() -> None:
    check = compile_check(doubling(4))
    assert check is not None
    assert check({}) is None
    assert check([]) is not None


@pytest.mark.parametrize("text", ["1e999", "-1e999", "1" + "0" * 400, "true", '"1"', "null"])
def test_a_number_that_clients_cannot_be_sent_is_no_progress(text: str) -> None:
    assert jsonrpc.finite(json.loads(text)) is None
    assert jsonrpc.finite(json.loads("1.5")) == 1.5


# Tests that very large results are freed in steps, and that objects with other references stay unchanged.


NESTED = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=30,
)


def containers_of(value: Any) -> list[Any]:
    """Return a value, if it is a container, and all containers in it."""
    found, left = [], [value]
    while left:
        each = left.pop()
        if isinstance(each, (dict, list)):
            found.append(each)
            left.extend(each.values() if isinstance(each, dict) else each)
    return found


@given(NESTED, st.data())
def test_what_is_still_referred_to_stays_as_it_is(value: Any, data: st.DataObject) -> None:
    containers = containers_of(value)
    kept = data.draw(st.sampled_from(containers)) if containers else None
    before = json.dumps(kept)
    parts = [value]
    del value, containers
    free_in_steps(parts)
    assert parts == []
    assert json.dumps(kept) == before


def join_takers() -> None:
    """Wait for the threads that take results apart."""
    for thread in threading.enumerate():
        if thread.name == "large-result":
            thread.join(timeout=30)


def test_a_result_that_is_dropped_is_taken_apart_by_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    monkeypatch.setattr(results, "FREE_IN_STEPS_CHARACTERS", 10)
    monkeypatch.setattr(results, "free_in_steps", lambda parts: taken.append(len(parts)))
    kept = ["kept"]
    result = LargeResult({"content": kept, "more": [1]}, "x" * 10)
    small = LargeResult({"content": kept}, "x")
    del result, small
    join_takers()
    assert taken == [2]
    assert kept == ["kept"]


async def test_others_run_while_a_large_answer_is_read_and_freed() -> None:
    # Decoding takes longest for escapes, freeing for rows.
    texts = 'a "line"\n' * 2_000_000
    rows = [{"id": number, "name": "row"} for number in range(300_000)]
    turns, steps = 0, [0]
    async with anyio.create_task_group() as tasks:

        async def count() -> None:
            nonlocal turns
            while True:
                await anyio.lowlevel.checkpoint()
                turns += 1

        tasks.start_soon(count)
        for result in ({"content": [{"type": "text", "text": texts}]}, {"content": [], "structuredContent": rows}):
            line = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()
            assert len(line) > results.FREE_IN_STEPS_CHARACTERS > THREAD_BYTES
            read = await anyio.to_thread.run_sync(read_answer, line)
            assert read is not None
            assert read[1].result == result
            outcome = read_outcome(read[1].result)
            steps.append(turns)
            del read, outcome
            await anyio.to_thread.run_sync(join_takers)
            steps.append(turns)
        tasks.cancel_scope.cancel()
    read_text, _, read_rows, freed_rows = (after - before for before, after in pairwise(steps))
    # With an uninterrupted decoder there would be two or three.
    assert min(read_text, read_rows, freed_rows) > 8
