"""The process of the shared instance."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from codemode_mcp.app.garbage import collect_seldom_soon
from codemode_mcp.app.heap import use_one_arena
from codemode_mcp.audit.rotating_log import logging_to_rotating_file
from codemode_mcp.instance import registry
from codemode_mcp.instance.host import Host

if TYPE_CHECKING:
    from codemode_mcp.instance.command_terminal import RunCommand

LOCK_SECONDS: Final = 0.2
"""Timeout for the lock of the instance. Commands that look whether an instance runs hold it for a moment."""


def run(key: str, config: str | None, run_command: RunCommand, *, detach: bool = False) -> int:
    """Serve the relays of one key until the instance ends. Return the exit code.

    Standard output gets one line when relays can connect. Standard error becomes the log of the instance.

    Args:
        config: the configuration file; None for the defaults.
        run_command: runs the commands of terminals.
        detach: serve in a child of this process, which ends.
    """
    if detach and sys.platform != "win32" and os.fork():  # before other threads start
        # The instance is no child of the relay that has started it. Some clients end all descendants of a server.
        os._exit(0)
    use_one_arena()
    try:
        with registry.life_lock(key, LOCK_SECONDS):
            anyio.run(_serve, key, None if config is None else Path(config), run_command)
    except registry.Busy:
        _print_ready()  # another process has become the instance
        return 0
    sys.stderr.flush()
    # A thread may still load a sentence model, or wait for a program that prints a value. Nothing can interrupt it.
    os._exit(0)


async def _serve(key: str, config: Path | None, run_command: RunCommand) -> None:
    collect_seldom_soon(asyncio.get_running_loop())
    host = Host(key, config, run_command)
    # Standard error goes to the file, too: a crash of the interpreter is reported there.
    with logging_to_rotating_file(registry.log_path(key), "info", host.redact, stderr=True):
        await host.run(_print_ready)


def _print_ready() -> None:
    """Tell the relay that has started this process that relays can connect, and write nothing more to it."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.close(null)
