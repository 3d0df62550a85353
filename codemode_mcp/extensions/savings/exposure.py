"""The sizes of the tools of all servers, and of `exec` and `wait` as this server lists them, and the page of them."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from codemode_mcp.extensions.savings.tasks import Exposure, Server, Weight, as_listed, weigh

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.config import Config
    from codemode_mcp.extension_points import Site
    from codemode_mcp.extensions.savings.tasks import Tasks
    from codemode_mcp.server.services import App
    from upstream_clients.tools import UpstreamView

CONNECT_SECONDS: Final = 30.0
"""Time limit in seconds to connect to the servers."""


async def exposure_of(app: App) -> Exposure:
    """Return the sizes of the tools of all servers as they are known now, and of `exec` and `wait`."""
    from codemode_mcp.server import search_tools

    views = (await app.pool()).views()
    catalog = await app.catalog_for(app.operator, None)
    declared = {server.name: catalog.files.read(server.path)["bytes"] for server in catalog.servers}
    return Exposure(
        tuple(server_of(view, declared.get(view.name, 0)) for view in views),
        await _own(app),
        catalog.files.read("mcp/index.d.ts")["bytes"],
        _one_tool(catalog),
        weigh(search_tools.search_tool_list(list(app.servers(app.operator).values()), read_only=False)),
    )


async def _own(app: App) -> Weight:
    from codemode_mcp.server.descriptions import instructions, tool_list

    servers, settings = app.servers(app.operator), app.settings()
    namespaces, topics = await app.namespace_texts(app.operator), app.topics(app.operator)
    programs, plugins = app.saved_programs(app.operator), any(app.plugin_tools())
    tools = tool_list(servers, settings, namespaces, topics, programs=programs, plugins=plugins)
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


DAYS: Final = 7
"""Days of recorded tasks that are shown."""


def routes(site: Site) -> Sequence[Route]:
    """Return the route of the page. What it needs is imported when the page is opened."""
    import anyio.to_thread
    from starlette.routing import Route

    from codemode_mcp.extensions.savings import report as reports

    async def savings(request: Request) -> Response:
        application = site.chosen(request)
        tasks, unrecorded = await anyio.to_thread.run_sync(_recorded, application.config)
        report = reports.Report(await exposure_of(application), tasks, unrecorded)
        return site.page(
            request,
            "savings.html",
            servers=sorted(report.exposure.servers, key=lambda each: -each.weight.prompt),
            own=report.exposure.own,
            direct=report.exposure.direct,
            tokens=report.tokens,
            verdict=reports.verdict_of_exposure(report),
            of_tasks=reports.verdict_of_tasks(report),
            costs=list(reports.costs(report)),
            modes=reports.costs_of_modes(report),
            of_modes=reports.modes_in_words(report),
            unrecorded=unrecorded,
        )

    return (Route("/savings", savings),)


def _recorded(config: Config) -> tuple[Tasks | None, str]:
    """Return the recorded tasks of the last days, and the reason if there are none."""
    from codemode_mcp.audit.trajectory_files import every, files_of
    from codemode_mcp.extensions.savings.tasks import tasks_of

    if config.audit.trajectory is None:
        return None, 'No tasks are recorded: add "audit": { "trajectory": "runs.jsonl" } to the configuration.'
    path = Path(config.audit.trajectory)
    try:
        if not files_of(path):
            return None, "No tasks are recorded yet; recording starts when a client calls exec."
        return tasks_of(every(path), "content", time.time() - DAYS * 24 * 3600.0), ""
    except OSError as error:
        return None, f"{path} cannot be read: {error.strerror}"
