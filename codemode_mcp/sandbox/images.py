"""Warm images of guests: the engine is booted once, and its memory is kept with the places in it."""

from __future__ import annotations

import hashlib
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from codemode_mcp.errors import InternalError, RuntimeUnavailable
from codemode_mcp.sandbox import binary
from codemode_mcp.sandbox.binary import PAGE
from codemode_mcp.sandbox.instance import Instance, Modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NATIVE_STACK = 20_000 * 1024
"""`max_wasm_stack`: enough that the guest's own stack check always comes first. It was measured that up to 36 bytes of
native stack go with a byte of the guest's stack (nested arrays in `JSON.stringify`)."""


IMAGE_SLACK_BYTES = 8 * 1024 * 1024
"""Memory beyond the program's limit that lets the prelude report what happened when the program has used it up."""


GC_THRESHOLD = 1024 * 1024
"""Bytes allocated before the engine first looks for cycles. Its default is 256 KiB, which is about what the warm image
holds already."""


MAIL = 4096
"""Bytes of a message that needs no memory of its own."""


STOP_OFFSET = 56


MAIL_OFFSET = 64


SCRATCH = MAIL_OFFSET + MAIL
"""Bytes of guest memory for the glue's own use, and then short messages; `glue.wat` says what is where."""


STATE = 384
"""Bytes of guest memory that the glue's natives keep for the whole life of a guest."""


NATIVES: Final = (
    ("seed", 1),
    ("random", 0),
    ("randomBytes", 1),
    ("randomUUID", 0),
    ("encodeUtf8", 1),
    ("decodeUtf8", 2),
    ("plainJson", 3),
    ("isProxy", 1),
    ("setCollation", 1),
    ("compare", 2),
    ("grouped", 1),
    ("dateText", 2),
    ("setFunction", 2),
    ("next", 0),
    ("return", 0),
    ("numberText", 0),
    ("bigIntText", 0),
    ("queueMicrotask", 1),
    ("parse", 2),
    ("deferred", 0),
)
"""Name and length of the functions that the glue has for the prelude, in the order of their slots."""


_ATOMS_OFFSET = 232
"""Offset within `STATE` of the atoms of property names, for the natives."""


_CONSTRUCTOR_OFFSET = 368


_RETURN_OFFSET = 376
"""Offsets within `STATE` of two more of them."""


_STACK_LIMIT_OFFSET = 360


_HELPER_NEXT_OFFSET = 364


_HELPER_CLASS_OFFSET = 372
"""Offsets within `STATE` of what the glue needs to know of the engine's iterator helpers."""


_ITERATOR_NEXT: Final = 12
"""`JS_CFUNC_iterator_next`, the kind of a function that says beside its value whether it is done."""


_BLOCK = 4096


_BLANK = bytes(_BLOCK)


BOOT_MEMORY = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Entries:
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


class Image:
    """A warm image: the memory of a guest that has evaluated the prelude and, for a catalog, its `install`.

    Guests are made of `changes`. All of the memory is only read to compare snapshots with it. It is 2.4 MB, so it is
    forgotten after a while without use, where it can be read again.

    Args:
        memory: a whole number of pages.

    Attributes:
        digest: sha256 of `memory`, hexadecimal.
        prelude: sha256 of all but the catalog: the glue, and an empty guest after the prelude.
        changes: where it differs from the memory that a new instance has anyway: offsets and bytes.
        size: bytes of `memory`.
        read: reads `memory` again; None where it has to be kept.
    """

    __slots__ = ("_memory", "_used", "changes", "digest", "entries", "prelude", "read", "size")

    def __init__(
        self, memory: bytes, entries: Entries, digest: str, prelude: str, changes: tuple[tuple[int, bytes], ...] = ()
    ) -> None:
        self._memory: bytes | None = memory
        self._used = time.monotonic()
        self.entries = entries
        self.digest = digest
        self.prelude = prelude
        self.changes = changes
        self.size = len(memory)
        self.read: Callable[[Image], bytes] | None = None

    def __repr__(self) -> str:
        return f"<Image {self.digest[:8]}: {self.size} bytes>"

    @property
    def memory(self) -> bytes:
        """All of the memory, which takes some ms where it was forgotten."""
        self._used = time.monotonic()
        memory = self._memory
        if memory is None:
            assert self.read is not None
            memory = self._memory = self.read(self)
        return memory

    def forget_unused(self, seconds: float) -> bool:
        """Forget the memory if it was not used for so long; tell whether it was there."""
        if self.read is None or self._memory is None or time.monotonic() - self._used < seconds:
            return False
        self._memory = None
        return True

    @property
    def pages(self) -> int:
        return self.size // PAGE


def prelude_source() -> str:
    """Return all prelude files as one function, which takes `NATIVES`. The web globals come first: they use nothing of
    ours and we capture none of theirs; the numbered files share one scope, which no guest code can reach."""
    folder = binary.FOLDER / "prelude"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".js")), key=lambda f: f.name)
    web = [f.read_text("utf-8") for f in files if f.name.startswith("web_")]
    core = [f.read_text("utf-8") for f in files if f.name[:1].isdigit()]
    whole = "\n;".join(web) + '\n;return (function () {\n"use strict";\n' + "\n".join(core) + "\n})()"
    return "(function (natives) {\n" + whole + "\n})"


def load_image(instance: Instance, image: Image) -> bool:
    """Make a fresh instance the guest of an image. False when its memory limit does not allow it."""
    if not instance.grow_to(image.pages):
        return False
    instance.write_all(image.changes)
    bind(instance, image.entries)
    return True


def bind(instance: Instance, entries: Entries) -> None:
    """Tell the glue where things are."""
    at = entries
    instance.glue("bind", at.ctx, at.rt, at.scratch, at.state, at.on_rejection, at.module_denied)


def make_base(cold: Modules) -> Image:
    # A snapshot names the image it is relative to, so every process should make the same one. All that differs
    # between two is what the engine took from the clock (its random seed, which the prelude replaces, and its time
    # origin, of which only differences are used): blank it.
    first, second = _boot_image(cold), _boot_image(cold)
    memory = bytearray(first.memory)
    for offset in _differing_words(first.memory, second.memory):
        memory[offset : offset + 8] = bytes(8)
    return image_of(memory, first.entries)


def _boot_image(cold: Modules) -> Image:
    instance = Instance(cold, BOOT_MEMORY)
    try:
        entries = _boot(instance)
        return image_of(tidy(instance), entries)
    finally:
        instance.close()


def _boot(instance: Instance) -> Entries:
    """Start the engine in an empty instance and evaluate the prelude."""
    instance.call("_initialize")
    rt = instance.call("JS_NewRuntime") & 0xFFFFFFFF
    stack_limit = _set_stack_limit(instance, rt)
    instance.call("JS_SetInterruptHandler", rt, binary.FIRST_GLUE_SLOT, 0)
    instance.call("JS_SetHostPromiseRejectionTracker", rt, binary.FIRST_GLUE_SLOT + 1, 0)
    instance.call("JS_SetModuleLoaderFunc", rt, 0, binary.FIRST_GLUE_SLOT + 2, 0)
    instance.call("JS_SetGCThreshold", rt, GC_THRESHOLD)
    ctx = instance.call("JS_NewContext", rt) & 0xFFFFFFFF
    scratch = instance.call("calloc", 1, SCRATCH) & 0xFFFFFFFF
    state = instance.call("calloc", 1, STATE) & 0xFFFFFFFF
    _write_atoms(instance, ctx, state)
    instance.write(state + _STACK_LIMIT_OFFSET, struct.pack("<I", stack_limit))
    instance.write(state + _HELPER_NEXT_OFFSET, struct.pack("<I", _helper_next(instance, ctx)))
    instance.write(state + _HELPER_CLASS_OFFSET, struct.pack("<I", _helper_class(instance, ctx)))
    # Until the prelude's functions are known, only the clock and the natives are needed.
    instance.glue("bind", ctx, rt, scratch, state, 0, 0)
    source = prelude_source().encode()
    at = instance.call("malloc", len(source) + 1) & 0xFFFFFFFF
    name = instance.call("malloc", 16) & 0xFFFFFFFF
    instance.write(at, source + b"\0")
    instance.write(name, b"prelude\0")
    prelude = instance.call("JS_Eval", ctx, at, len(source), name, 0)
    result = prelude if _is_exception(prelude) else _call(instance, ctx, prelude, _natives(instance, ctx))
    if _is_exception(result):
        raise InternalError("the prelude failed: " + _exception_text(instance, ctx, scratch))
    functions = [instance.call("JS_GetPropertyUint32", ctx, result, i) for i in range(7)]
    instance.call("JS_FreeValue", ctx, result)
    instance.call("free", at)
    instance.call("free", name)
    instance.call("JS_RunGC", rt)
    return Entries(ctx, rt, scratch, state, *functions)


def _write_atoms(instance: Instance, ctx: int, state: int) -> None:
    """Leave the atoms that the glue needs where it looks for them."""
    at = state + _ATOMS_OFFSET
    instance.write(at, b"constructor\0")
    constructor = instance.call("JS_NewAtom", ctx, at) & 0xFFFFFFFF
    instance.write(state + _CONSTRUCTOR_OFFSET, struct.pack("<I", constructor))
    instance.write(at, b"return\0")
    returns = instance.call("JS_NewAtom", ctx, at) & 0xFFFFFFFF
    instance.write(state + _RETURN_OFFSET, struct.pack("<I", returns))
    instance.write(at, b"toJSON\0")
    to_json = instance.call("JS_NewAtom", ctx, at)
    symbols = _property(instance, ctx, instance.call("JS_GetGlobalObject", ctx), b"Symbol")
    tag = instance.call("JS_ValueToAtom", ctx, _property(instance, ctx, symbols, b"toStringTag"))
    instance.write(at, b"data\0")
    data = instance.call("JS_NewAtom", ctx, at)
    instance.write(at, b"blob\0")
    blob = instance.call("JS_NewAtom", ctx, at)
    instance.write(at, struct.pack("<4I", *(atom & 0xFFFFFFFF for atom in (to_json, tag, data, blob))))


def _natives(instance: Instance, ctx: int) -> int:
    """Make an object with the glue's functions for the prelude."""
    natives = instance.call("JS_NewObject", ctx)
    first = binary.FIRST_GLUE_SLOT + binary.GLUE_SLOTS - len(NATIVES)
    for slot, (name, length) in enumerate(NATIVES, first):
        at = instance.call("malloc", len(name) + 1) & 0xFFFFFFFF
        instance.write(at, name.encode() + b"\0")
        kind = _ITERATOR_NEXT if name == "next" else 0
        function = instance.call("JS_NewCFunction2", ctx, slot, at, length, kind, 0)
        instance.call("JS_SetPropertyStr", ctx, natives, at, function)
        instance.call("free", at)
    return natives


def _helper_next(instance: Instance, ctx: int) -> int:
    """Return the place in the function table of the engine's own `next` of iterator helpers.

    A function object has that place in a word of its own, and its length, kind and magic number in the next one. A
    function of the glue, whose place is known, shows where.
    """
    known = binary.FIRST_GLUE_SLOT
    at = instance.call("malloc", 64) & 0xFFFFFFFF
    instance.write(at, b"[].values().map((item) => item).next\0")
    name = at + 48
    instance.write(name, b"boot\0")
    probe = instance.call("JS_NewCFunction2", ctx, known, name, 1, _ITERATOR_NEXT, 0)
    own = instance.call("JS_Eval", ctx, at, 36, name, 0)
    marker = struct.pack("<IBBH", known, 1, _ITERATOR_NEXT, 0)
    offset = instance.read(probe & 0xFFFFFFFF, 64).find(marker)
    place: int
    place, kind = struct.unpack("<II", instance.read((own & 0xFFFFFFFF) + max(offset, 0), 8))
    for value in (probe, own):
        instance.call("JS_FreeValue", ctx, value)
    instance.call("free", at)
    if offset < 0 or offset % 4 or kind != _ITERATOR_NEXT << 8 or not 0 < place < known:
        raise RuntimeUnavailable("the JavaScript engine's iterator helpers were not found")
    return place


def _helper_class(instance: Instance, ctx: int) -> int:
    """Return the class of iterator helpers, whose data has to be as `glue.wat` says."""
    source = b"((it) => [it, it.flatMap(() => [])])({ __proto__: Iterator.prototype, return: () => ({}) })"
    at = instance.call("malloc", 128) & 0xFFFFFFFF
    instance.write(at, source + b"\0")
    name = at + 112
    instance.write(name, b"boot\0")
    both = instance.call("JS_Eval", ctx, at, len(source), name, 0)
    iterator, helper = (instance.call("JS_GetPropertyUint32", ctx, both, i) for i in range(2))
    data = instance.call("JS_GetAnyOpaque", helper, at) & 0xFFFFFFFF
    kind = int.from_bytes(instance.read(at, 4), "little")
    before = instance.read(data, 42)
    instance.write(at, b"return\0")
    method = instance.call("JS_GetPropertyStr", ctx, helper, at)
    ended = instance.call("JS_Call", ctx, method, helper, 0, 0)
    after = instance.read(data, 42)
    for value in (iterator, helper, both, method, ended):
        instance.call("JS_FreeValue", ctx, value)
    instance.call("free", at)
    known = before[:8] == struct.pack("<q", iterator) and before[24:32] == struct.pack("<q", 3 << 32)
    if not known or before[40] != 4 or before[41] & 3 or after[41] != before[41] | 2:
        raise RuntimeUnavailable("the JavaScript engine's iterator helpers are not as expected")
    return kind


def _call(instance: Instance, ctx: int, function: int, argument: int) -> int:
    """Call a function with one argument, both of which are freed."""
    at = instance.call("malloc", 8) & 0xFFFFFFFF
    instance.write(at, (argument & (1 << 64) - 1).to_bytes(8, "little"))
    result = instance.call("JS_Call", ctx, function, 3 << 32, 1, at)
    for value in (function, argument):
        instance.call("JS_FreeValue", ctx, value)
    instance.call("free", at)
    return result


def _is_exception(value: int) -> bool:
    return (value >> 32) & 0xFFFFFFFF == 6


def image_of(memory: bytearray, entries: Entries, base: Image | None = None) -> Image:
    whole = at_rest(memory, entries)
    digest = hashlib.sha256(whole).hexdigest()
    if base is not None:
        return Image(whole, entries, digest, base.prelude, tuple(changed_blocks(whole, base.memory)))
    return Image(whole, entries, digest, hashlib.sha256(f"{digest}\0{glue_source()}".encode()).hexdigest())


def at_rest(memory: bytearray, entries: Entries) -> bytes:
    """Return a copy of a guest's memory without what differs between images that are the same."""
    # The stack holds nothing at rest; blanked, it does not make images differ.
    memory[binary.STACK_START : binary.STACK_END] = bytes(binary.STACK_PAGES * PAGE)
    blank_scratch(memory, entries)
    return bytes(memory)


def tidy(instance: Instance) -> bytearray:
    """Return a copy of an instance's memory with zeros where it is free. The instance is of no use afterwards.

    Snapshots are compared with the image, also where programs have put something since into memory that is free here.
    """
    memory = instance.image()
    for size in _FREE_SIZES:
        while True:
            at = instance.call("malloc", size) & 0xFFFFFFFF
            if at == 0 or at + size > len(memory):
                break
            # What the allocator itself writes into free memory stays: links at the begin, a size at the end.
            memory[at + _LINKS : at + size - _LINKS] = bytes(size - 2 * _LINKS)
    return memory


def blank_scratch(memory: bytearray, entries: Entries) -> None:
    """Take out of a copy of a guest's memory what holds nothing at rest but the time and the last message."""
    memory[entries.scratch : entries.scratch + SCRATCH] = bytes(SCRATCH)


def changed_blocks(memory: bytes, base: bytes) -> Iterator[tuple[int, bytes]]:
    """Runs of blocks in which `memory` is not `base`, taken as blank where it is shorter."""
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


def _differing_words(a: bytes, b: bytes) -> Iterator[int]:
    for start in range(0, len(a), 4096):
        if a[start : start + 4096] != b[start : start + 4096]:
            yield from (at for at in range(start, start + 4096, 8) if a[at : at + 8] != b[at : at + 8])


def _set_stack_limit(instance: Instance, rt: int) -> int:
    """Turn the engine's stack check on. Returns the address that its stack must not reach."""
    # On WASI the engine's own stack check is off: JSRuntime.stack_limit is 0. Its place is found by a marker in the
    # field before it, JSRuntime.stack_size; stack_top and stack_limit follow.
    marker = 0x5EED1234
    instance.call("JS_SetMaxStackSize", rt, marker)
    words = instance.read(rt, 512)
    offset = words.find(marker.to_bytes(4, "little"))
    if offset < 0 or offset % 4:
        raise RuntimeUnavailable("the JavaScript engine's stack limit was not found")
    top = int.from_bytes(words[offset + 4 : offset + 8], "little")
    if not binary.STACK_START < top <= binary.STACK_END:
        raise RuntimeUnavailable("the JavaScript engine's stack is not where it was expected")
    limit = top - binary.USABLE_STACK
    instance.write(rt + offset, binary.USABLE_STACK.to_bytes(4, "little"))
    instance.write(rt + offset + 8, limit.to_bytes(4, "little"))
    return limit


def _exception_text(instance: Instance, ctx: int, scratch: int) -> str:
    error = instance.call("JS_GetException", ctx)
    texts = []
    for value in (error, _property(instance, ctx, error, b"stack")):
        at = instance.call("JS_ToCStringLen2", ctx, scratch, value, 0) & 0xFFFFFFFF
        size = int.from_bytes(instance.read(scratch, 4), "little")
        texts.append(instance.read(at, size).decode("utf-8", "replace") if at else "?")
    return " ".join(texts)


def _property(instance: Instance, ctx: int, value: int, name: bytes) -> int:
    at = instance.call("malloc", len(name) + 1) & 0xFFFFFFFF
    instance.write(at, name + b"\0")
    return instance.call("JS_GetPropertyStr", ctx, value, at)


_FREE_SIZES = (256 * 1024, 64 * 1024, 16 * 1024, 4096, 1024)
"""Bytes of pieces in which free memory is looked for, the largest first."""


_LINKS = 64


def glue_source() -> str:
    return (binary.FOLDER / "glue.wat").read_text("utf-8")
