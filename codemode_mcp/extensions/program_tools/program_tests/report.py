"""The results of tests, for users of pytest and as JUnit XML. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal
from xml.etree import ElementTree

from msgspec import Struct

from codemode_mcp.base.display import cut, plain

WIDTH = 80
"""Columns of headings."""

_LETTERS = {"passed": ".", "failed": "F", "error": "E"}
_WORDS = {"passed": "PASSED", "failed": "FAILED", "error": "ERROR"}


class Progress:
    """The lines that are printed while the tests run: a line for each test, or a letter for each.

    Args:
        total: the number of tests.
        verbose: print a line for each test.
    """

    def __init__(self, total: int, *, verbose: bool) -> None:
        self._total = total
        self._verbose = verbose
        self._done = 0
        self._file = ""
        self._column = 0

    def of(self, result: TestResult) -> str:
        """Return the text to print for the next result. It may have no line end."""
        self._done += 1
        share = f"[{100 * self._done // self._total:3}%]"
        if self._verbose:
            line = f"{plain(result.name)} {_WORDS[result.status]}"
            return f"{line.ljust(WIDTH - len(share) - 1)} {share}\n"
        text = ""
        if result.file != self._file:
            text = "\n" if self._file else ""
            self._file = result.file
            start = f"{plain(result.file)} "
            text += start
            self._column = len(start)
        text += _LETTERS[result.status]
        self._column += 1
        if self._done == self._total:
            text += f" {share}".rjust(max(1, WIDTH - self._column)) + "\n"
        return text

    def stopped(self) -> str:
        return "" if self._verbose or not self._file or self._done == self._total else "\n"


def summary(results: Sequence[TestResult], seconds: float) -> Iterator[str]:
    for status, heading in (("error", "ERRORS"), ("failed", "FAILURES")):
        shown = [each for each in results if each.status == status]
        if shown:
            yield _ruled(heading, "=")
        for each in shown:
            yield _ruled(plain(each.name), "_")
            yield from map(plain, each.lines)
            yield ""
    updated = [each for each in results if each.updated]
    if updated:
        yield _ruled("updated", "=")
        yield from (plain(line) for each in updated for line in each.updated.split("\n"))
    wrong = [each for each in results if each.status != "passed"]
    if wrong:
        yield _ruled("short test summary info", "=")
        yield from (
            f"{_WORDS[each.status]} {plain(each.name)} - {cut(each.lines[0] if each.lines else '', WIDTH)}"
            for each in wrong
        )
    yield _ruled(f"{counts(results)} in {seconds:.2f}s", "=")


def counts(results: Sequence[TestResult]) -> str:
    """Return the counts of results, such as `1 failed, 2 passed`."""
    found = []
    for status, word in (("failed", "failed"), ("passed", "passed"), ("error", "error")):
        count = sum(each.status == status for each in results)
        if count:
            found.append(f"{count} {word}{'s' if word == 'error' and count > 1 else ''}")
    return ", ".join(found) or "no tests ran"


def _ruled(text: str, rule: str) -> str:
    return f" {text} ".center(WIDTH, rule)


_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot have, not even as references."""


def junit(results: Sequence[TestResult]) -> str:
    failures = sum(each.status == "failed" for each in results)
    errors = sum(each.status == "error" for each in results)
    counts = {"tests": str(len(results)), "failures": str(failures), "errors": str(errors)}
    time = f"{sum(each.seconds for each in results):.3f}"
    root = ElementTree.Element("testsuites", {"name": "codemode-mcp test", **counts, "time": time})
    suite = ElementTree.SubElement(root, "testsuite", {"name": "programs", **counts, "skipped": "0", "time": time})
    for each in results:
        module = each.file.rpartition(".")[0].replace("/", ".")
        about = {"classname": _xml(module), "name": _xml(each.case), "file": _xml(each.file)}
        case = ElementTree.SubElement(suite, "testcase", {**about, "time": f"{each.seconds:.3f}"})
        if each.status != "passed":
            kind = "failure" if each.status == "failed" else "error"
            summary = {"message": _xml(each.lines[0] if each.lines else each.status)}
            ElementTree.SubElement(case, kind, summary).text = _xml("\n".join(each.lines))
        if each.updated:
            ElementTree.SubElement(case, "system-out").text = _xml(each.updated)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _xml(text: str) -> str:
    """Return a text in which characters that XML cannot have are escaped as in JavaScript."""
    return _NOT_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


Status = Literal["passed", "failed", "error"]


class TestResult(Struct, frozen=True):
    """The result of one test.

    Attributes:
        file: the file of the saved program, such as `programs/report.ts`.
        case: the name of the recording.
        status: `failed` if the program does not do what is expected; `error` if it cannot be tested.
        lines: what is wrong, in lines; the first one is a summary.
        seconds: the duration.
        updated: the file that `--update` has written, and lines about what has changed; empty if nothing was written.
    """

    __test__ = False  # pytest would collect a class of this name

    file: str
    case: str
    status: Status
    lines: tuple[str, ...] = ()
    seconds: float = 0.0
    updated: str = ""

    @property
    def name(self) -> str:
        """The name of the test, such as `programs/report.ts::first`."""
        return f"{self.file}::{self.case}"
