"""The tools and the declaration files of an application, for `codemode-mcp tools` and `codemode-mcp types`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from codemode_mcp.cli.listing import list_tools, server_errors
from codemode_mcp.cli.selection import configured, server_suggestion, unknown_server, with_servers
from codemode_mcp.errors import ProgramError

if TYPE_CHECKING:
    from codemode_mcp.app.app import App
    from codemode_mcp.cli.listing import ToolList
    from codemode_mcp.config import Config
    from codemode_mcp.policy.callers import Caller

CONNECT_SECONDS: Final = 30.0
"""Timeout for connecting servers."""


def of_server(config: Config, server: str | None) -> Config:
    """Return the configuration for the tools of one server or plugin; None for all."""
    if server is None:
        return config
    return with_servers(config, [server] if server in configured(config) else [], called=False)


async def tools_of(opened: App, caller: Caller, query: str | None, server: str | None) -> ToolList | None:
    """List or search the tools. Return None if there is no such server or plugin.

    The tools of a single server may come from its kept list, so that it need not start.
    """
    pool = await opened.pool()
    names = {spec.name for spec in of_server(opened.config, server).upstreams}
    if server is None or any(view.state != "idle" for view in pool.views() if view.name in names):
        await pool.connect(names, CONNECT_SECONDS)
    catalog = await opened.catalog_for(caller, None)
    if server is not None:
        catalog = catalog.with_servers(names)
    views = [view for view in pool.views() if view.name in names]
    try:
        limit = opened.settings().code_mode.search_default_limit
        return list_tools(catalog, views, query, server, limit, opened.trust)
    except ProgramError:
        return None


def unknown_source(server: str, config: Config) -> str:
    """Return the message about an unknown server or plugin."""
    if server in config.disabled:
        return f"--server: {unknown_server(server, config)}"
    return f"--server: there is no server or plugin {server!r}; {server_suggestion(server, config)}"


async def types_of(opened: App, caller: Caller) -> tuple[dict[str, str], list[str]]:
    """Return the declaration files by their paths, and the errors of servers that are down."""
    from importlib import resources

    await opened.connect(CONNECT_SECONDS)
    catalog = await opened.catalog_for(caller, None)
    files = {path: catalog.files.text(path) for path in catalog.files.paths if not path.startswith("programs/")}
    if catalog.programs:
        files["programs.d.ts"] = catalog.toolset.programs.declarations()
    if catalog.toolset:
        files["tools.d.ts"] = catalog.toolset.declarations()
    package = resources.files("declarations")
    files["guest.d.ts"] = (package / "guest.d.ts").read_text("utf-8")
    files["codemode-mcp.schema.json"] = (package / "configuration.schema.json").read_text("utf-8")
    return files, server_errors(catalog)


def emptiness(config: Config) -> list[str]:
    """Return the remark that there is nothing to show, if there is nothing."""
    if config.upstreams or config.plugins:
        return []
    return ["no server is enabled: see codemode-mcp import and add, or name a configuration with --config"]
