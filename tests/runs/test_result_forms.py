"""Stored results in the forms that clients save."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode_mcp.base.strict_json import compact_json
from codemode_mcp.runs.values import OTHER, ResultForm, binary_value, contents_of

TEXTS = st.text(st.characters(codec="utf-8"), max_size=50)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_a_string_is_saved_as_text_and_any_other_value_as_json(value: Any) -> None:
    found = contents_of(compact_json(value))
    assert found.blob is None
    assert found.text is not None
    assert found.form.size == len(found.text.encode())
    if isinstance(value, str):
        assert (found.text, found.form.mime_type, found.form.extension) == (value, "text/plain", "txt")
    else:
        facts = (json.loads(found.text), found.form.mime_type, found.form.extension)
        assert facts == (value, "application/json", "json")


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_printed_texts_are_saved_as_one_text(texts: list[str]) -> None:
    found = contents_of(compact_json([{"type": "text", "text": each} for each in texts]))
    assert (found.text, found.form.mime_type) == ("\n".join(texts), "text/plain")


def test_texts_among_other_outputs_stay_json() -> None:
    for other in ({"type": "json", "value": 1}, {"type": "text", "text": 1}, {"type": "text", "text": "", "more": 1}):
        stored = compact_json([{"type": "text", "text": "a"}, other])
        assert contents_of(stored).text == stored


def test_half_of_a_surrogate_pair_can_be_sent() -> None:
    assert contents_of('"a\\ud83d"').text == "a\ufffd"
    assert contents_of('["\ud83d"]').text == '["\ufffd"]'


@pytest.mark.parametrize(
    ("claimed", "told"),
    [
        ("image/png", "image/png"),
        ("IMAGE/JPEG; charset=x\nX-Other: y", "image/jpeg"),
        ("application/pdf", "application/pdf"),
        ("audio/wav", "audio/wav"),
        ("image/svg+xml", OTHER),
        ("text/html", OTHER),
        ("text/plain", OTHER),
        ("application/json", OTHER),
        ("application/xhtml+xml", OTHER),
        ("application/x-sh", OTHER),
        ("image/png\r\nx", OTHER),
        ("", OTHER),
        ("image/png" + " " * 10_000 + "x", OTHER),
    ],
)
def test_binary_data_has_a_mime_type_that_no_client_executes(claimed: str, told: str) -> None:
    data = bytes(range(256))
    found = contents_of(compact_json(binary_value(claimed, base64.urlsafe_b64encode(data).decode().rstrip("="))))
    assert found.form == ResultForm(told, 256)
    assert found.blob is not None
    assert base64.b64decode(found.blob, validate=True) == data


@pytest.mark.parametrize(
    "value",
    [
        {"mimeType": "image/png", "data": "not base64!"},
        {"mimeType": "image/png", "data": ""},
        {"mimeType": "image/png", "data": 1},
        {"mimeType": 1, "data": "QUJD"},
        {"mimeType": "image/png"},
        {"mimeType": "image/png", "data": "QUJD", "caption": "a chart"},
    ],
)
def test_a_value_that_only_looks_like_binary_data_is_json(value: dict[str, Any]) -> None:
    found = contents_of(compact_json(value))
    assert (found.text, found.form.mime_type) == (compact_json(value), "application/json")
