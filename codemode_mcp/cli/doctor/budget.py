"""The check of the size of `exec` and `wait` in the tool list. A client gets these texts before any program runs."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from codemode_mcp.cli.doctor.check import Check
from codemode_mcp.control.display import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from codemode_mcp.app.app import App
    from codemode_mcp.config import Config

_CUT = re.compile(r"^.*?(\d+) (?:more|servers), see API\.list\(\)")


async def check(app: App, config: Config) -> Iterable[Check]:
    """Check the size of this server's tool list against its limit."""
    from codemode_mcp.server.descriptions import TOOLS_BYTES, TOOLS_BYTES_NAMESPACES
    from codemode_mcp.server.tool_list import tool_list

    if not config.tools.code_mode.enabled:
        advice = '"tools.codeMode": true lists two tools instead; codemode-mcp savings compares the sizes'
        return [Check("byte budget", "info", "pass-through: every tool of every server is listed", advice)]
    servers = app.servers(app.operator)
    namespaces = await app.namespace_texts(app.operator)
    programs = app.saved_programs(app.operator)
    plugins, topics = any(app.plugin_tools()), app.topics(app.operator)
    tools = tool_list(servers, config.tools, namespaces, topics, programs=programs, plugins=plugins)
    used = sum(
        len(text.encode())
        for tool in tools
        for text in (tool["name"], tool["description"], json.dumps(tool["inputSchema"]))
    )
    bound = TOOLS_BYTES_NAMESPACES if namespaces else TOOLS_BYTES
    if used > bound:
        detail = f"exec and wait take {used:,} bytes, more than their limit of {bound:,}"
        return [Check("byte budget", "fail", detail, "this is a fault of codemode-mcp; please report it")]
    detail = f"exec and wait take {used:,} of {bound:,} bytes, for {counted(len(servers), 'server')}"
    cut = _CUT.search(tools[0]["description"])
    if cut is None:
        return [Check("byte budget", "ok", detail)]
    advice = "programs find these servers with API.list(); shorter names, or fewer servers, would fit"
    return [Check("byte budget", "info", f"{detail}; {cut[1]} names of servers do not fit", advice)]
