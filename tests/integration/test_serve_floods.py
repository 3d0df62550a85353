"""An upstream that says more than anyone can read harms its own call alone."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.integration.harness import SECONDS, SERVERS, Raw, raw, write_config

pytestmark = pytest.mark.anyio


def flooding() -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SERVERS / "flooding.py")]}


async def answers(client: Raw, wanted: set[int]) -> dict[int, dict[str, Any]]:
    """Return the answers to some requests; notifications are kept."""
    found: dict[int, dict[str, Any]] = {}
    while wanted - found.keys():
        message = await client.message()
        if "method" in message:
            client.notifications.append(message)
        else:
            found[message["id"]] = message
    return found


@pytest.mark.parametrize("code_mode", [True, False], ids=["code mode", "pass-through"])
async def test_a_flood_of_progress_delays_no_answer_of_the_server(tmp_path: Path, code_mode: bool) -> None:
    config = write_config(
        tmp_path, {"calm": flooding(), "wild": flooding()}, codeMode={"timeoutMs": 1000} if code_mode else False
    )
    async with raw(config) as client:
        await client.initialize("2025-06-18")
        flood: dict[str, Any] = {"_meta": {"progressToken": "flood"}}
        calm: dict[str, Any] = {"name": "calm__echo", "arguments": {}}
        if code_mode:
            flood |= {"name": "exec", "arguments": {"code": "await MCP.wild.flood({})"}}
            calm = {"name": "exec", "arguments": {"code": "await MCP.calm.echo({})"}}
        else:
            flood |= {"name": "wild__flood", "arguments": {}}
        began = time.monotonic()
        await client.send(id=101, method="tools/call", params=flood)
        while not client.notifications:
            message = await client.message()
            assert "method" in message, message
            client.notifications.append(message)
        await client.send(id=102, method="ping")
        await client.send(id=103, method="tools/call", params=calm)
        with anyio.fail_after(SECONDS):
            found = await answers(client, {101, 102, 103} if code_mode else {102, 103})
        for answer in found.values():
            assert not answer["result"].get("isError"), answer
        # The flood has not ended: its call has no result.
        assert not code_mode or found[101]["result"]["structuredContent"]["status"] == "waiting"
        assert code_mode or 101 not in found
        progress = [each for each in client.notifications if each["method"] == "notifications/progress"]
        assert len(progress) <= 6 + 5 * (time.monotonic() - began), "more than a few a second"
        steps = [each["params"]["progress"] for each in progress]
        assert steps == sorted(set(steps))
