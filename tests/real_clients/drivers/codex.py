"""Codex, headless (`codex exec`)."""

from __future__ import annotations

import json

from tests.real_clients.drivers.place import PROMPT, Driver, Launch, Place, npm_program
from tests.real_clients.protocols import Responses


def launch(place: Place) -> Launch:
    folder = place.home / ".codex"
    folder.mkdir()
    env = ", ".join(f"{name} = {json.dumps(value)}" for name, value in place.env.items())
    # `required` has it wait for the server, `approve` lets calls through without a person.
    (folder / "config.toml").write_text(
        f"""\
model = "gpt-5.5"
model_provider = "loopback"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.loopback]
name = "loopback"
base_url = "{place.url}/v1"
env_key = "LOOPBACK_KEY"
wire_api = "responses"

[mcp_servers.codemode]
command = {json.dumps(place.command[0])}
args = {json.dumps(list(place.command[1:]))}
env = {{ {env} }}
required = true
default_tools_approval_mode = "approve"
""",
        "utf-8",
    )
    command = (npm_program("codex", "codex"), "exec", "--skip-git-repo-check", "--json", PROMPT)
    return Launch(command, {"CODEX_HOME": str(folder), "LOOPBACK_KEY": "none"})


DRIVER = Driver("Codex", "codex", Responses(), launch, wrapper=r"^Wall time: [\d.]+ seconds\nOutput:\n?")
