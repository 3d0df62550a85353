"""The body of an HTTP answer, within a limit that also counts after decompression."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterable

ACCEPTED_ENCODINGS: Final = "gzip, deflate"
"""Value of `Accept-Encoding`. Other encodings are not read: their decoders have no limit of size."""

_WINDOWS: Final = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class UnreadableBody(Exception):
    """A body cannot be read. The text says why."""


class TooLarge(UnreadableBody):
    """A body is larger than the limit."""


def too_large(limit: int) -> TooLarge:
    """Return the error for a body of more than `limit` bytes."""
    return TooLarge(f"the answer is larger than {limit} bytes; ask for less at a time")


async def read_stream(stream: AsyncIterable[bytes], limit: int) -> bytes:
    """Return all bytes of a stream. Raises `UnreadableBody` if there are more than `limit`."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in stream:
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks)


def decompressed(body: bytes, encoding: str, limit: int) -> bytes:
    """Return a body without its content encoding.

    Raises:
        UnreadableBody: the body is too large, or its encoding is unknown or wrong.
    """
    if encoding not in _WINDOWS:
        raise UnreadableBody(f"the answer has the content encoding {encoding[:40]!r}, which was not asked for")
    # Some servers send `deflate` without its header.
    for window in (_WINDOWS[encoding], -zlib.MAX_WBITS) if encoding == "deflate" else (_WINDOWS[encoding],):
        decoder = zlib.decompressobj(window)
        try:
            found = decoder.decompress(body, limit + 1)
        except zlib.error:
            continue
        if len(found) > limit:
            raise too_large(limit)
        if not decoder.eof:
            raise UnreadableBody(f"the answer ends before its {encoding} data does")
        return found
    raise UnreadableBody(f"the answer is not valid {encoding}")
