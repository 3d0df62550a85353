"""The texts with which requests are answered that an earlier process has left unanswered."""

import pytest

from codemode_mcp.runs.state import RunState
from codemode_mcp.server.code_mode import Interrupted, interruption

RUN = "run_1"
STATES: list[RunState | None] = ["waiting", "completed", "failed", "aborted", "expired", None]


def text(
    run_id: str | None, dispatched: bool, state: RunState | None, *, named: str | None = None, failure: str = ""
) -> str:
    error = interruption(Interrupted(run_id, dispatched), named or run_id, state, failure, waited=named is not None)
    assert error.code == "aborted"
    assert error.message.startswith("The server process ended before it had answered. ")
    return error.message


def test_an_exec_without_a_run_is_called_again() -> None:
    assert text(None, False, None).endswith(" None of the program's calls was sent. Call exec again.")


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("dispatched", [False, True])
@pytest.mark.parametrize("named", [None, RUN])
@pytest.mark.parametrize("run_id", [RUN, None])
def test_nothing_was_sent_is_said_only_if_it_is_known(
    state: RunState | None, dispatched: bool, named: str | None, run_id: str | None
) -> None:
    if run_id is None and named is None:
        return
    found = text(run_id, dispatched, state, named=named)
    unsent = run_id is not None and not dispatched
    assert ("None of its calls was sent. Call exec again." in found) is (state is None and unsent)
    assert ("may have had effects" in found) is (not unsent and state in ("waiting", None))
    again = " again" if named else ""
    assert (f'call wait{again} with runId "run_1"' in found) is (state is not None)
    assert ("Do not call exec" in found) is (state == "waiting")


def test_a_store_that_does_not_answer_leaves_both_ways_open() -> None:
    found = text(RUN, True, None, failure="the store does not answer")
    assert 'Call wait with runId "run_1". If there is no such run, the program has ended. Some of its calls' in found


def test_a_run_id_of_a_client_is_escaped_and_cut() -> None:
    found = text(None, False, None, named='"\n' + "x" * 1000, failure="away")
    assert "\n" not in found
    assert '"\\"\\n' in found
    assert len(found) < 600
