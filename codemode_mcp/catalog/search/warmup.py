"""Preparation of search in the background, so that the first search does not wait.

Each round of work runs in a daemon thread, which can be abandoned at any time. First it makes the search index, at
normal priority: this holds the interpreter's lock, so at a low priority all other threads would wait for a thread that
the system does not run. Then it makes vectors with the sentence model, at a low priority: new tools may take long.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

import anyio
import anyio.to_thread

log = logging.getLogger("codemode_mcp.warmup")

THREAD_NAME: Final = "search"
DELAY_SECONDS: Final = 1.0
"""Seconds from the start, or from a change, to a round. The first program has priority, and changes come in groups."""
CLOSE_SECONDS: Final = 1.0
"""Seconds that the end of the process waits for a round."""
MAX_REST_SECONDS: Final = 30.0
"""Maximum pause after a round. Otherwise the pause is as long as the round was."""
_LESS_PRIORITY: Final = 10


class Searchable(Protocol):
    """The part of a catalog that is prepared."""

    def prepare_search(self) -> None:
        """Make the search index."""


class Warmup:
    """A context manager for the work in the background. Leaving it stops the work.

    Args:
        fill: makes the vectors of all catalogs until its argument, a function, returns True; None without a model.
    """

    def __init__(self, fill: Callable[[Callable[[], bool]], None] | None) -> None:
        self._fill = fill
        self._stop = threading.Event()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Warmup:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._done.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    async def run(self, catalog: Callable[[], Searchable], changed: Callable[[], anyio.Event]) -> None:
        """Prepare searches after the start and after each change, until cancelled.

        Args:
            catalog: returns the current catalog.
            changed: returns an event for the next change of the catalog.
        """
        rest = 0.0
        while True:
            await anyio.sleep(DELAY_SECONDS + rest)
            began = time.monotonic()
            change = changed()  # before the catalog is read, so that no change is missed
            self._done.clear()
            self._thread = threading.Thread(target=self._round, args=(catalog(),), name=THREAD_NAME, daemon=True)
            self._thread.start()
            await anyio.to_thread.run_sync(self._done.wait, abandon_on_cancel=True)
            rest = min(MAX_REST_SECONDS, time.monotonic() - began)
            await change.wait()

    def _round(self, catalog: Searchable) -> None:
        try:
            catalog.prepare_search()
            if self._fill is not None:
                _lower_priority()
                self._fill(self._stop.is_set)
        except Exception:
            log.exception("search could not be prepared")
        finally:
            self._done.set()


def _lower_priority() -> None:
    if sys.platform == "linux":  # elsewhere the priority is that of the whole process
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _LESS_PRIORITY)
