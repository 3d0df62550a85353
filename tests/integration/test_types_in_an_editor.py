"""Output of `codemode-mcp types` as an editor's compiler sees it, with the `tsconfig.json` that comes with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import cli, quickstart, tsc, write_config

RIGHT = """\
const { issues } = unwrap(await MCP.tracker.listIssues({ state: "open" }));
const titles = issues.map((issue) => issue.title);
if (titles.length === 0) {
  // @ts-expect-error the program is the body of a function
  return "nothing to do";
}
titles.slice(0, 3);
"""

WRONG = """\
const titles: string[] = [];
await MCP.tracker.listIssues({ stat: "open" });
await MCP.tracker.getIssue({ issue_id: "1" });
await MCP.tracker.listIsues({});
await MCP.trakcer.listIssues({});
const { issues } = unwrap(await MCP.tracker.listIssues({}));
issues[0]!.titel;
fetch("https://example.com");
document.title;
require("fs");
"""


@pytest.fixture(scope="module")
def out(folder: Path) -> Path:
    out = folder / "types"
    done = cli("types", "--out", str(out), "--config", str(write_config(folder, quickstart())))
    assert done.returncode == 0, done.stderr
    assert str(out / "cell.ts") in done.stderr
    # What packages around the folder declare is not known to a program.
    package = folder / "node_modules" / "@types" / "around"
    package.mkdir(parents=True)
    (package / "index.d.ts").write_text("declare function require(name: string): any;", "utf-8")
    return out


def test_the_first_program_and_a_right_one_have_no_errors_in_either_language(out: Path) -> None:
    (out / "right.ts").write_text(RIGHT, "utf-8")
    (out / "right.js").write_text(RIGHT, "utf-8")
    assert tsc(out, as_written=True) == []


@pytest.mark.parametrize("name", ["wrong.ts", "wrong.js"])
def test_every_mistake_of_a_wrong_one_is_an_error_at_its_place(out: Path, name: str) -> None:
    text = WRONG if name.endswith(".ts") else WRONG.replace(": string[]", "").replace("!", "")
    (out / name).write_text(text, "utf-8")
    try:
        errors = tsc(out, as_written=True)
    finally:
        (out / name).unlink()
    # Not all that is missing in TypeScript is an error in JavaScript, where `require` has a meaning of its own.
    places = [line.partition(":")[0] for line in errors if "(10," not in line]
    assert places == [
        f"{name}({at})"
        for at in ("2,32", "3,30", "4,19", "5,11", "7,12" if name.endswith("ts") else "7,11", "8,1", "9,1")
    ]
    assert name.endswith(".js") or any("(10,1)" in line for line in errors)
