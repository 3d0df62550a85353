"""`auth` of an entry, and values from the system keyring."""

import json
import time
from pathlib import Path
from typing import Any

import keyring
import pytest
from keyring.backends import null
from test_token_store import LockedKeyring, MemoryKeyring

from codemode_mcp.base.errors import ConfigError
from codemode_mcp.config import load_config, secret_values
from upstream_clients.spec import OAuthSettings, UpstreamSpec

URL = "https://mcp.example/mcp"
AUTH = "mcpServers.s.auth"


def load(folder: Path, entry: dict[str, Any], **environ: str) -> UpstreamSpec:
    path = folder / "config.json"
    path.write_text(json.dumps({"mcpServers": {"s": entry}}), "utf-8")
    (spec,) = load_config(path, environ=environ).upstreams
    return spec


def problems(folder: Path, entry: dict[str, Any], **environ: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refused:
        load(folder, entry, **environ)
    return tuple(refused.value.problems)


def missing(folder: Path, entry: dict[str, Any]) -> str:
    """Return the reason why a server is disabled whose value cannot be found."""
    spec = load(folder, entry)
    assert spec.unusable is not None
    return spec.unusable.removeprefix("server 's' is disabled: ")


@pytest.mark.parametrize(
    ("auth", "settings"),
    [
        (None, None),
        ("oauth", OAuthSettings()),
        ({"type": "oauth"}, OAuthSettings()),
        (
            {"type": "oauth", "clientId": "me", "clientSecret": "${S}", "scopes": ["a", "b:c"], "redirectPort": 8765},
            OAuthSettings(client_id="me", client_secret="of-mine", scopes=("a", "b:c"), redirect_port=8765),
        ),
        (
            {"type": "oauth", "clientMetadataUrl": "https://me.example/client.json"},
            OAuthSettings(client_metadata_url="https://me.example/client.json"),
        ),
    ],
)
def test_auth_is_read(auth: object, settings: OAuthSettings | None, tmp_path: Path) -> None:
    spec = load(tmp_path, {"url": URL, "auth": auth}, S="of-mine")
    assert spec.oauth == settings
    assert "of-mine" not in f"{spec!r} {spec.oauth!r}"


@pytest.mark.parametrize("value", ["Bearer x", {"command": ["x"]}])
def test_auth_contradicts_an_authorization_header(value: object, tmp_path: Path) -> None:
    found = problems(tmp_path, {"url": URL, "auth": "oauth", "headers": {"authorization": value}})
    assert found == (f"{AUTH}: contradicts the Authorization header in `headers`; keep one of them",)


def test_only_a_remote_server_has_auth(tmp_path: Path) -> None:
    assert problems(tmp_path, {"command": "x", "auth": "oauth"}) == (f"{AUTH}: `auth` is only for a server with `url`",)


def test_values_come_from_the_keyring(tmp_path: Path) -> None:
    ring = MemoryKeyring()
    ring.set_password("codemode-mcp", "token", "of-the-keyring")
    keyring.set_keyring(ring)
    value = {"keyring": "token"}
    local = load(tmp_path, {"command": "x", "env": {"TOKEN": value, "OTHER": value}})
    assert local.env == {"TOKEN": "of-the-keyring", "OTHER": "of-the-keyring"}
    remote = load(tmp_path, {"url": URL, "headers": {"X-Key": value}})
    assert remote.headers == {"X-Key": "of-the-keyring"}
    assert remote.redact("the key of-the-keyring") == "the key ***"
    login = load(tmp_path, {"url": URL, "auth": {"type": "oauth", "clientId": "me", "clientSecret": value}})
    assert login.oauth == OAuthSettings(client_id="me", client_secret="of-the-keyring")
    assert login.redact("of-the-keyring") == "***"


def test_a_missing_keyring_entry_is_explained_without_its_name(tmp_path: Path) -> None:
    keyring.set_keyring(MemoryKeyring())
    problem = missing(tmp_path, {"command": "x", "env": {"TOKEN": {"keyring": "hidden-name"}}})
    assert problem == (
        "the system keyring has no such entry for codemode-mcp (mcpServers.s.env.TOKEN); "
        "add the entry with: keyring set codemode-mcp NAME"
    )


def test_a_login_cannot_be_read_as_a_value(tmp_path: Path) -> None:
    ring = MemoryKeyring()
    ring.set_password("codemode-mcp login", "key", "tokens")
    keyring.set_keyring(ring)
    problem = missing(tmp_path, {"command": "x", "env": {"TOKEN": {"keyring": "key"}}})
    assert "has no such entry" in problem


@pytest.mark.parametrize(
    ("ring", "reason"),
    [
        (null.Keyring(), "this system has no keyring that can be used"),
        (LockedKeyring(), "the system keyring refused (RuntimeError)"),
    ],
    ids=["none", "locked"],
)
def test_without_a_usable_keyring_there_is_advice(ring: Any, reason: str, tmp_path: Path) -> None:
    keyring.set_keyring(ring)
    problem = missing(tmp_path, {"command": "x", "env": {"TOKEN": {"keyring": "k"}}})
    assert problem == f'{reason} (mcpServers.s.env.TOKEN); use a variable, "${{NAME}}", or {{"command": [...]}}'


def test_a_keyring_that_waits_for_a_person_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Waiting(MemoryKeyring):
        def get_password(self, service: str, username: str) -> str | None:
            time.sleep(1)
            return None

    keyring.set_keyring(Waiting())
    monkeypatch.setattr(secret_values, "KEYRING_SECONDS", 0.05)
    problem = missing(tmp_path, {"command": "x", "env": {"TOKEN": {"keyring": "k"}}})
    assert problem == "the system keyring did not answer within 0.05 s (mcpServers.s.env.TOKEN); unlock it"
