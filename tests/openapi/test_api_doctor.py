"""The checks of `doctor` for an entry with an OpenAPI document."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from loopback_api import DOCUMENT, operation

from codemode_mcp.cli.check import Check
from codemode_mcp.config import load_config
from codemode_mcp.extensions.setup.doctor.servers import check_api

BEARER = {"type": "bearer", "token": "secret-token"}
KEY = {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}
BAD = {"/bad": {"post": operation("bad", parameters=[], requestBody={"$ref": "https://elsewhere.example/body.json"})}}


def checks(folder: Path, entry: dict[str, Any], **document: Any) -> list[Check]:
    """Return the checks of an entry with this document."""
    (folder / "api.json").write_text(json.dumps({**DOCUMENT, **document}), "utf-8")
    path = folder / "config.json"
    path.write_text(json.dumps({"mcpServers": {"api": {"openapi": "api.json", **entry}}}), "utf-8")
    (spec,) = load_config(path, environ={}).upstreams
    return anyio.run(check_api, spec, "server api")


def test_skipped_operations_and_missing_logins_are_shown(tmp_path: Path) -> None:
    found = checks(
        tmp_path,
        {"baseUrl": "https://a.example"},
        paths={**DOCUMENT["paths"], **BAD},
        components={"securitySchemes": KEY},
    )
    address, skipped, login = found
    assert (address.status, address.detail) == ("ok", "3 operations; base address https://a.example (from baseUrl)")
    assert skipped.detail.startswith("1 of 4 operations skipped: POST /bad (")
    assert (login.status, login.advice) == ("warn", 'write "auth" in mcpServers.api if calls need it')
    assert login.detail.startswith("its document names logins, and the entry has none: API key in the header X-Key")


def test_operations_beyond_the_work_for_a_document_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upstream_clients.openapi.document.MAX_STEPS", 400)
    _, skipped = checks(tmp_path, {"auth": BEARER, "baseUrl": "https://a.example"})
    assert "the document is too large: the operations before it have used the work that it may take" in skipped.detail


def test_servers_of_single_operations_are_shown_and_those_that_need_the_setting_are_named(tmp_path: Path) -> None:
    upload = {"/upload": {"servers": [{"url": "http://upload.example/v2"}], "post": operation("upload")}}
    document = {"servers": [{"url": "https://a.example"}], "paths": {**DOCUMENT["paths"], **upload}}
    entry = {"auth": BEARER, "baseUrl": "https://a.example"}
    _, skipped = checks(tmp_path, entry, **document)
    assert 'if you trust it, add "http://upload.example" to "otherOrigins" of the entry' in skipped.detail
    address, warning = checks(tmp_path, {**entry, "otherOrigins": ["http://upload.example"]}, **document)
    assert address.detail.endswith("; servers of single operations: http://upload.example/v2")
    assert warning.detail == "credentials may be sent to http://upload.example without encryption"
    assert "otherOrigins" in warning.advice


def test_a_login_that_is_missing_is_shown_with_the_addresses_that_the_document_names(tmp_path: Path) -> None:
    flow = {"authorizationUrl": "https://l.example/auth", "tokenUrl": "https://l.example/token", "scopes": {}}
    scheme = {"type": "oauth2", "flows": {"implicit": {**flow, "tokenUrl": None}, "authorizationCode": flow}}
    _, login, addresses = checks(
        tmp_path, {"auth": "oauth", "baseUrl": "https://a.example"}, components={"securitySchemes": {"o": scheme}}
    )
    assert (login.status, login.advice) == ("fail", "run codemode-mcp login api")
    assert "OAuth 2, authorization at https://l.example/auth, token at https://l.example/token" in addresses.detail
    assert 'write "authorizationUrl" and "tokenUrl" in mcpServers.api.auth' in addresses.advice


@pytest.mark.parametrize(
    ("entry", "servers", "expected"),
    [
        ({"auth": BEARER}, "https://a.example", None),
        (
            {"auth": BEARER, "trust": "follow"},
            "https://a.example",
            'write "baseUrl": "https://a.example" in mcpServers.api',
        ),
        ({"headers": {"X-Api-Key": "k"}, "trust": "follow"}, "https://a.example", 'write "baseUrl"'),
        ({"headers": {"Accept-Language": "de"}, "trust": "follow"}, "https://a.example", None),
        ({"auth": BEARER, "baseUrl": "http://a.example"}, None, "write an address with https"),
        ({"auth": BEARER, "baseUrl": "http://127.0.0.1:1"}, None, None),
        ({"baseUrl": "http://a.example"}, None, None),
    ],
)
def test_credentials_that_are_not_sent_or_can_be_read_are_shown(
    tmp_path: Path, entry: dict[str, Any], servers: str | None, expected: str | None
) -> None:
    document = {} if servers is None else {"servers": [{"url": servers}]}
    _, *warnings = checks(tmp_path, entry, **document)
    assert [expected in each.advice for each in warnings] == ([] if expected is None else [True])


def test_an_address_of_this_machine_that_only_a_document_file_names_is_shown(tmp_path: Path) -> None:
    _, found = checks(tmp_path, {}, servers=[{"url": "http://127.0.0.1:8000/v1"}])
    assert (found.status, found.detail.partition(":")[0]) == ("fail", "no request is sent to http")
    assert found.advice == 'if you trust it, write "baseUrl": "http://127.0.0.1:8000/v1" in mcpServers.api'
    assert len(checks(tmp_path, {"baseUrl": "http://127.0.0.1:8000/v1"})) == 1


def test_a_document_that_cannot_be_read_is_shown_with_the_reason(tmp_path: Path) -> None:
    (found,) = checks(tmp_path, {}, openapi="9.9")
    assert found.status == "warn"
    assert "9.9" in found.detail
