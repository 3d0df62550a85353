"""Commands of this product that run as a child of the serving process, for a person at the page."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anyio.abc import Process

    from codemode_mcp.page.application import Application


@asynccontextmanager
async def child_command(
    application: Application, *words: str, arguments: tuple[str, ...] = (), stderr: int = subprocess.DEVNULL
) -> AsyncIterator[Process]:
    """Run a command for the configuration of an application, with its variables. Kill it at the end of the context.

    Args:
        words: the command and its options.
        arguments: what follows `--`.
        stderr: as for `subprocess`.

    Raises:
        OSError: the process cannot be started.
    """
    config = application.config.path
    command = [sys.executable, "-m", "codemode_mcp", *words]
    command += [] if config is None else ["--config", str(config)]
    command += ["--", *arguments] if arguments else []
    async with await anyio.open_process(
        command,
        stdin=subprocess.DEVNULL,
        stderr=stderr,
        env={**application.environ},
        cwd=Path.home() if config is None else os.path.dirname(config),
    ) as process:
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
