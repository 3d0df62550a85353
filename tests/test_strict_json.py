"""JSON that we have written ourselves is taken in its exact form, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from codemode_mcp.errors import ProgramError
from codemode_mcp.strict_json import MOST, Fields, first_of, integer, items, number, parsed, strictly, text, written

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("read", "raw", "value"),
    [
        (text, '"a"', "a"),
        (integer, "-3", -3),
        (integer, str(MOST - 1), MOST - 1),
        (number, "3", 3.0),
        (number, "1.5", 1.5),
        (items, "[]", []),
        (lambda raw: items(raw, 2), "[1, 2]", [1, 2]),
        (lambda raw: Fields(raw).flag("a"), '{"a": true}', True),
        (lambda raw: Fields(raw).text_or_none("a"), '{"a": null}', None),
        (lambda raw: Fields(raw).one_of("a", ("x", "y")), '{"a": "y"}', "y"),
    ],
)
def test_what_has_the_form_is_given(read: Callable[[Any], object], raw: str, value: object) -> None:
    assert read(parsed(raw)) == value


@pytest.mark.parametrize(
    ("read", "raw"),
    [
        (text, "1"),
        (integer, "1.0"),
        (integer, "true"),
        (integer, str(MOST)),
        (integer, str(-MOST)),
        (number, "true"),
        (number, '"1"'),
        (number, "1e999"),
        (number, "-1e999"),
        (number, str(MOST)),
        (number, "NaN"),
        (number, "Infinity"),
        (items, "{}"),
        (lambda raw: items(raw, 2), "[1]"),
        (lambda raw: items(raw, 2), "[1, 2, 3]"),
        (Fields, "[]"),
        (lambda raw: Fields(raw).end(), '{"a": 1}'),
        (lambda raw: Fields(raw).any("a"), "{}"),
        (lambda raw: Fields(raw).flag("a"), '{"a": 1}'),
        (lambda raw: Fields(raw).one_of("a", ("x", "y")), '{"a": "z"}'),
        (lambda raw: Fields(raw).object("a"), '{"a": null}'),
        (lambda raw: raw, "["),
        (lambda raw: raw, "[" * 100_000),
    ],
)
def test_what_has_not_is_refused_with_one_kind_of_error(read: Callable[[Any], object], raw: str) -> None:
    with pytest.raises(ProgramError, match="it is damaged"), strictly(lambda why: ProgramError("invalid_input", why)):
        read(parsed(raw))


def test_a_member_is_taken_once() -> None:
    fields = Fields({"a": 1})
    fields.integer("a")
    fields.end()
    with pytest.raises(KeyError):
        fields.integer("a")


def test_the_first_of_a_list_is_read_without_the_others() -> None:
    assert first_of('[{"a": 1}, and more') == {"a": 1}
    with pytest.raises(ProgramError), strictly(lambda why: ProgramError("invalid_input", why)):
        first_of('{"a": 1}')


def test_what_is_nested_too_deep_is_refused_by_name() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ProgramError) as refused:
        written(nested)
    assert refused.value.code == "snapshot_limit_exceeded"
