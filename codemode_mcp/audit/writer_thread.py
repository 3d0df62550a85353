"""A thread that writes the items of a queue, several items together."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class WriterThread:
    """The thread of a queue. It starts with the first item.

    Args:
        write: writes all items of the queue. It is called in the thread, and must not raise.
        linger: seconds for which more items are awaited before they are written together. A thread that wakes up often
            slows the event loop down.
    """

    def __init__(self, name: str, write: Callable[[], None], linger: float) -> None:
        self._name = name
        self._write = write
        self._linger = linger
        self._awake, self._hurry = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<WriterThread {self._name}>"

    @property
    def is_started(self) -> bool:
        """True if there was an item."""
        return self._thread is not None

    @property
    def is_closed(self) -> bool:
        """True if no more items may be queued."""
        return self._closed

    def wake(self) -> None:
        """Have the queue written soon. It never waits. Until the thread has started, only one thread may call it."""
        if not self._awake.is_set():
            self._awake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def hurry(self) -> None:
        """Have the queue written immediately. May be called in any thread, after the first item."""
        self._awake.set()
        self._hurry.set()

    def close(self, seconds: float) -> bool:
        """Write the items that wait. Return False if that takes longer than some seconds."""
        self._closed = True
        self._hurry.set()
        self._awake.set()
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        over = False
        while not over:
            self._awake.wait()
            self._hurry.wait(self._linger)
            # All three before the queue is emptied: an item that comes later sets the events again. `close` sets
            # `_closed` first, so that no request to hurry is lost here.
            self._awake.clear()
            self._hurry.clear()
            over = self._closed
            self._write()
