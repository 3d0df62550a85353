"""Commands at a terminal use the shared instance that runs: they start no servers, and print the same as without it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest
from attached import attached, background_instance, instance
from harness import COMMAND, SECONDS, cli, counting, events, pids, until, write_config
from terminal import terminal
from typer.testing import CliRunner

from codemode_mcp.cli import app
from codemode_mcp.config import confirmation
from codemode_mcp.paths import state_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the tests send signals, and use pseudo-terminals")

COMMANDS = [
    ["call", "up.count", "name=42"],
    ["call", "up.count", "--json", '{"name": "é"}'],
    ["call", "MCP.up.count", "name=a=b", "--read-only"],
    ["call", "mcp:up:refuse", "--quiet"],
    ["call", "up.reject"],
    ["call", "up.peek", "nom=a"],
    ["call", "up.cuont", "name=a"],
    ["call", "upp.count"],
    ["call", "up"],
    ["call", "up.count", "name"],
    ["call", "up.count", "--json", "{'a'}"],
    ["call", "up.count", "--json=[]"],
    ["call", "dead.count"],
    ["tools"],
    ["tools", "--json"],
    ["tools", "count", "this", "call"],
    ["tools", "count this call", "--json", "--server", "up"],
    ["tools", "--server", "up", "--long"],
    ["tools", "--server", "results"],
    ["tools", "--server", "dead"],
    ["tools", "--server=upp"],
    ["run", "-e", "text('out'); return unwrap(await MCP.up.count({ name: 'from run' }))"],
    ["run", "--json", "-e", "text('out'); return unwrap(await MCP.up.count({ name: 'as json' }))"],
    ["run", "-e", "const n: number = 1; return n", "--language", "typescript"],
    ["run", "-e", "return (await MCP.$api()).servers.length"],
    ["run", "-e", "return (await MCP.$api()).servers.length", "--server", "other"],
    ["run", "-e", "text('before'); throw new RangeError('too far')"],
    ["run", "-e", "return await MCP.dead.count({ name: 'a' })"],
    ["run", "-e", "return await mcp__up__count({ name: 'a' })"],
    ["run", "-e", "await MCP.up.count({ name: 'refused' })", "--read-only"],
    ["run", "-e", "await yield_control(); return 'end'"],
    ["run", "-e", "return 1", "--language", "python"],
    ["run", "-e", "return ("],
    ["run", "-e", "  "],
    ["run", "no-such-file.js"],
    ["run"],
    ["run", "--program", "counts", "--input", '{"name": "saved"}'],
    ["run", "--program", "counts", "--input", "{}"],
    ["run", "--program", "needsDead"],
    ["run", "--program", "count"],
    ["run", "--program", "counts", "--input", "@no-such-file"],
    ["run", "--program", "greets"],
    ["run", "--program", "greets", "--input", ""],
    ["run", "-e", "return await programs.counts({ name: 'from a program' })"],
]

PROGRAMS = {
    "greets.js": "/** @param {{ name?: string }} input */\nexport default ({ name = 'you' } = {}) => `Hello, ${name}`;",
    "counts.ts": "export default async (input: { name: string }) => unwrap(await MCP.up.count(input));",
    "needsDead.js": "export default async () => MCP.dead.count({});",
}


def invoke(*arguments: str) -> Result:
    """Run a command in this process, which takes less time than another process."""
    return CliRunner().invoke(app, list(arguments), prog_name="codemode-mcp", catch_exceptions=False)


@pytest.fixture(scope="module")
def servers(folder: Path) -> Path:
    servers = {"up": counting(folder / "up"), "other": counting(folder / "other"), "dead": {"command": "no-such-one"}}
    (folder / "programs").mkdir()
    for name, text in PROGRAMS.items():
        (folder / "programs" / name).write_text(text, "utf-8")
    return write_config(folder, servers)


@pytest.fixture(scope="module")
def shared(servers: Path) -> Iterator[Path]:
    """Return a configuration whose instance has started its servers."""
    with background_instance(servers):
        assert cli("call", "up.peek", "--config", str(servers)).returncode == 1
        yield servers


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_command_prints_the_same_with_and_without_the_instance(
    shared: Path, arguments: list[str], folder: Path
) -> None:
    name, *rest = arguments
    started = pids(folder / "up")
    there = cli(name, "--config", str(shared), *rest)
    assert pids(folder / "up") == started, "the servers of the instance are used"
    alone = invoke(name, "--private", "--config", str(shared), *rest)
    assert (there.returncode, there.stdout, there.stderr) == (alone.exit_code, alone.stdout, alone.stderr)


def test_a_saved_program_can_be_run_as_soon_as_it_is_written(shared: Path, folder: Path) -> None:
    for number in range(2):
        (folder / "programs" / f"new{number}.js").write_text(f"export default () => {number};")
        done = cli("run", "--config", str(shared), "--program", f"new{number}")
        assert (done.returncode, done.stdout) == (0, f"{number}\n"), done.stderr


def test_a_program_finds_its_arguments_in_the_instance(shared: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.js"
    program.write_text("return [args, typeof MCP.up.peek]")
    done = cli("run", "--config", str(shared), str(program), "--", "one", "--flag")
    assert (done.returncode, done.stdout, done.stderr) == (0, '[["one", "--flag"], "function"]\n', "")


def test_the_written_types_are_the_same_with_and_without_the_instance(shared: Path, tmp_path: Path) -> None:
    found = {}
    for out, options in (("there", []), ("alone", ["--private"])):
        done = cli("types", "--out", out, "--config", str(shared), *options, cwd=tmp_path)
        written = {str(file.relative_to(tmp_path / out)): file.read_text() for file in (tmp_path / out).rglob("*.ts")}
        found[out] = done.returncode, done.stdout.replace(out, ""), done.stderr.replace(out, ""), written
    assert found["there"] == found["alone"]
    assert "mcp/up.d.ts" in found["there"][3]


async def _commands(config: Path) -> list[str | None]:
    """Return the command of each client of the instance; None for a client that is none."""
    found = await anyio.to_thread.run_sync(lambda: cli("instance", "status", "--json", "--config", str(config)))
    return [each["command"] for each in json.loads(found.stdout)["instance"]["clients"]]


@pytest.mark.anyio
async def test_a_command_is_a_client_of_the_instance_and_ctrl_c_cancels_its_program(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")})
    async with instance(config), attached(config) as client:
        await client.greet()
        command = [*COMMAND, "call", "up.hold", "name=a", "--config", str(config)]
        async with await anyio.open_process(command) as process:
            await until(lambda: "call a" in events(tmp_path / "log"))
            status = await anyio.to_thread.run_sync(lambda: cli("instance", "status", "--config", str(config)))
            assert re.search(rf"^  codemode-mcp call, process {process.pid}, in ", status.stdout, re.MULTILINE)
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
            assert process.stderr is not None
            said = (await process.stderr.receive()).decode()
        assert said == "interrupted: the program was cancelled, and its calls in flight\n"
        # The instance and the server notice the end of the command after it.
        await until(lambda: "cancelled a" in events(tmp_path / "log"))
        with anyio.fail_after(SECONDS):
            while await _commands(config) != [None]:
                pass
        assert (await client.exec("return 1"))["value"] == 1


@pytest.mark.anyio
async def test_output_is_there_before_a_program_ends_which_is_cancelled_if_the_command_is_killed(
    tmp_path: Path,
) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")})
    code = 'text("first"); await MCP.up.hold({ name: "a" }); return "last"'
    async with instance(config):
        async with await anyio.open_process([*COMMAND, "run", "-e", code, "--config", str(config)]) as process:
            assert process.stdout is not None
            assert await process.stdout.receive() == b"first\n"
            await until(lambda: "call a" in events(tmp_path / "log"))
            process.kill()
            await process.wait()
        await until(lambda: "cancelled a" in events(tmp_path / "log"))


@pytest.mark.anyio
@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGTERM])
async def test_a_command_whose_instance_ends_says_so(tmp_path: Path, way: signal.Signals) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")})
    async with instance(config) as running:
        command = [*COMMAND, "call", "up.hold", "name=a", "--config", str(config)]
        async with await anyio.open_process(command) as process:
            await until(lambda: "call a" in events(tmp_path / "log"))
            os.kill(running.pid, way)
            with anyio.fail_after(SECONDS):
                assert await process.wait() == 1
            assert process.stderr is not None
            said = " ".join((await process.stderr.receive()).decode().split())
    assert said.startswith(f"the shared instance, process {running.pid}, has ended before the command did;")
    assert "Traceback" not in said


@pytest.mark.anyio
async def test_a_question_of_the_instance_is_answered_at_the_terminal_of_the_command(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")}, ask=["mcp:up:count"])
    async with instance(config):
        for typed, code in (("yes\n", 0), ("no\n", 1)):
            async with terminal("call", "up.count", "name=a", "--config", str(config)) as person:
                await person.see(r'call 1: "mcp:up:count".*"a".*Type yes: .*> ')
                person.type(typed)
                assert await person.end() == code
        assert events(tmp_path / "log") == ["call a"]
        done = await anyio.to_thread.run_sync(lambda: cli("call", "up.count", "name=b", "--config", str(config)))
        assert done.returncode == 1
        assert "denied by `codemode-mcp run`, which cannot ask here" in " ".join(done.stderr.split())


@pytest.mark.anyio
async def test_a_line_of_progress_stands_at_the_terminal_of_the_command(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")})
    async with instance(config):
        async with terminal("call", "up.hold", "name=a", "--config", str(config)) as person:
            await person.see(r"1 running · MCP\.up\.hold [0-9.]+ (ms|s)")
            person.process.send_signal(signal.SIGINT)
            assert await person.end() == 130
        assert re.search(r"\r +\rinterrupted", person.text), "it was cleared"
        assert len(pids(tmp_path / "log")) == 1


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="the test looks for sockets in /proc")
@pytest.mark.anyio
async def test_a_command_does_without_an_instance_that_does_not_answer(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")})
    async with instance(config) as running:
        os.kill(running.pid, signal.SIGSTOP)
        try:
            command = ("call", "up.count", "name=a", "--config", str(config))
            done = await anyio.to_thread.run_sync(lambda: cli(*command))
            async with await anyio.open_process([*COMMAND, *command], stdout=subprocess.DEVNULL) as process:
                await until(lambda: _connected(process.pid))
                process.send_signal(signal.SIGINT)
                assert await process.wait() == 130
                assert process.stderr is not None
                assert [part async for part in process.stderr] == []
        finally:
            os.kill(running.pid, signal.SIGCONT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\n", "")


def _connected(pid: int) -> bool:
    """Return True if a process has a socket."""
    folder = Path(f"/proc/{pid}/fd")
    for descriptor in folder.iterdir():
        with suppress(FileNotFoundError):  # the process has closed it meanwhile
            if os.readlink(descriptor).startswith("socket:"):
                return True
    return False


def test_a_configuration_of_the_working_directory_has_to_be_confirmed(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")}, name="codemode-mcp.json")
    with background_instance(config):
        refused = cli("call", "up.count", "name=a", cwd=tmp_path)
        assert refused.returncode == 2
        assert "you have not confirmed its current content" in " ".join(refused.stderr.split())
        confirmation.confirm(config, json.loads(config.read_text()), state_dir() / "confirmed")
        for name in "ab":
            assert cli("call", "up.count", f"name={name}", cwd=tmp_path).stdout == f"{name}\n"
        assert len(pids(tmp_path / "log")) == 1


def test_a_program_that_takes_longer_than_a_request_is_followed(tmp_path: Path) -> None:
    config = write_config(tmp_path, {}, codeMode={"timeoutMs": 200, "maxOutputBytes": 1024})
    code = """
        for (let n = 0; n < 300; n++) text(`line ${n}`);
        await yield_control(); await new Promise((resolve) => setTimeout(resolve, 500));
        text("after"); return "v".repeat(5000)"""
    with background_instance(config):
        done = cli("run", "-e", code, "--config", str(config))
        answers = cli("run", "-e", code, "--config", str(config), "--json")
    assert done.stdout.splitlines() == [*(f"line {n}" for n in range(300)), "after", "v" * 5000]
    assert (done.returncode, done.stderr) == (0, "")
    statuses = [json.loads(line)["status"] for line in answers.stdout.splitlines()]
    assert statuses == ["waiting"] * (len(statuses) - 1) + ["completed"]


@pytest.mark.parametrize("arguments", [["call", "up.count", "name=a"], ["run", "-e", "return 1"], ["tools"]])
def test_commands_are_the_same_in_pass_through_mode(tmp_path: Path, arguments: list[str]) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")}, codeMode={"enabled": False})
    with background_instance(config):
        there = cli(*arguments, "--config", str(config))
        alone = cli(*arguments, "--config", str(config), "--private")
    assert (there.returncode, there.stdout, there.stderr) == (alone.returncode, alone.stdout, alone.stderr)
    assert there.returncode == 0


def test_a_private_configuration_is_not_shared(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")})
    command = ["call", "up.count", "name=a", "--config", str(config)]
    with background_instance(config):
        assert cli(*command).stdout == "a\n"
        config.write_text(json.dumps({**json.loads(config.read_text()), "instance": {"shared": False}}))
        assert cli(*command).stdout == "a\n"
        assert len(pids(tmp_path / "log")) == 2


def test_a_reader_that_leaves_cancels_the_program(shared: Path) -> None:
    command = [*COMMAND, "call", "up.count", "name=a", "--config", str(shared)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(SECONDS) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_no_secret_is_shown(tmp_path: Path) -> None:
    secret = "s3cret-of-the-test"
    entry = counting(tmp_path / "log", f"stderr={secret}", env={"SECRET": secret})
    config = write_config(tmp_path, {"up": entry})
    with background_instance(config):
        command = ["call", "up.reject", "--config", str(config)]
        there, alone = cli(*command), cli(*command, "--private")
        assert there.stderr == alone.stderr
        status = cli("instance", "status", "--json", "--config", str(config))
        log = cli("instance", "logs", "--config", str(config))
    for each in (there, status, log):
        assert secret not in each.stdout + each.stderr
