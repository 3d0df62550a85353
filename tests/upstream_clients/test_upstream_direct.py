"""The tests of servers over stdio again, with direct calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import test_upstream_hostile as hostile
import test_upstream_life as life
import test_upstream_nasty as nasty_servers
import test_upstream_questions as questions
import test_upstream_stdio as stdio
from direct_pool import DirectPool, strictly_direct_pool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from upstream_clients import UpstreamPool
    from upstream_clients.tools import ToolOutcome

pytestmark = pytest.mark.anyio


@pytest.fixture
def pool_of() -> Any:
    """Replace the pool of the tests below."""
    return strictly_direct_pool


@pytest.fixture
def sdk_pool(shared_pool: UpstreamPool) -> Iterator[DirectPool]:
    """Replace the shared pool of the tests below. Fail at the end of a test that has sent no call directly."""
    pool = DirectPool(shared_pool)
    yield pool
    pool.check_direct()


asking_server = questions.asking_server
nasty = nasty_servers.nasty
impatient = nasty_servers.impatient
cache = life.cache
starts = life.starts

test_a_modern_server_is_connected_listed_and_called = stdio.test_a_modern_server_is_connected_listed_and_called
test_a_legacy_server_is_connected_listed_and_called = stdio.test_a_legacy_server_is_connected_listed_and_called
test_calls_overlap = stdio.test_calls_overlap
test_cancelling_the_caller_cancels_the_call_upstream = stdio.test_cancelling_the_caller_cancels_the_call_upstream
test_a_call_that_takes_too_long_says_so = stdio.test_a_call_that_takes_too_long_says_so_and_is_cancelled_upstream
test_a_call_without_a_limit_has_that_of_the_server = stdio.test_a_call_without_a_limit_of_its_own_has_that_of_the_server
test_progress_of_a_call_reaches_its_caller = stdio.test_progress_of_a_call_reaches_its_caller
test_a_change_of_the_tools_is_noticed = stdio.test_a_change_of_the_tools_is_noticed
test_a_request_for_user_input_is_an_error_that_says_so = stdio.test_a_request_for_user_input_is_an_error_that_says_so
test_a_result_against_its_schema_is_delivered_with_a_note = (
    stdio.test_a_result_against_the_tools_own_schema_is_delivered_with_a_note
)

test_junk_on_stdout_is_no_obstacle = hostile.test_junk_on_stdout_is_no_obstacle
test_an_answer_that_is_no_json_rpc_fails_its_call_alone = (
    hostile.test_an_answer_that_is_no_json_rpc_fails_its_call_alone
)
test_a_crash_rejects_the_calls_in_flight = (
    hostile.test_a_crash_rejects_the_calls_in_flight_together_and_the_next_one_works
)

test_a_stopped_process_is_replaced = nasty_servers.test_a_stopped_process_is_replaced_after_a_call_has_timed_out
test_calls_to_a_hung_server_end_with_what_is_known = nasty_servers.test_calls_to_a_hung_server_end_with_what_is_known
test_a_server_that_is_killed_leaves_nothing_behind = (
    nasty_servers.test_a_server_that_is_killed_leaves_nothing_behind_and_is_replaced
)
test_a_result_that_is_too_large_costs_its_own_call_alone = (
    nasty_servers.test_a_result_that_is_too_large_costs_its_own_call_alone
)
test_integers_keep_their_digits = nasty_servers.test_integers_keep_their_digits_or_are_refused_with_the_reason
test_a_large_result_arrives_whole = nasty_servers.test_a_large_result_arrives_whole

test_a_question_reaches_its_call_unread = questions.test_a_question_reaches_its_call_unread_and_so_does_the_answer
test_questions_of_one_call_are_open_at_the_same_time = questions.test_questions_of_one_call_are_open_at_the_same_time
test_what_is_refused_is_an_error_that_says_why = questions.test_what_is_refused_is_an_error_that_says_why
test_a_call_for_which_no_user_can_be_asked_gets_an_error = (
    questions.test_a_call_for_which_no_user_can_be_asked_gets_an_error
)
test_a_question_that_names_no_call_goes_to_the_run_of_all_calls = (
    questions.test_a_question_that_names_no_call_goes_to_the_run_of_all_calls
)
test_a_question_that_may_be_another_runs_is_refused = (
    questions.test_a_question_that_may_be_another_runs_is_refused_and_then_runs_take_turns
)
test_a_call_that_was_given_up_may_still_ask_but_never_another_run = (
    questions.test_a_call_that_was_given_up_may_still_ask_but_never_another_run
)
test_a_server_that_dies_takes_its_questions_along = questions.test_a_server_that_dies_takes_its_questions_along
test_a_server_takes_its_question_back = questions.test_a_server_takes_its_question_back
test_a_call_that_is_given_up_takes_its_questions_along = (
    questions.test_a_call_that_is_cancelled_or_times_out_takes_its_questions_along
)
test_progress_continues_while_a_question_is_open = questions.test_progress_continues_while_a_question_is_open
test_the_time_of_a_call_stands_still_while_its_question_is_open = (
    questions.test_the_time_of_a_call_stands_still_while_its_question_is_open
)
test_a_call_that_hangs_after_its_question_times_out = questions.test_a_call_that_hangs_after_its_question_times_out
test_a_flood_of_questions_is_cut_off = questions.test_a_flood_of_questions_is_cut_off
test_a_call_is_repeated_when_its_user_has_been_to_a_url = (
    questions.test_a_call_is_repeated_when_its_user_has_been_to_a_url
)
test_a_url_that_is_not_gone_to_fails_the_call = questions.test_a_url_that_is_not_gone_to_fails_the_call
test_a_call_is_repeated_with_all_answers_and_the_state_as_it_was = (
    questions.test_a_call_is_repeated_with_all_answers_and_the_state_as_it_was
)
test_a_server_that_never_has_enough_is_given_up = questions.test_a_server_that_never_has_enough_is_given_up
test_one_refused_answer_takes_the_others_back = (
    questions.test_one_refused_answer_takes_the_other_questions_of_its_round_back
)
test_an_answer_that_asks_wrongly_fails_its_call = (
    questions.test_an_answer_that_asks_wrongly_fails_its_call_and_no_user_is_asked
)
test_cancelling_a_modern_call_takes_its_question_back = questions.test_cancelling_a_modern_call_takes_its_question_back

test_calls_to_a_server_that_is_removed_end_immediately = (
    life.test_calls_in_flight_to_a_server_that_is_removed_end_immediately
)


async def test_large_results_keep_the_text_of_the_server_whatever_carries_the_call(nasty: Any, pool_of: Any) -> None:
    async with pool_of(nasty()) as pool:
        source = pool.source("srv")
        for call in (source.call_tool, source._source.call_tool):
            outcome: ToolOutcome = await call("large", {"bytes": 2_000_000}, timeout=30)
            assert outcome.text is not None
            assert json.loads(outcome.text) == outcome.result
            assert len(outcome.result["content"][0]["text"]) == 2_000_000
