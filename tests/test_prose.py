"""The whole repository keeps the rules for prose, and the rules find what breaks them."""

from __future__ import annotations

import shutil

import pytest

from tests import prose

CHECKOUT = pytest.mark.skipif(
    shutil.which("git") is None or not (prose.ROOT / ".git").exists(), reason="not a checkout: no list of tracked files"
)


@CHECKOUT
def test_the_repository_keeps_the_rules_for_prose() -> None:
    assert [str(each) for each in prose.findings()] == []


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("a.py", '"""Where things are."""\n', ["a.py:1: a docstring begins with 'Where'"]),
        ("a.py", 'X = 1\n"""Of a thing."""\n', ["a.py:2: a docstring begins with 'Of'"]),
        ("a.py", "# It\n# g|oes\n# on.\nX = 1\n", ["a.py:2: 'g|oes on' is set aside"]),
        ("a.py", 'X = f"{1} is told\\nof"\n', []),
        ("a.py", 'X = f"{1} is  t|old of"\n', ["a.py:1: 'is t|old of' is set aside"]),
        ("a.py", "no|body_cares = 1\n", ["a.py:1: 'no|body' is set aside"]),
        ("a.py", '# See SP|EC 3.5.\nX = "no|body"\n', ["a.py:1: 'SP|EC 3' is set aside"]),
        ("a.js", "// at\n// once\n", []),
        ("a.js", "// at o|nce\n", ["a.js:1: 'at o|nce' is set aside"]),
        ("a.md", "word " * 30 + "\n| " + "word " * 30 + "\n", ["a.md:1: 150 characters in a line"]),
        ("a.md", "```sh\n" + "word " * 30 + "\n```\n", []),
        ("a.py", '"""Return a thing."""\nX = 1\n"""The anewed, gone once."""\n', []),
    ],
)
def test_text_that_breaks_a_rule_is_found_at_its_line(path: str, text: str, found: list[str]) -> None:
    # The bar keeps the words in this file from being found.
    found = [each.replace("|", "") for each in found]
    assert [
        str(each) for each in prose.check(path, text if text.startswith("word") else text.replace("|", ""))
    ] == found
