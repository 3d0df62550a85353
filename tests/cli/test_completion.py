"""Tests of completion in a shell, by the protocol of the shells' completion scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from codemode_mcp.base.paths import state_dir
from codemode_mcp.cli import app, command_modules, parser
from codemode_mcp.extensions.setup.mcp_clients.locations import CLIENTS
from codemode_mcp.rules.trust.comparison import Listing, baseline_of
from codemode_mcp.rules.trust.items import item_of
from codemode_mcp.rules.trust.pins_file import KINDS, PinsFolder
from codemode_mcp.server.control import client
from codemode_mcp.server.control.endpoints import Endpoint
from codemode_mcp.server.control.protocol import Request

Complete = "Callable[[str], list[str]]"
SERVERS = {"github": {"command": "x"}, "docs": {"url": "https://docs.example/mcp"}, "git": {"command": "y"}}


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Complete:
    """Return a function that completes the last word of a line in bash, in an empty folder of an empty home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CODEMODE_MCP_CONFIG", raising=False)
    command = typer.main.get_command(app)

    def offered(line: str, shell: str = "bash") -> list[str]:
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - (not line.endswith(" "))))
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        monkeypatch.setenv("_CODEMODE_MCP_COMPLETE", f"complete_{shell}")
        with pytest.raises(SystemExit) as ended:
            command.main(prog_name="codemode-mcp", args=[])
        said = capsys.readouterr()
        assert (ended.value.code, said.err) == (0, "")
        return [line for line in said.out.splitlines() if line]

    return offered


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "codemode-mcp.json"
    path.write_text(json.dumps({"mcpServers": SERVERS}), "utf-8")
    return path


def test_commands_and_options_are_completed(complete: Complete) -> None:
    assert complete("codemode-mcp ") == list(command_modules())
    assert complete("codemode-mcp log") == ["login", "logout"]
    assert complete("codemode-mcp runs ap") == ["approve"]
    assert complete("codemode-mcp serve --transp") == ["--transport"]


def test_items_of_a_server_are_completed_from_its_pins(complete: Complete, config: Path) -> None:
    tools = [item_of("tool", name, {"name": name}) for name in ("create", "close", "$(rm)")]
    present = Listing({item.key: item for item in tools}, KINDS)
    PinsFolder(state_dir() / "pins", config).update(
        "github", lambda pins: baseline_of(pins, "github", present, "pin", logged_in=False)
    )
    assert complete("codemode-mcp trust diff gith") == ["github"]
    assert complete("codemode-mcp trust accept github.c") == ["github.create", "github.close"]
    assert complete("codemode-mcp trust accept docs.") == []


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize("words", ["tools --server", "doctor", "doctor docs"])
def test_servers_of_the_configuration_are_completed(complete: Complete, words: str) -> None:
    assert complete(f"codemode-mcp {words} ") == ["github", "docs", "git"]
    assert complete(f"codemode-mcp {words} gi") == ["github", "git"]
    assert complete(f"codemode-mcp {words} x") == []


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize("command", ["login", "logout"])
def test_login_completes_only_servers_with_a_url(complete: Complete, command: str) -> None:
    assert complete(f"codemode-mcp {command} ") == ["docs"]


def test_completion_reads_the_configuration_named_in_the_line(complete: Complete, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('// with a comment\n{ "servers": { "mail": { "url": "${NOT_SET}" }, }, }', "utf-8")
    assert complete(f"codemode-mcp login --config {other} ") == ["mail"]
    assert complete("codemode-mcp login ") == []


def test_names_of_clients_are_completed(complete: Complete) -> None:
    assert complete("codemode-mcp import --from ") == list(CLIENTS)
    assert complete("codemode-mcp install --client c") == [name for name in CLIENTS if name.startswith("c")]


def test_recorded_runs_are_completed_newest_first(complete: Complete, config: Path, tmp_path: Path) -> None:
    events = [
        {"time": 1.0, "kind": kind, "id": f"run_{name}"} for name in "abc" for kind in ("run_started", "run_ended")
    ]
    lines = [json.dumps(event, separators=(",", ":")) for event in events]
    # The beginning of a long file is not read.
    filler = f'{{"kind":"other","id":"{"x" * parser.TAIL_BYTES}"}}'
    (tmp_path / "events.jsonl").write_text("\n".join([lines[0], filler, "torn", *lines[2:], ""]), "utf-8")
    config.write_text(json.dumps({"audit": {"trajectory": "events.jsonl"}}), "utf-8")
    assert complete("codemode-mcp trace ") == ["run_c", "run_b"]
    assert complete(f"codemode-mcp trace --config {config} run_b") == ["run_b"]
    assert complete(f"codemode-mcp trace --trajectory {tmp_path / 'none.jsonl'} ") == []


def test_runs_of_serving_processes_are_completed(complete: Complete, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint, runs = Endpoint(Path("x.sock"), 1, "sock", local=True), [{"id": "run_one"}, {"id": "run_two"}]

    async def ask_all(request: Request) -> client.Answers:
        assert request.operation == "list"
        return client.Answers(((endpoint, {"runs": runs}),), ())

    monkeypatch.setattr(client, "ask_all", ask_all)
    for verb in ("show", "approve", "deny", "cancel"):
        assert complete(f"codemode-mcp runs {verb} run_t") == ["run_two"]


HOSTILE = ("$(touch owned)", "`touch owned`", 'a";touch owned;"', "a b", "a\nb", "-rf", "a'b", "\x1b[2J", "x" * 300, "")
PLAIN = ("good-one", "good.two")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_names_that_a_shell_would_evaluate_are_not_offered(complete: Complete, config: Path, shell: str) -> None:
    servers = {name: {"command": "x"} for name in (*HOSTILE, *PLAIN)}
    config.write_text(json.dumps({"mcpServers": servers}), "utf-8")
    offered = "\n".join(complete("codemode-mcp doctor ", shell))
    assert {name for name in servers if name in offered} == {*PLAIN, ""}
    assert "touch" not in offered


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"mcpServers": 1}',
        '{"mcpServers": [1]}',
        "\0",
        '{"audit": {"trajectory": 7}}',
        "[" * 9999,
    ],
    ids=range(9),
)
def test_a_broken_configuration_offers_nothing_and_says_nothing(complete: Complete, config: Path, text: str) -> None:
    config.write_text(text, "utf-8")
    for line in ("login ", "tools --server ", "trace ", "login --config /does/not/exist "):
        assert complete(f"codemode-mcp {line}") == []


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such pipes on Windows")
def test_a_pipe_instead_of_the_configuration_does_not_block(complete: Complete, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "codemode-mcp.json")
    assert complete("codemode-mcp login ") == []


def test_completion_runs_no_program_for_a_value(complete: Complete, config: Path, tmp_path: Path) -> None:
    program = [sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')"]
    entry = {"command": program[0], "args": program[1:], "env": {"TOKEN": {"command": program}}}
    config.write_text(json.dumps({"mcpServers": {"one": entry}}), "utf-8")
    assert complete("codemode-mcp doctor ") == ["one"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_the_script_of_each_shell_calls_this_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
        patch.setenv("PATH", os.environ["PATH"])
        with pytest.raises(SystemExit) as ended:
            typer.main.get_command(app).main(prog_name="codemode-mcp", args=["--show-completion", shell])
    script = capsys.readouterr().out
    assert ended.value.code == 0
    assert "_CODEMODE_MCP_COMPLETE" in script
    assert "codemode-mcp" in script


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="there is no bash here")
def test_bash_completes_a_server(config: Path) -> None:
    scripts = Path(sys.executable).parent
    asking = (
        'eval "$(codemode-mcp --show-completion bash)"; COMP_WORDS=(codemode-mcp doctor gi); COMP_CWORD=2; '
        '_codemode_mcp_completion codemode-mcp; echo "${COMPREPLY[@]}"'
    )
    environ = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "CODEMODE_MCP_CONFIG": str(config)}
    environ["_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"] = "1"
    done = subprocess.run(
        ["/bin/bash", "--norc", "-c", asking], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("github git\n", "")
