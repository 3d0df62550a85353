"""Tests of adding this server to files of clients, as each client writes them, and of undoing it."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.config import load_config
from codemode_mcp.config.edit import ChangedMeanwhileError, backup_folder
from codemode_mcp.config.server_entry import starts_this_server
from codemode_mcp.config.source import parse
from codemode_mcp.extensions.setup.mcp_clients import installing
from codemode_mcp.extensions.setup.mcp_clients.installing import (
    RefusedError,
    UndoPlan,
    carry_out,
    plan,
    plan_undo,
    undo,
)
from codemode_mcp.extensions.setup.mcp_clients.launch import Launch, NoLaunchError, Program, launch, origin
from codemode_mcp.extensions.setup.mcp_clients.locations import ClientName, Location, Machine, System, install_location
from codemode_mcp.extensions.setup.mcp_clients.own_entries import new_entry

LAUNCH = Launch("/opt/bin/codemode-mcp", ("serve",))

FILES: dict[str, tuple[ClientName, str, str]] = {
    "claude-desktop": (
        "claude-desktop",
        "user",
        '{\n  "globalShortcut": "",\n  "mcpServers": {\n    "files": {\n      "command": "npx",\n      "args": [\n'
        '        "-y",\n        "@modelcontextprotocol/server-filesystem",\n        "/notes"\n      ]\n    }\n  }\n}',
    ),
    "claude-desktop without servers": ("claude-desktop", "user", '{\n  "scale": 0\n}'),
    "claude-desktop, nothing yet": ("claude-desktop", "user", "{}"),
    "claude-code": (
        "claude-code",
        "user",
        '{\n  "numStartups": 7,\n  "projects": {\n    "/w": {\n      "history": [\n'
        '        {\n          "display": "é // {"\n        }\n      ],\n      "mcpServers": {}\n    }\n  },\n'
        '  "mcpServers": {\n    "files": {\n      "type": "stdio",\n'
        '      "command": "files",\n      "args": [],\n      "env": {}\n    }\n  },\n  "userID": "0"\n}',
    ),
    "claude-code, project": (
        "claude-code",
        "project",
        '{\n  "mcpServers": {\n    "a": {\n      "command": "a"\n    }\n  }\n}\n',
    ),
    "cursor": ("cursor", "user", '{\n  "mcpServers": {\n    "a": {"command": "a", "env": {"KEY": "k-1"}}\n  }\n}\n'),
    "cursor on one line": ("cursor", "user", '{"mcpServers":{"a":{"url":"https://a.example/mcp"}}}'),
    "vscode": (
        "vscode",
        "user",
        '{\r\n\t// mine\r\n\t"servers": {\r\n\t\t"a": {\r\n\t\t\t"type": "stdio",\r\n\t\t\t"command": "a", // a\r\n'
        '\t\t},\r\n\t},\r\n\t"inputs": [],\r\n}\r\n',
    ),
    "windsurf with a byte order mark": (
        "windsurf",
        "user",
        '\ufeff{\n    "mcpServers": {\n'
        '        "a": {\n            "serverUrl": "https://a.example/mcp"\n        }\n    }\n}',
    ),
}


class World:
    """A home folder with one client in it, and our configuration."""

    def __init__(self, folder: Path, client: ClientName, scope: Any, environ: dict[str, str] | None = None) -> None:
        home = folder / "home"
        (home / "work").mkdir(parents=True, exist_ok=True)
        self.machine = Machine("linux", home, environ or {}, home / "work")
        self.config = home / "codemode-mcp.json"
        self.records = home / "records"
        location = install_location(client, scope, self.machine, os.path.exists)
        assert location is not None
        self.location: Location = location
        self.path = location.path

    def has(self, text: str) -> "World":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(text.encode())
        return self

    def ours(self, servers: dict[str, Any] | None = None) -> "World":
        self.config.write_text(json.dumps({"mcpServers": servers or {}}), "utf-8")
        return self

    def plan(self, name: str = "codemode", *, move: bool = False) -> installing.Plan:
        document = installing.read_document(self.location)
        return plan(self.location, document, name, LAUNCH, self.config, self.machine, move=move)

    def install(self, name: str = "codemode", *, move: bool = False) -> installing.Plan:
        made = self.plan(name, move=move)
        carry_out(made, self.records)
        return made

    def undo(self) -> UndoPlan:
        document = installing.read_document(self.location)
        undoing = plan_undo(self.location, document, self.records)
        undo(undoing, self.location, document.path, self.records)
        return undoing

    @property
    def servers(self) -> dict[str, Any]:
        value: Any = parse(self.path.read_text("utf-8-sig"))
        for key in self.location.keys:
            value = value[key]
        return value

    @property
    def files(self) -> dict[str, bytes]:
        """The content of all files, except backups and records."""
        found = {str(each): each.read_bytes() for each in sorted(self.machine.home.rglob("*")) if each.is_file()}
        return {name: data for name, data in found.items() if not name.endswith(".bak") and "/records/" not in name}


@pytest.fixture
def cursor(tmp_path: Path) -> World:
    return World(tmp_path, "cursor", "user")


@pytest.mark.parametrize("move", [False, True], ids=["beside", "moved"])
@pytest.mark.parametrize(("client", "scope", "text"), FILES.values(), ids=FILES)
def test_undo_restores_the_file_byte_for_byte(
    tmp_path: Path, client: ClientName, scope: str, text: str, move: bool
) -> None:
    world = World(tmp_path, client, scope).has(text).ours()
    before = set(world.servers) if "ervers" in text else set()
    world.install(move=move)
    assert set(world.servers) == {"codemode", *(() if move else before)}
    assert {spec.name for spec in load_config(world.config, environ={}).upstreams} == (before if move else set())
    undoing = world.undo()
    assert undoing.exact
    assert world.path.read_bytes() == text.encode()


@pytest.mark.parametrize(("client", "scope", "text"), FILES.values(), ids=FILES)
def test_undo_of_a_changed_file_restores_moved_servers_and_keeps_the_changes(
    tmp_path: Path, client: ClientName, scope: str, text: str
) -> None:
    world = World(tmp_path, client, scope).has(text).ours()
    expected = parse(text.removeprefix("\ufeff"))
    before = dict(world.servers) if "ervers" in text else {}
    world.install(move=True)
    changed = world.path.read_text("utf-8").rstrip() + "\n\n"
    world.path.write_text(changed, "utf-8", newline="")
    undoing = world.undo()
    assert not undoing.exact
    assert set(undoing.restored) == set(before)
    assert undoing.removed == ("codemode",)
    if not before:
        expected[world.location.keys[0]] = {}
    assert parse(world.path.read_text("utf-8-sig")) == expected
    assert world.path.read_text("utf-8").endswith("\n\n")


@pytest.mark.parametrize("client", ["claude-desktop", "claude-code", "cursor", "vscode", "windsurf"])
def test_undo_removes_a_file_that_install_created(tmp_path: Path, client: ClientName) -> None:
    world = World(tmp_path, client, "user").ours()
    world.install()
    assert list(world.servers) == ["codemode"]
    if sys.platform != "win32":
        assert stat.S_IMODE(world.path.stat().st_mode) == 0o600
    text = world.path.read_text("utf-8")
    assert ("\n\t\t" in text) == (client == "vscode")
    assert world.undo().removes_file
    assert not world.path.exists()


def test_an_empty_file_counts_as_missing(cursor: World) -> None:
    cursor.has("").ours().install()
    assert list(cursor.servers) == ["codemode"]
    cursor.undo()
    assert cursor.path.read_bytes() == b""


def test_installing_again_changes_nothing(cursor: World) -> None:
    cursor.has('{"mcpServers": {"a": {"command": "a"}}}').ours().install(move=True)
    files = cursor.files
    for move in (True, False):
        again = cursor.plan(move=move)
        assert again.change is None
        assert carry_out(again, cursor.records) is None
    assert cursor.files == files


def test_two_installations_in_a_row_are_undone_together(cursor: World) -> None:
    text = '{\n  "mcpServers": {\n    "a": {"command": "a"} // a\n  }\n}'
    cursor.has(text).ours().install()
    cursor.install(move=True)
    assert list(cursor.servers) == ["codemode"]
    cursor.undo()
    assert cursor.path.read_text() == text


def test_changes_between_two_installations_are_kept(cursor: World) -> None:
    cursor.has('{"mcpServers": {"a": {"command": "a"}}}').ours().install(move=True)
    servers = {**cursor.servers, "b": {"command": "b"}}
    cursor.has(json.dumps({"mcpServers": servers, "mine": 1}))
    cursor.install(move=True)
    assert cursor.undo().restored == ("a", "b")
    expected = {"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}, "mine": 1}
    assert json.loads(cursor.path.read_text()) == expected


def test_this_server_under_another_name_is_replaced_and_keeps_its_variables(cursor: World) -> None:
    entry = {"command": "uvx", "args": ["codemode-mcp", "serve", "--read-only"], "env": {"TOKEN": "t"}}
    cursor.has(json.dumps({"mcpServers": {"old": entry, "a": {"command": "a"}}})).ours()
    made = cursor.install()
    assert made.replaced == ("old",)
    args = ["serve", "--config", str(cursor.config), "--read-only"]
    assert cursor.servers == {
        "a": {"command": "a"},
        "codemode": {"command": LAUNCH.command, "args": args, "env": {"TOKEN": "t"}},
    }


def test_another_server_of_the_same_name_is_not_replaced(cursor: World) -> None:
    cursor.has('{"mcpServers": {"codemode": {"command": "other"}}}').ours()
    with pytest.raises(RefusedError, match=r"has another server called 'codemode'.*--name codemode-2"):
        cursor.plan()
    assert list(cursor.install("codemode-2").kept) == ["codemode"]
    # But it can go behind.
    cursor.undo()
    assert cursor.install(move=True).moved == ("codemode",)
    assert cursor.servers["codemode"]["command"] == LAUNCH.command
    assert json.loads(cursor.config.read_text())["mcpServers"]["codemode"] == {"command": "other"}


def test_servers_that_client_and_this_server_both_start_are_named(cursor: World) -> None:
    same = {"command": "npx", "args": ["a"]}
    cursor.has(json.dumps({"mcpServers": {"mine": same, "x": {"command": "x"}, "z": {"command": "z"}}}))
    cursor.ours({"theirs": same, "x": {"command": "y"}})
    made = cursor.plan()
    assert made.both == ("mine",)
    assert made.kept == ("mine", "x", "z")
    moved = cursor.install(move=True)
    assert moved.moved == ("mine", "x", "z")
    assert dict(moved.notes)["x"] == 'named "x-cursor": our configuration has another "x"'
    assert list(cursor.servers) == ["codemode"]
    assert list(json.loads(cursor.config.read_text())["mcpServers"]) == ["theirs", "x", "x-cursor", "z"]


def test_a_server_that_is_disabled_here_stays_with_the_client_that_uses_it(cursor: World) -> None:
    cursor.has('{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b", "disabled": true}}}')
    cursor.ours({"a": {"command": "a", "disabled": True}, "b": {"command": "b", "disabled": True}})
    made = cursor.install(move=True)
    assert made.moved == ("b",)
    assert "remove `disabled` from 'a'" in made.refused["a"]


def test_one_server_under_two_names_is_moved_once_and_restored_twice(cursor: World) -> None:
    text = '{"mcpServers": {"a": {"command": "a"}, "b": {"command": "a"}}}'
    made = cursor.has(text).install(move=True)
    assert made.moved == ("a", "b")
    assert made.notes == (("b", "it is the same server as 'a', and is there once"),)
    assert list(json.loads(cursor.config.read_text())["mcpServers"]) == ["a"]
    cursor.undo()
    assert cursor.path.read_text() == text


def test_a_server_that_cannot_be_moved_stays(cursor: World) -> None:
    cursor.has('{"mcpServers": {"odd": {"command": ["a"]}, "a": {"command": "a"}}}').ours()
    made = cursor.install(move=True)
    assert list(made.refused) == ["odd"]
    assert list(cursor.servers) == ["odd", "codemode"]


def test_our_entry_passes_on_references_that_only_the_client_can_resolve(tmp_path: Path) -> None:
    entry = {"command": "a", "env": {"API_KEY": "${input:key}", "HOST": "${env:HOST}"}}
    inputs = [{"type": "promptString", "id": "key", "description": "The key", "password": True}]
    world = World(tmp_path, "vscode", "user").has(json.dumps({"servers": {"a": entry}, "inputs": inputs}))
    made = world.install(move=True)
    assert set(made.passed) == {"API_KEY", "HOST"}
    assert world.servers["codemode"]["env"] == {"API_KEY": "${input:key}", "HOST": "${env:HOST}"}
    config = load_config(world.config, environ={"API_KEY": "k", "HOST": "h"})
    assert config.upstreams[0].env == {"API_KEY": "k", "HOST": "h"}
    assert load_config(world.config, environ={"API_KEY": "", "HOST": ""}).upstreams


def test_a_server_with_an_unset_variable_stays_with_the_client(tmp_path: Path) -> None:
    servers = {"a": {"command": "a", "env": {"KEY": "${KEY}"}}, "b": {"command": "b", "args": ["${HOME}"]}}
    world = World(tmp_path, "claude-desktop", "user", {"KEY": "in the terminal", "HOME": "/home/me"})
    world.has(json.dumps({"mcpServers": servers}))
    made = world.install(move=True)
    assert made.moved == ("b",)
    assert dict(made.refused) == {"a": "it needs $KEY, which Claude Desktop does not pass on"}
    assert load_config(world.config, environ={"HOME": "/home/me"}).upstreams


def test_claude_code_starts_this_server_with_an_unset_variable(tmp_path: Path) -> None:
    servers = {"a": {"type": "stdio", "command": "a", "env": {"KEY": "${KEY}"}}}
    world = World(tmp_path, "claude-code", "user").has(json.dumps({"mcpServers": servers}))
    world.install(move=True)
    assert world.servers["codemode"]["env"] == {"KEY": "${KEY:-}"}
    assert load_config(world.config, environ={"KEY": ""}).upstreams


def test_variables_of_claude_code_do_not_keep_other_clients_from_starting_this_server(tmp_path: Path) -> None:
    entry = {"type": "http", "url": "https://a.example/mcp", "headers": {"X-Key": "${KEY}", "X-Home": "${HOME}"}}
    world = World(tmp_path, "claude-code", "user").has(json.dumps({"mcpServers": {"a": entry}}))
    world.install(move=True)
    (known,) = load_config(world.config, environ={"KEY": "k", "HOME": "h"}).upstreams
    assert known.headers == {"X-Key": "k", "X-Home": "h"}
    (unknown,) = load_config(world.config, environ={"HOME": "h"}).upstreams
    assert unknown.headers == {"X-Key": "", "X-Home": "h"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{\n  "mcpServers": {\n    "a": {,}\n', r"is not valid JSON: line 3, column 12"),
        ("[]", "does not contain an object"),
        ('{"mcpServers": []}', "mcpServers is not an object"),
        ('{"mcpServers": {}, "mcpServers": {}}', "is given twice"),
        ("\x00", "NUL"),
    ],
    ids=["broken", "list", "inner list", "twice", "no text"],
)
def test_an_unreadable_file_is_refused_and_unchanged(cursor: World, text: str, said: str) -> None:
    cursor.has(text).ours()
    files = cursor.files
    with pytest.raises(RefusedError, match=said) as refused:
        cursor.plan()
    assert str(cursor.path) in str(refused.value)
    assert cursor.files == files


def test_an_unreadable_configuration_of_ours_is_refused_too(cursor: World) -> None:
    cursor.has('{"mcpServers": {"a": {"command": "a"}}}').config.write_text("{ broken")
    with pytest.raises(RefusedError, match=r"codemode-mcp\.json is not valid JSON"):
        cursor.plan(move=True)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs here")
def test_a_pipe_instead_of_the_file_does_not_block(cursor: World) -> None:
    cursor.ours().path.parent.mkdir()
    os.mkfifo(cursor.path)
    with pytest.raises(RefusedError, match="is not a regular file"):
        cursor.plan()


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need rights there")
def test_a_symbolic_link_is_followed_and_kept(cursor: World, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text('{"mcpServers": {}}')
    cursor.ours().path.parent.mkdir()
    cursor.path.symlink_to(real)
    cursor.install()
    assert cursor.path.is_symlink()
    assert "codemode" in real.read_text()
    cursor.undo()
    assert cursor.path.is_symlink()
    assert real.read_text() == '{"mcpServers": {}}'


def test_a_file_changed_in_the_meantime_is_kept_and_so_is_our_configuration(cursor: World) -> None:
    cursor.has('{"mcpServers": {"a": {"command": "a"}}}').ours()
    made = cursor.plan(move=True)
    cursor.has('{"mcpServers": {"a": {"command": "a"}, "new": {"command": "n"}}}')
    files = cursor.files
    with pytest.raises(ChangedMeanwhileError):
        carry_out(made, cursor.records)
    assert cursor.files == files


def test_undo_does_not_remove_a_created_file_that_was_changed(cursor: World) -> None:
    cursor.ours().install()
    undoing = plan_undo(cursor.location, installing.read_document(cursor.location), cursor.records)
    assert undoing.removes_file
    cursor.has('{"mcpServers": {"new": {"command": "n"}}}')
    with pytest.raises(ChangedMeanwhileError):
        undo(undoing, cursor.location, cursor.path, cursor.records)
    assert cursor.servers == {"new": {"command": "n"}}


def test_a_server_put_back_by_hand_does_not_block_its_restoration(cursor: World) -> None:
    cursor.has('{"mcpServers": {"a": {"command": "a"}}}').ours().install(move=True)
    cursor.has(json.dumps({"mcpServers": {**cursor.servers, "a": {"command": "a"}}}))
    assert cursor.undo().occupied == ()
    assert cursor.servers == {"a": {"command": "a"}}


@pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX")
@pytest.mark.parametrize(("scope", "mode"), [("user", 0o600), ("project", 0o644)])
def test_a_new_file_is_private_unless_it_belongs_to_the_project(tmp_path: Path, scope: Any, mode: int) -> None:
    world = World(tmp_path, "cursor", scope)
    world.ours().install()
    assert stat.S_IMODE(world.path.stat().st_mode) == mode


@pytest.mark.parametrize("existing", [True, False], ids=["a configuration", "none yet"])
@pytest.mark.parametrize("fails", ["client", "record"])
def test_if_one_file_cannot_be_written_neither_is_changed(
    cursor: World, monkeypatch: pytest.MonkeyPatch, existing: bool, fails: str
) -> None:
    cursor.has('{"mcpServers": {"a": {"command": "a"}}}')
    if existing:
        cursor.ours({"mine": {"command": "m"}})
    files = cursor.files
    made = cursor.plan(move=True)
    real = os.replace
    bad = str(cursor.path if fails == "client" else cursor.records)
    refused = []

    def replace(source: Any, target: Any) -> None:
        if str(target).startswith(bad) and not refused:
            refused.append(target)
            raise OSError(28, "No space left on device", str(target))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(RefusedError, match="No space left on device; nothing was changed"):
        carry_out(made, cursor.records)
    assert cursor.files == files


def test_an_interrupt_after_the_last_step_reverts_nothing(cursor: World, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"mcpServers": {"a": {"command": "a"}}}'
    cursor.has(text).ours()
    made = cursor.plan(move=True)
    real = os.replace

    def replace(source: Any, target: Any) -> None:
        real(source, target)
        if str(target) == str(cursor.path):
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        carry_out(made, cursor.records)
    monkeypatch.undo()
    assert "a" in json.loads(cursor.config.read_text())["mcpServers"]
    assert cursor.undo().exact
    assert cursor.path.read_text() == text


def test_of_two_equal_installations_in_parallel_the_second_reverts_nothing(cursor: World) -> None:
    text = '{"mcpServers": {"a": {"command": "a"}}}'
    cursor.has(text).ours({"a": {"command": "a"}})
    made = cursor.plan(move=True)
    carry_out(made, cursor.records)
    with pytest.raises(ChangedMeanwhileError):
        carry_out(made, cursor.records)
    assert cursor.undo().exact
    assert cursor.path.read_text() == text


def test_moved_servers_are_recorded_before_the_file_is_changed(cursor: World, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"mcpServers": {"a": {"command": "a"}}}'
    cursor.has(text).ours()
    made = cursor.plan(move=True)
    seen = []
    real = installing.write

    def write(*args: Any) -> None:
        real(*args)
        seen.append((cursor.path.read_text(), json.loads(cursor.config.read_text())["mcpServers"]))

    monkeypatch.setattr(installing, "write", write)
    carry_out(made, cursor.records)
    assert seen == [(text, {"a": {"command": "a"}})]


def test_installing_in_a_client_without_servers_creates_our_configuration(cursor: World) -> None:
    cursor.install(move=True)
    assert load_config(cursor.config, environ={}).upstreams == ()


def test_moved_servers_are_restored_although_the_client_deleted_its_file(cursor: World) -> None:
    cursor.has('{"mcpServers": {"a": {"command": "a"}}}').ours().install(move=True)
    cursor.path.unlink()
    assert cursor.undo().restored == ("a",)
    assert cursor.servers == {"a": {"command": "a"}}


def test_undo_names_the_configuration_with_the_moved_servers(cursor: World) -> None:
    cursor.has('{"mcpServers": {"a": {"command": "a"}}}').ours().install(move=True)
    first = cursor.config
    cursor.config = first.with_name("other.json")
    cursor.ours().install()
    undoing = cursor.undo()
    assert undoing.restored == ("a",)
    assert undoing.config == str(first)


def test_without_a_record_undo_names_our_configuration(cursor: World) -> None:
    cursor.has('{"mcpServers": {"a": {"command": "a"}}}').ours().install(move=True)
    for record in cursor.records.iterdir():
        record.unlink()
    undoing = cursor.undo()
    assert not undoing.recorded
    assert undoing.config == str(cursor.config)


def test_servers_whose_backup_is_gone_are_named(cursor: World) -> None:
    cursor.has('{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}}').ours().install(move=True)
    for copy in backup_folder(cursor.path).iterdir():
        copy.unlink()
    cursor.has(json.dumps({"mcpServers": {**cursor.servers, "b": {"command": "other"}}}))
    undoing = cursor.undo()
    assert undoing.lost == ("a",)
    assert undoing.occupied == ("b",)
    assert undoing.config == str(cursor.config)
    assert list(cursor.servers) == ["b"]


def test_undo_removes_an_entry_written_by_hand(cursor: World) -> None:
    cursor.has('{"mcpServers": {"c": {"command": "codemode-mcp", "args": ["serve"]}, "a": {"command": "a"}}}')
    assert cursor.undo().removed == ("c",)
    assert cursor.path.read_text() == '{"mcpServers": {"a": {"command": "a"}}}'
    assert cursor.undo().change is None


def test_no_plan_shows_a_secret(cursor: World) -> None:
    secret = "sk-verysecret-0123456789"
    entry = {"command": "a", "env": {"TOKEN": secret}, "args": ["--key", secret]}
    cursor.has(json.dumps({"mcpServers": {"a": entry, "odd": {"command": [secret]}}}))
    made = cursor.install(move=True)
    assert secret not in repr(made)
    assert secret not in repr(plan_undo(cursor.location, installing.read_document(cursor.location), cursor.records))
    records = [each.read_text() for each in cursor.records.iterdir()]
    assert records
    assert secret not in "".join(records)
    if sys.platform != "win32":
        assert stat.S_IMODE(cursor.config.stat().st_mode) == 0o600


@pytest.mark.skipif(sys.platform == "win32", reason="no modes there")
def test_a_configuration_that_gets_secrets_becomes_private(cursor: World) -> None:
    cursor.has('{"mcpServers": {"a": {"command": "a", "env": {"TOKEN": "sk-0123456789-verysecret"}}}}').ours()
    cursor.config.chmod(0o644)
    cursor.install(move=True)
    assert stat.S_IMODE(cursor.config.stat().st_mode) == 0o600


def test_the_restore_command_is_one_of_the_system(tmp_path: Path) -> None:
    path, copy = tmp_path / "my file.json", tmp_path / "my file.json.bak"
    assert installing.restore_command(path, copy, windows=False) == f"cp -p '{copy}' '{path}'"
    assert installing.restore_command(path, copy, windows=True) == f'copy /Y "{copy}" "{path}"'
    assert installing.restore_command(path, None, windows=False) == f"rm '{path}'"
    assert installing.restore_command(path, None, windows=True) == f'del "{path}"'


# The command by which clients start this server, for all systems.


SCRIPT = "/home/me/.local/bin/codemode-mcp"
PIPX = "/home/me/.local/share/pipx/venvs/codemode-mcp/bin/python"
UV_TOOL = "/home/me/.local/share/uv/tools/codemode-mcp/bin/python"
UVX = "/home/me/.cache/uv/archive-v0/Zx81_b/bin/python"
PIPX_RUN = "/home/me/.cache/pipx/1f2e3d/bin/python"
WINDOWS = r"C:\Users\me\venv\Scripts\codemode-mcp.exe"


def launched(program: Program, *files: str, system: System = "linux") -> tuple[str, ...]:
    found = launch(program, system, lambda path: path in files, lambda name: f"/usr/bin/{name}")
    assert starts_this_server(found.command, found.args)
    return (found.command, *found.args)


@pytest.mark.parametrize(
    ("program", "files", "system", "command"),
    [
        (Program(SCRIPT, PIPX), [SCRIPT], "linux", (SCRIPT, "serve")),
        (Program(SCRIPT, UV_TOOL), [SCRIPT], "linux", (SCRIPT, "serve")),
        (Program("/src/codemode_mcp/__main__.py", "/v/bin/python"), ["/v/bin/codemode-mcp"], "darwin",
         ("/v/bin/codemode-mcp", "serve")),
        (Program("/src/codemode_mcp/__main__.py", "/v/bin/python"), [], "linux",
         ("/v/bin/python", "-P", "-m", "codemode_mcp", "serve")),
        (Program(WINDOWS.removesuffix(".exe"), r"C:\Users\me\venv\Scripts\python.exe"), [WINDOWS], "win32",
         (WINDOWS, "serve")),
        (Program(WINDOWS, r"C:\Users\me\venv\Scripts\python.exe"), [WINDOWS], "win32", (WINDOWS, "serve")),
        (Program(SCRIPT, UVX), [SCRIPT], "linux", ("/usr/bin/uvx", "codemode-mcp", "serve")),
        (Program("C:\\x", r"C:\Users\me\AppData\Local\uv\cache\archive-v0\A\Scripts\python.exe"), [], "win32",
         ("/usr/bin/uvx", "codemode-mcp", "serve")),
        (Program("/x", PIPX_RUN), [], "linux", ("/usr/bin/pipx", "run", "codemode-mcp", "serve")),
        (Program("/x", UVX, "file:///home/me/a%20b/dist/x.whl"), [], "linux",
         ("/usr/bin/uvx", "--from", "/home/me/a b/dist/x.whl", "codemode-mcp", "serve")),
        (Program("/x", PIPX_RUN, "https://files.example/x.whl"), [], "linux",
         ("/usr/bin/pipx", "run", "--spec", "https://files.example/x.whl", "codemode-mcp", "serve")),
    ],
    ids=["pipx", "uv tool", "beside python", "module", "windows", "windows exe", "uvx", "uvx windows", "pipx run",
         "uvx of a file", "pipx run of a URL"],
)  # fmt: skip
def test_the_command_works_in_later_sessions(
    program: Program, files: list[str], system: System, command: tuple[str, ...]
) -> None:
    assert launched(program, *files, system=system) == command


def test_a_temporary_environment_is_reported() -> None:
    found = launch(Program("/x", UVX), "linux", lambda _: True, lambda name: f"/bin/{name}")
    assert found.note is not None
    assert "uv tool install codemode-mcp" in found.note


def test_the_advice_installs_from_the_same_origin() -> None:
    program = Program("/x", UVX, "file:///home/me/x%20y.whl")
    found = launch(program, "linux", lambda _: True, lambda name: f"/bin/{name}")
    assert found.note is not None
    assert "`uv tool install '/home/me/x y.whl'`" in found.note
    assert "install codemode-mcp" not in found.note


@pytest.mark.parametrize("where", [None, "https://me:secret@files.example/x.whl"])
def test_a_program_that_could_not_be_started_again_is_refused(where: str | None) -> None:
    with pytest.raises(NoLaunchError, match="uv tool install") as refused:
        launch(Program("/x", UVX, where), "linux", lambda _: True, lambda _: "/bin/uvx" if where else None)
    assert "secret" not in str(refused.value)


def test_the_origin_of_an_installation_names_its_commit() -> None:
    vcs = {"url": "https://git.example/x", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
    assert origin(json.dumps(vcs)) == "git+https://git.example/x@abc"
    assert origin('{"url": "file:///x", "dir_info": {}}') == "file:///x"
    assert [origin(text) for text in (None, "[]", "{", "{}")] == [None] * 4


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("claude-desktop", {"command": "/c", "args": ["serve", "--config", "/f"]}),
        (
            "claude-code",
            {"type": "stdio", "command": "/c", "args": ["serve", "--config", "/f"], "env": {}, "alwaysLoad": True},
        ),
        ("cursor", {"command": "/c", "args": ["serve", "--config", "/f"]}),
        ("vscode", {"type": "stdio", "command": "/c", "args": ["serve", "--config", "/f"]}),
        ("windsurf", {"command": "/c", "args": ["serve", "--config", "/f"]}),
    ],
)
def test_the_entry_has_the_form_of_the_client(client: ClientName, expected: dict[str, Any]) -> None:
    assert new_entry(client, Launch("/c", ("serve",)), "/f") == expected
    # Again, over itself.
    assert new_entry(client, Launch("/c", ("serve",)), "/f", expected) == expected


def test_other_keys_of_a_replaced_entry_are_kept() -> None:
    old = {
        "command": "/old",
        "args": ["-m", "codemode_mcp", "serve", "--read-only", "--config", "/old", "--log-level", "debug"],
        "env": {"TOKEN": "t"},
        "alwaysAllow": ["exec"],
        "disabled": True,
    }
    assert new_entry("cursor", Launch("/c", ("serve",)), "/f", old) == {
        "command": "/c",
        "args": ["serve", "--config", "/f", "--read-only", "--log-level", "debug"],
        "env": {"TOKEN": "t"},
        "alwaysAllow": ["exec"],
    }
    assert new_entry("cursor", Launch("/c", ("serve",)), "/f", {"args": ["serve", "--config=/old"]})["args"][3:] == []


def test_the_fallback_imports_nothing_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "anyio.py").write_text("raise SystemExit('imported from the working directory')\n", "utf-8")
    found = launch(Program("/x", sys.executable), "linux", lambda path: False, lambda name: None)
    command = [found.command, *(word for word in found.args if word != "serve"), "tools", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
