"""The tools with apps of several callers, and the announcements of their changes."""

from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from codemode_mcp.base.settings import PolicyContext, PolicyRules, ToolSettings
from codemode_mcp.catalog.per_caller import Catalogs
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.server.exposed_apps import ExposedApps
from codemode_mcp.server.exposure.selection import Exposure
from codemode_mcp.server.notifications import Announcer
from upstream_clients.jsonrpc import APP_MIME_TYPE, APPS_EXTENSION
from upstream_clients.tools import Tool, UpstreamView

pytestmark = pytest.mark.anyio

ME, GUEST = Caller("me"), Caller("guest", "http", principal="guest")
META = {"ui": {"resourceUri": "ui://clock/app.html"}}
CAPABILITIES = {"extensions": {APPS_EXTENSION: {"mimeTypes": [APP_MIME_TYPE]}}}


class Servers:
    """Two servers of which a guest sees one, as `services.App`."""

    def __init__(self) -> None:
        guests = PolicyContext("guests", ("principal:guest",), PolicyRules(deny=("mcp:bank:*",)))
        self._settings = ToolSettings(contexts=(guests,))
        self.tools = {"clock": [Tool("show", meta=META)], "bank": [Tool("pay", meta=META)]}
        self._catalogs = Catalogs(self._views, self._settings, None)
        self.catalog_of = self._catalogs.servers_of
        self.app_tools_of = self._catalogs.app_tools_of

    def _views(self) -> list[UpstreamView]:
        return [UpstreamView(name, "ready", tools=tuple(tools)) for name, tools in self.tools.items()]

    def list_tools(self, server: str, *tools: Tool) -> None:
        self.tools[server] = list(tools)
        self._catalogs.invalidate()

    def settings(self) -> ToolSettings:
        return self._settings

    async def dispatcher(self) -> None:
        """Return, since everything is open."""

    async def wait_settled(self, names: Any, seconds: float) -> None:
        """Return, since all servers are ready."""


class Bench:
    def __init__(self) -> None:
        self.servers = Servers()
        self.announcer = Announcer(lambda: self.apps.fingerprint(), anyio.Event)
        exposure = Exposure(direct=("ui",))
        self.apps = ExposedApps(cast("Any", self.servers), cast("Any", None), lambda _: exposure, self.announcer)

    async def listed(self, caller: Caller) -> list[str]:
        """Return the names of the tools in an answer to `tools/list`."""
        session = SimpleNamespace(capabilities=CAPABILITIES, protocol_version="2025-11-25", modern=False)
        exchange = cast("Any", SimpleNamespace(session=session, caller=caller))
        await self.apps.ready(exchange)
        self.announcer.listed()
        return [tool["name"] for tool in self.apps.added(exchange, [], [])]

    def changed(self) -> bool:
        """Return True if a list differs from what was sent."""
        return self.announcer._lists["tools"].changed()


async def test_each_caller_gets_the_tools_that_its_policy_admits() -> None:
    bench = Bench()
    assert await bench.listed(ME) == ["bank__pay", "clock__show"]
    assert await bench.listed(GUEST) == ["clock__show"]


async def test_a_list_for_another_caller_is_no_change() -> None:
    bench = Bench()
    for caller in (ME, ME, GUEST, ME):
        await bench.listed(caller)
        assert not bench.changed()


async def test_a_changed_list_of_any_caller_is_a_change() -> None:
    bench = Bench()
    await bench.listed(ME)
    await bench.listed(GUEST)
    bench.servers.list_tools("bank", Tool("pay", meta=META), Tool("plain", meta=META))
    assert bench.changed()
    assert not bench.changed()
    bench.servers.list_tools("clock", Tool("show", meta={"ui": {"resourceUri": "ui://clock/other.html"}}))
    assert bench.changed()


async def test_a_server_without_apps_changes_nothing() -> None:
    bench = Bench()
    await bench.listed(ME)
    bench.servers.list_tools("files", Tool("read"))
    assert not bench.changed()


async def test_the_number_of_callers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codemode_mcp.server.exposed_apps.MAX_CALLERS", 3)
    bench = Bench()
    for number in range(10):
        await bench.listed(Caller(f"caller {number}"))
    assert len(bench.apps._listed) == 3
