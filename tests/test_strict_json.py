"""JSON of our own is accepted only in its exact form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pytest

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.base.strict_json import (
    Form,
    Integer,
    Number,
    ascii_json,
    convert_versioned,
    first_element,
    form_from,
    parse_json,
    rejecting_damage,
)

MOST = 2**53


class Point(Form, rename={"x_value": "x"}):
    x_value: Integer
    name: str | None


def refused(why: str) -> ProgramError:
    return ProgramError("invalid_input", why)


@pytest.mark.parametrize(
    ("form", "raw", "value"),
    [
        (str, '"a"', "a"),
        (str, r'"\ud800"', "\ud800"),
        (Integer, "-3", -3),
        (Integer, str(MOST - 1), MOST - 1),
        (Number, "3", 3.0),
        (Number, "1.5", 1.5),
        (list[int], "[]", []),
        (tuple[int, int], "[1, 2]", (1, 2)),
        (bool, "true", True),
        (str | None, "null", None),
        (Literal["x", "y"], '"y"', "y"),
        (Point, '{"x": 1, "name": null}', Point(1, None)),
    ],
)
def test_what_has_the_form_is_given(form: Any, raw: str, value: object) -> None:
    assert msgspec.convert(parse_json(raw), form) == value


@pytest.mark.parametrize(
    ("form", "raw"),
    [
        (str, "1"),
        (Integer, "1.0"),
        (Integer, "true"),
        (Integer, str(MOST)),
        (Integer, str(-MOST)),
        (Integer, "1" * 400),
        (Integer, "1" * 5000),
        (Number, "true"),
        (Number, '"1"'),
        (Number, "1e999"),
        (Number, "-1e999"),
        (Number, str(MOST)),
        (Number, "NaN"),
        (Number, "Infinity"),
        (list[int], "{}"),
        (tuple[int, int], "[1]"),
        (tuple[int, int], "[1, 2, 3]"),
        (bool, "1"),
        (Literal["x", "y"], '"z"'),
        (Literal["x", "y"], r'"\ud800"'),
        (Point, "[]"),
        (Point, "null"),
        (Point, "{}"),
        (Point, '{"x": 1}'),
        (Point, '{"x": 1, "name": null, "more": 1}'),
        (Point, '{"x_value": 1, "name": null}'),
        (Point, '{"x": null, "name": null}'),
        (Any, "["),
        (Any, "[" * 100_000),
    ],
)
def test_what_has_not_is_refused_with_one_kind_of_error(form: Any, raw: str) -> None:
    with pytest.raises(ProgramError, match="it is damaged"), rejecting_damage(refused):
        msgspec.convert(parse_json(raw), form)


def test_a_form_is_filled_from_attributes_and_written_by_its_names() -> None:
    class Source:
        x_value = 3

    assert ascii_json([form_from(Point, Source, name="ü")]) == r'[{"x":3,"name":"\u00fc"}]'


def test_the_format_is_read_before_the_form() -> None:
    assert convert_versioned({"format": 1, "x": 1, "name": "a"}, Point, 1, refused) == Point(1, "a")
    with pytest.raises(ProgramError, match=r"another version of codemode-mcp \(format 2\)"):
        convert_versioned({"format": 2, "y": 1}, Point, 1, refused)


@pytest.mark.parametrize("raw", [None, [], "format", {}, {"format": True}, {"format": "1"}, {"format": 1.0}])
def test_what_has_no_format_is_damaged(raw: Any) -> None:
    with pytest.raises(ProgramError, match="it is damaged"), rejecting_damage(refused):
        convert_versioned(raw, Point, 1, refused)


def test_the_first_of_a_list_is_read_without_the_others() -> None:
    assert first_element('[{"a": 1}, and more') == {"a": 1}
    with pytest.raises(ProgramError), rejecting_damage(refused):
        first_element('{"a": 1}')


@pytest.mark.parametrize("put", [lambda value: value, lambda value: msgspec.defstruct("Deep", ["value"])(value)])
def test_what_is_nested_too_deep_is_refused_by_name(put: Callable[[Any], Any]) -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ProgramError) as refused:
        ascii_json(put(nested))
    while nested:  # its destructor is recursive
        nested = nested.pop()
    assert refused.value.code == "snapshot_limit_exceeded"
