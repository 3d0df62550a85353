"""Tests of install, undo and import for clients with other keys or another format than most."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from codemode_mcp.cli import app
from codemode_mcp.extensions.setup import command_install as install
from codemode_mcp.extensions.setup.mcp_clients import client_files, locations
from codemode_mcp.extensions.setup.mcp_clients.client_files import Source
from codemode_mcp.extensions.setup.mcp_clients.dialects import NotImportable, VariableNames
from codemode_mcp.extensions.setup.mcp_clients.entries import convert
from codemode_mcp.extensions.setup.mcp_clients.formats import parse
from codemode_mcp.extensions.setup.mcp_clients.launch import Launch
from codemode_mcp.extensions.setup.mcp_clients.locations import OWN_CODE_MODE, ClientName, Machine
from codemode_mcp.extensions.setup.mcp_clients.own_entries import clients_with_code_mode, new_entry

SECRET = "sk-0123456789-verysecret"
LAUNCH = Launch("/bin/codemode-mcp", ("serve",))
ARGS = ["serve", "--config", "/c.json"]

FOLDER = Path(__file__).parent / "files"
FILES: dict[ClientName, str] = {
    "codex": (FOLDER / "codex.toml").read_text("utf-8"),
    "gemini-cli": '{"theme": "x", "mcpServers": {"tracker": {"command": "python", "args": ["/t.py"]}}}',
    "qwen-code": '{\r\n  "mcpServers": {\r\n    "tracker": {"command": "python", "trust": true}\r\n  }\r\n}\r\n',
    "opencode": (FOLDER / "opencode.jsonc").read_text("utf-8"),
    "copilot-cli": '{"mcpServers": {"tracker": {"type": "local", "command": "python", "tools": ["a"]}}}',
    "zed": (FOLDER / "zed.jsonc").read_text("utf-8"),
    "goose": (FOLDER / "goose.yaml").read_text("utf-8"),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home of a user of every client, whose working directory is a project."""
    (tmp_path / "work").mkdir()
    here = Machine("linux", tmp_path, {}, tmp_path / "work")
    for module in (install, client_files):
        monkeypatch.setattr(module, "this_machine", lambda: here)
    monkeypatch.setattr(install, "config_dir", lambda: tmp_path / "config")
    monkeypatch.setattr(install, "data_dir", lambda: tmp_path / "data")
    for client, text in FILES.items():
        path = file_of(tmp_path, client)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return tmp_path


def location_of(home: Path, client: ClientName) -> locations.Location:
    found = locations.install_location(client, "user", Machine("linux", home, {}, home / "work"), os.path.exists)
    assert found is not None
    return found


def file_of(home: Path, client: ClientName) -> Path:
    return location_of(home, client).path


def servers_in(home: Path, client: ClientName) -> dict[str, Any]:
    location = location_of(home, client)
    value = parse(location.format, location.path.read_text("utf-8"))
    for key in location.keys:
        value = value[key]
    assert isinstance(value, dict)
    return value


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments], prog_name="codemode-mcp")
    assert SECRET not in done.output
    assert done.exit_code == 0, done.output
    return done.stdout + done.stderr


@pytest.mark.parametrize("client", FILES)
def test_moving_the_servers_and_undo_leave_the_same_bytes(home: Path, client: ClientName) -> None:
    run("install", "--client", client, "--move-servers")
    after = servers_in(home, client)
    assert "codemode" in after
    assert "tracker" not in after
    assert "tracker" in (home / "config" / "codemode-mcp.json").read_text("utf-8")
    told = run("install", "--client", client, "--undo")
    assert file_of(home, client).read_bytes() == FILES[client].encode()
    assert "next: " in told
    assert "lists the server" not in told
    assert "shows the server" not in told


@pytest.mark.parametrize(
    ("client", "given", "key"),
    [
        ("codex", {"disabled_tools": ["drop"]}, "`disabled_tools` became `deny`"),
        ("codex", {"enabled_tools": ["read"]}, "`enabled_tools` became `allow`"),
        ("copilot-cli", {"tools": ["read"]}, "`tools` became `allow`"),
        ("goose", {"type": "stdio", "available_tools": ["read"]}, "`available_tools` became `allow`"),
        ("qwen-code", {"includeTools": ["read"]}, "`includeTools` became `allow`"),
    ],
)
def test_notes_name_a_list_of_tools_by_the_key_in_the_users_file(
    tmp_path: Path, client: ClientName, given: dict[str, Any], key: str
) -> None:
    command = {"cmd" if client == "goose" else "command": "x"}
    source = Source(client, "user", tmp_path / "file", servers={"s": {**command, **given}})
    (note,) = convert("s", source.servers["s"], source, Machine("linux", tmp_path, {}, tmp_path), VariableNames()).notes
    assert note == f"{key}: 1 tool"


@pytest.mark.parametrize("client", FILES)
def test_undo_of_a_changed_file_keeps_the_change(home: Path, client: ClientName) -> None:
    before = servers_in(home, client)
    run("install", "--client", client, "--move-servers")
    path = file_of(home, client)
    mark = "\n// later\n" if path.suffix == ".json" else "\n# later\n"
    path.write_text(path.read_text("utf-8") + mark, "utf-8")
    run("install", "--client", client, "--undo")
    assert servers_in(home, client) == before
    assert path.read_text("utf-8").rstrip().count("later") == 1


@pytest.mark.parametrize("client", FILES)
def test_a_second_installation_changes_nothing(home: Path, client: ClientName) -> None:
    run("install", "--client", client, "--move-servers")
    before = file_of(home, client).read_bytes()
    told = run("install", "--client", client, "--config", str(home / "config" / "codemode-mcp.json"))
    assert "has this server already" in told
    assert file_of(home, client).read_bytes() == before


@pytest.mark.parametrize("client", FILES)
def test_undo_removes_a_file_that_install_created(home: Path, client: ClientName) -> None:
    path = file_of(home, client)
    path.unlink()
    run("install", "--client", client, "--move-servers")
    assert set(servers_in(home, client)) == {"codemode"}
    run("install", "--client", client, "--undo")
    assert not path.exists()


def test_comments_around_a_table_of_codex_stay(home: Path) -> None:
    run("install", "--client", "codex", "--move-servers")
    text = file_of(home, "codex").read_text("utf-8")
    assert text.startswith('# mine\nmodel = "o3"  # fast\n\n# about the project\n[projects."/x"]\n')
    assert "'''\n[mcp_servers.tracker]\n'''" in text
    assert text.endswith("required = true\n")


def test_comments_and_other_extensions_of_goose_stay(home: Path) -> None:
    run("install", "--client", "goose", "--move-servers")
    text = file_of(home, "goose").read_text("utf-8")
    for line in FILES["goose"].splitlines():
        if line.startswith(("#", "GOOSE", "  #", "  developer")):
            assert line in text.splitlines()
    # Goose keeps its built-in extension.
    assert set(servers_in(home, "goose")) == {"developer", "codemode"}


WRITTEN: dict[ClientName, dict[str, Any]] = {
    "claude-code": {"type": "stdio", "command": LAUNCH.command, "args": ARGS, "env": {}, "alwaysLoad": True},
    "codex": {"command": LAUNCH.command, "args": ARGS, "required": True},
    "gemini-cli": {"command": LAUNCH.command, "args": ARGS},
    "qwen-code": {"command": LAUNCH.command, "args": ARGS},
    "zed": {"command": LAUNCH.command, "args": ARGS},
    "opencode": {"type": "local", "command": [LAUNCH.command, *ARGS], "enabled": True},
    "copilot-cli": {"type": "local", "command": LAUNCH.command, "args": ARGS, "tools": ["*"], "deferTools": "never"},
}


@pytest.mark.parametrize("client", WRITTEN)
def test_the_entry_has_the_keys_of_the_client(client: ClientName) -> None:
    assert new_entry(client, LAUNCH, "/c.json") == WRITTEN[client]


def test_choices_of_the_user_in_a_replaced_entry_are_kept() -> None:
    old = {**WRITTEN["claude-code"], "alwaysLoad": False}
    assert new_entry("claude-code", LAUNCH, "/d.json", old)["alwaysLoad"] is False
    codex = {**WRITTEN["codex"], "required": False, "default_tools_approval_mode": "approve", "enabled": False}
    made = new_entry("codex", LAUNCH, "/d.json", codex)
    assert (made["required"], made["default_tools_approval_mode"]) == (False, "approve")
    assert "enabled" not in made


def test_variables_are_passed_on_by_name_where_the_client_supports_it() -> None:
    handed = {"KEY": "${KEY}"}
    references = {"KEY": "{env:KEY}"}
    assert new_entry("codex", LAUNCH, "/c.json", None, "x", handed)["env_vars"] == ["KEY"]
    assert new_entry("goose", LAUNCH, "/c.json", None, "x", handed)["env_keys"] == ["KEY"]
    assert new_entry("opencode", LAUNCH, "/c.json", None, "x", references)["environment"] == references
    assert new_entry("gemini-cli", LAUNCH, "/c.json", None, "x", handed)["env"] == handed


def converted(client: ClientName, given: dict[str, Any]) -> Any:
    here = Machine("linux", Path("/home/me"), {}, Path("/home/me"))
    return convert("x", given, Source(client, "user", Path("/f")), here, VariableNames())


def entries_read() -> list[list[str]]:
    """Return the cases of a file: a client with an entry of it on one line, and ours below."""
    lines = (FOLDER / "entries_read.txt").read_text("utf-8").splitlines()
    return [[*line.split(" ", 1), ours] for line, ours in zip(lines[::2], lines[1::2], strict=True)]


@pytest.mark.parametrize(("client", "given", "ours"), entries_read())
def test_the_keys_of_each_client_become_ours(client: ClientName, given: str, ours: str) -> None:
    assert converted(client, json.loads(given)).entry == json.loads(ours)


@pytest.mark.parametrize(
    ("client", "given", "said"),
    [
        ("zed", {"settings": {"a": 1}}, "extension of Zed"),
        ("goose", {"type": "builtin", "name": "developer", "enabled": True}, "part of Goose"),
        ("goose", {"type": "platform", "name": "todo"}, "part of Goose"),
        ("gemini-cli", {"tcp": "ws://x"}, "WebSocket"),
        ("codex", {"command": "x", "enabled_tools": []}, "allows no tool at all"),
        ("copilot-cli", {"command": "x", "tools": []}, "allows no tool at all"),
        ("opencode", {"enabled": True}, "only switches on or off"),
    ],
)
def test_what_only_the_client_can_start_stays_with_it(client: ClientName, given: dict[str, Any], said: str) -> None:
    with pytest.raises(NotImportable, match=said):
        converted(client, given)


@pytest.mark.parametrize(
    ("client", "given", "named"),
    [
        ("codex", {"command": "x", "default_tools_approval_mode": "approve"}, "default_tools_approval_mode"),
        ("codex", {"command": "x", "required": True}, "required"),
        ("gemini-cli", {"command": "x", "trust": True}, "trust"),
        ("goose", {"cmd": "x", "env_keys": ["K"]}, "K"),
        ("codex", {"command": "x", "something_new": 1}, "something_new"),
    ],
)
def test_keys_without_an_equivalent_are_named(client: ClientName, given: dict[str, Any], named: str) -> None:
    assert any(named in note for note in converted(client, given).notes)


def test_the_same_server_with_stricter_rules_is_left_with_its_client(home: Path) -> None:
    run("install", "--client", "zed", "--move-servers")
    file_of(home, "gemini-cli").write_text(
        '{"mcpServers": {"tracker": {"command": "python", "args": ["/t.py"], "excludeTools": ["drop"]}}}'
    )
    told = " ".join(run("install", "--client", "gemini-cli", "--move-servers").split())
    assert "'tracker' is the same server without its `deny`" in told.replace('"', "'")
    assert set(servers_in(home, "gemini-cli")) == {"tracker", "codemode"}


@pytest.mark.parametrize("client", FILES)
def test_import_reads_the_file_of_a_client_and_shows_no_secret(
    home: Path, client: ClientName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEMODE_MCP_CONFIG", str(home / "ours.json"))
    assert "tracker" in run("import", "--from", client)
    assert "tracker" in run("import", "--from", str(file_of(home, client)), "--write")
    assert "tracker" in (home / "ours.json").read_text("utf-8")


@pytest.mark.parametrize("text", ["[mcp_servers\n", "a = 1\na = 2\n"])
def test_invalid_toml_is_refused_with_the_line_and_unchanged(home: Path, text: str) -> None:
    path = file_of(home, "codex")
    path.write_text(text)
    done = CliRunner().invoke(app, ["install", "--client", "codex", "--move-servers"])
    assert done.exit_code == 1
    assert "is not valid TOML: line" in " ".join(done.stderr.split())
    assert path.read_text() == text


def test_invalid_yaml_is_refused_with_the_line_and_unchanged(home: Path) -> None:
    path = file_of(home, "goose")
    path.write_text("extensions:\n  a: [1\nb: 2\n")
    done = CliRunner().invoke(app, ["install", "--client", "goose", "--move-servers"])
    assert done.exit_code == 1
    assert "is not valid YAML: line 3" in " ".join(done.stderr.split())


def test_install_for_codex_explains_the_approval_mode(home: Path) -> None:
    told = " ".join(run("install", "--client", "codex", "--move-servers").split())
    assert '`default_tools_approval_mode = "approve"`' in told
    assert "asks about no call" in told
    assert "default_tools_approval_mode" not in file_of(home, "codex").read_text("utf-8")


def test_an_unknown_client_gets_an_entry_to_copy_and_the_nearest_names(home: Path) -> None:
    done = CliRunner().invoke(app, ["install", "--client", "gemini"], prog_name="codemode-mcp")
    assert done.exit_code == 2
    assert "did you mean 'gemini-cli'?" in done.stderr
    assert "mcp add codemode -- " in done.stderr
    found = parse("json", done.stdout)["mcpServers"]["codemode"]
    assert found["args"][-2:] == ["--config", str(home / "config" / "codemode-mcp.json")]
    assert file_of(home, "gemini-cli").read_text("utf-8") == FILES["gemini-cli"]


def test_clients_with_a_code_mode_are_named_where_they_start_this_server(home: Path) -> None:
    here = Machine("linux", home, {}, home / "work")
    assert clients_with_code_mode(here) == ()
    for client in OWN_CODE_MODE:
        run("install", "--client", client, "--move-servers")
    assert clients_with_code_mode(here) == ("Codex", "opencode")


def test_the_files_are_where_the_clients_document_them_on_windows_and_elsewhere() -> None:
    from pathlib import PurePosixPath, PureWindowsPath

    def user(client: ClientName, system: Any, home: Any, environ: dict[str, str] | None = None) -> str:
        machine = Machine(system, home, environ or {}, home / "w")
        found = locations.install_location(client, "user", machine, lambda _: False)
        assert found is not None
        return str(found.path)

    windows, mac = PureWindowsPath(r"C:\Users\me"), PurePosixPath("/Users/me")
    roaming = r"C:\Users\me\AppData\Roaming"
    assert user("goose", "win32", windows) == roaming + r"\Block\goose\config\config.yaml"
    assert user("zed", "win32", windows) == roaming + r"\Zed\settings.json"
    assert user("codex", "win32", windows) == r"C:\Users\me\.codex\config.toml"
    assert user("opencode", "win32", windows) == r"C:\Users\me\.config\opencode\opencode.json"
    assert user("zed", "darwin", mac) == "/Users/me/.config/zed/settings.json"
    assert user("goose", "darwin", mac) == "/Users/me/.config/goose/config.yaml"
    assert user("codex", "darwin", mac, {"CODEX_HOME": "/c"}) == "/c/config.toml"
    assert user("copilot-cli", "darwin", mac) == "/Users/me/.copilot/mcp-config.json"
    assert user("gemini-cli", "darwin", mac) == "/Users/me/.gemini/settings.json"
    assert user("qwen-code", "linux", mac) == "/Users/me/.qwen/settings.json"


def test_the_existing_file_of_opencode_is_used(tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "opencode"
    folder.mkdir(parents=True)
    assert file_of(tmp_path, "opencode").name == "opencode.json"
    (folder / "opencode.jsonc").write_text("{}")
    assert file_of(tmp_path, "opencode").name == "opencode.jsonc"


def test_every_client_has_a_next_step() -> None:
    assert set(locations.RESTART) == set(locations.CLIENTS) == set(locations.TITLES)
