"""Tests of `codemode-mcp import` with files of all clients in a private home folder."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from codemode_mcp.cli import app
from codemode_mcp.config import load_config
from codemode_mcp.config.edit import backup_folder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the folders of Linux")

FILES = {
    ".config/Claude/claude_desktop_config.json": "claude_desktop.json",
    ".claude.json": "claude_code.json",
    ".cursor/mcp.json": "cursor.json",
    ".config/Code/User/mcp.json": "vscode.json",
    ".codeium/windsurf/mcp_config.json": "windsurf.json",
    "work/.mcp.json": "project.json",
    "work/.vscode/mcp.json": "vscode_project.json",
}
"""The files of clients in a home folder, each with its file in the folder `files`."""

IN_SERVERS = {1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 13, 15, 16, 17}
"""The planted texts that a file of ours may hold where secrets are kept."""

HELD = re.compile(r"PLANTED-(\d+)")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    for name, file in FILES.items():
        path, text = home / name, (Path(__file__).parent / "files" / file).read_text("utf-8")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("FOLDER", str(home / "work")), "utf-8")
    monkeypatch.setenv("HOME", str(home))
    for variable in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEMODE_MCP_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(home / "work")
    return home


def run(*args: str) -> Result:
    result: Any = CliRunner().invoke(app, ["import", *args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def config_of(home: Path) -> Path:
    return home / ".config" / "codemode-mcp" / "codemode-mcp.json"


@pytest.mark.parametrize("secrets", ["keep", "variables"])
def test_no_secret_of_any_client_is_printed_and_what_is_written_loads(home: Path, secrets: str) -> None:
    printed = ""
    project = ("--from", ".mcp.json", "--from", "vscode")
    for args in ((), ("--json",), ("--write",), ("--write", "--json"), project, (*project, "--write")):
        result = run("--secrets", secrets, *args)
        assert result.exit_code == 0
        printed += result.stdout + result.stderr
    assert HELD.findall(printed) == []
    text = config_of(home).read_text("utf-8")
    held = {int(number) for number in HELD.findall(text)}
    # Team and id are no secrets by their names; what is hidden for certain is not left for certain.
    assert held == (IN_SERVERS if secrets == "keep" else {4, 7})
    names = set(re.findall(r"\$\{(\w+)\}", text))
    config = load_config(config_of(home), environ=dict.fromkeys(names, "set"))
    assert {each.name for each in config.upstreams} == {
        *("filesystem", "postgres", "slack", "linear", "sentry", "tickets", "github", "stripe", "perplexity", "zapier"),
        *("shared", "api"),
    }


def test_every_message_fits_a_terminal(home: Path) -> None:
    result = run("--secrets", "variables")
    for line in (result.stdout + result.stderr).splitlines():
        # A path is not broken.
        assert len(line) <= 100 or str(home) in line, line


def test_servers_are_listed_by_file_with_the_decision_on_each(home: Path) -> None:
    result = run()
    lines = result.stdout.splitlines()
    assert lines[0] == f"Claude Desktop, user: {home}/.config/Claude/claude_desktop_config.json"
    assert "  filesystem  stdio  npx -y @modelcontextprotocol/server-filesystem /home/me/notes" in lines
    assert "  codemode    left out: this is codemode-mcp itself" in lines
    assert "  broken  left out: `command` is an array; expected a string" in lines
    assert f"Would be added to {config_of(home)}:" in lines
    assert '  "linear": {"type": "http", "url": "https://mcp.linear.app/mcp"}' in lines
    assert "PERPLEXITY_API_KEY" in result.stderr
    assert "nothing is written yet: add --write" in result.stderr
    assert not config_of(home).exists()


def test_writing_tells_where_the_backup_is_and_what_to_do_next(home: Path) -> None:
    assert f"written to {config_of(home)} " in " ".join(run("--from", "cursor", "--write").stderr.split())
    again = run("--write").stderr
    (backup,) = backup_folder(config_of(home)).iterdir()
    assert str(backup) in again
    assert (
        "add this server to a client:\n  codemode-mcp doctor\n"
        "  codemode-mcp install --client claude-desktop --move-servers\n" in again
    )
    before = config_of(home).read_bytes()
    nothing = run("--write")
    assert nothing.exit_code == 0
    assert "nothing to add: 10 of these servers are configured already" in nothing.stderr
    assert config_of(home).read_bytes() == before


def test_json_has_the_decision_on_each_server(home: Path) -> None:
    target = home / "mine.json"
    told = json.loads(run("--json", "--from", "windsurf", "--config", str(target), "--secrets", "variables").stdout)
    (server,) = told["sources"][0]["servers"]
    assert (server["name"], server["status"], server["kind"], server["secrets"]) == ("zapier", "new", "http", ["url"])
    assert told["servers"] == {"zapier": {"url": "https://mcp.zapier.example/s/${ZAPIER_KEY}/sse", "deny": ["send"]}}
    assert [each["name"] for each in told["variables"]] == ["ZAPIER_KEY"]
    assert (told["config"], told["written"], told["backup"]) == (str(target), False, None)


def test_a_file_that_cannot_be_parsed_is_named_and_the_others_are_imported(home: Path) -> None:
    (home / ".cursor" / "mcp.json").write_text('{\n  "mcpServers": {"a": PLANTED-1}\n}')
    result = run("--write")
    assert result.exit_code == 1
    assert "is not valid JSON: line 2, column" in result.stdout
    assert "linear" in config_of(home).read_text()
    assert HELD.findall(result.stdout + result.stderr) == []


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        pytest.param(("--from", "cursr"), 2, "did you mean 'cursor'?", id="name"),
        pytest.param(("--from", "/no/such.json"), 2, "no such client or file", id="file"),
        pytest.param(("--secrets", "hide"), 2, "'hide' is not one of 'keep', 'variables'", id="secrets"),
        pytest.param(("--config", "/dev/null/x.json", "--write"), 1, "could not be written", id="unwritable"),
        pytest.param(("--config", "."), 1, "is a folder, not a file; nothing was changed", id="folder"),
    ],
)
def test_what_cannot_be_done_is_said(home: Path, args: tuple[str, ...], code: int, said: str) -> None:
    result = run(*args)
    assert result.exit_code == code
    assert said in " ".join(result.stderr.split())


def test_without_any_client_it_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    result = run()
    assert result.exit_code == 1
    assert "nothing to import: no client has a file of servers here" in result.stderr
    result = run("--from", "windsurf")
    assert f"{tmp_path}/.codeium/windsurf/mcp_config.json" in result.stderr


def test_names_and_values_of_files_are_escaped_on_the_terminal(home: Path) -> None:
    servers = {"\x1b[2Jevil\n\u202e": {"command": "\x1b]0;x\x07", "args": ["\u202e"], "disabledTools": ["\x1b[1m"]}}
    (home / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    result = run("--from", "cursor")
    assert not re.search("[\x1b\x07\u202e]", result.stdout + result.stderr)
    assert len(result.stdout.splitlines()) < 12


def test_servers_of_the_working_directory_are_imported_only_if_its_file_is_named(home: Path) -> None:
    done = run("--write")
    assert set(json.loads(config_of(home).read_text("utf-8"))["mcpServers"]).isdisjoint(("shared", "api"))
    said = " ".join(done.stderr.split())
    file = home / "work" / ".mcp.json"
    assert (
        f"shared is left out: others may have written it, in this folder; read it, then name it with --from {file}"
        in said
    )
    run("--from", str(file), "--write")
    assert "shared" in json.loads(config_of(home).read_text("utf-8"))["mcpServers"]


def test_an_authorization_header_replaces_login_settings(home: Path) -> None:
    entry = {"url": "https://h/mcp", "auth": {"CLIENT_ID": "c"}, "headers": {"Authorization": "Bearer x"}}
    file = home / "one.json"
    file.write_text(json.dumps({"mcpServers": {"both": entry}}), "utf-8")
    done = run("--from", str(file), "--write")
    assert "its login settings are left out: it has an Authorization header" in " ".join(done.stderr.split())
    assert "auth" not in json.loads(config_of(home).read_text("utf-8"))["mcpServers"]["both"]


def test_when_no_file_can_be_read_it_says_what_to_do(home: Path) -> None:
    (home / "bad.json").write_text("{", "utf-8")
    done = run("--from", str(home / "bad.json"))
    assert done.exit_code == 1
    assert "no file could be read; correct what is named above" in done.stderr
