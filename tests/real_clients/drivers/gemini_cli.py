"""Gemini CLI, headless (`-p`)."""

from __future__ import annotations

import json

from tests.real_clients.drivers.place import PROMPT, Driver, Launch, Place, npm_program
from tests.real_clients.protocols import Gemini


def launch(place: Place) -> Launch:
    folder = place.home / ".gemini"
    folder.mkdir()
    settings = {
        "mcpServers": {"codemode": {**place.entry, "trust": True}},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"disableAutoUpdate": True, "disableUpdateNag": True, "enableAutoUpdate": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    (folder / "settings.json").write_text(json.dumps(settings), "utf-8")
    command = (npm_program("gemini-cli", "gemini"), "-p", PROMPT, "--yolo", "--model", "gemini-2.5-pro")
    env = {
        "GOOGLE_GEMINI_BASE_URL": place.url,
        "GEMINI_API_KEY": "none",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_CLI_NO_RELAUNCH": "true",
    }
    return Launch(command, env)


DRIVER = Driver(
    "Gemini CLI",
    "gemini-cli",
    Gemini(),
    launch,
    wrapper=r"</?untrusted_context>",
    added={"wait_for_previous": True},
    nulls=False,
)
