"""The page in a real browser: the first page, 5,000 runs, the delay of an event, and the cost for programs."""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import anyio
from limits import descendants
from measure import ECHO, cpu_seconds, report

from codemode_mcp.calls.outcome import Outcome, Usage
from codemode_mcp.runs.store import EndedRun, SuspendedRun
from codemode_mcp.runs.views import RunView
from codemode_mcp.settings import CodeModeSettings, StoreSettings
from codemode_mcp.stores.opening import open_store
from tests.extensions.page.browsers import BROWSER_ARGUMENTS, chromium_path, showing
from tests.integration.attached import attached, instance

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.extensions.page.browsers import Shown
    from tests.integration.attached import Attached

RUNS = 5_000
ROUNDS = 12
EVENTS = 20
PROGRAMS = 12
SEQUENTIAL = "for (let i = 0; i < 100; i++) await MCP.echo.echo({ text: 'x' + i })"


async def page() -> None:
    """Measure everything about the page. Needs Chromium and playwright."""
    from playwright.async_api import async_playwright

    path = chromium_path()
    if path is None:
        raise SystemExit("Chromium is not installed")
    with tempfile.TemporaryDirectory(prefix="cm-") as folder:
        state = {"XDG_STATE_HOME": f"{folder}/state", "XDG_RUNTIME_DIR": folder}
        with patch.dict(os.environ, state):
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(executable_path=path, args=BROWSER_ARGUMENTS)
                async with _served(Path(folder)) as (config, client, pid):
                    await client.exec("return 1")
                    async with showing(browser, config) as shown:
                        await _first_page(shown)
                        await _events(shown, client)
                        await _cost(shown, client, pid)
                    await fill(Path(folder) / "state" / "codemode-mcp", RUNS)
                    async with showing(browser, config) as shown:
                        await _many_runs(shown, client)
                await browser.close()


@asynccontextmanager
async def _served(folder: Path) -> AsyncIterator[tuple[Path, Attached, int]]:
    config = folder / "config.json"
    servers = {"echo": {"command": sys.executable, "args": [str(ECHO)]}}
    tools = {"ask": ["mcp:echo:never"]}
    config.write_text(json.dumps({"mcpServers": servers, "tools": tools, "store": {"kind": "sqlite"}}), "utf-8")
    async with instance(config) as running, attached(config) as client:
        await client.greet()
        yield config, client, running.pid


async def _loading(shown: Shown, path: str) -> float:
    """Return the milliseconds from the request for a page until the browser has drawn it."""
    await shown.go(path)
    found: float = await shown.page.evaluate(
        """() => new Promise((done) => requestAnimationFrame(() => setTimeout(() =>
          done(performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd), 0)))"""
    )
    return found


async def _first_page(shown: Shown) -> None:
    times = [await _loading(shown, "/") for _ in range(ROUNDS)]
    figure = statistics.median(times)
    report("page: first page, drawn in the browser", f"{figure:.0f} ms", "< 300 ms", figure < 300)


async def _events(shown: Shown, client: Attached) -> None:
    """Measure the time from the beginning of a program until its run is on an open page."""
    await shown.go("/runs")
    delays = []
    for _ in range(EVENTS):
        await anyio.sleep(1.2)
        await shown.page.evaluate(
            """() => { const before = document.querySelector("main table a")?.href;
              window.seen = new Promise((done) => {
                const look = () => document.querySelector("main table a")?.href !== before && done(Date.now());
                new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
              }); }"""
        )
        began = time.time()
        await client.exec("return 1")
        seen: float = await shown.page.evaluate("window.seen")
        delays.append(seen - began * 1000)
    figure, worst = statistics.median(delays), max(delays)
    report("page: an event of a run is shown", f"{figure:.0f} ms, at most {worst:.0f}", "< 200 ms", figure < 200)


async def _cost(shown: Shown, client: Attached, pid: int) -> None:
    """Compare programs while a page is open with programs while none is: A B, then B A, and so on.

    Two figures are reported. The processor time of the serving process is what codemode-mcp itself pays for an open
    page. The duration of programs is what a person notices, and it also has what the browser takes from them: here the
    browser, the serving process, the upstream server and this client share the processors of one machine. On a machine
    with two of them, a browser that draws while programs run takes a part of the second one. The figure of the browser
    is reported beside it. Neither figure alone is fair: the first leaves out that the browser runs because of the page,
    and the second depends on how many processors are free.
    """
    found: dict[bool, list[tuple[float, float, float]]] = {True: [], False: []}
    await client.exec(SEQUENTIAL)
    for number in range(ROUNDS):
        for is_open in (True, False) if number % 2 == 0 else (False, True):
            if is_open:
                await shown.go("/runs")
            else:
                await shown.page.goto("about:blank")
            await anyio.sleep(0.5)
            browser = [each for each in descendants(os.getpid()) if b"chrom" in _command(each)]
            before, began = [cpu_seconds(pid), sum(map(cpu_seconds, browser))], time.perf_counter()
            for _ in range(PROGRAMS):
                await client.exec(SEQUENTIAL)
            took = time.perf_counter() - began
            ours, theirs = cpu_seconds(pid) - before[0], sum(map(cpu_seconds, browser)) - before[1]
            found[is_open].append((took, ours, theirs))
    pairs = list(zip(found[True], found[False], strict=True))
    share = statistics.median((one[2] - other[2]) / one[0] for one, other in pairs)
    for index, name in ((1, "page: processor time of the process while it is open"), (0, "page: duration of programs")):
        low, figure, high = statistics.quantiles([one[index] / other[index] - 1 for one, other in pairs], n=4)
        text = f"{figure:+.1%}, quartiles {low:+.1%} {high:+.1%}"
        report(name, text, "< 3 %", figure < 0.03)
    print(f"      the browser took {share:.0%} of a processor meanwhile")


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def fill(folder: Path, count: int) -> None:
    """Put ended runs into the store of a state folder."""
    settings = CodeModeSettings()
    clock, wall = time.monotonic, time.time
    async with open_store(
        StoreSettings("sqlite"), settings, clock=clock, wall=wall, folder=folder, prefers_durable=True, on_use=None
    ) as store:
        await store.wait_attempted(10)
        user = os.getuid()
        owner = f"stdio:{user}:{folder.parents[1] / 'config.json'}"
        for number in range(count):
            run_id = f"run_filled{number:014d}"
            view = RunView(run_id, "completed", "stdio", "root", 1000, 10, call_count=number % 7)
            usage = Usage(0, {}, 1, 0, 0, 0)
            outcome = Outcome(run_id, owner, "completed", usage, value=number)
            suspended = SuspendedRun(run_id, owner, b"x", "m", "yield", wall(), wall() + 900, record="{}", view=view)
            await store.runs.suspend(suspended)
            await store.runs.claim(run_id, owner)
            await store.runs.end(EndedRun(run_id, owner, (outcome, outcome), 100, wall() + 900, "completed", view))


async def _many_runs(shown: Shown, client: Attached) -> None:
    """Measure a page of many runs, and the longest pause of a program meanwhile."""
    times = [await _loading(shown, "/runs") for _ in range(ROUNDS)]
    text: str = await shown.page.inner_text("main")
    assert f"{RUNS // 1000}," in text or "5,0" in text, text[:200]
    figure = statistics.median(times)
    report(f"page: list of {RUNS:,} runs, drawn in the browser", f"{figure:.0f} ms", "< 300 ms", figure < 300)
    alone = [await _one(client) for _ in range(50)]
    meanwhile: list[float] = []

    async with anyio.create_task_group() as group:

        async def load() -> None:
            for _ in range(6):
                await shown.go("/runs")
            group.cancel_scope.cancel()

        group.start_soon(load)
        while True:
            meanwhile.append(await _one(client))
    worst = max(meanwhile)
    report(
        "page: slowest program while this list is shown",
        f"{worst * 1000:.0f} ms, alone {max(alone) * 1000:.0f} ms",
        "< 100 ms more",
        worst - max(alone) < 0.1,
    )


async def _one(client: Attached) -> float:
    began = time.perf_counter()
    await client.exec("return 1")
    return time.perf_counter() - began


if __name__ == "__main__":
    anyio.run(page)
