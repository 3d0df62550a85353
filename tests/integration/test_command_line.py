"""The other commands: run, tools, types, doctor, setup."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from harness import COMMAND, QUICKSTART, SERVERS, counting, events, npm_server, pids, quickstart, tsc, write_config
from typer.testing import CliRunner

from codemode_mcp.cli import app
from codemode_mcp.config import confirmation
from codemode_mcp.paths import state_dir

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


def invoke(*arguments: str, env: dict[str, str] | None = None) -> Result:
    """Return a command in this process: where it takes a process of its own to see something, a test starts one."""
    return CliRunner().invoke(app, list(arguments), prog_name="codemode-mcp", env=env, catch_exceptions=False)


def typed_into_repl(config: str, text: str) -> Result:
    arguments = ["repl", "--config", config]
    return CliRunner().invoke(app, arguments, input=text, prog_name="codemode-mcp", catch_exceptions=False)


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


def test_run_prints_json_on_request(config: str) -> None:
    done = invoke(
        "run", "--config", config, "--json", "-e", 'text("out"); return unwrap(await MCP.other.count({ name: "a" }))'
    )
    assert done.exit_code == 0
    result = json.loads(done.stdout)
    assert result["status"] == "completed"
    assert result["value"] == "a"
    assert result["output"] == [{"type": "text", "text": "out"}]


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
    typed = typed_into_repl(config, f"{code}\n")
    assert (typed.exit_code, typed.stdout) == (0, '{"roots":[]}\n'), typed.stderr


LOUD = """
from codemode_mcp.plugins.api import PluginTool

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
    typed = typed_into_repl(config, "1\n")
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


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["upp.count"], 2, "did you mean 'up'?"),
        (["up"], 2, "write SERVER.TOOL"),
        (["up.cuont", "name=a"], 1, "did you mean up.count?"),
        (["up.count", "name"], 2, "KEY=VALUE"),
        (["up.count", "--json", "{'a'}"], 2, "this is not JSON"),
        (["dead.count"], 1, "was not found on PATH"),
    ],
)
def test_a_call_that_cannot_be_made_says_what_to_write(
    several: str, arguments: list[str], code: int, said: str
) -> None:
    done = invoke("call", *arguments, "--config", several)
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in " ".join(done.stderr.split())


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


@pytest.mark.parametrize("wrong", ["mcp__up__count", "count", "up.count"])
def test_run_names_the_expression_for_a_tool_that_is_taken_for_a_global(several: str, wrong: str) -> None:
    assert invoke("tools", "--server", "up", "--config", several).exit_code == 0, "its listing is kept"
    done = invoke("run", "--config", several, "-e", f"return await {wrong}({{ name: 'a' }})")
    assert done.exit_code == 1
    assert "write MCP.up" in done.stderr


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


def test_a_program_finds_its_arguments_and_exec_has_none(bare: str, tmp_path: Path) -> None:
    program = tmp_path / "shows.js"
    program.write_text("return [args, Object.isFrozen(args)]", "utf-8")
    for source in ([str(program)], ["-e", program.read_text("utf-8")]):
        command = [*COMMAND, "run", "--config", bare, *source, "--", "one", "two words", "--flag"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (0, '[["one", "two words", "--flag"], true]\n'), done.stderr
    assert invoke("run", str(program), "--config", bare).stdout == "[[], true]\n"


def test_run_follows_a_program_that_waits(bare: str) -> None:
    code = 'text("a"); await yield_control(); await new Promise((r) => setTimeout(r, 700)); text("b"); return "end"'
    done = invoke("run", "--config", bare, "--json", "-e", code)
    assert done.exit_code == 0
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["status"] for result in results][-1] == "completed"
    assert {result["status"] for result in results[:-1]} == {"waiting"}
    assert len({result["runId"] for result in results[:-1]}) == 1
    assert [item["text"] for result in results for item in result.get("output", [])] == ["a", "b"]


def test_a_program_that_fails_ends_with_one_says_so_on_stderr_and_keeps_its_output_on_stdout(
    bare: str, tmp_path: Path
) -> None:
    program = tmp_path / "fails.js"
    program.write_text('text("before");\nthrow new RangeError("too far")\n', "utf-8")
    done = invoke("run", str(program), "--config", bare)
    assert done.exit_code == 1
    assert done.stdout == "before\n"
    assert "RangeError: too far" in done.stderr
    assert "cell.js:2:" in done.stderr
    assert "Traceback" not in done.stderr


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
            {
                "time": 1.0,
                "kind": "exec",
                "id": "req_1",
                "request": "1",
                "input": {"sha256": "ab", "bytes": 3},
                "pid": 1,
            },
            {"time": 1.1, "kind": "run_started", "id": run, "parent": "req_1", "language": "javascript", "pid": 1},
            {"time": 1.2, "kind": "run_ended", "id": run, "status": "completed", "pid": 1},
        ]
        (tmp_path / "runs.jsonl").write_text(
            "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in told), "utf-8"
        )
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
