"""`codemode-mcp repl` as it is used: over a pipe, and by a person at a terminal."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from codemode_mcp.cli import app
from codemode_mcp.extensions.repl.terminal import MAX_HISTORY, open_history
from tests.integration.harness import COMMAND, QUICKSTART, counting, write_config
from tests.integration.terminal import terminal

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

TRACKER = {"tracker": {"command": sys.executable, "args": [str(QUICKSTART / "tracker.py")]}}

pytestmark = pytest.mark.anyio


def piped(config: Path, text: str) -> Result:
    """Run the REPL in this process, without a terminal."""
    arguments = ["repl", "--config", str(config)]
    return CliRunner().invoke(app, arguments, input=text, prog_name="codemode-mcp", catch_exceptions=False)


def test_words_of_other_prompts_do_what_they_say_unless_the_session_has_the_name(tmp_path: Path) -> None:
    done = piped(write_config(tmp_path, {}), "help\nclear\nlet help = 41\nhelp + 1\nhelp\nquit()\n'after'\n")
    assert ".search" in done.stdout
    assert ".clear forgets all names" in done.stderr
    assert done.stdout.splitlines()[-2:] == ["42", "41"]


def test_a_session_over_a_pipe_feels_whole(tmp_path: Path) -> None:
    config = write_config(tmp_path, TRACKER)
    done = piped(
        config,
        """\
const { issues } = unwrap(await MCP.tracker.listIssues({ state: "open" }))
issues.length
console.log("a\\tline", issues[0].id); _ + 1
function double(n) {
  return n * two
}
let two = 2
double(issues[0].id)
class Box { constructor(inner) { this.inner = inner } open() { return this.inner } }
new Box("in it").open()
two += 1
two
var load = "its own"
load
const Object = 7, JSON = 8, globalThis = 9
Object + two
{ a: two }

undeclared = [1]
undeclared.push(2), undeclared
await yield_control("tea")
.wait
.names
.search close an issue
.d tracker#closeIssue
.exit
"never"
""",
    )
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    values = ["24", "a\tline 1", "25", "2", "in it", "3", "3", "its own", "10", '{"a": 3}', "[1]", "[1, 2]"]
    assert lines[: len(values)] == values
    assert "two = 3" in lines
    assert "double: a function" in lines
    assert any(line.startswith("MCP.tracker.closeIssue(input: { issue_id: int })") for line in lines)
    assert "  function closeIssue(" in done.stdout
    assert "never" not in done.stdout
    assert "the program has yielded control: tea" in done.stderr


@pytest.mark.usefixtures("esbuild")
def test_what_fails_is_told_in_the_authors_lines_and_by_the_exit_code(tmp_path: Path) -> None:
    done = piped(
        write_config(tmp_path, {}),
        """\
const ok = 1
if (ok) {
  throw new Error("no")
}
  null.x
const = 2
const m = new Map()
m.size
ok
.no
.wait
interface Point { x: number }
const point: Point = { x: 2 }
function twice<T extends Point>(p: T): number {
  return p.x * 2
}
twice(point)
.js
twice(point)
const n: number = 1
""",
    )
    assert done.exit_code == 1
    assert done.stdout.splitlines() == ["1", "4", "4"]
    said = [line for line in done.stderr.splitlines() if line]
    assert said[:2] == ["Error: no", "    at cell.js:2:9"]
    assert said[2:4] == ["TypeError: cannot read property 'x' of null", "    at cell.js:1:8"]
    assert said[4].startswith("invalid_input: SyntaxError: ")
    assert "(cell.js:1:" in said[4]
    assert "m is a Map: later inputs will not have it" in said
    assert any(line.startswith("ReferenceError: m was a Map, which a later input has not") for line in said)
    assert "there is no command .no; see .help" in said
    assert "no program is suspended; see .runs" in said
    assert "1:400" not in done.stderr


def test_the_history_is_private_and_does_not_grow_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history"
    history = open_history(path)
    history.append_string("const a = 1\na")
    history.append_string(" a secret")
    if sys.platform != "win32":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(open_history(path).load_history_strings()) == ["const a = 1\na"]
    for number in range(3):
        history.append_string(f"{number}" + "x" * (MAX_HISTORY // 2))
    kept = list(open_history(path).load_history_strings())
    assert path.stat().st_size < MAX_HISTORY
    assert [each[0] for each in kept] == ["2"] or kept == []


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals on Windows")
async def test_a_person_completes_runs_approves_and_interrupts(tmp_path: Path) -> None:
    config = write_config(tmp_path, TRACKER, ask=["mcp:tracker:close_issue"])
    env = {"XDG_STATE_HOME": str(tmp_path), "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm", "NO_COLOR": "1"}
    async with terminal("repl", "--config", str(config), env=env) as person:
        await person.see(r"MCP\.tracker \(6 tools\).*>")
        person.type("const { total } = unwrap(await MCP.tracker.listI\t")
        await person.see("ssues")
        person.type("())\rtotal\r")
        await person.see(r"[^0-9]30[^0-9]")
        person.type("if (total) {\r")
        await person.see(r"\|")
        person.type("text(unwrap(await MCP.tracker.closeIssue({ issue_id: 3 })).state)\r}\r")
        await person.see(r"may a program make this tool call\?.*\n> ")
        person.screen = b""
        person.type("yes\n")
        await person.see(r"closed.*\[\?2004h")
        person.screen = b""
        person.type("text('be' + 'gun'); await API.list(); while (true) {}\r")
        await person.see("begun")
        # What Ctrl-C is; the terminal is not the one that controls it.
        person.process.send_signal(signal.SIGINT)
        await person.see("cancelled, with its calls in flight.*2004h")
        person.type("total + 1\r")
        await person.see(r"[^0-9]31[^0-9].*2004h")
        person.type("\x04")
        assert await person.end() == 0
    assert "total + 1" in (tmp_path / "codemode-mcp" / "repl_history").read_text("utf-8")


async def test_two_interrupts_leave_at_an_empty_prompt_and_never_with_text_typed(tmp_path: Path) -> None:
    async with terminal("repl", "--config", str(write_config(tmp_path, {}))) as person:
        await person.see(r"\?2004h")
        for text in ("one", "two", "three"):
            person.screen = b""
            person.type(text)
            await person.see(text)
            person.type("\x03")
            await person.see(r"2004h")
        person.screen = b""
        person.type("40 + 2\r")
        await person.see(r"[^0-9]42[^0-9].*2004h")
        person.screen = b""
        person.type("\x03")
        await person.see(r"Ctrl-C again.*2004h")
        person.type("\x03")
        assert await person.end() == 0


async def test_a_person_who_cannot_see_the_question_decides_nothing(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")}, ask=["mcp:up:count"])
    with (tmp_path / "stderr").open("wb") as elsewhere:
        async with terminal("repl", "--config", str(config), stderr=elsewhere.fileno()) as person:
            await person.see(r"\?2004h")
            person.type('await MCP.up.count({ name: "a" }).then(() => "made", () => "not made")\r')
            await person.see(r"\n[^\n]*'not made'[^\n]*\r\n")
            person.type(".exit\r")
            assert await person.end() == 0
    assert "asks for your approval" not in (tmp_path / "stderr").read_text("utf-8")


async def test_what_is_piped_in_shows_nothing_on_a_terminal_that_moves_the_cursor(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    program = b'text("a\\u001b[2J\\u009b"); throw new Error("\\u001b]52;c;AA\\u0007")\n'
    (tmp_path / "stdin").write_bytes(b'store("codemode-mcp repl", { x: 5, y: null })\n' + program + b"\xff\n")
    with (tmp_path / "stdin").open("rb") as given:
        async with terminal("repl", "--config", str(config), stdin=given.fileno()) as person:
            assert await person.end() == 1
    assert "a\\x1b[2J\\x9b" in person.text
    assert "Error: \\x1b]52;c;AA\\x07" in person.text
    assert "\x1b" not in person.text
    assert "cannot read the programs from stdin" in person.text


def test_a_reader_that_has_gone_ends_the_program_quietly(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    text = 'text("first"); await new Promise((then) => setTimeout(then, 1)); text("more");\n'
    command = [*COMMAND, "repl", "--config", str(config)]
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            command, input=text.encode(), stdout=write_end, stderr=subprocess.PIPE, check=False, timeout=60
        )
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (1, b"")
