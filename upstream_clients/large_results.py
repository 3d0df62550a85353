"""Large results, which keep their text, and whose memory is freed in steps if they are very large.

Freeing a million objects takes a tenth of a second, in which no other thread can run. So when a very large result is
dropped, a thread frees it piece by piece.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from typing import Any

FREE_IN_STEPS_CHARACTERS = 8 * 1024 * 1024
"""Size in characters from which a result is freed in steps. Freeing a smaller one takes a few milliseconds at most."""

_STEP = 1000
"""Members of a container that are freed in one step, with their contents if they are small."""

_SMALL = 100
"""Maximum number of members of a small container. A small container has no containers in it."""

_CONTAINERS = (dict, list)


class LargeResult(dict[str, Any]):
    """A result that is too large to be encoded again.

    Attributes:
        text: the result as JSON text, as the server has sent it.
    """

    __slots__ = ("text",)

    def __init__(self, result: dict[str, Any], text: str) -> None:
        super().__init__(result)
        self.text = text

    def __del__(self) -> None:
        if len(self.text) >= FREE_IN_STEPS_CHARACTERS:
            # Cleared, so that only `parts` refers to the contents when the thread looks.
            parts = list(self.values())
            self.clear()
            with suppress(RuntimeError):  # the interpreter is shutting down, or there are too many threads
                threading.Thread(target=free_in_steps, args=(parts,), daemon=True, name="large-result").start()


def text_of(result: object) -> str | None:
    """Return the server's own JSON text of a result, if it was kept."""
    return result.text if isinstance(result, LargeResult) else None


def free_in_steps(parts: list[Any]) -> None:
    """Free in steps all objects that only this list refers to. Objects with other references stay unchanged."""
    while parts:
        part = parts.pop()
        # Two references: the variable, and the argument of `getrefcount`.
        if type(part) not in _CONTAINERS or sys.getrefcount(part) > 2:
            continue
        while part:
            if type(part) is list:
                some = part[-_STEP:]
                del part[-_STEP:]
            else:
                some = [part.popitem()[1] for _ in range(min(_STEP, len(part)))]
            # Large containers are freed later, in steps of their own. Everything else is freed here, with `some`.
            parts.extend([each for each in some if type(each) in _CONTAINERS and not _is_small(each)])
            del some


def _is_small(container: Any) -> bool:
    members = container.values() if type(container) is dict else container
    return len(container) <= _SMALL and not any(type(each) in _CONTAINERS for each in members)
