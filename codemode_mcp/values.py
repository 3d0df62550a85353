"""Values kept for an owner between programs: what `store` was given, and results too large to show.

In memory, within `storeMaxBytes` per owner; the oldest results make room, values a program stored do not. Of many
owners, those that have not been here for longest make room with all that they have.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field

from codemode_mcp.errors import ProgramError

REF_PREFIX = "result:"

ENTRY = 256
"""What an entry counts for beyond its text, so that many small ones are bounded too."""

MAX_OWNERS = 10_000

FULL_OWNERS = 8
"""How many owners may have all that one may have; many more may have little."""


@dataclass(slots=True)
class _Drawer:
    stored: dict[str, str] = field(default_factory=dict)
    results: OrderedDict[str, str] = field(default_factory=OrderedDict)
    size: int = 0


class Values:
    """JSON texts by owner and key.

    Args:
        max_bytes: per owner, keys and texts together, counted in characters, and `ENTRY` for each.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._drawers: OrderedDict[str, _Drawer] = OrderedDict()
        self._size = 0

    def store(self, owner: str, key: str, text: str) -> None:
        """Keep `text` under `key`, in place of what was there.

        Raises:
            ProgramError: it does not fit, or the key is one of ours.
        """
        if key.startswith(REF_PREFIX):
            raise ProgramError("nested_tool_failed", f"store(): keys that start with {REF_PREFIX!r} belong to results")
        drawer = self._drawer(owner)
        freed = _size(key, drawer.stored[key]) if key in drawer.stored else 0
        needed = _size(key, text) - freed
        self._make_room(drawer, needed)
        if drawer.size + needed > self._max:
            raise ProgramError(
                "nested_tool_failed",
                f"store({key[:100]!r}): {len(text)} bytes do not fit; {drawer.size} of {self._max} are in use",
            )
        drawer.stored[key] = text
        self._grow(drawer, needed)

    def offload(self, owner: str, text: str) -> str | None:
        """Keep a result that was too large to show. Its ref, or None when it does not fit at all."""
        drawer = self._drawer(owner)
        ref = REF_PREFIX + secrets.token_hex(8)
        needed = _size(ref, text)
        self._make_room(drawer, needed)
        if drawer.size + needed > self._max:
            return None
        drawer.results[ref] = text
        self._grow(drawer, needed)
        return ref

    def load(self, owner: str, key: str) -> str | None:
        """The JSON text under a key or ref, or None."""
        if owner not in self._drawers:
            return None
        drawer = self._drawer(owner)
        return drawer.results.get(key) if key.startswith(REF_PREFIX) else drawer.stored.get(key)

    def listed(self, owner: str) -> list[tuple[str, str]]:
        """What there is of an owner, as keys and JSON texts: results, then what was stored, each oldest first."""
        drawer = self._drawers.get(owner)
        return [] if drawer is None else [*drawer.results.items(), *drawer.stored.items()]

    def _drawer(self, owner: str) -> _Drawer:
        drawer = self._drawers.setdefault(owner, _Drawer())
        self._drawers.move_to_end(owner)
        return drawer

    def _grow(self, drawer: _Drawer, by: int) -> None:
        """`drawer` is that of the latest owner."""
        drawer.size += by
        self._size += by
        while len(self._drawers) > MAX_OWNERS or (self._size > FULL_OWNERS * self._max and len(self._drawers) > 1):
            _, oldest = self._drawers.popitem(last=False)
            self._size -= oldest.size

    def _make_room(self, drawer: _Drawer, needed: int) -> None:
        if needed > self._max:
            return
        while drawer.results and drawer.size + needed > self._max:
            freed = _size(*drawer.results.popitem(last=False))
            drawer.size -= freed
            self._size -= freed


def _size(key: str, text: str) -> int:
    return len(key) + len(text) + ENTRY
