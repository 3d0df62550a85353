"""Completions that wait to be delivered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codemode_mcp.runs.run import SettledQueue
from codemode_mcp.sandbox.messages import Completion


@given(st.lists(st.one_of(st.none(), st.text())))
def test_the_size_is_that_of_what_has_not_been_taken(steps: list[str | None]) -> None:
    queue, expected = SettledQueue(), []
    for number, text in enumerate(steps):
        if text is not None:
            completion = Completion(number, text)
            queue.append(completion)
            expected.append(completion)
        elif expected:
            assert queue.popleft() is expected.pop(0)
        assert (list(queue), queue.size) == (expected, sum(completion.size for completion in expected))
