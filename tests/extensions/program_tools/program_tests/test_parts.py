"""Tests of the parts of `codemode-mcp test`: expectations, the selection by words, JUnit XML and the printed report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from codemode_mcp.extensions.program_tools.program_tests.cases import SelectionError, selection
from codemode_mcp.extensions.program_tools.program_tests.comparison import (
    Expectation,
    ExpectationError,
    Snapshot,
    missing_parts,
    read_expectation,
    written,
)
from codemode_mcp.extensions.program_tools.program_tests.report import Progress, TestResult, junit, summary

RESULTS = (
    TestResult("programs/a.ts", "first", "passed", seconds=0.5),
    TestResult("programs/a.ts", "second", "failed", ("the result differs", "  x: recorded 1, now 2 \x1b[31m")),
    TestResult("programs/b.js", "only", "error", ("<broken> \x00 & \ud800 \ufffe",)),
)


@pytest.mark.parametrize(
    ("expected", "actual", "lines"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, []),
        ([{"a": 1}], [{"a": 1, "b": 2}], []),
        ({"a": {"b": [1]}}, {"a": {"b": [2]}}, ["result.a.b[0]: expected 1, got 2"]),
        ({"a-b": 1}, {}, ['result["a-b"]: expected 1, there is no such member']),
        ([1], [1, 2], ["result: expected 1 item, got 2 items: [1,2]"]),
        (True, 1, ["result: expected true, got 1"]),
        (1, 1.0, []),
        ({"a": None}, {"a": 0}, ["result.a: expected null, got 0"]),
        ({"a": 1}, None, ['result: expected {"a":1}, got null']),
    ],
)
def test_a_result_may_have_more_members_than_expected_but_no_other_values(
    expected: Any, actual: Any, lines: list[str]
) -> None:
    assert missing_parts(expected, actual) == lines


def test_expectations_are_read_as_they_were_written() -> None:
    made = Expectation(
        input={"a": 1}, result=None, loose=True, snapshot=Snapshot({"ü": "\ud800"}, calls={"MCP.a.b": 2})
    )
    assert read_expectation(written(made)) == made
    assert written(made).encode("utf-8")
    assert Expectation().is_empty
    assert not Expectation(result=None).is_empty


def test_the_expectations_of_the_page_can_be_read() -> None:
    page = (Path(__file__).parents[4] / "docs" / "testing-programs.md").read_text("utf-8")
    blocks = re.findall(r"^```json\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert [read_expectation(block).input for block in blocks] == [{"week": "2026-W23"}]


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("{", "not JSON"),
        ('{"resutl": 1}', "the members are input, result"),
        ('{"calls": {"a": -1}}', "$.calls"),
        ('{"result": 1, "error": "x"}', "keep one of them"),
        ('{"result": NaN}', "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_broken_expectation_is_refused(text: str, advice: str) -> None:
    with pytest.raises(ExpectationError) as refused:
        read_expectation(text)
    assert advice in str(refused.value)


def test_words_select_tests_by_their_names() -> None:
    names = ["report::first", "report::slow", "sum::first"]
    for expression, found in {
        "REPORT": [0, 1],
        "report and not slow": [0],
        "report\nand\u00a0not\tslow": [0],
        "slow or sum": [1, 2],
        "not (slow or sum)": [0],
        "not not sum": [2],
        "report::first": [0],
    }.items():
        assert [at for at, name in enumerate(names) if selection(expression)(name)] == found, expression
    for wrong in ("", "and a", "a b", "a (b)", "()", "(a", "a)", "not", "a or", "(" * 100_000):
        with pytest.raises(SelectionError, match="cannot be read"):
            selection(wrong)


def test_junit_xml_can_be_read_whatever_a_program_has_printed(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text(junit(RESULTS), "utf-8")
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    [suite] = root
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped", "time")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
        "skipped": "0",
        "time": "0.500",
    }
    cases = [(case.get("classname"), case.get("name"), [child.tag for child in case]) for case in suite]
    assert cases == [
        ("programs.a", "first", []),
        ("programs.a", "second", ["failure"]),
        ("programs.b", "only", ["error"]),
    ]
    assert suite[1][0].text == "the result differs\n  x: recorded 1, now 2 \\u001b[31m"
    assert suite[2][0].get("message") == "<broken> \\u0000 & \\ud800 \\ufffe"


def test_the_report_looks_like_that_of_pytest_and_cannot_move_the_cursor() -> None:
    progress = Progress(3, verbose=False)
    letters = "".join(map(progress.of, RESULTS))
    assert letters.splitlines() == ["programs/a.ts .F", "programs/b.js E".ljust(73) + " [100%]"]
    verbose = Progress(3, verbose=True)
    assert verbose.of(RESULTS[0]) == "programs/a.ts::first PASSED".ljust(73) + " [ 33%]\n"
    shown = list(summary(RESULTS, 0.123))
    assert shown[0] == " ERRORS ".center(80, "=")
    assert "  x: recorded 1, now 2 \\x1b[31m" in shown
    assert "FAILED programs/a.ts::second - the result differs" in shown
    assert shown[-1] == " 1 failed, 1 passed, 1 error in 0.12s ".center(80, "=")
    assert all(line.isprintable() for line in shown)
