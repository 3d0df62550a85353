"""`codemode-mcp run` as a person sees it at a terminal, while the program runs."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import anyio
import pytest
from harness import COMMAND, SECONDS, counting, events, invoke, write_config
from terminal import terminal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")

REMEMBERING = """\
const made = [];
for (const name of "abcdef") made.push(await MCP.up.count({ name }).then(() => "made", () => "not made"));
return made.join(", ");"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    return str(write_config(tmp_path, {"up": counting(tmp_path / "log")}, ask=["mcp:up:count"]))


@pytest.mark.anyio
async def test_what_a_program_prints_is_there_before_it_ends(config: str, tmp_path: Path) -> None:
    code = 'text("first"); await MCP.up.hold({ name: "a" }); return "last"'
    async with await anyio.open_process([*COMMAND, "run", "-e", code, "--config", config]) as process:
        assert process.stdout is not None
        with anyio.fail_after(SECONDS):
            seen = await process.stdout.receive()
            assert seen == b"first\n"
            assert process.returncode is None
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
            assert process.stderr is not None
            said = (await process.stderr.receive()).decode()
    assert "interrupted" in said
    assert "Traceback" not in said
    assert "cancelled a" in events(tmp_path / "log")


@pytest.mark.anyio
async def test_a_person_at_the_terminal_denies_by_whatever_is_no_yes_and_may_approve_for_the_whole_run(
    config: str, tmp_path: Path
) -> None:
    async with terminal("run", "-e", REMEMBERING, "--config", config) as person:
        await person.see(r'call 1: "mcp:up:count".*"a".*Type yes: .*run: .*> ')
        person.type("yes please\n")
        for number, typed in enumerate(("x" * 200 + "yes\n", "yes\n", "approve\n", "run\n"), 2):
            await person.see(rf'call {number}: "mcp:up:count".*"{"abcde"[number - 1]}".*> ')
            person.type(typed)
        assert await person.end() == 0
    # The line of progress may be drawn and erased before and behind it, if a call takes long.
    assert re.search(r"(\n|\r +\r)not made, not made, made, not made, made, made\r\n", person.text)
    assert [line for line in events(tmp_path / "log") if line.startswith("call")] == ["call c", "call e", "call f"]


@pytest.mark.anyio
async def test_a_line_of_progress_stands_at_a_terminal_until_the_end(config: str) -> None:
    code = """
        const all = ["a", "b"].map((name) => MCP.up.hold({ name }));
        await MCP.up.refuse(); text("printed"); await all[0]; return "end";"""
    async with terminal("run", "-e", code, "--config", config) as person:
        await person.see(r"printed\r\n")
        await person.see(r"2 running, 1 done · MCP\.up\.hold [0-9.]+ (ms|s)")
        person.process.send_signal(signal.SIGINT)
        assert await person.end() == 130
    assert re.search(r"\r +\rinterrupted", person.text), "it was cleared"


@pytest.mark.anyio
async def test_a_program_that_hides_what_it_prints_is_seen_through_at_a_terminal(config: str) -> None:
    async with terminal("run", "--quiet", "-e", r'text("a\u001b[2Jb\tc\nd")', "--config", config) as person:
        assert await person.end() == 0
    assert person.text == "a\\x1b[2Jb\tc\r\nd\r\n"


def test_a_program_comes_from_stdin_and_its_trace_goes_to_stderr_and_a_page(config: str, tmp_path: Path) -> None:
    page = tmp_path / "trace.html"
    arguments = ("run", "-", "--trace", "--trace-html", str(page), "--config", config)
    done = invoke(*arguments, text='text("shown"); await MCP.up.refuse(); return [1]')
    assert (done.exit_code, done.stdout) == (0, "shown\n[1]\n")
    assert re.search(r"^mcp:up:refuse [ ░]*█+ ", done.stderr, re.MULTILINE)
    assert max(len(line) for line in done.stderr.splitlines() if str(page) not in line) <= 100
    assert "mcp:up:refuse" in page.read_text("utf-8")


def test_no_question_is_asked_where_no_terminal_is(config: str) -> None:
    done = invoke("run", "-e", REMEMBERING, "--config", config, text="yes\nyes\nyes\n")
    assert done.stdout == ", ".join(["not made"] * 6) + "\n"
    assert os.linesep.join(done.stderr.splitlines()) == ""
