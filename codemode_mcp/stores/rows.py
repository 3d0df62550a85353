"""Stored forms of texts and bytes of runs: escaped for every database, and sealed."""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from anyio.to_thread import run_sync

from codemode_mcp.errors import ProgramError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


TOGETHER = 200
"""Ids in one statement."""


_APART = 256 * 1024
"""Bytes from which a blob is sealed on a thread."""


MANIFESTS = 16


UTF8 = ("utf-8", "surrogatepass")

_MARK = re.compile("#[0-9a-f]{16}$")


class Sealing(Protocol):
    """A seal of blobs that open for the same owner, run and field alone; see `stores.seal`."""

    def seal(self, data: bytes, *, owner: str, run: str, field: str) -> bytes: ...

    def open(self, sealed: bytes, *, owner: str, run: str, field: str) -> bytes: ...

    def derived(self, name: str) -> list[bytes]: ...


class Blobs:
    """Texts and bytes of runs, as they are stored."""

    def __init__(self, seal: Sealing) -> None:
        self._seal = seal
        derived = seal.derived("catalogs")
        self._mark = f"#{derived[0][:8].hex()}" if derived else ""

    def shared(self, digest: str) -> str:
        """Return the name of what many runs refer to, by what it is, and by what it is encrypted with: a run that is
        stored with a new key must not need what opens with the one before."""
        return digest + self._mark

    @staticmethod
    def content(name: str) -> str:
        """Return the hash that a name was made of."""
        return _MARK.sub("", name)

    def seal(self, owner: str, run: str, name: str, text: str) -> bytes:
        return self._seal.seal(text.encode(*UTF8), owner=owner, run=run, field=name)

    async def sealed_apart(self, owner: str, run: str, name: str, data: bytes) -> bytes:
        """Bytes, on a thread where that would take long."""
        if len(data) < _APART:
            return self._seal.seal(data, owner=owner, run=run, field=name)
        return await run_sync(lambda: self._seal.seal(data, owner=owner, run=run, field=name))

    def bytes_of(self, owner: str, run: str, name: str, blob: object) -> bytes:
        if not isinstance(blob, bytes):
            raise damaged(f"its {name} is missing, or no bytes")
        return self._seal.open(blob, owner=owner, run=run, field=name)

    def text_of(self, owner: str, run: str, name: str, blob: object) -> str:
        return self.bytes_of(owner, run, name, blob).decode(*UTF8)


def damaged(why: str) -> ProgramError:
    """Return the error for a run whose rows another program has changed."""
    return ProgramError(
        "snapshot_restore_failed",
        f"the suspended program cannot be restored: what is stored of it is damaged ({why}); start it again",
    )


def escaped(text: str) -> str:
    """Any text as one that every database takes; different for different ones."""
    return json.dumps(text)[1:-1]


def unescaped(plain: str) -> str:
    text: str = json.loads(f'"{plain}"')
    return text


@lru_cache(maxsize=MANIFESTS)
def manifest_hash(manifest: str) -> str:
    return "manifest:" + hashlib.sha256(manifest.encode(*UTF8)).hexdigest()


def portions(ids: Sequence[str]) -> Iterable[tuple[str, ...]]:
    return (tuple(ids[start : start + TOGETHER]) for start in range(0, len(ids), TOGETHER))


def marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
