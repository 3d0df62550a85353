"""Names of items of servers, as people type them."""

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.rules.trust.items import Key, Kind, parse_reference, reference


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("github", ("github", None)),
        ("github.create_issue", ("github", ("tool", "create_issue"))),
        ("github.prompts/greet", ("github", ("prompt", "greet"))),
        ("github.templates/repo://{owner}", ("github", ("template", "repo://{owner}"))),
        ("github.server/", ("github", ("server", ""))),
        ("github.eu.list", ("github.eu", ("tool", "list"))),
        ("github.eu", ("github.eu", None)),
        ("gitlab.list", None),
        ("git", None),
    ],
)
def test_an_item_is_named_by_its_server_and_its_name(text: str, expected: tuple[str, Key | None] | None) -> None:
    assert parse_reference(text, ["github", "github.eu"]) == expected


@settings(deadline=None)
@given(st.sampled_from(get_args(Kind)), st.text() | st.sampled_from(["prompts/x", "tools/x", "server/"]))
def test_each_item_has_a_name_that_stands_for_nothing_else(kind: Kind, name: str) -> None:
    assert parse_reference(reference("a.b", kind, name), ["a", "a.b"]) == ("a.b", (kind, name))
