"""The page of a real process in a real browser."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from playwright.async_api import Browser, ConsoleMessage, Page, StorageState

from tests.integration.attached import Attached, attached, instance
from tests.integration.harness import COMMAND, NODE_MODULES, SECONDS, until

BROWSER_ARGUMENTS = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
"""Chromium does not start as root with its sandbox."""

PAGES = (
    *("/", "/runs", "/approvals", "/servers", "/clients", "/programs", "/trust", "/tools", "/policy", "/savings"),
    "/doctor",
)
"""The pages that need no name of a run or server."""

NARROW, WIDE = 400, 1100
"""Widths of windows."""

SAID = "said: "

TELL = """document.addEventListener("DOMContentLoaded", () => {
  const status = document.getElementById("status");
  const tell = () => console.info("said: " + status.textContent);
  if (status) new MutationObserver(tell).observe(status, { childList: true });
});"""
"""Script that writes each message of the page to the console: the next message may replace it before it is seen."""

_ADMITTED: dict[Path, tuple[str, StorageState]] = {}
"""Origin and secrets of a browser that was admitted, by the configuration that is served."""


def chromium_path() -> str | None:
    """Return the path of the system's Chromium; None if there is none.

    Its shell without windows, which Playwright itself prefers, takes a quarter of the processor time.
    """
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next(filter(None, map(shutil.which, names)), None)


@dataclass
class Shown:
    """A tab of a browser that shows the page.

    Attributes:
        problems: errors of scripts, and reports that something was blocked.
        said: the messages of the page since the last button was pressed.
    """

    page: Page
    origin: str = ""
    problems: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def hear(self, message: ConsoleMessage) -> None:
        if message.text.startswith(SAID):
            self.said += filter(None, [message.text.removeprefix(SAID)])  # good news vanishes after a time
        elif message.type == "error" and "the server responded with" not in message.text:
            self.problems.append(message.text)

    async def go(self, path: str) -> int:
        """Show another page, and return its status."""
        answer = await self.page.goto(self.origin + path)
        assert answer is not None
        return answer.status

    async def press(self, name: str) -> None:
        """Press a button of a form, again if the page did not take it: a part that has just changed takes none."""
        taken = False
        self.said.clear()
        while not taken:
            await self.page.evaluate(
                """() => {
                  sessionStorage.taken = false;
                  document.addEventListener("submit", ({ submitter }) => {
                    sessionStorage.taken = submitter.getAttribute("aria-disabled") !== "true";
                  }, { capture: true, once: true });
                }"""
            )
            await self.page.get_by_role("button", name=name).first.click()
            taken = await self.page.evaluate("sessionStorage.taken === 'true'")

    async def status(self, text: str) -> None:
        """Wait until the page has said something since the last button was pressed."""
        await until(lambda: any(text in each for each in self.said))

    async def sees(self, text: str) -> None:
        """Wait until the page shows a text."""
        await self.page.locator("main").get_by_text(text).first.wait_for()

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, str]:
        """Send a request from a script of the page. `headers`: instead of those of the page."""
        found: list[Any] = await self.page.evaluate(
            """async ([path, body, headers]) => {
              const sent = { "content-type": "application/json", "x-codemode-page": localStorage["page-secret"] };
              const answer = await fetch(path, { method: "POST", headers: { ...sent, ...headers }, body });
              return [answer.status, await answer.text()];
            }""",
            [path, json.dumps(body), headers],
        )
        return found[0], found[1]


def recorder(folder: Path) -> tuple[Path, dict[str, str]]:
    """Return a file that gets the arguments of the browser, and the variables for that."""
    opened = folder / f"opened-{os.urandom(4).hex()}"
    script = opened.with_suffix(".sh")
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {opened}.new && mv {opened}.new {opened}\n', "utf-8")
    script.chmod(0o755)
    return opened, {"BROWSER": f"{script} %s"}


@asynccontextmanager
async def opening(config: Path, *arguments: str) -> AsyncIterator[tuple[Path, anyio.abc.Process]]:
    """Run `codemode-mcp ui`. Yield the file that it lets a browser open, and the process, which waits for that."""
    opened, environ = recorder(config.parent)
    command = [*COMMAND, "ui", *arguments, "--config", str(config)]
    async with await anyio.open_process(command, env={**os.environ, **environ}, stdin=-3, stderr=None) as process:
        try:
            with anyio.fail_after(SECONDS):
                while not opened.exists():  # noqa: ASYNC110 - another process writes it
                    await anyio.sleep(0.02)
            address = opened.read_text("utf-8").strip()
            assert address.startswith("file://")
            yield Path(address.removeprefix("file://")), process
        finally:
            if process.returncode is None:
                process.terminate()


@asynccontextmanager
async def showing(
    browser: Browser, config: Path, path: str = "/", *, width: int = WIDE, again: bool = True
) -> AsyncIterator[Shown]:
    """Show the page in a context of its own. In the end, no script must have failed and nothing was blocked.

    Args:
        again: let the context have the secrets of one that was admitted earlier, if there is one.
    """
    origin, secrets = _ADMITTED.get(config, ("", None)) if again else ("", None)
    context = await browser.new_context(viewport={"width": width, "height": 800}, storage_state=secrets)
    try:
        context.set_default_timeout(SECONDS * 1000)
        await context.add_init_script(TELL)
        shown = Shown(await context.new_page(), origin)
        shown.page.on("pageerror", lambda error: shown.problems.append(str(error)))
        shown.page.on("console", shown.hear)
        if origin:
            await shown.go(path)
        else:
            async with opening(config, path) as (file, process):
                await shown.page.goto(file.as_uri())
                await shown.page.wait_for_url(f"**{path}")
                await process.wait()
                assert process.returncode == 0
            await shown.page.locator("h1").wait_for()
            shown.origin = "/".join(shown.page.url.split("/")[:3])
            _ADMITTED[config] = shown.origin, await context.storage_state()
        yield shown
        assert shown.problems == []
    finally:
        await context.close()


@asynccontextmanager
async def served(config: Path) -> AsyncIterator[Attached]:
    """Run the shared instance of a configuration with one client."""
    if sys.platform == "win32":
        pytest.skip("the processes are controlled by signals of Unix")
    async with instance(config), attached(config) as client:
        await client.greet()
        yield client


async def overflow(shown: Shown) -> int:
    """Return by how many pixels the page is wider than the window."""
    found: int = await shown.page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return found


async def violations(shown: Shown, *rules: str) -> list[str]:
    """Return what axe-core finds, each with the element. Skip the test if axe-core is not installed.

    Args:
        rules: the rules to check; by default all of them.
    """
    script = NODE_MODULES / "axe-core" / "axe.min.js"
    if not script.is_file():
        pytest.skip("axe-core is not installed; python3 tests/run.py installs it where npm is on PATH")
    if not await shown.page.evaluate("'axe' in window"):
        await shown.page.evaluate(script.read_text("utf-8") + "\n;void 0")
    options: dict[str, Any] = {
        # axe-core requests the style sheets again, by default for at most 10 s, which a busy machine can exceed.
        "preload": {"assets": ["cssom"], "timeout": SECONDS * 1000},
        # Describing each element that passes each rule takes longer than checking them.
        "resultTypes": ["violations"],
    }
    if rules:
        options["runOnly"] = rules
    found: dict[str, Any] = await shown.page.evaluate("(options) => axe.run(options)", options)
    return [
        f"{each['id']}: {node['target']} {node['failureSummary']}"
        for each in found["violations"]
        for node in each["nodes"]
    ]
