"""Proposals of programs on the page, and the decisions about exactly the texts that are shown."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.extensions.page.browsers import NARROW, overflow, served, showing, violations
from tests.extensions.page.test_trust import RELIST, listed
from tests.integration.harness import SERVERS, until

pytestmark = pytest.mark.anyio

PROPOSING = """const sent = await MCP.one.send({});
await save_program("report", { description: "Evil </pre><script>window.hacked=1</script> \\u202e" });
return sent.isError ?? false"""


async def test_a_proposal_is_read_and_accepted_and_names_a_definition_that_changes_later(
    browser: Browser, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    entry = {"command": sys.executable, "args": [str(SERVERS / "scripted.py"), str(tmp_path)]}
    servers = {"one": {**entry, "trust": "follow"}}
    config.write_text(json.dumps({"mcpServers": servers, "audit": {"trajectory": "runs.jsonl"}}), "utf-8")
    listed(tmp_path, {"name": "send", "description": "Send a message."})
    file = tmp_path / "programs" / "report.js"
    async with served(config) as client:
        assert (await client.exec(PROPOSING))["value"] is False
        async with showing(browser, config) as shown:
            await shown.page.get_by_role("link", name="Decide about program report").click()
            await shown.sees("Its text")
            await shown.go("/programs")
            await shown.page.get_by_role("link", name="Decide about report").click()
            await shown.sees("MCP.one.send")
            text = await shown.page.inner_text("main")
            assert "export default async function report() {" in text
            assert "\u202e" not in text
            assert await shown.page.evaluate("window.hacked") is None
            assert await violations(shown) == []
            stale = {"decision": "accept", "digest": "0" * 64, "file": ""}
            status, answer = await shown.post("/programs/report/decide", stale)
            assert (status, "Nothing was decided" in answer) == (409, True)
            assert not file.exists()
            await shown.press("Accept report")
            await shown.status("report is accepted.")
            assert "MCP.one.send" in file.read_text("utf-8")

            (file.parent / "open.js").write_text("export default () => { return [1; };", "utf-8")
            await shown.go("/programs")
            await shown.sees("Syntax error in line 1?")
            await shown.go("/programs/report")
            listed(tmp_path, {"name": "send", "description": "Send it to all."})
            await client.exec(RELIST)
            await shown.sees("MCP.one.send has another description")
            for path in ("/programs", "/programs/report"):
                await shown.page.set_viewport_size({"width": NARROW, "height": 800})
                await shown.go(path)
                assert await overflow(shown) <= 0
                assert await violations(shown) == []
            saved = hashlib.sha256(file.read_bytes()).hexdigest()
            stale = {"decision": "pin", "digest": saved, "file": saved, "tools": "0" * 64}
            assert (await shown.post("/programs/report/decide", stale))[0] == 409
            await shown.press("Accept the present definitions")
            await shown.status("report is accepted with the present definitions.")
            await shown.page.get_by_text("has another description").wait_for(state="detached")
        events = tmp_path / "runs.jsonl"
        await until(lambda: events.read_text("utf-8").count('"kind":"program_accepted"') == 2)
        assert events.read_text("utf-8").count('"kind":"program_proposed"') == 1
