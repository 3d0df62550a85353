"""An app in the Inspector, through the real command."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.async_api import Browser

from tests.apps.inspector import inspector, open_app
from tests.apps.listed_servers import published, serving_apps


async def test_the_inspector_shows_an_app_that_calls_its_tool(browser: Browser, tmp_path: Path) -> None:
    async with (
        serving_apps(tmp_path, 1, {"clock": published("server-basic-vanillajs")}) as running,
        inspector(tmp_path, running.url) as address,
    ):
        context = await browser.new_context(viewport={"width": 1300, "height": 900})
        try:
            ours = await open_app(await context.new_page(), address, "Get Time")
            app = ours.frame_locator("iframe")
            before = await app.get_by_text(re.compile(r"^20\d\d-\d\d-\d\dT")).first.inner_text()
            await app.get_by_role("button", name="Get Server Time").click()
            await app.get_by_text(before).first.wait_for(state="detached")
            shown = await ours.locator("iframe").bounding_box()
            assert shown is not None
            assert shown["height"] > 250  # as high as the app has asked for
        finally:
            await context.close()
