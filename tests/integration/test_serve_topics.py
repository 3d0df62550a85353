"""Topics of servers in the tool list: from kept listings at the start, and announced once when they become known."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.announcements import Ear
from tests.integration.harness import SERVERS, Session, serve, until, write_config

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.name == "nt", reason="the user's cache folder is not named by the environment"),
]


def shop(folder: Path, name: str, *tools: str) -> dict[str, Any]:
    """Return the entry of a server with these tools."""
    listed = [{"name": tool, "inputSchema": {"type": "object"}} for tool in tools]
    (folder / f"{name}.json").write_text(json.dumps(listed), "utf-8")
    return {"command": sys.executable, "args": [str(SERVERS / "scripted.py"), str(folder), f"{name}.json"]}


async def first_line(session: Session) -> str:
    tools = (await session.client.list_tools(cache_mode="refresh")).tools
    return (tools[0].description or "").split("\n")[0]


def kept(folder: Path) -> int:
    return len(list((folder / "cache").rglob("listings/*.json")))


async def test_topics_that_become_known_are_announced_once_and_are_there_at_the_next_start(
    tmp_path: Path, own_cache: dict[str, str]
) -> None:
    servers = {
        "google-calendar": shop(tmp_path, "calendar", "list_events", "create_event"),
        "billing": shop(tmp_path, "billing", "get_invoice", "pay_invoice", "delete_ledger"),
    }
    config = write_config(tmp_path, servers, deny=["mcp:billing:delete_*"])
    names = "google calendar (MCP.googleCalendar), billing."
    ear = Ear("legacy")
    async with serve(config, env=own_cache, message_handler=ear) as session:
        assert (await first_line(session)).endswith(names)
        await ear.heard()
        known = await first_line(session)
        assert known.endswith(f"{names} Topics: event, invoice.")
        await until(lambda: kept(tmp_path) == 2)
        assert ear.count == 1

    again = Ear("legacy")
    async with serve(config, env=own_cache, message_handler=again) as session:
        assert await first_line(session) == known
        # The servers start, and list what they listed before.
        assert await session.value(
            "await MCP.billing.getInvoice({}); await MCP.googleCalendar.listEvents({}); return 1"
        )
        assert await first_line(session) == known
        # The next change is the first one that is heard.
        write_config(tmp_path, {"billing": servers["billing"]}, deny=["mcp:billing:delete_*"])
        await again.heard()
        assert again.count == 1
        assert (await first_line(session)).endswith("MCP servers: billing. Topics: invoice.")
