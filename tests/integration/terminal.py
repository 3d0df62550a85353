"""A person at a terminal: commands under a pseudo-terminal, with what they show and what is typed."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import Process

from tests.integration.harness import COMMAND, SECONDS


class Terminal:
    """One command at a terminal of its own."""

    def __init__(self, process: Process, master: int) -> None:
        self.process = process
        self.screen = b""
        """All bytes that the command has written."""
        self._master = master

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def see(self, pattern: str) -> re.Match[str]:
        """Return once this is on the screen."""
        with anyio.move_on_after(SECONDS):
            while not (found := re.search(pattern, self.text, re.DOTALL)):
                if not await self._read():
                    break
            else:
                return found
        raise AssertionError(f"{pattern!r} was not shown: {self.text}")

    async def confirm(self, verb: str = r"\w+") -> None:
        """Type what the command asks for: the first time, or the first time for a verb."""
        self.type((await self.see(rf"type: ({verb} [0-9]{{4}})\r?\n> "))[1] + "\n")

    async def end(self) -> int:
        """Return the exit code."""
        with anyio.fail_after(SECONDS):
            while await self._read():
                pass
            return await self.process.wait()

    @property
    def text(self) -> str:
        return self.screen.decode("utf-8", "replace")

    async def _read(self) -> bool:
        await anyio.wait_readable(self._master)
        try:
            chunk = os.read(self._master, 65536)
        except OSError:  # no process has the other side open any more
            return False
        self.screen += chunk
        return bool(chunk)


@asynccontextmanager
async def terminal(
    *arguments: str,
    env: dict[str, str] | None = None,
    stdin: int | None = None,
    stderr: int | None = None,
    cwd: Path | None = None,
) -> AsyncIterator[Terminal]:
    """`codemode-mcp` with these arguments at a terminal. It is killed in the end if it has not ended by itself.

    `stdin`, `stderr`: what these are instead.
    """
    import pty  # not on Windows

    master, slave = pty.openpty()
    try:
        try:
            process = await anyio.open_process(
                [*COMMAND, *arguments],
                stdin=slave if stdin is None else stdin,
                stdout=slave,
                stderr=slave if stderr is None else stderr,
                env={**os.environ, **(env or {})},
                cwd=cwd,
            )
        finally:
            os.close(slave)
        try:
            yield Terminal(process, master)
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    process.kill()
                await process.aclose()
    finally:
        os.close(master)
