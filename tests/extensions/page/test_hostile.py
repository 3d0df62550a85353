"""Names, texts and results of a hostile server, client and program, on every page."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser

from tests.extensions.page.browsers import NARROW, PAGES, WIDE, Shown, overflow, served, showing, violations
from tests.integration.harness import SERVERS

pytestmark = pytest.mark.anyio

ATTACKS = (
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "'><svg onload='window.hacked = 1'>",
    "javascript:window.hacked=1",
    "{{ 7 * 7 }}{% raw %}",
    "</pre></main><h1>Approved</h1>",
    "\u202egnp.exe\u2066\u200b\u00ad",
    "\U000e0041\U000e0042 hidden",
    "\x1b[2J\x00\x07",
    "a" * 400,
    "ﷺ" * 40 + "\u0301" * 60,
)
TEXT = " ".join(ATTACKS)
TOOL = "evil<script>window.hacked=1</script>"
SERVER = 'evil"><img src=x onerror=window.hacked=1>'

PROGRAM = f"""
// {json.dumps(TEXT)}
console.log({json.dumps(TEXT)});
const server = MCP[Object.keys(MCP)[0]];
const names = Object.keys(server);
const calls = await Promise.allSettled([
  server.give({{ name: "result.json" }}),
  server.give({{ name: {json.dumps("missing " + TEXT)} }}),
]);
return {{ [{json.dumps(TEXT)}]: {json.dumps(TEXT)}, calls, names }};
"""


@pytest.fixture(scope="module")
async def pages(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[tuple[Path, list[str]]]:
    """Return a configuration with a hostile server, and the addresses of all pages about it."""
    folder = tmp_path_factory.mktemp("hostile")
    schema: dict[str, Any] = {"type": "object", "description": TEXT, "properties": {TEXT[:60]: {"description": TEXT}}}
    give = {"name": "give", "description": TEXT, "inputSchema": {"type": "object"}}
    tools = [
        give,
        {"name": TOOL, "title": TEXT, "description": TEXT, "inputSchema": schema},
        {"name": "x" * 300, "description": TEXT, "inputSchema": schema},
    ]
    (folder / "tools.json").write_text(json.dumps(tools), "utf-8")
    (folder / "result.json").write_text(json.dumps({"content": [{"type": "text", "text": TEXT}]}), "utf-8")
    config = folder / "config.json"
    entry = {"command": sys.executable, "args": [str(SERVERS / "scripted.py"), str(folder)]}
    down = {"command": "no-such-command" + TEXT.replace("\x00", "")}
    trajectory = {"trajectory": "runs.jsonl", "includeInputs": True}
    ask = {"ask": [f"mcp:{SERVER}:evil*"]}
    config.write_text(
        json.dumps({"mcpServers": {SERVER: entry, "down": down}, "tools": ask, "audit": trajectory}), "utf-8"
    )
    async with served(config) as client:
        done = await client.exec(PROGRAM)
        failed = await client.exec(f"throw new Error({json.dumps(TEXT)})")
        call = (
            "const s = MCP[Object.keys(MCP)[0]]; const name = Object.keys(s).find((each) => each.startsWith('evil'));"
        )
        waiting = await client.exec(f"{call} return await s[name]({{ [{json.dumps(TEXT[:60])}]: {json.dumps(TEXT)} }})")
        assert waiting["status"] == "waiting", waiting
        assert done["status"] == "completed", done
        assert failed["status"] == "failed", failed
        run = waiting["runId"]
        yield config, [*PAGES, f"/runs/{run}", f"/approvals/{run}"]


async def all_addresses(shown: Shown, pages: list[str]) -> list[str]:
    """Return the addresses of all pages, those of runs and tools too."""
    found = list(pages)
    for path in ("/runs", "/servers", "/tools"):
        await shown.go(path)
        links = await shown.page.locator("main table a").evaluate_all(
            "all => all.map((each) => each.getAttribute('href'))"
        )
        found += [each for each in links if each not in found]
    found += ["/tools?q=evil%20%3Cscript%3E", "/runs?q=%22%3E%3Cscript%3E&state=%3Cb%3E", "/nothing/%3Cscript%3E"]
    return found


async def test_no_script_runs_and_no_layout_breaks(browser: Browser, pages: tuple[Path, list[str]]) -> None:
    config, known = pages
    async with showing(browser, config) as shown:
        addresses = await all_addresses(shown, known)
        assert len(addresses) > 12
        for path in addresses:
            await shown.go(path)
            assert await shown.page.evaluate("window.hacked") is None, path
            for width in (NARROW, WIDE):
                await shown.page.set_viewport_size({"width": width, "height": 800})
                assert await overflow(shown) <= 0, (path, width)
            assert await shown.page.locator("h1").count() == 1, path
            assert await shown.page.locator("header nav").count() == 1, path
            text = await shown.page.inner_text("body")
            assert not set("\u202e\u2066\u200b\U000e0041\x1b\x00") & set(text), path
            assert "{{ 7" not in text or "49" not in text.split("{{ 7")[1][:4]


async def test_every_page_is_accessible(browser: Browser, pages: tuple[Path, list[str]]) -> None:
    config, known = pages
    async with showing(browser, config) as shown:
        for path in await all_addresses(shown, known):
            await shown.page.emulate_media(color_scheme="light")
            await shown.go(path)
            assert await violations(shown) == [], path
            await shown.page.emulate_media(color_scheme="dark")
            await shown.page.evaluate(
                "Promise.all(document.getAnimations().map((each) => each.finished)).then(() => 0)"
            )
            assert await violations(shown, "color-contrast") == [], path


async def test_every_page_works_with_the_keyboard(browser: Browser, pages: tuple[Path, list[str]]) -> None:
    config, known = pages
    async with showing(browser, config) as shown:
        for path in known:
            await shown.go(path)
            await shown.page.keyboard.press("Tab")
            assert await shown.page.evaluate("document.activeElement.className") == "skip"
            await shown.page.keyboard.press("Enter")
            await shown.page.keyboard.press("Tab")
            controls = shown.page.locator("main :is(a[href], button, input, select, summary, [tabindex='0'])")
            if await controls.count():
                assert await shown.page.evaluate("document.getElementById('main').contains(document.activeElement)"), (
                    path
                )
