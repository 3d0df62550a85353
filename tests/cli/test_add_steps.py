"""The steps of `codemode-mcp add` that end early: what is undone then, and what is never asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from codemode_mcp.cli import app
from codemode_mcp.cli.adding import keyring_entries, steps
from codemode_mcp.cli.adding.proposal import Proposal, Setting
from codemode_mcp.cli.adding.removal import login_spec
from codemode_mcp.cli.adding.target import find_target
from upstream_clients import keychain
from upstream_clients.token_store import LoginStore
from upstream_clients.tools import UpstreamView

if TYPE_CHECKING:
    from pathlib import Path

    from upstream_clients.spec import UpstreamSpec

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


def test_without_a_keyring_a_secret_is_refused_before_anything_starts(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[UpstreamSpec] = []
    monkeypatch.setattr(steps, "list_server", started.append)
    monkeypatch.setattr(keychain, "protects", lambda: False)
    proposal = Proposal("s", {"url": "https://a.example/mcp"}, "as you have typed it", (KEY,))
    with pytest.raises(typer.Exit):
        steps.add(proposal, find_target(str(tmp_path / "c.json")), {})
    said = " ".join(capsys.readouterr().err.split())
    assert "this system has no keyring for X-Key" in said
    assert "name it with --header 'X-Key=${VARIABLE}'" in said
    assert (asked, started) == ([], [])


def test_secrets_are_stored_under_free_names_and_all_or_none(entries: dict[str, str]) -> None:
    entries["s/X-Key"] = "of another configuration"
    assert keyring_entries.store("s", {KEY: "secret"}) == {KEY: {"keyring": "s/X-Key-2"}}
    with pytest.raises(keychain.NoKeychain):
        keyring_entries.store("t", {KEY: "secret", OTHER: "secret"})
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
