"""Large results: their text is kept, and the memory of very large ones is freed in steps.

To free a million objects takes a tenth of a second, in which no other thread runs, whichever thread drops the last
reference. So when a very large result is dropped, a thread takes it apart piece by piece.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from typing import Any

TAKEN_APART = 8 * 1024 * 1024
"""Characters of a result from which on it is freed in steps. Smaller ones take some milliseconds at most."""

_STEP = 1000
"""Members of a container that are freed in one step, with what they hold if that is little."""

_LITTLE = 100
"""Members of a container that holds little, if none of them is a container."""

_CONTAINERS = (dict, list)


class LargeResult(dict[str, Any]):
    """A result that is too large to be printed again.

    Attributes:
        text: the same as JSON text, as the server has sent it.
    """

    __slots__ = ("text",)

    def __init__(self, result: dict[str, Any], text: str) -> None:
        super().__init__(result)
        self.text = text

    def __del__(self) -> None:
        if len(self.text) >= TAKEN_APART:
            parts = list(self.values())
            self.clear()
            with suppress(RuntimeError):  # the interpreter ends, or there are too many threads
                threading.Thread(target=take_apart, args=(parts,), daemon=True, name="large-result").start()


def text_of(result: object) -> str | None:
    """Return a result as the server's own JSON text, where that was kept."""
    return result.text if isinstance(result, LargeResult) else None


def take_apart(parts: list[Any]) -> None:
    """Free what only this list refers to, in steps; what others refer to stays as it is."""
    while parts:
        part = parts.pop()
        # Two references: the name and the argument.
        if type(part) not in _CONTAINERS or sys.getrefcount(part) > 2:
            continue
        while part:
            if type(part) is list:
                some = part[-_STEP:]
                del part[-_STEP:]
            else:
                some = [part.popitem()[1] for _ in range(min(_STEP, len(part)))]
            parts.extend([each for each in some if type(each) in _CONTAINERS and not _holds_little(each)])
            del some


def _holds_little(container: Any) -> bool:
    members = container.values() if type(container) is dict else container
    return len(container) <= _LITTLE and not any(type(each) in _CONTAINERS for each in members)
