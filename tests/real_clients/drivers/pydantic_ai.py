"""pydantic-ai, by a small agent that runs in its environment."""

from __future__ import annotations

import json

from tests.real_clients.drivers.place import AGENTS, Driver, Launch, Place, python_of
from tests.real_clients.protocols import Chat


def launch(place: Place) -> Launch:
    agent = str(AGENTS / "pydantic_ai_agent.py")
    return Launch((python_of("pydantic-ai"), agent, place.url, json.dumps(place.entry)))


DRIVER = Driver("pydantic-ai", "pydantic-ai", Chat(), launch)
