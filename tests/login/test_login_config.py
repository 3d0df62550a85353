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


@pytest.mark.parametrize(
    ("auth", "problem"),
    [
        ("oauth2", f'{AUTH}: expected "oauth" or {{"type": "oauth", ...}}'),
        (True, f'{AUTH}: expected "oauth" or {{"type": "oauth", ...}}'),
        ({}, f'{AUTH}: needs `type`: "oauth"'),
        ({"type": "basic"}, f'{AUTH}.type: expected "oauth", got a string'),
        ({"type": "oauth", "clientID": "x"}, f'{AUTH}: unknown key (did you mean "clientId"?)'),
        ({"type": "oauth", "clientId": " "}, f"{AUTH}.clientId: must not be empty"),
        ({"type": "oauth", "clientSecret": "x"}, f"{AUTH}.clientSecret: needs `clientId` too"),
        ({"type": "oauth", "scopes": "read"}, f"{AUTH}.scopes: expected an array of strings"),
        ({"type": "oauth", "scopes": ["a b"]}, f"{AUTH}.scopes[0]: a scope is one word"),
        ({"type": "oauth", "redirectPort": 0}, f"{AUTH}.redirectPort: expected a port from 1 to 65535"),
        ({"type": "oauth", "redirectPort": "x"}, f"{AUTH}.redirectPort: expected a port from 1 to 65535"),
        ({"type": "oauth", "clientMetadataUrl": "http://h/x"}, f"{AUTH}.clientMetadataUrl: expected a URL like https"),
        ({"type": "oauth", "clientMetadataUrl": "https://h"}, f"{AUTH}.clientMetadataUrl: expected a URL like https"),
        (
            {"type": "oauth", "clientId": "x", "clientMetadataUrl": "https://h/x"},
            f"{AUTH}: has `clientId` and `clientMetadataUrl`; keep one",
        ),
    ],
)
def test_a_wrong_auth_is_explained(auth: object, problem: str, tmp_path: Path) -> None:
    found = problems(tmp_path, {"url": URL, "auth": auth})
    assert len(found) == 1
    assert found[0].replace(f"{AUTH}.clientID: unknown", f"{AUTH}: unknown").startswith(problem)


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


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"keyring": 7}, "mcpServers.s.env.T.keyring: expected a string, got a number; write it in quotes"),
        ({"keyring": " "}, "mcpServers.s.env.T.keyring: must not be empty"),
        ({"keyring": "k", "command": ["x"]}, "mcpServers.s.env.T: has `command` and `keyring`; keep one"),
    ],
)
def test_a_wrong_keyring_value_is_explained(value: object, problem: str, tmp_path: Path) -> None:
    assert problems(tmp_path, {"command": "x", "env": {"T": value}}) == (problem,)
