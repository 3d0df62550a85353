"""The URL data of web-platform-tests, when a copy is at hand. It is not ours and not in this repository.

Put `urltestdata.json` and `setters_tests.json` into one folder and name it in WPT_URL_DATA, or use `.cache/node/wpt`.
The measure is the standard of today: a copy from before 2025 has entries that today's standard answers differently.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from node_harness import NODE_CACHE

if TYPE_CHECKING:
    from engine_harness import Engine

ALLOWED_FAILURES = 0.01
"""Room for entries older than the standard's last changes."""


def _data(name: str) -> Any:
    path = Path(os.environ.get("WPT_URL_DATA") or NODE_CACHE / "wpt") / name
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    return json.loads(path.read_text(encoding="utf-8", errors="surrogatepass"))


def _judge(total: int, bad: list[str], allowed: float, record: pytest.RecordProperty) -> None:
    rate = f"{total - len(bad)}/{total}"
    record("passed", rate)
    if len(bad) > allowed * total:
        pytest.fail(f"{rate} agree\n" + "\n".join(bad[:20]), pytrace=False)


def test_parsing_answers_the_platform_tests(engine: Engine, record_property: pytest.RecordProperty) -> None:
    cases = [case for case in _data("urltestdata.json") if isinstance(case, dict)]
    answers = engine.call_json(
        """(cases) => cases.map((c) => {
            try {
                const url = new URL(c.input, c.base ?? undefined), answer = {};
                for (const key in c) if (key in url) answer[key] = String(url[key]);
                return answer;
            } catch (e) { return { failure: e instanceof TypeError }; }
        })""",
        cases,
    )
    bad = []
    for case, answer in zip(cases, answers, strict=True):
        expected = {"failure": True} if case.get("failure") else {key: case[key] for key in answer if key in case}
        if answer != expected:
            bad.append(f"{case['input']!a} on {case.get('base')!a}: {answer!a}")
    _judge(len(cases), bad, ALLOWED_FAILURES, record_property)


def test_setters_answer_the_platform_tests(engine: Engine, record_property: pytest.RecordProperty) -> None:
    cases = [
        {**case, "field": field}
        for field, group in _data("setters_tests.json").items()
        if field != "comment"
        for case in group
    ]
    answers = engine.call_json(
        """(cases) => cases.map((c) => {
            const url = new URL(c.href), answer = {};
            url[c.field] = c.new_value;
            for (const key in c.expected) answer[key] = url[key];
            return answer;
        })""",
        cases,
    )
    bad = [
        f"{case['field']} of {case['href']!a} = {case['new_value']!a}: {answer!a}"
        for case, answer in zip(cases, answers, strict=True)
        if answer != case["expected"]
    ]
    _judge(len(cases), bad, 4 * ALLOWED_FAILURES, record_property)
