"""Make search ready in the background, so that no program waits for what the first search needs.

Everything is done in a thread, one for each round, that can be left at any time. Its second half, which is long when a
sentence model meets new tools, has a low priority; the first holds the interpreter's lock, so that others would wait
for a thread that is not run.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import Callable


log = logging.getLogger("codemode_mcp.warmup")

THREAD_NAME: Final = "search"
AFTER_SECONDS: Final = 1.0
"""After everything is open, or has changed: the first program comes first, and changes come in groups."""
CLOSE_SECONDS: Final = 1.0
MAX_REST_SECONDS: Final = 30.0
"""After a round nothing is done for as long as it took, but no longer than this."""
_LESS_PRIORITY: Final = 10


class Searched(Protocol):
    """A catalog, as far as search is concerned."""

    def prepare_search(self) -> None:
        """Make the index, so that the first search does not wait for it."""


class Warmup:
    """A context manager; leaving it stops the work in progress.

    Args:
        fill: what else to do for all catalogs that search is ready for, until its argument says to stop.
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

    async def run(self, catalog: Callable[[], Searched], changed: Callable[[], anyio.Event]) -> None:
        """Compute vectors until cancelled.

        Args:
            catalog: the current one.
            changed: an event for the next time that it is another.
        """
        rest = 0.0
        while True:
            await anyio.sleep(AFTER_SECONDS + rest)
            began = time.monotonic()
            change = changed()
            self._done.clear()
            self._thread = threading.Thread(target=self._round, args=(catalog(),), name=THREAD_NAME, daemon=True)
            self._thread.start()
            await anyio.to_thread.run_sync(self._done.wait, abandon_on_cancel=True)
            rest = min(MAX_REST_SECONDS, time.monotonic() - began)
            await change.wait()

    def _round(self, catalog: Searched) -> None:
        try:
            catalog.prepare_search()
            if self._fill is not None:
                _step_back()
                self._fill(self._stop.is_set)
        except Exception:
            log.exception("search could not be made ready")
        finally:
            self._done.set()


def _step_back() -> None:
    if sys.platform == "linux":  # elsewhere this would be about the whole process
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _LESS_PRIORITY)
