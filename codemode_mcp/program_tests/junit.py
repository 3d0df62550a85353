"""Results of tests as JUnit XML, which CI systems show. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codemode_mcp.program_tests.result import TestResult

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot have, not even as references."""


def junit(results: Sequence[TestResult]) -> str:
    """Return the text of an XML file."""
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
