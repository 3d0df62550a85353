"""openai-agents, by a small agent that runs in its environment."""

from __future__ import annotations

import json

from tests.real_clients.drivers.place import AGENTS, Driver, Launch, Place, python_of
from tests.real_clients.protocols import Responses


def launch(place: Place) -> Launch:
    agent = str(AGENTS / "openai_agents_agent.py")
    return Launch((python_of("openai-agents"), agent, place.url, json.dumps(place.entry)))


DRIVER = Driver("openai-agents", "openai-agents", Responses(), launch)
