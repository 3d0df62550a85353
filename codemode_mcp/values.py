"""Values kept for an owner between programs: what `store` was given, and results too large to show.

In memory, within `storeMaxBytes` per owner; the oldest results make room, values a program stored do not.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field

from codemode_mcp.errors import ProgramError

REF_PREFIX = "result:"


@dataclass(slots=True)
class _Drawer:
    stored: dict[str, str] = field(default_factory=dict)
    results: OrderedDict[str, str] = field(default_factory=OrderedDict)
    size: int = 0


class Values:
    """JSON texts by owner and key.

    Args:
        max_bytes: per owner, keys and texts together, counted in characters.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._drawers: dict[str, _Drawer] = {}

    def store(self, owner: str, key: str, text: str) -> None:
        """Keep `text` under `key`, in place of what was there.

        Raises:
            ProgramError: it does not fit, or the key is one of ours.
        """
        if key.startswith(REF_PREFIX):
            raise ProgramError("nested_tool_failed", f"store(): keys that start with {REF_PREFIX!r} belong to results")
        drawer = self._drawers.setdefault(owner, _Drawer())
        freed = len(key) + len(drawer.stored[key]) if key in drawer.stored else 0
        needed = len(key) + len(text) - freed
        self._make_room(drawer, needed)
        if drawer.size + needed > self._max:
            raise ProgramError(
                "nested_tool_failed",
                f"store({key[:100]!r}): {len(text)} bytes do not fit; {drawer.size} of {self._max} are in use",
            )
        drawer.stored[key] = text
        drawer.size += needed

    def offload(self, owner: str, text: str) -> str | None:
        """Keep a result that was too large to show. Its ref, or None when it does not fit at all."""
        drawer = self._drawers.setdefault(owner, _Drawer())
        self._make_room(drawer, len(text))
        if drawer.size + len(text) > self._max:
            return None
        ref = REF_PREFIX + secrets.token_hex(8)
        drawer.results[ref] = text
        drawer.size += len(text)
        return ref

    def load(self, owner: str, key: str) -> str | None:
        """The JSON text under a key or ref, or None."""
        drawer = self._drawers.get(owner)
        if drawer is None:
            return None
        return drawer.results.get(key) if key.startswith(REF_PREFIX) else drawer.stored.get(key)

    def _make_room(self, drawer: _Drawer, needed: int) -> None:
        while drawer.results and drawer.size + needed > self._max:
            _, text = drawer.results.popitem(last=False)
            drawer.size -= len(text)
