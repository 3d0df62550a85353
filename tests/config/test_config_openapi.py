"""Entries of HTTP APIs: `openapi`, `baseUrl`, and the kinds of `auth`."""

import json
import os
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from codemode_mcp.config import load_config
from codemode_mcp.config.confirmation import described_parts
from codemode_mcp.config.literals import written_entry
from codemode_mcp.config.reload import differences
from scripts.reference import SCHEMA
from upstream_clients.spec import ApiKey, BasicLogin, BearerToken, ClientCredentials, OAuthSettings, UpstreamSpec

DOCUMENT = "https://api.example/openapi.json"
TOKEN_URL = "https://login.example/token"


def load(folder: Path, entry: dict[str, Any], **environ: str) -> UpstreamSpec:
    path = folder / "config.json"
    path.write_text(json.dumps({"mcpServers": {"pets": entry}}), "utf-8")
    (spec,) = load_config(path, environ=environ).upstreams
    return spec


def test_the_time_after_which_a_document_is_read_again_has_bounds_and_is_for_urls(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for document, written, used, note in (
        (DOCUMENT, 30, 30, None),
        (DOCUMENT, 0, 1, "0 is outside 1 - 86400; 1 is used"),
        (DOCUMENT, 10**6, 86_400, "1000000 is outside 1 - 86400; 86400 is used"),
        ("pets.yaml", 30, 30, "has no effect, because the document is a file, which is read when it changes"),
    ):
        path.write_text(json.dumps({"mcpServers": {"pets": {"openapi": document, "refreshSeconds": written}}}))
        config = load_config(path, environ={})
        assert config.upstreams[0].refresh_seconds == used
        expected = [] if note is None else [f"mcpServers.pets.refreshSeconds: {note}"]
        assert [each for each in config.notes if "refreshSeconds" in each] == expected


def test_a_document_is_a_file_beside_the_configuration_or_a_url(tmp_path: Path) -> None:
    (tmp_path / "pets.yaml").write_text("openapi: 3.1.0")
    entry = {"openapi": "pets.yaml", "baseUrl": "http://127.0.0.1:8000/v1", "timeoutMs": 5, "maxConcurrentCalls": 2}
    local = load(tmp_path, entry)
    assert (local.transport, local.document, local.url) == ("openapi", str(tmp_path / "pets.yaml"), entry["baseUrl"])
    assert (local.timeout_ms, local.max_concurrent_calls, local.may_log_in) == (5, 2, False)
    assert load(tmp_path, entry) == local
    before = load_config(tmp_path / "config.json", environ={})
    os.utime(tmp_path / "pets.yaml", (1, 1))
    changed = load(tmp_path, entry)
    after = load_config(tmp_path / "config.json", environ={})
    assert differences(before, after) == ["another document of 'pets'"]
    assert changed.document_version != local.document_version, "a changed document is read again"
    assert changed == local, "it does not restart the server"
    assert tmp_path / "pets.yaml" in load_config(tmp_path / "config.json", environ={}).files

    origins = load(tmp_path, {**entry, "otherOrigins": ["https://${HOST}/", "http://[::1]:8000"]}, HOST="b.example")
    assert origins.other_origins == ("https://b.example", "http://[::1]:8000")

    remote = load(
        tmp_path, {"openapi": "https://${HOST}/openapi.json?key=k1234567", "type": "openapi"}, HOST="a.example"
    )
    assert (remote.document, remote.url) == ("https://a.example/openapi.json?key=k1234567", None)
    assert remote.address == "https://a.example/openapi.json", "a host is no secret, and the query is not shown"
    assert "k1234567" in remote.secret_values
    assert remote.refresh_seconds == 3600
    missing = load(tmp_path, {"openapi": "missing.json"})
    assert (missing.document, missing.document_version) == (str(tmp_path / "missing.json"), None)


@pytest.mark.parametrize(
    ("auth", "expected"),
    [
        ({"type": "bearer", "token": "${SECRET}"}, BearerToken("s3cret-value")),
        ({"type": "basic", "username": "ann", "password": "${SECRET}"}, BasicLogin("ann", "s3cret-value")),
        (
            {"type": "apiKey", "in": "query", "name": "key", "value": "${SECRET}"},
            ApiKey("query", "key", "s3cret-value"),
        ),
        (
            {"type": "clientCredentials", "tokenUrl": TOKEN_URL, "clientId": "c", "clientSecret": "${SECRET}"},
            ClientCredentials(TOKEN_URL, "c", "s3cret-value"),
        ),
    ],
)
def test_credentials_are_read_from_variables_and_programs_and_are_hidden(
    tmp_path: Path, auth: dict[str, Any], expected: object
) -> None:
    spec = load(tmp_path, {"openapi": DOCUMENT, "auth": auth}, SECRET="s3cret-value")
    assert spec.credentials == expected
    assert spec.redact("got s3cret-value") == "got ***"
    assert "s3cret" not in repr(spec) + repr(spec.credentials)

    program = {"command": ["printf", "s3cret-value"]}
    by_program = {key: program if value == "${SECRET}" else value for key, value in auth.items()}
    spec = load(tmp_path, {"openapi": DOCUMENT, "auth": by_program}, PATH=os.environ["PATH"])
    assert spec.credentials == expected
    assert spec.redact("got s3cret-value") == "got ***"


def test_a_basic_login_is_hidden_as_it_is_sent_and_a_key_as_the_user_name_too() -> None:
    header = BasicLogin("sk_live_123", "").header
    spec = UpstreamSpec(name="s", transport="openapi", document=DOCUMENT, credentials=BasicLogin("sk_live_123", ""))
    assert spec.redact(f"{header} sk_live_123") == "Basic *** ***"


def test_a_login_of_an_api_may_name_its_endpoints(tmp_path: Path) -> None:
    auth = {"type": "oauth", "authorizationUrl": "https://l.example/auth", "tokenUrl": TOKEN_URL, "clientId": "c"}
    spec = load(tmp_path, {"openapi": DOCUMENT, "auth": auth})
    assert spec.oauth == OAuthSettings("c", authorization_url="https://l.example/auth", token_url=TOKEN_URL)
    assert spec.may_log_in
    assert load(tmp_path, {"openapi": DOCUMENT, "auth": "oauth"}).oauth == OAuthSettings()


def test_a_person_who_confirms_a_file_sees_its_documents_and_addresses() -> None:
    auth = {"type": "oauth", "clientId": "c", "authorizationUrl": "https://l.example/a", "tokenUrl": TOKEN_URL}
    entry = {
        "openapi": "pets.yaml",
        "baseUrl": "https://a.example",
        "auth": auth,
        "otherOrigins": ["https://b.example"],
    }
    assert described_parts({"mcpServers": {"pets": entry}}) == [
        "server pets: pets.yaml",
        "  baseUrl: https://a.example",
        "  otherOrigins: https://b.example",
        "  authorizationUrl: https://l.example/a",
        f"  tokenUrl: {TOKEN_URL}",
    ]


def test_pins_compare_the_document_and_the_address_without_secrets() -> None:
    entry = {
        "openapi": "https://u:pw@a.example/o.json?key=k1",
        "baseUrl": "https://a.example/v1",
        "auth": {"token": "x"},
    }
    assert written_entry(entry) == {"openapi": "https://***@a.example/o.json?key=***", "baseUrl": entry["baseUrl"]}
    assert written_entry({"openapi": "docs/pets#1.yaml"}) == {"openapi": "docs/pets#1.yaml"}


@pytest.mark.parametrize(
    ("auth", "is_valid"),
    [
        ("oauth", True),
        ({"type": "bearer", "token": {"keyring": "pets"}}, True),
        ({"type": "apiKey", "in": "query", "name": "k", "value": "v"}, True),
        ({"type": "bearer", "tokn": "t"}, False),
        ({"type": "apiKey", "in": "body", "name": "k", "value": "v"}, False),
    ],
)
def test_an_editor_knows_the_kinds_of_auth(auth: object, is_valid: bool) -> None:
    entry = {"openapi": DOCUMENT, "auth": auth}
    assert jsonschema_rs.is_valid(json.loads(SCHEMA.read_text("utf-8")), {"mcpServers": {"pets": entry}}) == is_valid
