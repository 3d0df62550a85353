"""The URIs and cursors of stored results."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codemode_mcp.runs.values import ListedResult, new_ref
from codemode_mcp.server.exposure.apps import cursor_after, number_before, ref_of, result_uri


def test_the_uri_of_a_result_names_its_ref() -> None:
    ref = new_ref()
    assert ref_of(result_uri(ref)) == ref


@given(st.text() | st.from_regex(r"(?i)codemode://results/[0-9a-f]{15,17}\n?"))
@example("codemode://results/" + "٣" * 16)
def test_no_two_uris_name_one_result(uri: str) -> None:
    ref = ref_of(uri)
    assert ref is None or result_uri(ref) == uri


@given(st.integers(1, 10**18 - 1))
def test_a_cursor_has_the_number_of_the_last_result(number: int) -> None:
    assert number_before(cursor_after(ListedResult("result:x", number, None))) == number


@pytest.mark.parametrize("cursor", [None, "", "results:", "results:0", "results:01", "results:-1", "results:1\n"])
def test_any_other_cursor_is_not_one_of_results(cursor: str | None) -> None:
    assert number_before(cursor) is None


def test_a_number_that_no_database_takes_is_no_cursor() -> None:
    assert number_before("results:" + "9" * 19) is None
