"""`codemode-mcp repl` over a pipe and at a terminal. While a shared instance runs, its programs run there, and it looks
the same as without it."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from typer.testing import Result

from codemode_mcp.base.paths import state_dir
from codemode_mcp.extensions.repl.terminal import MAX_HISTORY, open_history
from tests.integration.attached import attached, background_instance, instance
from tests.integration.harness import (
    COMMAND,
    SECONDS,
    cli,
    command,
    counting,
    events,
    invoke,
    pids,
    quickstart,
    until,
    write_config,
)
from tests.integration.terminal import terminal

pytestmark = pytest.mark.anyio

SHARED = pytest.mark.skipif(sys.platform == "win32", reason="the tests send signals, and use pseudo-terminals")

TRACKER = {"tracker": quickstart()["tracker"]}
ENV = {"PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm", "NO_COLOR": "1"}


@pytest.fixture(scope="module", autouse=True)
def own_store(tmp_path_factory: pytest.TempPathFactory, own_folders: None) -> Iterator[None]:
    """Give these tests a store without the values of other tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("repl-state")))
        yield


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[Path]:
    """Return a configuration whose instance has started its servers."""
    config = write_config(
        folder,
        {"up": counting(folder / "up"), **TRACKER},
        deny=["mcp:up:release"],
        ask=["mcp:tracker:create_issue"],
    )
    with background_instance(config):
        assert cli("run", "-e", "await MCP.$api(); await API.list()", "--config", str(config)).returncode == 0
        yield config


def stored_values() -> int:
    """Return the number of values of programs in the store."""
    path = state_dir() / "runs.sqlite3"
    if not path.exists():
        return 0
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("SELECT COUNT(*) FROM kept").fetchone()[0])
    finally:
        connection.close()


class Session:
    """A prompt whose input and output are pipes."""

    def __init__(self, process: Process) -> None:
        self.process = process
        assert process.stdout is not None
        self._lines = BufferedByteReceiveStream(process.stdout)

    async def type(self, text: str) -> None:
        """Type lines without waiting for an answer."""
        assert self.process.stdin is not None
        await self.process.stdin.send(text.encode() + b"\n")

    async def run(self, text: str) -> str:
        """Run a program that prints one line. Return this line."""
        await self.type(text)
        with anyio.fail_after(SECONDS):
            return (await self._lines.receive_until(b"\n", 1_000_000)).decode()

    async def leave(self) -> tuple[int, str]:
        """Close the input. Return the exit code, and what the command has said."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        return await self.end()

    async def end(self) -> tuple[int, str]:
        """Return the exit code, and what the command has said."""
        assert self.process.stderr is not None
        with anyio.fail_after(SECONDS):
            said = b"".join([part async for part in self.process.stderr]).decode()
            return await self.process.wait(), " ".join(said.split())


@asynccontextmanager
async def session(config: Path, *options: str) -> AsyncIterator[Session]:
    words = [*COMMAND, "repl", "--config", str(config), *options]
    async with await anyio.open_process(words, stdin=subprocess.PIPE) as process:
        try:
            yield Session(process)
        finally:
            if process.returncode is None:
                process.kill()


SESSION = """\
await API.list(); await MCP.up.peek().catch(() => 0); await MCP.tracker.listPeople().catch(() => 0); 0
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
{ a: two }

undeclared = [1]
undeclared.push(2), undeclared
const Object = 7, JSON = 8, globalThis = 9
Object + two
const m = new Map()
m.size
.names
.clear
two
const ok = 1
if (ok) {
  throw new Error("no")
}
null.x
const = 2
.no
.wait
.d tracker#nothing
.search
await MCP.up.refuse()
await MCP.up.nothing()
.d up
.d tracker#closeIssue
.d tools
.search close an issue
.search nothing at all like this
unwrap(await MCP.up.count({ name: "counted" }))
await MCP.up.release({ name: "denied" })
await MCP.tracker.createIssue({ title: "not approved", label: "bug" })
text("\\u001b[2J", { a: 1 }); console.log("b\\tc"); "é\\ud800"
[1.5, 2 ** 64, 1e300, null, true, "\\ud800", { "ü": [] }]
await yield_control("tea"); text("after"); "end"
.wait
let a = []; for (let n = 0; n < 500; n++) a = [a]; a
let b = []; for (let n = 0; n < 100000; n++) b = [b]; b
"v".repeat(3000000).length
"v".repeat(100000)
await new Promise(() => {})
.exit
"never"
"""
"""Lines that declare names, fail, look at and call tools, print, and one that never ends."""

VALUES = (
    *("24", "a\tline 1", "25", "2", "in it", "3", "3", "its own", '{"a": 3}', "[1]", "[1, 2]", "10"),
    *("counted", "after", "end", "3000000"),
)
"""Some of the lines that are printed for it, in their order."""


@SHARED
@pytest.mark.parametrize("options", [(), ("--read-only",), ("--language", "typescript")], ids=" ".join)
async def test_a_session_over_a_pipe_is_the_same_with_and_without_the_instance(
    shared: Path, options: tuple[str, ...], folder: Path
) -> None:
    started = pids(folder / "up")
    there = cli("repl", "--config", str(shared), *options, text=SESSION)
    assert pids(folder / "up") == started, "the servers of the instance are used"
    alone = cli("repl", "--private", "--config", str(shared), *options, text=SESSION)
    assert (there.stdout, there.stderr) == (alone.stdout, alone.stderr)
    assert there.returncode == alone.returncode
    assert "Traceback" not in there.stderr
    assert stored_values() == 0
    assert "never" not in there.stdout
    if not options:
        lines = iter(there.stdout.splitlines())
        assert [value for value in VALUES if value not in lines] == []
        assert {"double: a function", "two = 3"} <= set(there.stdout.splitlines())
        assert "\nMCP.tracker.closeIssue(input: { issue_id: int })" in there.stdout
        assert "  function closeIssue(" in there.stdout
        assert "the program has yielded control: tea" in there.stderr


@SHARED
async def test_sessions_do_not_see_the_names_of_each_other(shared: Path) -> None:
    async with session(shared) as one, session(shared) as other:
        assert await one.run("const mine = 1; mine") == "1"
        assert await other.run("typeof mine") == "undefined"
        assert await other.run("const mine = 2, theirs = 3; mine") == "2"
        assert await one.run("[mine, typeof theirs]") == '[1, "undefined"]'
        await one.type(".names")
        assert await one.run("0") == "mine = 1"
        assert stored_values() == 2
        assert (await other.leave())[0] == 0
        assert stored_values() == 1
        assert await one.run("mine") == "0"
        assert (await one.leave())[0] == 0
    assert stored_values() == 0
    async with session(shared) as later:
        assert await later.run("const own = 4; typeof mine") == "undefined"
        await later.type(".names")
        assert await later.run("'end'") == "own = 4"
        await later.leave()
    assert stored_values() == 0


@SHARED
async def test_a_new_private_session_has_no_names_of_an_earlier_one(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    for _ in range(2):
        done = invoke("repl", "--private", "--config", str(config), text=".names\nconst a = 1\n.names\n")
        assert done.stdout == "a = 1\n"


@SHARED
async def test_a_session_that_is_killed_leaves_neither_names_nor_programs(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")})
    async with instance(config):
        async with session(config) as killed, session(config) as other:
            await killed.run("const a = 1; a")
            await killed.run(
                'text("begun"); const held = MCP.up.hold({ name: "a" }); await yield_control(); await held'
            )
            await until(lambda: "call a" in events(tmp_path / "log"))
            assert await other.run("const b = 2; b") == "2"
            killed.process.kill()
            await until(lambda: "cancelled a" in events(tmp_path / "log"))
            await until(lambda: stored_values() == 1)
            assert await other.run("b") == "2"
            await other.type("await yield_control(); 'resumed'")
            assert await other.run(".wait") == "resumed"
            await other.leave()
        assert stored_values() == 0
        found = await command("runs", "list", "--json", "--config", str(config))
        assert "waiting" not in found.stdout


@SHARED
async def test_runs_lists_the_runs_of_this_session_only(shared: Path) -> None:
    async with session(shared) as one, session(shared) as other:
        await one.run("'theirs'")
        await other.run("'own'")
        await other.type(".runs")
        assert re.fullmatch(r"run_\S+  completed, 0 calls, [0-9]+ s ago", await other.run("'end'"))
        assert await other.run("0") == "end"


@SHARED
async def test_an_interrupt_cancels_the_program_and_its_calls(shared: Path, folder: Path) -> None:
    async with session(shared) as typed:
        await typed.type('await MCP.up.hold({ name: "interrupted" })')
        await until(lambda: "call interrupted" in events(folder / "up"))
        typed.process.send_signal(signal.SIGINT)
        assert await typed.end() == (130, "interrupted: the program was cancelled")
    await until(lambda: "cancelled interrupted" in events(folder / "up"))
    await until(lambda: stored_values() == 0)


@SHARED
@pytest.mark.parametrize("options", [(), ("--private",)])
async def test_an_interrupt_at_an_empty_pipe_ends_the_session(shared: Path, options: tuple[str, ...]) -> None:
    async with session(shared, *options) as typed:
        assert await typed.run("1") == "1"
        typed.process.send_signal(signal.SIGINT)
        assert await typed.end() == (130, "interrupted: the program was cancelled")


@SHARED
@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGTERM])
async def test_a_session_whose_instance_ends_says_so_and_ends(
    tmp_path: Path, way: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # a killed instance removes nothing
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")})
    async with instance(config) as running, session(config) as idle, session(config) as busy:
        assert await idle.run("1") == "1"
        await busy.type('await MCP.up.hold({ name: "a" })')
        await until(lambda: "call a" in events(tmp_path / "log"))
        os.kill(running.pid, way)
        sentence = f"the shared instance, process {running.pid}, has ended, and this session with it; "
        assert await idle.end() == (1, sentence + "start codemode-mcp repl again")
        code, said = await busy.end()
        assert code == 1
        assert said == sentence + (
            "calls of its programs may have been made: look at what they have done before you repeat them"
        )


@SHARED
@pytest.mark.parametrize("options", [(), ("--private",)], ids=["instance", "private"])
async def test_a_person_completes_runs_approves_and_interrupts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    config = write_config(tmp_path, {**TRACKER, "up": counting(tmp_path / "log")}, ask=["mcp:tracker:close_issue"])
    async with instance(config):
        # The greeting does not wait long for servers, so they are started before.
        assert (await command("tools", "--config", str(config))).exit_code == 0
        async with terminal("repl", "--config", str(config), *options, env=ENV) as person:

            async def answers(text: str, pattern: str) -> None:
                """Type a text, and wait for what is shown after it."""
                person.screen = b""
                person.type(text)
                await person.see(pattern)

            async def interrupted(pattern: str) -> None:
                """Do as Ctrl-C does. The terminal is not the one that controls the process."""
                person.screen = b""
                person.process.send_signal(signal.SIGINT)
                await person.see(pattern)

            # Nothing completes names of tools before they are known.
            await person.see(r"MCP\.tracker \(.*>")
            await answers("await MCP.tracker.listPeople().then(() => 40 + 4)\r", r"[^0-9]44[^0-9].*2004h")
            await answers("const { total } = unwrap(await MCP.tracker.listI\t", "ssues")
            await answers("())\rtotal\r", r"[^0-9]30[^0-9]")
            status = await command("instance", "status", "--config", str(config))
            assert (f"codemode-mcp repl, process {person.process.pid}, in " in status.stdout) == (not options)
            await answers("tot\t", "al")
            await answers(" + 11\r", r"[^0-9]41[^0-9].*2004h")
            await answers("if (total) {\r", r"\|")
            close = "text(unwrap(await MCP.tracker.closeIssue({ issue_id: 3 })).state)\r}\r"
            await answers(close, r"may a program make this tool call\?.*\n> ")
            await answers("yes\n", r"closed.*\[\?2004h")
            if not options:
                close = "await MCP.tracker.closeIssue({ issue_id: 4 }).catch((error) => error.message)\r"
                await answers(close, r"may a program make this tool call\?.*\n> ")
                await interrupted(r"the question was withdrawn.*cancelled, with its calls in flight.*2004h")
            await answers('await MCP.up.hold({ name: "a" })\r', r"1 running · MCP\.up\.hold [0-9.]+ (ms|s)")
            await interrupted("cancelled, with its calls in flight.*2004h")
            await until(lambda: "cancelled a" in events(tmp_path / "log"))
            await answers("text('be' + 'gun'); await API.list(); while (true) {}\r", "begun")
            await interrupted("cancelled, with its calls in flight.*2004h")
            await answers("total + 1\r", r"[^0-9]31[^0-9].*2004h")
            person.type("\x04")
            assert await person.end() == 0
        assert stored_values() == 0
    assert "total + 1" in (tmp_path / "codemode-mcp" / "repl_history").read_text("utf-8")


@SHARED
async def test_completion_knows_a_server_that_is_added_while_the_prompt_is_open(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    async with instance(config), terminal("repl", "--config", str(config), env=ENV) as person:
        await person.see(r"no server is configured.*\?2004h")
        content = json.loads(config.read_text())
        content["mcpServers"] = {"later": counting(tmp_path / "log")}
        config.write_text(json.dumps(content))
        with anyio.fail_after(SECONDS):
            while "ater" not in person.text:
                person.screen = b""
                person.type("MCP.l\t")
                await person.see(r"MCP\.l")
                await anyio.sleep(0.2)  # nothing shows that there was no completion
                person.type("\x03")
                await person.see(r"\?2004h")


@SHARED
async def test_a_session_at_a_terminal_ends_with_its_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # a killed instance removes nothing
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")})
    async with instance(config) as running:
        async with terminal("repl", "--config", str(config), env=ENV) as person:
            await person.see(r"MCP\.up.*\?2004h")
            person.type("40 + 2\r")
            await person.see(r"[^0-9]42[^0-9].*2004h")
            person.screen = b""
            os.kill(running.pid, signal.SIGKILL)
            assert await person.end() == 1
        assert re.search(r"the shared instance, process [0-9]+, has ended, and this session with it", person.text)
        assert "Traceback" not in person.text


@SHARED
async def test_files_are_read_and_written_in_the_folder_of_the_terminal(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "program.js").write_text("const loaded = 5\nloaded + 1\n")
    text = ".load program.js\nloaded\n.save saved.js\n"
    done = cli("repl", "--config", str(shared), cwd=tmp_path, text=text)
    assert (done.returncode, done.stdout) == (0, "6\n5\n")
    assert (tmp_path / "saved.js").read_text() == "const loaded = 5\nloaded + 1\nloaded\n"


@SHARED
async def test_options_of_the_log_make_a_session_private(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")})
    program = 'unwrap(await MCP.up.count({ name: "a" }))\n'
    with background_instance(config):
        for options in ((), ("--log-file", str(tmp_path / "file")), ("--log-level", "error"), ("--private",)):
            assert invoke("repl", "--config", str(config), *options, text=program).stdout == "a\n"
    assert len(pids(tmp_path / "log")) == 4


@SHARED
async def test_a_message_that_is_too_long_or_invalid_does_not_harm_the_instance(shared: Path) -> None:
    options = {"command": {"name": "repl"}}
    async with attached(shared, options=options) as client:
        await client.send({"arguments": {}})
        first = await client.line()
        assert first is not None
        assert re.fullmatch(r"codemode-mcp repl [0-9a-f]{32}", first["key"])
        for message in (
            {"request": 1, "method": "close", "arguments": {}},
            {"request": "1", "method": "runs", "arguments": {}},
            {"request": 2, "method": "runs"},
            {"cancel": 99},
            {"answer": 1, "text": "yes"},
            {},
        ):
            await client.send(message)
        await client.send({"request": 3, "method": "observe", "arguments": {"run_id": "run_none"}})
        answer = await client.line()
        assert answer is not None
        assert (answer["response"], answer["code"]) == (3, "invalid_input")
        for number in range(10, 1000):
            await client.send({"request": number, "method": "names", "arguments": {}})
        answers = [await client.line() for _ in range(10, 1000)]
        assert {each["response"] for each in answers if each is not None} == {*range(10, 1000)}
        assert None not in answers
        await client.send({"request": 5000, "method": "runs", "arguments": {}})
        assert await client.line() == {"response": 5000, "result": []}
    async with session(shared) as after:
        assert await after.run("1 + 1") == "2"


@SHARED
async def test_no_secret_is_shown(tmp_path: Path) -> None:
    secret = "s3cret-of-the-test"
    config = write_config(
        tmp_path,
        {"up": counting(tmp_path / "log", f"stderr={secret}", env={"SECRET": secret}), "no": {"command": "no-such"}},
    )
    async with instance(config), attached(config, options={"command": {"name": "repl"}}) as client:
        await client.send({"arguments": {}})
        await client.line()
        seen = []
        for number, method in enumerate(("connect", "catalog")):
            arguments = {"seconds": 5.0} if method == "connect" else {"known": 0}
            await client.send({"request": number, "method": method, "arguments": arguments})
            while (message := await client.line()) is not None:
                seen.append(json.dumps(message))
                if message.get("response") == number:
                    break
    assert "mcp" in seen[-1] or "up" in seen[-1]
    assert secret not in "".join(seen)


# over a pipe, alone


def piped(config: Path, text: str) -> Result:
    """Run the REPL in this process, without a terminal."""
    return invoke("repl", "--config", str(config), text=text)


def test_words_of_other_prompts_do_what_they_say_unless_the_session_has_the_name(tmp_path: Path) -> None:
    done = piped(write_config(tmp_path, {}), "help\nclear\nlet help = 41\nhelp + 1\nhelp\nquit()\n'after'\n")
    assert ".search" in done.stdout
    assert ".clear forgets all names" in done.stderr
    assert done.stdout.splitlines()[-2:] == ["42", "41"]


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
    words = [*COMMAND, "repl", "--config", str(config)]
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            words, input=text.encode(), stdout=write_end, stderr=subprocess.PIPE, check=False, timeout=60
        )
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (1, b"")
