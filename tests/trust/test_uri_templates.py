"""Tests of the comparison of URIs with URI templates."""

from __future__ import annotations

import time

import pytest

from codemode_mcp.trust.uri_templates import makes, may_make


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
    start = time.perf_counter()
    makes(template, uri)
    may_make(template, uri)
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("uri", ["REPO://acme", " repo://acme", "re\tpo://acme", "repo%3A//acme", "repo://acme\n"])
def test_another_spelling_of_a_uri_may_be_made_from_the_template(uri: str) -> None:
    assert may_make("repo://{owner}", uri)
    assert not may_make("repo://{owner}/issues", uri)
