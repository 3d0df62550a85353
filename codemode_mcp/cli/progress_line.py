"""The progress line under the output of a program."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio

from codemode_mcp.cli.terminal import TICK_SECONDS
from codemode_mcp.cli.trace.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.app.app import App
    from codemode_mcp.cli.terminal import Terminal


def progress_of(opened: App) -> Progress:
    """Return a `Progress` without calls, which names tools as programs call them."""

    def path(tool: str) -> str:
        entry = opened.catalog_of(opened.operator).get(tool)
        return tool if entry is None else entry.path

    return Progress(path)


async def draw_progress(terminal: Terminal, progress: Progress, call_count: Callable[[], int]) -> None:
    """Update the progress line until cancelled.

    Args:
        call_count: returns the number of calls that the program has made, queued ones included.
    """
    while True:
        await anyio.sleep(TICK_SECONDS)
        terminal.status = progress.line(time.time(), terminal.width, call_count())
