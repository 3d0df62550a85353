"""Prepare and compile the engine, keep the compiled form on disk, and make the warm images that guests start from.

Everything here is synchronous and belongs on a worker thread; `Engine.threads` is where guests run.
"""

from __future__ import annotations

import functools
import hashlib
import json
import mmap
import os
import platform
import struct
import sys
import tempfile
import threading
import time
from collections import OrderedDict, deque
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar

import wasmtime
from wasmtime import _ffi as ffi

from codemode_mcp.errors import InternalError, RuntimeUnavailable
from codemode_mcp.sandbox import binary
from codemode_mcp.sandbox.binary import PAGE
from codemode_mcp.sandbox.instance import GuestTrap, Instance, Modules, Places
from upstream_clients.private_files import exposure, make_private_folder, open_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

P = ParamSpec("P")
T = TypeVar("T")
_Job: TypeAlias = "tuple[Future[Any], Callable[[], Any]]"

NATIVE_STACK = 20_000 * 1024
"""`max_wasm_stack`: enough that the guest's own stack check always comes first. It was measured that up to 36 bytes of
native stack go with a byte of the guest's stack (nested arrays in `JSON.stringify`)."""
ASYNC_STACK = 64 * 1024 * 1024
"""wasmtime aborts the process when `max_wasm_stack` is larger than this."""
THREAD_STACK = 128 * 1024 * 1024
"""Virtual; macOS gives secondary threads 512 KiB otherwise."""
IDLE_SECONDS = 2.0
"""After which a thread ends that had nothing to do."""

EPOCH_SECONDS = 0.004
"""The period of the epoch ticker: the last resort against a guest that the engine's own interrupt check misses, and how
finely a turn is paused that takes too long for the event loop."""

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

_BOOT_MEMORY = 256 * 1024 * 1024

_MOST_MEMORY = 2 * 1024 * 1024 * 1024
"""Bytes of memory of an instance that makes an image, at most."""

UNUSED_SECONDS = 5.0
"""Time without use after which an image's memory is forgotten."""

_CACHED_IMAGES = 8

GUESTS_PER_THREAD = 16
"""Guests that are in memory for each that may compute: the others wait for calls, and each may be as large as
`memoryLimitBytes`. Programs beyond these begin when one of them has ended or was suspended."""

_MORE_GUESTS = 64
"""Beside those: images and snapshots that are being made, and what is about to be freed."""

_MAX_POOLED = 640
"""Guests from which on none is pooled: each takes `_SLOT_BYTES` of address space, and systems have 128 TiB."""

_MAX_MEMORY = 1 << 32
_SLOT_BYTES = _MAX_MEMORY + (1 << 28)
"""Address space of one guest, with the guard behind it."""

_KEPT_BYTES = 2560 * 1024
_KEPT_STACK_BYTES = 64 * 1024
"""Memory and stack that stay of a guest that is over, until `Places` gives the memory back. An image has 2.4 MB, and a
page that is not kept costs a fault the next time."""

_UNUSED_GUESTS = 1
"""Number of free places up to which the next guest gets a place of its own, where no guest of its module was."""

_SNAPSHOT_THREADS = 2
"""Guests are saved and restored beside those that compute: a request whose time is over must not queue for that."""


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


class Engine:
    """The compiled engine. Thread-safe. Use `open_engine`."""

    def __init__(self, engine: wasmtime.Engine, modules: Modules, threads: GuestThreads, entries: Entries) -> None:
        self.modules = modules
        self.threads = threads
        self._ticker = _Ticker(engine)
        self._images: OrderedDict[str, Image] = OrderedDict()
        self._images_lock = threading.Lock()
        self.base = self._read_base(entries)

    def ticking(self) -> AbstractContextManager[None]:
        """Return a context in which `Instance.limit` works."""
        return self._ticker

    def image(self, manifest: str) -> Image:
        """Return the warm image for a catalog's manifest (JSON text, see `prelude/70_api.js`), made once per text."""
        image = self.cached_image(manifest)
        if image is not None:
            return image
        image = self._make_image(manifest)
        with self._images_lock:
            self._images[manifest] = image
            while len(self._images) > _CACHED_IMAGES:
                self._images.popitem(last=False)
        return image

    def cached_image(self, manifest: str) -> Image | None:
        """Return the warm image for a manifest, if it is made already."""
        with self._images_lock:
            image = self._images.get(manifest)
            if image is not None:
                self._images.move_to_end(manifest)
            return image

    def forget_unused(self, seconds: float = UNUSED_SECONDS) -> bool:
        """Forget what can be read again and was not used for so long; tell whether that was anything."""
        with self._images_lock:
            images = (self.base, *self._images.values())
        return sum(image.forget_unused(seconds) for image in images) + self.modules.places.give_back(seconds) > 0

    def close(self) -> None:
        """Stop the threads; guests still computing are stopped within a few ticks."""
        self.modules.closing.set()
        self._ticker.close()
        self.threads.close()

    def _read_base(self, entries: Entries) -> Image:
        instance = Instance(self.modules, _BOOT_MEMORY)
        try:
            base = _image(instance.image(), entries)
        finally:
            instance.close()
        base.read = self._read_again
        return base

    def _read_again(self, image: Image) -> bytes:
        """Read the memory of an image from a guest of it that has not begun."""
        instance = Instance(self.modules, _MOST_MEMORY)
        try:
            if not instance.grow_to(image.pages):
                raise InternalError("there is no memory for an image of the sandbox")
            instance.write_all(image.changes)
            memory = instance.image()
        finally:
            instance.close()
        return _at_rest(memory, image.entries)

    def _make_image(self, manifest: str) -> Image:
        instance = Instance(self.modules, _MOST_MEMORY)
        entries = self.base.entries
        try:
            bind(instance, entries)
            with self.ticking():
                instance.limit(60)
                raw = manifest.encode()
                at = instance.call("malloc", len(raw) + 1)
                instance.write(at, raw + b"\0")
                minute = 60_000_000_000
                status = instance.glue("run", entries.install, at, len(raw), minute, entries.collect, minute)
                instance.call("free", at)
                instance.glue("release")
                if status & 0xFFFFFFFF:
                    raise InternalError("the catalog could not be installed in the sandbox")
            image = _image(_tidy(instance), entries, self.base)
        finally:
            instance.close()
        image.read = self._read_again
        return image


@contextmanager
def open_engine(cache_dir: Path | None, *, max_threads: int) -> Iterator[Engine]:
    """Yield the engine, compiled or taken from `cache_dir`; takes a second or so when it must be compiled.

    Args:
        cache_dir: where the compiled form is kept; None keeps it nowhere.
        max_threads: guests that compute concurrently; a few more threads take snapshots.

    Raises:
        RuntimeUnavailable: the binary is missing, is another one, or does not start.
    """
    config, pooled = _config(GUESTS_PER_THREAD * max_threads + _MORE_GUESTS)
    places = Places(_KEPT_BYTES if pooled else 0)
    with _one_processor():
        engine = wasmtime.Engine(config)
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    threads = GuestThreads(max_threads + _SNAPSHOT_THREADS)
    try:
        compiled = threads.submit(_compiled, engine, linker, places, cache_dir).result()
        modules = Modules(engine, linker, linker.instantiate_pre(compiled.main), compiled.glue, places)
        opened = Engine(engine, modules, threads, compiled.entries)
    except BaseException:
        threads.close()
        raise
    try:
        yield opened
    finally:
        opened.close()


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


def _glue_source() -> str:
    return (binary.FOLDER / "glue.wat").read_text("utf-8")


def _config(guests: int) -> tuple[wasmtime.Config, bool]:
    """Return the settings of an engine with up to so many guests at the same time; tell whether a pool has them."""
    config = wasmtime.Config()
    config.epoch_interruption = True
    ffi.wasmtime_config_async_stack_size_set(config.ptr(), ASYNC_STACK)
    config.max_wasm_stack = NATIVE_STACK
    pooled = guests <= _MAX_POOLED and _can_reserve(guests * (_SLOT_BYTES + ASYNC_STACK))
    if pooled:
        _pool(config, guests)
    return config, pooled


@contextmanager
def _one_processor() -> Iterator[None]:
    """Show one processor to the thread.

    wasmtime divides its pool by the number of processors, and threads by turns among the parts. Each part keeps the
    memory of a guest that is over, and guest threads come and go, so with many processors that would be many guests.
    """
    try:
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(before)})
    except (AttributeError, OSError):  # not Linux, or it must not be changed
        yield
        return
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _pool(config: wasmtime.Config, guests: int) -> None:
    """Have the memory and the stack of a guest that is over serve the next one.

    wasmtime puts them back to what they were; that takes a third of what new memory costs, which is copied page by page
    as it is touched (https://docs.wasmtime.dev/examples-fast-instantiation.html).
    """
    pool = ffi.wasmtime_pooling_allocation_config_new()
    try:
        for name, value in (
            ("total_core_instances", 2 * guests),  # the engine and its glue
            ("total_memories", guests),
            ("total_tables", guests),
            ("total_stacks", guests),
            ("max_memory_size", _MAX_MEMORY),
            ("linear_memory_keep_resident", _KEPT_BYTES),
            ("async_stack_keep_resident", _KEPT_STACK_BYTES),
            ("max_unused_warm_slots", _UNUSED_GUESTS),
        ):
            getattr(ffi, f"wasmtime_pooling_allocation_config_{name}_set")(pool, value)
        ffi.wasmtime_pooling_allocation_strategy_set(config.ptr(), pool)
    finally:
        ffi.wasmtime_pooling_allocation_config_delete(pool)


def _can_reserve(size: int) -> bool:
    """Tell whether so much address space can be had, without any memory. Without it wasmtime ends the process."""
    if sys.platform == "win32" or sys.maxsize < 2**32:
        return False
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    try:
        mmap.mmap(-1, size, flags=flags, prot=0).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Compiled:
    """Machine code.

    Attributes:
        main: the engine, whose memory is the base image.
        glue: our own module beside it.
    """

    main: wasmtime.Module
    glue: wasmtime.Module
    entries: Entries


def _compiled(engine: wasmtime.Engine, linker: wasmtime.Linker, places: Places, cache_dir: Path | None) -> _Compiled:
    """Compile the modules, or take them from the cache."""
    prepared = binary.prepare(binary.load())
    path = None if cache_dir is None else _cache_path(cache_dir, prepared)
    if path is not None:
        cached = _from_cache(engine, path)
        if cached is not None:
            return cached
    try:
        glue = wasmtime.Module(engine, bytes(wasmtime.wat2wasm(_glue_source())))
        cold = Modules(engine, linker, linker.instantiate_pre(wasmtime.Module(engine, prepared)), glue, places)
        base = _make_base(cold)
        segments = tuple(_changes(base.memory, b""))
        module = wasmtime.Module(engine, binary.with_memory(prepared, segments, base.pages))
    except wasmtime.WasmtimeError as error:
        raise RuntimeUnavailable(f"the JavaScript engine does not compile: {str(error).splitlines()[0]}") from None
    except GuestTrap as trap:
        raise RuntimeUnavailable(f"the JavaScript engine does not start: {trap}") from None
    if path is not None:
        _to_cache(path, base.entries, bytes(glue.serialize()), bytes(module.serialize()))
    return _Compiled(module, glue, base.entries)


def _make_base(cold: Modules) -> Image:
    # A snapshot names the image it is relative to, so every process should make the same one. All that differs
    # between two is what the engine took from the clock (its random seed, which the prelude replaces, and its time
    # origin, of which only differences are used): blank it.
    first, second = _boot_image(cold), _boot_image(cold)
    memory = bytearray(first.memory)
    for offset in _differing_words(first.memory, second.memory):
        memory[offset : offset + 8] = bytes(8)
    return _image(memory, first.entries)


def _boot_image(cold: Modules) -> Image:
    instance = Instance(cold, _BOOT_MEMORY)
    try:
        entries = _boot(instance)
        return _image(_tidy(instance), entries)
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


def _image(memory: bytearray, entries: Entries, base: Image | None = None) -> Image:
    whole = _at_rest(memory, entries)
    digest = hashlib.sha256(whole).hexdigest()
    if base is not None:
        return Image(whole, entries, digest, base.prelude, tuple(_changes(whole, base.memory)))
    return Image(whole, entries, digest, hashlib.sha256(f"{digest}\0{_glue_source()}".encode()).hexdigest())


def _at_rest(memory: bytearray, entries: Entries) -> bytes:
    """Return a copy of a guest's memory without what differs between images that are the same."""
    # The stack holds nothing at rest; blanked, it does not make images differ.
    memory[binary.STACK_START : binary.STACK_END] = bytes(binary.STACK_PAGES * PAGE)
    blank_scratch(memory, entries)
    return bytes(memory)


def _tidy(instance: Instance) -> bytearray:
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


def _changes(memory: bytes, base: bytes) -> Iterator[tuple[int, bytes]]:
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


class GuestThreads:
    """The threads that guests run on: at most `count`, each with a stack that outlasts the guest's.

    A thread without work ends after a while: a stack that was used deeply is not given back before that.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._threads = 0
        self._waiting = 0
        self._closed = False

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue `work`; a thread is started for it when all others are busy.

        Raises:
            RuntimeError: closed.
        """
        future: Future[T] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("the engine is closed")
            self._jobs.append((future, functools.partial(work, *args, **kwargs)))
            if self._waiting >= len(self._jobs):
                self._changed.notify()
            elif self._threads < self._count:
                self._threads += 1
                # The stack size is the process's setting for threads started from now on: set it just around the start.
                previous = threading.stack_size(THREAD_STACK)
                try:
                    threading.Thread(target=self._run, name="guest").start()
                except RuntimeError:
                    self._threads -= 1
                    if not self._threads:
                        self._jobs.pop()
                        raise
                finally:
                    threading.stack_size(previous)
        return future

    def close(self) -> None:
        """Take no more work, cancel what is queued, and let the threads end."""
        with self._changed:
            self._closed = True
            while self._jobs:
                self._jobs.popleft()[0].cancel()
            self._changed.notify_all()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            future, work = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
            del future, work, job

    def _next(self) -> _Job | None:
        """Return what to do; None when the thread has to end."""
        with self._changed:
            while not self._jobs:
                self._waiting += 1
                woken = not self._closed and self._changed.wait(IDLE_SECONDS)
                self._waiting -= 1
                if not woken and not self._jobs:
                    self._threads -= 1
                    return None
            return self._jobs.popleft()


class _Ticker(AbstractContextManager[None]):
    """Advances the engine's epoch while a caller is inside, and sleeps after a while without one."""

    _CLOSING_TICKS = 1000
    _IDLE_TICKS = 50
    """Waking a thread for every turn would cost more than the turn."""

    def __init__(self, engine: wasmtime.Engine) -> None:
        self._engine = engine
        self._inside = 0
        self._asleep = True
        self._closed = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="epoch", daemon=True).start()

    def __enter__(self) -> None:
        with self._changed:
            self._inside += 1
            if self._asleep:
                self._changed.notify()

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        idle = 0
        while True:
            with self._changed:
                if self._inside:
                    idle = 0
                while idle >= self._IDLE_TICKS and not self._inside and not self._closed:
                    self._asleep = True
                    self._changed.wait()
                self._asleep = False
                if self._closed:
                    break
            idle += 1
            time.sleep(EPOCH_SECONDS)
            self._engine.increment_epoch()
        # Those who are still inside look at their alarms when the epoch advances.
        for _ in range(self._CLOSING_TICKS):
            if not self._inside:
                break
            time.sleep(EPOCH_SECONDS)
            self._engine.increment_epoch()


# the compile cache


def compiled_path(cache_dir: Path) -> Path | None:
    """Return where this engine's compiled form is kept, or will be; None where the folder cannot be made or trusted.

    Raises:
        RuntimeUnavailable: the binary is missing, or is another one.
    """
    return _cache_path(cache_dir, binary.prepare(binary.load()))


def _cache_path(cache_dir: Path, prepared: bytes) -> Path | None:
    """Return the place of the compiled form, or None when the folder cannot be trusted or made."""
    try:
        make_private_folder(cache_dir)
        if exposure(cache_dir) is not None:
            return None
    except OSError:
        return None
    key = hashlib.sha256()
    for part in (
        # In place of its version, which takes 12 ms to read. A file of another version is refused, and made again.
        str(os.path.getsize(ffi.filename)),
        f"{NATIVE_STACK} {ASYNC_STACK} epoch glue",
        platform.system(),
        platform.machine(),
        _cpu_features(),
        _glue_source(),
        prelude_source(),
    ):
        key.update(part.encode() + b"\0")
    key.update(prepared)
    return cache_dir / f"engine-{key.hexdigest()[:32]}.cwasm"


def _cpu_features() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        return platform.processor()


def _from_cache(engine: wasmtime.Engine, path: Path) -> _Compiled | None:
    # Machine code is only loaded from a file that no other user can have written, and when its digest shows that it is
    # what was written; anything else means recompile. The digest alone is no protection: it is in the same file.
    try:
        with open_private(path) as file:
            data = file.read()
    except OSError:
        return None
    # Without copies: of these megabytes each would take the interpreter's lock for milliseconds.
    if hashlib.sha256(memoryview(data)[32:]).digest() != data[:32]:
        return None
    start = data.find(b"\n", 32) + 1
    try:
        *entries, size = json.loads(data[32:start])
        glue, main = data[start : start + size], data[start + size :]
        return _Compiled(
            wasmtime.Module.deserialize(engine, main), wasmtime.Module.deserialize(engine, glue), Entries(*entries)
        )
    except (wasmtime.WasmtimeError, ValueError, TypeError):
        return None


def _to_cache(path: Path, entries: Entries, glue: bytes, main: bytes) -> None:
    data = json.dumps([*astuple(entries), len(glue)]).encode() + b"\n" + glue + main
    scratch = None
    try:
        descriptor, scratch = tempfile.mkstemp(".tmp", f"{path.name}.", path.parent)  # with mode 0600
        with os.fdopen(descriptor, "wb") as file:
            file.write(hashlib.sha256(data).digest() + data)
        os.replace(scratch, path)
        _remove_stale(path)
    except OSError:
        if scratch is not None:
            with suppress(OSError):
                os.unlink(scratch)


def _remove_stale(current: Path) -> None:
    # Of earlier versions; one that another installation still uses is soon made again.
    for other in current.parent.glob("engine-*.cwasm"):
        if other != current and time.time() - other.stat().st_mtime > _STALE_SECONDS:
            other.unlink()


_STALE_SECONDS = 30 * 24 * 3600
