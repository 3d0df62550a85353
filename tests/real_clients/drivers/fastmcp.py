"""FastMCP client, by a small agent that runs in its environment."""

from __future__ import annotations

import json

from tests.real_clients.drivers.place import AGENTS, Driver, Launch, Place, python_of
from tests.real_clients.protocols import Direct


def launch(place: Place) -> Launch:
    agent = str(AGENTS / "fastmcp_agent.py")
    return Launch((python_of("fastmcp"), agent, place.url, json.dumps(place.entry)))


DRIVER = Driver("FastMCP client", "fastmcp", Direct(), launch)
