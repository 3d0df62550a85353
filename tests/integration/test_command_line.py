"""Commands at a terminal: run, call, tools, types, doctor, setup. They use the shared instance if one runs, start no
servers then, and print the same as without it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
from typer.testing import CliRunner

from codemode_mcp.__main__ import main
from codemode_mcp.base.paths import state_dir
from codemode_mcp.config import confirmation
from codemode_mcp.process.instance import registry
from tests.integration.attached import background_instance, greeted, instance
from tests.integration.harness import (
    COMMAND,
    QUICKSTART,
    SECONDS,
    SERVERS,
    cli,
    command,
    counting,
    events,
    invoke,
    npm_server,
    pids,
    quickstart,
    tsc,
    until,
    write_config,
)
from tests.integration.terminal import terminal


@pytest.fixture(scope="module")
def config(folder: Path) -> str:
    return str(write_config(folder, {name: counting(folder / name) for name in ("counting", "other")}))


@pytest.fixture(scope="module")
def bare(folder: Path) -> str:
    return str(write_config(folder, {}, name="bare.json", codeMode={"timeoutMs": 300}))


def test_a_confirmed_configuration_is_found_in_the_working_directory_and_any_by_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_config(tmp_path, {"counting": counting(tmp_path / "log")}, name="codemode-mcp.json")
    program = ("run", "--json", "-e", "return (await MCP.$api()).servers.length")
    monkeypatch.chdir(tmp_path)
    confirmation.confirm(path, json.loads(path.read_text()), state_dir() / "confirmed")
    assert json.loads(invoke(*program).stdout)["value"] == 1
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert json.loads(invoke(*program, env={"CODEMODE_MCP_CONFIG": str(path)}).stdout)["value"] == 1


def test_run_denies_what_a_person_would_have_to_approve(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")}, ask=["mcp:up:count"])
    code = "await MCP.up.count({ name: 'a' }).catch((e) => text(e.message)); return 'continued'"
    done = invoke("run", "--config", str(config), "-e", code)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "continued"
    assert "MCP.up.count was not approved: denied by `codemode-mcp run`, which cannot ask here" in done.stdout
    assert "runs approve" not in done.stderr, "no other process reaches this one"
    assert events(tmp_path / "log") == []


def test_run_warns_of_a_deny_rule_that_denies_nothing(tmp_path: Path) -> None:
    config = write_config(
        tmp_path,
        {"up": counting(tmp_path / "log"), "other": counting(tmp_path / "log")},
        deny=["mcp:up:cuont", "mcp:upp:count", "mcp:other:count"],
    )
    done = invoke("run", "--config", str(config), "-e", "return unwrap(await MCP.up.count({ name: 'a' }))")
    assert (done.exit_code, done.stdout) == (0, "a\n"), done.stderr
    warned = [line for line in done.stderr.splitlines() if "denies nothing" in line]
    assert len(warned) == 2
    assert "'mcp:upp:count' in tools.deny denies nothing: there is no server 'upp'; did you mean 'mcp:up:count'?" in (
        done.stderr
    )
    assert "'mcp:up:cuont' in tools.deny denies nothing: server 'up' has no such tool" in done.stderr


def test_no_message_masks_the_home_folder_that_a_configuration_refers_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home-of-ada"))
    config = write_config(tmp_path, {"up": {"command": "${HOME}/servers/up", "args": []}})
    done = invoke("run", "--config", str(config), "-e", "return await MCP.up.count({ name: 'a' })")
    assert done.exit_code == 1
    shown = " ".join((done.stdout + done.stderr).split())
    assert "does not exist" in shown
    assert "***" not in shown


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_run_and_repl_give_a_server_that_asks_for_folders_an_empty_list(tmp_path: Path, era: str) -> None:
    entry = {"command": sys.executable, "args": [str(SERVERS / "asking.py"), era]}
    config = str(write_config(tmp_path, {"asking": entry}))
    code = "JSON.stringify(unwrap(await MCP.asking.folders({ label: 'x' })).said)"
    done = invoke("run", "--config", config, "-e", f"return {code}")
    assert (done.exit_code, done.stdout) == (0, '{"roots":[]}\n'), done.stderr
    typed = invoke("repl", "--config", config, text=f"{code}\n")
    assert (typed.exit_code, typed.stdout) == (0, '{"roots":[]}\n'), typed.stderr


LOUD = """
from codemode_mcp.catalog.plugins.api import PluginTool

def register(api):
    print("loud: registered")
    def shout(call):
        print("loud: called")
        return "done"
    api.tool(PluginTool(name="shout", description="Shout.", run=shout))
    api.on_unload(lambda: print("loud: bye"))
"""


def test_what_a_plugin_prints_never_reaches_stdout(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(LOUD, "utf-8")
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"plugins": {"loud": {"module": "./loud.py:register"}}}), "utf-8")
    config = str(path)
    program = "return await tools.call('plugin:loud:shout', {})"
    done = invoke("run", "--config", config, "--json", "-e", program)
    assert json.loads(done.stdout)["status"] == "completed", done.stderr
    assert "loud: called" in done.stderr
    assert "loud: bye" in done.stderr
    assert [each["call"] for each in json.loads(invoke("tools", "--json", "--config", config).stdout)]
    json.loads(invoke("doctor", "--json", "--config", config).stdout)
    assert "loud" not in invoke("types", "--out", str(tmp_path / "types"), "--config", config).stdout
    typed = invoke("repl", "--config", config, text="1\n")
    assert typed.stdout == "1\n"


@pytest.fixture
def several(tmp_path: Path) -> str:
    """Return a server that works and two that do not."""
    servers = {
        "up": counting(tmp_path / "up"),
        "other": counting(tmp_path / "other"),
        "dead": {"command": "no-such-one"},
    }
    return str(write_config(tmp_path, servers))


def test_call_makes_one_call_and_starts_one_server(several: str, tmp_path: Path) -> None:
    for arguments in (["name=42"], ["--json", '{"name": "42"}']):
        done = invoke("call", "up.count", *arguments, "--config", several)
        assert (done.exit_code, done.stdout, done.stderr) == (0, "42\n", "")
    assert pids(tmp_path / "up")
    assert not pids(tmp_path / "other")


def test_run_starts_the_servers_that_a_program_names_and_no_others(several: str, tmp_path: Path) -> None:
    done = invoke("run", "--config", several, "-e", "return unwrap(await MCP.up.count({ name: 'a' }))")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "a\n", "")
    assert not pids(tmp_path / "other")
    dynamic = invoke("run", "--config", several, "-e", "return (await MCP.$api()).servers.length")
    assert dynamic.stdout == "3\n"
    assert dynamic.stderr.splitlines() == ["not started: dead; codemode-mcp doctor says why"]
    chosen = invoke("run", "--server", "up", "--config", several, "-e", "return (await MCP.$api()).servers.length")
    assert (chosen.stdout, chosen.stderr) == ("1\n", "")
    assert invoke("run", "--server", "upp", "--config", several, "-e", "1").exit_code == 2


@pytest.mark.parametrize(
    "harmless",
    [
        "const add = (a, b) => a.length + b; return add([1], 2)",
        "function add(a) { return a.at(0) }; class Box { get() { return 1 } }; return [add([1]), new Box().get()]",
        "try { JSON.parse('1') } catch (error) { text(error.message) }; return args.length",
    ],
)
def test_run_starts_no_server_for_a_program_that_calls_its_own_names(
    several: str, tmp_path: Path, harmless: str
) -> None:
    assert invoke("run", "--config", several, "-e", harmless).exit_code == 0
    assert not pids(tmp_path / "up")


def test_tools_of_one_server_start_it_alone_and_then_none(several: str, tmp_path: Path) -> None:
    first = invoke("tools", "--server", "up", "--json", "--config", several)
    started = pids(tmp_path / "up")
    assert len(started) == 1
    again = invoke("tools", "--server", "up", "--json", "--config", several)
    assert again.stdout == first.stdout
    assert pids(tmp_path / "up") == started, "the kept listing is fresh"
    assert not pids(tmp_path / "other")


@pytest.mark.parametrize("arguments", [("run",), ("run", "x.js", "-e", "1"), ("run", "--nonsense"), ("nonsense",)])
def test_wrong_usage_ends_with_two(arguments: tuple[str, ...]) -> None:
    done = invoke(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_that_cannot_be_read_ends_with_one(bare: str, tmp_path: Path) -> None:
    (tmp_path / "latin.js").write_bytes(b"return '\xe9'")
    for name in ("latin.js", "."):
        done = invoke("run", str(tmp_path / name), "--config", bare)
        assert (done.exit_code, done.stdout) == (1, "")
        assert "cannot read" in done.stderr
        assert "Traceback" not in done.stderr
    empty = invoke("run", "-e", "  ", "--config", bare)
    assert empty.exit_code == 1
    assert "empty" in empty.stderr


@pytest.mark.parametrize("command", ["run", "tools", "types", "serve", "doctor"])
def test_every_command_refuses_a_broken_configuration(tmp_path: Path, command: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text('{"mcpServers": {"a": {"comand": "x"}}}', "utf-8")
    done = invoke(command, *(["-e", "return 1"] if command == "run" else []), "--config", str(path))
    assert done.exit_code == 2
    assert "mcpServers.a.comand" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if command != "doctor":
        assert done.stdout == ""


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break in another way there")
@pytest.mark.parametrize("command", ["run", "tools", "trace"])
def test_a_reader_that_leaves_is_no_accident(config: str, command: str, tmp_path: Path) -> None:
    code = ["-e", "for (let n = 0; n < 2000; n++) text(`line ${n}`)"] if command == "run" else []
    if command == "trace":
        run = f"run_{'a' * 24}"
        told = [
            {"kind": "exec", "id": "req_1", "request": "1", "input": {"sha256": "ab", "bytes": 3}},
            {"kind": "run_started", "id": run, "parent": "req_1", "language": "javascript"},
            {"kind": "run_ended", "id": run, "status": "completed"},
        ]
        lines = [json.dumps({"time": 1.0, "pid": 1, **event}, separators=(",", ":")) for event in told]
        (tmp_path / "runs.jsonl").write_text("\n".join([*lines, ""]), "utf-8")
        code = ["--trajectory", str(tmp_path / "runs.jsonl")]
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            [*COMMAND, command, *code, "--config", config],
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=subprocess.PIPE,
            timeout=30,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    finally:
        os.close(write_end)
    assert b"Traceback" not in done.stderr
    assert b"cannot open" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    assert done.returncode != 0


def test_tools_are_listed_and_searched(tmp_path: Path) -> None:
    servers = {"tracker": quickstart()["tracker"], "counting": counting(tmp_path / "log")}
    config = str(write_config(tmp_path, servers))
    listed = json.loads(invoke("tools", "--config", config, "--json").stdout)
    ids = [tool["id"] for tool in listed]
    assert "mcp:tracker:create_issue" in ids
    assert "mcp:counting:count" in ids
    assert "core:results:list" in ids
    assert all(tool["call"].startswith("MCP." if tool["id"].startswith("mcp:") else "tools.") for tool in listed)
    found = json.loads(invoke("tools", "open issue", "--config", config, "--json").stdout)
    assert "MCP.tracker" in found[0]["call"]
    assert not [hit for hit in found if hit["call"].startswith("tools.") and "id" not in hit]


def test_tools_tell_of_servers_that_are_down(tmp_path: Path) -> None:
    servers = {"counting": counting(tmp_path / "log"), "missing": {"command": "no-such-command"}}
    done = invoke("tools", "--config", str(write_config(tmp_path, servers)))
    assert "MCP.counting.count" in done.stdout
    assert done.stderr.count("'missing'") == 1  # not in the log too
    assert "no-such-command" in done.stderr


def test_types_are_written_and_compile_and_the_quick_starts_program_fits_its_types(tmp_path: Path) -> None:
    servers = quickstart() | {
        "everything": npm_server("everything", "stdio"),
        "filesystem": npm_server("filesystem", str(tmp_path)),
        "memory": npm_server("memory"),
    }
    out = tmp_path / "types"
    done = invoke("types", "--out", str(out), "--config", str(write_config(tmp_path, servers)))
    assert done.exit_code == 0, done.stderr
    files = {str(path) for path in (*out.rglob("*.d.ts"), out / "codemode-mcp.schema.json")}
    assert (out / "codemode-mcp.schema.json").is_file()
    assert len(files) == len(servers) + 4
    assert set(done.stdout.splitlines()) == files
    good = """
        export async function good(): Promise<number> {
            const sum = await MCP.everything.getSum({ a: 1, b: 2 });
            const { issues } = unwrap(await MCP.tracker.listIssues({ state: "open" }));
            await MCP.memory.createEntities({ entities: [{ name: "a", entityType: "b", observations: [] }] });
            const file = unwrap(await MCP.filesystem.readTextFile({ path: "/x" }));
            text(sum.isError ? "bad" : file.content);
            const kept = await tools.call("core:results:list", {}, { timeoutMs: 1000 });
            json([kept, (await tools.search("results"))[0]?.signature, await tools.list({})]);
            return issues[0]!.id;
        }
    """
    bad = """
        export async function bad(): Promise<void> {
            await MCP.everything.getSum({ a: 1, b: "2" });
            await MCP.tracker.listIssues({ state: "shut" });
            await MCP.memory.createEntity({});
            await tools.load({ reference: 1 });
        }
    """
    (out / "good.ts").write_text(good, "utf-8")
    (out / "bad.ts").write_text(bad, "utf-8")
    program = (QUICKSTART / "join.ts").read_text("utf-8")
    (out / "join.ts").write_text(f"export async function cell() {{\n{program}\n}}\n", "utf-8")
    errors = tsc(out)
    assert [line for line in errors if not line.startswith("bad.ts")] == []
    assert [line.partition("(")[2].partition(",")[0] for line in errors] == ["3", "4", "5", "6"]


def test_doctor_is_content_with_what_works(config: str) -> None:
    done = invoke("doctor", "--config", config)
    assert done.exit_code == 0, done.stdout
    for name in ("config", "engine", "server counting", "server other"):
        assert any(line.startswith("ok") and f" {name}:" in line for line in done.stdout.splitlines())


def test_doctor_says_what_to_do_once_for_what_stands_together(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    path.write_text('{"tools": {"alow": [], "ask": "destructive"}, "audit": {"files": "2"}}', "utf-8")
    lines = invoke("doctor", "--config", str(path)).stdout.splitlines()
    assert sum(line.startswith("fail  config:") for line in lines) == 3
    assert sum("correct the configuration file" in line for line in lines) == 1
    assert any(line.startswith("ok    engine:") for line in lines), "what needs no configuration is looked at too"


def test_doctor_names_what_is_broken(tmp_path: Path) -> None:
    servers = {"counting": counting(tmp_path / "log", "malformed"), "missing": {"command": "no-such-command"}}
    path = write_config(tmp_path, servers, codeMode={"timeoutMs": 1})
    done = invoke("doctor", "--config", str(path), "--json")
    assert done.exit_code == 1
    checks = {(check["name"], check["status"]): check for check in json.loads(done.stdout)}
    assert "no-such-command" in checks["server missing", "fail"]["detail"]
    assert checks["server missing", "fail"]["advice"].startswith("install no-such-command, or give ")
    assert ("server counting", "ok") in checks
    assert ("server counting", "warn") in checks
    assert "timeoutMs" in checks["config", "warn"]["detail"]


@pytest.mark.usefixtures("esbuild")
def test_setup_has_nothing_left_to_do() -> None:
    done = invoke("setup")
    assert done.exit_code == 0, done.stdout
    assert "engine" in done.stdout


# the shared instance

SHARED = pytest.mark.skipif(sys.platform == "win32", reason="the tests send signals, and use pseudo-terminals")


class Done(NamedTuple):
    """The end of a command."""

    exit_code: int
    stdout: str
    stderr: str


def started(*arguments: str) -> Done:
    """Run the entry point of the process in this process. It is quick, and finds the instance as the process does."""
    runner = CliRunner()
    with pytest.MonkeyPatch.context() as patch, runner.isolation() as (stdout, stderr, _):
        patch.setattr(sys, "argv", ["codemode-mcp", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        sys.stdout.flush()
        sys.stderr.flush()
        return Done(ended.value.code or 0, stdout.getvalue().decode(), stderr.getvalue().decode())


class Command(NamedTuple):
    """A command, its exit code, and what it must print: all of stdout, and parts of stderr."""

    arguments: tuple[str, ...]
    code: int
    out: str | None = None
    said: tuple[str, ...] = ()


def typed(*arguments: str, code: int = 0, out: str | None = None, said: tuple[str, ...] = ()) -> Command:
    return Command(arguments, code, out, said)


def program(text: str, *options: str, code: int = 0, out: str | None = None, said: tuple[str, ...] = ()) -> Command:
    return Command(("run", "-e", text, *options), code, out, said)


COMMANDS = [
    typed("call", "up.count", "name=42", out="42\n"),
    typed("call", "up.count", "--json", '{"name": "é"}', out="é\n"),
    typed("call", "MCP.up.count", "name=a=b", "--read-only", code=1),
    typed("call", "mcp:up:refuse", "--quiet", code=1),
    typed("call", "up.reject", code=1),
    typed("call", "up.peek", "nom=a", code=1),
    typed("call", "up.cuont", "name=a", code=1, out="", said=("did you mean up.count?",)),
    typed("call", "upp.count", code=2, out="", said=("did you mean 'up'?",)),
    typed("call", "up", code=2, out="", said=("write SERVER.TOOL",)),
    typed("call", "up.count", "name", code=2, out="", said=("KEY=VALUE",)),
    typed("call", "up.count", "--json", "{'a'}", code=2, out="", said=("this is not JSON",)),
    typed("call", "up.count", "--json=[]", code=2),
    typed("call", "dead.count", code=1, out="", said=("was not found on PATH",)),
    typed("tools"),
    typed("tools", "--json"),
    typed("tools", "count", "this", "call"),
    typed("tools", "count this call", "--json", "--server", "up"),
    typed("tools", "--server", "up", "--long"),
    typed("tools", "--server", "results"),
    typed("tools", "--server", "dead"),
    typed("tools", "--server=upp", code=2),
    program("text('out'); return unwrap(await MCP.up.count({ name: 'from run' }))", out="out\nfrom run\n"),
    program(
        "text('out'); return unwrap(await MCP.up.count({ name: 'as json' }))",
        "--json",
        out='{"status": "completed", "value": "as json", "output": [{"type": "text", "text": "out"}]}\n',
    ),
    program("const n: number = 1; return n", "--language", "typescript", out="1\n"),
    program("return (await MCP.$api()).servers.length", out="3\n"),
    program("return (await MCP.$api()).servers.length", "--server", "other", out="1\n"),
    program(
        "text('before');\nthrow new RangeError('too far')",
        code=1,
        out="before\n",
        said=("RangeError: too far", "cell.js:2:"),
    ),
    program("return await MCP.dead.count({ name: 'a' })", code=1),
    *(
        program(f"return await {wrong}({{ name: 'a' }})", code=1, said=("write MCP.up",))
        for wrong in ("mcp__up__count", "count", "up.count")
    ),
    program("await MCP.up.count({ name: 'refused' })", "--read-only", code=1),
    program("await yield_control(); return 'end'", out="end\n"),
    program("return 1", "--language", "python", code=2),
    program("return (", code=1),
    program("  ", code=1, out="", said=("empty",)),
    typed("run", "no-such-file.js", code=2, out="", said=("there is no file no-such-file.js",)),
    typed("run", code=2, out=""),
    typed("run", "--program", "counts", "--input", '{"name": "saved"}', out="saved\n"),
    typed("run", "--program", "counts", "--input", "{}", code=2),
    typed("run", "--program", "needsDead", code=5),
    typed("run", "--program", "count", code=2),
    typed("run", "--program", "counts", "--input", "@no-such-file", code=2),
    typed("run", "--program", "greets"),
    typed("run", "--program", "greets", "--input", "", code=2),
    program("return await programs.counts({ name: 'from a program' })", out="from a program\n"),
]

PROGRAMS = {
    "greets.js": "/** @param {{ name?: string }} input */\nexport default ({ name = 'you' } = {}) => `Hello, ${name}`;",
    "counts.ts": "export default async (input: { name: string }) => unwrap(await MCP.up.count(input));",
    "needsDead.js": "export default async () => MCP.dead.count({});",
}


@pytest.fixture(scope="module")
def servers(folder: Path) -> Path:
    servers = {"up": counting(folder / "up"), "other": counting(folder / "other"), "dead": {"command": "no-such-one"}}
    (folder / "programs").mkdir()
    for name, text in PROGRAMS.items():
        (folder / "programs" / name).write_text(text, "utf-8")
    return write_config(folder, servers, ask=["mcp:other:count"])


@pytest.fixture(scope="module")
def shared(servers: Path) -> Iterator[Path]:
    """Return a configuration whose instance has started its servers."""
    with background_instance(servers):
        assert cli("call", "up.peek", "--config", str(servers)).returncode == 1
        # A process without the instance finds names of tools in the listings that another one has kept.
        assert invoke("tools", "--private", "--config", str(servers)).exit_code == 0
        yield servers


@SHARED
@pytest.mark.parametrize("given", COMMANDS, ids=lambda given: " ".join(given.arguments))
def test_a_command_prints_the_same_with_and_without_the_instance(shared: Path, given: Command, folder: Path) -> None:
    name, *rest = given.arguments
    before = pids(folder / "up")
    there = started(name, "--config", str(shared), *rest)
    assert pids(folder / "up") == before, "the servers of the instance are used"
    alone = invoke(name, "--private", "--config", str(shared), *rest)
    assert there == (alone.exit_code, alone.stdout, alone.stderr)
    assert there.exit_code == given.code
    assert given.out is None or there.stdout == given.out
    assert all(each in " ".join(there.stderr.split()) for each in given.said)
    assert "Traceback" not in there.stderr


@SHARED
@pytest.mark.parametrize("options", [(), ("--private",)], ids=["instance", "private"])
def test_a_program_finds_its_arguments(shared: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    program = tmp_path / "shows.js"
    program.write_text("return [args, Object.isFrozen(args), typeof MCP.up.peek]", "utf-8")
    for source in ([str(program)], ["-e", program.read_text("utf-8")]):
        done = started("run", *options, "--config", str(shared), *source, "--", "one", "two words", "--flag")
        assert done == (0, '[["one", "two words", "--flag"], true, "function"]\n', "")
    assert started("run", *options, str(program), "--config", str(shared)).stdout == '[[], true, "function"]\n'


@SHARED
def test_a_program_that_takes_longer_than_a_request_is_followed_and_printed_whole_and_once(tmp_path: Path) -> None:
    config = write_config(tmp_path, {}, codeMode={"timeoutMs": 200, "maxOutputBytes": 1024})
    code = """
        for (let n = 0; n < 300; n++) text(`line ${n}`);
        await yield_control(); await new Promise((resolve) => setTimeout(resolve, 500));
        text("after"); return "v".repeat(5000)"""
    with background_instance(config):
        for options in ((), ("--private",)):
            done = started("run", "-e", code, "--config", str(config), *options)
            answers = started("run", "-e", code, "--config", str(config), "--json", *options)
            assert done.stdout.splitlines() == [*(f"line {n}" for n in range(300)), "after", "v" * 5000]
            assert (done.exit_code, done.stderr, answers.exit_code) == (0, "", 0)
            *waiting, last = [json.loads(line) for line in answers.stdout.splitlines()]
            assert {each["status"] for each in waiting} == {"waiting"}
            assert len({each["runId"] for each in waiting}) == 1
            assert waiting[0]["output"][-1]["value"]["truncated"]
            assert last["status"] == "completed"
            assert last["output"][-1] == {"type": "text", "text": "after"}
            assert last["value"]["truncated"]


@SHARED
def test_a_saved_program_can_be_run_as_soon_as_it_is_written(shared: Path, folder: Path) -> None:
    for number in range(2):
        (folder / "programs" / f"new{number}.js").write_text(f"export default () => {number};")
        done = cli("run", "--config", str(shared), "--program", f"new{number}")
        assert (done.returncode, done.stdout) == (0, f"{number}\n"), done.stderr


@SHARED
def test_the_written_types_are_the_same_with_and_without_the_instance(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = {}
    for out, options in (("there", []), ("alone", ["--private"])):
        done = started("types", "--out", out, "--config", str(shared), *options)
        written = {str(file.relative_to(tmp_path / out)): file.read_text() for file in (tmp_path / out).rglob("*.ts")}
        found[out] = done.exit_code, done.stdout.replace(out, ""), done.stderr.replace(out, ""), written
    assert found["there"] == found["alone"]
    assert "mcp/up.d.ts" in found["there"][3]


async def _commands(config: Path) -> list[str | None]:
    """Return the command of each client of the instance; None for a client that is none."""
    found = await command("instance", "status", "--json", "--config", str(config))
    return [each["command"] for each in json.loads(found.stdout)["instance"]["clients"]]


@SHARED
@pytest.mark.anyio
async def test_a_command_is_a_client_of_the_instance_and_ctrl_c_cancels_its_program(shared: Path, folder: Path) -> None:
    async with greeted(shared) as client:
        words = ("call", "up.hold", "name=ctrl-c", "--config", str(shared))
        async with await anyio.open_process([*COMMAND, *words]) as process:
            await until(lambda: "call ctrl-c" in events(folder / "up"))
            status = await command("instance", "status", "--config", str(shared))
            assert re.search(rf"^  codemode-mcp call, process {process.pid}, in ", status.stdout, re.MULTILINE)
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
            assert process.stderr is not None
            said = (await process.stderr.receive()).decode()
        assert said == "interrupted: the program was cancelled, and its calls in flight\n"
        # The instance and the server notice the end of the command after it.
        await until(lambda: "cancelled ctrl-c" in events(folder / "up"))
        with anyio.fail_after(SECONDS):
            while await _commands(shared) != [None]:
                pass
        assert (await client.exec("return 1"))["value"] == 1


@SHARED
@pytest.mark.anyio
async def test_output_is_there_before_a_program_ends_which_is_cancelled_if_the_command_is_killed(
    shared: Path, folder: Path
) -> None:
    code = 'text("first"); await MCP.up.hold({ name: "killed" }); return "last"'
    async with await anyio.open_process([*COMMAND, "run", "-e", code, "--config", str(shared)]) as process:
        assert process.stdout is not None
        assert await process.stdout.receive() == b"first\n"
        await until(lambda: "call killed" in events(folder / "up"))
        process.kill()
        await process.wait()
    await until(lambda: "cancelled killed" in events(folder / "up"))


@SHARED
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


@SHARED
@pytest.mark.anyio
async def test_a_question_of_the_instance_is_answered_at_the_terminal_of_the_command(
    shared: Path, folder: Path
) -> None:
    for typed, code in (("yes\n", 0), ("no\n", 1)):
        async with terminal("call", "other.count", "name=a", "--config", str(shared)) as person:
            await person.see(r'call 1: "mcp:other:count".*"a".*Type yes: .*> ')
            person.type(typed)
            assert await person.end() == code
    assert events(folder / "other") == ["call a"]
    done = await command("call", "other.count", "name=b", "--config", str(shared))
    assert done.exit_code == 1
    assert "denied by `codemode-mcp run`, which cannot ask here" in " ".join(done.stderr.split())


@SHARED
@pytest.mark.anyio
async def test_a_line_of_progress_stands_at_the_terminal_of_the_command(shared: Path) -> None:
    async with terminal("call", "up.hold", "name=slow", "--config", str(shared)) as person:
        await person.see(r"1 running · MCP\.up\.hold [0-9.]+ (ms|s)")
        person.process.send_signal(signal.SIGINT)
        assert await person.end() == 130
    assert re.search(r"\r +\rinterrupted", person.text), "it was cleared"


@SHARED
@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="the test looks for sockets in /proc")
@pytest.mark.anyio
async def test_a_command_does_without_an_instance_that_does_not_answer(shared: Path) -> None:
    record = registry.read_record(registry.key_of(shared))
    assert record is not None
    os.kill(record.pid, signal.SIGSTOP)
    try:
        words = ("call", "up.count", "name=a", "--config", str(shared))
        done = await anyio.to_thread.run_sync(lambda: cli(*words))
        async with await anyio.open_process([*COMMAND, *words], stdout=subprocess.DEVNULL) as process:
            await until(lambda: _connected(process.pid))
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
            assert process.stderr is not None
            assert [part async for part in process.stderr] == []
    finally:
        os.kill(record.pid, signal.SIGCONT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\n", "")


def _connected(pid: int) -> bool:
    """Return True if a process has a socket."""
    folder = Path(f"/proc/{pid}/fd")
    for descriptor in folder.iterdir():
        with suppress(FileNotFoundError):  # the process has closed it meanwhile
            if os.readlink(descriptor).startswith("socket:"):
                return True
    return False


@SHARED
def test_a_configuration_of_the_working_directory_has_to_be_confirmed_and_may_not_be_shared(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")}, name="codemode-mcp.json")
    with background_instance(config):
        refused = cli("call", "up.count", "name=a", cwd=tmp_path)
        assert refused.returncode == 2
        assert "you have not confirmed its current content" in " ".join(refused.stderr.split())
        confirmation.confirm(config, json.loads(config.read_text()), state_dir() / "confirmed")
        for name in "ab":
            assert cli("call", "up.count", f"name={name}", cwd=tmp_path).stdout == f"{name}\n"
        assert len(pids(tmp_path / "log")) == 1
        config.write_text(json.dumps({**json.loads(config.read_text()), "instance": {"shared": False}}))
        assert cli("call", "up.count", "name=c", "--config", str(config)).stdout == "c\n"
        assert len(pids(tmp_path / "log")) == 2


@SHARED
def test_commands_are_the_same_in_pass_through_mode(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")}, codeMode={"enabled": False})
    with background_instance(config):
        for name, *rest in (["call", "up.count", "name=a"], ["run", "-e", "return 1"], ["tools"]):
            there = started(name, *rest, "--config", str(config))
            alone = invoke(name, "--private", *rest, "--config", str(config))
            assert there == (alone.exit_code, alone.stdout, alone.stderr)
            assert there.exit_code == 0


@SHARED
def test_a_reader_that_leaves_cancels_the_program(shared: Path) -> None:
    command = [*COMMAND, "call", "up.count", "name=a", "--config", str(shared)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(SECONDS) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b""


@SHARED
def test_no_secret_is_shown(tmp_path: Path) -> None:
    secret = "s3cret-of-the-test"
    entry = counting(tmp_path / "log", f"stderr={secret}", env={"SECRET": secret})
    config = str(write_config(tmp_path, {"up": entry}))
    with background_instance(Path(config)):
        command = ["call", "up.reject", "--config", config]
        there, alone = started(*command), started(*command, "--private")
        assert there.stderr == alone.stderr
        status = started("instance", "status", "--json", "--config", config)
        log = started("instance", "logs", "--config", config)
    for each in (there, status, log):
        assert secret not in each.stdout + each.stderr
