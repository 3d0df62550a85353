"""Hardening breaks no feature of the language: Test262 in the bare engine and behind the prelude.

This is a selection of the suite; `python -m tests.conformance.run --all` runs the whole of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.sandbox import boot
from codemode_mcp.sandbox.engine import Engine, open_engine
from tests.conformance.hosts import DONE
from tests.conformance.run import CHANGED, RATES, Outcome, Places, failing, numbers
from tests.conformance.suite import ARCHIVE, Case, cases, front_matter, selected
from tests.values import replace


@pytest.fixture(scope="module")
def selection() -> list[Case]:
    if not ARCHIVE.is_file():
        pytest.skip(f"{ARCHIVE.name} is not in .cache/suites; tests/run.py puts it there")
    return cases(selected)


@pytest.fixture(scope="module")
def places(engine: Engine) -> Places:
    return Places(engine)


@pytest.fixture(scope="module")
def outcomes(places: Places, selection: list[Case]) -> list[Outcome]:
    return places.compare(selection)


@pytest.fixture(scope="module")
def recorded() -> Any:
    return json.loads(RATES.read_text("utf-8"))["selection"]


def test_what_passes_in_the_bare_engine_passes_behind_the_prelude(outcomes: list[Outcome]) -> None:
    broken = {one.case.name: one.hardened for one in outcomes if one.broken and one.case.path not in CHANGED}
    assert broken == {}


def test_a_program_fails_no_more_than_what_eval_changes(outcomes: list[Outcome], recorded: Any) -> None:
    # Each of these passes as a script among the same globals, or the test above says otherwise.
    assert set(failing(outcomes)["eval"]) <= set(recorded["failing"]["eval"])


def test_the_engine_fails_no_more_than_what_is_recorded(outcomes: list[Outcome], recorded: Any) -> None:
    assert set(failing(outcomes)["bare"]) <= set(recorded["failing"]["bare"])


def test_the_pass_rates_do_not_fall(outcomes: list[Outcome], recorded: Any) -> None:
    for folder, count in numbers(outcomes).items():
        assert count["cases"] == recorded[folder]["cases"], "another selection: see tests/conformance/run.py --update"
        for place in ("bare", "program", "hardened"):
            assert count[place] >= recorded[folder][place], (folder, place)


@pytest.mark.usefixtures("selection")
def test_what_is_excused_is_still_so_and_only_behind_the_prelude(places: Places) -> None:
    excused = cases(CHANGED.__contains__)
    assert {case.path for case in excused} == set(CHANGED)
    assert [one.case.name for one in places.compare(excused) if not one.broken] == []


# the places themselves: each can tell a test that passes from one that does not

SUITE = (
    "function check(fine) { if (!fine) throw new RangeError('no'); } var $DONE = (e) => print(e ? String(e) : 'DONE');"
)

JUDGED = {
    "passes": (Case("", "sloppy", SUITE, "check(true)"), None),
    "fails": (Case("", "sloppy", SUITE, "check(false)"), "RangeError: no"),
    "throws a string": (Case("", "sloppy", SUITE, "throw 'no'"), "String: no"),
    "does not parse": (Case("", "sloppy", SUITE, "var = 1"), "SyntaxError: "),
    "is sloppy": (Case("", "sloppy", SUITE, "check((function () { return this; })() === globalThis)"), None),
    "is strict": (Case("", "strict", SUITE, "check((function () { return this; })() === undefined)"), None),
    "throws what it should": (Case("", "sloppy", SUITE, "check(false)", "RangeError"), None),
    "throws something else": (Case("", "sloppy", SUITE, "check(false)", "SyntaxError"), "RangeError: no"),
    "throws nothing": (Case("", "sloppy", SUITE, "check(true)", "SyntaxError"), "no SyntaxError was thrown"),
    "is done in time": (Case("", "sloppy", SUITE, "Promise.resolve().then(() => $DONE())", None, True), None),
    "is done with an error": (Case("", "sloppy", SUITE, "Promise.reject('no').catch($DONE)", None, True), "no"),
    "is never done": (Case("", "sloppy", SUITE, "new Promise(() => {}).then($DONE)", None, True), "never done"),
    "is done twice": (Case("", "sloppy", SUITE, "$DONE(); $DONE()", None, True), f"{DONE}\n{DONE}"),
    "detaches a buffer": (
        Case("", "sloppy", SUITE, "const b = new ArrayBuffer(8); $262.detachArrayBuffer(b); check(b.detached)"),
        None,
    ),
}


@pytest.mark.parametrize(("given", "expected"), JUDGED.values(), ids=JUDGED)
def test_every_place_judges_alike(given: Case, expected: str | None, places: Places) -> None:
    given = replace(given, harness=given.harness.replace("DONE'", f"{DONE}'"))
    for why in places.everywhere(given):
        if expected is None:
            assert why is None
        else:
            assert why is not None
            assert why.startswith(expected)


def test_a_prelude_that_breaks_a_feature_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patched:
        source = boot.prelude_source()
        patched.setattr(boot, "prelude_source", lambda: "Object.freeze(Set.prototype);" + source)
        with open_engine(tmp_path, max_threads=2) as engine:
            given = Case("", "sloppy", SUITE, "check(delete Set.prototype.has)")
            [found] = Places(engine).compare([given])
    assert (found.bare, found.program, found.hardened) == (None, "RangeError: no", "RangeError: no")
    assert found.broken


def test_front_matter_says_how_a_test_is_run() -> None:
    said = front_matter(
        "/*---\nflags: [async, onlyStrict]\nincludes:\n  - one.js\n  - two.js\nnegative:\n  phase: early\n"
        "  type: SyntaxError\nfeatures: [let]\n---*/ code"
    )
    assert (said.flags, said.includes) == ({"async", "onlyStrict"}, ["one.js", "two.js"])
    assert said.negative == {"phase": "early", "type": "SyntaxError"}
