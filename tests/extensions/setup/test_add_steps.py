"""The steps of `codemode-mcp add` that end early: what is undone then, and what is never asked."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from codemode_mcp.cli import app
from codemode_mcp.config import load_config, secret_values
from codemode_mcp.extensions.setup.adding import server_parts, steps
from codemode_mcp.extensions.setup.adding.proposal import Proposal, Setting
from codemode_mcp.extensions.setup.adding.server_parts import find_target, login_spec
from upstream_clients import keychain
from upstream_clients.token_store import LoginStore
from upstream_clients.tools import UpstreamView

KEY = Setting("headers", "X-Key", secret=True)
OTHER = Setting("headers", "X-Other", secret=True)


class Declined(Exception):
    """A person who types something else than the code."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the questions of `confirm`. The person declines the last one, to add the server."""
    found: list[str] = []

    def confirm(verb: str, what: str) -> None:
        found.append(verb)
        if verb == "add":
            raise Declined

    monkeypatch.setattr(steps, "confirm", confirm)
    return found


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the entries of a keyring that refuses `X-Other`."""
    found: dict[str, str] = {}

    def write(_: str, name: str, value: str) -> None:
        if name.endswith("X-Other"):
            raise keychain.NoKeychain("it is locked")
        found[name] = value

    monkeypatch.setattr(keychain, "protects", lambda: True)
    monkeypatch.setattr(keychain, "write", write)
    monkeypatch.setattr(keychain, "read", lambda _, name: found.get(name))
    monkeypatch.setattr(keychain, "remove", lambda _, name: found.pop(name, None))
    return found


def test_a_login_for_a_server_that_is_not_added_is_deleted(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[str] = []
    views = iter((UpstreamView("s", "down", login_required=True), UpstreamView("s", "ready", logged_in=True)))
    monkeypatch.setattr(steps, "list_server", lambda _: next(views))
    monkeypatch.setattr(steps, "_logs_in", lambda _: True)
    monkeypatch.setattr(steps, "_log_out", lambda spec: deleted.append(spec.name))
    target = find_target(str(tmp_path / "c.json"))
    with pytest.raises(Declined):
        steps.add(Proposal("s", {"url": "https://a.example/mcp"}, "as you have typed it"), target, {})
    assert (asked, deleted) == (["connect", "add"], ["s"])
    assert not target.path.exists()


AUTH = {"type": "apiKey", "in": "header", "name": "X-Key"}


@pytest.mark.parametrize(
    ("entry", "setting", "option"),
    [
        ({"url": "https://a.example/mcp"}, KEY, "--header 'X-Key=${VARIABLE}'"),
        ({"command": "true"}, Setting("env", "KEY", secret=True), "--env 'KEY=${VARIABLE}'"),
        (
            {"openapi": "https://a.example/openapi.json", "auth": AUTH},
            Setting("auth", "value", secret=True, description="the API key in the header X-Key"),
            "--auth 'apiKey:header:X-Key=${VARIABLE}'",
        ),
        (
            {"openapi": "https://a.example/openapi.json", "auth": {"type": "basic", "username": "alice"}},
            Setting("auth", "password", secret=True, description="the password"),
            "--auth 'basic=${USER}:${PASSWORD}'",
        ),
    ],
)
def test_without_a_keyring_a_person_reads_about_the_file_before_anything_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    entry: dict[str, Any],
    setting: Setting,
    option: str,
) -> None:
    def confirm(verb: str, what: str) -> None:
        raise Declined

    monkeypatch.setattr(steps, "confirm", confirm)
    monkeypatch.setattr(keychain, "protects", lambda: False)
    proposal = Proposal("s", entry, "as you have typed it", (setting,))
    with pytest.raises(Declined):
        steps.add(proposal, find_target(str(tmp_path / "c.json")), {})
    said = " ".join(capsys.readouterr().err.split())
    assert f"this system has no keyring, so {setting.title} is stored in " in said
    assert "in a file that only you can read, and not encrypted; to store nothing, set a variable" in said
    assert option in said


@pytest.fixture
def headless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for secrets of a user without a keyring."""

    def refuse(*_: str) -> str:
        raise keychain.NoKeychain("this system has no keyring that can be used")

    for name in ("read", "write", "remove"):
        monkeypatch.setattr(keychain, name, refuse)
    monkeypatch.setattr(keychain, "protects", lambda: False)
    monkeypatch.setattr(secret_values, "data_dir", lambda: tmp_path / "data")
    return tmp_path / "data" / "secrets"


def test_without_a_keyring_a_secret_is_in_a_private_file_until_it_is_removed(tmp_path: Path, headless: Path) -> None:
    first = server_parts.store("s", {KEY: "secret"})
    second = server_parts.store("s", {KEY: "of another configuration"})
    assert (first, second) == ({KEY: {"keyring": "s/X-Key"}}, {KEY: {"keyring": "s/X-Key-2"}})
    assert {oct(each.stat().st_mode & 0o777) for each in headless.iterdir()} == {"0o600"}
    assert headless.stat().st_mode & 0o777 == 0o700
    config = tmp_path / "c.json"
    config.write_text(
        json.dumps({"mcpServers": {"s": {"url": "https://a.example/mcp", "headers": {"X-Key": first[KEY]}}}})
    )
    assert load_config(config, environ={}).upstreams[0].headers == {"X-Key": "secret"}
    assert server_parts.forget_secrets(["s/X-Key", "never/stored"]) == ["never/stored"]
    assert len([*headless.iterdir()]) == 1
    assert "this system has no keyring" in (load_config(config, environ={}).upstreams[0].unusable or "")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes of files")
def test_a_file_with_a_secret_that_others_can_read_disables_its_server(tmp_path: Path, headless: Path) -> None:
    reference = server_parts.store("s", {KEY: "secret"})[KEY]
    (file,) = headless.iterdir()
    file.chmod(0o640)
    config = tmp_path / "c.json"
    config.write_text(
        json.dumps({"mcpServers": {"s": {"url": "https://a.example/mcp", "headers": {"X-Key": reference}}}})
    )
    found = load_config(config, environ={}).upstreams[0].unusable or ""
    assert f"{file} can be read by other users, so it is not used" in found
    assert "run chmod 600 on it" in found
    headless.chmod(0o777)
    with pytest.raises(keychain.NoKeychain, match="can be written by others"):
        server_parts.store("t", {KEY: "secret"})
    assert [*headless.iterdir()] == [file]


@pytest.mark.usefixtures("headless")
def test_a_keyring_that_is_set_up_later_changes_no_secret(entries: dict[str, str]) -> None:
    secret_values.write("s/X-Key", "in a file")
    assert server_parts.store("s", {KEY: "in the keyring"}) == {KEY: {"keyring": "s/X-Key-2"}}
    assert entries == {"s/X-Key-2": "in the keyring"}
    assert server_parts.forget_secrets(["s/X-Key", "s/X-Key-2"]) == []
    assert (secret_values.read("s/X-Key"), entries) == (None, {})


def test_secrets_are_stored_under_free_names_and_all_or_none(entries: dict[str, str]) -> None:
    entries["s/X-Key"] = "of another configuration"
    assert server_parts.store("s", {KEY: "secret"}) == {KEY: {"keyring": "s/X-Key-2"}}
    with pytest.raises(keychain.NoKeychain):
        server_parts.store("t", {KEY: "secret", OTHER: "secret"})
    assert entries == {"s/X-Key": "of another configuration", "s/X-Key-2": "secret"}


def test_the_login_of_an_api_without_a_base_address_is_found_for_its_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoginStore, "stamp", lambda _: (1, 2))
    entry = {"openapi": "https://api.example/openapi.json", "auth": "oauth"}
    assert login_spec("api", entry, tmp_path) is not None
    assert login_spec("local", {"command": "server"}, tmp_path) is None


def test_a_dry_run_of_a_change_says_that_nothing_was_written(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"mcpServers": {"s": {"command": "true"}, "off": {"command": "true", "disabled": true}}}')
    text = path.read_text()
    for command, name in (("disable", "s"), ("enable", "off"), ("remove", "s")):
        done = CliRunner().invoke(app, [command, name, "--dry-run", "--config", str(path)])
        assert (done.exit_code, path.read_text()) == (0, text)
        assert "nothing was written, because of --dry-run" in done.stderr
