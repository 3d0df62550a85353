"""Tests of the comparison of URIs with URI templates."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codemode_mcp.rules.trust.items import MAX_URI, makes, may_make


@pytest.mark.parametrize(
    ("template", "uri", "made", "perhaps_made"),
    [
        ("note:///{name}", "note:///a", True, True),
        ("note:///{name}", "note:///a%20b", True, True),
        ("note:///{name}", "note:///{name}", True, True),
        ("note:///{name}", "note:///a/b", False, True),  # a slash is escaped in such a value
        ("note:///{name}", "note:/a", False, False),
        ("file:///{+path}", "file:///etc/passwd", True, True),
        ("file://{/path*}", "file:///a/b", True, True),
        ("x:{a}-{b}.md", "x:1-2.md", True, True),
        ("x:{a}-{b}.md", "x:1.md", False, False),
        ("x:{a}.md", "x:1.txt", False, False),
        ("search:{?q,limit}", "search:?q=a&limit=3", True, True),
        ("search:a{?q}{&limit}", "search:a", True, True),
        ("plain://x", "plain://x", True, True),
        ("plain://x", "plain://xy", False, False),
        ("a.b://{x}", "aXb://1", False, False),  # a dot is a dot
        ("x:{a", "x:{a", True, True),  # not an expression
        ("{uri}", "anything", True, True),
        ("ab{x}ba", "aba", False, False),  # both ends may not share a character
    ],
)
def test_a_uri_is_compared_with_a_template(template: str, uri: str, made: bool, perhaps_made: bool) -> None:
    assert makes(template, uri) is made
    assert may_make(template, uri) is perhaps_made


@pytest.mark.parametrize("expression", ["{a}", "{+a}", "x{a}", "{a}{+b}"])
def test_a_hostile_template_costs_little_time(expression: str) -> None:
    template = "a:" + expression * 800 + "!"
    uri = "a:" + "x" * 8000
    start = time.process_time()
    makes(template, uri)
    may_make(template, uri)
    assert time.process_time() - start < 0.5


def test_a_thousand_hostile_templates_cost_little_time() -> None:
    start = time.process_time()
    for number in range(1000):
        makes(f"{{+a{number}}}" + "x{+b}" * 60, "note:///" + "x" * 1000)
    assert time.process_time() - start < 1  # 1.7 s when each was compiled to a pattern


def test_a_very_long_uri_is_made_from_no_template() -> None:
    assert makes("a:{x}", "a:" + "x" * (MAX_URI - 2))
    assert not makes("a:{x}", "a:" + "x" * MAX_URI)


_AS_PATTERNS = {"{x}": "[^/?#]*", "{+x}": ".*", "{/x}": "(?:/[^?#]*)?", "{?x}": r"(?:\?[^#]*)?", "{&x}": "(?:&[^#]*)?"}
_PARTS = st.sampled_from([*_AS_PATTERNS, "a", "b", "/", "?", "#", "&", "."])


@given(st.lists(_PARTS, max_size=6), st.text("ab/?#&.", max_size=8))
def test_templates_are_compared_as_patterns_are(parts: list[str], uri: str) -> None:
    pattern = "".join(_AS_PATTERNS.get(part, re.escape(part)) for part in parts)
    assert makes("".join(parts), uri) is (re.fullmatch(pattern, uri) is not None)


@pytest.mark.parametrize("uri", ["REPO://acme", " repo://acme", "re\tpo://acme", "repo%3A//acme", "repo://acme\n"])
def test_another_spelling_of_a_uri_may_be_made_from_the_template(uri: str) -> None:
    assert may_make("repo://{owner}", uri)
    assert not may_make("repo://{owner}/issues", uri)
