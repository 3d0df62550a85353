"""The other commands: run, tools, types, doctor, setup."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from harness import COMMAND, QUICKSTART, cli, counting, events, npm_server, quickstart, tsc, write_config
from typer.testing import CliRunner

from codemode_mcp.cli import app

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


def invoke(*arguments: str) -> Result:
    """What ends before it starts anything needs no process of its own."""
    return CliRunner().invoke(app, list(arguments), prog_name="codemode-mcp")


@pytest.fixture(scope="module")
def config(folder: Path) -> str:
    return str(write_config(folder, quickstart() | {"counting": counting(folder / "log")}))


@pytest.fixture(scope="module")
def bare(folder: Path) -> str:
    return str(write_config(folder, {}, name="bare.json", codeMode={"timeoutMs": 300}))


@pytest.mark.usefixtures("esbuild")
def test_the_program_of_the_quick_start_runs_from_its_own_folder() -> None:
    environment = {"PYTHON": sys.executable}
    done = cli("run", "join.ts", "--config", "codemode-mcp.json", cwd=QUICKSTART, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Week 2026-W23: 24 open issues, 3 of nobody")
    assert "Ada Moreau" in done.stdout
    assert done.stderr == ""


def test_the_configuration_is_found_in_the_working_directory_and_by_variable(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"counting": counting(tmp_path / "log")}, name="codemode-mcp.json")
    program = ("run", "--json", "-e", "return (await MCP.$api()).servers.length")
    assert json.loads(cli(*program, cwd=tmp_path).stdout)["value"] == 1
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert json.loads(cli(*program, cwd=elsewhere, env={"CODEMODE_MCP_CONFIG": str(path)}).stdout)["value"] == 1


def test_run_prints_json_on_request(config: str) -> None:
    done = cli("run", "--config", config, "--json", "-e", 'text("out"); return unwrap(await MCP.tracker.listPeople())')
    assert done.returncode == 0
    result = json.loads(done.stdout)
    assert result["status"] == "completed"
    assert len(result["value"]["people"]) == 6
    assert result["output"] == [{"type": "text", "text": "out"}]


def test_run_denies_what_a_person_would_have_to_approve(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"up": counting(tmp_path / "log")}, ask=["mcp:up:count"])
    code = "await MCP.up.count({ name: 'a' }).catch((e) => text(e.message)); return 'went on'"
    done = cli("run", "--config", str(config), "-e", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "went on"
    assert "MCP.up.count was not approved: denied by `codemode-mcp run`, which asks nobody" in done.stdout
    assert "runs approve" not in done.stderr, "no other process reaches this one"
    assert events(tmp_path / "log") == []


def test_run_follows_a_program_that_waits(bare: str) -> None:
    code = 'text("a"); await yield_control(); await new Promise((r) => setTimeout(r, 700)); text("b"); return "end"'
    done = cli("run", "--config", bare, "--json", "-e", code)
    assert done.returncode == 0
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
    done = cli("run", str(program), "--config", bare)
    assert done.returncode == 1
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
    for name in ("nowhere.js", "latin.js", "."):
        done = invoke("run", str(tmp_path / name), "--config", bare)
        assert (done.exit_code, done.stdout) == (1, "")
        assert "cannot read" in done.stderr
        assert "Traceback" not in done.stderr
    empty = cli("run", "-e", "  ", "--config", bare)
    assert empty.returncode == 1
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
@pytest.mark.parametrize("command", ["run", "tools"])
def test_a_reader_that_leaves_is_no_accident(config: str, command: str) -> None:
    code = ["-e", "for (let n = 0; n < 2000; n++) text(`line ${n}`)"] if command == "run" else []
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
        )
    finally:
        os.close(write_end)
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    assert done.returncode != 0


def test_tools_are_listed_and_searched(config: str) -> None:
    listed = json.loads(cli("tools", "--config", config, "--json").stdout)
    ids = [tool["id"] for tool in listed]
    assert "mcp:tracker:create_issue" in ids
    assert "mcp:reports:team_hours" in ids
    assert "core:results:list" in ids
    assert all(tool["call"].startswith("MCP." if tool["id"].startswith("mcp:") else "tools.") for tool in listed)
    found = json.loads(cli("tools", "open issue", "--config", config, "--json").stdout)
    assert "MCP.tracker" in found[0]["call"]
    assert not [hit for hit in found if hit["call"].startswith("tools.") and "id" not in hit]


def test_tools_tell_of_servers_that_are_down(tmp_path: Path) -> None:
    servers = {"counting": counting(tmp_path / "log"), "missing": {"command": "no-such-command"}}
    done = cli("tools", "--config", str(write_config(tmp_path, servers)))
    assert "MCP.counting.count" in done.stdout
    assert done.stderr.count("'missing'") == 1  # not in the log too
    assert "no-such-command" in done.stderr


def test_types_are_written_and_compile(tmp_path: Path) -> None:
    servers = quickstart() | {
        "everything": npm_server("everything", "stdio"),
        "filesystem": npm_server("filesystem", str(tmp_path)),
        "memory": npm_server("memory"),
    }
    out = tmp_path / "types"
    done = cli("types", "--out", str(out), "--config", str(write_config(tmp_path, servers)))
    assert done.returncode == 0, done.stderr
    files = {str(path) for path in out.rglob("*.d.ts")}
    assert len(files) == len(servers) + 3
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
    assert tsc(out) == []
    (out / "bad.ts").write_text(bad, "utf-8")
    errors = tsc(out)
    assert [line for line in errors if not line.startswith("bad.ts")] == []
    assert [line.partition("(")[2].partition(",")[0] for line in errors] == ["3", "4", "5", "6"]


def test_the_quick_starts_program_fits_its_types(tmp_path: Path) -> None:
    out = tmp_path / "types"
    assert cli("types", "--out", str(out), "--config", str(write_config(tmp_path, quickstart()))).returncode == 0
    program = (QUICKSTART / "join.ts").read_text("utf-8")
    (out / "join.ts").write_text(f"export async function cell() {{\n{program}\n}}\n", "utf-8")
    assert tsc(out) == []


def test_doctor_is_content_with_what_works(config: str) -> None:
    done = cli("doctor", "--config", config)
    assert done.returncode == 0, done.stdout
    for name in ("config", "engine", "server tracker", "server reports", "server counting"):
        assert any(line.startswith("ok") and f" {name}:" in line for line in done.stdout.splitlines())


def test_doctor_says_what_to_do_once_for_what_stands_together(tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    path.write_text('{"tools": {"alow": [], "ask": "destructive"}, "audit": {"files": "2"}}', "utf-8")
    lines = cli("doctor", "--config", str(path)).stdout.splitlines()
    assert sum(line.startswith("fail  config:") for line in lines) == 3
    assert sum("correct the configuration file" in line for line in lines) == 1
    assert any(line.startswith("ok    engine:") for line in lines), "what needs no configuration is looked at too"


def test_doctor_names_what_is_broken(tmp_path: Path) -> None:
    servers = {"counting": counting(tmp_path / "log", "malformed"), "missing": {"command": "no-such-command"}}
    path = write_config(tmp_path, servers, codeMode={"timeoutMs": 1})
    done = cli("doctor", "--config", str(path), "--json")
    assert done.returncode == 1
    checks = {(check["name"], check["status"]): check for check in json.loads(done.stdout)}
    assert "no-such-command" in checks["server missing", "fail"]["detail"]
    assert checks["server missing", "fail"]["advice"].startswith("install no-such-command, or give ")
    assert ("server counting", "ok") in checks
    assert ("server counting", "warn") in checks
    assert "timeoutMs" in checks["config", "warn"]["detail"]


@pytest.mark.usefixtures("esbuild")
def test_setup_has_nothing_left_to_do() -> None:
    done = cli("setup")
    assert done.returncode == 0, done.stdout
    assert "engine" in done.stdout
