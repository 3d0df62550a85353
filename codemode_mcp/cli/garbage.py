"""How often Python looks for garbage: rarely while a server starts and a client waits for it.

Imports make 60,000 objects, hardly any of them garbage. To look for it among them, more than a hundred times, took a
tenth of the processor time until the first result.
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

_USUAL: Final = gc.get_threshold()


def collect_rarely() -> None:
    """Collect garbage rarely from now on."""
    gc.set_threshold(START_OBJECTS)


def collect_as_usual_soon(loop: asyncio.AbstractEventLoop) -> None:
    """Collect garbage as usual in `START_SECONDS`."""
    loop.call_later(START_SECONDS, gc.set_threshold, *_USUAL)
