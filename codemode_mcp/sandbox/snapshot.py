"""The stored form of a suspended guest: its differences from its warm image, compressed and with a digest. Pure.

Between turns no WebAssembly frame is live, so linear memory is the whole state. The stack region has only leftovers and
is not stored. The rest is compared with the image in blocks. A block that differs is stored as its XOR with that of the
image, which is nearly all zeros where a program has only changed reference counts.

Layout, all integers little-endian:

    magic    4 bytes  b"CMS2" (the last character is the format version)
    sha256  32 bytes  of everything after it
    engine  32 bytes  digest of the engine binary
    prelude 32 bytes  digest of the image without a catalog, see `Image.prelude`
    image   32 bytes  digest of the warm image of the guest
    pages    4 bytes  number of 64 KiB pages of the memory
    body              zlib: the number of blocks, their indexes (4 bytes each), then the blocks

Another format may have another layout after the magic.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator

from msgspec import Struct

from codemode_mcp.base.errors import Exceeded, ProgramError
from codemode_mcp.sandbox.binary import DIGEST, PAGE, STACK_END, STACK_START
from codemode_mcp.sandbox.images import IMAGE_SLACK_BYTES, Image

FORMAT = 2
MAGIC = b"CMS%d" % FORMAT
BLOCK = 4096
_HEADER = struct.Struct("<4s32s32s32s32sI")
_SIGNED = 36
"""Offset of the part that the digest covers."""
_LEVEL = 1
"""Level of zlib. Blocks of XOR are mostly zeros, so higher levels gain little."""
_BLANK = bytes(BLOCK)


class SnapshotAbout(Struct, frozen=True):
    """Facts of a snapshot about itself.

    Attributes:
        engine, prelude, image: digests of the engine binary, of the image without a catalog, and of the image,
            hexadecimal. A snapshot can be restored only by a process that has the same three.
        pages: the size of its memory.
    """

    format: int
    engine: str
    prelude: str
    image: str
    pages: int


class Patches(Struct, frozen=True):
    """Patches that turn an image into the suspended memory.

    Attributes:
        pages: the size of the memory.
        blocks: offset in memory and the bytes that belong there.
    """

    pages: int
    blocks: tuple[tuple[int, bytes], ...]


def encode(memory: bytes | bytearray, image: Image) -> bytes:
    """Return the stored form of a guest at rest. `memory`: whole pages, of a guest that started from `image`."""
    numbers = []
    changes = []
    for number, block, before in _compared(memory, image.memory):
        if block != before:
            numbers.append(number)
            changes.append(_xor(block, before))
    packer = zlib.compressobj(_LEVEL)
    body = packer.compress(struct.pack(f"<I{len(numbers)}I", len(numbers), *numbers))
    body += packer.compress(b"".join(changes)) + packer.flush()
    digests = (bytes.fromhex(each) for each in (DIGEST, image.prelude, image.digest))
    rest = b"".join(digests) + struct.pack("<I", len(memory) // PAGE) + body
    return MAGIC + hashlib.sha256(rest).digest() + rest


def about(data: bytes) -> SnapshotAbout:
    """Return the facts of a snapshot.

    Raises:
        ProgramError: `snapshot_restore_failed`: the data is damaged, not a snapshot, or has another format.
    """
    if data[:3] != MAGIC[:3] or not data[3:4].isdigit():
        raise _refused("it is too short" if len(data) < len(MAGIC) else "it is not a snapshot")
    if data[:4] != MAGIC:
        raise _refused(f"it has format {data[3:4].decode()}, and this version reads format {FORMAT}")
    if len(data) < _HEADER.size:
        raise _refused("it is too short")
    _, digest, engine, prelude, image, pages = _HEADER.unpack_from(data)
    if hashlib.sha256(memoryview(data)[_SIGNED:]).digest() != digest:
        raise _refused("it is damaged")
    return SnapshotAbout(FORMAT, engine.hex(), prelude.hex(), image.hex(), pages)


def why_not(made: SnapshotAbout, *, prelude: str) -> str | None:
    """Return the reason why this version cannot restore a snapshot of any catalog; None if it can.

    Args:
        prelude: `Image.prelude` of this version.
    """
    if made.engine != DIGEST:
        return f"it was made by engine {_short(made.engine)}, and this one is {_short(DIGEST)}"
    if made.prelude != prelude:
        return f"it was made with prelude {_short(made.prelude)}, and this one is {_short(prelude)}"
    return None


def check(data: bytes, *, prelude: str) -> SnapshotAbout:
    """Return the facts of a snapshot that this version can restore, as far as known without its catalog.

    Raises:
        ProgramError: `snapshot_restore_failed`: it cannot be restored.
    """
    made = about(data)
    why = why_not(made, prelude=prelude)
    if why is not None:
        raise _refused(why)
    return made


def check_limits(
    data: bytes, pages: int, *, image_bytes: int, beside: int, made_within: int, memory_limit: int, max_bytes: int
) -> None:
    """Check a snapshot against limits that may have been lowered since it was made.

    Args:
        pages: the size of its memory.
        image_bytes: the size of its image without `Intl`.
        beside: the bytes of its image that do not count as memory of a program.
        made_within: the memory limit of its program so far, in bytes.
        memory_limit: the memory limit now, in bytes.
        max_bytes: the maximum bytes of a snapshot now.

    Raises:
        ProgramError: `snapshot_restore_failed`: it exceeds one of them.
    """
    if len(data) > max_bytes:
        why = f"its snapshot takes {len(data)} bytes, and maxSnapshotBytes is now {max_bytes}"
        raise _refused(why, Exceeded("maxSnapshotBytes", len(data), max_bytes))
    size = pages * PAGE
    # A program may have used the slack beyond its own limit. Beyond a lower limit, only the image is allowed.
    over = IMAGE_SLACK_BYTES if made_within <= memory_limit else image_bytes
    if size > memory_limit + over + beside:
        why = f"its memory takes {size} bytes, and memoryLimitBytes is now {memory_limit}"
        raise _refused(why, Exceeded("memoryLimitBytes", size, memory_limit))


def decode(data: bytes, image: Image, *, max_bytes: int) -> Patches:
    """Return the changes of `image` that make the suspended memory.

    Args:
        max_bytes: maximum bytes of the memory.

    Raises:
        ProgramError: `snapshot_restore_failed`: the data is damaged, of another version, engine or image, or too large.
    """
    made = check(data, prelude=image.prelude)
    if made.image != image.digest:
        raise _refused(f"it was made from catalog {_short(made.image)}, and this one is {_short(image.digest)}")
    size = made.pages * PAGE
    if size > max_bytes:
        raise _refused(f"it needs {size} bytes, more than the limit of {max_bytes}")
    most = size // BLOCK
    unpacker = zlib.decompressobj()  # with a limit, because damaged data may decompress to gigabytes
    try:
        body = unpacker.decompress(data[_HEADER.size :], 4 + most * (4 + BLOCK))
    except zlib.error:
        raise _refused("it is damaged") from None
    count = struct.unpack_from("<I", body)[0] if len(body) >= 4 else 0
    if count > most or len(body) != 4 + count * (4 + BLOCK):
        raise _refused("it is damaged")
    numbers = struct.unpack_from(f"<{count}I", body, 4)
    if any(number >= most for number in numbers):
        raise _refused("it is damaged")
    start = 4 + 4 * count
    base = image.memory
    blocks = []
    for index, number in enumerate(numbers):
        offset = number * BLOCK
        before = base[offset : offset + BLOCK] or _BLANK
        blocks.append((offset, _xor(body[start + index * BLOCK : start + (index + 1) * BLOCK], before)))
    return Patches(made.pages, tuple(blocks))


def _compared(memory: bytes | bytearray, base: bytes) -> Iterator[tuple[int, bytes | bytearray, bytes]]:
    for number in range(len(memory) // BLOCK):
        offset = number * BLOCK
        if not STACK_START <= offset < STACK_END:
            yield number, memory[offset : offset + BLOCK], base[offset : offset + BLOCK] or _BLANK


def _short(digest: str) -> str:
    return digest[:8] + "…"


def _xor(a: bytes | bytearray, b: bytes) -> bytes:
    return (int.from_bytes(a, "little") ^ int.from_bytes(b, "little")).to_bytes(BLOCK, "little")


def _refused(why: str, exceeded: Exceeded | None = None) -> ProgramError:
    message = f"the suspended program cannot be restored: {why}"
    return ProgramError("snapshot_restore_failed", message, exceeded)
