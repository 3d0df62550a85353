"""The body of an HTTP answer, within a limit that also counts after decompression."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Mapping

ACCEPTED_ENCODINGS: Final = "gzip, deflate"
"""Value of `Accept-Encoding`. Other encodings are not read: their decoders have no limit of size."""

_PLAIN: Final = frozenset(("", "identity"))
_WINDOWS: Final = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class UnreadableBody(Exception):
    """A body cannot be read. The text says why."""


async def read_body(stream: AsyncIterable[bytes], headers: Mapping[str, str], limit: int) -> bytes:
    """Return the whole body of an answer, decompressed.

    Args:
        headers: with names in lower case.
        limit: maximum size in bytes.

    Raises:
        UnreadableBody: the body is too large, or its encoding is unknown or wrong.
        Exception: any exception of the stream.
    """
    length = headers.get("content-length", "")
    if length.isdigit() and int(length[:20]) > limit:
        raise _too_large(limit)
    encoding = headers.get("content-encoding", "").strip().lower()
    chunks: list[bytes] = []
    size = 0
    async for chunk in stream if encoding in _PLAIN else _decoded(stream, encoding, limit):
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _decoded(stream: AsyncIterable[bytes], encoding: str, limit: int) -> AsyncIterator[bytes]:
    if encoding not in _WINDOWS:
        raise UnreadableBody(f"the answer has the content encoding {encoding[:40]!r}, which was not asked for")
    decoder = zlib.decompressobj(_WINDOWS[encoding])
    begun = False
    async for chunk in stream:
        try:
            try:
                piece = decoder.decompress(chunk, limit + 1)
            except zlib.error:
                if begun or encoding != "deflate":
                    raise
                decoder = zlib.decompressobj(-zlib.MAX_WBITS)  # some servers send `deflate` without its header
                piece = decoder.decompress(chunk, limit + 1)
        except zlib.error:
            raise UnreadableBody(f"the answer is not valid {encoding}") from None
        begun = True
        yield piece
    if begun and not decoder.eof:
        raise UnreadableBody(f"the answer ends before its {encoding} data does")


def _too_large(limit: int) -> UnreadableBody:
    return UnreadableBody(f"the answer is larger than {limit} bytes; ask for less at a time")
