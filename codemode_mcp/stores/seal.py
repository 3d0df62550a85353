"""Seals of the stored parts of a program, so that damaged, foreign or exchanged parts are never resumed. Pure.

Each blob is bound to its owner, its run and its field. Without a key, a digest detects damage and mix-ups. It does not
stop an attacker who can write to the database, because anyone can compute it. With keys, blobs are encrypted and
authenticated by AES-256-GCM. The first key seals and every key opens, so that keys can be changed.

Layout, all integers little-endian:

    magic   4 bytes  b"CME1" (the last character is the format version)
    form    1 byte   flags: 1 encrypted, 2 compressed
    length  8 bytes  length of the data
    then    32 bytes SHA-256 of all the above, the binding and the body
        or  8 bytes  id of the key, and 12 bytes nonce; all the above and the binding are authenticated
    body             the data, compressed by zlib if that saves enough, encrypted if there is a key
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
import zlib
from typing import TYPE_CHECKING

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.stores.work import Query, Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


MAGIC = b"CME1"
MAX_BYTES = 1 << 30
"""Maximum size of an opened blob in bytes."""

_HEADER = struct.Struct("<4sBQ")
_ENCRYPTED = 1
_COMPRESSED = 2
_KEY_ID = 8
_NONCE = 12
_TAG = 16
_DIGEST = 32
_LEVEL = 1
_MIN_COMPRESSED = 1024
"""Bytes below which data is not compressed."""
_PROBE = 4096
"""Bytes that are compressed as a trial. Snapshots are compressed already, so that nothing is gained for them."""


class Refused(ProgramError):
    """A blob that was changed after it was sealed, or cannot be opened.

    Attributes:
        why: the reason, without the consequence for the program.
    """

    def __init__(self, why: str) -> None:
        super().__init__("snapshot_restore_failed", f"the suspended program cannot be restored: {why}")
        self.why = why


class Seal:
    """Seals and opens blobs, in any thread.

    Args:
        keys: the first one seals, all open. Without keys nothing is encrypted, and no encrypted blob can be opened.
        max_bytes: maximum size of a compressed blob after decompression.
    """

    def __init__(self, keys: Sequence[bytes] = (), *, max_bytes: int = MAX_BYTES) -> None:
        self._keys = {_expand(secret, b"id")[:_KEY_ID]: secret for secret in map(_extract, keys)}
        self._first = next(iter(self._keys), None)
        self._max = max_bytes

    def __repr__(self) -> str:
        return f"<Seal: {len(self._keys)} keys>"

    def derived(self, name: str) -> list[bytes]:
        """Return a secret derived from each key for the purpose `name`. The same keys give the same secrets."""
        return [_expand(secret, b"for:" + name.encode()) for secret in self._keys.values()]

    def seal(self, data: bytes, *, owner: str, run: str, field: str) -> bytes:
        """Seal data so that it opens only with the same owner, run and field."""
        binding = _binding(owner, run, field)
        packed = _packed(data) if len(data) <= self._max else None
        form = (_COMPRESSED if packed is not None else 0) | (_ENCRYPTED if self._first is not None else 0)
        body = data if packed is None else packed
        head = _HEADER.pack(MAGIC, form, len(data))
        if self._first is None:
            return head + _digest(head, binding, body) + body
        head += self._first
        nonce = os.urandom(_NONCE)
        return head + nonce + _cipher(self._keys[self._first], binding).encrypt(nonce, body, head + binding)

    def open(self, sealed: bytes, *, owner: str, run: str, field: str) -> bytes:
        """Return the data of a sealed blob.

        Raises:
            Refused: the blob is damaged, belongs to another owner, run or field, was sealed with an unknown key, or is
                not encrypted although there is a key.
        """
        if len(sealed) < _HEADER.size:
            raise Refused("it is too short")
        magic, form, length = _HEADER.unpack_from(sealed)
        if magic != MAGIC:
            raise Refused("it is stored in another format" if magic[:3] == MAGIC[:3] else "it is damaged")
        if form & ~(_ENCRYPTED | _COMPRESSED):
            raise Refused("it is damaged")
        binding = _binding(owner, run, field)
        body = self._decrypted(sealed, binding) if form & _ENCRYPTED else self._checked(sealed, binding)
        if form & _COMPRESSED:
            return self._unpacked(body, length)
        if len(body) != length:
            raise Refused("it is damaged")
        return body

    def _decrypted(self, sealed: bytes, binding: bytes) -> bytes:
        start = _HEADER.size + _KEY_ID
        if len(sealed) < start + _NONCE + _TAG:
            raise Refused("it is too short")
        if not self._keys:
            raise Refused("it is encrypted, and no store.encryptionKey is configured")
        secret = self._keys.get(sealed[_HEADER.size : start])
        if secret is None:
            raise Refused("it is encrypted with another key than those of store.encryptionKey")
        from cryptography.exceptions import InvalidTag

        nonce, body = sealed[start : start + _NONCE], sealed[start + _NONCE :]
        try:
            return _cipher(secret, binding).decrypt(nonce, body, sealed[:start] + binding)
        except InvalidTag:
            raise _changed() from None

    def _checked(self, sealed: bytes, binding: bytes) -> bytes:
        if self._keys:
            raise Refused("it is not encrypted, although store.encryptionKey is configured")
        start = _HEADER.size + _DIGEST
        if len(sealed) < start:
            raise Refused("it is too short")
        head, digest, body = sealed[: _HEADER.size], sealed[_HEADER.size : start], sealed[start:]
        if not hmac.compare_digest(_digest(head, binding, body), digest):
            raise _changed()
        return body

    def _unpacked(self, body: bytes, length: int) -> bytes:
        if length > self._max:
            raise Refused(f"it needs {length} bytes, more than the limit of {self._max}")
        unpacker = zlib.decompressobj()
        try:
            # With one byte more than expected, longer data is detected without unpacking all of it.
            data = unpacker.decompress(body, length + 1)
        except zlib.error:
            raise Refused("it is damaged") from None
        if len(data) != length or not unpacker.eof or unpacker.unused_data:
            raise Refused("it is damaged")
        return data


def _changed() -> Refused:
    return Refused("it is damaged, or was stored for something else")


def _packed(data: bytes) -> bytes | None:
    """Return the compressed data, or None if compression saves little."""
    if len(data) < _MIN_COMPRESSED:
        return None
    probe = data[:_PROBE]
    if len(zlib.compress(probe, _LEVEL)) > len(probe) * 3 // 4:
        return None
    return zlib.compress(data, _LEVEL)


def _binding(owner: str, run: str, field: str) -> bytes:
    # Names that programs give to values may hold lone surrogates.
    parts = [part.encode("utf-8", "surrogatepass") for part in (owner, run, field)]
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def _digest(head: bytes, binding: bytes, body: bytes) -> bytes:
    digest = hashlib.sha256(head)
    digest.update(binding)
    digest.update(body)
    return digest.digest()


# HKDF (RFC 5869) with SHA-256, one block.


def _extract(key: bytes) -> bytes:
    return hmac.digest(b"codemode-mcp store", key, "sha256")


def _expand(secret: bytes, info: bytes) -> bytes:
    return hmac.digest(secret, info + b"\x01", "sha256")


def _cipher(secret: bytes, binding: bytes) -> AESGCM:
    # Random nonces are safe for 2^32 blobs of one key (NIST SP 800-38D, section 8.3). A busy team could reach that, so
    # each binding has a key of its own. The import is late, because most users have no key.
    from cryptography.hazmat.primitives.ciphers import aead

    return aead.AESGCM(_expand(secret, b"key:" + binding))


def shared_secret(name: str, fresh: bytes) -> Work[bytes]:
    """Return the stored secret `name`, after storing `fresh` if there is none."""
    # If two processes insert at the same time, the first one wins. Both read back the same secret.
    yield Query("INSERT INTO secrets (name, body) VALUES (?, ?) ON CONFLICT (name) DO NOTHING", (name, fresh))
    rows = yield Query("SELECT body FROM secrets WHERE name = ?", (name,))
    return bytes(rows[0][0])
