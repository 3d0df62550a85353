"""Tests of how much of a result a model comes to see."""

from __future__ import annotations

from typing import Any

import pytest

from codemode_mcp.audit.sizes import of_arguments, seen


@pytest.mark.parametrize(
    ("result", "fields"),
    [
        ({"content": [{"type": "text", "text": "naïve"}]}, {"text_bytes": 6}),
        ({"content": [], "structuredContent": {"a": 1}}, {"text_bytes": 0, "structured_bytes": 7}),
        ({"structuredContent": None, "content": [{"type": "image", "data": "AAAA"}]}, {"text_bytes": 0}),
        ({"content": [{"type": "resource", "resource": {"text": "abc"}}]}, {"text_bytes": 3}),
        ({"content": [{"type": "resource", "resource": {"blob": "AAAA"}}]}, {"text_bytes": 0}),
        ({"content": [{"type": "resource_link"}, 7, "\ud800"]}, {"text_bytes": 24 + 1 + 5}),
        ({"contents": [{"text": "of a resource"}]}, {}),
        ({"content": "no list"}, {}),
        ([1], {}),
        ("text", {}),
    ],
    ids=str,
)
def test_text_counts_by_its_bytes_and_pictures_as_nothing(result: Any, fields: dict[str, int]) -> None:
    assert seen(result) == fields


def test_arguments_count_as_the_json_that_was_written() -> None:
    assert of_arguments({"code": 'return "ä"'}) == len('{"code":"return \\"ä\\""}'.encode())
