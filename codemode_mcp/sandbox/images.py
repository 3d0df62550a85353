"""Warm images of guests: the engine is booted once, and its memory is kept with the addresses in it."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from codemode_mcp.sandbox import binary, clock
from codemode_mcp.sandbox.binary import PAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from codemode_mcp.sandbox.instance import Instance

IMAGE_SLACK_BYTES = 8 * 1024 * 1024
"""Memory beyond the limit of a program, with which the prelude can report that the program has used up its own."""

INTL_BYTES = 18 * 1024 * 1024
"""Maximum bytes by which an image with `Intl` is larger than one without. They do not count as memory of a program."""

_INTL = '{"intl":"'
"""Beginning of the manifest of an image with `Intl`, before the digest of its bundle."""

BOOT_MEMORY = 256 * 1024 * 1024
"""Maximum bytes of memory of an instance that boots the engine."""

# The guest memory at `Entries.scratch`; `glue.wat` has the layout.

MAIL = 4096
"""Maximum bytes of a message that needs no memory of its own."""

STOP_OFFSET = 56
"""Offset of the word that interrupts the guest."""

MAIL_OFFSET = 64
"""Offset of short messages."""

SCRATCH = MAIL_OFFSET + MAIL
"""Size in bytes."""

_BLOCK = 1024
_BLANK = bytes(_BLOCK)

_FREE_SIZES = (256 * 1024, 64 * 1024, 16 * 1024, 4096, 1024)
"""Sizes in bytes of the pieces in which `tidy` allocates free memory."""

_LINKS = 64
"""Bytes at either end of free memory that the allocator uses: links at the beginning, a size at the end."""


class Entries(Struct, frozen=True):
    """Addresses in an image, and the prelude's functions as engine values."""

    ctx: int
    rt: int
    scratch: int
    state: int
    start: int
    deliver: int
    collect: int
    fault: int
    on_rejection: int
    module_denied: int
    install: int
    add_intl: int


class Image:
    """A warm image: the memory of a guest that has evaluated the prelude and, for a catalog, its `install`.

    Guests are made from `changes`. The full memory of 2.4 MB is needed only to compare snapshots with it, so it is
    forgotten after a while without use if it can be read again.

    Args:
        memory: a whole number of pages; None if it is read when it is first needed.
        size: bytes of the memory, if it is None.

    Attributes:
        digest: sha256 of `memory`, hexadecimal.
        prelude: sha256 of the glue and of the image without a catalog, hexadecimal.
        changes: differences from the memory of a new instance, as offsets and bytes.
        size: bytes of `memory`.
        beside: bytes of `memory` that do not count as memory of a program: those of `Intl`, if it is there.
        read: makes `memory` again; None if `memory` must not be forgotten.
    """

    __slots__ = ("_memory", "_used", "beside", "changes", "digest", "entries", "prelude", "read", "size")

    def __init__(
        self,
        memory: bytes | None,
        entries: Entries,
        digest: str,
        prelude: str,
        changes: tuple[tuple[int, bytes], ...] = (),
        beside: int = 0,
        size: int = 0,
    ) -> None:
        self._memory = memory
        self._used = time.monotonic()
        self.entries = entries
        self.digest = digest
        self.prelude = prelude
        self.changes = changes
        self.size = size if memory is None else len(memory)
        self.beside = beside
        self.read: Callable[[Image], bytes] | None = None

    def __repr__(self) -> str:
        return f"<Image {self.digest[:8]}: {self.size} bytes>"

    @property
    def memory(self) -> bytes:
        """The full memory. It takes some ms if it was forgotten."""
        self._used = time.monotonic()
        memory = self._memory
        if memory is None:
            assert self.read is not None
            memory = self._memory = self.read(self)
        return memory

    def forget_unused(self, seconds: float) -> bool:
        """Forget the memory if it was not used for so long. Return True if it was forgotten now."""
        if self.read is None or self._memory is None or time.monotonic() - self._used < seconds:
            return False
        self._memory = None
        return True

    @property
    def pages(self) -> int:
        return self.size // PAGE


def load_image(instance: Instance, image: Image) -> bool:
    """Turn a new instance into a guest of an image. Return False if its memory limit does not allow that."""
    if not instance.grow_to(image.pages):
        return False
    instance.write_all(image.changes)
    bind(instance, image.entries)
    return True


def with_intl(manifest: str, bundle: str) -> str:
    """Return the manifest of the image with `Intl` for a catalog. `bundle`: the digest of the bundle."""
    return f'{_INTL}{bundle}",{manifest[1:]}'


def intl_of(manifest: str) -> str | None:
    return manifest[len(_INTL) : len(_INTL) + 64] if manifest.startswith(_INTL) else None


def beside_program(manifest: str) -> int:
    return 0 if intl_of(manifest) is None else INTL_BYTES


def bind(instance: Instance, entries: Entries) -> None:
    at = entries
    instance.glue("bind", at.ctx, at.rt, at.scratch, at.state, at.on_rejection, at.module_denied)


def image_of(memory: bytearray, entries: Entries, base: Image | None = None, *, beside: int | None = None) -> Image:
    """Return the image of a memory.

    Args:
        base: the image without a catalog from which the memory was made; None for an image without a catalog.
        beside: see `Image`; None for that of `base`.
    """
    whole = at_rest(memory, entries)
    digest = hashlib.sha256(whole).hexdigest()
    if base is not None:
        changes = (*base.changes, *changed_blocks(whole, base.memory))
        return Image(whole, entries, digest, base.prelude, changes, base.beside if beside is None else beside)
    return Image(whole, entries, digest, hashlib.sha256(f"{digest}\0{binary.glue_source()}".encode()).hexdigest())


def at_rest(memory: bytearray, entries: Entries) -> bytes:
    """Return a copy of a guest's memory, with zeros where equal guests may differ: the unused stack and the scratch."""
    memory[binary.STACK_START : binary.STACK_END] = bytes(binary.STACK_PAGES * PAGE)
    blank_scratch(memory, entries)
    return bytes(memory)


def tidy(instance: Instance) -> bytearray:
    """Return a copy of an instance's memory, with zeros where it is free. The instance must be dropped afterwards.

    Programs use memory that is free in the image, and zeros there make snapshots small.
    """
    memory = instance.image()
    for size in _FREE_SIZES:
        while True:
            at = instance.call("malloc", size) & 0xFFFFFFFF
            if at == 0 or at + size > len(memory):
                break
            memory[at + _LINKS : at + size - _LINKS] = bytes(size - 2 * _LINKS)
    return memory


def blank_scratch(memory: bytearray, entries: Entries) -> None:
    """Write zeros over the scratch and the clock in a copy of a guest's memory.

    At rest the scratch has only the time and the last message.
    """
    memory[entries.scratch : entries.scratch + SCRATCH] = bytes(SCRATCH)
    memory[clock.ADDRESS : clock.ADDRESS + clock.SIZE] = bytes(clock.SIZE)


def changed_blocks(memory: bytes, base: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the differences of `memory` from `base` as offsets and bytes. A shorter `base` is extended with zeros."""
    start = None
    for at in range(0, len(memory), _BLOCK):
        same = memory[at : at + _BLOCK] == (base[at : at + _BLOCK] or _BLANK)
        if start is not None and same:
            yield start, memory[start:at]
            start = None
        elif start is None and not same:
            start = at
    if start is not None:
        yield start, memory[start:]
