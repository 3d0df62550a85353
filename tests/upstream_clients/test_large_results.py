"""Tests that very large results are freed in steps, and that objects with other references stay unchanged."""

import json
import threading
from itertools import pairwise
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream_clients import results
from upstream_clients.direct import THREAD_BYTES, read_answer
from upstream_clients.results import LargeResult, free_in_steps, read_outcome

pytestmark = pytest.mark.anyio

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
