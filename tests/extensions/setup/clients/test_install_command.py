"""Tests of the output and the exit codes of `codemode-mcp install`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from codemode_mcp.cli import app
from codemode_mcp.cli.messages import COLUMNS
from codemode_mcp.config.edit import backup_folder
from codemode_mcp.extensions.setup import command_install as install
from codemode_mcp.extensions.setup.mcp_clients import installing

SECRET = "sk-0123456789-verysecret"
SERVERS: dict[str, Any] = {
    "mcpServers": {
        "files": {"command": "npx", "args": ["-y", "files"], "env": {"API_KEY": SECRET}},
        "odd\x1b[31m": {"command": [SECRET]},
    }
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home of a user with servers in Cursor, whose working directory is a project."""
    monkeypatch.setattr(install, "this_machine", lambda: _here(tmp_path))
    monkeypatch.setattr(install, "config_dir", lambda: tmp_path / "config")
    monkeypatch.setattr(install, "data_dir", lambda: tmp_path / "data")
    (tmp_path / "work").mkdir()
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").write_text(json.dumps(SERVERS, indent=2), "utf-8")
    return tmp_path


def _here(home: Path) -> Any:
    from codemode_mcp.extensions.setup.mcp_clients.locations import Machine

    return Machine("linux", home, {}, home / "work")


def run(*arguments: str) -> Result:
    done = CliRunner().invoke(app, ["install", *arguments], prog_name="codemode-mcp")
    assert SECRET not in done.output
    assert "\x1b" not in done.output
    for line in done.stderr.splitlines():
        # A path is not broken.
        assert len(re.sub(r"\S{40,}", "path", line)) <= COLUMNS, line
    return done


def test_it_says_what_it_did_how_to_undo_it_and_what_to_do_next(home: Path) -> None:
    done = run("--client", "cursor", "--move-servers")
    assert done.exit_code == 0
    assert done.stdout == f"{home / '.cursor' / 'mcp.json'}\n"
    said = " ".join(done.stderr.split())
    assert "Cursor has this server now: + codemode - files: behind this server" in said
    assert "their secrets were copied as written, into a file that only you can read" in said
    assert "stays with Cursor: odd\\x1b[31m, because `command`" in said
    assert (
        "to undo this, or to restore the file without this program: codemode-mcp install --client cursor --undo" in said
    )
    (copy,) = backup_folder(home / ".cursor" / "mcp.json").iterdir()
    # A wrapped command would be two commands when it is pasted.
    assert f"  cp -p {copy} {home / '.cursor' / 'mcp.json'}" in done.stderr.splitlines()
    assert "or restart Cursor; to check it now: codemode-mcp doctor --config" in said

    again = run("--client", "cursor", "--move-servers")
    assert again.exit_code == 0
    assert "Cursor has this server already" in again.stderr
    assert again.stdout == ""

    undone = run("--client", "cursor", "--undo")
    assert undone.exit_code == 0
    assert "is as it was before, byte for byte" in " ".join(undone.stderr.split())
    assert json.loads((home / ".cursor" / "mcp.json").read_text()) == SERVERS
    assert "does not have this server" in run("--client", "cursor", "--undo").stderr


def test_a_dry_run_shows_the_entry_and_writes_nothing(home: Path) -> None:
    before = sorted(home.rglob("*"))
    done = run("--client", "cursor", "--move-servers", "--dry-run")
    assert done.exit_code == 0
    entry = json.loads(done.stdout)["codemode"]
    assert entry["args"][-3:] == ["serve", "--config", str(home / "config" / "codemode-mcp.json")]
    assert "would change" in done.stderr
    assert "nothing is changed yet: run this without --dry-run" in done.stderr
    run("--client", "cursor", "--undo", "--dry-run")
    assert sorted(home.rglob("*")) == before
    assert json.loads((home / ".cursor" / "mcp.json").read_text()) == SERVERS


def test_another_server_of_the_same_name_is_moved_under_the_name_of_its_client(home: Path) -> None:
    config = home / "mine.json"
    config.write_text('{"mcpServers": {"files": {"command": "another"}}}')
    done = run("--client", "cursor", "--move-servers", "--config", str(config))
    said = " ".join(done.stderr.split())
    assert 'files: named "files-cursor": our configuration has another "files"' in said
    assert list(json.loads(config.read_text())["mcpServers"])[:2] == ["files", "files-cursor"]


def test_without_moving_it_warns_of_servers_that_both_start(home: Path) -> None:
    config = home / "mine.json"
    config.write_text(json.dumps({"mcpServers": {"files": SERVERS["mcpServers"]["files"]}}))
    done = run("--client", "cursor", "--config", str(config))
    assert done.exit_code == 0
    said = " ".join(done.stderr.split())
    assert "both Cursor and this server start files; run this with --move-servers, or remove it from" in said
    assert "Cursor keeps showing the tools of odd\\x1b[31m, which cannot be moved behind this server" in said


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--client", "cursor"), 2, "there is no configuration yet.*add --move-servers.*codemode-mcp import --write"),
        (("--client", "cursor", "--config", "nowhere.json"), 2, "--config: the file .*nowhere.json does not exist"),
        (("--client", "claude-desktop", "--scope", "project"), 2, "for one folder; leave out `--scope project`"),
        (("--client", "cursor", "--name", "a b"), 2, "made of letters, digits, - and _"),
        (("--client", "emacs"), 2, "'emacs' is not a client that install knows; nothing was changed"),
        ((), 2, "--client"),
    ],
    ids=["no configuration", "not there", "no project", "name", "client", "nothing"],
)
@pytest.mark.usefixtures("home")
def test_errors_say_what_to_do_instead(arguments: tuple[str, ...], code: int, said: str) -> None:
    done = CliRunner().invoke(app, ["install", *arguments], prog_name="codemode-mcp")
    assert done.exit_code == code
    assert re.search(said, " ".join(done.stderr.replace("│", " ").split()))


def test_an_invalid_file_is_refused_with_the_position(home: Path) -> None:
    (home / ".cursor" / "mcp.json").write_text('{"mcpServers": {,}}')
    done = run("--client", "cursor", "--move-servers")
    assert done.exit_code == 1
    assert "is not valid JSON: line 1, column" in " ".join(done.stderr.split())


def test_a_file_changed_once_in_the_meantime_is_read_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = home / ".cursor" / "mcp.json"
    real, changes = installing.carry_out, iter([{"new": {"command": "n"}}, {}])

    def carry_out(plan: installing.Plan, records: Path) -> Path | None:
        if change := next(changes):
            file.write_text(json.dumps({"mcpServers": change}))
        return real(plan, records)

    monkeypatch.setattr(installing, "carry_out", carry_out)
    assert run("--client", "cursor", "--move-servers").exit_code == 0
    ours = json.loads((home / "config" / "codemode-mcp.json").read_text())
    assert list(ours["mcpServers"]) == ["new"]
    assert list(json.loads(file.read_text())["mcpServers"]) == ["codemode"]


def test_a_file_that_keeps_changing_ends_the_command(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = home / ".cursor" / "mcp.json"
    real = installing.carry_out

    def carry_out(plan: installing.Plan, records: Path) -> Path | None:
        file.write_text(file.read_text() + " ")
        return real(plan, records)

    monkeypatch.setattr(installing, "carry_out", carry_out)
    done = run("--client", "cursor", "--move-servers")
    assert done.exit_code == 1
    assert "keeps being changed by another program; quit Cursor, and run this again" in " ".join(done.stderr.split())
    assert json.loads(file.read_text()) == SERVERS
    assert not (home / "config" / "codemode-mcp.json").exists()


def test_it_says_that_the_file_of_a_project_is_shared(home: Path) -> None:
    config = home / "mine.json"
    config.write_text("{}")
    done = run("--client", "claude-code", "--scope", "project", "--config", str(config))
    assert done.exit_code == 0
    assert json.loads((home / "work" / ".mcp.json").read_text())["mcpServers"]["codemode"]["type"] == "stdio"
    assert "the paths are those of this machine" in done.stderr
    assert "install --client claude-code --scope project --undo" in done.stderr


def test_it_says_that_moved_servers_of_a_project_are_for_all_clients(home: Path) -> None:
    (home / "work" / ".mcp.json").write_text(json.dumps({"mcpServers": {"db": {"command": "x"}}}), "utf-8")
    done = run("--client", "claude-code", "--scope", "project", "--move-servers")
    assert done.exit_code == 0
    said = " ".join(done.stderr.split())
    assert "they were servers of this project only; now all clients that start" in said


def test_a_configuration_found_in_this_folder_is_not_used_for_all_folders(home: Path) -> None:
    (home / "work" / "codemode-mcp.json").write_text('{"mcpServers": {}}', "utf-8")
    before = (home / ".cursor" / "mcp.json").read_bytes()
    for more in ((), ("--move-servers",)):
        done = run("--client", "cursor", *more)
        assert done.exit_code == 2
        assert "is of this folder, and Cursor would start it everywhere" in " ".join(done.stderr.split())
    assert (home / ".cursor" / "mcp.json").read_bytes() == before
    assert run("--client", "cursor", "--config", str(home / "work" / "codemode-mcp.json")).exit_code == 0


def test_an_entry_shares_a_process_unless_it_is_private(home: Path) -> None:
    said = " ".join(run("--client", "cursor", "--move-servers").stderr.split())
    shared = home / "config" / "codemode-mcp.json"
    assert f"Cursor shares one process with other clients of {shared}; add --private for a process of its own" in said
    entry = home / ".cursor" / "mcp.json"
    assert "--private" not in entry.read_text("utf-8")
    said = " ".join(run("--client", "cursor", "--private").stderr.split())
    assert "with --private in the entry, Cursor has a server process of its own" in said
    args = json.loads(entry.read_text("utf-8"))["mcpServers"]["codemode"]["args"]
    at = args.index("serve")
    assert args[at : at + 3] == ["serve", "--private", "--config"]
    # An installation keeps the options of the entry.
    assert run("--client", "cursor").exit_code == 0
    assert json.loads(entry.read_text("utf-8"))["mcpServers"]["codemode"]["args"].count("--private") == 1
    assert run("--client", "cursor", "--private").exit_code == 0
    assert json.loads(entry.read_text("utf-8"))["mcpServers"]["codemode"]["args"].count("--private") == 1


def test_the_entry_to_copy_can_be_private(home: Path) -> None:
    done = run("--client", "unknown", "--private")
    assert done.exit_code == 2
    assert "--private" in json.loads(done.stdout)["mcpServers"]["codemode"]["args"]
