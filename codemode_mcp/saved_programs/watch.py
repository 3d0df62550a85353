"""The watcher of the folder of saved programs. A changed file is read again.

The folder is polled every second, as the configuration is. A poll reads no files.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from codemode_mcp.saved_programs.folder import folder_state, read_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from codemode_mcp.saved_programs.folder import FolderState, Library

log = logging.getLogger("codemode_mcp.programs")

POLL_SECONDS: Final = 1.0
"""Seconds between two polls of the folder."""

QUIET_SECONDS: Final = 0.2
"""Seconds without a change before changed files are read. An editor may write a file in several steps."""

MAX_QUIET_POLLS: Final = 25
"""Maximum number of polls for a time without a change. Then the files are read although they still change."""


class LibraryWatcher:
    """The watcher of one folder.

    Args:
        library: the programs that were read before.
        state: the state of the folder, taken before they were read.
        apply: called with the programs of a changed folder.
    """

    def __init__(self, folder: Path, library: Library, state: FolderState, apply: Callable[[Library], None]) -> None:
        self._folder = folder
        self._library = library
        self._state = state
        self._apply = apply
        self._reading = anyio.Lock()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await anyio.sleep(POLL_SECONDS)
            await self.refresh(MAX_QUIET_POLLS)

    async def refresh(self, quiet_polls: int = 0) -> None:
        """Read a changed folder now.

        Args:
            quiet_polls: the maximum number of polls for a time without a change.
        """
        async with self._reading:
            if folder_state(self._folder) != self._state:
                await self._read(quiet_polls)

    async def _read(self, quiet_polls: int) -> None:
        state = folder_state(self._folder)
        for _ in range(quiet_polls):
            await anyio.sleep(QUIET_SECONDS)
            before, state = state, folder_state(self._folder)
            if state == before:
                break
        # The state was taken before the files are read, so that a change during the reading is noticed.
        self._state = state
        before_reading = self._library
        self._library = await anyio.to_thread.run_sync(read_folder, self._folder, before_reading)
        report_problems(self._library, before_reading)
        if self._library != before_reading:
            self._apply(self._library)


def report_problems(library: Library, previous: Library | None = None) -> None:
    """Log the problems of a library that the previous one had not."""
    known = () if previous is None else previous.problems
    for problem in library.problems:
        if problem not in known:
            log.warning("%s", problem)
