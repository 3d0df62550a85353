"""Settings of Python's garbage collector for a server.

The collector looks at everything that is alive, again and again. Imports make 60,000 objects, hardly any of them
garbage: more than a hundred collections among them took a tenth of the processor time until the first result. Later,
with 500 clients, collections took a quarter of it. Nearly all garbage is freed without the collector, when its last
reference goes.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

START_OBJECTS: Final = 100_000
"""New objects after which garbage is collected while a server starts: more than imports make."""

START_SECONDS: Final = 5.0
"""Time for imports and the first program, from when the event loop runs."""

SERVING: Final = (5_000, 10, 10)
"""Thresholds of a server that has started, as `gc.set_threshold` takes them. Python's own first one is 700."""


def collect_rarely() -> None:
    """Collect garbage rarely from now on, while a server starts and its client waits."""
    gc.set_threshold(START_OBJECTS)


def collect_seldom_soon(loop: asyncio.AbstractEventLoop) -> None:
    """Collect garbage by `SERVING` in `START_SECONDS`, and not among what is there by then."""
    loop.call_later(START_SECONDS, _collect_seldom)


def _collect_seldom() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SERVING)
