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


BATCH_SIZE = 200
"""Maximum number of ids in one statement."""

KEPT_MANIFESTS = 16
"""Number of manifests that are remembered, with their hashes."""

UTF8 = ("utf-8", "surrogatepass")

_LARGE = 256 * 1024
"""Blobs of at least so many bytes are sealed in a thread."""

_KEY_MARK = re.compile("#[0-9a-f]{16}$")


class Sealing(Protocol):
    """A seal of blobs, each of which opens only for its owner, run and field; see `stores.seal`."""

    def seal(self, data: bytes, *, owner: str, run: str, field: str) -> bytes: ...

    def open(self, sealed: bytes, *, owner: str, run: str, field: str) -> bytes: ...

    def derived(self, name: str) -> list[bytes]: ...


class Blobs:
    """The stored form of texts and bytes of runs: sealed."""

    def __init__(self, seal: Sealing) -> None:
        self._seal = seal
        derived = seal.derived("catalogs")
        self._key_mark = f"#{derived[0][:8].hex()}" if derived else ""

    def shared_name(self, digest: str) -> str:
        """Return the name under which a text that several runs share is stored, from the hash of the text.

        The name depends on the encryption key. So a run that is stored with a new key never needs a text that was
        sealed with the previous key.
        """
        return digest + self._key_mark

    @staticmethod
    def content_hash(name: str) -> str:
        """Return the hash from which `shared_name` made a name."""
        return _KEY_MARK.sub("", name)

    def seal(self, owner: str, run: str, name: str, text: str) -> bytes:
        """Return the sealed form of a text."""
        return self._seal.seal(text.encode(*UTF8), owner=owner, run=run, field=name)

    async def seal_large(self, owner: str, run: str, name: str, data: bytes) -> bytes:
        """Return the sealed form of bytes. Large ones are sealed in a thread."""
        if len(data) < _LARGE:
            return self._seal.seal(data, owner=owner, run=run, field=name)
        return await run_sync(lambda: self._seal.seal(data, owner=owner, run=run, field=name))

    def bytes_of(self, owner: str, run: str, name: str, blob: object) -> bytes:
        """Return the bytes of a sealed form. Raises `ProgramError` if it is damaged."""
        if not isinstance(blob, bytes):
            raise damaged(f"its {name} is missing or not a blob")
        return self._seal.open(blob, owner=owner, run=run, field=name)

    def text_of(self, owner: str, run: str, name: str, blob: object) -> str:
        """Return the text of a sealed form. Raises as `bytes_of`."""
        return self.bytes_of(owner, run, name, blob).decode(*UTF8)


def damaged(why: str) -> ProgramError:
    """Return the error for a run whose rows are damaged."""
    return ProgramError(
        "snapshot_restore_failed",
        f"the suspended program cannot be restored: its stored data is damaged ({why})",
    )


def escaped(text: str) -> str:
    """Return a text in an ASCII form that every database accepts. `unescaped` is the inverse."""
    return json.dumps(text)[1:-1]


def unescaped(plain: str) -> str:
    """Return the text of its escaped form."""
    text: str = json.loads(f'"{plain}"')
    return text


@lru_cache(maxsize=KEPT_MANIFESTS)
def manifest_hash(manifest: str) -> str:
    """Return the name of a manifest: a hash of its text."""
    return "manifest:" + hashlib.sha256(manifest.encode(*UTF8)).hexdigest()


def batches(ids: Sequence[str]) -> Iterable[tuple[str, ...]]:
    """Return ids in batches, each small enough for one statement."""
    return (tuple(ids[start : start + BATCH_SIZE]) for start in range(0, len(ids), BATCH_SIZE))


def placeholders(values: Sequence[object]) -> str:
    """Return a placeholder for each value, as SQL."""
    return ", ".join("?" * len(values))
