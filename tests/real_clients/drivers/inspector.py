"""The command line of the MCP Inspector, one process for each call."""

from __future__ import annotations

import json
import sys

from tests.real_clients.drivers.place import AGENTS, Driver, Launch, Place, npm_program
from tests.real_clients.protocols import Direct


def launch(place: Place) -> Launch:
    path = place.home / "servers.json"
    path.write_text(json.dumps({"mcpServers": {"codemode": {"type": "stdio", **place.entry}}}), "utf-8")
    program = npm_program("inspector", "mcp-inspector")
    return Launch((sys.executable, str(AGENTS / "inspector_host.py"), place.url, program, str(path)))


DRIVER = Driver("Inspector CLI", "inspector", Direct(), launch)
