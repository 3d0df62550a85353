"""The clients of serving processes. Each has a profile, which decides the format of its answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from codemode_mcp.cli.doctor.check import Check
from codemode_mcp.control.client import ask_all
from codemode_mcp.control.display import cut
from codemode_mcp.control.protocol import Request
from codemode_mcp.server.profiles import traits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from codemode_mcp.config import Config

MAX_LINES = 20
"""Maximum number of clients that the report shows."""


async def check(config: Config) -> Iterable[Check]:
    """Ask the processes that serve this configuration for their clients. Processes that do not answer are left out."""
    found = await ask_all(Request("clients"))
    served = _resolved(config.path)
    connected = [
        (answer["server"], client)
        for _, answer in found.answers
        if answer["server"] is not None and _resolved(answer["server"]["config"]) == served
        for client in answer["clients"]
    ]
    if not connected:
        return [Check("client", "ok", "no client is connected to a process that serves this configuration")]
    checks = [_check(server, client) for server, client in connected[:MAX_LINES]]
    if len(connected) > MAX_LINES:
        more = f"{len(connected) - MAX_LINES} more clients; codemode-mcp clients lists all of them"
        checks.append(Check("client", "info", more))
    return checks


def _check(server: Mapping[str, Any], client: Mapping[str, Any]) -> Check:
    overrides = client["overrides"]
    changed = f"; changed by the configuration: {', '.join(overrides)}" if overrides else ""
    version, protocol = cut(client["version"], 40), cut(client["protocol"], 20)
    return Check(
        f"client {cut(client['name'] or '(no name)', 60)}",
        "ok",
        f"version {version}, MCP {protocol}, {server['transport']}, process {server['pid']}; "
        f"profile {cut(client['profile']['client'], 60)}: {traits(client['profile'])}{changed}",
    )


def _resolved(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path).resolve()
