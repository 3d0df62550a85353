"""Several clients of one application, and applications that share the processes of their servers."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.base.paths import cache_dir
from codemode_mcp.config import load_config
from codemode_mcp.process.app.app import open_app
from codemode_mcp.program.prepare import Cell
from codemode_mcp.rules.policy.policy import CLIENT, Caller
from codemode_mcp.server.services import App
from upstream_clients.pool import SharedServers

SERVER = Path(__file__).parents[1] / "upstream_clients" / "servers" / "counted_server.py"
PID = "return JSON.parse((await MCP.srv.pid({})).content[0].text)"
ROOTS = "return JSON.parse((await MCP.srv.roots({})).content[0].text)"


@pytest.fixture
def config(tmp_path: Path, engine_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function that writes a configuration with a server that counts its processes."""
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    shutil.copytree(engine_cache, cache_dir())  # compiling takes 3 s of processor time

    def write(*flags: str, name: str = "codemode-mcp.json", **entry: Any) -> Path:
        server = {"command": sys.executable, "args": [str(SERVER), str(tmp_path / "pids"), *flags], **entry}
        (tmp_path / name).write_text(json.dumps({"mcpServers": {"srv": server}}))
        return tmp_path / name

    return write


@asynccontextmanager
async def app_of(path: Path, servers: SharedServers | None = None, **more: str) -> AsyncIterator[App]:
    environ = {**os.environ, **more}
    async with open_app(load_config(path, environ=environ), environ=environ, servers=servers) as app:
        yield app


def caller_of(app: App, number: int) -> Caller:
    return Caller(app.operator.owner, "stdio", share=f"{CLIENT}{number}")


def roots_of(uri: str) -> Callable[[], Awaitable[dict[str, Any]]]:
    async def roots() -> dict[str, Any]:
        return {"roots": [{"uri": uri}]}

    return roots


async def value_of(app: App, number: int, program: str) -> Any:
    outcome = await (await app.manager()).execute(Cell(program, "javascript", caller_of(app, number)))
    assert outcome.status == "completed", outcome.error
    return outcome.value


async def test_each_client_of_an_application_reaches_a_process_with_its_roots(config: Callable[..., Path]) -> None:
    async with app_of(config("roots")) as app:
        for number, uri in enumerate(("file:///a", "file:///b", "file:///a")):
            app.offer_roots(caller_of(app, number).client, roots_of(uri))
        pids = [await value_of(app, number, PID) for number in range(3)]
        assert pids[0] == pids[2] != pids[1]
        seen = [await value_of(app, number, ROOTS) for number in range(3)]
        assert [each["roots"][0]["uri"] for each in seen] == ["file:///a", "file:///b", "file:///a"]
        app.offer_roots(caller_of(app, 2).client, roots_of("file:///b"))
        app.roots_changed(caller_of(app, 2).client)
        assert await value_of(app, 2, PID) == pids[1]
        app.forget_client(caller_of(app, 0).client)
        assert await value_of(app, 1, PID) == pids[1]


async def test_each_client_has_a_process_if_the_entry_says_so(config: Callable[..., Path]) -> None:
    async with app_of(config(share="client")) as app:
        for number in range(2):
            app.offer_roots(caller_of(app, number).client, None)
        assert len({await value_of(app, number, PID) for number in (0, 1, 0)}) == 2


async def test_applications_share_a_server_unless_their_variables_differ(config: Callable[..., Path]) -> None:
    path = config(env={"TOKEN": "${TOKEN}"})
    async with (
        SharedServers() as servers,
        app_of(path, servers, TOKEN="a") as one,
        app_of(path, servers, TOKEN="a") as two,
        app_of(path, servers, TOKEN="b") as other,
    ):
        assert await value_of(one, 1, PID) == await value_of(two, 2, PID) != await value_of(other, 3, PID)
        variable = 'return JSON.parse((await MCP.srv.variable({name: "TOKEN"})).content[0].text)'
        assert [await value_of(app, 1, variable) for app in (one, two, other)] == ["a", "a", "b"]
