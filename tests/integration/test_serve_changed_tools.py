"""A server whose tools are others than when they were listed: rules by annotation hold for what they are now."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.harness import SERVERS, handshaken, serve, until, write_config

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(os.name == "nt", reason="the user's cache folder is not named by the environment"),
]

CHANGED = "only read-only tools are allowed; its server has changed the tool since it was listed"


class Upstream:
    """A server whose tools are in a file, and a configuration with it alone."""

    def __init__(self, folder: Path, env: dict[str, str], **tools: Any) -> None:
        self.folder = folder
        self.env = env
        entry = {"command": sys.executable, "args": [str(SERVERS / "scripted.py"), str(folder)], "trust": "follow"}
        self.config = write_config(folder, {"s": entry}, **tools)

    def has(self, **tools: bool) -> None:
        """Tools by name, and whether they say that they only read."""
        listed = [
            {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": reads}}
            for name, reads in tools.items()
        ]
        (self.folder / "tools.json").write_text(json.dumps(listed), "utf-8")

    @property
    def called(self) -> list[str]:
        path = self.folder / "called"
        return path.read_text("utf-8").split() if path.exists() else []

    async def kept(self) -> None:
        """Return when the listing is on disk."""
        await until(lambda: list((self.folder / "cache").rglob("listings/*.json")))


async def test_a_tool_that_was_read_only_when_its_server_ran_last_is_not_called(
    tmp_path: Path, own_cache: dict[str, str]
) -> None:
    upstream = Upstream(tmp_path, own_cache)
    upstream.has(look=True, gone=True)
    async with serve(upstream.config, env=upstream.env) as session:
        assert (await session.exec("await MCP.s.look({}); return 1")).value == 1
        await upstream.kept()
    upstream.has(look=False)
    code = (
        "const said = []; for (const tool of ['look', 'gone'])"
        " await MCP.s[tool]({}).catch((error) => said.push([error.message, error.data.dispatched])); return said"
    )
    async with handshaken(upstream.config, "--read-only", env=upstream.env) as client:
        result = (await client.call("exec", {"code": code}))["result"]
        assert result["structuredContent"]["value"] == [
            [f"MCP.s.look may not be called: {CHANGED}", False],
            ["MCP.s.gone: server 's' no longer has the tool 'gone'", False],
        ]
        telemetry = result["_meta"]["codemode-mcp/telemetry"]
        assert [each["dispatched"] for each in telemetry["calls"]] == [False, False]
        again = (await client.call("exec", {"code": "return Object.keys(MCP)"}))["result"]["structuredContent"]
        assert again["value"] == []  # a server without a tool that may be called is not shown
    assert upstream.called == ["look"]


async def test_a_tool_that_changes_while_a_program_runs_is_not_called_from_then_on(
    tmp_path: Path, own_cache: dict[str, str]
) -> None:
    upstream = Upstream(tmp_path, own_cache, deny=["destructive"])
    upstream.has(look=True, relist=True)
    code = """
        await MCP.s.relist({});
        for (let calls = 0; ; calls += 1) {
          try { await MCP.s.look({}) } catch (error) { return [calls, error.message, error.data.dispatched] }
        }"""
    async with serve(upstream.config, env=upstream.env) as session:
        assert await session.value("return Object.keys(MCP.s)") == ["look", "relist"]
        upstream.has(look=False, relist=True)
        calls, message, dispatched = await session.value(code)
        assert message.endswith("denied by the rule 'destructive'; its server has changed the tool since it was listed")
        assert dispatched is False
    assert upstream.called == ["relist"] + ["look"] * calls


async def test_a_call_right_after_an_announcement_is_judged_by_the_new_listing(
    tmp_path: Path, own_cache: dict[str, str]
) -> None:
    entry = {"command": sys.executable, "args": [str(SERVERS / "turning.py"), str(tmp_path)], "trust": "follow"}
    config = write_config(tmp_path, {"s": entry})
    async with handshaken(config, "--read-only", env=own_cache) as client:
        code = """
            await MCP.s.look({});
            const again = await Promise.allSettled([MCP.s.look({}), MCP.s.look({})]);
            return again.map((each) => each.status === "rejected" ? each.reason.message : each.status);
        """
        answer = await client.call("exec", {"code": code})
    said = answer["result"]["structuredContent"]["value"]
    assert len(said) == 2
    assert all("only read-only tools are allowed" in each for each in said), said
    assert (tmp_path / "called").read_text("utf-8").split() == ["look"]
