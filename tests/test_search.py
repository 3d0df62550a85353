"""Ranking."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codemode_mcp.search import Document, Index, words


def test_names_are_split_at_case_and_punctuation() -> None:
    assert words("createIssue") == words("create_issue") == words("Create  Issues!") == ["create", "issue"]
    assert words("getHTTPResponse2") == ["get", "http", "response", "2"]


def index(*texts: str) -> Index:
    return Index([Document(text, text, ((3.0, text),)) for text in texts])


def test_the_exact_name_comes_first_and_ties_keep_their_order() -> None:
    found = index("list issue comments", "list issues", "list issue events").search("listIssues", 3)
    assert [key for key, _ in found] == ["list issues", "list issue comments", "list issue events"]


def test_what_shares_no_word_is_not_found() -> None:
    assert index("create issue").search("weather", 3) == []


@given(st.text(), st.lists(st.text(), max_size=5), st.integers(1, 5))
def test_any_query_gives_at_most_the_limit_of_known_keys(query: str, texts: list[str], limit: int) -> None:
    found = index(*texts).search(query, limit)
    assert len(found) <= limit
    assert {key for key, _ in found} <= set(texts)
