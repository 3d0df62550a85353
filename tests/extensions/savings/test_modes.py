"""The costs of recorded tasks in each mode."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codemode_mcp.extensions.savings.report import HITS, QUERY_BYTES, bytes_read, costs_by_mode
from codemode_mcp.extensions.savings.tasks import Exposure, Server, Task, Weight
from tests.values import replace

EXPOSURE = Exposure((Server("one", Weight(10, 5000), 4000),), Weight(2, 2000), one_tool=100, searching=Weight(2, 1000))
JOIN = Task(
    "run_1", 0.0, "task", requests=1, sent=300, shown=100, calls=4, repeats=1, arguments=50, results=3000, tools=2
)


def test_a_model_reads_tools_and_conversation_again_in_each_step() -> None:
    assert bytes_read(1000, 0, 0) == 1000
    assert bytes_read(1000, 200, 1) == 2 * 1000 + 200
    assert bytes_read(0, 300, 3) == 100 + 200 + 300


def test_each_mode_counts_its_own_steps() -> None:
    costs = costs_by_mode(EXPOSURE, [JOIN])
    assert costs.code == bytes_read(2000, 400, 1)
    assert costs.search == bytes_read(1000, 3050 + 2 * (HITS * 100 + QUERY_BYTES), 3 + 2)
    assert costs.direct == min(bytes_read(7000, 3050, 3), bytes_read(7000, 400, 1))
    assert (costs.auto, costs.of_auto, costs.best) == ("code", costs.code, "code")


def test_look_ups_cost_only_programs_and_failures_nothing() -> None:
    look_up = replace(JOIN, kind="look-up", calls=0, repeats=0, arguments=0, results=0, tools=0)
    costs = costs_by_mode(EXPOSURE, [look_up, replace(JOIN, kind="failed"), replace(JOIN, kind="refused")])
    assert (costs.code, costs.search, costs.direct) == (bytes_read(2000, 400, 1), 0, 0)


@given(st.integers(0, 20), st.integers(0, 10_000), st.integers(0, 10_000))
def test_more_tools_never_make_direct_cheaper(steps: int, through: int, prompt: int) -> None:
    assert bytes_read(prompt + 1, through, steps) > bytes_read(prompt, through, steps)
