"""Logins to an HTTP API: at endpoints that the configuration names, and at those that the API publishes."""

import json
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
from protected import log_in_with, protected

from codemode_mcp.cli.browser_login import NoLoginPossible, find_server
from codemode_mcp.config import load_config
from tests.ports import reserved_port
from upstream_clients.errors import LoginError
from upstream_clients.openapi.client import credentials_of
from upstream_clients.spec import OAuthSettings, UpstreamSpec

pytestmark = pytest.mark.anyio


async def authorization(spec: UpstreamSpec) -> str:
    """Return the header that a request to the API gets."""
    credentials = credentials_of(spec)
    assert credentials is not None
    request = httpx2.Request("GET", "http://127.0.0.1/")
    await credentials.apply(request)
    return str(request.headers["Authorization"])


async def test_a_login_uses_the_endpoints_of_the_configuration_and_no_others() -> None:
    port = reserved_port()
    async with protected() as server, httpx2.AsyncClient() as client:
        registration = {
            "redirect_uris": [f"http://127.0.0.1:{port}/callback"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            # The first attempt, with the secret in a header, is refused.
            "token_endpoint_auth_method": "client_secret_post",
        }
        registered = (await client.post(f"{server.origin}/register", json=registration)).json()
        oauth = OAuthSettings(
            client_id=registered["client_id"],
            client_secret=registered["client_secret"],
            redirect_port=port,
            authorization_url=f"{server.origin}/authorize",
            token_url=f"{server.origin}/token",
        )
        spec = UpstreamSpec(name="srv", transport="openapi", document="/missing.json", oauth=oauth)
        with pytest.raises(LoginError, match="server 'srv' needs a login: run codemode-mcp login srv"):
            await authorization(spec)
        await log_in_with(spec)
        scheme, token = (await authorization(spec)).split()
        assert scheme == "Bearer"
        assert spec.redact(token) == "***"
        assert await server.seen("mcp") == [], "an API does not understand the messages of MCP"

        refused = httpx2.Request("GET", "http://127.0.0.1/", headers={"Authorization": f"Bearer {token}"})
        credentials = credentials_of(spec)
        assert credentials is not None
        assert await credentials.renew(refused)
        assert await authorization(spec) != f"Bearer {token}"


async def test_a_login_is_discovered_at_the_address_of_the_api() -> None:
    async with protected() as server:
        spec = UpstreamSpec(
            name="srv", transport="openapi", document="/missing.json", url=f"{server.origin}/mcp", oauth=OAuthSettings()
        )
        await log_in_with(spec)
        assert (await authorization(spec)).startswith("Bearer ")
    async with protected("--metadata", "none") as server:
        spec = UpstreamSpec(
            name="srv", transport="openapi", document=f"{server.origin}/openapi.json", oauth=OAuthSettings()
        )
        with pytest.raises(LoginError, match="write the addresses of its authorization server"):
            await log_in_with(spec)


def test_an_api_is_served_without_the_steps_of_a_login() -> None:
    code = (
        "import sys, upstream_clients.openapi.transport, upstream_clients.openapi.client\n"
        "print(sorted({'mcp', 'pydantic', 'keyring'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.strip() == "[]", "these take longer to import than all the rest"


def test_an_api_without_a_login_says_what_to_write(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    entries = {
        "open": {"openapi": "a.json", "auth": {"type": "bearer", "token": "t"}},
        "lost": {"openapi": "a.json", "auth": "oauth"},
    }
    path.write_text(json.dumps({"mcpServers": entries}), "utf-8")
    config = load_config(path, environ={})
    with pytest.raises(NoLoginPossible, match='is an API without a login; write "auth": "oauth" in its entry'):
        find_server(config, "open")
    with pytest.raises(NoLoginPossible, match='has no address for a login; write "baseUrl"'):
        find_server(config, "lost")
