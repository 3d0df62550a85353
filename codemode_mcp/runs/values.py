"""Values kept for an owner between programs: those that programs stored, and results too large to show.

An owner has `storeMaxBytes`. The oldest results make room, values that a program stored do not. If there are too many
owners, those unused for longest lose everything. `Values` is the interface; `MemoryValues` ends with the process.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from codemode_mcp.errors import CodeModeError, ProgramError

if TYPE_CHECKING:
    from collections.abc import Sequence

REF_PREFIX = "result:"

PREVIEW = 80
"""Characters of an entry's JSON that are shown of it."""

ENTRY = 256
"""Characters that an entry counts for beyond its text, so that many small ones are bounded too."""

MAX_OWNERS = 10_000

FULL_OWNERS = 8
"""Number of owners who can fill their space at the same time. Many more owners can have less."""


@dataclass(frozen=True, slots=True)
class Put:
    """An order to keep a JSON text under a key, in place of an earlier one."""

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Get:
    """An order for the JSON text under a key or ref."""

    key: str


Answer = str | CodeModeError | None
"""Answer to a `Get`: the text, or None. Answer to a `Put`: None, or the error with which it was refused."""


@dataclass(frozen=True, slots=True)
class Listed:
    """An entry.

    Attributes:
        characters: of its JSON.
        preview: the beginning of that.
    """

    key: str
    characters: int
    preview: str


@dataclass(frozen=True, slots=True)
class Page:
    """Some of an owner's entries, of `total`: results, then what was stored, each oldest first."""

    total: int
    entries: tuple[Listed, ...]


class Values(Protocol):
    """JSON texts by owner and key. If they cannot be reached, every method raises `StoreUnavailable`."""

    async def execute(self, owner: str, asked: Sequence[Put | Get], room: int) -> list[Answer]:
        """Execute orders in sequence, at least the first one, until more than `room` characters are loaded.

        A `Put` that does not fit, or has the key of a result, is refused. It changes nothing, and later orders are
        executed.

        Returns:
            The answers to the orders that were executed.
        """
        ...

    async def offload(self, owner: str, text: str) -> str | None:
        """Keep a result that was too large to show. Returns its ref, or None if it does not fit."""
        ...

    async def load(self, owner: str, key: str) -> str | None:
        """Return the JSON text under a key or ref, or None."""
        ...

    async def listed(self, owner: str, offset: int, limit: int) -> Page:
        """Return some of the entries of an owner."""
        ...

    async def sweep(self) -> None:
        """Drop some of the values that were not used for long."""
        ...


def size_of(key: str, text: str) -> int:
    """Return the size that an entry counts for."""
    return len(key) + len(text) + ENTRY


def new_ref() -> str:
    return REF_PREFIX + secrets.token_hex(8)


def preview_of(text: str) -> str:
    return text if len(text) <= PREVIEW else text[: PREVIEW - 1] + "…"


def ours() -> ProgramError:
    """Return the error for a key that starts as those of results do."""
    return ProgramError("nested_tool_failed", f"store(): keys that start with {REF_PREFIX!r} belong to results")


def full(put: Put, used: int, limit: int) -> ProgramError:
    """Return the error for a value that does not fit. `used`: characters in use."""
    return ProgramError(
        "nested_tool_failed",
        f"store({put.key[:100]!r}): {len(put.text)} bytes do not fit; {used} of {limit} are in use",
    )


@dataclass(slots=True)
class _Drawer:
    stored: dict[str, str] = field(default_factory=dict)
    results: OrderedDict[str, str] = field(default_factory=OrderedDict)
    size: int = 0


class MemoryValues:
    """`Values` in this process.

    Args:
        max_bytes: per owner, keys and texts together, counted in characters, and `ENTRY` for each.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._drawers: OrderedDict[str, _Drawer] = OrderedDict()
        self._size = 0

    async def execute(self, owner: str, asked: Sequence[Put | Get], room: int) -> list[Answer]:
        answers: list[Answer] = []
        for each in asked:
            if answers and room <= 0:
                break
            if isinstance(each, Put):
                answers.append(self._store(owner, each))
            else:
                text = self._load(owner, each.key)
                room -= len(text or "")
                answers.append(text)
        return answers

    async def offload(self, owner: str, text: str) -> str | None:
        drawer = self._drawer(owner)
        ref = new_ref()
        needed = size_of(ref, text)
        if not self._make_room(drawer, needed):
            return None
        drawer.results[ref] = text
        self._grow(drawer, needed)
        return ref

    async def load(self, owner: str, key: str) -> str | None:
        return self._load(owner, key)

    async def listed(self, owner: str, offset: int, limit: int) -> Page:
        drawer = self._drawers.get(owner)
        found = [] if drawer is None else [*drawer.results.items(), *drawer.stored.items()]
        shown = found[offset : offset + limit]
        return Page(len(found), tuple(Listed(key, len(text), preview_of(text)) for key, text in shown))

    async def sweep(self) -> None:
        """Do nothing: all values end with the process."""

    def _store(self, owner: str, put: Put) -> ProgramError | None:
        if put.key.startswith(REF_PREFIX):
            return ours()
        drawer = self._drawer(owner)
        freed = size_of(put.key, drawer.stored[put.key]) if put.key in drawer.stored else 0
        needed = size_of(put.key, put.text) - freed
        if not self._make_room(drawer, needed):
            return full(put, drawer.size, self._max)
        drawer.stored[put.key] = put.text
        self._grow(drawer, needed)
        return None

    def _load(self, owner: str, key: str) -> str | None:
        if owner not in self._drawers:
            return None
        drawer = self._drawer(owner)
        return drawer.results.get(key) if key.startswith(REF_PREFIX) else drawer.stored.get(key)

    def _drawer(self, owner: str) -> _Drawer:
        drawer = self._drawers.setdefault(owner, _Drawer())
        self._drawers.move_to_end(owner)
        return drawer

    def _grow(self, drawer: _Drawer, by: int) -> None:
        """Count the growth of the drawer of the latest owner, and drop the oldest drawers if all are too large."""
        drawer.size += by
        self._size += by
        while len(self._drawers) > MAX_OWNERS or (self._size > FULL_OWNERS * self._max and len(self._drawers) > 1):
            _, oldest = self._drawers.popitem(last=False)
            self._size -= oldest.size

    def _make_room(self, drawer: _Drawer, needed: int) -> bool:
        """Drop the oldest results if that makes enough room. Returns whether there is room."""
        over = drawer.size + needed - self._max
        if needed <= 0 or over <= 0:
            return True
        if sum(size_of(*each) for each in drawer.results.items()) < over:
            return False
        while over > 0:
            freed = size_of(*drawer.results.popitem(last=False))
            drawer.size -= freed
            self._size -= freed
            over -= freed
        return True
