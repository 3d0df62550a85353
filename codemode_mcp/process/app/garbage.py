"""Settings of Python's garbage collector.

Each collection visits every live object. Imports create 60,000 objects, hardly any of them garbage: more than a hundred
collections during imports took a tenth of the processor time until the first result, and later, with 500 clients, a
quarter of all processor time. Nearly all garbage is freed without the collector, when its last reference goes away.
"""

from __future__ import annotations

import atexit
import gc
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

START_OBJECTS: Final = 100_000
"""New objects after which garbage is collected while a server starts: more than imports create."""

START_SECONDS: Final = 5.0
"""Time for imports and the first program, counted from the start of the event loop."""

SERVING: Final = (5_000, 10, 10)
"""Thresholds of a server that has started, as `gc.set_threshold` takes them. Python's own first one is 700."""


def collect_rarely() -> None:
    """Collect garbage rarely while a command starts, and not at its end.

    When Python ends, it searches all modules for garbage, several times. This took a sixth of the processor time of a
    server with one program. The system takes back the memory anyway.
    """
    gc.set_threshold(START_OBJECTS)
    atexit.register(gc.freeze)


def collect_seldom_soon(loop: asyncio.AbstractEventLoop) -> None:
    """After `START_SECONDS`, use the thresholds in `SERVING`, and never visit the objects that exist by then again."""
    loop.call_later(START_SECONDS, _collect_seldom)


def _collect_seldom() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SERVING)
