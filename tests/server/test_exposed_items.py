"""Reads of resources of one server while another server is hostile."""

from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from codemode_mcp.base.settings import ToolSettings
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.server import exposed_items
from codemode_mcp.server.exposed_items import ExposedItems
from codemode_mcp.server.notifications import Announcer
from codemode_mcp.server.profiles import ClientExposure
from upstream_clients.jsonrpc import JsonRpcError
from upstream_clients.testing import ScriptedSource

pytestmark = pytest.mark.anyio


class Silent(ScriptedSource):
    """A server that never answers when it is asked for its resources."""

    asked = 0

    async def list_resources(self) -> Any:
        self.asked += 1
        await anyio.sleep_forever()


class Servers:
    """A server with one resource and a silent one, as `services.App`."""

    def __init__(self) -> None:
        self.notes = ScriptedSource("notes", {}, resources=True)
        self.notes.change(resource_list=({"uri": "note:a", "name": "a"},))
        self.silent = Silent("silent", {}, resources=True)
        self._settings = ToolSettings()
        exposures = ClientExposure(self.settings)
        announcer = Announcer(lambda: None, anyio.Event)
        self.items = ExposedItems(cast("Any", self), cast("Any", None), exposures, announcer)

    def settings(self) -> ToolSettings:
        return self._settings

    async def dispatcher(self) -> None:
        """Return, since everything is open."""

    def trusted_views(self) -> list[Any]:
        return [self.notes.view(), self.silent.view()]

    def accepted_since(self, server: str) -> None:
        """Return None: there are no pins."""

    async def item_source(self, server: str, caller: Caller) -> Any:
        return {"notes": self.notes, "silent": self.silent}[server]

    async def locate(self, uri: str) -> str:
        session = SimpleNamespace(client_name=None, modern=True)
        exchange = SimpleNamespace(caller=Caller("me"), session=session, path_mode=None)
        return (await self.items.located_resource(cast("Any", exchange), uri)).server


async def test_a_server_that_does_not_list_its_resources_delays_one_read_from_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exposed_items, "LIST_SECONDS", 0.01)
    servers = Servers()
    for _ in range(3):
        assert await servers.locate("note:a") == "notes"
    with pytest.raises(JsonRpcError, match="not found"):
        await servers.locate("note:b")
    assert servers.silent.asked == 1
    monkeypatch.setattr(exposed_items, "SILENT_SECONDS", 0.0)
    assert await servers.locate("note:a") == "notes"
    assert servers.silent.asked == 2
