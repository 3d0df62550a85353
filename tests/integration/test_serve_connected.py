"""`codemode-mcp clients` and `doctor` against serving processes: connected clients and their profiles."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import Implementation
from typer.testing import CliRunner, Result

from codemode_mcp.cli import app
from tests.integration.harness import serve, until, write_config
from tests.integration.http_harness import ALICE, TWO_TOKENS, serve_http, write_http_config

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no such folder for sockets on Windows"),
]


@pytest.fixture
def runtime() -> Iterator[dict[str, str]]:
    """Yield an environment whose folder for sockets belongs to one test."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield {"XDG_RUNTIME_DIR": folder}


async def command(runtime: dict[str, str], *arguments: str) -> str:
    """Run a command in this process and return what it prints."""

    def run() -> Result:
        return CliRunner().invoke(app, arguments, prog_name="codemode-mcp", env=runtime)

    done = await anyio.to_thread.run_sync(run)
    assert done.exit_code == 0, done.output
    assert "Traceback" not in done.stderr
    return done.stdout


async def opened(runtime: dict[str, str]) -> None:
    """Return once the server has its socket: it answers clients before that."""
    await until(lambda: any(Path(runtime["XDG_RUNTIME_DIR"]).rglob("*.sock")))


async def listed(runtime: dict[str, str], config: Path) -> list[dict[str, Any]]:
    """Return the clients of the only process that serves a configuration."""
    await opened(runtime)
    (server,) = json.loads(await command(runtime, "clients", "--json", "--config", str(config)))["servers"]
    found: list[dict[str, Any]] = server["clients"]
    return found


@pytest.mark.parametrize(("mode", "protocol"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_a_client_over_stdio_is_listed_with_its_profile(
    tmp_path: Path, runtime: dict[str, str], mode: str, protocol: str
) -> None:
    config = write_config(tmp_path, {})
    info = Implementation(name="claude-code", version="2.1.330")
    async with serve(config, mode=mode, env=runtime, client_info=info) as session:
        await session.client.list_tools()
        await session.client.call_tool("exec", {"code": "return 1"})
        (client,) = await listed(runtime, config)
        assert (client["name"], client["version"], client["protocol"]) == ("claude-code", "2.1.330", protocol)
        assert client["requests"] >= 2
        assert client["profile"]["showsStructured"] is True
        assert client["overrides"] == []
        text = await command(runtime, "clients")
        assert f"claude-code 2.1.330: MCP {protocol}, stdio, process " in text
        assert "profile claude-code: shows structured content instead of text" in text


async def test_clients_over_http_are_listed_apart_and_an_override_is_named(
    tmp_path: Path, runtime: dict[str, str]
) -> None:
    config = write_http_config(tmp_path, **TWO_TOKENS)
    document = json.loads(config.read_text("utf-8"))
    document["clients"] = {"my-*": {"showsStructured": True, "maxOutputBytes": 5000}}
    config.write_text(json.dumps(document), "utf-8")
    async with serve_http(config, env=runtime) as served:
        for name, mode in (("my-client", "legacy"), ("other", "auto")):
            headers = {"authorization": f"Bearer {ALICE}"}
            async with (
                httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30)) as http,
                Client(
                    streamable_http_client(served.url, http_client=http),
                    mode=mode,
                    client_info=Implementation(name=name, version="1"),
                ) as client,
            ):
                await client.call_tool("exec", {"code": "return 1"})
        clients = {each["name"]: each for each in await listed(runtime, config)}
        assert clients["my-client"]["overrides"] == ["showsStructured", "maxOutputBytes"]
        assert clients["my-client"]["profile"]["maxOutputBytes"] == 5000
        assert clients["other"]["profile"]["client"] == "*"
        text = await command(runtime, "clients", "--config", str(config))
        assert "changed by the configuration: showsStructured, maxOutputBytes" in text
        assert "profile *: plain default" in text
        assert ALICE not in text
        assert "my-client" not in await command(runtime, "clients", "--config", str(tmp_path / "another.json"))


async def test_doctor_has_a_line_for_each_connected_client(tmp_path: Path, runtime: dict[str, str]) -> None:
    config = write_config(tmp_path, {})
    info = Implementation(name="mcp-use\x1b[2J", version="1.7")
    async with serve(config, env=runtime, client_info=info) as session:
        await session.exec("return 1")
        await opened(runtime)
        told = json.loads(await command(runtime, "doctor", "--config", str(config), "--json"))
        (check,) = [each for each in told if each["name"].startswith("client mcp-use")]
        assert check["name"] == "client mcp-use\\x1b[2J"
        assert check["status"] == "ok"
        assert "profile *: plain default" in check["detail"]


async def test_without_a_serving_process_the_known_profiles_are_listed(runtime: dict[str, str]) -> None:
    text = await command(runtime, "clients")
    assert "none; a client is listed after its first request" in text
    assert "codex-mcp-client: shows structured content instead of text" in text
    assert "Codex 0.169" in text
