"""Measurement of the tools of all servers, and of `exec` and `wait` as this server lists them."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from codemode_mcp.cli.savings.exposure import Exposure, Server, as_listed, weigh

if TYPE_CHECKING:
    from codemode_mcp.app.app import App
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.cli.savings.exposure import Weight
    from codemode_mcp.config import Config
    from upstream_clients.tools import UpstreamView

CONNECT_SECONDS: Final = 30.0
"""Time limit in seconds to connect to the servers."""


async def exposure_of(config: Config) -> Exposure:
    """Connect to the servers of a configuration. Return the sizes of their tools, and of `exec` and `wait`."""
    from codemode_mcp.app.app import open_app

    # The trajectory is for the user's programs, so this measurement must not write to it.
    async with open_app(replace(config, audit=replace(config.audit, trajectory=None))) as app:
        await app.connect(CONNECT_SECONDS)
        await app.plugins()
        views = (await app.pool()).views()
        catalog = await app.catalog_for(app.operator, None)
        declared = {server.name: catalog.files.read(server.path)["bytes"] for server in catalog.servers}
        return Exposure(
            tuple(server_of(view, declared.get(view.name, 0)) for view in views),
            await _own(app),
            catalog.files.read("mcp/index.d.ts")["bytes"],
            _one_tool(catalog),
        )


async def _own(app: App) -> Weight:
    """Return the sizes of `exec` and `wait` for this user."""
    from codemode_mcp.server.descriptions import instructions
    from codemode_mcp.server.tool_list import tool_list

    servers, settings = app.servers(app.operator), app.settings()
    tools = tool_list(servers, settings, await app.namespace_texts(app.operator), app.topics(app.operator))
    return weigh(tools, instructions(servers, settings.code_mode.languages))


def server_of(view: UpstreamView, declarations: int) -> Server:
    """Return the sizes of a server. Without a connection, they are from the server's earlier tool list.

    Args:
        declarations: bytes of the server's declaration file.
    """
    weight = weigh([as_listed(tool) for tool in view.tools], view.instructions)
    if view.state == "ready":
        return Server(view.name, weight, declarations)
    why = view.error or f"server {view.name!r} has not answered within {CONNECT_SECONDS:g} s"
    return Server(view.name, weight, declarations, "remembered" if view.tools else "unknown", why)


def _one_tool(catalog: Catalog) -> int:
    """Return the median size of the declaration of a tool, in bytes; 0 without tools."""
    sizes = [
        catalog.files.read(f"{server.path}#{entry.tool.name}")["bytes"]
        for server in catalog.servers
        for entry in server.tools
        if entry.method == "tools/call"
    ]
    return statistics.median_low(sizes) if sizes else 0
