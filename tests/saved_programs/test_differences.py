"""The differences of two texts, also of hostile ones."""

from __future__ import annotations

from codemode_mcp.catalog.saved_programs import versions
from codemode_mcp.catalog.saved_programs.versions import different_lines


def test_differences_have_the_lines_around_them() -> None:
    assert list(different_lines("a\nb\nc\nd\ne", "a\nb\nc\nx\ne")) == ["@@ -2,4 +2,4 @@", " b", " c", "-d", "+x", " e"]
    assert list(different_lines("--", "++")) == ["@@ -1 +1 @@", "---", "+++"]


def test_texts_of_many_lines_are_not_compared() -> None:
    count = versions.MAX_PAIRS // 1000
    old, new = [f"{number % 90}" for number in range(1000)], [f"{number * 7 % 90}" for number in range(count + 1)]
    lines = list(different_lines("\n".join(old), "\n".join(new)))
    assert lines[0] == f"@@ all lines: -1000 +{count + 1}; the texts are too long to compare"
    assert lines[1:] == [*(f"-{line}" for line in old), *(f"+{line}" for line in new)]
