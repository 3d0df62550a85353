"""An API of which an earlier process has stored a held list, while its document is corrected by now."""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from loopback_api import DOCUMENT, LoopbackApi, loopback_api, operation, reply

from codemode_mcp.config import load_config
from codemode_mcp.process.app.app import open_app
from codemode_mcp.server.exposed_tools import CallerListings
from codemode_mcp.server.notifications import Announcer
from codemode_mcp.server.services import App
from upstream_clients.jsonrpc import JsonRpcError

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.name == "nt", reason="the user's state folder is not named by the environment"),
]

RIGHT = {"/kept/{case}": {"get": operation("kept")}, "/moved/{case}": {"get": operation("moved")}}
PARTLY_WRONG = {**RIGHT, "/moved/{case}": {"post": operation("moved")}}
WRONG = {**PARTLY_WRONG, "/kept/{case}": {"post": operation("kept")}}


@pytest.fixture
async def api() -> AsyncIterator[LoopbackApi]:
    async with loopback_api() as started:
        yield started


@pytest.fixture
def config(tmp_path: Path, api: LoopbackApi) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"mcpServers": {"api": {"openapi": api.url + "/openapi.json"}}}), "utf-8")
    return path


@asynccontextmanager
async def app_of(config: Path, api: LoopbackApi, paths: dict[str, Any]) -> AsyncIterator[App]:
    """Open an application while the API publishes a document with these paths."""
    api.script("/openapi.json", reply(body={**DOCUMENT, "paths": paths}))
    async with open_app(load_config(config, environ=os.environ), environ=os.environ) as app:
        yield app


def usable(app: App) -> list[str]:
    (view,) = app.trusted_views()
    return [tool.name for tool in view.tools]


async def named(app: App) -> None:
    await app.wait_settled(["api"], 20)


async def unnamed(app: App) -> None:
    await app.wait_settled(None, 20)


async def called_without_code_mode(app: App) -> None:
    with pytest.raises(JsonRpcError, match="api__moved is held: "):
        await CallerListings(app, Announcer(tuple, app.change), lambda _: True).find("api__moved", app.operator)


@pytest.mark.parametrize(
    ("earlier", "look", "is_read"),
    [
        (WRONG, named, True),
        (WRONG, unnamed, True),
        (PARTLY_WRONG, named, True),
        (PARTLY_WRONG, called_without_code_mode, True),
        (PARTLY_WRONG, unnamed, False),
    ],
    ids=["all held, named", "all held", "some held, named", "some held, called", "some held"],
)
async def test_a_look_at_held_operations_of_an_idle_api_has_its_document_read(
    api: LoopbackApi, config: Path, earlier: dict[str, Any], look: Callable[[App], Awaitable[None]], is_read: bool
) -> None:
    for paths, seen in ((RIGHT, ["kept", "moved"]), (earlier, ["kept"] if earlier is PARTLY_WRONG else [])):
        async with app_of(config, api, paths) as app:
            await app.connect(20)
            assert usable(app) == seen
    read = len(api.received)
    async with app_of(config, api, RIGHT) as app:
        pool = await app.pool()
        assert pool.views()[0].state == "idle"
        assert usable(app) == seen
        await look(app)
        if is_read:
            with anyio.fail_after(20):
                while usable(app) != ["kept", "moved"]:
                    await app.change().wait()
        else:
            await anyio.wait_all_tasks_blocked()
            assert pool.views()[0].state == "idle"
    assert len(api.received) - read == is_read
