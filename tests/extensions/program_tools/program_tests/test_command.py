"""Tests of `codemode-mcp test`, over recordings of a server that does not exist."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from codemode_mcp.audit.recordings.format import Clock, encode
from codemode_mcp.cli.parser import app
from tests.extensions.program_tools.program_tests.recording_files import LIST, Call, record

OPEN = Call({"state": "open"}, {"content": [], "structuredContent": {"issues": [{"title": "A"}, {"title": "B"}]}})
CELL = """\
const { issues } = unwrap(await MCP.tracker.listIssues({ state: "open" }));
text("there are " + issues.length);
return issues.map((issue) => issue.title);
"""
SAVED = """\
/** @param {{ state: string }} input */
export default async function ({ state }) {
  const { issues } = unwrap(await MCP.tracker.listIssues({ state }));
  text("there are " + issues.length);
  return issues.map((issue) => issue.title);
}
"""
RUN = (CELL, [OPEN], ["A", "B"], {"type": "text", "text": "there are 2"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of saved programs: one program with one test, which passes."""
    record(tmp_path / "programs", "report.first", *RUN)
    write(tmp_path / "programs", SAVED)
    expect(tmp_path / "programs", input={"state": "open"})
    return tmp_path / "programs"


def write(folder: Path, text: str) -> None:
    (folder / "report.js").write_text(text, "utf-8")


def expect(folder: Path, case: str = "report.first", **members: Any) -> None:
    (folder / f"{case}.expect.json").write_text(json.dumps(members), "utf-8")


def expected(folder: Path, case: str = "report.first") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{case}.expect.json").read_text("utf-8"))
    return found


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["test", *map(str, arguments)], prog_name="codemode-mcp", catch_exceptions=False)
    return done.exit_code, done.output


def test_a_program_passes_until_it_does_something_else(folder: Path, tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    code, shown = run(folder, "-v", "--junit", junit)
    assert code == 0, shown
    assert "programs/report.js::first PASSED" in shown
    assert ElementTree.parse(junit).getroot().get("failures") == "0"

    write(folder, SAVED.replace("issue.title)", "issue.title + '!')"))
    code, shown = run(folder, "--junit", junit)
    assert code == 1
    assert 'the result differs from that recorded\n  [0]: recorded "A", now "A!"' in shown
    assert ElementTree.parse(junit).getroot().get("failures") == "1"

    code, shown = run(folder, "--update")
    assert code == 0, shown
    assert (
        'report.first.expect.json: result\nthe result differs from that recorded\n  [0]: recorded "A", now "A!"'
        in shown
    )
    assert expected(folder)["snapshot"]["result"] == ["A!", "B!"]
    assert expected(folder)["input"] == {"state": "open"}
    before = (folder / "report.first.expect.json").read_bytes()
    assert run(folder)[0] == run(folder, "--update")[0] == 0
    assert (folder / "report.first.expect.json").read_bytes() == before

    write(folder, SAVED.replace("there are", "found"))
    code, shown = run(folder)
    assert code == 1
    assert 'the outputs differ from those in the snapshot\n  [0].text: recorded "there are 2", now "found 2"' in shown

    write(folder, SAVED)
    assert run(folder)[0] == 1
    assert run(folder, "--update")[0] == 0
    assert expected(folder) == {"input": {"state": "open"}}


def test_other_calls_than_the_recorded_ones_fail_and_cannot_be_accepted(folder: Path) -> None:
    other = SAVED.replace("input */", "input For MCP.tracker.listIssues. */")
    write(folder, other.replace("{ state }))", '{ state: "closed" }))'))
    code, shown = run(folder, "--update")
    assert code == 1
    assert 'state: recorded "open", now "closed"\n  at programs/report.js:3:' in shown
    assert "record it again" in shown
    expect(folder, input={"state": "open"}, loose=True)
    assert run(folder)[0] == 0

    write(folder, re.sub("  const .*", "  const issues = [{ title: 'A' }, { title: 'B' }];", SAVED))
    code, shown = run(folder)
    assert code == 1
    assert "MCP.tracker.listIssues: expected 1 call, got no call" in shown
    assert 'not called: MCP.tracker.listIssues({"state":"open"})' in shown
    expect(folder, input={"state": "open"}, calls={"tracker.listIssues": 0})
    assert run(folder)[0] == 0


def test_an_expectation_replaces_the_recorded_result(folder: Path) -> None:
    throwing = SAVED.replace("  return", "  null.x;\n  return")
    (folder / "report.first.recording.jsonl").unlink()
    (folder / "report.first.expect.json").unlink()
    cases: dict[str, tuple[str, dict[str, Any], str]] = {
        "result": (SAVED, {"result": ["A", "C"], "calls": {LIST: 1}}, 'result[1]: expected "C", got "B"'),
        "completes": (SAVED, {"error": "no access"}, "the program completed, and it should fail with 'no access'"),
        "calls": (SAVED, {"calls": {"MCP.tracker.listIssues": 2}}, "expected 2 calls, got 1 call"),
        "input": (SAVED, {"input": {"stat": "open"}}, "stat: no such argument; did you mean state (missing, string)?"),
        "fails": (throwing, {"result": []}, "the program failed, and a result is expected"),
        "recorded": (throwing, {}, "the program failed\n  recorded: it completed"),
        "error": (throwing, {"error": "cannot read property 'y'"}, "the error is not the expected one"),
        "place": (throwing, {}, "(programs/place.js:5:"),
        "same": (throwing, {"error": "cannot read property 'x'"}, ""),
    }
    for name, (text, members, _) in cases.items():
        (folder / f"{name}.js").write_text(text, "utf-8")
        record(folder, f"{name}.first", *RUN)
        expect(folder, f"{name}.first", **{"input": {"state": "open"}, **members})
    code, shown = run(folder, "-v")
    assert code == 1
    reasons = dict(re.findall(r"^_+ programs/(\w+)\.js::first _+\n(.*?)\n\n", shown, re.DOTALL | re.MULTILINE))
    assert reasons.keys() == cases.keys() - {"same"}, shown
    assert [name for name, reason in reasons.items() if cases[name][2] not in reason] == [], shown
    assert "programs/same.js::first PASSED" in shown

    code, shown = run(folder, "-v", "--update")
    assert code == 1
    failed = {name for name in cases if f"programs/{name}.js::first FAILED" in shown}
    # A person has written their members.
    assert failed == {name for name, (_, members, _) in cases.items() if members} - {"same"}
    for name, (_, members, _) in cases.items():
        now = expected(folder, f"{name}.first")
        now.pop("snapshot", None)
        assert now == {"input": {"state": "open"}, **members}


def test_update_follows_no_link(folder: Path, tmp_path: Path) -> None:
    path, outside = folder / "report.first.expect.json", tmp_path / "outside.json"
    path.rename(outside)
    path.symlink_to(outside)
    before = outside.read_bytes()
    write(folder, SAVED.replace("issue.title)", "issue.title + '!')"))
    assert run(folder, "--update")[0] == 0
    assert outside.read_bytes() == before
    assert expected(folder)["snapshot"]["result"] == ["A!", "B!"]
    assert not path.is_symlink()


def test_a_program_gets_the_recorded_times(folder: Path) -> None:
    began, later = 1_800_000_000_123, 1_800_000_009_456
    times = [encode(Clock(((each * 1_000_000, 1),))) for each in (began, later)]
    record(folder, "report.times", CELL, [OPEN], [began, later])
    path = folder / "report.times.recording.jsonl"
    opening, catalog, start, asked, answered, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([opening, catalog, start, times[0], asked, answered, times[1], *rest]))
    program = "const began = Date.now();\n  await MCP.tracker.listIssues({ state });\n  return [began, Date.now()];"
    write(folder, re.sub("  const .*\n}", f"  {program}\n}}", SAVED, flags=re.DOTALL))
    expect(folder, "report.times", input={"state": "open"})
    code, shown = run(folder, "-k", "times")
    assert code == 0, shown


def test_saved_programs_call_each_other_by_their_current_texts(folder: Path) -> None:
    titles = """\
/** @param {{ state: string }} input */
export default async ({ state }) => unwrap(await MCP.tracker.listIssues({ state })).issues.map((each) => each.title)
"""
    (folder / "titles.js").write_text(titles, "utf-8")
    write(
        folder,
        re.sub("  const .*", "  const issues = await programs.titles({ state });", SAVED).replace(
            "issue.title", "issue"
        ),
    )
    code, shown = run(folder)
    assert code == 0, shown
    (folder / "titles.js").write_text(titles.replace("each.title", "each.title + '!'"), "utf-8")
    code, shown = run(folder)
    assert (code, 'recorded "A", now "A!"' in shown) == (1, True), shown


def test_a_recorded_call_of_a_saved_program_gets_its_current_text(folder: Path) -> None:
    begun = {"file": "programs/report.js", "input": {"state": "open"}, "nested": False, "code": "return () => 'old'"}
    call = Call({"state": "open"}, begun, "program:saved:report")
    cell = 'return { titles: await programs.report({ state: "open" }) };'
    record(folder, "report.caller", cell, [call, OPEN], {"titles": ["A", "B"]}, RUN[3])
    assert run(folder, "-k", "caller")[0] == 0
    write(folder, SAVED.replace("issue.title)", "issue.title + '!')"))
    code, shown = run(folder, "-k", "caller")
    assert (code, 'titles[0]: recorded "A", now "A!"' in shown) == (1, True), shown
    write(folder, SAVED.replace("  return", "  null.x;\n  return"))
    assert "programs.report failed: cannot read property 'x' of null (programs/report.js:5" in run(folder)[1]
    write(folder, SAVED)
    expect(folder, "report.caller", input={"state": "open"}, result=["A", "B"])
    assert run(folder)[0] == 0


def test_a_broken_file_is_an_error_and_the_other_tests_run(folder: Path) -> None:
    (folder / "report.torn.recording.jsonl").write_text("{", "utf-8")
    record(folder, "absent.first", *RUN)
    record(folder, "broken.first", *RUN)
    (folder / "broken.ts").write_text("export default 1", "utf-8")
    expect(folder, "report.orphan")
    os.mkfifo(folder / "report.pipe.expect.json")
    record(folder, "report.pipe", *RUN)
    record(folder, "report.typo", *RUN)
    expect(folder, "report.typo", resutl=1)
    code, shown = run(folder)
    assert code == 1
    assert "there is no saved program absent; rename absent.first.recording.jsonl" in shown
    assert "programs/broken.ts:1: export default is no function" in shown
    assert "report.torn.recording.jsonl is no recording that can be read" in shown
    assert "report.orphan.expect.json is there without its recording" in shown
    assert "Object contains unknown field `resutl`" in shown
    assert "report.pipe.expect.json is not a regular file" in shown
    assert "1 passed, 6 errors" in shown
    code, shown = run(folder, "-x")
    assert "1 error in" in shown


def test_paths_and_words_choose_tests_and_none_is_code_5(folder: Path, tmp_path: Path) -> None:
    record(folder, "report.second", *RUN)
    for arguments, code in (
        ((folder / "report.js", "-k", "first"), 0),
        ((folder / "report.first.recording.jsonl",), 0),
        ((folder, folder / "report.js", "-k", "not second"), 0),
        ((folder, "-k", "third"), 5),
        ((tmp_path,), 5),
        ((folder, "-k", "("), 2),
        ((tmp_path / "absent",), 2),
    ):
        done = run(*arguments)
        assert done[0] == code, done
        assert ("1 passed in" in done[1]) == (code == 0)
