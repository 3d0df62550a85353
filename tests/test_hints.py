"""What is said to programs that reach for what is not there."""

from __future__ import annotations

import pytest

from codemode_mcp.bridge import Thrown
from codemode_mcp.hints import fenced, hint


@pytest.mark.parametrize(
    ("name", "message", "said"),
    [
        ("ReferenceError", "fetch is not defined", "no network"),
        ("ReferenceError", "'process' is not defined", "neither a browser nor Node"),
        ("ReferenceError", "sleep is not defined", "setTimeout"),
        ("ReferenceError", "mcp is not defined", "in capitals"),
    ],
)
def test_a_name_that_is_not_there_comes_with_what_to_write_instead(name: str, message: str, said: str) -> None:
    assert said in hint(Thrown(name, message, "", engine=False, code=None))


@pytest.mark.parametrize(
    ("name", "message"),
    [("ReferenceError", "x is not defined"), ("Error", "fetch is not defined"), ("TypeError", "not a function")],
)
def test_nothing_is_said_of_other_errors(name: str, message: str) -> None:
    assert hint(Thrown(name, message, "", engine=False, code=None)) == ""


def test_fences_are_told_from_templates() -> None:
    assert fenced("\n```js\nreturn 1\n```") is not None
    assert fenced("return `x`") is None
