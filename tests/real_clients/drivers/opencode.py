"""opencode, headless (`opencode run`)."""

from __future__ import annotations

import json

from tests.real_clients.drivers.place import PROMPT, Driver, Launch, Place, npm_program
from tests.real_clients.protocols import Chat


def launch(place: Place) -> Launch:
    model = {
        "name": "Scripted",
        "limit": {"context": 200_000, "output": 8_000},
        "tool_call": True,
        "attachment": True,
        "modalities": {"input": ["text", "image"], "output": ["text"]},
    }
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": "loopback/scripted",
        "small_model": "loopback/scripted",
        "provider": {
            "loopback": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{place.url}/v1", "apiKey": "none"},
                "models": {"scripted": model},
            }
        },
        "mcp": {
            "codemode": {"type": "local", "command": list(place.command), "environment": place.env, "timeout": 60_000}
        },
    }
    path = place.home / "opencode.json"
    path.write_text(json.dumps(settings), "utf-8")
    env = {
        "OPENCODE_CONFIG": str(path),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    }
    return Launch((npm_program("opencode", "opencode"), "run", PROMPT), env)


DRIVER = Driver("opencode", "opencode", Chat(), launch)
