"""Claude Code, headless (`-p`)."""

from __future__ import annotations

import json

from tests.real_clients.drivers.place import PROMPT, Driver, Launch, Place, npm_program
from tests.real_clients.protocols import Anthropic


def launch(place: Place) -> Launch:
    servers = place.home / "servers.json"
    servers.write_text(json.dumps({"mcpServers": {"codemode": {"type": "stdio", **place.entry}}}), "utf-8")
    command = (
        *(npm_program("claude-code", "claude"), "-p", PROMPT, "--model", "claude-sonnet-4-5"),
        *("--mcp-config", str(servers), "--strict-mcp-config", "--permission-mode", "default"),
        *("--allowedTools", "mcp__codemode__exec,mcp__codemode__wait,ToolSearch", "--max-turns", "60"),
    )
    env = {
        "ANTHROPIC_BASE_URL": place.url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CONFIG_DIR": str(place.home / ".claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        # A proxy before the API switches its tool search off by default; its users have it on.
        "ENABLE_TOOL_SEARCH": "true",
    }
    return Launch(command, env)


DRIVER = Driver(
    "Claude Code",
    "claude-code",
    Anthropic(),
    launch,
    wrapper=r"(?s)<system-reminder>.*?</system-reminder>|^Tool loaded\.$",
)
